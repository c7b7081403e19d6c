"""sync-copies: labelled ConfigMaps and Secrets, copied to every namespace that a CopyratorRule names.

Desired copies are worked out over all rules and compared with what a metadata-only list shows of the copies that
exist: each carries a fingerprint of what was written, and managedFields tell whether somebody changed it since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

import click
import msgspec
from msgspec import Struct

from jobs.copyrator_rules import RULES, Rule, RuleObject, SourceQuery, Targets, parse_rule, rules_from_files
from jobs.kit import options, stamps
from jobs.kit.apply import DryRun
from jobs.kit.cluster import Cluster, whole
from jobs.kit.connect import Connection
from jobs.kit.diff import changes
from jobs.kit.errors import ApiError, ConfigurationError
from jobs.kit.manifests import Manifest
from jobs.kit.model import Action, Change, ExitCode, Finding, Fix, Need, ObjectKey, Plan, Severity
from jobs.kit.objects import (
    CONFIGMAPS,
    NAMESPACES,
    SECRETS,
    Content,
    DataObject,
    Header,
    Metadata,
    PartialObject,
    Resource,
    header,
)
from jobs.kit.runner import Document, Job, run
from jobs.kit.selectors import glob_matcher

NAME = "sync-copies"
KINDS: Mapping[str, Resource] = {"configmap": CONFIGMAPS, "secret": SECRETS}
OPT_OUT = "kubechores.dev/copies"

# Each belongs to one namespace or one tool: a copy of it is of no use, or does harm.
_NEVER_COPIED = {
    "kubernetes.io/service-account-token": "service-account tokens are never copied",
    "helm.sh/release.v1": "Helm releases are never copied",
}
_ROOT_CA = "kube-root-ca.crt"
_MOST_FIELDS_NAMED = 4


# --- settings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What one run of this job is told. `rules` are those of files; None means those of the cluster."""

    namespace: str
    rule_name: str | None = None
    rules: tuple[Rule, ...] | None = None
    verify_content: bool = False
    dry_run: bool = False
    diff: bool = False
    verbose: bool = False


def settings(
    connection: Connection,
    run_options: options.RunOptions,
    namespace: str | None = None,
    rule_name: str | None = None,
    filenames: Sequence[str] = (),
    verify: str = "metadata",
) -> Settings:
    """Return the settings.

    Raises:
        ConfigurationError: with all problems of all rules in files.
    """
    namespace = namespace or connection.namespace
    rules = rules_from_files(filenames, namespace, rule_name) if filenames else None
    return Settings(
        namespace,
        rule_name,
        rules,
        verify_content=verify == "content",
        dry_run=run_options.dry_run is not DryRun.NONE,
        diff=run_options.diff,
        verbose=run_options.verbose,
    )


# --- observe ----------------------------------------------------------------------------------------------------------


class Namespace(Struct, frozen=True):
    """A namespace as far as it decides about copies."""

    name: str
    labels: Mapping[str, str]
    active: bool
    opted_out: bool


class Object(Struct, frozen=True):
    """A source, or an object at the place of a copy. `content` is None where only metadata was read."""

    header: Header
    content: Content | None = None


class _NamespaceStatus(Struct):
    phase: str = ""


class _NamespaceObject(Struct):
    metadata: Metadata
    status: _NamespaceStatus = msgspec.field(default_factory=_NamespaceStatus)


Copies = Mapping[str, Mapping[str, Object]]  # by name, then by namespace: all copies of a source share one name


@dataclass(frozen=True)
class Seen:
    """What was read. A type missing in `copies`, or a query missing in `sources`, could not be read: see `failures`."""

    rules: tuple[Rule, ...]
    namespaces: tuple[Namespace, ...]
    sources: Mapping[SourceQuery, tuple[Object, ...]]
    copies: Mapping[str, Copies]
    failures: tuple[Finding, ...] = ()
    documents: Mapping[Need, Document] = field(default_factory=dict)

    def looked_up(self, documents: Mapping[Need, Document]) -> Seen:
        """Return the same, knowing `documents` too; a later reading of an object replaces an earlier one."""
        return replace(self, documents={**self.documents, **documents})


