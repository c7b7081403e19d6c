"""A rate is never older or further off than docs/fetch-rates.md promises."""

from __future__ import annotations

from collections.abc import Sequence

from soak.invariants.rates.current import Current
from soak.invariants.rates.documents import Provided
from soak.invariants.rates.figures import JOB
from soak.invariants.rates.written import Rates
from soak.invariants.reads import each_write
from soak.observed import Invariant


def invariants(provided: Provided, prefix: str = "rates-") -> Sequence[Invariant]:
    """Return the invariants of rates; `prefix` is that of the tenants' namespaces."""
    return (
        each_write("rates", JOB, ("ConfigMap", "ExchangeRate"), Rates(provided)),
        Invariant("rates-current", Current(provided, prefix)),
    )
