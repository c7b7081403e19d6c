"""Read what sync-copies compares: copies, rules, from the cluster or from files, namespaces and sources.

Sources are read by many lists at once, or by one list of all namespaces if that is less.
A rule names the namespaces of its sources. If many lists of one namespace have the same kind and label selector, two
lists of all namespaces take their place: the metadata of all objects with these labels, and then the objects. Both come
after copies, rules and namespaces, as all lists of sources. If one of them fails, or has too much, the run lists each
namespace, and reports errors by namespace.

What is read of namespaces that no rule names:

- Metadata of the objects with the rule's labels. They have annotations, and of an object that client-side `kubectl
  apply` wrote, one of them has all its values. Only names of namespaces are kept. The list is not compressed: from
  the length of compressed text a tenant could guess values of others, step by step, with an annotation of its own.
- No contents: the second list excludes these namespaces by a field selector. An object that gets the labels between
  both lists is dropped when its page is decoded.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field, structs

from jobs.core.sync_copies.desired import name_of
from jobs.core.sync_copies.kinds import ALL_KEYS, KINDS, KeySelection, Kind, cluster_role, select
from jobs.core.sync_copies.observe_accounts import ATTACH, attached_accounts
from jobs.core.sync_copies.observed import NAME, OPT_IN, Copies, Namespace, Observed, Settings, Source, refused
from jobs.core.sync_copies.rules import RULE_TYPES, Rule, SourceQuery, Spec, parse_rule, spec_problems, used_keys
from jobs.kit.api.cluster import Cluster, List, complete, retry_if_expired
from jobs.kit.api.custom_resources import from_cluster, from_files
from jobs.kit.data.contents import Digested, WholeContent
from jobs.kit.data.objects import ObjectReducer, ReducedObject, WholeObject, size_of
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError, ConfigurationError, InvalidObjectError
from jobs.kit.values.model import DryRun, Finding, ObjectKey, Severity
from jobs.kit.values.reads import (
    Invalid,
    InvalidObject,
    NamespaceObject,
    PartialObject,
    invalid,
    read_failure,
    string_map,
    unreadable,
)
from jobs.kit.values.resources import CLUSTER_ROLES, NAMESPACES, RULES, is_label

# Two lists of all namespaces cost a server with 100,000 Secrets as much as 100 lists of one (docs/performance.md).
_FEWEST_NAMESPACES = 100
_MOST_OBJECTS = 4  # per namespace: a page of 500 objects costs about as much as 10 short lists
_MOST_EXCLUDED = 50  # namespaces, in a URL
_MOST_ANNOTATIONS = 1 << 20  # bytes, of objects in namespaces that no rule names
_BYTES_OF_A_NAMESPACE = 500  # without its texts
_BYTES_OF_SUBJECTS = 4 << 20  # of all sources with subjects
_OLDEST = "kube-system"  # the namespace that each cluster has, and whose uid is that of the cluster


Sources = dict[SourceQuery, tuple[Source, ...] | ApiError]
_LONGEST_CHOICE = 40  # of an annotation of a tenant


class _Request(NamedTuple):
    """A list of sources: type, selector and name `of` its queries, which are by namespace; and namespaces to leave out.

    Queries of one namespace differ only in the keys that are copied.
    """

    of: SourceQuery
    queries: Mapping[str, Sequence[SourceQuery]]
    excluded: Sequence[str] = ()

    @property
    def kind(self) -> Kind:
        """The kind of the sources."""
        return KINDS[self.of.rule_type]

    @property
    def namespace(self) -> str:
        """The namespace that it lists; empty for all namespaces."""
        return next(iter(self.queries)) if len(self.queries) == 1 else ""

    def split(self) -> list[_Request]:
        """Return a request for each namespace."""
        return [_Request(self.of, {namespace: queries}) for namespace, queries in self.queries.items()]


def read_sources(
    cluster: Cluster, queries: Iterable[SourceQuery], used: Collection[str], reducer: ObjectReducer
) -> Sources:
    """Read the sources of all queries, or the errors of their lists.

    `used` are the keys of labels and annotations to keep. Sources with subjects have a reducer of their own: subjects
    cannot be moved in digests, so other large sources must leave room for them.
    """
    requests = list(_requests(cluster, queries))
    subjects = [each for each in requests if each.kind.has_subjects]
    others = [each for each in requests if not each.kind.has_subjects]
    return {**_read(cluster, subjects, ObjectReducer(used, _BYTES_OF_SUBJECTS)), **_read(cluster, others, reducer)}


def _requests(cluster: Cluster, queries: Iterable[SourceQuery]) -> Iterator[_Request]:
    """Yield the lists to send: one for each namespace, or one for all of them."""
    groups: dict[SourceQuery, dict[str, list[SourceQuery]]] = {}
    for query in sorted(queries):
        same = groups.setdefault(query._replace(namespace="", keys=ALL_KEYS), {})
        same.setdefault(query.namespace, []).append(query)
    is_possible = True
    for of, by_namespace in sorted(groups.items()):
        others: Collection[str] | None = None
        if is_possible and of.selector and len(by_namespace) >= _FEWEST_NAMESPACES:
            try:
                others = _others_matching(cluster, of, by_namespace.keys())
            except ApiError:
                is_possible = False  # each other one could take as long, with all its retries
        if others is None or len(others) > _MOST_EXCLUDED:
            yield from _Request(of, by_namespace).split()
        else:
            yield _Request(of, by_namespace, sorted(others))


def _others_matching(cluster: Cluster, of: SourceQuery, namespaces: Collection[str]) -> Collection[str] | None:
    """Return other namespaces with objects that the selector matches; None if these are too many, or not known.

    Raises:
        ApiError: the list failed.
    """
    resource, selector = KINDS[of.rule_type].resource, of.selector

    def read() -> Collection[str] | None:
        found: set[str] = set()
        annotations = 0  # of others
        listed = cluster.objects(resource, PartialObject, _at, selector=selector, metadata_only=True, compressed=False)
        for number, each in enumerate(listed, 1):
            namespace, size = (each.key.namespace, 0) if isinstance(each, InvalidObject) else each
            if namespace not in namespaces:
                found.add(namespace)
                annotations += size
            if number > _MOST_OBJECTS * len(namespaces) or annotations > _MOST_ANNOTATIONS or not namespace:
                return None
        return found

    return retry_if_expired(read)


def _at(read: PartialObject) -> tuple[str, int]:
    """Return the namespace, and the bytes of annotations."""
    return read.metadata.namespace, len(read.metadata.annotations)


def _read(cluster: Cluster, requests: Sequence[_Request], reducer: ObjectReducer) -> Sources:
    """Read the sources, with many lists at once.

    If they are too large together, read them again one after another: so the order in which answers arrive does not
    decide which of them are refused.
    """
    read = _lists(cluster, requests, reducer, at_once=True)
    if not reducer.has_refused:
        return read
    del read  # else both are in memory
    reducer.clear()
    return _lists(cluster, requests, reducer, at_once=False)


def _lists(cluster: Cluster, requests: Sequence[_Request], reducer: ObjectReducer, *, at_once: bool) -> Sources:
    """Send the lists. A list of all namespaces that fails is sent again as lists of one namespace each."""
    read: Sources = {}
    while requests:
        again: list[_Request] = []
        for batch in [requests] if at_once else [[each] for each in requests]:
            for request, objects in cluster.lists([_list(each, reducer) for each in batch]):
                if not isinstance(objects, ApiError) and (request.namespace or not any(map(_is_nowhere, objects))):
                    read.update(_by_query(request, objects))
                elif request.namespace:
                    read.update(dict.fromkeys(request.queries[request.namespace], objects))
                else:
                    again += request.split()
        requests = again
    return read


def _list(request: _Request, reducer: ObjectReducer) -> List:
    of, reduce = request.of, partial(_reduced, reducer, request)
    fields = [f"metadata.name={of.name}"] if of.name else [f"metadata.namespace!={each}" for each in request.excluded]
    return List(
        request.kind.resource, WholeObject, reduce, request.namespace, of.selector, ",".join(fields), tag=request
    )


def _is_nowhere(read: list[tuple[SourceQuery, Source]] | InvalidObject) -> bool:
    """Whether this is an object that cannot be decoded, and whose namespace is not known."""
    return isinstance(read, InvalidObject) and not read.key.namespace


def _by_query(
    request: _Request, objects: Iterable[list[tuple[SourceQuery, Source]] | InvalidObject]
) -> dict[SourceQuery, tuple[Source, ...]]:
    found: dict[SourceQuery, list[Source]] = {query: [] for query in chain.from_iterable(request.queries.values())}
    for each in objects:
        if isinstance(each, InvalidObject):
            queries = request.queries.get(request.namespace or each.key.namespace, ())
            each = [(query, unreadable(each.key, each.error)) for query in queries]
        for query, source in each:
            found[query].append(source)
    return {query: tuple(sorted(sources, key=name_of)) for query, sources in found.items()}


def _reduced(reducer: ObjectReducer, request: _Request, read: WholeObject) -> list[tuple[SourceQuery, Source]]:
    """Return the source of each query; nothing of an object in a namespace that no rule names."""
    namespace = request.namespace or read.metadata.namespace
    if not namespace:
        raise InvalidObjectError("metadata.namespace is not set")
    queries = request.queries.get(namespace, ())
    content = read.content(request.kind.layout) if queries else None
    return [(query, _source(reducer, request.kind, read, content, query.keys)) for query in queries if content]


def _source(reducer: ObjectReducer, kind: Kind, read: WholeObject, content: WholeContent, keys: KeySelection) -> Source:
    """Return the source with the keys that are copied, or why it is not copied."""
    key, why, selected = ObjectKey(kind.name, read.metadata.name, read.metadata.namespace), "", content
    try:
        selected = select(keys, content)
    except ValueError as error:
        why = f"{error}; correct the source, or spec.keys of the rule"
    source = reducer.reduce(kind.layout, read, selected)
    if never := kind.why_never_copied(source, content):
        return Finding("skipped", Severity.INFO, key, never)
    if (kind.has_subjects or keys.merge) and isinstance(source.content, Digested):
        reducer.has_refused = True
        return refused(key, f"it is too large to be {'merged' if keys.merge else 'copied'}")
    return refused(key, why) if why else source


class Home(Struct, frozen=True):
    """What is read in the cluster with the rules, after the copies. `uid` is that of the hub; empty: it is this one.

    `local` are the rules that select no other cluster, if only the others are in `rules`. `orphans` as in Observed.
    """

    rules: tuple[Rule, ...]
    invalid_rules: tuple[Invalid, ...]
    namespaces: tuple[Namespace, ...]
    sources: Mapping[SourceQuery, tuple[Source, ...]]
    reducer: ObjectReducer
    failures: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    rules_elsewhere: tuple[str, ...] = ()
    uid: str = ""
    local: tuple[Rule, ...] = ()
    orphans: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules, also those that select no other cluster."""
        return (*self.rules, *self.local)


