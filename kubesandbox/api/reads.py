"""get, list and watch: selectors, pages, and the three forms of an answer (objects, metadata only, table)."""

from __future__ import annotations

import base64
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from . import tables
from .cluster import Answer, Call, Cluster
from .errors import MEDIA_TYPES, ApiError, bad_request, not_found
from .selectors import field_terms, field_tests, label_tests
from .store import Change, Stored, key_of

Obj = dict[str, Any]
CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
OBJECTS, METADATA, TABLE = "objects", "metadata", "table"
_SELECTABLE = {
    "Event": "reason type source reportingComponent involvedObject.kind involvedObject.namespace involvedObject.name "
    "involvedObject.uid involvedObject.apiVersion involvedObject.fieldPath involvedObject.resourceVersion",
    "Secret": "type",
    "Namespace": "status.phase",
    "Pod": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork "
    "status.phase status.podIP status.nominatedNodeName",
    "Job": "status.successful",
}


def form_of(accept: str) -> str:
    """The first form in the Accept header that is served."""
    for choice in accept.split(",") if accept else ["*/*"]:
        media, *parameters = (part.strip() for part in choice.split(";"))
        settings = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if media not in ("application/json", "*/*", "application/*"):
            continue
        form = settings.get("as")
        if form is None:
            return OBJECTS
        if form == "Table" and settings.get("v") == "v1":
            return TABLE
        if form in ("PartialObjectMetadata", "PartialObjectMetadataList") and settings.get("v") == "v1":
            return METADATA
    text = "406: Not Acceptable\n\nAvailable representations: " + ", ".join(MEDIA_TYPES)
    raise ApiError(406, "NotAcceptable", text, {})


def filter_of(call: Call) -> Callable[[Stored], bool] | None:
    """Whether an object is selected; None if all are."""
    resource = call.resource
    known = {"metadata.name", "metadata.namespace", *_SELECTABLE.get(resource.kind, "").split()}
    if resource.schema:
        known |= resource.schema.selectable
    by_fields = field_tests(call.query.get("fieldSelector", ""), known)
    by_labels = label_tests(call.query.get("labelSelector", ""))

    def selects(item: Stored) -> bool:
        labels = item.obj["metadata"].get("labels") or {}
        return all(test(labels) for test in by_labels) and all(test(item.obj) for test in by_fields)

    return selects if by_labels or by_fields else None


def get(cluster: Cluster, call: Call) -> Answer:
    """One object."""
    item = cluster.store.get(call.resource, call.namespace, call.name)
    if item is None:
        raise not_found(call.resource, call.name)
    return shown(call, item)


def shown(call: Call, item: Stored, status: int = 200) -> Answer:
    """One object in the requested form."""
    return Answer(status, _in_form(call, form_of(call.headers.get("accept", "")), item))


def _in_form(call: Call, form: str, item: Stored) -> bytes:
    if form == METADATA:
        return item.metadata_only
    if form == TABLE:
        return tables.render(call.resource, [item], call.query, {"resourceVersion": str(item.version)})
    return item.raw


@dataclass(frozen=True)
class Page:
    """One page of a list."""

    items: list[Stored]
    version: int
    token: str = ""
    remaining: int | None = None


def encode_token(version: int, start: str) -> str:
    """A continue token, in the form that etcd3 storage uses."""
    raw = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": start + "\x00"})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_token(token: str) -> tuple[int, str]:
    """The version and the last key of a continue token."""
    try:
        raw = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(raw["rv"]), str(raw["start"]).rstrip("\x00")
    except (ValueError, KeyError, TypeError, msgspec.DecodeError):
        why = "illegal base64 data at input byte 0"
        raise bad_request(f"invalid continue token: continue key is not valid: {why}") from None


def page(cluster: Cluster, call: Call) -> Page:
    """The requested page of a list."""
    store, resource = cluster.store, call.resource
    limit = _number(call, "limit")
    selected = filter_of(call)
    token = call.query.get("continue", "")
    if token and call.query.get("resourceVersion") not in (None, "", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    with store.lock:
        if single := _single(call):
            item = store.get(resource, *single)
            return Page([item] if item and (not selected or selected(item)) else [], store.version)
        if token:
            version, start, whole = _rest(cluster, call, token)
        else:
            _check_version(cluster, call)
            version, start, whole = store.version, 0, store.items(resource, call.namespace)
        items = whole[start:]
        matching = ((place, item) for place, item in enumerate(items) if not selected or selected(item))
        taken = list(islice(matching, limit if limit > 0 else None))
        found = [item for _, item in taken]
        if not limit or len(found) != limit or taken[-1][0] == len(items) - 1:
            return Page(found, version)
        store.keep_snapshot(resource, call.namespace, version, whole)
    remaining = None if selected else len(items) - len(found)
    return Page(found, version, encode_token(version, _relative(call, found[-1])), remaining)


def _single(call: Call) -> tuple[str, str] | None:
    """Namespace and name, when the field selector leaves no choice: then there are no pages."""
    exact = {path: value for path, value, equal in field_terms(call.query.get("fieldSelector", "")) if equal}
    name, namespace = exact.get("metadata.name"), call.namespace or exact.get("metadata.namespace", "")
    if not name or (call.resource.namespaced and not namespace):
        return None
    return namespace, name


def _relative(call: Call, item: Stored) -> str:
    return item.name if call.namespace else key_of(item.namespace, item.name)


def _rest(cluster: Cluster, call: Call, token: str) -> tuple[int, int, list[Stored]]:
    version, after = decode_token(token)
    if version == -1:
        version = cluster.store.version
    whole = cluster.store.snapshot(call.resource, call.namespace, version)
    if whole is None:
        raise ApiError(410, "Expired", CONTINUE_EXPIRED, metadata={"continue": encode_token(-1, after)})
    return version, bisect_right(whole, after, key=lambda item: _relative(call, item)), whole


def _number(call: Call, name: str) -> int:
    text = call.query.get(name, "")
    if text and not text.lstrip("-").isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)


