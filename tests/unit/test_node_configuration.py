"""Configurations of containerd: mirror-node finds whether containerd reads the file that it writes."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import Result

from jobs.core.mirror_node.files import Reading, read_containerd
from jobs.core.mirror_node.hosts import BYPASSED
from tests.unit.test_mirror_node import ARGUMENTS, REMOVE, certs, path, put, running
from tests.unit.test_mirror_node import check as check_files

pytest.importorskip("tomllib", reason="Python reads TOML since 3.11")
__all__ = ["certs", "path"]  # fixtures

CRI, IMAGES = 'plugins."io.containerd.grpc.v1.cri"', 'plugins."io.containerd.cri.v1.images"'
READS = 'config_path = "/etc/containerd/certs.d"'
A, B = 'config_path = "/a"', 'config_path = "/b"'
LIST = 'config_path = "/etc/containerd/certs.d:/etc/docker/certs.d"'


def of(version: int, registry: str = "", images: str = "", table: str = "") -> str:
    """A configuration of containerd, with these settings for the registry and for images."""
    table = table or {1: "plugins.cri", 2: CRI}.get(version, IMAGES)
    return f"version = {version}\n[{table}]\n{images}\n[{table}.registry]\n{registry}\n"


READ = {
    "version 1": of(1, READS),
    "no version": of(1, READS).removeprefix("version = 1"),
    "version 2": of(2, READS),
    "version 3": of(3, READS),
    "version 4": of(4, READS),
    "a slash at the end": of(2, 'config_path = "/etc/containerd/certs.d/"'),
    "two slashes in front": of(2, 'config_path = "//etc/containerd/certs.d"'),
    "logins next to it": of(2, f'{READS}\n[{CRI}.registry.configs."quay.io".auth]\nusername = "a"'),
    "a list that is not pulled by the transfer service": of(3, LIST, "use_local_image_pull = true"),
    "a list, and layers are discarded": of(3, LIST, "discard_unpacked_layers = true"),
    "a list, and other concurrency": of(3, LIST, "max_concurrent_downloads = 10"),
    "the setting of ctr elsewhere": of(3, READS) + '[plugins."io.containerd.transfer.v1.local"]\nconfig_path = "/x"',
}
# One version of containerd reads hosts.toml with it, another does not: the version is unknown, so it is not a problem.
UNKNOWN = {
    "no configuration": None,
    "nothing in version 3, which has a default since 2.2": of(3),
    "empty in version 3": of(3, 'config_path = ""'),
    "nothing in version 2 without the transfer service": of(
        2, "", f"[{CRI}.containerd]\ndiscard_unpacked_layers = true"
    ),
    "a list in version 2": of(2, LIST),
    "the table of version 3 in version 2": of(2, READS, table=IMAGES),
    "the table of version 2 in version 1": of(1, READS, table=CRI),
    "not TOML": "version =",
    "not text": b"\xff\xfe",
    "deep": f"a = {'[' * 5000}{']' * 5000}",
    "large": of(2, READS) + "#" * 300_000,
    "imports from elsewhere": 'imports = ["/opt/containerd/*.toml"]\n' + of(2),
    "imports from above": 'imports = ["../containerd.toml"]\n' + of(2),
    "an import that is not there": 'imports = ["other.toml"]\n' + of(2),
    "a version that is text": 'version = "2"',
}
NOT_READ = {
    "nothing in version 1": (of(1), "config_path is not set"),
    "nothing in version 2": (of(2), "config_path is not set"),
    "an empty file": ("", "config_path is not set"),
    "empty in version 2": (of(2, 'config_path = ""'), "config_path is not set"),
    "another folder": (of(2, 'config_path = "/etc/docker/certs.d"'), "config_path is /etc/docker/certs.d"),
    "other folders": (of(2, 'config_path = "/a:/etc/containerd/certs.d.old"'), "config_path is /a:"),
    "a list": (of(3, LIST), "reads as one folder"),
    "a list of one": (of(3, 'config_path = "/etc/containerd/certs.d:"'), "reads as one folder"),
    "mirrors": (of(2, f'[{CRI}.registry.mirrors."docker.io"]\nendpoint = ["https://a"]'), "registry.mirrors is set"),
    "mirrors next to it": (of(3, f'{READS}\n[{IMAGES}.registry.mirrors."a"]\nendpoint = []'), "registry.mirrors"),
    "mirrors in version 3": (of(3, f'[{IMAGES}.registry.mirrors."a"]\nendpoint = []'), "registry.mirrors is set"),
    "a table that is a value": ("version = 2\nplugins = 1", "config_path is not set"),
}


@pytest.fixture
def containerd(tmp_path: Path) -> Path:
    """The folder where the node's /etc/containerd is mounted."""
    folder = tmp_path / "containerd"
    folder.mkdir()
    return folder


def check(certs: Path, containerd: Path, *arguments: str) -> Result:
    return check_files(certs, *(arguments or ARGUMENTS), f"--containerd-dir={containerd}")