class Listed(Struct, frozen=True):
    """The copies of a cluster by rule type, the types whose copies cannot be read, and whether rules may attach."""

    copies: Mapping[str, Copies]
    denied: Mapping[str, ApiError]
    attaches: bool = False


def observe(cluster: Cluster, settings: Settings, hub: Cluster | None = None) -> Observed:
    """Read copies, then rules, namespaces and sources.

    In this order a copy that an overlapping run creates meanwhile is never an orphan. Rules and sources are those of
    `hub`, if that is given.

    Raises:
        ConfigurationError: the CRD is not installed, or there is no rule with the name in --rule-name.
        ApiError: rules or namespaces cannot be read; without them nothing can be evaluated.
    """
    uid = uid_of(hub) if hub else ""
    rules, _ = rules_of(hub or cluster, settings, uid)
    copies = list_copies(cluster, settings, rules, uid)
    home = read_home(hub or cluster, settings, copies, uid, rules)
    observed = combine(cluster, settings, copies, home, home.rules)
    if uid and any(each.uid == uid for each in observed.namespaces):
        raise ConfigurationError("the cluster with the rules is this one: run without --source-* flags")
    return observed


def read_home(
    cluster: Cluster, settings: Settings, listed: Listed | None, uid: str = "", known: Sequence[Rule] = ()
) -> Home:
    """Read the rules and their sources; only those whose copies were `listed`. `uid` is that of the hub.

    Without `listed`, these are the rules that select other clusters. `known` are the rules that were read before.

    Raises: as `observe`.
    """
    rules, invalid_rules = rules_of(cluster, settings, uid, known)
    notes = [*_not_pulled(rules)] if uid and listed else []
    left_out = {each.object.name for each in notes}
    local: tuple[Rule, ...] = ()
    orphans = {rule.stamp: rule.spec.orphans for rule in rules}
    orphans |= {rule.stamp: "Retain" for rule in rules if rule.name in left_out}  # the hub may have pushed them
    if listed is None:
        local = tuple(rule for rule in rules if not rule.spec.targets.clusters)
        rules = tuple(rule for rule in rules if rule.spec.targets.clusters and rule.kind.is_pushed)
    # The next run handles a rule that was created meanwhile, if copies of its type were not read.
    types = KINDS.keys() if listed is None else {*listed.copies, *listed.denied}
    rules = tuple(rule for rule in rules if rule.copy_type in types and rule.name not in left_out)
    failures = [invalid(each) for each in invalid_rules]
    namespaces, undecoded = _namespaces(cluster, rules)
    # In an uninstall, nobody intended to delete the copies of rules that go with their namespace.
    is_deleted = any(each.name == settings.namespace and not each.active for each in namespaces)
    failures += [_terminating(settings.namespace)] if is_deleted else []
    reducer = ObjectReducer(used_keys(rules))
    denied = listed.denied if listed else {}
    queries = [(query, rule) for rule in rules for query in rule.queries() if rule.copy_type not in denied]
    read = read_sources(cluster, {query for query, _ in queries}, used_keys(rules), reducer)
    for query, rule in queries:
        if isinstance(error := read[query], ApiError):
            failures.append(_unreadable(rule, f"its sources in namespace {query.namespace}", error, settings))
    sources = {query: found for query, found in read.items() if not isinstance(found, ApiError)}
    if uid:
        sources = {query: tuple(_if_small(query, each) for each in found) for query, found in sources.items()}
    if settings.run.dry_run is not DryRun.CLIENT:  # else the rights are those of a user, who only reads
        sources = _without_denied_roles(cluster, sources)
    failures += [unreadable(each.key, each.error) for each in undecoded]
    elsewhere = () if rules or invalid_rules or settings.rules is not None else _rules_elsewhere(cluster, settings)
    return Home(
        rules,
        invalid_rules,
        namespaces,
        sources,
        reducer,
        tuple(failures),
        tuple(notes),
        elsewhere,
        uid,
        local,
        orphans,
    )


