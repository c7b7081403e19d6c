"""Build the files of a release into dist/, and push image and chart: `make release REGISTRY=ghcr.io/OWNER`.

The files are the image as an OCI archive, wheel, sdist, chart, the plugin of kubectl, an SBOM, the notes and checksums.
With a registry also manifests: they and the chart name the pushed image by its digest. A second run for a commit pushes
the same digests. If the tree is not ready, it builds and pushes nothing, and names all reasons.
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

import yaml

ROOT = Path(__file__).parent.parent
SOURCE = "https://github.com/OWNER/kube-chores"
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


def problems(root: Path, registry: str = "") -> Iterator[str]:
    """Yield why no release can be built from this tree, or not for this registry."""
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
    if registry and not is_registry(registry):
        yield f"REGISTRY is {registry!r}; write it as ghcr.io/OWNER or 127.0.0.1:5000"
    elif registry and not is_loopback(registry):
        yield from _unpublishable(f"v{expected}", tags)


def _unpublishable(tag: str, tags: list[str]) -> Iterator[str]:
    if tag not in tags:
        yield f"git: the commit has no tag {tag}; without it, REGISTRY can only be on 127.0.0.1"
    if "/OWNER/" in SOURCE:
        yield "tools/release.py: OWNER is not an account; run `tools/owner NAME`"


def is_registry(name: str) -> bool:
    """Whether names of images can begin with it: a host, perhaps a port, and perhaps folders."""
    return re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*", name) is not None


def is_loopback(registry: str) -> bool:
    """Whether the registry is on this machine, and so needs no TLS."""
    return re.match(r"(localhost|127\.[\d.]+):", registry) is not None  # as tools/image


def notes(root: Path) -> str:
    """Return the section of the version in CHANGELOG.md without its heading; empty if there is none with a date."""
    name = re.escape(version(root))
    heading = rf"## \[{name}\] - \d{{4}}-\d\d-\d\d\n"
    return _found(rf"(?ms)^{heading}(.*?)(?=^## |^\[[^\]]+\]: |\Z)", root / "CHANGELOG.md").strip()


def build(root: Path, dist: Path, registry: str) -> None:
    """Build all files from the commit, without files that git ignores. With a registry, push image and chart."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", _git(root, "log", "-1", "--format=%ct").strip())
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        source, venv = Path(folder) / "source", Path(folder) / "venv"
        export(root, source)
        build_packages(source, dist, venv)
        digests = {"image": build_image(root, dist, registry)}
        if registry:
            write_manifests(dist, venv, version(root), f"{registry}/kube-chores@{digests['image']}")
            set_image(source / "charts" / "kube-chores" / "values.yaml", f"{registry}/kube-chores", digests["image"])
        digests["chart"] = build_chart(root, source, dist, registry)
        _run(sys.executable, source / "tools" / "krew.py", dist)
    if registry:
        lines = {"registry": registry, **digests}.items()
        (dist / "digests.env").write_text("".join(f"{key}={value}\n" for key, value in lines))
    (dist / "RELEASE_NOTES.md").write_text(notes(root) + "\n")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(dist.iterdir())]
    (dist / "SHA256SUMS").write_text("".join(sums))


def export(root: Path, source: Path) -> None:
    """Write the files of the commit, with its time."""
    source.mkdir()
    _git(root, "archive", "--output", f"{source}.tar", "HEAD")
    _run("tar", "--extract", "--file", f"{source}.tar", "--directory", source)


def build_packages(source: Path, dist: Path, venv: Path) -> None:
    """Build sdist, wheel and SBOM, and install the wheel in this new virtual environment."""
    _run(sys.executable, "-m", "build", "--outdir", dist, source)  # the wheel is built from the sdist
    (wheel,) = dist.glob("*.whl")
    check_wheel(wheel)
    install(dist, f"kube-chores=={version(source)}", source / "requirements.lock", venv)
    sbom = ("--output-reproducible", "--of", "JSON", "-o", f"{dist}/kube-chores.cdx.json", f"{venv}/bin/python")
    _run(sys.executable, "-m", "cyclonedx_py", "environment", *sbom)


def build_image(root: Path, dist: Path, registry: str) -> str:
    """Build the image. Return its digest in the registry, or nothing without one."""
    env = {**os.environ, "ARCHIVE": str(dist / f"kube-chores-{version(root)}.oci.tar")}
    env["PUSH"] = registry and f"{registry}/kube-chores"
    return _output(root / "tools" / "image", env=env).strip().rpartition("@")[2]


def write_manifests(dist: Path, venv: Path, version: str, image: str) -> None:
    """Write what `kubectl apply -f` and `kubectl apply -k` install with this image."""
    (dist / "kube-chores.yaml").write_text(_output(venv / "bin" / "chores", "manifests", "--image", image))
    repository, _, digest = image.partition("@")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{SOURCE}//cronjobs?ref=v{version}"],
        "images": [{"name": "kube-chores", "newName": repository, "digest": digest}],
    }
    (dist / "kustomization.yaml").write_text(yaml.safe_dump(kustomization, sort_keys=False))


def set_image(values: Path, repository: str, digest: str) -> None:
    """Set the image in the values of the chart, which keep their comments and their time."""
    time, text = values.stat().st_mtime, values.read_text()
    for old, new in (("repository: kube-chores", f"repository: {repository}"), ('digest: ""', f"digest: {digest}")):
        if text.count(f"\n  {old}\n") != 1:
            raise SystemExit(f"{values.name} of the chart has not one line `{old}`")
        text = text.replace(f"\n  {old}\n", f"\n  {new}\n")
    values.write_text(text)
    os.utime(values, (time, time))


def build_chart(root: Path, source: Path, dist: Path, registry: str) -> str:
    """Package the chart. Return its digest in the registry, or nothing without one."""
    helm = Path(_output(root / "tools" / "helm" / "build").strip()) / "helm"
    _run(helm, "package", source / "charts" / "kube-chores", "--destination", dist)
    if not registry:
        return ""
    package = dist / f"kube-chores-{version(root)}.tgz"
    os.utime(package, 2 * (int(os.environ["SOURCE_DATE_EPOCH"]),))  # helm writes this time into what it pushes
    http = ["--plain-http"] if is_loopback(registry) else []
    pushed = subprocess.run(
        [helm, "push", package, f"oci://{registry}/charts", *http], capture_output=True, text=True, check=False
    )
    if pushed.returncode:
        raise SystemExit(f"helm push: {pushed.stderr.strip()}")
    return _found_in(r"Digest: (\S+)", pushed.stdout + pushed.stderr)


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
    return _found_in(pattern, file.read_text())


def _found_in(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def _run(*command: str | Path) -> None:
    subprocess.run(command, stdout=sys.stderr, check=True)


def _output(*command: str | Path, env: dict[str, str] | None = None) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd="/", env=env).stdout


def main() -> None:
    """Build a release, or exit with 1 and all reasons why there can be none."""
    registry = os.environ.get("REGISTRY", "").lower()  # accounts can have upper case letters, names of images cannot
    if found := list(problems(ROOT, registry)):
        sys.exit("\n".join(["no release can be built from this tree:", *found]))
    build(ROOT, ROOT / "dist", registry)
    for file in sorted((ROOT / "dist").iterdir()):
        sys.stdout.write(f"dist/{file.name}\n")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))