def observe(cluster: Cluster, settings: Settings) -> Seen:
    """Read copies, then rules, namespaces, sources: what an overlapping run copies meanwhile is never an orphan then.

    Raises:
        ConfigurationError: the CRD is missing, or the rule that is asked for.
        ApiError: rules or namespaces cannot be read, without which nothing can be said.
    """
    failures: list[Finding] = []
    # Which types are worth looking at is known from the rules alone, so these are read once more before the copies.
    types = sorted({rule.spec.rule_type for rule in _rules(cluster, settings, [])})
    copies: dict[str, Copies] = {}
    denied: dict[str, ApiError] = {}
    for rule_type in types:
        try:
            copies[rule_type] = whole(lambda rule_type=rule_type: _copies(cluster, rule_type, settings))  # type: ignore[misc]
        except ApiError as error:
            denied[rule_type] = error
    rules = _rules(cluster, settings, failures)
    namespaces = whole(lambda: _namespaces(cluster))
    sources: dict[SourceQuery, tuple[Object, ...]] = {}
    for query in sorted({query for rule in rules for query in rule.queries() if query.rule_type in copies}):
        try:
            sources[query] = whole(lambda query=query: _sources(cluster, query))  # type: ignore[misc]
        except ApiError as error:
            asking = [rule for rule in rules if query in rule.queries()]
            failures += [_unreadable(rule, f"its sources in namespace {query.namespace}", error) for rule in asking]
    for rule in rules:
        if rule.spec.rule_type in denied:
            failures.append(_unreadable(rule, "its copies", denied[rule.spec.rule_type]))
    return Seen(rules, namespaces, sources, copies, tuple(failures))


def _rules(cluster: Cluster, settings: Settings, failures: list[Finding]) -> tuple[Rule, ...]:
    if settings.rules is not None:
        return settings.rules
    try:
        objects = whole(lambda: [o for p in cluster.pages(RULES, RuleObject, namespace=settings.namespace) for o in p])
    except ApiError as error:
        if error.status == 404:
            raise ConfigurationError(
                f"the API server does not know {RULES.plural}.kubechores.dev: install the CRDs with "
                "'chores install-crds' or 'kubectl apply -k cronjobs/crds', or name rules with -f"
            ) from error
        raise
    rules: list[Rule] = []
    for each in objects:
        rule = parse_rule(settings.namespace, each.metadata.name, bytes(each.spec))
        if isinstance(rule, Rule):
            rules.append(rule)
        else:
            key = ObjectKey(RULES.kind, each.metadata.name, settings.namespace)
            failures.append(_failure("invalid", key, "; ".join(rule), ExitCode.REFUSED))
    names = [each.metadata.name for each in objects]
    if settings.rule_name and settings.rule_name not in names:
        listed = ", ".join(sorted(names)) or "none"
        raise ConfigurationError(
            f"no {RULES.kind} {settings.rule_name} in namespace {settings.namespace}; it has {listed}"
        )
    return tuple(sorted(rules, key=lambda rule: rule.name))


def _copies(cluster: Cluster, rule_type: str, settings: Settings) -> Copies:
    selector = stamps.selector(NAME, settings.namespace)
    item: type[DataObject] | type[PartialObject] = DataObject if settings.verify_content else PartialObject
    found: dict[str, dict[str, Object]] = {}
    for page in cluster.pages(KINDS[rule_type], item, selector=selector, metadata_only=not settings.verify_content):
        for each in page:
            read = _object(each)
            found.setdefault(read.header.name, {})[read.header.namespace] = read
    return found


def _namespaces(cluster: Cluster) -> tuple[Namespace, ...]:
    found = []
    for page in cluster.pages(NAMESPACES, _NamespaceObject):
        for each in page:
            read = header(each.metadata, stamps.MANAGER)
            active = each.status.phase == "Active" and not read.terminating
            opted_out = read.annotations.get(OPT_OUT, "").lower() == "false"
            found.append(Namespace(read.name, read.labels, active, opted_out))
    return tuple(sorted(found, key=lambda namespace: namespace.name))


