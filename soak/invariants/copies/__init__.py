"""Copies, and the names of copies in ServiceAccounts, are as rules require: see tests/model.py."""

from __future__ import annotations

from soak.invariants.copies.attached import attached, patched
from soak.invariants.copies.brake import Brake
from soak.invariants.copies.deleted import deleted
from soak.invariants.copies.repaired import repaired
from soak.invariants.copies.settled import Settled
from soak.invariants.copies.stamps import JOB
from soak.invariants.copies.written import written
from soak.invariants.ours import COPIED
from soak.invariants.reads import each_write
from soak.observed import Invariant


def invariants() -> list[Invariant]:
    """Return the invariants of copies."""
    return [
        each_write("a copy is written only if a rule requires it", JOB, COPIED, written),
        each_write("a copy is not deleted that a rule requires", JOB, COPIED, deleted),
        each_write("ServiceAccounts name only the copies that rules attach", JOB, ["ServiceAccount"], patched),
        Invariant("the brake limits the deletions of a run", Brake()),
        Invariant("each copy is repaired within two runs", repaired),
        Invariant("each copy is attached within two runs", attached),
        Invariant("copies are exactly those that rules require", Settled()),
    ]
