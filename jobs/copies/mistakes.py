"""Rules that may be mistaken: because of one, no copy is deleted. Pure.

A typo in a rule looks like the wish to withdraw all its copies. What tells them apart is whether the rule, as it is
written now, ever selected anything: a rule that did and does no more follows its sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from jobs.copies.rules import Rule, RuleStatus
from jobs.copies.seen import Seen
from jobs.kit import stamps
from jobs.kit.cluster import InvalidObject
from jobs.kit.model import Brake, ExitCode, Finding, Severity
from jobs.kit.objects import NAMESPACES

_MOST_NAMED = 3


class Mistake(NamedTuple):
    """What may be wrong with a rule, by the code of its finding."""

    code: str
    rule: Rule
    reason: str

    def finding(self) -> Finding:
        """Return the finding about the rule."""
        reason = f"{self.reason}; no copy of this rule is deleted meanwhile"
        return Finding(self.code, Severity.WARNING, self.rule.head.key, reason, subjects=(self.rule.name,))


def mistakes(seen: Seen, targets: Mapping[str, Sequence[str]]) -> dict[str, Mistake]:
    """Return by name the rules that may be mistaken; `targets` are the namespaces that each selects.

    Of rules whose sources or copies could not be read nothing is said: then nothing is deleted anyway.
    """
    unread = {subject for failure in seen.failures for subject in failure.subjects}
    found = (_mistake(rule, targets[rule.name], seen) for rule in seen.rules if rule.name not in unread)
    return {each.rule.name: each for each in found if each}


def _mistake(rule: Rule, targets: Sequence[str], seen: Seen) -> Mistake | None:
    if problems := list(_missing_namespaces(rule, seen)):
        return Mistake("source-namespace-missing", rule, "; ".join(problems))
    if _has_selected(rule):
        return None
    sources = set(_namespaces_of_sources(rule, seen))
    if not sources:
        return Mistake("nothing-selected", rule, f"selects no {rule.spec.rule_type} in {_where(rule)}")
    if not targets:
        return Mistake("nothing-selected", rule, "spec.targets selects no namespace")
    if not any(target != source for source in sources for target in targets):
        return Mistake("nothing-selected", rule, "spec.targets selects no namespace but that of the source")
    return None


def _missing_namespaces(rule: Rule, seen: Seen) -> Iterator[str]:
    """Yield what is wrong with the source namespaces that a rule names; one that cannot be decoded is there."""
    active = {namespace.name: namespace.active for namespace in seen.namespaces}
    undecoded = {failure.object.name for failure in seen.failures if failure.object.kind == NAMESPACES.kind}
    for name in sorted({*rule.spec.namespaces} - undecoded):
        if not active.get(name):
            yield f"source namespace {name} {'is being deleted' if name in active else 'does not exist'}"


def _has_selected(rule: Rule) -> bool:
    """Whether an earlier run saw the rule, as it is now, select a source and a target."""
    return 0 < rule.head.generation == rule.head.told(RuleStatus).selected_generation


def _namespaces_of_sources(rule: Rule, seen: Seen) -> Iterator[str]:
    """Yield where the rule selects objects, also such as are never copied or cannot be decoded, but no copies."""
    for source in (each for query in rule.queries() for each in seen.sources.get(query, ())):
        if isinstance(source, InvalidObject):
            yield source.key.namespace
        elif not stamps.is_stamped(source.header.labels):
            yield source.namespace


def _where(rule: Rule) -> str:
    namespaces = rule.spec.namespaces or (rule.namespace,)
    more = f" and {len(namespaces) - _MOST_NAMED} more" if len(namespaces) > _MOST_NAMED else ""
    return f"namespace{'s' * (len(namespaces) > 1)} {', '.join(namespaces[:_MOST_NAMED])}{more}"


def kept(finding: Finding) -> Finding:
    """Return the finding of an orphan of a rule that may be mistaken: the copy stays."""
    reason = f"{finding.reason}; stays, because the rule may be mistaken"
    return structs.replace(finding, fix=None, reason=reason, exit_code=ExitCode.BRAKE)


def brake(found: Mapping[str, Mistake], kept_by_rule: Mapping[str, int], deletes: int) -> Brake:
    """Return what is said of copies that stay; `deletes` is how many a run must be allowed to delete them all."""
    named = [f"{rule} ({found[rule].reason})" for rule in sorted(kept_by_rule)]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    number = sum(kept_by_rule.values())
    copies = "1 copy" if number == 1 else f"{number} copies"
    held = (
        f"correct or delete rules that may be mistaken: {', '.join(named[:_MOST_NAMED])}{more}."
        f" Because of them {copies} would be deleted, and none is"
    )
    return Brake(held, "--max-deletes", str(deletes))
