"""Each pod of a namespace that opted in has one FarmPod, which describes it and is owned by it."""

from __future__ import annotations

from collections.abc import Sequence

from soak.invariants.farm.farmed import Farmed
from soak.invariants.farm.pods import JOB
from soak.invariants.farm.written import FarmPods
from soak.invariants.reads import each_write
from soak.observed import Invariant


def invariants(max_objects: int = 10_000, prefix: str = "farm-") -> Sequence[Invariant]:
    """Return the invariants of FarmPods; `prefix` is that of the tenants' namespaces."""
    return (
        each_write("farm-pods", JOB, ("FarmPod",), FarmPods(max_objects)),
        Invariant("farmed", Farmed(prefix)),
    )
