"""The status of each rule after a run. Pure: the same observation gives the same status, to the byte."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from jobs.core.sync_copies.mistakes import NOTHING_SELECTED, SOURCE_NAMESPACE_MISSING
from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.rules import Conflict, RuleStatus
from jobs.kit.run.refusals import REASONS, kind_of, stable_message
from jobs.kit.values.conditions import READY, Condition, StatusUpdate, about, event, new_condition, status_update
from jobs.kit.values.errors import BLOCKED_BY_FINALIZER, CHANGED_BY_ADMISSION
from jobs.kit.values.findings import by_subject
from jobs.kit.values.model import ExitCode, Outcome, Plan, Result
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import RULES
from jobs.kit.values.text import listed

MOST_CONFLICTS_LISTED = 100
_MOST_NAMED = 3
_PLACES = {
    "conflict": "blocked by an object that is not managed by kube-chores",
    "reserved-name": "not written: jobs read their settings or key from objects of this name",
    "collision": "claimed by several sources",
    "not-opted-in": "in namespaces that did not opt in",
    "terminating": "still being deleted",
}
_WITH_MESSAGES = {"invalid", "unreadable", "failed", *dict(REASONS), SOURCE_NAMESPACE_MISSING, NOTHING_SELECTED}

# Reasons of condition Ready=False, by the code of a finding or the cause of a failed write; the first match is used.
_REASONS = (
    ("invalid", "Invalid"),
    ("unreadable", "Unreadable"),
    ("failed", "Failed"),
    *REASONS,
    (SOURCE_NAMESPACE_MISSING, "SourceNamespaceMissing"),
    ("not-opted-in", "NamespaceNotOptedIn"),
    (NOTHING_SELECTED, "NothingSelected"),
    ("reserved-name", "ReservedName"),
    ("collision", "Collision"),
    ("blocked", "DeletionsBlocked"),
    ("conflict", "Conflict"),
    ("terminating", "Terminating"),
)


def status_updates(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of rules whose status is not up to date."""
    by_rule = by_subject(results)
    # Those of files have no uid.
    heads = [rule.head for rule in observed.rules] + [rule.head for rule in observed.invalid_rules]
    selected = {head.key.name: head for head in heads if head.uid and settings.rule_name in (None, head.key.name)}
    updates = (
        _status_update(head, plan.desired.by_subject.get(name, 0), by_rule.get(name, []), now)
        for name, head in sorted(selected.items())
    )
    changed_copies = (
        _changed_by_admission(head, by_rule.get(name, []), now) for name, head in sorted(selected.items())
    )
    return [each for each in (*updates, *changed_copies) if each]


def _changed_by_admission(head: Head, results: Sequence[Result], now: datetime) -> StatusUpdate | None:
    """Return the Event of copies that admission changed when they were written; None if there are none.

    It is an Event only. Later sweeps do not find the difference, since such a copy has the fingerprint of its source;
    so a condition would be set for a single run.
    """
    if altered := [each for each in results if each.cause == CHANGED_BY_ADMISSION and each.outcome is Outcome.DONE]:
        message = _message(altered, 0, with_messages=True)
        condition = new_condition(READY, "False", "ChangedByAdmission", message)
        new_event = event(head.key, RULES.api_version, head.uid, condition, now)
        return StatusUpdate(head.key, head.uid, None, new_event)
    return None


def _status_update(head: Head, copies: int, results: Sequence[Result], now: datetime) -> StatusUpdate | None:
    conflicts = [result.finding.object for result in results if result.finding.code == "conflict"]
    before = head.status_as(RuleStatus)
    generation, uid = _selected(head, before, copies, {result.finding.code for result in results})
    return status_update(
        head,
        RULES,
        before,
        _condition(copies, results),
        now,
        conflict_count=len(conflicts),
        conflicts=tuple(Conflict(key.namespace, key.name) for key in conflicts[:MOST_CONFLICTS_LISTED]),
        selected_generation=generation,
        selected_uid=uid,
    )


def _selected(head: Head, before: RuleStatus, copies: int, codes: Collection[str]) -> tuple[int | None, str]:
    """Return the last generation that selected a source and a target, and the uid of its rule.

    They are reset while a source namespace is missing, because a recreated namespace is empty at first.
    """
    if SOURCE_NAMESPACE_MISSING in codes:
        return None, ""
    if copies and NOTHING_SELECTED not in codes:
        return head.generation, head.uid
    return before.selected_generation, before.selected_uid


def _condition(copies: int, results: Sequence[Result]) -> Condition:
    kinds: dict[str, list[Result]] = {}
    for result in results:
        kinds.setdefault(_kind(result), []).append(result)
    for kind, reason in _REASONS:
        if kind in kinds:
            message = _message(kinds[kind], copies, with_messages=kind in _WITH_MESSAGES)
            return new_condition(READY, "False", reason, message)
    synced = f"{copies} {'copy' if copies == 1 else 'copies'}"
    # A tenant with a forged stamp can add to these, so they do not set Ready to False.
    orphaned = (*kinds.get("orphan", []), *kinds.get("opted-out", []))
    if orphans := [result for result in orphaned if not result.finding.fix or result.cause == BLOCKED_BY_FINALIZER]:
        noun, verb = ("orphan", "is") if len(orphans) == 1 else ("orphans", "are")
        left = f"{len(orphans)} {noun} {verb} still being deleted"
        message = f"{synced}; {left}: {_named(orphans)}"
        return new_condition(READY, "True", "OrphansTerminating", message)
    return new_condition(READY, "True", "Synced", synced)


def _kind(result: Result) -> str:
    return "blocked" if result.exit_code is ExitCode.BRAKE else kind_of(result)


def _message(results: Sequence[Result], copies: int, *, with_messages: bool) -> str:
    if with_messages:
        return listed(results, _MOST_NAMED, _described, "; ")
    code = results[0].finding.code
    if code not in _PLACES:
        blocked = f"the deletion brake blocks the deletion of {len(results)} copies: {_named(results)}"
        return f"{blocked}; the log of the run has the command that allows it once"
    return f"{len(results)} of {copies} copies {_PLACES[code]}: {_named(results)}"


def _named(results: Sequence[Result]) -> str:
    return listed([result.finding.object for result in results], _MOST_NAMED)


def _described(result: Result) -> str:
    return about(result.finding.object, RULES, stable_message(result))