def _if_small(query: SourceQuery, source: Source) -> Source:
    """Return the source; refused if its content is not kept: it cannot be read again where the copy is written."""
    if isinstance(source, ReducedObject) and isinstance(source.content, Digested):
        key = ObjectKey(KINDS[query.rule_type].name, source.name, source.namespace)
        return refused(key, "all sources of other clusters together are too large; use fewer, or smaller ones")
    return source


def combine(
    cluster: Cluster, settings: Settings, listed: Listed, home: Home, rules: tuple[Rule, ...], uid: str = ""
) -> Observed:
    """Read the rest of a cluster, and return all that was read; `rules` are those of `home` that are about it.

    Raises:
        ConfigurationError: the cluster is another one than that with this uid.
        ApiError: its namespaces cannot be read.
    """
    failures = [*home.failures, *_denied(rules, listed, settings)]
    namespaces, undecoded = (home.namespaces, ()) if not home.uid else _namespaces(cluster, rules)
    failures += [unreadable(each.key, each.error) for each in undecoded]
    if uid and uid not in {each.uid for each in namespaces if each.name == _OLDEST}:
        raise ConfigurationError("another cluster answers than at the beginning of the run")
    sources = home.sources
    if listed.denied:  # copies that cannot be read are not written
        needed = {query for rule in rules if rule.copy_type not in listed.denied for query in rule.queries()}
        sources = {query: found for query, found in sources.items() if query in needed}
    accounts, unread = attached_accounts(cluster, settings, rules, listed.attaches) if not home.uid else ((), [])
    return Observed(
        rules,
        namespaces,
        sources,
        listed.copies,
        home.invalid_rules,
        (*failures, *unread),
        reducer=home.reducer if not home.uid else ObjectReducer(used_keys(rules), take=cluster.take),
        rules_elsewhere=home.rules_elsewhere,
        accounts=accounts,
        hub=home.uid,
        of_sources=home.namespaces if home.uid else None,
        notes=home.notes,
        orphans=home.orphans,
    )


