"""A control plane that does not start, or whose test is killed, shows the reason and leaves nothing else behind."""

import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import control_plane, processes
from tests.apis import wait_for
from tests.control_plane import ROOT

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Create control planes in the test's own folder, which identifies their processes."""
    if reason := control_plane.missing():
        pytest.skip(reason)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    assert list(tmp_path.glob("kube-chores-tests-*")) == []


def alive(folder: Path) -> list[str]:
    """Return the command lines of the processes that were started for this folder."""
    lines = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if f"{folder}/kube-chores-tests-" in line]


def test_a_program_that_exits_is_reported_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "_etcd_flags", lambda folder, port: [f"--data-dir={folder}", "--no-such-flag"])
    with pytest.raises(RuntimeError, match=r"(?s)^etcd exited with \d+:.*no-such-flag"), control_plane.control_plane():
        pass
    assert alive(tmp_path) == []


def test_a_server_that_is_not_ready_in_time_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.5)
    with (
        pytest.raises(RuntimeError, match=r"(?s)^/readyz is not 200 after 0.5 s; log of kube-apiserver:\n.+"),
        control_plane.control_plane(),
    ):
        pass
    assert alive(tmp_path) == []


def test_an_interrupted_test_leaves_no_process(tmp_path: Path) -> None:
    def interrupted() -> None:
        with control_plane.control_plane():
            assert len(alive(tmp_path)) == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert alive(tmp_path) == []


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)")
def test_a_killed_test_run_leaves_no_process(tmp_path: Path) -> None:
    run = """
        import tempfile, time
        tempfile.tempdir = {folder!r}
        from tests.control_plane import control_plane
        with control_plane():
            print("ready", flush=True)
            time.sleep(60)
    """
    inner = tmp_path / "inner"
    inner.mkdir()
    code = textwrap.dedent(run).format(folder=str(inner))
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        assert len(alive(inner)) == 3
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: alive(inner) == [], "the processes to end")
