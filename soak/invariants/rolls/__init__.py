"""Each change of config rolls each workload that opted in exactly once."""

from __future__ import annotations

from collections.abc import Sequence

from soak.invariants.reads import each_write
from soak.invariants.rolls.fingerprints import Fingerprints
from soak.invariants.rolls.rolled import Rolled
from soak.invariants.rolls.workloads import JOB, KINDS, Settings
from soak.invariants.rolls.written import Rolls
from soak.observed import Invariant


def invariants(settings: Settings, prefix: str = "shop-") -> Sequence[Invariant]:
    """Return the invariants of rolls; `prefix` is that of the tenants' namespaces."""
    fingerprints = Fingerprints()
    return (
        each_write("rolls", JOB, KINDS, Rolls(settings, fingerprints)),
        Invariant("rolled", Rolled(settings, fingerprints, prefix)),
    )
