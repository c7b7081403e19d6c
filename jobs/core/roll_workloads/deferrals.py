"""Why rolls are deferred. The codes are stable, and docs/roll-workloads.md explains them. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class DeferralCode(str, Enum):
    """The codes of deferred rolls, as in `Finding.deferral`."""

    MISSING_SOURCE = "missing-source"
    PAUSED = "paused"
    ON_DELETE = "on-delete"
    PARTITION = "partition"
    ROLLOUT_IN_PROGRESS = "rollout-in-progress"
    SETTLING = "settling"
    COOLING_DOWN = "cooling-down"
    MAX_ROLLS = "max-rolls"


class Deferral(NamedTuple):
    """Why a roll is deferred: the code, and the reason in words with the remedy."""

    code: DeferralCode
    reason: str
