"""The verbs of the Kubernetes API on top of the transport: paged lists, gets, writes, rights."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Raw, Struct

from jobs.kit.api import responses
from jobs.kit.api.memory import Share
from jobs.kit.api.responses import RESPONSE_BYTES, Request, Response
from jobs.kit.api.transport import Transport
from jobs.kit.values.errors import ApiError, InvalidObjectError, StoppedError
from jobs.kit.values.model import Action, ObjectKey
from jobs.kit.values.reads import InvalidObject, decode
from jobs.kit.values.resources import EVENTS, SECRETS, Resource

# As in client-go. A page of metadata has about 0.6 MB; it is reduced before the next request (docs/performance.md).
PAGE_SIZE = 500
# Of metadata, a page may have a tenth of the objects before it, up to this: it adds little to the memory of these.
LARGEST_PAGE_SIZE = 2000
PAGE_BYTES = 4 << 20
# etcd accepts requests of 1.5 MiB (https://etcd.io/docs/latest/dev-guide/limit/). JSON escapes some characters as six.
OBJECT_BYTES = 12 << 20
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA_LIST_KIND = ("meta.k8s.io/v1", "PartialObjectMetadataList")
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_AUTHORIZATION = "authorization.k8s.io/v1"
_MERGE = "application/merge-patch+json"
_METHODS = {
    Action.CREATE: ("POST", "application/json"),
    Action.REPLACE: ("PUT", "application/json"),
    Action.APPLY: ("PATCH", "application/apply-patch+yaml"),
    Action.APPLY_NEW: ("PATCH", "application/apply-patch+yaml"),
    Action.ANNOTATE: ("PATCH", _MERGE),
    Action.PATCH: ("PATCH", _MERGE),
    Action.ROLL: ("PATCH", _MERGE),
    Action.DELETE: ("DELETE", "application/json"),
}
_LIST_ATTEMPTS = 3
_LONGEST_NAME = 253
_LONGEST_TOKEN = 64 << 10  # libcurl fails for a URL of more than 8 MB
_BYTES_OF_AN_INVALID_OBJECT = 2048
_ESCAPED_AS_SIX = (b"<", b">", b"&")  # by the API server, and not in what is sent
_OBJECT = b'"resourceVersion":'  # once in each object of a list

Item = TypeVar("Item")
Reduced = TypeVar("Reduced")
P = ParamSpec("P")
Review: TypeAlias = tuple[str, Resource, str]  # a verb, a resource and the name of an object, or ""


class Write(NamedTuple):
    """A write of one object. `tag` comes back with the response; a create is sent to the collection."""

    action: Action
    resource: Resource
    namespace: str
    name: str
    body: bytes
    tag: Any


class List(NamedTuple):
    """A list request of `Cluster.lists`: objects decoded as `item` and reduced by `reduce`. `tag` comes back with it.

    Without a `namespace`, it lists those of all namespaces. `large`: the objects of one namespace have more than
    RESPONSE_BYTES together, so that no page is requested twice. `compressed`: the server may compress the responses;
    it never compresses values of Secrets. False for objects of several tenants: the length of compressed text can
    reveal parts of it.
    """

    resource: Resource
    item: type[Any]
    reduce: Callable[[Any], Any]
    namespace: str = ""
    selector: str = ""
    fields: str = ""
    metadata_only: bool = False
    tag: Any = None
    large: bool = False
    compressed: bool = True


class _Item(Struct):
    metadata: responses.ObjectName


class _PageMetadata(
    Struct, rename={"token": "continue", "version": "resourceVersion", "remaining": "remainingItemCount"}
):
    version: Annotated[str, Meta(min_length=1)]  # set in every list of the API server
    token: Annotated[str, Meta(max_length=_LONGEST_TOKEN)] = ""
    remaining: Raw = Raw()  # not decoded: a proxy may send a list of any length


class _Page(responses.TypeMeta):
    metadata: _PageMetadata
    items: list[Raw] | None


class _AccessReviewStatus(Struct):
    allowed: bool


class _AccessReview(responses.TypeMeta):
    status: _AccessReviewStatus


class _ResourceRule(Struct, rename="camel"):
    verbs: list[str]
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None

    def allows(self, verb: str, resource: Resource) -> bool:
        """Whether this rule allows the verb on all objects of the resource."""
        group, _, _ = resource.api_version.rpartition("/")
        wanted = ((self.verbs, verb), (self.api_groups, group), (self.resources, resource.plural))
        return not self.resource_names and all({"*", one} & set(given or ()) for given, one in wanted)


class _RulesReviewStatus(Struct, rename="camel"):
    resource_rules: list[_ResourceRule] | None = None
    incomplete: bool = False


class _RulesReview(responses.TypeMeta):
    status: _RulesReviewStatus


class Cluster(Struct, frozen=True):
    """One API server.

    `manager` is the field manager of every write; `writes_per_second` limits the writes of objects; statuses and Events
    do not count. A list with more than `most_objects` fails. `share` counts what is kept of one of several
    clusters. Its server is not trusted: answers to writes may not be much longer than what was written.
    """

    transport: Transport
    manager: str
    writes_per_second: float | None = None
    most_objects: int = sys.maxsize
    share: Share | None = None

    @property
    def take(self) -> Callable[[int], None] | None:
        """What to call with the bytes of each object that is kept; None: nobody counts them."""
        return self.share.take if self.share else None

    def objects(
        self,
        resource: Resource,
        item: type[Item],
        reduce: Callable[[Item], Reduced],
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        metadata_only: bool = False,
        compressed: bool = True,
    ) -> Iterator[Reduced | InvalidObject]:
        """List objects page by page; yield each one decoded as `item` and reduced by `reduce`. See `List`.

        Only one page is in memory. An object that cannot be decoded or reduced is yielded as an InvalidObject.

        Raises:
            ApiError: also after some objects. Status 410: the list expired, and the yielded objects are incomplete.
        """
        requested = List(resource, item, reduce, namespace, selector, fields, metadata_only, compressed=compressed)
        pages = _Pages(requested, PAGE_BYTES, self)
        while not pages.is_last:
            pages.receive(self.transport.send(pages.next_request()))
            yield from pages.reduced()

    def lists(self, requested: Iterable[List]) -> Iterator[tuple[Any, list[Any] | ApiError]]:
        """Send many lists at once; yield the tag of each with all its objects, when its last page arrived.

        Objects are as `objects()` yields them. A page is reduced while the next one of its list is in flight. A list
        that expires (410) starts again, at most three times. A list that fails is yielded as an ApiError; the others
        continue.

        Raises:
            StoppedError: the run was stopped before all lists had a response.
        """
        waiting = deque(requested)
        continued: deque[_Pages] = deque()
        unanswered: set[_Pages] = set()

        def requests() -> Iterator[Request]:
            while continued or waiting:
                # Next pages first: so few lists are incomplete at the same time, and a long one does not start last.
                each = continued.popleft() if continued else _first_page(waiting.popleft(), self)
                unanswered.add(each)
                yield each.next_request()
                each.found += each.reduced()  # the last page, while the next one is in flight

        while continued or waiting:
            is_stopped = True
            for response in self.transport.stream(requests()):
                is_stopped = False
                each: _Pages = response.request.tag
                unanswered.remove(each)
                each.found += each.reduced()
                try:
                    each.receive(response)
                except ApiError as error:
                    if error.status == 410 and each.attempt < _LIST_ATTEMPTS:
                        continued.appendleft(_first_page(each.requested, self, each.attempt + 1))
                    else:
                        yield each.requested.tag, error
                    continue
                del response  # before the caller works with the list
                if each.is_last:
                    each.found += each.reduced()
                    yield each.requested.tag, each.found
                else:
                    continued.appendleft(each)
            if is_stopped or unanswered:
                raise StoppedError

    def count(self, resource: Resource) -> int | None:
        """Return the number of objects of a resource in all namespaces; None if the API server does not report it.

        It does not count the objects of a selector.

        https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/list-meta/
        """
        response = self.transport.send(Request("GET", f"{resource.path()}?limit=1", accept=_METADATA_LIST))
        page = responses.decode_response(response, _Page, _METADATA_LIST_KIND)
        listed = len(page.items or [])
        if not page.metadata.token:
            return listed
        try:
            remaining = decode(page.metadata.remaining, int)
        except InvalidObjectError:
            return None
        return listed + remaining if remaining >= 0 else None

    def read(self, requested: Iterable[tuple[Resource, str, str, bool]]) -> Iterator[Response]:
        """GET many objects, given as (resource, namespace, name, in full); yield raw responses, tagged with that tuple.

        Large objects come last, one by one. A response has status 200 only if it is the requested object, and 404 only
        if it is a Status of the API server.
        """
        large: list[tuple[Resource, str, str, bool]] = []
        for response in self.transport.stream(_read_request(each) for each in requested):
            if response.is_too_long:
                large.append(response.request.tag)
            else:
                yield responses.check_read_response(response)
        yield from map(
            responses.check_read_response, self.transport.stream(_read_request(each, OBJECT_BYTES) for each in large)
        )

    def write(self, writes: Iterable[Write], *, dry_run: bool) -> Iterator[Response]:
        """Send writes and yield raw responses in no order. A response that is not one of the API has status 0.

        With `dry_run`, the API server checks each write and stores none.
        """
        query = urlencode({"fieldManager": self.manager, **({"dryRun": "All"} if dry_run else {})})
        sent = map(_as_dry_run, writes) if dry_run else writes
        requests = (_write_request(write, query, is_short=self.share is not None) for write in sent)
        for response in self.transport.stream(requests, per_second=self.writes_per_second):
            yield responses.check_write_response(response, response.request.tag.resource)

    def patch_statuses(self, patches: Iterable[tuple[Resource, ObjectKey, bytes, Any]]) -> Iterator[Response]:
        """Send merge patches of statuses, given as (resource, key, patch, tag); yield raw responses in no order."""
        query = urlencode({"fieldManager": self.manager})
        requests = (
            Request(
                "PATCH",
                f"{resource.path(key.namespace, key.name)}/status?{query}",
                patch,
                content_type=_MERGE,
                tag=(resource, tag),
                max_bytes=OBJECT_BYTES,
            )
            for resource, key, patch, tag in patches
        )
        for response in self.transport.stream(requests):
            yield responses.check_write_response(response, response.request.tag[0])

    def create_events(self, events: Iterable[tuple[Mapping[str, Any], Any]]) -> Iterator[Response]:
        """Create Events, given as (object, tag); yield raw responses in no order.

        The name of each is unique, so a request may be repeated. 409: an earlier attempt or run created the Event.
        """
        requests = (
            Request("POST", EVENTS.path(event["metadata"]["namespace"]), msgspec.json.encode(event), tag=(EVENTS, tag))
            for event, tag in events
        )
        for response in self.transport.stream(requests):
            yield responses.check_write_response(response, EVENTS)

    def can_in_all_namespaces(self, requested: Collection[tuple[str, Resource]]) -> set[tuple[str, Resource]]:
        """Return those pairs of a verb and a resource that the credentials can use on all objects in all namespaces.

        One SelfSubjectRulesReview, which needs no right, has the response for all of them. If it is incomplete, because
        an authorizer does not report its rules, an access review follows for each resource that it does not name.

        https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/self-subject-rules-review-v1/

        Raises:
            ApiError: a review failed.
            StoppedError: the run was stopped before all reviews had a response.
        """
        if not requested:
            return set()
        # A review is of one namespace, and includes the rights that are valid only there. None has this name.
        request = _review("SelfSubjectRulesReview", {"namespace": "-"}, None, OBJECT_BYTES)
        review = _decode_review(self.transport.send(request), _RulesReview, "SelfSubjectRulesReview")
        rules = (review and review.status.resource_rules) or ()
        found = {each for each in requested if any(rule.allows(*each) for rule in rules)}
        if review is None or review.status.incomplete:
            allowed = self.can_i((verb, resource, "") for verb, resource in requested if (verb, resource) not in found)
            found |= {(verb, resource) for (verb, resource, _), is_allowed in allowed.items() if is_allowed}
        return found

    def can_i(self, requested: Iterable[Review]) -> dict[Review, bool]:
        """Whether the credentials have each right in all namespaces, on all objects or on the one with the name.

        Each is a SelfSubjectAccessReview, which needs no right.

        https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access

        Raises:
            ApiError: a review failed.
            StoppedError: the run was stopped before all reviews had a response.
        """
        reviews = dict.fromkeys(requested)
        found = {}
        for response in [*self.transport.stream(map(_access_review, reviews))]:
            review = _decode_review(response, _AccessReview, "SelfSubjectAccessReview")
            found[response.request.tag] = review is not None and review.status.allowed
        if len(found) < len(reviews):
            raise StoppedError
        return found


def _review(kind: str, spec: Mapping[str, Any], tag: Any, max_bytes: int) -> Request:
    body = {"apiVersion": _AUTHORIZATION, "kind": kind, "spec": spec}
    path = f"/apis/{_AUTHORIZATION}/{kind.lower()}s"
    return Request("POST", path, msgspec.json.encode(body), tag=tag, max_bytes=max_bytes)


def _access_review(review: Review) -> Request:
    verb, resource, name = review
    group, _, version = resource.api_version.rpartition("/")
    attributes = {"verb": verb, "group": group, "version": version, "resource": resource.plural}
    spec = {"resourceAttributes": {**attributes, **({"name": name} if name else {})}}
    return _review("SelfSubjectAccessReview", spec, review, RESPONSE_BYTES)


def _decode_review(response: Response, form: type[responses.Form], kind: str) -> responses.Form | None:
    """Return the review; None if the credentials may not send one: some clusters do not allow it to every user."""
    error = responses.error_of(response)
    if error and error.is_permission and error.status != 401:
        return None
    return responses.decode_response(response, form, (_AUTHORIZATION, kind))


class _Pages:
    """The pages of one list, and its objects that were kept. At most one of its pages is in flight.

    `most` are the bytes of a page that is read; more are read only if a page has more. After a page that was too large,
    the next request has a smaller `limit`.
    """

    def __init__(self, requested: List, most: int, cluster: Cluster, attempt: int = 1) -> None:
        self.requested, self.most, self.attempt = requested, most, attempt
        self.most_objects, self.share = cluster.most_objects, cluster.share
        self.limit, self.token, self.is_last, self.received = PAGE_SIZE, "", False, 0
        self.found: list[Any] = []
        self.page: Sequence[Raw] = ()  # not reduced yet

    def next_request(self) -> Request:
        resource, _, _, namespace, selector, fields, metadata_only, *_ = self.requested
        query = {"limit": str(self.limit), "labelSelector": selector, "fieldSelector": fields, "continue": self.token}
        return Request(
            "GET",
            f"{resource.path(namespace)}?{urlencode({k: v for k, v in query.items() if v})}",
            accept=_METADATA_LIST if metadata_only else "application/json",
            max_bytes=self.most if self.limit > 1 else OBJECT_BYTES,
            # The length of compressed text can reveal parts of it to an eavesdropper: https://breachattack.com .
            compressed=self.requested.compressed and (metadata_only or resource != SECRETS),
            tag=self,
        )

    def receive(self, response: Response) -> None:
        """Keep the page of a response until it is reduced; no page if the same one must be requested again.

        Raises:
            ApiError: the response is an error, of another kind, or has objects of another namespace than the list.
        """
        if response.is_too_long and self.limit > 1:
            if self.most < PAGE_BYTES:
                self.most = PAGE_BYTES
            else:
                # Half of the objects that fit, if all have about the same size.
                self.limit = max(1, min(self.limit, response.start.count(_OBJECT)) // 2)
            return
        resource, namespace = self.requested.resource, self.requested.namespace
        kind = (resource.api_version, f"{resource.kind}List")
        page = responses.decode_response(response, _Page, _METADATA_LIST_KIND if self.requested.metadata_only else kind)
        places = (_name_of(each).namespace for each in page.items or ()) if namespace else ()
        if other := next((each for each in places if each not in ("", namespace)), ""):
            what = responses.mismatch(response, f"of namespace {namespace}")
            raise ApiError(0, f"{what}: it has objects of {other[:_LONGEST_NAME]!r}")
        self.received += len(page.items or ())
        if len(response.body) < PAGE_BYTES // 2:
            self.limit = min(self._largest_page(), self.limit * 2)  # only one of the objects may have been large
        if page.metadata.token and page.metadata.token == self.token:  # a proxy may repeat a page for ever
            raise ApiError(0, responses.mismatch(response, "the next page: it has the same continue token"))
        if self.received > self.most_objects:
            raise ApiError(0, f"{responses.mismatch(response, 'a complete list')}: it has too many objects")
        self.token = page.metadata.token
        self.is_last = not self.token
        self.page = page.items or ()

    def _largest_page(self) -> int:
        return max(PAGE_SIZE, min(self.received // 10, LARGEST_PAGE_SIZE if self.requested.metadata_only else 0))

    def reduced(self) -> Iterator[Any]:
        """Return the objects of the page that was received last, each decoded and reduced, or an InvalidObject."""
        page, self.page = self.page, ()
        resource, item, reduce, *_ = self.requested
        return (_decode_item(resource, each, number, item, reduce, self.share) for number, each in enumerate(page))


def _first_page(requested: List, cluster: Cluster, attempt: int = 1) -> _Pages:
    """Return a list of several that are requested at once.

    A page takes the room of its largest response, also if it is small. The objects of one namespace are usually few: so
    16 such lists are in flight, and not 2. If a page has more, it is requested again.
    """
    is_small = requested.namespace and not requested.large
    return _Pages(requested, min(RESPONSE_BYTES, PAGE_BYTES) if is_small else PAGE_BYTES, cluster, attempt)


def _as_dry_run(write: Write) -> Write:
    """Return the write with the dry run in the options of a delete: the API server ignores the query next to a body.

    https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/delete.go
    """
    if write.action is not Action.DELETE:
        return write
    options = decode(write.body, dict[str, Any])
    return write._replace(body=msgspec.json.encode({**options, "dryRun": ["All"]}))


def _write_request(write: Write, query: str, *, is_short: bool) -> Request:
    action, resource, namespace, name, body, _ = write
    method, content_type = _METHODS[action]
    is_create = action is Action.CREATE
    # Take back the fields of this manager: https://kubernetes.io/docs/reference/using-api/server-side-apply/#using-server-side-apply-in-a-controller
    force = "&force=true" if action is Action.APPLY else ""
    return Request(
        method,
        f"{resource.path(namespace, '' if is_create else name)}?{query}{force}",
        body,
        content_type=content_type,
        repeatable=not is_create,  # after a create whose response was lost, the run reads the object
        tag=write,
        max_bytes=_longest_answer(action, body) if is_short else OBJECT_BYTES,
        weighs_response=is_short,
    )


def _longest_answer(action: Action, body: bytes) -> int:
    """Return the most bytes of the object in an honest answer to a write: with more fields, and characters escaped.

    The answer to a delete has the object, if a finalizer keeps it.
    """
    if action is Action.DELETE:
        return PAGE_BYTES
    return RESPONSE_BYTES + 2 * len(body) + 5 * sum(map(body.count, _ESCAPED_AS_SIX))


def retry_if_expired(read: Callable[[], Reduced]) -> Reduced:
    """Return the result of `read`, a function that lists; call it again if the list expires before its end (410)."""
    for _ in range(_LIST_ATTEMPTS - 1):
        try:
            return read()
        except ApiError as error:
            if error.status != 410:
                raise
    return read()


def complete(
    objects: Callable[P, Iterable[Reduced | InvalidObject]], *args: P.args, **kwargs: P.kwargs
) -> tuple[list[Reduced], list[InvalidObject]]:
    """Return all that `objects` lists with these arguments, and what cannot be decoded; list again if it expires."""
    found = retry_if_expired(lambda: list(objects(*args, **kwargs)))
    valid = [each for each in found if not isinstance(each, InvalidObject)]
    return valid, [each for each in found if isinstance(each, InvalidObject)]


def _read_request(requested: tuple[Resource, str, str, bool], max_bytes: int = RESPONSE_BYTES) -> Request:
    resource, namespace, name, full = requested
    accept = "application/json" if full else _METADATA
    return Request("GET", resource.path(namespace, name), accept=accept, tag=requested, max_bytes=max_bytes)


def _name_of(raw: Raw) -> responses.ObjectName:
    try:
        return decode(raw, _Item).metadata
    except InvalidObjectError:
        return responses.ObjectName()


def _decode_item(
    resource: Resource, raw: Raw, number: int, item: type[Item], reduce: Callable[[Item], Reduced], share: Share | None
) -> Reduced | InvalidObject:
    try:
        return reduce(decode(raw, item))
    except InvalidObjectError as error:
        at = _name_of(raw)
        name = at.name[:_LONGEST_NAME] or f"(number {number + 1} of a page)"
        key = ObjectKey(resource.kind, name, at.namespace[:_LONGEST_NAME])
        if share:
            share.take(_BYTES_OF_AN_INVALID_OBJECT)
        return InvalidObject(key, error.without_traceback())
