"""The index of images for several platforms, in the archive and in the registry."""

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane import ROOT
from tests.release.published import PLATFORMS, Release

pytestmark = pytest.mark.release
INDEX = "application/vnd.oci.image.index.v1+json"
MANYLINUX = ("manylinux_2_36", "manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")  # of Debian 12
NATIVE = re.compile(r"\.so(\.|$)|\.dist-info/|/_sysconfigdata_")  # libraries, and what names or hashes them


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_lock_has_a_wheel_of_each_package_for_the_python_of_the_image(architecture: str, tmp_path: Path) -> None:
    version = re.search(r"^ARG BASE=python:(\d+\.\d+)", (ROOT / "Dockerfile").read_text(), re.M)
    assert version
    target = ["--dry-run", f"--target={tmp_path}", "--only-binary=:all:", f"--python-version={version[1]}"]
    target += [f"--platform={each}_{architecture}" for each in MANYLINUX]
    lock = ["--require-hashes", "-r", str(ROOT / "requirements.lock")]
    command = [sys.executable, "-m", "pip", "install", *target, *lock]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def document(archive: Path, name: str) -> Any:
    """Return a JSON document of an archive: a file, or the blob with a digest."""
    with tarfile.open(archive) as files:
        file = files.extractfile(name.replace("sha256:", "blobs/sha256/"))
        assert file
        return json.load(file)


def manifests(release: Release) -> list[Any]:
    """Return the manifests of its images, in the order of PLATFORMS."""
    (index,) = document(release.archive, "index.json")["manifests"]
    assert (index["mediaType"], index["digest"]) == (INDEX, release.digests["image"])
    entries = document(release.archive, index["digest"])["manifests"]
    platforms = [f"{each['platform']['os']}/{each['platform']['architecture']}" for each in entries]
    assert platforms == list(PLATFORMS)
    return [document(release.archive, each["digest"]) for each in entries]


def test_it_has_an_image_for_each_platform(release: Release) -> None:
    configs = [document(release.archive, each["config"]["digest"]) for each in manifests(release)]

    assert [f"{each['os']}/{each['architecture']}" for each in configs] == list(PLATFORMS)
    assert configs[0]["config"] == configs[1]["config"]
    assert configs[0]["config"]["User"] == "65532:65532"


def test_the_registry_has_the_index_by_its_digest(release: Release) -> None:
    url = f"http://{release.host}/v2/kube-chores/manifests/{release.digests['image']}"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": INDEX})) as response:
        body = response.read()

    assert response.headers["Content-Type"] == INDEX
    assert f"sha256:{hashlib.sha256(body).hexdigest()}" == release.digests["image"]


def test_the_images_differ_only_in_native_libraries(release: Release) -> None:
    amd64, arm64 = (dict(contents(release, each["layers"][-1]["digest"])) for each in manifests(release))
    different = {name for name in amd64.keys() | arm64.keys() if amd64.get(name) != arm64.get(name)}

    assert len(amd64) > 1000
    assert len([name for name in different if NATIVE.search(name)]) > 10
    assert {name for name in different if not NATIVE.search(name)} == set()


def contents(release: Release, layer: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a layer with hashes of their contents. A name has no architecture in it."""
    with (
        tarfile.open(release.archive) as files,
        tarfile.open(fileobj=files.extractfile(layer.replace("sha256:", "blobs/sha256/"))) as members,
    ):
        for member in members:
            file = members.extractfile(member) if member.isfile() else None
            content = file.read() if file else member.linkname.encode()
            yield member.name.replace("x86_64", "aarch64"), hashlib.sha256(content).hexdigest()
