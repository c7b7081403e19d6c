"""How serious a state is: the order of rows, their symbol and their color. Pure."""

from __future__ import annotations

from enum import Enum


class Level(Enum):
    """The worst first. Each has a symbol of its own: color is never the only sign."""

    CRITICAL = "critical"
    WARNING = "warning"
    PENDING = "pending"
    OK = "ok"
    OFF = "off"

    @property
    def rank(self) -> int:
        """Return 0 for the worst."""
        return list(Level).index(self)


SYMBOLS = {Level.CRITICAL: "✕", Level.WARNING: "!", Level.PENDING: "↻", Level.OK: "✓", Level.OFF: "○"}
PROBLEMS = (Level.CRITICAL, Level.WARNING)

_LEVELS = {
    Level.CRITICAL: ("critical", "failing", "failed", "not ready", "collision"),
    Level.PENDING: ("running", "missing", "outdated", "drifted", "adopted", "orphan", "opted-out"),
    Level.OK: ("ok", "succeeded", "ready", "unchanged"),
    Level.OFF: ("suspended", "not-installed", "skipped", "retained", "deferred", "not known"),
}
_LEVEL_OF = {state: level for level, states in _LEVELS.items() for state in states}
_READY = {"True": "ready", "False": "not ready"}


def level_of(state: str) -> Level:
    """Return the level of a job's state, a run's outcome, a condition, a severity or a code of sync-copies.

    A code that is not known here is a warning, so that a new one is not overlooked.
    """
    return _LEVEL_OF.get(state, Level.WARNING)


def ready_state(status: str) -> str:
    """Return the state of a condition Ready in words."""
    return _READY.get(status, "unknown")
