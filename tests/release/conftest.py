"""A node, a registry with a release of the last commit, which `make release` pushed, and containers of its images."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version as version_of
from pathlib import Path

import pytest

from tests.buildah import ARCHITECTURE, Container, container, missing
from tests.control_plane import ROOT, free_port
from tests.node.conftest import _tools, api, figure, node, pytest_terminal_summary  # noqa: F401
from tests.one_node import Node, registry
from tests.processes import Processes, dying_with_parent, processes
from tests.release.published import Release, User, build, clone, remove_images


@pytest.fixture(scope="session")
def registry_log(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:  # noqa: F811
    """Run a registry without TLS. Give its host, which is the same for this machine and for the node, and its log."""
    folder = tmp_path_factory.mktemp("registry")
    run = Processes(folder, (*node.enter, *dying_with_parent()))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        try:
            run(registry(), "serve", str(registry().parent / "config.yml"), env=settings(host, folder / "images"))
            inherited = str(listening.fileno())
            forward = (str(ROOT / "tests/forward.py"), inherited, *host.split(":"))
            run(sys.executable, *forward, name="forward", pass_fds=[int(inherited)])
            run.wait(lambda: answers(host), "the registry does not answer", "registry")
            yield host, folder / "registry.log"
        finally:
            run.end()


def settings(host: str, images: Path) -> dict[str, str]:
    return {
        "OTEL_TRACES_EXPORTER": "none",
        "REGISTRY_HTTP_ADDR": host,
        "REGISTRY_HTTP_DEBUG_ADDR": "127.0.0.1:0",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(images),
    }


def answers(host: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection(host, timeout=5)
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 200
    return False


@pytest.fixture(scope="session")
def release(registry_log: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Build a release of the last commit, and push it."""
    if reason := missing():
        pytest.skip(reason)
    host, log = registry_log
    source = clone(tmp_path_factory.mktemp("clone") / "kube-chores")
    began = time.monotonic()
    digests = build(source, host)
    yield Release(host, log, source, digests, time.monotonic() - began)
    remove_images(source.parent)


@pytest.fixture(scope="session")
def native(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container of the image for amd64."""
    with container(release.archive, "amd64", tmp_path_factory.mktemp("amd64")) as created:
        yield created


@pytest.fixture(scope="session")
def emulated(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container of the image for arm64."""
    with container(release.archive, ARCHITECTURE, tmp_path_factory.mktemp(ARCHITECTURE)) as created:
        yield created


@pytest.fixture(scope="session")
def test_packages(emulated: Container, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the tests for the Python of that image."""
    folder = tmp_path_factory.mktemp("packages")
    folder.chmod(0o755)  # the user of the image is not that of the tests
    version = emulated.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    options = [f"--platform={each}_aarch64" for each in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    options += ["--quiet", f"--target={folder}", f"--python-version={version}", "--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "install", *options]
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    packages = [f"{name}=={version_of(name)}" for name in ("pytest", "hypothesis", "cel-python", "jsonpatch", "dnslib")]
    subprocess.run([*pip, *packages], env=env, check=True)
    return folder


@pytest.fixture
def user(node: Node, release: Release, tmp_path: Path) -> Iterator[User]:  # noqa: F811
    """A user with helm, kubectl and git, and without this repository, which is served instead of GitHub's."""
    with processes(tmp_path) as run:
        port = free_port()
        user = User(tmp_path, node.plane.kubeconfig, release, f"git://127.0.0.1:{port}/")
        run("git", "daemon", "--listen=127.0.0.1", f"--port={port}", "--export-all", f"--base-path={user.served}")
        run.wait(user.repository_is_served, "the repository is not served", "git")
        yield user
