"""A cluster leaves nothing behind, however it ends. First in the alphabet, before the session's own cluster starts."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import one_node
from tests.apis import GIVE_UP_SECONDS, wait_for
from tests.cluster_process import PLAYGROUND, PREFIX, cluster, down
from tests.manifests import ROOT
from tests.node.kubectl import Kubectl
from tests.orphans import machine
from tests.processes import START_SECONDS

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("nothing_left")]
POD = "run sleeper --image=localhost/pause:1 --restart=Never"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The parent folder of the clusters that a test starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_failed_start_shows_the_reason_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_node, "images", lambda: ["/none-such.tar"])
    with pytest.raises(RuntimeError, match=r"none-such\.tar"), cluster():
        pass


@pytest.fixture
def only_pause() -> str:
    """Python code that lets clusters have only the image of the pod that these tests start: an import takes seconds."""
    pause = [archive for archive in one_node.images() if Path(archive).name == "pause.tar"]
    assert len(pause) == 1
    return f"from tests import one_node; one_node.images = lambda: {pause!r}\n"


def test_an_interrupted_start_leaves_nothing(folder: Path, only_pause: str) -> None:
    run = """
        import signal
        from tests.cluster_process import cluster
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore SIGINT
        with cluster():
            pass
    """
    code = only_pause + textwrap.dedent(run)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE) as process:
        wait_for(lambda: list(folder.glob(f"{PREFIX}*/kubelet.log")), "the kubelet", START_SECONDS)
        process.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in process.communicate(timeout=GIVE_UP_SECONDS)[1]
    assert not list(folder.glob(f"{PREFIX}*"))


def test_a_killed_test_run_leaves_nothing(folder: Path, only_pause: str) -> None:
    run = """
        import time
        from tests.cluster_process import cluster
        with cluster() as node:
            print(node.plane.kubeconfig, flush=True)
            time.sleep(600)
    """
    code = only_pause + textwrap.dedent(run)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        kubectl = Kubectl(Path(process.stdout.readline().strip()))
        wait_for(lambda: "default" in kubectl("get serviceaccounts"), "the service account")
        kubectl(POD)
        kubectl("wait pod/sleeper --for=condition=Ready --timeout=60s")
        assert [line for line in machine() if "/busybox sleep" in line]
        process.kill()
    wait_for(lambda: not list(folder.glob(f"{PREFIX}*")), "the cleanup by the cluster process", seconds=30)


def make(target: str) -> str:
    command = ["make", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture
def _down() -> Iterator[None]:
    yield
    down()


@pytest.mark.usefixtures("_down")
def test_make_starts_and_ends_a_cluster() -> None:
    output = make("cluster-up")
    export = output.splitlines()[-1]
    assert export == f"export KUBECONFIG={PLAYGROUND / 'admin.kubeconfig'}"
    kubectl = Kubectl(PLAYGROUND / "admin.kubeconfig")
    assert kubectl.shell(f"{export}; kubectl get nodes").splitlines()[1].split()[:2] == ["node", "Ready"]
    kubectl.from_docs("kubectl apply -k cronjobs")
    assert make("cluster-up") == output, "a running cluster is reported again"
    make("cluster-down")
    assert not PLAYGROUND.exists()
