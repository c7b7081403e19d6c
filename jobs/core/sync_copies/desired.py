"""What rules require: the sources that they select, the namespaces that they target, and the copies there. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec import structs

from jobs.core.sync_copies.bundles import merged
from jobs.core.sync_copies.kinds import KINDS, WHY_NO_COPY, Kind, select
from jobs.core.sync_copies.observed import NAME, OPT_IN, Namespace, Observed, Settings, Source
from jobs.core.sync_copies.rules import Rule, Targets
from jobs.core.sync_copies.selectors import LabelSelector, glob_matcher, is_glob, names_matching
from jobs.kit.data.contents import AnyContent, Content, Digested, WholeContent, fingerprint
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.reads import decode
from jobs.kit.values.resources import RULES
from jobs.kit.values.text import listed


class Candidate(NamedTuple):
    """A source, and a rule that selects it. `merged` are the sources that a rule merges into `source`."""

    rule: Rule
    source: ReducedObject
    merged: Sequence[ReducedObject] = ()

    @property
    def sources(self) -> Sequence[ReducedObject]:
        """The objects that are copied."""
        return self.merged or (self.source,)

    @property
    def origin(self) -> ObjectKey:
        """The key of the source; of merged sources, that of the rule."""
        kind = RULES.kind if self.rule.spec.merge else self.rule.kind.name
        return ObjectKey(kind, self.source.name, self.source.namespace)

    @property
    def stamped(self) -> str:
        """The origin as the stamp of copies names it."""
        return stamps.source(self.origin, self.rule.copy_kind.name)

    @property
    def own_namespace(self) -> str:
        """The namespace that gets no copy, because it has the source; empty if there is none."""
        return "" if self.rule.spec.merge or self.rule.hub else self.source.namespace


Selected = Mapping[tuple[str, str], Sequence[Candidate]]  # by rule type of the copies, and their name


class Candidates(NamedTuple):
    """The selected sources, those that are shadowed, and a finding for each source that is not copied.

    `names` are those of all sources of a rule; copies do not count.
    """

    selected: Selected
    shadowed: Selected
    findings: Sequence[Finding]
    names: Mapping[str, Collection[str]]

    def all(self) -> Iterator[Candidate]:
        """Yield all selected sources."""
        return chain.from_iterable(self.selected.values())


def by_rule(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return the findings by the names of the rules that they are about; empty if they are about none."""
    found: dict[str, list[Finding]] = {}
    for each in findings:
        for name in each.subjects or ("",):
            found.setdefault(name, []).append(each)
    return found


def candidates(observed: Observed, settings: Settings) -> Candidates:
    """Return the sources that rules select, by rule type and name of their copies.

    Those that are not copied are skipped (never copied), refused (not as the rule requires), unreadable, or shadowed by
    a source in a namespace that comes first in spec.namespaces. If that namespace could not be read, later ones are not
    used either.
    """
    confirmed = bool(settings.max_deletes)
    selected: dict[tuple[str, str], list[Candidate]] = {}
    shadowed: dict[tuple[str, str], list[Candidate]] = {}
    left: dict[tuple[ObjectKey, str], Finding] = {}
    names: dict[str, set[str]] = {}
    for rule in observed.rules:
        only = rule.spec.names
        queried = (each for query in rule.queries() for each in observed.sources.get(query, ()))
        sources = [each for each in queried if not only or name_of(each) in only]
        names[rule.name] = {name_of(each) for each in sources if not _is_copy(each)}
        if rule.spec.merge:
            if whole := merged(rule, sources, observed, confirmed=confirmed):
                selected.setdefault((rule.copy_type, rule.spec.target_name), []).append(Candidate(rule, *whole))
            sources = [each for each in sources if isinstance(each, Finding)]
        # Of one source namespace, sources are copied although others there could not be read.
        is_first = len(rule.source_namespaces) > 1 and not rule.spec.merge
        first = _first_namespaces(rule, sources, observed) if is_first else None
        for source in sources:
            name = rule.spec.target_name or name_of(source)
            if not isinstance(source, Finding):
                candidate = Candidate(rule, source)
                if first is None or source.namespace == first.get(name):
                    selected.setdefault((rule.copy_type, name), []).append(candidate)
                    continue
                if name not in first:
                    continue
                shadowed.setdefault((rule.copy_type, name), []).append(candidate)
                source = _shadowed(candidate, first[name])
            at = source.object, source.reason
            others = left.get(at, source).subjects
            left[at] = structs.replace(source, subjects=tuple(sorted({*others, rule.name})))
    return Candidates(selected, shadowed, list(left.values()), names)


