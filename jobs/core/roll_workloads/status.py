"""The Events of workloads that were rolled. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.workloads import KINDS, Workload
from jobs.kit.values.conditions import StatusUpdate, event, new_condition
from jobs.kit.values.model import Action, Outcome, Plan, Result
from jobs.kit.values.resources import by_kind

_RESOURCES = by_kind(*KINDS)


def status_updates(
    observed: Observed, _settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return an Event for each workload that was rolled: `kubectl describe` prints why its pods were replaced."""
    return [
        StatusUpdate(found.key, found.uid, None, _event(found, result.finding.reason, now))
        for result in results
        if result.finding.action is Action.ROLL and result.outcome is Outcome.DONE
        if isinstance(found := observed.workloads.get(result.finding.object), Workload)
    ]


def _event(workload: Workload, reason: str, now: datetime) -> Mapping[str, Any]:
    message = f"{reason}: pods are replaced according to the update strategy"
    rolled = new_condition("Rolled", "True", "ConfigChanged", message)
    return event(workload.key, _RESOURCES[workload.key.kind].api_version, workload.uid, rolled, now)
