"""Desired copies: what rules, sources and namespaces require, place by place. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from jobs.core.sync_copies.keys import select
from jobs.core.sync_copies.kinds import KINDS, Kind
from jobs.core.sync_copies.observed import NAME, Observed
from jobs.core.sync_copies.sources import Candidate, Selected
from jobs.kit.data.contents import AnyContent, Content, Digested, WholeContent
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import ObjectKey


class Desired(NamedTuple):
    """A desired copy: the same in each target namespace, unless its subjects move.

    `rules` are the names of all rules that require it. The stamp names the first one. `select` returns the content of a
    copy from that of the source.
    """

    kind: Kind
    rules: tuple[str, ...]
    source: str
    origin: ObjectKey
    content: AnyContent
    select: Callable[[WholeContent], WholeContent]
    field_sets: tuple[bytes, ...]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    adopts: bool


class Place(NamedTuple):
    """Where a copy exists or is desired.

    With more than one `desired`, several sources claim the place. With none, no rule requires a copy there. `found` is
    the object there, as it was read last. If that is a copy of one of several sources, it stays one: only this copy is
    `desired`, and all that claim the place instead are `others`.
    """

    key: ObjectKey
    desired: tuple[Desired, ...]
    found: ReducedObject | ApiError | None
    others: tuple[Desired, ...] = ()

    @property
    def actual(self) -> ReducedObject:
        """The object there, of a place where one was read."""
        assert isinstance(self.found, ReducedObject)
        return self.found

    @property
    def stamped_rule(self) -> str:
        """The rule that the stamp of the object names, NAMESPACE/NAME; empty if it names none."""
        return self.actual.header.annotations.get(stamps.RULE, "")

    @property
    def stamped_source(self) -> ObjectKey:
        """The source that the stamp of the object names."""
        namespace, _, name = self.actual.header.annotations.get(stamps.SOURCE, "").partition("/")
        return ObjectKey(self.key.kind, name, namespace)

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of all rules that require a copy here, sorted."""
        if len(self.desired) == 1 and not self.others:
            return self.desired[0].rules  # sorted too; as almost always
        return tuple(sorted({rule for desired in (*self.desired, *self.others) for rule in desired.rules}))


def places(
    observed: Observed, selected: Selected, targets: Mapping[str, Sequence[str]], shadowed: Selected
) -> Iterator[Place]:
    """Yield each place in an active namespace where a copy exists or is desired.

    A copy of a `shadowed` source stays one.
    """
    active = {namespace.name for namespace in observed.namespaces if namespace.active}
    existing = {(rule_type, name) for rule_type, copies in observed.copies.items() for name in copies}
    for rule_type, name in sorted(selected.keys() | existing):
        kind = KINDS[rule_type]
        claimants = selected.get((rule_type, name), ())
        copies = observed.copies.get(rule_type, {}).get(name, {})
        claims = _claims(claimants, targets)
        # Most places have the same claims, so the desired copy is computed once and shared.
        desired: dict[tuple[str, tuple[int, ...]], tuple[Desired, ...]] = {}
        in_target = any(each.rule.moves_subjects for each in claimants)
        rivals = shadowed.get((rule_type, name), ())
        for namespace in sorted(active & (claims.keys() | copies.keys())):
            claim = namespace if in_target else "", claims.get(namespace, ())
            if claim not in desired:
                desired[claim] = _desired(kind, [claimants[number] for number in claim[1]], namespace)
            key, found = ObjectKey(kind.name, name, namespace), copies.get(namespace)
            found = observed.single_reads.get(key, found) if observed.single_reads else found
            place = Place(key, desired[claim], found)
            yield _kept(place, kind, rivals, targets) if found and (rivals or len(place.desired) > 1) else place


def _kept(place: Place, kind: Kind, rivals: Sequence[Candidate], targets: Mapping[str, Sequence[str]]) -> Place:
    """Return the place with the desired copy of the source that the copy there has, if a rule still selects that.

    Otherwise whoever creates a source of the same name elsewhere would stop the updates of this copy.
    """
    if not isinstance(place.found, ReducedObject) or not place.desired:
        return place
    rule, source = place.stamped_rule, place.stamped_source
    same = [each for each in place.desired if each.origin == source]
    if len(place.desired) > 1 and same:
        of_rule = [each for each in same if rule.rpartition("/")[2] in each.rules] or same
        return place._replace(desired=(of_rule[0],), others=place.desired) if len(of_rule) == 1 else place
    shadowed = [
        each
        for each in rivals
        if f"{each.rule.namespace}/{each.rule.name}" == rule
        and (each.source.namespace, each.source.name) == (source.namespace, source.name)
        and place.key.namespace in targets[each.rule.name]
    ]
    if same or not shadowed:
        return place
    return place._replace(desired=(_copy_of(kind, shadowed[0], place.key.namespace),), others=place.desired)


def _claims(claimants: Sequence[Candidate], targets: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the claimants by target namespace."""
    claims: dict[str, tuple[int, ...]] = {}
    for number, (rule, source) in enumerate(claimants):
        for namespace in targets[rule.name]:
            if namespace != source.namespace:
                claims[namespace] = (*claims.get(namespace, ()), number)
    return claims


def _desired(kind: Kind, candidates: Sequence[Candidate], namespace: str) -> tuple[Desired, ...]:
    """Return the desired copy of each source and content.

    If several rules require the same one, the stamp names the first one by name.
    """
    copies: dict[tuple[str, str, str], list[Desired]] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.rule.name):
        desired = _copy_of(kind, candidate, namespace)
        at = candidate.source.namespace, candidate.source.name, desired.annotations[stamps.FINGERPRINT]
        copies.setdefault(at, []).append(desired)
    return tuple(
        same[0]._replace(rules=tuple(rule for each in same for rule in each.rules))
        for _, same in sorted(copies.items())
    )


def _copy_of(kind: Kind, candidate: Candidate, namespace: str) -> Desired:
    rule, source = candidate
    at, extra, name = source.header, rule.spec.metadata, f"{source.namespace}/{source.name}"
    content = source.content or Content()
    if rule.moves_subjects and not isinstance(content, Digested):
        content = kind.in_target(content, namespace)
    stamp = stamps.stamp(NAME, rule.namespace, rule.name, name, content.fingerprint(source.uid), rule.spec.orphans)
    copied = {key: at.labels[key] for key in extra.copy_labels if key in at.labels}
    labels = {key: value for key, value in copied.items() if not stamps.is_helm_label(key, value)}
    annotations = {key: at.annotations[key] for key in extra.copy_annotations if key in at.annotations}
    return Desired(
        kind,
        (rule.name,),
        name,
        ObjectKey(kind.name, source.name, source.namespace),
        content,
        partial(select, rule.key_selection, kind),
        content.field_sets(),
        {**labels, **extra.labels, **stamp.labels},
        {**annotations, **extra.annotations, **stamp.annotations},
        adopts=rule.spec.conflict == "Adopt",
    )
