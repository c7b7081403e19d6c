"""The signals that end a measurement, which first has to delete what it created."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen
    from types import FrameType


class SignalError(Exception):
    """A signal ended the measurement."""


class Signals:
    """Handles SIGINT, SIGTERM and SIGHUP. The first one sets `number`, and ends the process that is measured.

    While `left` is empty, nothing was created, and a signal ends this process at once. Later it is what a second Ctrl-C
    prints, which also ends the process at once.
    """

    def __init__(self) -> None:
        self.number = 0
        self.left = ""
        self._measured: Popen[bytes] | None = None
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(each) is not signal.SIG_IGN:  # as nohup sets it
                signal.signal(each, self._handle)

    @property
    def exit_code(self) -> int:
        """The exit code as of a shell."""
        return 128 + self.number

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        is_again = bool(self.number)
        self.number = self.number or number
        if not self.left or (is_again and number == signal.SIGINT):
            os.write(2, self.left.encode())
            os._exit(self.exit_code)
        self._end_measured()

    def started(self, process: Popen[bytes]) -> None:
        """Have this process ended by a signal, also by one that came before."""
        self._measured = process
        self._end_measured()

    def _end_measured(self) -> None:
        if self.number and self._measured:
            self._measured.terminate()

    def check(self) -> None:
        """Raise SignalError after a signal."""
        if self.number:
            raise SignalError