def configured(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.mark.parametrize("what", READ)
def test_a_configuration_that_reads_the_folder_is_right(containerd: Path, what: str) -> None:
    configured(containerd, {"config.toml": READ[what]})

    assert read_containerd(containerd) == Reading()


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_only_containerd_knows_is_not_a_problem(containerd: Path, what: str) -> None:
    content = UNKNOWN[what]
    configured(containerd, {"config.toml": content} if content is not None else {})

    found = read_containerd(containerd)
    assert found.unknown and not found.problem


def test_what_is_not_known_is_logged_once(certs: Path, containerd: Path) -> None:
    configured(containerd, {"config.toml": of(3)})
    with running(certs, [*ARGUMENTS, f"--containerd-dir={containerd}"]) as process:
        process.checks_again()
        unknown, wrote = process.end()

    assert unknown.startswith("not known whether pulls use the mirror: config_path is not set")
    assert wrote.endswith("does not exist: written")
    checked = check(certs, containerd)
    assert (checked.exit_code, checked.output) == (0, "")


@pytest.mark.parametrize("what", NOT_READ)
def test_a_configuration_that_does_not_read_the_folder_is_a_problem(containerd: Path, what: str) -> None:
    content, why = NOT_READ[what]
    configured(containerd, {"config.toml": content})

    found = read_containerd(containerd)
    assert BYPASSED in found.problem and why in found.problem


def test_the_file_is_removed_although_containerd_does_not_read_it(certs: Path, containerd: Path) -> None:
    configured(containerd, {"config.toml": of(2)})
    assert check(certs, containerd, *REMOVE).exit_code == 0


def test_the_file_is_written_although_containerd_does_not_read_it_and_a_correction_needs_no_restart(
    certs: Path, containerd: Path, path: Path
) -> None:
    configured(containerd, {"config.toml": of(2)})
    with running(certs, [*ARGUMENTS, f"--containerd-dir={containerd}"]) as process:
        process.checks_again()
        assert path.exists()
        checked = check(certs, containerd)
        assert (checked.exit_code, BYPASSED in checked.output) == (1, True)
        put(containerd / "config.toml", of(2, READS))
        process.checks_again()
        assert check(certs, containerd).exit_code == 0
        wrote, warning = process.end()

    assert wrote.endswith("does not exist: written")
    assert BYPASSED in warning and "config_path is not set" in warning


IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml", "more.toml"]\n'
# Files by name, and whether there is a problem; a later file overrides an earlier one.
IMPORTED: dict[str, tuple[dict[str, str], bool]] = {
    "sets it": ({"config.toml": IMPORTS + of(2), "conf.d/a.toml": of(2, READS), "more.toml": ""}, False),
    "sets it last": ({"config.toml": IMPORTS + of(2), "conf.d/a.toml": of(2, A), "more.toml": of(2, READS)}, False),
    "sets another": ({"config.toml": IMPORTS + of(2, READS), "conf.d/b.toml": of(2, B), "more.toml": ""}, True),
    "sets another, with two slashes in front": (
        {"config.toml": 'imports = ["//etc/containerd/b.toml"]\n' + of(2, READS), "b.toml": of(2, B)},
        True,
    ),
    # containerd 1 loses config_path by this, containerd 2 does not.
    "sets something else of the table": (
        {
            "config.toml": IMPORTS + of(2, READS),
            "conf.d/nvidia.toml": of(2, "", "sandbox_image = 'a'"),
            "more.toml": "",
        },
        False,
    ),
    "sets something else of version 3": (
        {"config.toml": IMPORTS + of(3, A), "conf.d/a.toml": of(3, "", "a = 1"), "more.toml": ""},
        True,
    ),
    "is of another version": ({"config.toml": IMPORTS + of(2), "conf.d/a.toml": of(3), "more.toml": ""}, False),
    "imports the first": ({"config.toml": IMPORTS + of(2), "more.toml": 'imports = ["config.toml"]'}, True),
    "is in a folder that does not exist": ({"config.toml": IMPORTS + of(2), "more.toml": ""}, True),
    "is one of too many": (
        {"config.toml": IMPORTS + of(2), "more.toml": "", **{f"conf.d/{number}.toml": "" for number in range(40)}},
        False,
    ),
}


@pytest.mark.parametrize("what", IMPORTED)
def test_an_imported_file(containerd: Path, what: str) -> None:
    files, is_problem = IMPORTED[what]
    configured(containerd, files)

    assert bool(read_containerd(containerd).problem) == is_problem


@pytest.mark.parametrize("what", ["link", "link to elsewhere", "folder", "fifo", "linked folder"])
def test_only_a_plain_file_of_the_folder_is_read(containerd: Path, tmp_path: Path, what: str) -> None:
    elsewhere = tmp_path / "elsewhere" / "config.toml"
    put(elsewhere, of(2))
    configured(containerd, {"other.toml": of(2), "config.toml": 'imports = ["x/config.toml"]\n' + of(2)})
    config = containerd / "config.toml"
    if what == "linked folder":
        (containerd / "x").symlink_to(elsewhere.parent)
    else:
        config.unlink()
        make: dict[str, Callable[[], None]] = {
            "link": lambda: config.symlink_to("other.toml"),
            "link to elsewhere": lambda: config.symlink_to(elsewhere),
            "folder": config.mkdir,
            "fifo": lambda: os.mkfifo(config),
        }
        make[what]()

    found = read_containerd(containerd)
    assert found.unknown and not found.problem
