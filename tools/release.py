"""Build the files of a release into dist/: `make release`.

They are the image as an OCI archive, wheel, sdist, chart, an SBOM, the notes and SHA256SUMS. If the tree is not ready,
it builds nothing and names all reasons.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
IN_THE_WHEEL = {
    "cronjobs/kustomization.yaml",
    "cronjobs/crds/copyrators.yaml",
    "jobs/commands/manifests.yaml",
    "jobs/core/status/page.html",
}


def version(root: Path) -> str:
    """Return the version in jobs/__init__.py."""
    return _found(r'__version__ = "(.+)"', root / "jobs" / "__init__.py")


def other_versions(root: Path) -> Iterator[str]:
    """Yield where the tree names another version than jobs/__init__.py."""
    expected = version(root)
    places = [("cronjobs/base/cronjob.yaml", "image", "image: kube-chores:(.+)")]
    if (root / "charts").exists():
        places += [("charts/kube-chores/Chart.yaml", key, f"(?m)^{key}: (.+)") for key in ("version", "appVersion")]
    for name, key, pattern in places:
        if (found := _found(pattern, root / name).strip("\"'")) != expected:
            yield f"{name}: {key} is {found}, but the version in jobs/__init__.py is {expected}"


def problems(root: Path) -> Iterator[str]:
    """Yield why no release can be built from this tree."""
    expected = version(root)
    yield from other_versions(root)
    if not notes(root):
        yield f"CHANGELOG.md: no section [{expected}] with a date; write `## [{expected}] - YYYY-MM-DD`"
    if "@sha256:" not in _found("ARG BASE=(.+)", root / "Dockerfile") and not os.environ.get("BASE"):
        yield "Dockerfile: the base image has no digest; run `make base-digest`, or set BASE=... for a trial"
    tags = _git(root, "tag", "--points-at", "HEAD").split()
    if tags and f"v{expected}" not in tags:
        yield f"git: the commit has the tag {', '.join(tags)}, but the version is {expected}"
    if changed := [line[3:] for line in _git(root, "status", "--porcelain").splitlines()]:
        yield f"git: not committed: {', '.join(changed)}"


def notes(root: Path) -> str:
    """Return the section of the version in CHANGELOG.md without its heading; empty if there is none with a date."""
    name = re.escape(version(root))
    heading = rf"## \[{name}\] - \d{{4}}-\d\d-\d\d\n"
    return _found(rf"(?ms)^{heading}(.*?)(?=^## |^\[[^\]]+\]: |\Z)", root / "CHANGELOG.md").strip()


def build(root: Path, dist: Path) -> None:
    """Build all files from the commit, without files that git ignores."""
    name = f"kube-chores-{version(root)}"
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git(root, "log", "-1", "--format=%ct").strip()
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "ARCHIVE": str(dist / f"{name}.oci.tar")}
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        source, venv = Path(folder) / "source", Path(folder) / "venv"
        source.mkdir()
        _git(root, "archive", "--output", f"{folder}/source.tar", "HEAD")
        _run("tar", "--extract", "--file", f"{folder}/source.tar", "--directory", source)
        _run(sys.executable, "-m", "build", "--outdir", dist, source, env=env)  # the wheel is built from the sdist
        (wheel,) = dist.glob("*.whl")
        check_wheel(wheel)
        install(dist, f"kube-chores=={version(root)}", source / "requirements.lock", venv)
        sbom = ("--output-reproducible", "--of", "JSON", "-o", f"{dist}/{name}.cdx.json", f"{venv}/bin/python")
        _run(sys.executable, "-m", "cyclonedx_py", "environment", *sbom)
        if (root / "charts").exists():
            helm = Path(_output(root / "tools" / "helm" / "build").strip()) / "helm"
            _run(helm, "package", source / "charts" / "kube-chores", "--destination", dist)
    _run(root / "tools" / "image", env=env)
    (dist / "RELEASE_NOTES.md").write_text(notes(root) + "\n")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("".join(sums))


def check_wheel(wheel: Path) -> None:
    """Raise if the wheel lacks manifests, or contains tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    if missing := IN_THE_WHEEL - names:
        raise SystemExit(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    if tests := [name for name in names if name.startswith(("tests/", "benchmarks/", "tools/"))]:
        raise SystemExit(f"{wheel.name} contains {min(tests)}")


def install(dist: Path, package: str, lock: Path, venv: Path) -> None:
    """Install the wheel in a new virtual environment with the packages of the image, and run it there."""
    _run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", f"{venv}/bin/python")
    _run(*pip, "install", "--require-hashes", "-r", lock)
    _run(*pip, "install", "--no-deps", "--no-index", "--find-links", dist, package)  # a path would be in the SBOM
    _run(*pip, "uninstall", "--yes", "setuptools")
    _output(venv / "bin" / "chores", "--help")
    if "kind: CronJob\n" not in _output(venv / "bin" / "chores", "manifests"):
        raise SystemExit(f"{package}: `chores manifests` prints no CronJob")


def _found(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text())
    return found[1] if found else ""


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def _run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, env=env, stdout=sys.stderr, check=True)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd="/").stdout


def main() -> None:
    """Build a release, or exit with 1 and all reasons why there can be none."""
    if found := list(problems(ROOT)):
        sys.exit("\n".join(["no release can be built from this tree:", *found]))
    build(ROOT, ROOT / "dist")
    for file in sorted((ROOT / "dist").iterdir()):
        sys.stdout.write(f"dist/{file.name}\n")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
