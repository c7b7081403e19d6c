"""The archives and the manifest of the plugin of kubectl, of small wheels. tests/release runs the real one."""

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
import yaml

from tests.manifests import ROOT
from tools import krew

NATIVE = {"3.10": "cpython-310", "3.13": "cpython-313"}


def wheel(folder: Path, name: str, **files: str) -> Path:
    """Write a wheel with these files; `__` in a name is a slash."""
    path = folder / f"{name}-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in {"x-1.dist-info__RECORD": name, **files}.items():
            archive.writestr(each.replace("__", "/"), content)
    return path


def wheels(folder: Path) -> list[Path]:
    return [
        wheel(folder, f"x-1-{tag}", **{"x__a.py": "same", f"x__n.{tag}.so": tag, "x__rust.abi3.so": tag})
        for tag in NATIVE.values()
    ]


def test_an_archive_has_the_native_modules_of_all_versions(tmp_path: Path) -> None:
    content = krew.plugin(wheels(tmp_path), 1_700_000_000)

    with tarfile.open(fileobj=BytesIO(content)) as archive:
        members = archive.getmembers()
        abi3 = archive.extractfile("lib/x/rust.abi3.so")
        assert abi3
        assert abi3.read() == b"cpython-310"  # that of a newer Python may not run on an older one
    assert [(member.name, oct(member.mode)) for member in members] == [
        ("LICENSE", "0o644"),
        ("kubectl-chores", "0o755"),
        ("lib/x/a.py", "0o644"),
        ("lib/x/n.cpython-310.so", "0o644"),
        ("lib/x/n.cpython-313.so", "0o644"),
        ("lib/x/rust.abi3.so", "0o644"),
    ]
    assert {(member.mtime, member.uid, member.uname) for member in members} == {(1_700_000_000, 0, "")}
    assert krew.plugin(wheels(tmp_path), 1_700_000_000) == content


def test_wheels_that_differ_are_not_merged(tmp_path: Path) -> None:
    one, other = wheel(tmp_path, "x-1-cp310", x__a="1"), wheel(tmp_path, "x-1-cp313", x__a="2")

    with pytest.raises(SystemExit, match=r"x-1-cp313-any\.whl: x/a differs"):
        krew.merged([one, other])


@pytest.mark.parametrize("name", ["../a", "/etc/a", "x/../../a"])
def test_a_wheel_cannot_name_files_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemExit, match=r"x-1-any\.whl: .* is outside of the archive"):
        krew.merged([wheel(tmp_path, "x-1", **{name: ""})])


def test_the_manifest_has_the_sum_and_the_name_of_each_archive() -> None:
    sums = {platform: hashlib.sha256(platform.encode()).hexdigest() for platform in krew.PLATFORMS}
    manifest = yaml.safe_load(krew.manifest("1.2.3", sums))

    assert (manifest["kind"], manifest["metadata"], manifest["spec"]["version"]) == (
        "Plugin",
        {"name": "chores"},
        "v1.2.3",
    )
    assert [
        (each["selector"]["matchLabels"], each["uri"].rpartition("/v1.2.3/")[2], each["sha256"])
        for each in manifest["spec"]["platforms"]
    ] == [
        (dict(zip(("os", "arch"), name.split("-"), strict=True)), f"kubectl-chores-1.2.3-{name}.tar.gz", sums[name])
        for name in krew.PLATFORMS
    ]
    assert len(manifest["spec"]["shortDescription"]) <= 50


@pytest.mark.parametrize("version", ["(3, 9, 18)", "(3, 14, 0)"])
def test_another_python_gets_one_line_with_what_is_needed(version: str) -> None:
    with tarfile.open(fileobj=BytesIO(krew.plugin([], 0))) as archive:
        launcher = archive.extractfile("kubectl-chores")
        assert launcher
        code = f"import sys; sys.version_info = {version}; exec({launcher.read().decode()!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 1
    supported = f"{krew.pythons()[0]} to {krew.pythons()[-1]}"
    found = ".".join(version.strip("()").split(", ")[:2])
    assert done.stderr == f"kubectl chores needs Python {supported} as python3, which is {found}\n"


def test_the_docs_name_the_supported_versions_and_platforms() -> None:
    text = " ".join((ROOT / "docs" / "install.md").read_text().split())
    names = {
        "linux-amd64": "Linux on x86-64",
        "linux-arm64": "Linux on arm64",
        "darwin-arm64": "Macs with an Apple chip",
    }

    assert set(names) == set(krew.PLATFORMS)
    assert [name for name in names.values() if name not in text] == []
    assert f"`python3` must be Python {krew.pythons()[0]} to {krew.pythons()[-1]}." in text