def _sources(cluster: Cluster, query: SourceQuery) -> tuple[Object, ...]:
    pages = cluster.pages(KINDS[query.rule_type], DataObject, namespace=query.namespace, selector=query.selector)
    found = [_object(each) for page in pages for each in page]
    return tuple(sorted(found, key=lambda source: source.header.name))


def _object(read: DataObject | PartialObject) -> Object:
    content = read.content if isinstance(read, DataObject) else None
    return Object(header(read.metadata, stamps.MANAGER), content)


def _unreadable(rule: Rule, what: str, error: ApiError) -> Finding:
    remedy = "; the manifests in cronjobs/ hold the rights that this job needs" if error.is_permission else ""
    return _failure("unreadable", rule.key, f"{what} cannot be read: {error.message}{remedy}", error.exit_code)


def _failure(code: str, key: ObjectKey, reason: str, exit_code: ExitCode) -> Finding:
    return Finding(code, Severity.ERROR, key, reason, subjects=(key.name,), exit_code=exit_code)


# --- plan -------------------------------------------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A source, and a rule that wants it copied."""

    rule: Rule
    source: Object


class Desired(NamedTuple):
    """What a copy should be, in whichever namespace; `rules` are the names of all that want it."""

    resource: Resource
    rules: tuple[str, ...]
    source: str
    content: Content
    fields: frozenset[str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Place(NamedTuple):
    """Where a copy is or should be. More than one `desired`: different sources claim it; none: no rule wants it."""

    key: ObjectKey
    desired: tuple[Desired, ...]
    copy: Object | None


def plan(seen: Seen, settings: Settings, now: datetime) -> Plan:
    """Compare desired and actual copies, place by place: the same input gives the same findings in the same order."""
    wanted, skipped = _candidates(seen)
    findings = [*seen.failures, *skipped]
    needs: list[Need] = []
    unchanged = 0
    for place in _places(seen, wanted):
        if not _is_asked_for(place, seen, settings):
            continue
        verdict = _judge(place, seen, settings)
        if isinstance(verdict, Need):
            needs.append(verdict)
        elif verdict is not None:
            findings.append(verdict)
        else:
            unchanged += 1
            if settings.verbose:
                findings.append(_unchanged(place))
    shown = [finding for finding in findings if finding.severity is not Severity.INFO or settings.verbose]
    shown.sort(key=lambda finding: (finding.object, finding.code))
    note = "" if seen.rules or seen.failures else f"no {RULES.kind} in namespace {settings.namespace}"
    return Plan(tuple(shown), unchanged, tuple(sorted(needs)), _facts(seen, wanted), note)


def _candidates(seen: Seen) -> tuple[dict[tuple[str, str], list[Candidate]], list[Finding]]:
    """Return by type and name what rules want copied, and apart the sources that are never copied."""
    wanted: dict[tuple[str, str], list[Candidate]] = {}
    skipped: dict[ObjectKey, Finding] = {}
    for rule in seen.rules:
        for query in rule.queries():
            for source in seen.sources.get(query, ()):
                why_not = _why_no_source(source)
                if why_not:
                    key = ObjectKey(KINDS[query.rule_type].kind, source.header.name, source.header.namespace)
                    skipped[key] = Finding("skipped", Severity.INFO, key, why_not, subjects=(rule.name,))
                else:
                    wanted.setdefault((query.rule_type, source.header.name), []).append(Candidate(rule, source))
    return wanted, list(skipped.values())


def _why_no_source(source: Object) -> str:
    if stamps.is_stamped(source.header.labels):
        return "was made by kube-chores: a copy is never a source"
    if source.header.name == _ROOT_CA:
        return "every namespace has its own kube-root-ca.crt"
    return _NEVER_COPIED.get(source.content.type, "") if source.content else ""


def _places(seen: Seen, wanted: Mapping[tuple[str, str], Sequence[Candidate]]) -> Iterator[Place]:
    """Yield each place in an active namespace where a copy is or should be."""
    targets = _targets(seen)
    active = {namespace.name for namespace in seen.namespaces if namespace.active}
    existing = {(rule_type, name) for rule_type, copies in seen.copies.items() for name in copies}
    for rule_type, name in sorted(wanted.keys() | existing):
        candidates = wanted.get((rule_type, name), ())
        copies = seen.copies.get(rule_type, {}).get(name, {})
        claims: dict[str, tuple[int, ...]] = {}
        for number, candidate in enumerate(candidates):
            for namespace in targets[candidate.rule.name]:
                if namespace != candidate.source.header.namespace:
                    claims[namespace] = (*claims.get(namespace, ()), number)
        # Most places are claimed alike, so what they should hold is worked out once and shared.
        desired: dict[tuple[int, ...], tuple[Desired, ...]] = {}
        for namespace in sorted(active & (claims.keys() | copies.keys())):
            claim = claims.get(namespace, ())
            if claim not in desired:
                desired[claim] = _desired(rule_type, [candidates[number] for number in claim])
            yield Place(ObjectKey(KINDS[rule_type].kind, name, namespace), desired[claim], copies.get(namespace))


def _targets(seen: Seen) -> Mapping[str, Sequence[str]]:
    """Return by rule the namespaces that it copies to; rules with the same targets share one list."""
    by_spec: dict[bytes, list[str]] = {}
    found: dict[str, Sequence[str]] = {}
    for rule in seen.rules:
        spec = msgspec.json.encode(rule.spec.targets)
        if spec not in by_spec:
            by_spec[spec] = [namespace.name for namespace in _receivers(rule.spec.targets, seen.namespaces)]
        found[rule.name] = by_spec[spec]
    return found


def _receivers(targets: Targets, namespaces: Sequence[Namespace]) -> Iterator[Namespace]:
    included, excluded = glob_matcher(targets.include), glob_matcher(targets.exclude)
    for namespace in namespaces:
        if not namespace.active or namespace.opted_out or not targets.namespace_selector.matches(namespace.labels):
            continue
        # System namespaces are reached by their name alone, never by a glob.
        hidden = namespace.name.startswith("kube-") and namespace.name not in targets.include
        if not hidden and included.fullmatch(namespace.name) and not excluded.fullmatch(namespace.name):
            yield namespace


def _desired(rule_type: str, candidates: Sequence[Candidate]) -> tuple[Desired, ...]:
    """Return what the candidates want, one for each source; the first rule by name stamps what several want."""
    by_source: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.rule.name):
        by_source.setdefault(candidate.source.header.namespace, []).append(candidate)
    return tuple(_copy_of(rule_type, same) for _, same in sorted(by_source.items()))