def _denied(rules: Sequence[Rule], listed: Listed, settings: Settings) -> Iterator[Finding]:
    """Yield the findings of copies that cannot be read: of each rule, or of a type without rules."""
    for rule_type, denial in sorted(listed.denied.items()):
        affected = [each for each in rules if each.copy_type == rule_type]
        all_copies = ObjectKey(KINDS[rule_type].name, "(all copies)")
        # One that is only for other clusters needs no rights on this kind here.
        needed = [each for each in affected if each.hub or not each.is_elsewhere]
        yield from (_unreadable(each, "its copies", denial, settings) for each in needed)
        if not affected:
            yield unreadable(all_copies, denial, subjects=(all_copies.name,))


def _not_pulled(rules: Sequence[Rule]) -> Iterator[Finding]:
    """Yield the findings of rules of a hub that are not for the cluster that reads them."""
    for rule in rules:
        if not rule.kind.is_pushed:
            why = "its copies would give rights: RoleBindings and ServiceAccounts are not copied from another cluster"
            yield Finding("skipped", Severity.WARNING, rule.head.key, why, subjects=(rule.name,))
        elif not rule.is_local:
            why = "spec.targets.clusters: sync-copies-clusters of the hub writes its copies"
            yield Finding("skipped", Severity.INFO, rule.head.key, why, subjects=(rule.name,))


