"""The command that the DaemonSets of mirrors run, in processes and folders of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs import mirror_node
from jobs.__main__ import chores
from jobs.mirrors.hosts import hosts_toml
from tests.apis import wait_for

MIRROR, UPSTREAM = "http://10.0.0.7:5000", "https://registry-1.docker.io"
WANTED = hosts_toml("hub", MIRROR, UPSTREAM)
THEIRS = 'server = "https://registry-1.docker.io"\n'
ASKED = ("--name=hub", "--host=docker.io", f"--mirror={MIRROR}", f"--upstream={UPSTREAM}")
REMOVE = ("--name=hub", "--host=docker.io", "--remove")
# The command with another interval; a character on stdout is one look.
WATCHED = """
import sys
from jobs import __main__, mirror_node
mirror_node.INTERVAL_SECONDS = float(sys.argv.pop(1))
settle = mirror_node.settle
mirror_node.settle = lambda asked: [print(end=".", flush=True), settle(asked)][1]
__main__.main()
"""


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    """What containerd's config_path names."""
    certs = tmp_path / "certs.d"
    certs.mkdir()
    return certs


@pytest.fixture
def path(certs: Path) -> Path:
    """The file of docker.io."""
    return certs / "docker.io" / "hosts.toml"


class Running:
    """The command in a process of its own, which has begun to look."""

    def __init__(self, process: subprocess.Popen[bytes], looks: Path, log: Path) -> None:
        self._process, self._looks, self._log = process, looks, log
        wait_for(lambda: looks.stat().st_size, "the first look", detail=log.read_text)

    def look(self) -> None:
        """Wait until it has looked once more, and done what there was to do."""
        before = self._looks.stat().st_size
        wait_for(lambda: self._looks.stat().st_size > before + 1, "another look", detail=self._log.read_text)

    def said(self) -> list[str]:
        """Its lines so far."""
        return self._log.read_text().splitlines()

    def end(self, by: signal.Signals = signal.SIGTERM) -> list[str]:
        """End it, which must be at once; gives its lines."""
        self._process.send_signal(by)
        assert self._process.wait(5) == 0
        return self.said()


@contextlib.contextmanager
def running(certs: Path, asked: Sequence[str] = ASKED, umask: int = -1, interval: float = 0.05) -> Iterator[Running]:
    """The command, looking twenty times a second."""
    words = [sys.executable, "-c", WATCHED, str(interval), "mirror-node", *asked, f"--certs-dir={certs}"]
    folder = Path(tempfile.mkdtemp(dir=certs.parent))
    looks, log = folder / "looks", folder / "log"
    with (
        looks.open("wb") as stdout,
        log.open("wb") as stderr,
        subprocess.Popen(words, stdout=stdout, stderr=stderr, umask=umask) as process,
    ):
        try:
            yield Running(process, looks, log)
        finally:
            process.kill()


def check(certs: Path, *asked: str) -> Result:
    return CliRunner().invoke(chores, ["mirror-node", *(asked or ASKED), f"--certs-dir={certs}", "--check"])


def put(path: Path, text: str) -> None:
    """Write a file in one step: the command may look at any moment."""
    path.parent.mkdir(exist_ok=True)
    elsewhere = path.parent.parent / f"{path.name}.new"
    elsewhere.write_text(text)
    elsewhere.replace(path)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_the_file_is_written_and_stays_when_the_command_ends(certs: Path, path: Path, by: signal.Signals) -> None:
    assert check(certs).exit_code == 1
    assert not path.parent.exists()
    with running(certs, umask=0o077, interval=mirror_node.INTERVAL_SECONDS) as process:
        wait_for(process.said, "a message")
        assert process.end(by) == [f"{path} is not there: wrote it"]

    assert path.read_text() == WANTED
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o644, 0o755]
    assert [each.name for each in path.parent.iterdir()] == ["hosts.toml"]
    checked = check(certs)
    assert (checked.exit_code, checked.output) == (0, "")


def test_the_file_is_written_again_whatever_was_done_to_it(certs: Path, path: Path) -> None:
    changes = (
        lambda: put(path, WANTED + "# edited\n"),
        path.unlink,
        lambda: path.parent.rename(certs.parent / "elsewhere"),
    )
    with running(certs) as process:
        process.look()
        for change in changes:
            change()
            process.look()
            assert path.read_text() == WANTED
        said = process.end()

    missing, edited = f"{path} is not there: wrote it", f"{path} is not as it should be: wrote it"
    assert said == [missing, edited, missing, missing]


