"""Other clusters: which rules are about one, which of them a run leaves as they are, and their statuses. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs

from jobs.core.sync_copies.kinds import IN_INVENTORY
from jobs.core.sync_copies.mistakes import NOTHING_SELECTED, SOURCE_NAMESPACE_MISSING, SOURCE_NAMESPACE_RECREATED
from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.rules import ClusterStatus, KnownCluster, Pushed, Rule, RuleStatus, SourceNamespace
from jobs.core.sync_copies.selectors import glob_matcher
from jobs.core.sync_copies.status import REASON_NAMES, RULE_READY, reported
from jobs.kit.run.gauges import Metric, Sample, of_resources
from jobs.kit.values.conditions import (
    Condition,
    StatusUpdate,
    event,
    is_recent,
    new_condition,
    status_update,
    timestamp,
)
from jobs.kit.values.model import Action, ExitCode, Finding, ObjectKey, Outcome, Plan, Result, Severity
from jobs.kit.values.resources import NAMESPACES, RULES
from jobs.kit.values.text import listed

KIND = "Cluster"  # of findings about a whole cluster
CLUSTERS_READY = "ClustersReady"
UNREACHABLE, REPLACED, LEFT = "unreachable", "replaced", "left-inventory"
SYNCED, NOTHING = "Synced", "NothingSelected"
_SLOW = frozenset({"Unreachable", "TimedOut"})
NO_CLUSTER = f"the inventory has no cluster; label a Secret with its kubeconfig {IN_INVENTORY}=true"
MOST_CLUSTERS = 50  # of a status
_MOST_KNOWN = 500
_OF_ORPHANS = frozenset({"orphan", "opted-out", "retained", "unreadable"})
_POLICY = "kube-chores-copies"  # cronjobs/policies
_LAST_RUN_INTERVAL = timedelta(minutes=10)
# Reasons of clusters, by the code of the finding; the worst first. Those of copies come after them.
_REASONS = {
    UNREACHABLE: "Unreachable",
    "unreadable": "Unreadable",
    "timed-out": "TimedOut",
    "not-read": "NotRead",
    REPLACED: "Replaced",
    "duplicate": "Duplicate",
    "invalid": "Invalid",
}
_RANKS = {name: rank for rank, name in enumerate(dict.fromkeys([*_REASONS.values(), *REASON_NAMES]))}
_IS_READY = {SYNCED, "OrphansTerminating"}


class Member(Struct, frozen=True):
    """A cluster of the inventory: its name and labels, and why it cannot be used; empty if it can."""

    name: str
    labels: Mapping[str, str]
    problem: str = ""


Selected = Mapping[str, frozenset[str]]  # the names of clusters by that of the rule


def selected(rules: Iterable[Rule], members: Sequence[Member]) -> Selected:
    """Return which clusters each rule selects."""
    return {rule.name: frozenset(m.name for m in members if rule.selects_cluster(m.name, m.labels)) for rule in rules}


def rules_about(name: str, rules: Iterable[Rule], clusters: Selected, every: bool = False) -> tuple[Rule, ...]:
    """Return the rules that are compared in a cluster, or all rules.

    These are the rules that select it, and those that select no cluster at all: such a rule may be mistaken. Copies of
    other rules are orphans there.
    """
    return tuple(
        structs.replace(
            rule,
            cluster=name,
            is_elsewhere=name not in clusters[rule.name],
            selects_no_cluster=not clusters[rule.name],
        )
        for rule in rules
        if every or name in clusters[rule.name] or not clusters[rule.name]
    )


def problem(name: str, code: str, reason: str, exit_code: ExitCode = ExitCode.REFUSED) -> Finding:
    """Return the finding of a cluster that a run leaves as it is."""
    return Finding(code, Severity.CRITICAL, ObjectKey(KIND, name), reason, exit_code=exit_code)


def known_uids(rules: Iterable[Rule]) -> dict[str, str]:
    """Return the uids that clusters had in earlier runs, by name; also of those that left the inventory."""
    return {each.name: each.uid for rule in rules for each in rule.status.pushed.clusters if each.uid}


def shared(name: str, uid: str, known: Mapping[str, str], members: Collection[str]) -> Iterator[Finding]:
    """Yield the finding of a cluster to forget that has another name in the inventory too."""
    others = sorted(each for each, other in known.items() if other == uid and each != name and each in members)
    if others:
        yield problem(name, "duplicate", f"is the same cluster as {listed(others)}, whose copies would be deleted too")


def mismatches(uids: Mapping[str, str], known: Mapping[str, str], hub: str, members: Set[str]) -> Iterator[Finding]:
    """Yield a finding for each cluster that is not the one that its name had before, or that has several names.

    Names also count that did not answer, or left the inventory, which has the names `members`. Of several names, the
    one that is known stays: any cluster can answer with the uid of another one.
    """
    names: dict[str, list[str]] = {}
    for name, uid in sorted({**known, **uids}.items()):
        names.setdefault(uid, []).append(name)
    for name, uid in sorted(uids.items()):
        others = [each for each in names[uid] if each != name]
        is_known = known.get(name) == uid and all(known.get(each) != uid for each in others)
        if uid == hub:
            yield problem(name, "duplicate", "is the cluster with the rules; remove it, and set spec.targets.local")
        elif others and not is_known:
            todo = "remove all but one of them"
            if members.isdisjoint(others):
                forget = f"chores sync-copies --forget-cluster {name}"
                todo = f"name it so again, or delete its copies once: {forget}"
            yield problem(name, "duplicate", f"is the same cluster as {listed(others)}; {todo}")
        elif known.get(name, uid) != uid:
            reason = (
                f"another cluster answers: its namespace kube-system has uid {uid}, and had {known[name]}; nothing is "
                f"changed there; if it replaces the old one, run chores sync-copies --forget-cluster {name} once: it "
                "deletes the copies of this hub in the cluster that answers"
            )
            yield problem(name, REPLACED, reason)


def left(rules: Iterable[Rule], outcomes: Outcomes) -> list[Finding]:
    """Return the findings of clusters that left the inventory and were not reported yet."""
    names = {name for rule in rules for name in _gone(rule, outcomes)}
    return [Finding(LEFT, Severity.WARNING, ObjectKey(KIND, name), _why_left(name)) for name in sorted(names)]


def _gone(rule: Rule, outcomes: Outcomes) -> list[str]:
    """Return the clusters with copies that left the inventory; one that no run reached has none."""
    known = rule.status.pushed.clusters
    return [each.name for each in known if each.uid and each.name not in outcomes.members and not each.left]


def _why_left(name: str) -> str:
    todo = f"to delete them while its credentials exist, run chores sync-copies --forget-cluster {name}"
    return f"is no longer in the inventory; its copies stay; {todo}"


def once(visited: Sequence[Sequence[Result]], reported: Collection[ObjectKey]) -> Iterator[Result]:
    """Yield the results of all clusters; what each of them reports about the hub only once, without a cluster.

    Left out is what is already `reported`.
    """
    if len(visited) < 2:
        common = set[tuple[ObjectKey, str, str]]()
    else:
        numbers = Counter(_key(each) for results in visited for each in results if _is_about_hub(each.finding))
        common = {each for each, number in numbers.items() if number == len(visited)}
    done = set[tuple[ObjectKey, str, str]]()
    for each in chain.from_iterable(visited):
        about = _key(each)
        if each.finding.change is None and each.finding.object in reported:
            continue
        if each.finding.change or about not in common:
            yield each
        elif about not in done:
            done.add(about)
            yield structs.replace(each, cluster="")


def _is_about_hub(finding: Finding) -> bool:
    """Whether it is about a rule or a source, and not about a copy."""
    return finding.object.kind == RULES.kind or finding.code in ("skipped", "refused", "shadowed")


def _key(result: Result) -> tuple[ObjectKey, str, str]:
    return result.finding.object, result.finding.code, result.finding.reason


def as_refused(result: Result, hub: str) -> Result:
    """Return the result; with what to do if the policy of copies refused a write, whose cause is not its namespace."""
    if result.outcome is not Outcome.FAILED or result.refused_by != _POLICY:
        return result
    todo = f"if the verb push is missing, apply there what chores manifests --spoke {hub} prints"
    return structs.replace(result, message=f"{result.message}; {todo}", exit_code=ExitCode.REFUSED)


def is_empty(results: Iterable[Result]) -> bool:
    """Whether no copy is left in a cluster of which all copies were to be deleted, but those that rules retain."""
    return all(_is_done(each) or each.finding.code == "retained" or _is_choice(each.finding) for each in results)


def _is_choice(finding: Finding) -> bool:
    """Whether it is about the annotation of a namespace, which prevents nothing."""
    return finding.code == "invalid" and finding.object.kind == NAMESPACES.kind


def has_no_orphans(results: Iterable[Result]) -> bool:
    """Whether no orphan is left in a cluster after a run that evaluated them."""
    return all(map(_is_done, (each for each in results if _is_about_orphans(each.finding))))


def _is_done(result: Result) -> bool:
    return result.outcome is Outcome.DONE and not result.cause


def _is_about_orphans(finding: Finding) -> bool:
    """Whether it is about an orphan, or a failure because of which orphans are not known."""
    is_invalid = finding.code == "invalid" and not _is_choice(finding)
    return is_invalid or finding.action is Action.DELETE or finding.code in _OF_ORPHANS


class InCluster(NamedTuple):
    """The copies of a rule in one cluster after a run. `codes` are those of all its findings there.

    `uid` and `generation` are those of the rule that was evaluated.
    """

    desired: int
    copies: int | None
    reason: str
    conflicts: int
    namespaces: tuple[SourceNamespace, ...]
    codes: frozenset[str]
    uid: str
    generation: int


def summary(observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result]) -> dict[str, InCluster]:
    """Return the state of each rule in a cluster, by name."""
    return {
        each.head.key.name: InCluster(
            each.desired,
            each.copies,
            each.condition.reason,
            len(each.conflicts),
            each.namespaces or (),
            frozenset(result.finding.code for result in each.results),
            each.head.uid,
            each.head.generation,
        )
        for each in reported(observed, settings, plan, results)
    }


@dataclass(frozen=True)
class Outcomes:
    """What a run found in each cluster: its uid and the state of rules there, or its problem.

    `members` are the names of all clusters of the inventory, `cleared` of those in which no orphan is left.
    """

    selected: Selected
    uids: Mapping[str, str]
    visited: Mapping[str, Mapping[str, InCluster]]
    problems: Mapping[str, Finding]
    members: Collection[str]
    settings: Settings
    cleared: Collection[str] = ()

    def state(self, rule: Rule, name: str) -> InCluster | None:
        """Return the state of a rule in a cluster; None if it was not read, or the rule was created again since."""
        found = self.visited.get(name, {}).get(rule.name)
        return found if found and found.uid == rule.head.uid else None

    def states(self, name: str) -> list[InCluster]:
        """Return the states of the rules that select this cluster."""
        rules = self.visited.get(name, {})
        return [state for rule, state in rules.items() if name in self.selected.get(rule, ())]


def in_order(names: Iterable[str], rules: Iterable[Rule]) -> list[str]:
    """Return clusters in the order of a run: the one that was not read for the longest time comes first.

    Those that did not answer, or not in time, come last: they take the time of others.
    """
    known = [each for rule in rules for each in rule.status.pushed.clusters]
    slow = {each.name for each in known if each.reason in _SLOW}
    read_at = {each.name: each.last_run_time for each in sorted(known, key=lambda each: each.last_run_time)}
    return sorted(names, key=lambda name: (name in slow, read_at.get(name, ""), name))


def is_chosen(name: str, settings: Settings) -> bool:
    """Whether the run is about this cluster."""
    if settings.forgotten:
        return name == settings.forgotten
    return glob_matcher([settings.clusters]).fullmatch(name) is not None


def without_clusters(rules: Iterable[Rule], outcomes: Outcomes) -> Iterator[StatusUpdate]:
    """Yield the status updates of rules that no longer select clusters: what is about clusters is removed.

    What is known of a cluster stays until the copies there are deleted.
    """
    for rule in rules:
        head, before = rule.head, rule.head.status_as(RuleStatus)
        conditions = tuple(each for each in before.conditions if each.type != CLUSTERS_READY)
        clusters = tuple(_not_cleared(rule, before.pushed.clusters, outcomes))
        pushed = structs.replace(before.pushed, clusters=clusters) if clusters else Pushed()
        after = structs.replace(before, conditions=conditions, clusters=(), pushed=pushed)
        if after != before and outcomes.settings.applies(rule.name):
            made = {"clusters": None, "pushed": pushed if clusters else None, "conditions": conditions}
            yield StatusUpdate(head, msgspec.to_builtins(made))


def _not_cleared(rule: Rule, known: Iterable[KnownCluster], outcomes: Outcomes) -> Iterator[KnownCluster]:
    """Yield the clusters that may have copies of the rule: also one where this run applied it, before it changed."""
    for each in known:
        if each.uid and (each.name not in outcomes.cleared or rule.name in outcomes.visited.get(each.name, ())):
            left = each.left if outcomes.settings.forgotten else each.name not in outcomes.members
            yield structs.replace(each, left=left)


def status_updates(rules: Sequence[Rule], outcomes: Outcomes, now: datetime) -> list[StatusUpdate]:
    """Return the status updates of rules about other clusters, and the Events of clusters that left the inventory."""
    updates = [
        _status_update(rule, outcomes, now) for rule in rules if rule.head.uid and outcomes.settings.applies(rule.name)
    ]
    return [each for each in updates if each]


def _status_update(rule: Rule, outcomes: Outcomes, now: datetime) -> StatusUpdate | None:
    before = rule.head.status_as(RuleStatus)
    names = sorted(outcomes.selected[rule.name])
    known = {each.name: each for each in before.pushed.clusters}
    if before.pushed.rule_uid != rule.head.uid:  # of a recreated rule, whose generations began again
        known = {name: structs.replace(each, selected_generation=None) for name, each in known.items()}
    clusters = _clusters(rule, names, before, outcomes, now)
    for each in clusters:
        known[each.name] = _known(rule, known.get(each.name) or KnownCluster(each.name), each, outcomes)
    for name in known.keys() - outcomes.members:
        gone = known.pop(name)
        if gone.uid:
            known[name] = structs.replace(gone, left=True)
    pushed = structs.replace(
        before.pushed,
        rule_uid=rule.head.uid,
        source_namespaces=_source_namespaces(rule, before.pushed, outcomes),
        clusters=tuple(sorted(known.values(), key=lambda each: (each.left, each.name)))[:_MOST_KNOWN],
    )
    return _updated(rule, before, clusters, pushed, now)


def _updated(
    rule: Rule, before: RuleStatus, clusters: Sequence[ClusterStatus], pushed: Pushed, now: datetime
) -> StatusUpdate | None:
    worst_first = sorted(clusters, key=lambda each: (rank(each.reason), each.name))[:MOST_CLUSTERS]
    return status_update(
        rule.head,
        RULES,
        before,
        _condition(clusters),
        now,
        transient=(),
        clusters=tuple(worst_first),
        pushed=pushed,
    )


def _known(rule: Rule, known: KnownCluster, status: ClusterStatus, outcomes: Outcomes) -> KnownCluster:
    """Return what the next run has to know of a cluster."""
    known = structs.replace(
        known, left=False, last_run_time=status.last_run_time, reason="" if status.reason == SYNCED else status.reason
    )
    found = outcomes.state(rule, known.name)
    if found is None:
        return known
    generation = known.selected_generation
    if SOURCE_NAMESPACE_MISSING in found.codes:
        generation = None
    elif found.desired and NOTHING_SELECTED not in found.codes:
        generation = found.generation
    return structs.replace(
        known, uid=outcomes.uids[known.name], selected_generation=generation, conflict_count=found.conflicts
    )


def _clusters(
    rule: Rule, names: Sequence[str], before: RuleStatus, outcomes: Outcomes, now: datetime
) -> list[ClusterStatus]:
    """Return the state of the rule in each cluster that it selects."""
    listed_before = {each.name: each for each in before.clusters}
    known = {each.name: each for each in before.pushed.clusters}
    made, is_due = {}, False
    for name in names:
        finding, found = outcomes.problems.get(name), outcomes.state(rule, name)
        last = listed_before.get(name) or _of_known(known.get(name) or KnownCluster(name), found)
        made[name] = last
        if found is not None:
            reason = _REASONS[finding.code] if finding else found.reason
            new = made[name] = ClusterStatus(name, reason, found.desired, found.copies, last.last_run_time)
            is_due |= new != last or not is_recent(last.last_run_time, now, _LAST_RUN_INTERVAL)
        elif finding:
            made[name] = ClusterStatus(name, _REASONS[finding.code], last_run_time=last.last_run_time)
    if not is_due:
        return list(made.values())
    # The times of all clusters at once: else each would be another write of the status.
    read = {name for name in names if outcomes.state(rule, name)}
    return [structs.replace(e, last_run_time=timestamp(now)) if e.name in read else e for e in made.values()]


def _of_known(known: KnownCluster, found: InCluster | None) -> ClusterStatus:
    """Return the last state in a cluster that the list of the status, which is cut, does not have.

    Its numbers of copies are not known: they are those that were `found`, so that they are no change.
    """
    reason = known.reason or (SYNCED if known.last_run_time else _REASONS["not-read"])
    desired, copies = (found.desired, found.copies) if found else (None, None)
    return ClusterStatus(known.name, reason, desired, copies, known.last_run_time)


def _source_namespaces(rule: Rule, before: Pushed, outcomes: Outcomes) -> tuple[SourceNamespace, ...]:
    """Return the source namespaces: with their earlier uids until no cluster has copies of those that were recreated.

    A cluster that was not read may have some.
    """
    found = {name: outcomes.state(rule, name) for name in outcomes.visited}
    read = {name: each for name, each in found.items() if each and each.copies is not None}
    if not read:
        return before.source_namespaces
    needed = {each.name for each in before.clusters if each.uid and each.name in outcomes.selected[rule.name]}
    now = next(iter(read.values())).namespaces
    if needed <= read.keys() and not any(SOURCE_NAMESPACE_RECREATED in each.codes for each in read.values()):
        return now
    earlier = {each.name: each for each in before.source_namespaces}
    return tuple(earlier.get(each.name, each) for each in now)


def is_ready(reason: str) -> bool:
    """Whether this is the reason of a cluster whose copies are as desired."""
    return reason in _IS_READY


def rank(reason: str) -> int:
    """Return the place of a reason in the order of their impact; the worst has 0."""
    return len(_RANKS) if is_ready(reason) else _RANKS.get(reason, len(_RANKS) - 1)


def _condition(clusters: Sequence[ClusterStatus]) -> Condition:
    wrong = sorted((each for each in clusters if not is_ready(each.reason)), key=lambda each: rank(each.reason))
    if not clusters:
        return new_condition(CLUSTERS_READY, "False", NOTHING, "spec.targets.clusters selects no cluster")
    number = f"{len(clusters)} {'cluster' if len(clusters) == 1 else 'clusters'}"
    if not wrong:
        return new_condition(CLUSTERS_READY, "True", SYNCED, f"the copies in {number} are as desired")
    named = listed(sorted(wrong, key=lambda each: each.name), text=lambda each: f"{each.name} ({each.reason})")
    return new_condition(CLUSTERS_READY, "False", wrong[0].reason, f"{len(wrong)} of {number} not ready: {named}")


def left_events(rules: Iterable[Rule], outcomes: Outcomes, now: datetime) -> Iterator[StatusUpdate]:
    """Yield an Event for each rule with copies in clusters that left the inventory and were not reported yet."""
    for head, gone in ((rule.head, _gone(rule, outcomes)) for rule in rules):
        if gone and head.uid:
            text = "; ".join(f"cluster {name} {_why_left(name)}" for name in gone)
            condition = new_condition(CLUSTERS_READY, "False", "LeftInventory", text)
            yield StatusUpdate(head, None, event(head.key, RULES.api_version, head.uid, condition, now))


def forgotten(rules: Iterable[Rule], outcomes: Outcomes, now: datetime) -> Iterator[StatusUpdate]:
    """Yield the status updates after all copies in a cluster were deleted, whose names are the `cleared` ones."""
    for rule in rules:
        before = rule.head.status_as(RuleStatus)
        known = tuple(each for each in before.pushed.clusters if each.name not in outcomes.cleared)
        if known != before.pushed.clusters and rule.head.uid:
            names = sorted(outcomes.selected[rule.name].difference(outcomes.cleared))
            clusters = _clusters(rule, names, before, outcomes, now)
            if update := _updated(rule, before, clusters, structs.replace(before.pushed, clusters=known), now):
                yield update


CLUSTER_READY = Metric(
    "kube_chores_cluster_ready",
    "1 if all copies of sync-copies in another cluster are as desired, else 0.",
    ("cluster",),
)
CLUSTER_DESIRED = Metric(
    "kube_chores_cluster_desired_copies", "Copies that rules require in another cluster.", ("cluster",)
)
CLUSTER_COPIES = Metric("kube_chores_cluster_copies", "Copies in another cluster that are as desired.", ("cluster",))


def gauges(outcomes: Outcomes, rules: Mapping[str, bool]) -> Iterator[Sample]:
    """Yield the metrics of clusters, and whether each of the `rules` is valid; unknown numbers have no series."""
    yield from of_resources(RULE_READY, sorted(rules.items()))
    names = sorted({*outcomes.visited, *outcomes.problems})
    found = {name: outcomes.states(name) for name in names}
    known = {name: each for name, each in found.items() if name in outcomes.visited and name not in outcomes.problems}
    ready = {name for name, each in known.items() if all(is_ready(state.reason) for state in each)}
    yield from of_resources(CLUSTER_READY, ((name, float(name in ready)) for name in names))
    yield from of_resources(CLUSTER_DESIRED, ((n, sum(state.desired for state in each)) for n, each in known.items()))
    yield from of_resources(
        CLUSTER_COPIES, ((name, sum(state.copies or 0 for state in each)) for name, each in known.items())
    )
