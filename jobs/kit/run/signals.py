"""Signals of programs that run until they are stopped. A run of a job handles signals in session.py."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def exit_on_signals() -> None:
    """End the process with 0 at SIGTERM or SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
