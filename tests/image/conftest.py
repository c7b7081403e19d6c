"""Fixtures of the tests of the index: two builds of it, and containers of its images."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.buildah import ARCHITECTURE, SECONDS, Container, container, environment, missing
from tests.control_plane import ROOT
from tests.one_node import registry
from tests.processes import Processes

PLATFORMS = ("linux/amd64", f"linux/{ARCHITECTURE}")


@dataclass(frozen=True)
class Index:
    """The archive of an index, and its name with its digest in a registry."""

    archive: Path
    name: str = ""


def build(folder: Path, push: str = "") -> Index:
    """Build the index, without a cache."""
    base = subprocess.run([ROOT / "tools/node/images", "base"], stdout=subprocess.PIPE, text=True, check=True)
    archive = folder / "index.tar"
    settings = {"TOOL": "buildah", "BASE": base.stdout.strip(), "ARCHIVE": str(archive), "PUSH": push}
    env = {**environment(folder), **settings, "PLATFORMS": ",".join(PLATFORMS)}
    done = subprocess.run([ROOT / "tools/image"], env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return Index(archive, done.stdout.strip())


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A repository in a registry on this machine."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("registry")
    settings = {
        "OTEL_TRACES_EXPORTER": "none",
        "REGISTRY_HTTP_ADDR": "127.0.0.1:0",
        "REGISTRY_HTTP_DEBUG_ADDR": "127.0.0.1:0",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(folder / "images"),
    }
    run = Processes(folder)
    run(registry(), "serve", str(registry().parent / "config.yml"), env=settings)

    def address() -> re.Match[str] | None:
        return re.search(r'msg="listening on (127[^"]*)"', (folder / "registry.log").read_text())

    run.wait(lambda: address() is not None, "the registry does not listen", "registry")
    found = address()
    assert found
    yield f"{found[1]}/kube-chores"
    run.end()


@pytest.fixture(scope="session")
def indexes(repository: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index]:
    """Two builds of the index. They run at the same time, because each uses one processor. The first is pushed."""
    folders = (tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second"))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, folders, (repository, ""))
    return first, second


@pytest.fixture(scope="session")
def index(indexes: tuple[Index, Index]) -> Index:
    """The first of them."""
    return indexes[0]


@pytest.fixture(scope="session")
def native(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container of its image for amd64."""
    with container(index.archive, "amd64", tmp_path_factory.mktemp("amd64")) as created:
        yield created


@pytest.fixture(scope="session")
def emulated(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container of its image for arm64."""
    with container(index.archive, ARCHITECTURE, tmp_path_factory.mktemp(ARCHITECTURE)) as created:
        yield created


@pytest.fixture(scope="session")
def test_packages(emulated: Container, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the tests for the Python of that image."""
    folder = tmp_path_factory.mktemp("packages")
    folder.chmod(0o755)  # the user of the image is not that of the tests
    version = emulated.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    platforms = [f"--platform={each}_aarch64" for each in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(folder),
        f"--python-version={version}",
    ]
    command += ["--only-binary=:all:", *platforms, "pytest", "hypothesis", "cel-python", "jsonpatch", "dnslib"]
    subprocess.run(command, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}, check=True)
    return folder