def uid_of(cluster: Cluster) -> str:
    """Return what distinguishes a cluster from all others: the uid of its namespace kube-system.

    https://github.com/kubernetes-sigs/about-api/blob/master/docs/design.md

    Raises:
        ConfigurationError: it has no such namespace.
        ApiError: namespaces cannot be listed.
    """
    objects = partial(cluster.objects, fields=f"metadata.name={_OLDEST}", metadata_only=True)
    found, _ = complete(objects, NAMESPACES, PartialObject, lambda each: each.metadata.uid)
    if len(found) != 1 or not is_label(found[0]):
        raise ConfigurationError(f"the cluster has no namespace {_OLDEST} with a uid")
    return str(found[0])


def list_copies(cluster: Cluster, settings: Settings, rules: Sequence[Rule], hub: str) -> Listed:
    """List the copies of this installation, or of that of a hub."""
    types, attaches = _types(cluster, settings, rules, hub)
    return Listed(*_all_copies(cluster, settings, rules, types, hub), attaches)


def _all_copies(
    cluster: Cluster, settings: Settings, rules: Sequence[Rule], types: Sequence[str], hub: str
) -> tuple[dict[str, Copies], dict[str, ApiError]]:
    """Return the copies by rule type, and the errors of types whose copies could not be read."""
    reducer = ObjectReducer(used_keys(rules), take=cluster.take)
    lists = [_list_of_copies(rule_type, settings, reducer, hub) for rule_type in types]
    read = dict(cluster.lists(lists))
    if reducer.has_refused and len(lists) > 1:
        # Together they are too large. One after another: so the order of answers does not decide which are refused.
        read.clear()  # else both are in memory
        reducer.clear()
        read = dict(chain.from_iterable(cluster.lists([each]) for each in lists))
    denied = {each: found for each, found in read.items() if isinstance(found, ApiError)}
    return {each: _by_name(found) for each, found in read.items() if each not in denied}, denied


def _unreadable(rule: Rule, what: str, error: ApiError, settings: Settings) -> Finding:
    in_spoke = "in the cluster, bind a role with this permission to the account"
    reason = read_failure(error, what, in_spoke if rule.hub else _remedy(rule.kind, settings))
    return unreadable(rule.head.key, error, reason, (rule.name,))


