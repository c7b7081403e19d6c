"""The metrics of sync-copies: the copies of each rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.status import reported
from jobs.kit.run.gauges import Metric, Sample, of_resources
from jobs.kit.values.model import Plan, Result

RULE_COPIES = Metric("kube_chores_rule_copies", "Copies of a CopyratorRule that are as desired.", ("rule",))
RULE_DESIRED = Metric("kube_chores_rule_desired_copies", "Copies that a CopyratorRule requires.", ("rule",))
RULE_CONFLICTS = Metric(
    "kube_chores_rule_conflicts",
    "Copies of a CopyratorRule in whose place is an object that is not managed by kube-chores.",
    ("rule",),
)
RULE_READY = Metric("kube_chores_rule_ready", "1 if condition Ready of a CopyratorRule is True, else 0.", ("rule",))


def gauges(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], _now: datetime
) -> Iterator[Sample]:
    """Yield the metrics of the rules that this run applied, by name; numbers that are not known have no series."""
    rules = reported(observed, settings, plan, results)
    known = [each for each in rules if each.sources is not None]
    yield from of_resources(RULE_COPIES, ((each.head.key.name, each.copies or 0) for each in known))
    yield from of_resources(RULE_DESIRED, ((each.head.key.name, each.desired) for each in known))
    yield from of_resources(RULE_CONFLICTS, ((each.head.key.name, len(each.conflicts)) for each in known))
    yield from of_resources(RULE_READY, ((each.head.key.name, each.condition.status == "True") for each in rules))
