"""The plugin of kubectl runs from its archive alone, on each supported Python."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jobs import __version__
from kubesandbox import Sandbox
from tests import embedded
from tests.apis import Api, sandbox_api
from tests.manifests import ROOT
from tests.release.published import Release
from tools import krew

pytestmark = pytest.mark.release
HERE = f"{sys.platform}-{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }"


@pytest.fixture(scope="session")
def plugin(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archive for this platform."""
    folder = tmp_path_factory.mktemp("plugin")
    with tarfile.open(release.source / "dist" / krew.file_name(__version__, HERE)) as archive:
        archive.extractall(folder)
    return folder


def interpreter(version: str) -> str:
    """Return a Python of this version, from PATH or pyenv, whose shims also exist for versions that do not run."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in (shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python")):
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return str(found)
    pytest.skip(f"Python {version} is not installed")


@pytest.fixture(params=krew.pythons())
def path(request: pytest.FixtureRequest, plugin: Path, tmp_path: Path) -> str:
    """PATH with the plugin, kubectl and a Python without packages."""
    subprocess.run([interpreter(request.param), "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    kubectl = subprocess.check_output([ROOT / "tools" / "kubernetes" / "build"], text=True).strip()
    return f"{tmp_path}/venv/bin:{plugin}:{kubectl}:/usr/bin:/bin"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:  # not that of the node
    with Sandbox(of=embedded.installed()) as sandbox:
        yield sandbox_api(sandbox, tmp_path)


def test_kubectl_runs_it_with_nothing_but_the_archive(api: Api, path: str) -> None:
    def kubectl(*words: str) -> str:
        env = {"PATH": path, "HOME": "/nonexistent", "KUBECONFIG": str(api.kubeconfig)}
        done = subprocess.run(["kubectl", "chores", *words], env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    for obj in yaml.safe_load_all((ROOT / "cronjobs" / "samples" / "configmap-rule.yaml").read_text()):
        api.put(obj)
    api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})

    assert kubectl("--version") == f"chores, version {__version__}\n"
    assert "sync-copies" in kubectl("--help")
    assert "sync-copies" in kubectl("status")
    assert "kind: CronJob\n" in kubectl("manifests")
    assert "team-a  created (dry run)" in kubectl("sync-copies", "-n", "kube-chores", "--dry-run", "--diff")
    kubectl("sync-copies", "-n", "kube-chores")
    copy = api.get(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "sample-settings", "namespace": "team-a"}}
    )
    assert copy and copy["data"] == {"region": "eu-central"}
