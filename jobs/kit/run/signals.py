"""Signals of programs that run until they are stopped. A run of a job handles signals in session.py."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

_ENDS = (signal.SIGTERM, signal.SIGINT)
_WAKES = (*_ENDS, signal.SIGALRM)


def exit_on_signals() -> None:
    """End the process with 0 at SIGTERM or SIGINT."""
    for number in _ENDS:
        signal.signal(number, _exit)


def sleep(seconds: float) -> None:
    """Sleep, and end the process with 0 at SIGTERM or SIGINT. The process must have no other threads.

    `time.sleep` sleeps on if a signal comes just before it, and its handler runs only afterwards. `sigtimedwait` of
    CPython returns anything if the process is stopped (SIGSTOP), and continues after the timeout.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAKES)  # a signal that comes now is pending, and ends the wait at once
    signal.setitimer(signal.ITIMER_REAL, seconds)
    if signal.sigwait(_WAKES) in _ENDS:
        sys.exit(0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
