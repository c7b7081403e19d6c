"""The processes of a run are killed, also if its container has not executed its program yet."""

import signal
import subprocess
import threading
from pathlib import Path

import pytest

from soak import programs


def test_a_run_is_killed_whose_container_is_about_to_execute_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_PROC", tmp_path)
    with subprocess.Popen(["sleep", "100"]) as process:
        folder = tmp_path / str(process.pid)
        folder.mkdir()
        (folder / "cgroup").write_text("0::/kubepods/pod7d1f/c0ffee\n")
        (folder / "cmdline").write_text("runc\0init\0")
        executed = threading.Timer(0.3, lambda: (folder / "cmdline").write_text("python3\0chores\0"))
        executed.start()

        programs.kill_run("7d1f")

        executed.cancel()
        process.terminate()  # if it was not killed
        assert process.wait() == -signal.SIGKILL
