"""Rules that may be mistaken: they block the deletion of copies. Pure.

A typo in a rule has the same effect as the intent to withdraw all its copies. The difference: has the current
generation of the rule ever selected anything? If it has, and now selects nothing, its sources or targets changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from jobs.core.sync_copies.desired import Candidates, by_rule, with_reasons
from jobs.core.sync_copies.observed import Namespace, Observed
from jobs.core.sync_copies.rules import Rule
from jobs.kit.run import brakes
from jobs.kit.values import stamps
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.resources import NAMESPACES, RULES
from jobs.kit.values.text import listed

SOURCE_NAMESPACE_MISSING, NOTHING_SELECTED = "source-namespace-missing", "nothing-selected"
SOURCE_NAMESPACE_RECREATED = "source-namespace-recreated"
_CONSEQUENCES = {
    SOURCE_NAMESPACE_MISSING: "none of the rule's copies is deleted; correct or delete the rule",
    SOURCE_NAMESPACE_RECREATED: "none of its copies is deleted until each has its source again",
    NOTHING_SELECTED: "none of the rule's copies is deleted until the rule selects a source and a target",
}


class Mistake(NamedTuple):
    """A rule that may be mistaken: the code of its finding, and the sources and targets that it selects.

    If only some of its source namespaces are the reason, these are `namespaces`.
    """

    code: str
    rule: Rule
    reason: str
    sources: frozenset[str]
    targets: frozenset[str]
    namespaces: frozenset[str] = frozenset()

    def finding(self) -> Finding:
        """Return the finding about the rule."""
        reason = f"{self.reason}; {_CONSEQUENCES[self.code]}"
        return Finding(self.code, Severity.WARNING, self.rule.head.key, reason, subjects=(self.rule.name,))

    def concerns(self, source_namespace: str) -> bool:
        """Whether copies of sources in this namespace may be deleted by mistake."""
        return not self.namespaces or source_namespace in self.namespaces or self.rule.spec.merge is not None

    def may_select(self, copy: ObjectKey, source: str) -> bool:
        """Whether the rule may select this copy of `source`, as its stamp names it, once the rule is corrected.

        The copy must match what the rule selects now: its sources (or its source namespaces, if it selects no source)
        and its targets.
        """
        origin = stamps.source_key(source, copy.kind)
        namespace, is_merged = origin.namespace, origin.kind == RULES.kind
        fits_namespace = self.code == SOURCE_NAMESPACE_MISSING or namespace in self.rule.source_namespaces
        fits_source = is_merged or (source in self.sources if self.sources else fits_namespace)
        fits_target = not (self.targets - {namespace}) or copy.namespace in self.targets
        is_of_kind = self.rule.copy_kind.name == copy.kind and is_merged == (self.rule.spec.merge is not None)
        return is_of_kind and fits_source and fits_target and self.concerns(namespace)


def mistakes(observed: Observed, found: Candidates, targets: Mapping[str, Sequence[str]]) -> dict[str, Mistake]:
    """Return the rules that may be mistaken, by name; `found` are their sources and `targets` their namespaces.

    Rules whose sources or copies could not be read are left out: such a run deletes nothing.
    """
    unread = {subject for failure in observed.failures for subject in failure.subjects}
    closed = {namespace.name for namespace in observed.namespaces if namespace.is_closed}
    undecoded = {failure.object.name for failure in observed.failures if failure.object.kind == NAMESPACES.kind}
    # One that cannot be decoded is None: it exists.
    namespaces = {each.name: each for each in observed.source_namespaces} | dict.fromkeys(undecoded)
    sources: dict[str, set[str]] = {}
    own: dict[str, set[str]] = {}  # namespaces that get no copy
    for each in found.all():
        sources.setdefault(each.rule.name, set()).add(each.stamped)
        own.setdefault(each.rule.name, set()).add(each.own_namespace)
    left = by_rule(found.findings)
    made: dict[str, Mistake] = {}
    for rule in sorted(observed.rules, key=lambda rule: rule.name):
        if rule.name in unread or (rule.is_elsewhere and not observed.sources.keys() >= {*rule.queries()}):
            continue
        selected, into = frozenset(sources.get(rule.name, ())), frozenset(targets[rule.name]) - closed
        is_own = len(into) == 1 and {*into} == own.get(rule.name)
        # Which clusters it selects also depends on the inventory, which changes without a generation.
        is_known = _has_selected(rule) and not rule.selects_no_cluster
        nothing = "" if is_known else _why_nothing(rule, selected, into, is_own, left.get(rule.name, ()))
        concerned: Collection[str] = ()
        if problems := list(_missing_namespaces(rule, namespaces)):
            code, reason = SOURCE_NAMESPACE_MISSING, "; ".join(problems)
        elif recreated := _recreated_namespaces(rule, namespaces):
            code = SOURCE_NAMESPACE_RECREATED
            reason = f"source namespace {listed(recreated)} was deleted and created again"
            concerned = () if nothing else recreated
        elif nothing:
            code, reason = NOTHING_SELECTED, nothing
        else:
            continue
        made[rule.name] = Mistake(code, rule, reason, selected, into, frozenset(concerned))
    return made


def _why_nothing(
    rule: Rule, sources: frozenset[str], targets: frozenset[str], is_own: bool, left: Sequence[Finding]
) -> str:
    """Return why a rule requires no copy; empty if it requires one, or may require one."""
    if any(each.code in ("unreadable", "refused") for each in left):
        return ""  # it may require copies of these
    if not sources:
        named = " ".join([rule.spec.rule_type, listed(rule.spec.names)]).rstrip()
        reasons = with_reasons(left)
        only = f", only objects that are never copied: {reasons}" if reasons else ""
        where = f"namespace{'s' * (len(rule.source_namespaces) > 1)} {listed(rule.source_namespaces)}"
        return f"selects no {named} to copy in {where}{only}"
    if rule.is_elsewhere:
        return "spec.targets.clusters selects no cluster" if rule.selects_no_cluster else ""
    if not targets:
        return "spec.targets selects no namespace that receives copies"
    if is_own:
        return "spec.targets selects only the namespace of the source"
    return ""


def _missing_namespaces(rule: Rule, namespaces: Mapping[str, Namespace | None]) -> Iterator[str]:
    for name in sorted({*rule.spec.namespaces}):
        if name not in namespaces:
            yield f"source namespace {name} does not exist"
        elif (namespace := namespaces[name]) and not namespace.active:
            yield f"source namespace {name} is being deleted"


def _recreated_namespaces(rule: Rule, namespaces: Mapping[str, Namespace | None]) -> list[str]:
    """Return the source namespaces of a rule that were recreated since it last had all its sources.

    Between two runs this takes seconds, and then the new namespace is empty, as if somebody had withdrawn the sources.
    """
    recorded = {each.name: each.uid for each in rule.status.source_namespaces}
    now = ((name, namespaces.get(name)) for name in sorted(rule.source_namespaces) if name in recorded)
    return [name for name, each in now if each and each.active and each.uid not in ("", recorded[name])]


def _has_selected(rule: Rule) -> bool:
    """Whether an earlier run observed that the current generation of this rule selects a source and a target.

    The generations of a recreated rule start at 1 again. So a status that was restored with it does not count.
    """
    status = rule.status
    is_same = rule.head.uid == status.selected_uid
    return is_same and 0 < rule.head.generation == status.selected_generation


def blocked(finding: Finding, rule: str) -> Finding:
    """Return the finding of an orphan that is not deleted, because this rule may be mistaken."""
    return structs.replace(brakes.blocked(finding, f"not deleted: rule {rule} may be mistaken"), subjects=(rule,))
