"""Build the kubectl plugin into dist/: an archive for each platform and the manifest for Krew, of the wheel in dist/.

An archive has the packages for all supported versions of Python in one folder: the names of native modules contain the
version. The same wheels give the same archives.
"""

from __future__ import annotations

import configparser
import gzip
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
LOCKS = (ROOT / "requirements.lock", ROOT / "tools" / "krew.lock")
# The platforms of wheels, by that of Krew. cryptography has no wheels for Intel Macs.
PLATFORMS = {
    "linux-amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "linux-arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "darwin-arm64": ("macosx_13_0_arm64",),
}
# setuptools builds the image. Only kubernetes.aio, which no job imports, needs the others.
LEFT_OUT = {"setuptools", "aiohttp", "aiohttp_retry", "aiohappyeyeballs", "aiosignal", "async_timeout"}
LEFT_OUT |= {"frozenlist", "multidict", "propcache", "yarl"}
UNUSED = ("kubernetes/aio/",)
LAUNCHER = '''#!/usr/bin/env python3
"""Run chores with the packages next to this file."""
import os, sys
if not {oldest} <= sys.version_info[:2] <= {newest}:
    sys.exit("kubectl chores needs Python {pythons} as python3, which is %d.%d" % sys.version_info[:2])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from jobs.__main__ import main
main()
'''


def pythons() -> list[str]:
    """Return the supported versions of Python, the oldest first."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return re.findall(r":: Python :: (3\.\d+)", setup["metadata"]["classifiers"])


def download(platform: str, folder: Path) -> list[Path]:
    """Download the locked wheels of a platform, those of the oldest Python first."""
    options = [f"--platform={name}" for name in PLATFORMS[platform]] + [f"--requirement={lock}" for lock in LOCKS]
    found: dict[Path, None] = {}
    for version in pythons():
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
        of = ("--only-binary=:all:", "--require-hashes", "--implementation=cp", f"--python-version={version}")
        subprocess.run([*pip, *of, *options, f"--dest={folder}"], stdout=sys.stderr, check=True)
        found |= dict.fromkeys(sorted(set(folder.glob("*.whl")) - set(found)))
    return [wheel for wheel in found if wheel.name.split("-")[0].lower() not in LEFT_OUT]


def merged(wheels: Iterable[Path]) -> dict[str, bytes]:
    """Return the files of all wheels by path, without lists of files.

    Wheels of a package for several versions of Python have the same files, except native modules, whose names differ.
    A module of the stable ABI runs on newer versions too, so the one for the oldest stays.
    """
    files: dict[str, bytes] = {}
    for path in wheels:
        wheel = zipfile.ZipFile(path)
        for name in wheel.namelist():
            if name.endswith(("/", ".dist-info/RECORD", ".dist-info/WHEEL")) or name.startswith(UNUSED):
                continue
            if ".." in (parts := Path(name).parts) or "/" in parts:
                raise SystemExit(f"{path.name}: {name} is outside of the archive")
            content = wheel.read(name)
            if files.setdefault(name, content) != content and not re.search(r"\.abi3\.so$|\.dist-info/", name):
                raise SystemExit(f"{path.name}: {name} differs from that of another wheel")
    return files


def archive(files: dict[str, bytes], epoch: int) -> bytes:
    """Return a .tar.gz that has only these files, and this time."""
    raw = BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), epoch
            member.mode = 0o755 if name == "kubectl-chores" else 0o644
            tar.addfile(member, BytesIO(content))
    return gzip.compress(raw.getvalue(), 6, mtime=0)


def plugin(wheels: Iterable[Path], epoch: int) -> bytes:
    """Return the archive of the plugin with these wheels."""
    versions = pythons()
    oldest, newest = (tuple(map(int, version.split("."))) for version in (versions[0], versions[-1]))
    launcher = LAUNCHER.format(oldest=oldest, newest=newest, pythons=f"{versions[0]} to {versions[-1]}")
    files = {f"lib/{name}": content for name, content in merged(wheels).items()}
    files |= {"kubectl-chores": launcher.encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()}
    return archive(files, epoch)


def manifest(version: str, sums: dict[str, str]) -> str:
    """Return the manifest for Krew, with the sha256 of the archive of each platform."""
    page = "https://github.com/OWNER/kube-chores"
    platforms = [
        {
            "selector": {"matchLabels": dict(zip(("os", "arch"), platform.split("-"), strict=True))},
            "uri": f"{page}/releases/download/v{version}/{file_name(version, platform)}",
            "sha256": sha256,
            "bin": "kubectl-chores",
        }
        for platform, sha256 in sums.items()
    ]
    spec = {
        "version": f"v{version}",
        "homepage": page,
        "shortDescription": "Reports, explains and runs chores of a cluster",
        "description": "Shows what the CronJobs of kube-chores do: `status`, and --dry-run and --explain of a job.\n"
        "Runs a job from a laptop, and prints its manifests.\n",
        "caveats": f"Needs Python {pythons()[0]} to {pythons()[-1]} as python3, and on Linux glibc.\n",
        "platforms": platforms,
    }
    kind = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin"}
    return yaml.safe_dump({**kind, "metadata": {"name": "chores"}, "spec": spec}, sort_keys=False, width=200)


def file_name(version: str, platform: str) -> str:
    """Return the name of the archive of a platform."""
    return f"kubectl-chores-{version}-{platform}.tar.gz"


def build(dist: Path, platforms: Sequence[str], epoch: int) -> Iterator[Path]:
    """Write the archives and the manifest next to the wheel of kube-chores."""
    (wheel,) = dist.glob("kube_chores-*.whl")
    version = wheel.name.split("-")[1]
    sums = {}
    for platform in platforms:
        with tempfile.TemporaryDirectory() as folder:
            content = plugin([*download(platform, Path(folder)), wheel], epoch)
        file = dist / file_name(version, platform)
        file.write_bytes(content)
        sums[platform] = hashlib.sha256(content).hexdigest()
        yield file
    (dist / "chores.yaml").write_text(manifest(version, sums))
    yield dist / "chores.yaml"


def main() -> None:
    """Build for all platforms, or for those that are named."""
    dist, platforms = Path(sys.argv[1]), sys.argv[2:] or list(PLATFORMS)
    for file in build(dist, platforms, int(os.environ.get("SOURCE_DATE_EPOCH", "0"))):
        print(file)


if __name__ == "__main__":
    main()