def _copy_of(rule_type: str, candidates: Sequence[Candidate]) -> Desired:
    rule, source = candidates[0]
    content, at, extra = source.content or Content(), source.header, rule.spec.metadata
    name = f"{at.namespace}/{at.name}"
    stamp = stamps.stamp(NAME, rule.namespace, rule.name, name, stamps.fingerprint(content, at.uid))
    labels = {key: at.labels[key] for key in extra.copy_labels if key in at.labels}
    annotations = {key: at.annotations[key] for key in extra.copy_annotations if key in at.annotations}
    return Desired(
        KINDS[rule_type],
        tuple(candidate.rule.name for candidate in candidates),
        name,
        content,
        content.fields(),
        {**labels, **extra.labels, **stamp.labels},
        {**annotations, **extra.annotations, **stamp.annotations},
    )


def _is_asked_for(place: Place, seen: Seen, settings: Settings) -> bool:
    """Whether this run speaks of the place. Of copies that no rule wants only a run that saw every rule can speak."""
    if not place.desired:
        return settings.rules is None and settings.rule_name is None and not seen.failures
    return settings.rule_name is None or any(settings.rule_name in desired.rules for desired in place.desired)


def _judge(place: Place, seen: Seen, settings: Settings) -> Finding | Need | None:
    """Return what is to be said of a place: a finding, what must be read first, or None where all is well."""
    if len(place.desired) > 1:
        return _collision(place)
    actual = _latest(place, seen)
    if isinstance(actual, ApiError):
        return Finding(
            "unreadable",
            Severity.ERROR,
            place.key,
            actual.message,
            subjects=_subjects(place),
            exit_code=actual.exit_code,
        )
    if actual is None:
        looked = Need(place.key, full=False) in seen.documents or Need(place.key) in seen.documents
        return Need(place.key, full=False) if settings.dry_run and not looked else _missing(place, settings)
    if not stamps.is_ours(actual.header.labels, NAME, settings.namespace):
        return _conflict(place)
    if actual.header.terminating:
        return Finding("skipped", Severity.INFO, place.key, "is being deleted; the next run makes it anew")
    if not place.desired:
        return _orphan(place.key, actual.header)
    return _compare(place.key, place.desired[0], actual, settings)


