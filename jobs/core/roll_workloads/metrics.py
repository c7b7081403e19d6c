"""The metrics of roll-workloads: the rolls that it deferred. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from jobs.core.roll_workloads.deferrals import DeferralCode
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.kit.values.metrics import Metric, Sample
from jobs.kit.values.model import Plan, Result

DEFERRED = Metric("kube_chores_deferred_rolls", "Rolls that a later run makes.", ("reason",))


def gauges(
    _observed: Observed, _settings: Settings, _plan: Plan, results: Sequence[Result], _now: datetime
) -> Iterator[Sample]:
    """Yield the number of deferred rolls by the code of their reason."""
    counted = Counter(result.finding.deferral for result in results)
    for code in DeferralCode:
        yield DEFERRED.sample(counted[code.value], code.value)