def _first_namespaces(rule: Rule, found: Iterable[Source], observed: Observed) -> Mapping[str, str]:
    """Return the namespace whose sources a rule with several copies, by the name of the copies.

    It is the first one in spec.namespaces that has such a source, also if that cannot be copied now. None is known for
    a name that only namespaces after an unread one have.
    """
    sources = [each for each in found if not (isinstance(each, Finding) and each.code == "skipped")]
    unread = {query.namespace for query in rule.queries() if query not in observed.sources}
    first: dict[str, str] = {}
    for namespace in rule.source_namespaces:
        if namespace in unread:
            break
        for each in sources:
            if _namespace_of(each) == namespace:
                first.setdefault(rule.spec.target_name or name_of(each), namespace)
    return first


def _shadowed(candidate: Candidate, first: str) -> Finding:
    """Return the finding of a source that is not copied, because namespace `first` has one for the same copies."""
    rule = candidate.rule
    reason = (
        f"is not copied: rule {rule.name} selects a {rule.spec.rule_type} for the same copies in namespace {first}, "
        "which its spec.namespaces names first; rename one of them, or narrow the rule"
    )
    return Finding("shadowed", Severity.WARNING, candidate.origin, reason, subjects=(rule.name,))


def with_reasons(left: Sequence[Finding]) -> str:
    """Return the first sources that are not copied, each with the reason, for a status; empty if all are copies.

    A run creates copies after it read the sources. If a status named them, the next run would change it.
    """
    named = sorted((each for each in left if not _is_copy(each)), key=lambda each: each.object)
    return listed(named, text=lambda each: f"{each.object} ({each.reason})")


def _is_copy(source: Source) -> bool:
    """Whether an object that a rule selects is a copy, which is never a source. A run may create or delete it."""
    return isinstance(source, Finding) and source.reason == WHY_NO_COPY


def name_of(source: Source) -> str:
    """Return the name of a source."""
    return source.object.name if isinstance(source, Finding) else source.name


def _namespace_of(source: Source) -> str:
    return source.object.namespace if isinstance(source, Finding) else source.namespace


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
    def annotations(self) -> Mapping[str, str]:
        """The annotations of the object there."""
        return self.actual.header.annotations

    @property
    def stamped_rule(self) -> str:
        """The rule that the stamp of the object names, NAMESPACE/NAME; empty if it names none."""
        return self.annotations.get(stamps.RULE, "")

    @property
    def stamped_source(self) -> ObjectKey:
        """The source that the stamp of the object names."""
        return stamps.source_key(self.annotations.get(stamps.SOURCE, ""), self.key.kind)

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
                desired[claim] = _desired([claimants[number] for number in claim[1]], namespace)
            key, found = ObjectKey(kind.name, name, namespace), copies.get(namespace)
            found = observed.single_reads.get(key, found) if observed.single_reads else found
            place = Place(key, desired[claim], found)
            yield _kept(place, rivals, targets) if found and (rivals or len(place.desired) > 1) else place


def _kept(place: Place, rivals: Sequence[Candidate], targets: Mapping[str, Sequence[str]]) -> Place:
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
        if each.rule.stamp == rule and each.origin == source and place.key.namespace in targets[each.rule.name]
    ]
    if same or not shadowed:
        return place
    return place._replace(desired=(_copy_of(shadowed[0], place.key.namespace),), others=place.desired)