def _latest(place: Place, seen: Seen) -> Object | ApiError | None:
    """Return the object as it was read last: by itself where it was needed, else in the list."""
    for need, decode in ((Need(place.key), _decode_full), (Need(place.key, full=False), _decode_partial)):
        document = seen.documents.get(need)
        if document is None:
            continue
        if document.error is None:
            return _object(decode(document.body))
        return None if document.error.status == 404 else document.error
    return place.copy


def _compare(key: ObjectKey, desired: Desired, actual: Object, settings: Settings) -> Finding | Need | None:
    """Compare a copy with what it should be, from its metadata alone as far as that tells."""
    known = actual.content is not None
    fresh = actual.header.annotations.get(stamps.FINGERPRINT) == desired.annotations[stamps.FINGERPRINT]
    ownership = actual.header.ownership
    if not known and fresh and (ownership.theirs or ownership.ours != desired.fields):
        return Need(key)  # a suspect: somebody else owns a field, or one came or went
    right = actual.content == desired.content if known else fresh
    relabelled = _metadata_drift(desired, actual.header)
    if right and not relabelled:
        return None
    if settings.diff and not known and not right:
        return Need(key)
    differing = changes(actual.content, desired.content, secret=desired.resource is SECRETS) if known else ()
    code = "drifted" if fresh else "outdated"
    reason = _why(desired, actual, differing, relabelled, fresh=fresh, right=right)
    shown = (*differing, *(change for change in relabelled if "kubechores.dev/" not in change.field))
    fix = Fix(Action.REPLACE, _replacement(key, desired, actual.header))
    return Finding(code, Severity.WARNING, key, reason, fix, shown if settings.diff else (), desired.rules)


def _metadata_drift(desired: Desired, actual: Header) -> tuple[Change, ...]:
    """Return the labels and annotations of ours that are not as they should be; those of others do not count."""
    found = []
    for where, ours, theirs, owned in (
        ("label", desired.labels, actual.labels, actual.ownership.labels),
        ("annotation", desired.annotations, actual.annotations, actual.ownership.annotations),
    ):
        for key in sorted(ours.keys() | (owned & theirs.keys())):
            if theirs.get(key) != ours.get(key):
                found.append(Change(f"{where} {key}", theirs.get(key), ours.get(key)))
    return tuple(found)


def _replacement(key: ObjectKey, desired: Desired, actual: Header) -> Manifest:
    """Return the copy as it should be, with the labels and annotations that others put on it."""
    ownership = actual.ownership
    labels = {key: value for key, value in actual.labels.items() if key not in ownership.labels}
    annotations = {key: value for key, value in actual.annotations.items() if key not in ownership.annotations}
    return Manifest(
        desired.resource,
        key,
        {**labels, **desired.labels},
        {**annotations, **desired.annotations},
        desired.content,
        actual.uid,
        actual.resource_version,
        actual.owner_references,
        actual.finalizers,
    )


# What findings say.


def _missing(place: Place, settings: Settings) -> Finding:
    desired = place.desired[0]
    body = Manifest(desired.resource, place.key, desired.labels, desired.annotations, desired.content)
    shown = changes(None, desired.content, secret=desired.resource is SECRETS) if settings.diff else ()
    fix = Fix(Action.CREATE, body)
    return Finding("missing", Severity.WARNING, place.key, f"from {desired.source}", fix, shown, desired.rules)


