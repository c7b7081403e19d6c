"""Compare baselines with the current config of each workload, and limit the rolls of one run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs.core.roll_workloads.baseline import ROLL_OPT_IN, BaselinePatch
from jobs.core.roll_workloads.evaluate import evaluate
from jobs.core.roll_workloads.key import Key, key_secret_patch
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.reads import within_bounds
from jobs.core.roll_workloads.workloads import DeferralCode
from jobs.kit.values.model import Action, Finding, Need, ObjectKey, Plan, Severity, Summary, WriteOrder
from jobs.kit.values.resources import CONFIGMAPS, SECRETS
from jobs.kit.values.turns import in_turns

_SOURCES = (CONFIGMAPS.kind, SECRETS.kind)


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare baselines with the current config; the same input gives the same findings in the same order."""
    findings = list(observed.failures)
    needs: set[Need] = set()
    sources: dict[ObjectKey, Sequence[Need]] = {}
    unchanged: list[ObjectKey] = []
    for key in observed.opted_in:
        result = evaluate(key, observed, settings, now)
        if isinstance(result, Finding):
            findings.append(result)
        elif result is None:
            unchanged.append(key)
        elif all(need.key.kind in _SOURCES and need.key != observed.key_secret for need in result):
            sources[key] = result
        else:
            needs.update(result)
    to_read, too_many = within_bounds(sources, observed.sources, now)
    needs |= to_read
    findings += too_many
    if observed.key_secret and isinstance(observed.key, Key) and observed.key.empty_secret:
        findings.append(key_secret_patch(observed.key_secret, observed.key))
    findings, substitutes = _within_budget(findings, settings.max_rolls)
    if settings.run.verbose:
        findings += [Finding("unchanged", Severity.INFO, key, "runs with its current config") for key in unchanged]
    return Plan(
        findings,
        len(unchanged),
        needs,
        Summary(
            {"workloads": len(observed.opted_in), "sources": len(observed.sources)},
            "" if observed.opted_in or observed.failures else _note(observed.namespaces, settings.namespace),
        ),
        order=WriteOrder(substitutes=substitutes),
    )


def _note(namespaces: Sequence[str], only: str) -> str:
    """Return the note of a run that found no workload that opted in."""
    if not namespaces:
        return f"no workload in {f'namespace {only}' if only else 'any namespace'} has the annotation {ROLL_OPT_IN}"
    count = len(namespaces)
    subject = f"namespace {namespaces[0]} has" if count == 1 else f"{count} namespaces have"
    return f"{subject} the annotation {ROLL_OPT_IN}, but no Deployment, StatefulSet or DaemonSet that opted in"


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
    assert found.fix
    assert isinstance(found.fix.body, BaselinePatch)
    return found.fix.body.last_roll
