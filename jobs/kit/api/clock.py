"""The time of the API server, from the header Date of its answers: the clock of this machine may be wrong."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from time import monotonic

_CLOSE = timedelta(seconds=5)  # a Date has whole seconds, and an answer takes some time
_FARTHEST = timedelta(days=3650)  # a larger difference is a broken header, not a clock: TLS would fail too
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def local_time() -> datetime:
    """Return the time of this machine."""
    return datetime.now(timezone.utc)


class ServerClock:
    """The clock of the API server. `ahead` is how far this machine is ahead of it; 0 if both are close, or unknown."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self._date, self._moment = local_time(), 0.0

    def read(self, header: bytes) -> None:
        """Read a line of headers. Lines other than a valid Date are ignored."""
        name, _, value = header.partition(b":")
        date = _parsed(value) if name.lower() == b"date" else None
        if date:
            ahead = local_time() - date
            self.ahead = ahead if _CLOSE < abs(ahead) < _FARTHEST else timedelta()
            self._date, self._moment = date, monotonic()

    def now(self) -> datetime:
        """Return the time of the server if this machine has another; else the more precise time of this machine."""
        return self._date + timedelta(seconds=monotonic() - self._moment) if self.ahead else local_time()


def _parsed(value: bytes) -> datetime | None:
    """Return the time of a Date, such as Wed, 04 Mar 2026 03:00:30 GMT, or None.

    The standard library's parsers take 3 to 30 ms to import.
    """
    try:
        _, day, month, year, time, _ = value.split()
        text = f"{int(year):04}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{time.decode()}+00:00"
        return datetime.fromisoformat(text)
    except ValueError:
        return None
