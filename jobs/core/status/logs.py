"""The end of a log. Pure."""

from __future__ import annotations

_MOST_LINES = 4


def last_lines(log: str) -> str:
    """Return the end of a log: the cause of a failure is there, after the report."""
    return "\n".join([line for line in log.splitlines() if line.strip()][-_MOST_LINES:])
