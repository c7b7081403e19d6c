"""Read the sources of all rules: many lists at once, or one list of all namespaces if that is less.

A rule names the namespaces of its sources. With many of them, most requests of a run were lists of one namespace. If
many such lists have the same kind and label selector, `_matching_namespaces` first lists the metadata of all objects
with these labels. This is safe:

- It is read after copies, rules and namespaces, as all lists of sources. A namespace without a match has no source at
  that time, and needs no other list. A source that is created later is like one that is created after the run.
- The contents come from a second list, which is newer. It has the sources that were created meanwhile, and not those
  that were deleted.
- It has no contents of namespaces that no rule names: the second list excludes those with a match by a field selector.
  An object that gets the labels between both lists, in another namespace, is dropped when its page is decoded.
- If one of both lists fails, or has too many objects, the run lists each namespace, and reports errors by namespace.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby, islice
from typing import NamedTuple

from jobs.core.sync_copies.keys import KeySelection, select
from jobs.core.sync_copies.kinds import KINDS, Kind
from jobs.core.sync_copies.observed import RefusedSource, Source
from jobs.core.sync_copies.rules import SourceQuery
from jobs.core.sync_copies.sources import name_of
from jobs.kit.api.cluster import Cluster, List, retry_if_expired
from jobs.kit.data.contents import Digested, WholeContent
from jobs.kit.data.objects import ObjectReducer, ReducedObject, WholeObject
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.metadata import PartialObject
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import InvalidObject

# Two lists of all namespaces cost a server with 100,000 Secrets as much as 100 lists of one (docs/performance.md).
_FEWEST_NAMESPACES = 100
_MOST_OBJECTS = 4  # per namespace: a page of 500 objects costs about as much as 10 short lists
_MOST_EXCLUDED = 50  # namespaces, in a URL
_BYTES_OF_SUBJECTS = 4 << 20  # of all sources with subjects
_TOO_LARGE = "it is too large to be copied"


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

    @property
    def all_queries(self) -> Iterator[SourceQuery]:
        """The queries of all namespaces."""
        return chain.from_iterable(self.queries.values())

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
    requests = [_Request({at.namespace: list(same)}) for at, same in groupby(sorted(queries), SourceQuery.request)]
    subjects = [each for each in requests if KINDS[each.first.rule_type].has_subjects]
    read = _read(cluster, subjects, ObjectReducer(used, _BYTES_OF_SUBJECTS))
    if any(map(_is_too_large, chain.from_iterable(read.found.values()))):
        # Together they are too large. One after another: so the order of answers does not decide which are refused.
        of_subjects = ObjectReducer(used, _BYTES_OF_SUBJECTS)
        read = _joined(_lists(cluster, [each], of_subjects) for each in subjects)
    others = [each for each in requests if not KINDS[each.first.rule_type].has_subjects]
    return _joined([read, _read(cluster, others, reducer)])


def _is_too_large(source: Source) -> bool:
    return isinstance(source, RefusedSource) and source.reason == _TOO_LARGE


def _joined(parts: Iterable[Sources]) -> Sources:
    found: dict[SourceQuery, tuple[Source, ...]] = {}
    errors: dict[SourceQuery, ApiError] = {}
    for part in parts:
        found |= part.found
        errors |= part.errors
    return Sources(found, errors)


def _read(cluster: Cluster, requests: Sequence[_Request], reducer: ObjectReducer) -> Sources:
    """Read the sources of requests for one namespace each."""
    lists: list[_Request] = []
    absent: dict[SourceQuery, tuple[Source, ...]] = {}
    for (rule_type, selector, name), group in groupby(sorted(requests, key=_of_all), _of_all):
        same = list(group)
        matching = None
        if selector and not name and len(same) >= _FEWEST_NAMESPACES:
            matching = _matching_namespaces(cluster, rule_type, selector, len(same))
        if matching is None:
            lists += same
            continue
        rest = [each for each in same if each.namespace in matching]
        excluded = sorted(matching - {each.namespace for each in same})
        absent |= {
            query: () for each in same if each.namespace not in matching for query in each.queries[each.namespace]
        }
        if len(rest) >= _FEWEST_NAMESPACES and len(excluded) <= _MOST_EXCLUDED:
            lists.append(_Request({each.namespace: each.queries[each.namespace] for each in same}, excluded))
        else:
            lists += rest
    return _joined([Sources(absent, {}), _lists(cluster, lists, reducer)])


def _of_all(request: _Request) -> tuple[str, str, str]:
    """Return type, selector and name of a request: equal ones can be one list of all namespaces."""
    return request.first.rule_type, request.first.selector, request.first.name


def _matching_namespaces(cluster: Cluster, rule_type: str, selector: str, namespaces: int) -> set[str] | None:
    """Return the namespaces with objects that the selector matches; None if that is not known, or they are too many."""
    most = _MOST_OBJECTS * namespaces
    objects = partial(
        cluster.objects, KINDS[rule_type].resource, PartialObject, _namespace_of, selector=selector, metadata_only=True
    )
    try:
        found = retry_if_expired(lambda: list(islice(objects(), most + 1)))
    except ApiError:
        return None
    matching = {each.key.namespace if isinstance(each, InvalidObject) else each for each in found}
    return None if len(found) > most or "" in matching else matching


def _namespace_of(read: PartialObject) -> str:
    return read.metadata.namespace


def _lists(cluster: Cluster, requests: Iterable[_Request], reducer: ObjectReducer) -> Sources:
    """Send the lists. A list of all namespaces that fails is sent again as lists of one namespace each."""
    found: dict[SourceQuery, tuple[Source, ...]] = {}
    errors: dict[SourceQuery, ApiError] = {}
    again: list[_Request] = []
    for request, objects in cluster.lists([_list(each, reducer) for each in requests]):
        if request.namespace and isinstance(objects, ApiError):
            errors[request.first.request()] = objects
        elif isinstance(objects, ApiError) or (not request.namespace and any(map(_is_nowhere, objects))):
            again += request.split()
        else:
            found |= _by_query(request, objects)
    return _joined([Sources(found, errors), *([_lists(cluster, again, reducer)] if again else ())])


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
    found: dict[SourceQuery, list[Source]] = {query: [] for query in request.all_queries}
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
    too_large = kind.has_subjects and isinstance(source.content, Digested)
    return RefusedSource(key, _TOO_LARGE) if too_large else source