def test_a_reader_never_sees_half_a_file(certs: Path, path: Path) -> None:
    other = hosts_toml("other", MIRROR, UPSTREAM)
    observed = set()
    with running(certs, interval=0.001) as one, running(certs, ("--name=other", *ASKED[1:]), interval=0.001) as another:
        wait_for(path.exists, "the file")
        until = time.monotonic() + 1
        while time.monotonic() < until:
            observed.add(path.read_text())
        one.end()
        another.end()

    assert observed == {WANTED, other}


def test_a_file_of_another_mirror_is_taken_over(certs: Path, path: Path) -> None:
    put(path, hosts_toml("other", MIRROR, UPSTREAM))
    assert "is that of registrymirror other" in check(certs).output
    with running(certs) as process:
        process.look()
        assert process.end() == [f"{path} is that of registrymirror other: wrote it"]
    assert path.read_text() == WANTED


def test_a_file_of_somebody_else_is_never_touched(certs: Path, path: Path) -> None:
    put(path, THEIRS)
    checked = check(certs)
    assert checked.exit_code == 1
    assert "was not written by kube-chores and stays as it is: move it away" in checked.output
    with running(certs) as process:
        process.look()
        process.look()
        assert path.read_text() == THEIRS
        path.unlink()
        process.look()
        warning, wrote = process.end()
    assert path.read_text() == WANTED
    assert "move it away" in warning
    assert wrote == f"{path} is not there: wrote it"


@pytest.mark.parametrize("of", ["hub", "other", None])
def test_only_its_own_file_is_removed(certs: Path, path: Path, of: str | None) -> None:
    text = hosts_toml(of, MIRROR) if of else THEIRS
    put(path, text)
    own = of == "hub"
    assert check(certs, *REMOVE).exit_code == (1 if own else 0)
    with running(certs, REMOVE) as process:
        process.look()
        assert process.end() == ([f"{path} is still there: removed it"] if own else [])

    assert path.parent.exists() != own
    assert own or path.read_text() == text
    assert check(certs, *REMOVE).exit_code == 0


def test_a_folder_with_more_in_it_stays(certs: Path, path: Path) -> None:
    put(path, WANTED)
    (path.parent / "ca.crt").touch()
    with running(certs, REMOVE) as process:
        process.look()
        process.end()

    assert [each.name for each in path.parent.iterdir()] == ["ca.crt"]


def test_what_was_written_for_another_host_goes(certs: Path, path: Path) -> None:
    """A mirror that gets another upstream would else serve images of the one for the other."""
    before, theirs, others = (certs / name / "hosts.toml" for name in ("quay.io", "ghcr.io", "gcr.io_5000_"))
    put(path, WANTED)
    put(before, hosts_toml("hub", MIRROR, "https://quay.io"))
    put(theirs, THEIRS)
    put(others, hosts_toml("other", MIRROR))
    (certs / "file").write_text("")
    (certs / "gone").symlink_to("nowhere")

    refused = check(certs)
    assert (refused.exit_code, refused.output) == (1, f"error: {before} is still there\n")
    with running(certs) as process:
        wait_for(lambda: not before.parent.exists(), "the file and its folder to go", detail=process.said)

    assert check(certs).exit_code == 0
    assert [each.exists() for each in (path, before.parent, theirs, others)] == [True, False, True, True]
    put(before, hosts_toml("hub", MIRROR))
    assert check(certs, *REMOVE).exit_code == 1
    with running(certs, REMOVE) as process:
        wait_for(lambda: check(certs, *REMOVE).exit_code == 0, "the files to go", detail=process.said)
    assert [each.exists() for each in (path, before.parent, theirs, others)] == [False, False, True, True]


@pytest.mark.parametrize("asked", [ASKED, REMOVE])
def test_what_a_killed_process_left_goes(certs: Path, path: Path, asked: Sequence[str]) -> None:
    put(path, hosts_toml("hub", "http://10.0.0.8:5000"))
    (path.parent / ".hosts.toml.0badcafe").write_text(WANTED[:20])
    with running(certs, asked) as process:
        process.look()
        process.end()

    left = [each.name for each in path.parent.iterdir()] if path.parent.exists() else []
    assert left == (["hosts.toml"] if asked is ASKED else [])


