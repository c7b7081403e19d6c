"""The status of each rule after a run, and its metrics. Pure.

The same observation gives the same status, to the byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from jobs.core.sync_copies.desired import candidates, with_reasons
from jobs.core.sync_copies.evaluate import SOURCE_CHANGED
from jobs.core.sync_copies.kinds import LAYOUTS
from jobs.core.sync_copies.mistakes import NOTHING_SELECTED, SOURCE_NAMESPACE_MISSING, SOURCE_NAMESPACE_RECREATED
from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.rules import Conflict, FailedNamespace, Rule, RuleStatus, SourceNamespace
from jobs.kit.run.brakes import in_turns
from jobs.kit.run.gauges import Metric, Sample, of_resources
from jobs.kit.run.results import REASONS, UNCHANGED, kind_of, stable_message
from jobs.kit.values.conditions import (
    READY,
    Condition,
    StatusUpdate,
    about,
    event,
    is_recent,
    new_condition,
    status_update,
    timestamp,
)
from jobs.kit.values.errors import BLOCKED_BY_FINALIZER, CHANGED_BY_ADMISSION
from jobs.kit.values.model import Action, ExitCode, ObjectKey, Outcome, Plan, Result
from jobs.kit.values.reads import Head, by_subject
from jobs.kit.values.resources import RULES
from jobs.kit.values.text import listed

MOST_LISTED = 100  # conflicts and namespaces
# Longer than the schedule, so that a converged run writes nothing. A kubelet also reports an unchanged node status less
# often than it reads it: https://kubernetes.io/docs/reference/node/node-status/
_LAST_RUN_INTERVAL = timedelta(minutes=10)
_PLACES = {
    "conflict": "blocked by an object that is not managed by kube-chores",
    "reserved-name": "not written: their name is reserved",
    "collision": "claimed by several sources",
    "not-opted-in": "in namespaces that did not opt in",
    SOURCE_CHANGED: "of a source in another namespace than the one that the rule now selects",
    "terminating": "still being deleted",
}
# Reasons of condition Ready=False, by the code of a finding or the cause of a failed write; the first match is used.
_REASONS = (
    ("invalid", "Invalid"),
    ("unreadable", "Unreadable"),
    ("failed", "Failed"),
    *REASONS,
    (SOURCE_NAMESPACE_MISSING, "SourceNamespaceMissing"),
    (SOURCE_NAMESPACE_RECREATED, "SourceNamespaceRecreated"),
    ("refused", "SourceRefused"),
    ("source-missing", "SourceMissing"),
    ("not-opted-in", "NamespaceNotOptedIn"),
    (NOTHING_SELECTED, "NothingSelected"),
    ("reserved-name", "ReservedName"),
    ("collision", "Collision"),
    (SOURCE_CHANGED, "SourceChanged"),
    ("blocked", "DeletionsBlocked"),
    ("conflict", "Conflict"),
    ("terminating", "Terminating"),
)
# Reasons that another run may find resolved: what is missing may still be created, and a write may succeed.
_TRANSIENT = frozenset(
    {
        "Failed",
        "NothingSelected",
        "SourceMissing",
        "SourceNamespaceMissing",
        "Terminating",
        "Unreadable",
        "WebhookFailed",
        "WriteConflict",
    }
)
_ELSEWHERE = "no copies in this cluster; condition ClustersReady is about those in others"
REASON_NAMES = tuple(dict.fromkeys(name for _, name in _REASONS))
_RANKS = {kind: rank for rank, (kind, _) in enumerate(_REASONS)}

_OF_SOURCES = {"skipped", "refused", "unreadable", "shadowed"}
_NOT_DESIRED = {UNCHANGED, "orphan", "opted-out", "retained", "not-attached", "still-attached"}


class Reported(NamedTuple):
    """What a run reports about a rule.

    `sources` is None if the sources or the copies of the rule could not be read. `desired` is the number of its desired
    copies, and `problems` are the results of those that are not as desired. `namespaces` are its source namespaces;
    None if the rule is not valid. If it `is_elsewhere`, all its copies are in other clusters, and some of them if it
    `has_clusters`.
    """

    head: Head
    sources: int | None
    desired: int
    results: Sequence[Result]
    problems: Sequence[Result]
    namespaces: tuple[SourceNamespace, ...] | None
    is_elsewhere: bool = False
    has_clusters: bool = False

    @property
    def copies(self) -> int | None:
        """The number of copies that are as desired; None if it is not known."""
        return None if self.sources is None else self.desired - len({each.finding.object for each in self.problems})

    @property
    def conflicts(self) -> list[ObjectKey]:
        """The places of copies with an object that is not managed by kube-chores, in turns by namespace."""
        found = [result.finding.object for result in self.results if result.finding.code == "conflict"]
        return in_turns(found, lambda each: each.namespace)

    @property
    def condition(self) -> Condition:
        """Condition Ready."""
        return _condition(self.desired, self.results, is_elsewhere=self.is_elsewhere)


def status_updates(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of rules whose status is not up to date."""
    rules = reported(observed, settings, plan, results)
    updates = (_status_update(each, now) for each in rules)
    changed_copies = (_changed_by_admission(each.head, each.results, now) for each in rules)
    return [each for each in (*updates, *changed_copies) if each]


