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
from itertools import chain, groupby
from typing import NamedTuple

from jobs.core.sync_copies.desired import name_of
from jobs.core.sync_copies.kinds import KINDS, KeySelection, Kind, select
from jobs.core.sync_copies.observed import RefusedSource, Source
from jobs.core.sync_copies.rules import SourceQuery
from jobs.kit.api.cluster import Cluster, List, retry_if_expired
from jobs.kit.data.contents import Digested, WholeContent
from jobs.kit.data.objects import ObjectReducer, ReducedObject, WholeObject
from jobs.kit.values.decoding import PartialObject
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import InvalidObject

# Two lists of all namespaces cost a server with 100,000 Secrets as much as 100 lists of one (docs/performance.md).
_FEWEST_NAMESPACES = 100
_MOST_OBJECTS = 4  # per namespace: a page of 500 objects costs about as much as 10 short lists
_MOST_EXCLUDED = 50  # namespaces, in a URL
_MOST_ANNOTATIONS = 1 << 20  # bytes, of objects in namespaces that no rule names
_BYTES_OF_SUBJECTS = 4 << 20  # of all sources with subjects


class Sources(NamedTuple):
    """The sources by query, and the errors of lists that failed, by `SourceQuery.request`."""

    found: Mapping[SourceQuery, tuple[Source, ...]]
    errors: Mapping[SourceQuery, ApiError]


class _Request(NamedTuple):
    """A list of sources: the queries that it answers by namespace, and namespaces that it leaves out.

    All have the same type, selector and name. Queries of one namespace differ only in the keys that are copied.
    """

    queries: Mapping[str, Sequence[SourceQuery]]
    excluded: Sequence[str] = ()

    @property
    def first(self) -> SourceQuery:
        """One of the queries."""
        return next(iter(self.queries.values()))[0]

    @property
    def namespace(self) -> str:
        """The namespace that it lists; empty for all namespaces."""
        return next(iter(self.queries)) if len(self.queries) == 1 else ""

    def split(self) -> list[_Request]:
        """Return a request for each namespace."""
        return [_Request({namespace: queries}) for namespace, queries in self.queries.items()]


def read_sources(
    cluster: Cluster, queries: Iterable[SourceQuery], used: Collection[str], reducer: ObjectReducer
) -> Sources:
    """Read the sources of all queries; `used` are the keys of labels and annotations to keep.

    Sources with subjects have a reducer of their own: subjects cannot be moved in digests, so other large sources must
    leave room for them.
    """
    each_namespace = [
        _Request({at.namespace: list(same)}) for at, same in groupby(sorted(queries), SourceQuery.request)
    ]
    requests = list(_merged(cluster, each_namespace))
    subjects = [each for each in requests if KINDS[each.first.rule_type].has_subjects]
    others = [each for each in requests if not KINDS[each.first.rule_type].has_subjects]
    first, second = _read(cluster, subjects, ObjectReducer(used, _BYTES_OF_SUBJECTS)), _read(cluster, others, reducer)
    return Sources({**first.found, **second.found}, {**first.errors, **second.errors})


def _merged(cluster: Cluster, requests: Iterable[_Request]) -> Iterator[_Request]:
    """Yield the lists to send for requests for one namespace each."""
    is_possible = True
    for (rule_type, selector, name), group in groupby(sorted(requests, key=_of_all), _of_all):
        same = {each.namespace: each for each in group}
        others: Collection[str] | None = None
        if is_possible and selector and not name and len(same) >= _FEWEST_NAMESPACES:
            try:
                others = _others_matching(cluster, rule_type, selector, same.keys())
            except ApiError:
                is_possible = False  # each other one could take as long, with all its retries
        if others is None or len(others) > _MOST_EXCLUDED:
            yield from same.values()
        else:
            yield _Request({name: each.queries[name] for name, each in same.items()}, sorted(others))


def _of_all(request: _Request) -> tuple[str, str, str]:
    """Return type, selector and name of a request: equal ones can be one list of all namespaces."""
    return request.first.rule_type, request.first.selector, request.first.name


def _others_matching(
    cluster: Cluster, rule_type: str, selector: str, namespaces: Collection[str]
) -> Collection[str] | None:
    """Return other namespaces with objects that the selector matches; None if these are too many, or not known.

    Raises:
        ApiError: the list failed.
    """
    resource = KINDS[rule_type].resource

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
    found: dict[SourceQuery, tuple[Source, ...]] = {}
    errors: dict[SourceQuery, ApiError] = {}
    while requests:
        again: list[_Request] = []
        for batch in [requests] if at_once else [[each] for each in requests]:
            for request, objects in cluster.lists([_list(each, reducer) for each in batch]):
                if request.namespace and isinstance(objects, ApiError):
                    errors[request.first.request()] = objects
                elif isinstance(objects, ApiError) or (not request.namespace and any(map(_is_nowhere, objects))):
                    again += request.split()
                else:
                    found |= _by_query(request, objects)
        requests = again
    return Sources(found, errors)


def _list(request: _Request, reducer: ObjectReducer) -> List:
    at, kind = request.first, KINDS[request.first.rule_type]
    fields = [f"metadata.name={at.name}"] if at.name else [f"metadata.namespace!={each}" for each in request.excluded]
    reduce = partial(_reduced, reducer, kind, request)
    return List(kind.resource, WholeObject, reduce, request.namespace, at.selector, ",".join(fields), tag=request)


def _is_nowhere(read: list[tuple[SourceQuery, Source]] | InvalidObject) -> bool:
    """Whether this is an object that cannot be decoded, and whose namespace is not known."""
    return isinstance(read, InvalidObject) and not read.key.namespace


def _by_query(
    request: _Request, objects: Iterable[list[tuple[SourceQuery, Source]] | InvalidObject]
) -> dict[SourceQuery, tuple[Source, ...]]:
    found: dict[SourceQuery, list[Source]] = {query: [] for query in chain.from_iterable(request.queries.values())}
    for each in objects:
        if isinstance(each, InvalidObject):
            for query in request.queries.get(request.namespace or each.key.namespace, ()):
                found[query].append(each)
        else:
            for query, source in each:
                found[query].append(source)
    return {query: tuple(sorted(sources, key=name_of)) for query, sources in found.items()}


def _reduced(
    reducer: ObjectReducer, kind: Kind, request: _Request, read: WholeObject
) -> list[tuple[SourceQuery, Source]]:
    """Return the source of each query; nothing of an object in a namespace that no rule names."""
    namespace = request.namespace or read.metadata.namespace
    if not namespace:
        raise InvalidObjectError("metadata.namespace is not set")
    queries = request.queries.get(namespace, ())
    content = read.content(kind.layout) if queries else None
    return [(query, _with_keys(reducer, kind, read, content, query.keys)) for query in queries if content]


def _with_keys(
    reducer: ObjectReducer, kind: Kind, read: WholeObject, content: WholeContent, keys: KeySelection
) -> ReducedObject | RefusedSource:
    """Return a source with the keys that are copied; a source that is never copied stays as it is."""
    key = ObjectKey(kind.name, read.metadata.name, read.metadata.namespace)
    try:
        content = select(keys, kind, content)
    except ValueError as error:
        source = reducer.reduce(kind.layout, read, content)
        why = f"{error}; correct the source, or spec.keys of the rule"
        return source if kind.why_never_copied(source) else RefusedSource(key, why)
    source = reducer.reduce(kind.layout, read, content)
    if kind.has_subjects and isinstance(source.content, Digested):
        reducer.has_refused = True
        return RefusedSource(key, "it is too large to be copied")
    return source
