"""The end of a command whose output cannot be written."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.__main__ import main
from jobs.commands import mirror_cache


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["manifests"], ["sync-copies", "--help"]])
def test_a_full_disk_behind_the_output_is_one_line_and_exit_code_1(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "jobs", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert ran.returncode == 1
    assert ran.stderr == ("Error: the output cannot be written: No space left on device; free space, or redirect it\n")


def test_a_closed_pipe_is_silent() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jobs", "manifests"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        assert running.stderr
        running.stdout.close()
        assert running.stderr.read() == ""

    assert running.returncode == 1


def test_an_error_of_a_socket_is_not_taken_for_one_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_about: object, **_options: object) -> None:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    monkeypatch.setattr(mirror_cache, "serve", fail)

    with pytest.raises(OSError, match="Address already in use"):
        main(["mirror-cache", "--upstream", "up"])
    assert capsys.readouterr().err == ""