def reported(observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result]) -> list[Reported]:
    """Return what to report about the rules in the cluster that this run applied, by name."""
    by_rule = by_subject(results)
    found = candidates(observed, settings)
    sources: Counter[str] = Counter()
    for each in found.all():
        sources[each.rule.name] += len(each.sources)
    never_copied = {each.object for each in found.findings}
    uids = {each.name: each.uid for each in observed.source_namespaces if each.active}
    rules = {rule.name: rule for rule in observed.rules}
    heads = (*(rule.head for rule in observed.rules), *(rule.head for rule in observed.invalid_rules))

    def report(head: Head, name: str) -> Reported:
        rule, its_results = rules.get(name), by_rule.get(name, [])
        is_read = rule is not None and observed.sources.keys() >= {*rule.queries()}
        return Reported(
            head,
            sources[name] if is_read else None,
            plan.desired.by_subject.get(name, 0),
            its_results,
            _problems(its_results, never_copied, {rule.copy_kind.name} if rule else LAYOUTS),
            _source_namespaces(rule, uids) if rule else None,
            rule is not None and rule.is_elsewhere,
            rule is not None and rule.spec.targets.clusters is not None,
        )

    # Those of files have no uid.
    applied = {head.key.name: head for head in heads if head.uid and settings.applies(head.key.name)}
    return [report(head, name) for name, head in sorted(applied.items())]


def _source_namespaces(rule: Rule, uids: Mapping[str, str]) -> tuple[SourceNamespace, ...]:
    """Return the source namespaces of a rule. One that does not exist keeps its uid: a new one has another."""
    before = {each.name: each.uid for each in rule.status.source_namespaces}
    named = ((name, uids.get(name) or before.get(name, "")) for name in sorted({*rule.source_namespaces}))
    return tuple(SourceNamespace(name, uid) for name, uid in named if uid)


def _changed_by_admission(head: Head, results: Sequence[Result], now: datetime) -> StatusUpdate | None:
    """Return the Event of copies that admission changed when they were written; None if there are none.

    It is an Event only. Later sweeps do not find the difference, since such a copy has the fingerprint of its source;
    so a condition would be set for a single run.
    """
    altered = [each for each in results if each.cause == CHANGED_BY_ADMISSION and each.outcome is Outcome.DONE]
    if not altered:
        return None
    condition = new_condition(READY, "False", "ChangedByAdmission", _described(altered))
    return StatusUpdate(head, None, event(head.key, RULES.api_version, head.uid, condition, now))


def _status_update(rule: Reported, now: datetime) -> StatusUpdate | None:
    head, failed = rule.head, _failed_namespaces(rule.problems)
    before = head.status_as(RuleStatus)
    codes = {result.finding.code for result in rule.results}
    generation, uid = _selected(head, before, rule.desired, codes)
    is_complete = rule.namespaces is not None and SOURCE_NAMESPACE_RECREATED not in codes
    update = partial(
        status_update,
        head,
        RULES,
        before,
        rule.condition,
        now,
        transient=_TRANSIENT,
        of_others=("clusters", "pushed"),
        conflict_count=None if rule.sources is None else len(rule.conflicts),
        conflicts=tuple(Conflict(key.namespace, key.name) for key in rule.conflicts[:MOST_LISTED]),
        selected_generation=generation,
        selected_uid=uid,
        source_namespaces=rule.namespaces if is_complete else before.source_namespaces,
        sources=rule.sources,
        desired_copies=None if rule.sources is None else rule.desired,
        copies=rule.copies,
        failed_namespace_count=len(failed),
        failed_namespaces=tuple(failed[:MOST_LISTED]),
    )
    if is_recent(before.last_run_time, now, _LAST_RUN_INTERVAL) and not update(last_run_time=before.last_run_time):
        return None
    return update(last_run_time=timestamp(now))


