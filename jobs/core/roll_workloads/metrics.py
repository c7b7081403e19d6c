"""The metrics of roll-workloads: the rolls that it deferred, and those that are not complete. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from jobs.core.roll_workloads.evaluate import ROLLOUT_INCOMPLETE, ROLLOUT_STUCK
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.workloads import DeferralCode
from jobs.kit.run.gauges import Metric, Sample
from jobs.kit.values.model import Plan, Result

DEFERRED_ROLLS = Metric("kube_chores_deferred_rolls", "Rolls that a later run makes.", ("reason",))
INCOMPLETE_ROLLS = Metric("kube_chores_incomplete_rolls", "Rolls whose rollout is not complete.", ("reason",))


def gauges(
    _observed: Observed, _settings: Settings, _plan: Plan, results: Sequence[Result], _now: datetime
) -> Iterator[Sample]:
    """Yield the numbers of deferred rolls, and of rolls whose rollout is not complete, by their codes."""
    codes = Counter(result.finding.code for result in results)
    for each in (ROLLOUT_STUCK, ROLLOUT_INCOMPLETE):
        yield INCOMPLETE_ROLLS.sample(codes[each], each)
    counted = Counter(result.finding.deferral for result in results)
    for code in DeferralCode:
        yield DEFERRED_ROLLS.sample(counted[code.value], code.value)