def _check_version(cluster: Cluster, call: Call) -> None:
    text = call.query.get("resourceVersion", "")
    if text and not text.isdigit():
        raise bad_request(f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    if text and int(text) > cluster.store.version:
        details = {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }
        raise ApiError(504, "Timeout", f"Too large resource version: {text}, current: {cluster.store.version}", details)


def list_objects(cluster: Cluster, call: Call) -> Answer:
    """A list in the requested form."""
    form = form_of(call.headers.get("accept", ""))
    found = page(cluster, call)
    meta: Obj = {"resourceVersion": str(found.version)}
    if found.token or (call.resource.schema and form != TABLE):
        meta["continue"] = found.token
    if found.token and found.remaining is not None:
        meta["remainingItemCount"] = found.remaining
    if form == TABLE:
        return Answer(200, tables.render(call.resource, found.items, call.query, meta))
    if form == METADATA:
        parts = [item.metadata_only for item in found.items]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
    else:
        parts = [item.raw for item in found.items]
        head = {"kind": call.resource.items_kind, "apiVersion": call.resource.api_version, "metadata": meta}
        if not call.resource.schema:
            parts = [bare(item) for item in found.items]
    opening = msgspec.json.encode(head)[:-1]
    if form == METADATA and not parts:
        return Answer(200, opening + b',"items":null}')  # as kube-apiserver: an empty list of metadata is null
    return Answer(200, b"".join((opening, b',"items":[', b",".join(parts), b"]}")))


def bare(item: Stored) -> bytes:
    """The JSON of a built-in object inside a list: without kind and apiVersion, as the server has it."""
    if item.raw.startswith(item.heading):
        return b"{" + item.raw[len(item.heading) :]
    return item.raw


def watch(cluster: Cluster, call: Call) -> Answer:
    """A stream of changes."""
    return Answer(200, stream=_events(cluster, call))


def _events(cluster: Cluster, call: Call) -> Iterator[bytes]:
    selected, form = filter_of(call) or (lambda _item: True), form_of(call.headers.get("accept", ""))
    text = call.query.get("resourceVersion", "")
    initial = call.query.get("sendInitialEvents") == "true" or text in ("", "0")
    deadline = time.monotonic() + (_number(call, "timeoutSeconds") or 1800)
    store = cluster.store
    with store.lock:
        since = store.version if initial else int(text)
        lost = not initial and len(store.log) == store.log.maxlen and since < store.log[0].version - 1
        items = [item for item in store.items(call.resource, call.namespace) if initial and selected(item)]
    if lost:
        too_old = ApiError(410, "Expired", f"too old resource version: {since}")
        yield _line("ERROR", msgspec.json.encode(too_old.status()))
        return
    for item in items:
        yield _line("ADDED", _in_form(call, form, item))
    if call.query.get("sendInitialEvents") == "true":
        yield _bookmark(call, since)
    while time.monotonic() < deadline:
        with store.changed:
            fresh = [
                change
                for change in store.since(since)
                if change.resource == call.resource.key and call.namespace in ("", change.item.namespace)
            ]
            if not fresh:
                store.changed.wait(min(0.5, max(0.0, deadline - time.monotonic())))
        for change in fresh:
            since = change.version
            yield from _event(call, form, selected, change)
        if not fresh:
            yield b""


def _event(call: Call, form: str, selected: Callable[[Stored], bool], change: Change) -> Iterator[bytes]:
    now, before = selected(change.item), bool(change.previous and selected(change.previous))
    kind = change.type
    if kind == "MODIFIED" and now != before:
        kind = "ADDED" if now else "DELETED"
    if now or before:
        yield _line(kind, _in_form(call, form, change.item))


def _bookmark(call: Call, version: int) -> bytes:
    meta = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    obj = {"kind": call.resource.kind, "apiVersion": call.resource.api_version, "metadata": meta}
    return _line("BOOKMARK", msgspec.json.encode(obj))


def _line(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"