def _problems(results: Iterable[Result], never_copied: Collection[ObjectKey], kinds: Collection[str]) -> list[Result]:
    """Return the results of desired copies, of these kinds, that are not as desired; `never_copied` are sources.

    A run with --rule-name evaluates no orphans. Without them, both kinds of run write the same status.
    """
    return [
        each
        for each in results
        if each.outcome is not Outcome.DONE and each.finding.object.kind in kinds
        if each.finding.code not in _NOT_DESIRED and each.finding.action is not Action.DELETE
        if not (each.finding.code in _OF_SOURCES and each.finding.object in never_copied)
    ]


def _failed_namespaces(problems: Iterable[Result]) -> list[FailedNamespace]:
    """Return the namespaces with a problem that sets Ready to False, sorted by name, each with its worst reason."""
    ranks: dict[str, int] = {}
    for each in problems:
        namespace, rank = each.finding.object.namespace, _RANKS.get(_kind(each), len(_REASONS))
        ranks[namespace] = min(rank, ranks.get(namespace, rank))
    return [FailedNamespace(name, _REASONS[rank][1]) for name, rank in sorted(ranks.items()) if rank < len(_REASONS)]


def _selected(head: Head, before: RuleStatus, copies: int, codes: Collection[str]) -> tuple[int | None, str]:
    """Return the last generation that selected a source and a target, and the uid of its rule.

    They are reset while a source namespace is missing, because a recreated namespace is empty at first.
    """
    if SOURCE_NAMESPACE_MISSING in codes:
        return None, ""
    if copies and NOTHING_SELECTED not in codes:
        return head.generation, head.uid
    return before.selected_generation, before.selected_uid


def _condition(copies: int, results: Sequence[Result], *, is_elsewhere: bool) -> Condition:
    kinds: dict[str, list[Result]] = {}
    for result in results:
        kinds.setdefault(_kind(result), []).append(result)
    for kind, reason in _REASONS:
        if kind in kinds:
            return new_condition(READY, "False", reason, _message(kind, kinds[kind], copies))
    synced = _ELSEWHERE if is_elsewhere else f"{copies} {'copy' if copies == 1 else 'copies'}"
    if never_copied := with_reasons([result.finding for result in kinds.get("skipped", [])]):
        synced += f"; never copied: {never_copied}"
    # A tenant with a forged stamp can add to these, so they do not set Ready to False.
    orphaned = (*kinds.get("orphan", []), *kinds.get("opted-out", []))
    if orphans := [result for result in orphaned if not result.finding.change or result.cause == BLOCKED_BY_FINALIZER]:
        noun, verb = ("orphan", "is") if len(orphans) == 1 else ("orphans", "are")
        left = f"{len(orphans)} {noun} {verb} still being deleted"
        message = f"{synced}; {left}: {_named(orphans)}"
        return new_condition(READY, "True", "OrphansTerminating", message)
    return new_condition(READY, "True", "Synced", synced)


def _kind(result: Result) -> str:
    is_deletion = result.exit_code is ExitCode.BRAKE and result.finding.code != SOURCE_CHANGED
    return "blocked" if is_deletion else kind_of(result)


def _message(kind: str, results: Sequence[Result], copies: int) -> str:
    if kind in _PLACES:
        return f"{len(results)} of {copies} copies {_PLACES[kind]}: {_named(results)}"
    if kind == "blocked":
        blocked = f"the deletion brake blocks the deletion of {len(results)} copies: {_named(results)}"
        return f"{blocked}; the log of the run has the command that allows it once"
    return _described(results)


def _named(results: Sequence[Result]) -> str:
    return listed([result.finding.object for result in results])


def _described(results: Sequence[Result]) -> str:
    return listed(results, text=lambda each: about(each.finding.object, RULES, stable_message(each)), separator="; ")


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
