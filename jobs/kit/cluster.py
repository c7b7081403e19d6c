"""The Kubernetes API's verbs on top of the transport: paged lists, many gets, writes; and its errors as exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from jobs.kit.errors import ApiError
from jobs.kit.model import Action
from jobs.kit.objects import EVENTS, DataObject, Resource
from jobs.kit.transport import Answer, Request, Transport

# As client-go's; a page of metadata is about 0.6 MB and is reduced before the next is asked for (docs/performance.md).
PAGE_SIZE = 500
DATA_PAGE_SIZE = 100  # of ConfigMaps and Secrets in full, which may hold 1 MB each
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_LIST_ATTEMPTS = 3

Item = TypeVar("Item")
Reduced = TypeVar("Reduced")


class _ListMetadata(Struct, rename={"token": "continue"}):
    token: str = ""


class _AccessReviewStatus(Struct):
    allowed: bool = False


class _AccessReview(Struct):
    status: _AccessReviewStatus


class _Cause(Struct):
    reason: str = ""


class _Details(Struct):
    causes: list[_Cause] | None = None


class _Status(Struct):
    message: str = ""
    details: _Details | None = None


@dataclass(frozen=True)
class Cluster:
    """One API server. `manager` is the field manager of every write; `writes_per_second` bounds those of objects."""

    transport: Transport
    manager: str
    writes_per_second: float | None = None

    def objects(
        self,
        resource: Resource,
        item: type[Item],
        *,
        namespace: str = "",
        selector: str = "",
        metadata_only: bool = False,
    ) -> Iterator[Item]:
        """Yield the objects of a list, decoded as `item`, page by page: no more than a page is held in memory.

        Raises:
            ApiError: also in the middle, with status 410 when the list expired; what was yielded is then no whole view.
        """
        decoder = _list_decoder(item)
        limit = DATA_PAGE_SIZE if item is DataObject else PAGE_SIZE
        token = ""
        while True:
            query = {"limit": str(limit), "labelSelector": selector, "continue": token}
            path = f"{resource.path(namespace)}?{urlencode({k: v for k, v in query.items() if v})}"
            accept = _METADATA_LIST if metadata_only else "application/json"
            items, token = self._page(Request("GET", path, accept=accept), decoder)
            yield from items
            if not token:
                return
            del items  # before the next page comes

    def _page(self, request: Request, decoder: msgspec.json.Decoder[Any]) -> tuple[list[Any], str]:
        """Return the items of a page, and the token of the next one. A page may be empty and not be the last."""
        body = _checked(self.transport.send(request))
        try:
            page = decoder.decode(body)
        except msgspec.DecodeError as error:
            why = f"the answer to GET {request.path} is no list of the Kubernetes API: {error}"
            raise ApiError(0, why) from error
        return page.items or [], page.metadata.token

    def read(self, wanted: Iterable[tuple[Resource, str, str, bool]]) -> Iterator[Answer]:
        """GET many objects, given as (resource, namespace, name, in full); yield raw answers tagged with each."""
        return self.transport.stream(
            Request(
                "GET", each[0].path(each[1], each[2]), accept="application/json" if each[3] else _METADATA, tag=each
            )
            for each in wanted
        )

    def write(self, writes: Iterable[tuple[Action, str, bytes, Any]], *, dry_run: bool) -> Iterator[Answer]:
        """Send writes, given as (action, path of the object, body, tag), and yield raw answers in no order.

        With `dry_run` the server checks each and keeps none.
        """
        query = urlencode({"fieldManager": self.manager, **({"dryRun": "All"} if dry_run else {})})
        requests = (_write_request(*write, query) for write in writes)
        return self.transport.stream(requests, per_second=self.writes_per_second)

    def state(self, patches: Iterable[tuple[str, bytes, Any]]) -> Iterator[Answer]:
        """Merge into statuses, given as (path of the object, patch, tag); yield raw answers in no order."""
        query = urlencode({"fieldManager": self.manager})
        return self.transport.stream(
            Request("PATCH", f"{path}/status?{query}", patch, content_type=_MERGE, tag=tag)
            for path, patch, tag in patches
        )

    def tell(self, events: Iterable[tuple[Mapping[str, Any], Any]]) -> Iterator[Answer]:
        """Create Events, given as (object, tag); yield raw answers in no order.

        The name of each is unique, so it may be sent again: 409 says that an earlier try arrived.
        """
        return self.transport.stream(
            Request("POST", EVENTS.path(event["metadata"]["namespace"]), msgspec.json.encode(event), tag=tag)
            for event, tag in events
        )

    def may(self, verb: str, resource: Resource) -> bool:
        """Whether the credentials have a right in all namespaces; asking is open to everybody and changes nothing.

        https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
        """
        group, _, version = resource.api_version.rpartition("/")
        attributes = {"verb": verb, "group": group, "version": version, "resource": resource.plural}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self.transport.send(Request("POST", path, msgspec.json.encode(review)))
        error = error_of(answer)
        if error and error.is_permission:
            return False  # some clusters do not let everybody ask
        return msgspec.json.decode(_checked(answer), type=_AccessReview).status.allowed


def _write_request(action: Action, path: str, body: bytes, tag: Any, query: str) -> Request:
    if action is Action.CREATE:
        # Not repeated blindly: a create whose answer was lost is followed by a look.
        return Request("POST", f"{path.rpartition('/')[0]}?{query}", body, repeatable=False, tag=tag)
    if action is Action.DELETE:
        return Request("DELETE", f"{path}?{query}", body, tag=tag)
    if action in (Action.APPLY, Action.APPLY_NEW):
        # What is ours we take back: https://kubernetes.io/docs/reference/using-api/server-side-apply/#using-server-side-apply-in-a-controller
        force = "&force=true" if action is Action.APPLY else ""
        return Request("PATCH", f"{path}?{query}{force}", body, content_type=_APPLY, tag=tag)
    if action in (Action.ANNOTATE, Action.ROLL):
        return Request("PATCH", f"{path}?{query}", body, content_type=_MERGE, tag=tag)
    return Request("PUT", f"{path}?{query}", body, tag=tag)


def whole(read: Callable[[], Reduced]) -> Reduced:
    """Return what `read` makes of a list, starting over when the list expires half-way: half a list is no list."""
    for attempt in range(_LIST_ATTEMPTS):
        try:
            return read()
        except ApiError as error:
            if error.status != 410 or attempt == _LIST_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def error_of(answer: Answer) -> ApiError | None:
    """Return what went wrong with a request, or None."""
    if 200 <= answer.status < 300:
        return None
    if not answer.status:
        return ApiError(0, answer.error)
    if answer.status == 401:
        return ApiError(401, "Unauthorized: the API server does not accept these credentials; check the context's user")
    try:
        status = msgspec.json.decode(answer.body, type=_Status)
    except msgspec.DecodeError:
        text = answer.body[:200].decode(errors="replace").strip()
        return ApiError(
            answer.status, f"HTTP {answer.status} for {answer.request.method} {answer.request.path}: {text}"
        )
    causes = [cause.reason for cause in (status.details and status.details.causes) or []]
    return ApiError(answer.status, status.message or f"HTTP {answer.status}", causes)


def _checked(answer: Answer) -> bytes:
    error = error_of(answer)
    if error:
        raise error
    return answer.body


def _list_decoder(item: type[Any]) -> msgspec.json.Decoder[Any]:
    fields: list[tuple[str, Any, Any]] = [
        ("metadata", _ListMetadata, msgspec.field(default_factory=_ListMetadata)),
        ("items", list[item] | None, None),  # type: ignore[valid-type]
    ]
    return msgspec.json.Decoder(msgspec.defstruct("List", fields))