def _why(
    desired: Desired,
    actual: Object,
    differing: Sequence[Change],
    relabelled: Sequence[Change],
    *,
    fresh: bool,
    right: bool,
) -> str:
    source_before = actual.header.annotations.get(stamps.SOURCE)
    if source_before != desired.source:
        return f"the source is {desired.source} now; was {source_before}"
    if not fresh:
        return f"the source {desired.source} was made anew" if right else f"the source {desired.source} changed"
    names = [change.field for change in (differing or relabelled)]
    named = ", ".join(names[:_MOST_FIELDS_NAMED]) + (
        f" and {len(names) - _MOST_FIELDS_NAMED} more" * (len(names) > _MOST_FIELDS_NAMED)
    )
    by = ", ".join(actual.header.ownership.theirs) if differing else ""
    return f"{named} changed" + (f" by {by}" if by else "")


def _collision(place: Place) -> Finding:
    sources = " and ".join(desired.source for desired in place.desired)
    reason = f"{sources} both claim this place: neither is copied here; narrow the targets of one rule"
    return Finding(
        "collision", Severity.ERROR, place.key, reason, subjects=_subjects(place), exit_code=ExitCode.REFUSED
    )


def _conflict(place: Place) -> Finding:
    reason = "exists and is not ours: left untouched"
    return Finding("conflict", Severity.WARNING, place.key, reason, subjects=_subjects(place))


def _orphan(key: ObjectKey, actual: Header) -> Finding:
    rule = actual.annotations.get(stamps.RULE, "an unknown rule")
    source = actual.annotations.get(stamps.SOURCE, "an unknown source")
    reason = f"no rule wants this copy any more (made for {rule} from {source}); left in place, delete it by hand"
    return Finding("orphan", Severity.WARNING, key, reason, subjects=(rule.rpartition("/")[2],))


def _unchanged(place: Place) -> Finding:
    desired = place.desired[0]
    return Finding("unchanged", Severity.INFO, place.key, f"from {desired.source}", subjects=desired.rules)


def _subjects(place: Place) -> tuple[str, ...]:
    return tuple(sorted({rule for desired in place.desired for rule in desired.rules}))


def _facts(seen: Seen, wanted: Mapping[tuple[str, str], Sequence[Candidate]]) -> Mapping[str, int]:
    sources = {(rule_type, c.source.header.uid) for (rule_type, _), group in wanted.items() for c in group}
    active = sum(1 for namespace in seen.namespaces if namespace.active)
    return {"rules": len(seen.rules), "sources": len(sources), "namespaces": active}


_decode_full = partial(msgspec.json.decode, type=DataObject)
_decode_partial = partial(msgspec.json.decode, type=PartialObject)


# --- command ----------------------------------------------------------------------------------------------------------


@click.command(NAME)
@options.namespace_option("Namespace that rules are read from; default is the pod's own, or the context's.")
@options.option(
    "--rule-name", env=("RULE_NAME",), metavar="NAME", help="Follow this rule alone; the others are still read."
)
@options.option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    metavar="FILE",
    help="Read rules from this file, folder or - instead of the cluster. Implies a dry run; needs no CRD.",
)
@options.option(
    "--verify",
    default="metadata",
    show_default=True,
    type=click.Choice(["metadata", "content"]),
    help="How copies are compared: by fingerprint and managedFields, or by reading all of them in full.",
)
@options.run_options
@click.pass_context
def command(
    context: click.Context,
    options: options.RunOptions,
    namespace: str | None,
    rule_name: str | None,
    filenames: tuple[str, ...],
    verify: str,
) -> None:
    """Copy labelled ConfigMaps and Secrets to the namespaces that CopyratorRules name.

    Missing copies are made, changed ones repaired; whatever else has the name of a copy is left untouched. A second
    run in a row writes nothing. Exits 0 when done, 1 when a retry is useful, 2 when a person must act first, 3 with
    --check when anything is not as it should be.

    \b
    Examples:
      chores sync-copies --dry-run --diff            what would change, and how
      chores sync-copies -n kube-chores              copy, by the rules of that namespace
      chores sync-copies -f rules.yaml -o json       try rules before they are applied
    """
    if filenames and options.dry_run is DryRun.NONE:
        options = replace(options, dry_run=DryRun.CLIENT)
    job = Job(
        NAME,
        {**{resource.kind: resource for resource in KINDS.values()}, RULES.kind: RULES},
        lambda connection: settings(connection, options, namespace, rule_name, filenames, verify),
        observe,
        plan,
    )
    context.exit(run(job, options))
