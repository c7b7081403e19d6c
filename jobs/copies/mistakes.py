"""Rules that may be mistaken: because of one, no copy is deleted. Pure.

A typo in a rule looks like the wish to withdraw all its copies. What tells them apart is whether the rule, as it is
written now, ever selected anything: a rule that did and does no more follows its sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from jobs.copies.desired import Candidate
from jobs.copies.observed import KINDS, Observed
from jobs.copies.rules import Rule, RuleStatus
from jobs.kit.cluster import InvalidObject
from jobs.kit.model import Brake, ExitCode, Finding, ObjectKey, Severity
from jobs.kit.objects import NAMESPACES

SOURCE_NAMESPACE_MISSING, NOTHING_SELECTED = "source-namespace-missing", "nothing-selected"
_MOST_NAMED = 3


class Mistake(NamedTuple):
    """What may be wrong with a rule, by the code of its finding, and which sources and targets it selects."""

    code: str
    rule: Rule
    reason: str
    sources: frozenset[str]
    targets: frozenset[str]

    def finding(self) -> Finding:
        """Return the finding about the rule."""
        reason = f"{self.reason}; no copy of this rule is deleted meanwhile"
        return Finding(self.code, Severity.WARNING, self.rule.head.key, reason, subjects=(self.rule.name,))

    def may_select(self, copy: ObjectKey, source: str) -> bool:
        """Whether the rule may select this copy of `source`, NAMESPACE/NAME, once it is corrected.

        What it selects correctly must fit: its sources, or else where it looks for them, and its targets.
        """
        namespace = source.partition("/")[0]
        looks_there = self.code == SOURCE_NAMESPACE_MISSING or namespace in _source_namespaces(self.rule)
        fits_source = source in self.sources if self.sources else looks_there
        fits_target = not (self.targets - {namespace}) or copy.namespace in self.targets
        return KINDS[self.rule.spec.rule_type].kind == copy.kind and fits_source and fits_target


def mistakes(
    observed: Observed, wanted: Mapping[tuple[str, str], Sequence[Candidate]], targets: Mapping[str, Sequence[str]]
) -> dict[str, Mistake]:
    """Return by name the rules that may be mistaken; `wanted` are their sources and `targets` their namespaces.

    Of rules whose sources or copies could not be read nothing is said: then nothing is deleted anyway.
    """
    unread = {subject for failure in observed.failures for subject in failure.subjects}
    closed = {namespace.name for namespace in observed.namespaces if namespace.is_closed}
    sources: dict[str, set[str]] = {}
    for candidate in (each for group in wanted.values() for each in group):
        source = candidate.source
        sources.setdefault(candidate.rule.name, set()).add(f"{source.namespace}/{source.name}")
    found = (
        _mistake(rule, frozenset(sources.get(rule.name, ())), frozenset(targets[rule.name]) - closed, observed)
        for rule in observed.rules
        if rule.name not in unread
    )
    return {each.rule.name: each for each in found if each}


def _mistake(rule: Rule, sources: frozenset[str], targets: frozenset[str], observed: Observed) -> Mistake | None:
    if problems := list(_missing_namespaces(rule, observed)):
        return Mistake(SOURCE_NAMESPACE_MISSING, rule, "; ".join(problems), sources, targets)
    if _has_selected(rule) or _is_uncertain(rule, observed):
        return None
    reason = ""
    if not sources:
        reason = f"selects no {rule.spec.rule_type} to copy in {_where(rule)}"
    elif not targets:
        reason = "spec.targets selects no namespace that receives copies"
    elif targets == {source.partition("/")[0] for source in sources} and len(targets) == 1:
        reason = "spec.targets selects no namespace but that of the source"
    return Mistake(NOTHING_SELECTED, rule, reason, sources, targets) if reason else None


def _missing_namespaces(rule: Rule, observed: Observed) -> Iterator[str]:
    """Yield what is wrong with the source namespaces that a rule names; one that cannot be decoded is there."""
    active = {namespace.name: namespace.active for namespace in observed.namespaces}
    undecoded = {failure.object.name for failure in observed.failures if failure.object.kind == NAMESPACES.kind}
    for name in sorted({*rule.spec.namespaces} - undecoded):
        if not active.get(name):
            yield f"source namespace {name} {'is being deleted' if name in active else 'does not exist'}"


def _has_selected(rule: Rule) -> bool:
    """Whether an earlier run saw this rule, as it is now, select a source and a target.

    A rule that was recreated counts its generations anew, so a status that was restored with it is of another one.
    """
    status = rule.head.status_as(RuleStatus)
    is_same = rule.head.uid == status.selected_uid
    return is_same and 0 < rule.head.generation == status.selected_generation


def _is_uncertain(rule: Rule, observed: Observed) -> bool:
    """Whether a source cannot be decoded, so that nobody knows what the rule selects."""
    return any(isinstance(each, InvalidObject) for query in rule.queries() for each in observed.sources.get(query, ()))


def _source_namespaces(rule: Rule) -> Sequence[str]:
    return rule.spec.namespaces or (rule.namespace,)


def _where(rule: Rule) -> str:
    namespaces = _source_namespaces(rule)
    return f"namespace{'s' * (len(namespaces) > 1)} {_named(namespaces)}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def kept(finding: Finding, rule: str) -> Finding:
    """Return the finding of an orphan that stays, because this rule may be mistaken."""
    reason = f"{finding.reason}; stays, because rule {rule} may be mistaken"
    return structs.replace(finding, fix=None, reason=reason, exit_code=ExitCode.BRAKE, subjects=(rule,))


def brake(found: Mapping[str, Mistake], kept_by_rule: Mapping[str, int], deletes: int) -> Brake:
    """Return what is said of copies that stay; `deletes` is how many a run must be allowed to delete them all."""
    named = [f"{rule} ({found[rule].reason})" for rule in sorted(kept_by_rule)]
    number = sum(kept_by_rule.values())
    copies = "1 copy" if number == 1 else f"{number} copies"
    held = (
        f"correct or delete rules that may be mistaken: {_named(named)}."
        f" Because of them {copies} would be deleted, and none is"
    )
    return Brake(held, "--max-deletes", str(deletes))