def test_what_cannot_be_written_is_said_once_and_tried_again(certs: Path, path: Path) -> None:
    certs.rmdir()
    assert check(certs).exit_code == 1
    with running(certs) as process:
        process.look()
        process.look()
        certs.mkdir()
        process.look()
        warning, wrote = process.end()

    assert warning.startswith(f"warning: {path}: No such file or directory; trying again")
    assert wrote == f"{path} is not there: wrote it"


def test_a_failed_write_leaves_nothing_behind(certs: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    put(path, hosts_toml("hub", "http://10.0.0.8:5000"))
    before = path.read_text()
    monkeypatch.setattr(os, "fsync", full)
    asked = mirror_node.Asked("hub", "docker.io", certs, WANTED)

    assert mirror_node.settle(asked) == f"{path}: No space left on device"
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir()] == ["hosts.toml"]


@pytest.mark.parametrize("what", ["link", "fifo", "folder", "linked folder", "file for a folder"])
def test_nothing_but_a_plain_file_is_touched(certs: Path, path: Path, what: str) -> None:
    elsewhere = certs.parent / "elsewhere"
    put(elsewhere / "hosts.toml", hosts_toml("hub", "http://10.0.0.8:5000"))
    before = (elsewhere / "hosts.toml").read_text()
    if what == "linked folder":
        path.parent.symlink_to(elsewhere)
    elif what == "file for a folder":
        path.parent.touch()
    else:
        path.parent.mkdir()
        make = {"link": lambda: path.symlink_to(elsewhere / "hosts.toml"), "fifo": lambda: os.mkfifo(path)}
        make.get(what, path.mkdir)()

    checked = check(certs)
    assert checked.exit_code == 1
    assert "stays as it is" in checked.output
    assert check(certs, *REMOVE).exit_code == 0
    written = mirror_node.Asked("hub", "docker.io", certs, WANTED)
    assert mirror_node.settle(written).endswith("stays as it is")
    assert mirror_node.settle(written._replace(desired=None)) == ""
    assert path.parent.exists() and (path.exists() or what == "file for a folder")
    assert (elsewhere / "hosts.toml").read_text() == before


def test_a_host_with_a_port_is_in_the_folder_that_is_tried_first(certs: Path) -> None:
    asked = ("--name=hub", "--host=10.88.0.1:5443", f"--mirror={MIRROR}")
    path = certs / "10.88.0.1_5443_" / "hosts.toml"
    with running(certs, asked) as process:
        process.look()
        process.end()
    assert path.read_text() == hosts_toml("hub", MIRROR)
    assert check(certs, *asked).exit_code == 0

    (certs / "10.88.0.1:5443").mkdir()
    checked = check(certs, *asked)
    assert checked.exit_code == 1
    assert "10.88.0.1:5443 would not be read any more" in checked.output
    assert check(certs, *asked, "--remove").exit_code == 1
    path.unlink()
    assert check(certs, *asked, "--remove").exit_code == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--host=a.io", "--mirror=http://a"], "--name"),
        (["--name=hub", "--mirror=http://a"], "--host"),
        (["--name=hub", "--host=a.io"], "--mirror is needed, or --remove"),
        (["--name=a.b", "--host=a.io", "--mirror=http://a"], "cannot be the name of a mirror"),
        (["--name=hub", "--host=../a", "--mirror=http://a"], "is no host of a registry"),
        (["--name=hub", "--host=_default", "--remove"], "is no host of a registry"),
        (["--name=hub", "--host=", "--remove"], "is no host of a registry"),
        (["--name=hub", "--host=a.io", "--mirror=a.io"], "is no URL of a server"),
        (["--name=hub", "--host=a.io", "--mirror=http://a", "--upstream="], "is no URL of a server"),
    ],
)
def test_a_wrong_command_line_is_refused(certs: Path, asked: list[str], said: str) -> None:
    for more in ([], ["--check"]):
        result = CliRunner().invoke(chores, ["mirror-node", *asked, *more, f"--certs-dir={certs}"])
        assert result.exit_code == 2
        assert said in result.output
    assert list(certs.iterdir()) == []


def test_it_imports_nothing_that_a_probe_would_wait_for() -> None:
    show = "import sys, jobs.__main__, jobs.mirror_node; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    ours = set(done.stdout.split()) - set(sys.stdlib_module_names)

    assert {name for name in ours if not name.startswith(("__", "_virtualenv", "_distutils"))} <= {"click", "jobs"}