def _claims(claimants: Sequence[Candidate], targets: Mapping[str, Sequence[str]]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the claimants by target namespace."""
    claims: dict[str, tuple[int, ...]] = {}
    for number, candidate in enumerate(claimants):
        own = candidate.own_namespace
        for namespace in targets[candidate.rule.name]:
            if namespace != own:
                claims[namespace] = (*claims.get(namespace, ()), number)
    return claims


def _desired(candidates: Sequence[Candidate], namespace: str) -> tuple[Desired, ...]:
    """Return the desired copy of each source and content.

    If several rules require the same one, the stamp names the first one by name.
    """
    copies: dict[tuple[str, str, str], Desired] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.rule.name):
        desired = _copy_of(candidate, namespace)
        at = desired.origin.namespace, desired.origin.name, desired.annotations[stamps.FINGERPRINT]
        if at in copies:
            desired = copies[at]._replace(rules=copies[at].rules + desired.rules)
        copies[at] = desired
    return tuple(desired for _, desired in sorted(copies.items()))


def _copy_of(candidate: Candidate, namespace: str) -> Desired:
    rule, source, kind = candidate.rule, candidate.source, candidate.rule.copy_kind
    at, extra, name = source.header, rule.spec.metadata, candidate.stamped
    content = source.content or Content()
    if rule.moves_subjects and kind.in_target and not isinstance(content, Digested):
        content = kind.in_target(content, namespace)
    mark = fingerprint(content, source.uid)
    stamp = stamps.stamp(NAME, rule.namespace, rule.name, name, mark, rule.spec.orphans, rule.hub)
    copied = {key: at.labels[key] for key in extra.copy_labels if key in at.labels}
    labels = {key: value for key, value in copied.items() if not stamps.is_helm_label(key, value)}
    annotations = {key: at.annotations[key] for key in extra.copy_annotations if key in at.annotations}
    return Desired(
        kind,
        (rule.name,),
        name,
        candidate.origin,
        content,
        partial(select, rule.key_selection),
        content.field_sets(),
        {**labels, **extra.labels, **stamp.labels},
        {**annotations, **extra.annotations, **stamp.annotations},
        adopts=rule.spec.conflict == "Adopt",
    )


def targets_of_rules(rules: Iterable[Rule], namespaces: Iterable[Namespace]) -> Mapping[str, Sequence[str]]:
    """Return the target namespaces by rule, sorted; rules with the same targets share one list.

    Each distinct glob and selector is compared with all namespaces only once. The result for a namespace is that of
    `why_no_target`, which also has the reason.
    """
    by_name = {each.name: each for each in namespaces if each.active and not each.opted_out}
    names = sorted(by_name)
    not_system = [name for name in names if not by_name[name].is_system]

    @cache
    def matching(pattern: str, with_system: bool) -> Collection[str]:
        if not is_glob(pattern):
            return (by_name[pattern].name,) if pattern in by_name else ()  # the string that all places share
        return names_matching(pattern, names if with_system else not_system)

    @cache
    def labelled(selector: bytes) -> Collection[str]:
        matches = decode(selector, LabelSelector).matches
        return {name for name, each in by_name.items() if matches(each.labels)}

    @cache
    def selected(spec: bytes) -> Sequence[str]:
        targets, found = decode(spec, Targets), set[str]()
        for pattern in targets.include:
            # Only a literal name selects a system namespace, never a glob.
            found.update(matching(pattern, not is_glob(pattern)))
        for pattern in targets.exclude:
            found.difference_update(matching(pattern, True))
        if targets.namespace_selector.label_keys():
            found.intersection_update(labelled(msgspec.json.encode(targets.namespace_selector)))
        return sorted(found)

    return {rule.name: () if rule.is_elsewhere else selected(msgspec.json.encode(rule.spec.targets)) for rule in rules}


def why_no_target(targets: Targets, namespace: Namespace) -> tuple[str, str] | None:
    """Return the code and the text of the first reason why a namespace is not a target; None if it is one."""
    name = namespace.name
    if not namespace.active:
        return "terminating", f"namespace {name} is terminating"
    if namespace.opted_out:
        why = f'namespace {name} opted out by annotation {OPT_IN}: "{namespace.invalid_choice or "false"}"'
        otherwise = why_no_target(targets, structs.replace(namespace, opted_out=False))
        return "opted-out", f"{why}, and {otherwise[1]}" if otherwise else f"{why}; remove it to get copies"
    if terms := targets.namespace_selector.mismatches(namespace.labels):
        why = f"namespaceSelector does not match {name}: {listed(terms)}"
    elif namespace.is_system and name not in targets.include:
        why = f"include does not list {name}; no glob selects a kube-* namespace"
    elif not glob_matcher(targets.include).fullmatch(name):
        why = f"include does not match {name}: it is {listed(targets.include)}"
    elif excluded := [each for each in targets.exclude if glob_matcher([each]).fullmatch(name)]:
        why = f"exclude matches {name}: {excluded[0]}"
    else:
        return None
    return "not-a-target", f"spec.targets.{why}"
