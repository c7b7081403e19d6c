"""The Events of workloads that were rolled, or whose roll is deferred or not complete. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jobs.core.roll_workloads.evaluate import ROLLOUT_INCOMPLETE, ROLLOUT_STUCK
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.references import Reference
from jobs.core.roll_workloads.sources import Source, fingerprint
from jobs.core.roll_workloads.workloads import KINDS, DeferralCode, Workload
from jobs.kit.values.conditions import StatusUpdate, event, new_condition
from jobs.kit.values.model import Action, Finding, ObjectKey, Outcome, Plan, Result, Severity
from jobs.kit.values.resources import by_kind
from jobs.kit.values.turns import in_turns

_RESOURCES = by_kind(*KINDS)
_SHORT = (DeferralCode.SETTLING.value, DeferralCode.COOLING_DOWN.value)  # the roll follows within minutes
_REASONS = {ROLLOUT_STUCK: "RolloutStuck", ROLLOUT_INCOMPLETE: "RolloutIncomplete", "deferred": "RollDeferred"}
MOST_REPORTED = 100  # Events of rolls that are not done, in one run: tenants can opt in any number of workloads


def status_updates(
    observed: Observed, _settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the Events: `kubectl describe` prints why pods were replaced, or why a roll is not done."""
    rolled = [
        StatusUpdate(found.key, found.uid, None, _rolled(found, result.finding.reason, now))
        for result in results
        if result.finding.action is Action.ROLL and result.outcome is Outcome.DONE
        if isinstance(found := observed.workloads.get(result.finding.object), Workload)
    ]
    waiting = [
        (found, result.finding)
        for result in results
        if result.finding.code in _REASONS and result.finding.severity is not Severity.INFO
        if result.finding.deferral not in _SHORT
        if isinstance(found := observed.workloads.get(result.finding.object), Workload)
    ]
    reported = _rotated(waiting, now)[:MOST_REPORTED]
    events = ((found, _not_done(found, finding, observed, now)) for found, finding in reported)
    return [*rolled, *(StatusUpdate(found.key, found.uid, None, new) for found, new in events)]


def _rolled(workload: Workload, reason: str, now: datetime) -> Mapping[str, Any]:
    message = f"{reason}: pods are replaced according to the update strategy"
    rolled = new_condition("Rolled", "True", "ConfigChanged", message)
    return event(workload.key, _RESOURCES[workload.key.kind].api_version, workload.uid, rolled, now)


def _not_done(workload: Workload, finding: Finding, observed: Observed, now: datetime) -> Mapping[str, Any]:
    """Return the Event of a roll that is deferred or not complete.

    Its name depends on the workload, the code and the config that the roll is for. So the API server refuses an Event
    that a run reported before, until that one expires.
    """
    fingerprints = [
        f"{each.used} {fingerprint(each, _source(workload, each, observed))}" for each in workload.references
    ]
    identity = _digest("\n".join([finding.deferral or finding.code, *sorted(fingerprints)]))
    reason = _REASONS[finding.code]
    condition = new_condition(reason, str(bool(finding.deferral)), reason, finding.reason)
    api_version = _RESOURCES[workload.key.kind].api_version
    return event(workload.key, api_version, workload.uid, condition, now, identity)


def _source(workload: Workload, reference: Reference, observed: Observed) -> Source | None:
    found = observed.sources.get(ObjectKey(reference.kind, reference.name, workload.key.namespace))
    return found if isinstance(found, Source) else None


def _rotated(waiting: Iterable[tuple[Workload, Finding]], now: datetime) -> list[tuple[Workload, Finding]]:
    """Sort rolls that are not done in turns by namespace, those of --max-rolls last.

    The order within a turn is another one in each run. So over several runs, each of any number is reported.
    """

    def is_last(each: tuple[Workload, Finding]) -> bool:
        return each[1].deferral == DeferralCode.MAX_ROLLS.value

    shuffled = sorted(waiting, key=lambda each: _digest(f"{now.isoformat()} {each[0].uid}"))
    return sorted(in_turns(shuffled, lambda each: (is_last(each), each[0].key.namespace)), key=is_last)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
