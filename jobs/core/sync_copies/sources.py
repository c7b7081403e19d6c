"""Sources: those that rules select, those that are never copied, and those that cannot be copied as required. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from jobs.core.sync_copies.kinds import KINDS, WHY_NO_COPY
from jobs.core.sync_copies.observed import Observed, RefusedSource, Source
from jobs.core.sync_copies.rules import Rule
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.findings import unreadable
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.reads import InvalidObject
from jobs.kit.values.text import listed

_MOST_NAMED = 3


class Candidate(NamedTuple):
    """A source, and a rule that selects it."""

    rule: Rule
    source: ReducedObject


Selected = Mapping[tuple[str, str], Sequence[Candidate]]  # by rule type and name of the copies


class Candidates(NamedTuple):
    """The selected sources, those that are shadowed, and a finding for each source that is not copied."""

    selected: Selected
    shadowed: Selected
    findings: Sequence[Finding]

    def left(self) -> Mapping[str, Sequence[Finding]]:
        """Return the findings by rule."""
        found: dict[str, list[Finding]] = {}
        for each in self.findings:
            for name in each.subjects:
                found.setdefault(name, []).append(each)
        return found


def candidates(observed: Observed) -> Candidates:
    """Return the sources that rules select, by rule type and name of their copies.

    Those that are not copied are skipped (never copied), refused (not as the rule requires), unreadable, or shadowed by
    a source in a namespace that comes first in spec.namespaces. If that namespace could not be read, later ones are not
    used either.
    """
    selected: dict[tuple[str, str], list[Candidate]] = {}
    shadowed: dict[tuple[str, str], list[Candidate]] = {}
    left: dict[tuple[ObjectKey, str], Finding] = {}
    for rule in observed.rules:
        sources = list(sources_of(rule, observed))
        first = _first_namespaces(rule, sources, observed) if len(rule.source_namespaces) > 1 else None
        for source in sources:
            name = rule.spec.target_name or name_of(source)
            found = finding(rule.spec.rule_type, source)
            if found is None:
                assert isinstance(source, ReducedObject)
                if first is None or source.namespace == first.get(name):
                    selected.setdefault((rule.spec.rule_type, name), []).append(Candidate(rule, source))
                    continue
                if name not in first:
                    continue
                shadowed.setdefault((rule.spec.rule_type, name), []).append(Candidate(rule, source))
                found = _shadowed(rule, source, first[name])
            at = found.object, found.reason
            others = left.get(at, found).subjects
            left[at] = structs.replace(found, subjects=tuple(sorted({*others, rule.name})))
    return Candidates(selected, shadowed, list(left.values()))


def _first_namespaces(rule: Rule, found: Iterable[Source], observed: Observed) -> Mapping[str, str]:
    """Return the namespace whose sources a rule with several copies, by the name of the copies.

    It is the first one in spec.namespaces that has such a source, also if that cannot be copied now. None is known for
    a name that only namespaces after an unread one have.
    """
    sources = [each for each in found if not _is_never_copied(rule, each)]
    unread = {query.namespace for query in rule.queries() if query not in observed.sources}
    first: dict[str, str] = {}
    for namespace in rule.source_namespaces:
        if namespace in unread:
            break
        for each in sources:
            if namespace_of(each) == namespace:
                first.setdefault(rule.spec.target_name or name_of(each), namespace)
    return first


def _shadowed(rule: Rule, source: ReducedObject, first: str) -> Finding:
    """Return the finding of a source that is not copied, because namespace `first` has one for the same copies."""
    key = ObjectKey(KINDS[rule.spec.rule_type].name, source.name, source.namespace)
    reason = (
        f"is not copied: rule {rule.name} selects a {rule.spec.rule_type} for the same copies in namespace {first}, "
        "which its spec.namespaces names first; rename one of them, or narrow the rule"
    )
    return Finding("shadowed", Severity.WARNING, key, reason, subjects=(rule.name,))


def with_reasons(left: Sequence[Finding]) -> str:
    """Return the first sources that are not copied, each with the reason, for a status; empty if all are copies.

    A run creates copies after it read the sources. If a status named them, the next run would change it.
    """
    named = sorted((each for each in left if each.reason != WHY_NO_COPY), key=lambda each: each.object)
    return listed(named, _MOST_NAMED, lambda each: f"{each.object} ({each.reason})")


def sources_of(rule: Rule, observed: Observed) -> Iterator[Source]:
    """Yield what was read of the sources that a rule selects, also those that are not copied."""
    names = rule.spec.names
    for query in rule.queries():
        yield from (each for each in observed.sources.get(query, ()) if not names or name_of(each) in names)


def _is_never_copied(rule: Rule, source: Source) -> bool:
    """Whether an object that a rule selects is one that is never copied, such as a bootstrap token."""
    return isinstance(source, ReducedObject) and bool(KINDS[rule.spec.rule_type].why_never_copied(source))


def is_copy(source: Source) -> bool:
    """Whether an object that a rule selects is a copy, which is never a source. A run may create or delete it."""
    return isinstance(source, ReducedObject) and stamps.is_stamped(source.header.labels)


def name_of(source: Source) -> str:
    """Return the name of a source."""
    return source.name if isinstance(source, ReducedObject) else source.key.name


def namespace_of(source: Source) -> str:
    """Return the namespace of a source."""
    return source.namespace if isinstance(source, ReducedObject) else source.key.namespace


def finding(rule_type: str, source: Source) -> Finding | None:
    """Return the finding of a source that is not copied, or None."""
    if isinstance(source, InvalidObject):
        return unreadable(source.key, source.error)
    if isinstance(source, RefusedSource):
        return Finding("refused", Severity.WARNING, source.key, source.reason)
    kind = KINDS[rule_type]
    key, why = ObjectKey(kind.name, source.name, source.namespace), kind.why_never_copied(source)
    return Finding("skipped", Severity.INFO, key, why) if why else None
