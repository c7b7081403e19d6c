"""Compare baselines with the config of each workload, limit the rolls of a run, and report them. Pure.

Rolls are reported by Events; those that were deferred or that are not complete, also by metrics.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from jobs.core.roll_workloads.baseline import ROLL_OPT_IN, BaselinePatch, Key, key_secret_patch
from jobs.core.roll_workloads.evaluate import (
    PERIOD_OVER,
    ROLLOUT_INCOMPLETE,
    ROLLOUT_STUCK,
    evaluate,
    references_of,
)
from jobs.core.roll_workloads.observe import within_bounds
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.references import Source, fingerprint
from jobs.core.roll_workloads.workloads import KINDS, DeferralCode, Workload
from jobs.kit.run.brakes import in_turns
from jobs.kit.run.gauges import Metric, Sample
from jobs.kit.values.conditions import Condition, StatusUpdate, event, new_condition
from jobs.kit.values.model import (
    Action,
    Dependency,
    Finding,
    ObjectKey,
    Outcome,
    Plan,
    Result,
    Severity,
    Summary,
    WriteOrder,
)
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import CONFIGMAPS, SECRETS, by_kind

_SOURCES = (CONFIGMAPS.kind, SECRETS.kind)
_RESOURCES = by_kind(*KINDS)
_SHORT = (DeferralCode.SETTLING.value, DeferralCode.COOLING_DOWN.value)  # the roll follows within minutes
_REASONS = {ROLLOUT_STUCK: "RolloutStuck", ROLLOUT_INCOMPLETE: "RolloutIncomplete", "deferred": "RollDeferred"}
MOST_REPORTED = 100  # Events of rolls that are not done, in one run: tenants can opt in any number of workloads


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare baselines with the current config; the same input gives the same findings in the same order."""
    findings = list(observed.failures)
    dependencies: set[Dependency] = set()
    sources: dict[ObjectKey, Sequence[Dependency]] = {}
    unchanged: list[ObjectKey] = []
    for key in observed.opted_in:
        result = evaluate(key, observed, settings, now)
        if isinstance(result, Finding):
            findings.append(result)
        elif result is None:
            unchanged.append(key)
        elif all(dependency.key.kind in _SOURCES and dependency.key != observed.key_secret for dependency in result):
            sources[key] = result
        else:
            dependencies.update(result)
    to_read, too_many = within_bounds(sources, observed.sources, now)
    dependencies |= to_read
    findings += too_many
    if observed.key_secret and isinstance(observed.key, Key) and observed.key.empty_secret:
        findings.append(key_secret_patch(observed.key_secret, observed.key))
    findings, substitutes = _within_budget(findings, settings.max_rolls)
    if settings.run.verbose:
        findings += [Finding("unchanged", Severity.INFO, key, "runs with its current config") for key in unchanged]
    return Plan(
        findings,
        len(unchanged),
        dependencies,
        Summary(
            {"workloads": len(observed.opted_in), "sources": len(observed.sources)},
            "" if observed.opted_in or observed.failures else _note(observed.namespaces, settings),
        ),
        order=WriteOrder(substitutes=substitutes),
    )


def _note(namespaces: Sequence[str], settings: Settings) -> str:
    """Return the note of a run that found no workload that opted in."""
    if not namespaces:
        where = f"namespace {settings.namespace}" if settings.namespace else "any namespace"
        return f"no workload in {where} has the annotation {ROLL_OPT_IN}"
    count = len(namespaces)
    subject = f"namespace {namespaces[0]} has" if count == 1 else f"{count} namespaces have"
    return f"{subject} the annotation {ROLL_OPT_IN}, but no {settings.any_kind} that opted in"


def _within_budget(findings: Sequence[Finding], max_rolls: int) -> tuple[list[Finding], list[Finding]]:
    """Return the findings with at most `max_rolls` rolls, and the substitutes for rolls that fail.

    All other rolls are deferred. There are at most `max_rolls` substitutes, so that failures do not add more requests.
    """
    rolls = _in_turn([each for each in findings if each.action is Action.ROLL])
    deferred = {each.object for each in rolls[max_rolls:]}
    allowed = [_deferred(each, max_rolls) if each.object in deferred else each for each in findings]
    return allowed, rolls[max_rolls : 2 * max_rolls]


def _deferred(roll: Finding, max_rolls: int) -> Finding:
    reason = f"{roll.reason}, but this run reached --max-rolls ({max_rolls}): a later run rolls the workload"
    return Finding("deferred", Severity.WARNING, roll.object, reason, deferral=DeferralCode.MAX_ROLLS.value)


def _in_turn(rolls: Sequence[Finding]) -> list[Finding]:
    """Sort the rolls in turns by namespace.

    Within a turn, workloads that were never rolled come first, then those with the oldest last roll, then by name. A
    tenant can forge the time of the last roll, which is in the baseline. This only changes the order within a turn.
    """
    oldest_first = sorted(rolls, key=lambda found: (_last_roll(found), found.object))
    return in_turns(oldest_first, lambda each: each.object.namespace)


def _last_roll(found: Finding) -> str:
    """Return the time of the previous roll of a workload as sortable text; "" if it was never rolled."""
    assert found.change
    assert isinstance(found.change.body, BaselinePatch)
    return found.change.body.last_roll


def status_updates(
    observed: Observed, _settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the Events: `kubectl describe` prints why pods were replaced, or why a roll is not done."""
    rolled = [
        _rolled(found, result.finding, now)
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
    return [*rolled, *(_not_done(found, finding, observed, now) for found, finding in reported)]


def _update(workload: Workload, condition: Condition, now: datetime, identity: str = "") -> StatusUpdate:
    api_version = _RESOURCES[workload.key.kind].api_version
    new = event(workload.key, api_version, workload.uid, condition, now, identity)
    return StatusUpdate(Head(workload.key, workload.uid), None, new)


def _rolled(workload: Workload, finding: Finding, now: datetime) -> StatusUpdate:
    message = f"{finding.reason}: pods are replaced according to the update strategy"
    why = "PeriodOver" if finding.code == PERIOD_OVER else "ConfigChanged"
    return _update(workload, new_condition("Rolled", "True", why, message), now)


def _not_done(workload: Workload, finding: Finding, observed: Observed, now: datetime) -> StatusUpdate:
    """Return the Event of a roll that is deferred or not complete.

    Its name depends on the workload, the code and the config that the roll is for. So the API server refuses an Event
    that a run reported before, until that one expires.
    """
    fingerprints = []
    for each in references_of(workload, observed):
        source = observed.sources.get(ObjectKey(each.kind, each.name, workload.key.namespace))
        fingerprints.append(f"{each.used} {fingerprint(each, source if isinstance(source, Source) else None)}")
    identity = _digest("\n".join([finding.deferral or finding.code, *sorted(fingerprints)]))
    reason = _REASONS[finding.code]
    condition = new_condition(reason, str(bool(finding.deferral)), reason, finding.reason)
    return _update(workload, condition, now, identity)


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
