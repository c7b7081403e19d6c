"""The program on a terminal: what it writes there, byte by byte."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests import canary

SECONDS = 60.0


@dataclass
class Terminal:
    """A process whose output goes to a terminal, and what that has shown so far."""

    process: subprocess.Popen[bytes]
    leader: int
    _shown: bytearray = field(default_factory=bytearray)

    def ended(self) -> tuple[int, str]:
        """Wait for the process to end; gives its exit code and all that it wrote."""
        while part := self._read():
            self._shown += part
        text = self._shown.decode().replace("\r\n", "\n")
        canary.observed("a terminal", text)
        return self.process.wait(SECONDS), text

    def _read(self) -> bytes:
        try:
            return os.read(self.leader, 65536)
        except OSError:  # the other end was closed
            return b""


@contextmanager
def started(*arguments: str, env: Mapping[str, str], columns: int = 80) -> Iterator[Terminal]:
    """Run `chores` with its stdout and stderr on a terminal of so many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env={**inherited, "TERM": "xterm-256color", **env},
    )
    os.close(follower)
    try:
        yield Terminal(process, leader)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def on_terminal(*arguments: str, env: Mapping[str, str], columns: int = 80) -> tuple[int, str]:
    """Run `chores` on a terminal to its end; gives its exit code and all that it wrote."""
    with started(*arguments, env=env, columns=columns) as terminal:
        return terminal.ended()
