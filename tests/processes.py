"""Programs that run during a test and end with it. Their logs are in one folder."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

START_SECONDS = 120.0  # of a program on a loaded machine
STOP_SECONDS = 3.0


class Processes:
    """Start programs in the folder, and end them in reverse order; `inside` is a command prefix for each."""

    def __init__(self, folder: Path, inside: Sequence[str] = ()) -> None:
        self.folder = folder
        self.inside = tuple(inside)
        self.started: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __call__(
        self,
        program: Path | str,
        *flags: str,
        name: str = "",
        pass_fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program with more environment variables. Its output goes to NAME.log, by default of its file name."""
        name = name or Path(program).name
        command = [*dying_with_parent(), *self.inside, str(program), *flags]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self.started.append((name, process))
        return process

    def wait(self, condition: Callable[[], bool], what: str, program: str, seconds: float = 0.0) -> None:
        """Wait until the condition is true.

        Raises:
            RuntimeError: a program ended, or the condition is not true after `seconds`, by default START_SECONDS. The
                message then ends with the log of `program`.
        """
        seconds = seconds or START_SECONDS
        deadline = time.monotonic() + seconds
        while not condition():
            for name, process in self.started:
                if process.poll() is not None:
                    raise RuntimeError(f"{name} exited with {process.returncode}:\n{self._tail(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} after {seconds:g} s; log of {program}:\n{self._tail(program)}")
            time.sleep(0.1)

    def _tail(self, program: str) -> str:
        return "\n".join((self.folder / f"{program}.log").read_text(errors="replace").splitlines()[-25:])

    def stop(self, name: str) -> None:
        """End one program, which can be started again."""
        (found,) = [each for each in self.started if each[0] == name]
        self.started.remove(found)
        _end(found[1])

    def end(self) -> None:
        """End the programs, the last one first, so that etcd ends after its clients."""
        for _, process in reversed(self.started):
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def dying_with_parent(how: str = "KILL") -> list[str]:
    """Return a command prefix that lets the kernel send a signal when this process ends, also if it is killed.

    It is empty where setpriv is not available.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return [setpriv, "--pdeathsig", how] if setpriv else []


_IN_512_MIB = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
from jobs.__main__ import chores
chores()
"""


def run_in_512_mib(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run chores in a process of its own with at most 512 MiB of address space."""
    command = [sys.executable, "-c", _IN_512_MIB, *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=600, check=False)


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Provide Processes in this folder, and end them with the context."""
    running = Processes(folder)
    try:
        yield running
    finally:
        running.end()
