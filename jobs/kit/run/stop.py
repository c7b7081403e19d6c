"""Stop a run by a signal: requests in flight are answered, and no other is sent."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from jobs.kit.run import log
from jobs.kit.values.model import ExitCode


class Stop:
    """Whether a signal stopped the run, and its exit code. The transport calls it before each request."""

    exit_code: ExitCode | None = None
    _is_announced = True

    def __call__(self) -> bool:
        """Return whether the run is stopped, and log it once."""
        if not self._is_announced:
            self._is_announced = True
            if sys.stderr.isatty():
                sys.stderr.write("\n")  # ends the line on which the terminal shows ^C
            log.log.info("stopping: waiting for answers to requests in flight; press Ctrl-C again to stop at once")
        return self.exit_code is not None

    def terminate(self, _signal: int, _frame: FrameType | None) -> None:
        """Stop with the exit code of SIGTERM."""
        self.exit_code = ExitCode.STOPPED

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Stop with the exit code of SIGINT; the second time, end at once."""
        if self.exit_code is ExitCode.INTERRUPTED:
            raise SystemExit(ExitCode.INTERRUPTED)
        self.exit_code = ExitCode.INTERRUPTED
        self._is_announced = False  # __call__ logs it: a signal handler may interrupt the writing of a message


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Yield a Stop that SIGTERM and SIGINT set."""
    stop = Stop()
    before = [signal.signal(signal.SIGTERM, stop.terminate), signal.signal(signal.SIGINT, stop.interrupt)]
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
