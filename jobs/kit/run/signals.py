"""Signals of programs that run until they are stopped. A run of a job handles signals in session.py."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

_ENDS = (signal.SIGTERM, signal.SIGINT)


def exit_on_signals() -> None:
    """End the process with 0 at SIGTERM or SIGINT."""
    for number in _ENDS:
        signal.signal(number, _exit)


def sleep(seconds: float) -> None:
    """Sleep, and end the process with 0 at SIGTERM or SIGINT.

    `time.sleep` sleeps on if a signal comes just before it, and its handler runs only afterwards.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # a signal that comes now is pending, and ends the wait at once
    came = signal.sigtimedwait(_ENDS, seconds)
    if came and came.si_signo in _ENDS:  # after a pause of the process (SIGSTOP), CPython may return anything
        sys.exit(0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