def _remedy(kind: Kind, settings: Settings) -> str:
    """Return what to do if rights on a kind are missing; empty if they are those of all installations."""
    if not kind.component:
        return ""
    component = f"component {kind.component_path}"
    if settings.run.dry_run is DryRun.CLIENT:  # the rights are those of a user
        return f"for a dry run, bind ClusterRole {kind.view_role}, which {component} creates"
    return f"{component} grants the permissions (Helm: {kind.helm_value})"


def _types(cluster: Cluster, settings: Settings, rules: Sequence[Rule], hub: str) -> tuple[list[str], bool]:
    """Return the types whose copies are read: the types of rules, and types whose last rule may have been deleted.

    Also return whether the last rule with attachTo may have been deleted: the account can patch ServiceAccounts.

    A type without rules is read only with permission to list it. The run asks for the permission first: an
    installation without rights on Secrets sends no request for Secrets.
    """
    possible = {each for each, kind in KINDS.items() if kind.is_pushed or not hub}
    types, attaches = {rule.copy_type for rule in rules} & possible, False
    if settings.forgotten:  # rules that were deleted may have had copies of these
        types |= {each for each in possible if not KINDS[each].component}
    if settings.rules is None and settings.rule_name is None:
        others = {("list", KINDS[each].resource): each for each in sorted(possible - types)}
        allowed = cluster.can_in_all_namespaces([*others, *([] if hub else [ATTACH])])
        types |= {others[each] for each in allowed - {ATTACH}}
        attaches = ATTACH in allowed
    return sorted(types), attaches


def rules_of(
    cluster: Cluster, settings: Settings, hub: str, known: Sequence[Rule] = ()
) -> tuple[tuple[Rule, ...], tuple[Invalid, ...]]:
    """Return the rules, from files or of the namespace, and those that are not valid; `known` were read before.

    Raises: as `observe`.
    """

    def placed(rule: Rule) -> Rule:
        # No cluster has a uid as its name: if rules are pulled, nothing is known of earlier runs.
        return structs.replace(rule, hub=hub, cluster=hub, is_elsewhere=not rule.is_local)

    if settings.rules is not None:
        return tuple(map(placed, settings.rules)), ()
    rules, invalid_rules, _ = from_cluster(
        cluster, RULES, parse_rule, settings.namespace, known={rule.head: rule for rule in known}
    )
    names = sorted([*(rule.name for rule in rules), *(each.head.key.name for each in invalid_rules)])
    if settings.rule_name not in (None, *names):
        what = f"no {RULES.kind} {settings.rule_name!r} in namespace {settings.namespace}"
        raise ConfigurationError(f"{what}; its rules are: {', '.join(names) or 'none'}")
    return tuple(map(placed, rules)), invalid_rules


def _rules_elsewhere(cluster: Cluster, settings: Settings) -> tuple[str, ...]:
    """Return the namespaces with rules; none without permission to list them, which the account of the job lacks."""
    try:
        found, _ = complete(cluster.objects, RULES, PartialObject, lambda each: each.metadata.namespace)
    except ApiError:
        return ()
    return tuple(sorted({*found} - {settings.namespace}))


def _list_of_copies(rule_type: str, settings: Settings, reducer: ObjectReducer, hub: str) -> List:
    layout = KINDS[rule_type].layout
    return List(
        layout.resource,
        WholeObject if settings.verify_content else PartialObject,
        partial(reducer.reduce, layout),
        selector=stamps.selector(NAME, settings.namespace, hub),
        metadata_only=not settings.verify_content,
        tag=rule_type,
    )


def _by_name(read: Iterable[ReducedObject | InvalidObject]) -> Copies:
    found: dict[str, dict[str, ReducedObject | ApiError]] = {}
    for each in read:
        if isinstance(each, InvalidObject):
            found.setdefault(each.key.name, {})[each.key.namespace] = each.error
        else:
            found.setdefault(each.name, {})[each.namespace] = each
    return found


