"""Read the sources of all rules: many lists at once, or one list of all namespaces if that is less.

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

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from jobs.core.sync_copies.desired import name_of
from jobs.core.sync_copies.kinds import ALL_KEYS, KINDS, KeySelection, Kind, select
from jobs.core.sync_copies.observed import Source, refused
from jobs.core.sync_copies.rules import SourceQuery
from jobs.kit.api.cluster import Cluster, List, retry_if_expired
from jobs.kit.data.contents import Digested, WholeContent
from jobs.kit.data.objects import ObjectReducer, WholeObject
from jobs.kit.values.decoding import PartialObject
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.reads import InvalidObject, unreadable

# Two lists of all namespaces cost a server with 100,000 Secrets as much as 100 lists of one (docs/performance.md).
_FEWEST_NAMESPACES = 100
_MOST_OBJECTS = 4  # per namespace: a page of 500 objects costs about as much as 10 short lists
_MOST_EXCLUDED = 50  # namespaces, in a URL
_MOST_ANNOTATIONS = 1 << 20  # bytes, of objects in namespaces that no rule names
_BYTES_OF_SUBJECTS = 4 << 20  # of all sources with subjects


Sources = dict[SourceQuery, tuple[Source, ...] | ApiError]


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
    key, why = ObjectKey(kind.name, read.metadata.name, read.metadata.namespace), ""
    try:
        content = select(keys, content)
    except ValueError as error:
        why = f"{error}; correct the source, or spec.keys of the rule"
    source = reducer.reduce(kind.layout, read, content)
    if kind.has_subjects and isinstance(source.content, Digested):
        reducer.has_refused = True
        return refused(key, "it is too large to be copied")
    if never := kind.why_never_copied(source):
        return Finding("skipped", Severity.INFO, key, never)
    return refused(key, why) if why else source