def _namespaces(cluster: Cluster, rules: Sequence[Rule]) -> tuple[tuple[Namespace, ...], Sequence[InvalidObject]]:
    """Return the namespaces, with the labels that rules select by, and those that cannot be decoded."""
    used = frozenset(key for rule in rules for key in rule.spec.targets.namespace_selector.label_keys())
    of_sources = frozenset(name for rule in rules for name in rule.source_namespaces) | {_OLDEST}

    def reduce(read: NamespaceObject) -> Namespace:
        found = _namespace(used, of_sources, read)
        if cluster.take:
            labels = chain.from_iterable(found.labels.items())
            cluster.take(_BYTES_OF_A_NAMESPACE + size_of(found.name, found.invalid_choice or "", *labels))
        return found

    found, invalid = complete(cluster.objects, NAMESPACES, NamespaceObject, reduce)
    return tuple(sorted(found, key=lambda namespace: namespace.name)), invalid


def _namespace(used: frozenset[str], of_sources: frozenset[str], read: NamespaceObject) -> Namespace:
    at = read.metadata
    labels = {key: value for key, value in string_map(at.labels).items() if key in used}
    value = string_map(at.annotations).get(OPT_IN)
    opted_out = (value or "").lower() == "false"
    invalid_choice = None if value in (None, "true", "false") else value[:_LONGEST_CHOICE]
    uid = at.uid if at.name in of_sources else ""
    return Namespace(sys.intern(at.name), labels, read.active, opted_out, value == "true", invalid_choice, uid)


def _without_denied_roles(
    cluster: Cluster, sources: Mapping[SourceQuery, tuple[Source, ...]]
) -> dict[SourceQuery, tuple[Source, ...]]:
    """Return the sources; those that bind a ClusterRole which the account has no right to bind are refused."""
    bindings = {query: found for query, found in sources.items() if KINDS[query.rule_type].has_subjects}
    roles = {_cluster_role(each) for found in bindings.values() for each in found} - {""}
    allowed = cluster.can_i(("bind", CLUSTER_ROLES, role) for role in sorted(roles))

    def checked(query: SourceQuery, source: Source) -> Source:
        role = _cluster_role(source)
        if not role or allowed["bind", CLUSTER_ROLES, role]:
            return source
        why = f"the account of this run has no right to bind ClusterRole {role}"
        remedy = "add it to resourceNames in ClusterRole kube-chores-sync-copies-rolebindings"
        key = ObjectKey(KINDS[query.rule_type].name, name_of(source), query.namespace)
        return refused(key, f"{why}; {remedy}")

    return {**sources, **{query: tuple(checked(query, each) for each in found) for query, found in bindings.items()}}


def _cluster_role(source: Source) -> str:
    """Return the ClusterRole that copies of a source bind; empty if there is none, or if the source is not copied."""
    return cluster_role(source.content) if isinstance(source, ReducedObject) and source.content else ""


def _terminating(namespace: str) -> Finding:
    reason = "is being deleted, and its rules with it; no copy is deleted"
    return Finding("unreadable", Severity.WARNING, ObjectKey(NAMESPACES.kind, namespace), reason)


def rules_from_files(filenames: Sequence[str], namespace: str, rule_name: str | None) -> tuple[Rule, ...]:
    """Return the rules in these files; `namespace` is the namespace of the rules.

    Raises:
        ConfigurationError: a rule is not valid, or no rule is named `rule_name`; lists all problems of all rules.
    """
    rules = from_files(filenames, RULES, parse_rule, namespace, beyond_schema=_problems_beyond_schema)
    names = [rule.name for rule in rules]
    if rule_name not in (None, *names):
        what = f"{', '.join(filenames)}: no {RULES.kind} {rule_name!r}"
        raise ConfigurationError(f"{what}; the rules are: {', '.join(names)}")
    return rules


def _problems_beyond_schema(spec: dict[str, Any]) -> list[str]:
    """Return the problems that the schema does not find; none if the spec cannot be decoded."""
    has_type = spec.get("ruleType") in RULE_TYPES
    try:
        decoded = msgspec.convert(spec if has_type else {**spec, "ruleType": RULE_TYPES[0]}, Spec)
    except msgspec.ValidationError:
        return []
    return [f"spec.{problem}" for problem in spec_problems(decoded, has_type=has_type)]
