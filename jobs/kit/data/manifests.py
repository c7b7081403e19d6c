"""Differences between actual and desired objects, without values of Secrets, and the bodies of the writes. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, structs

from jobs.kit.data.contents import (
    AnyContent,
    Content,
    Digested,
    FieldContent,
    Layout,
    WholeContent,
    can_update,
    digested,
    same_content,
)
from jobs.kit.data.objects import Header, ObjectReducer, ReducedObject, WholeObject
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.hidden import quoted_forms
from jobs.kit.values.model import Action, Body, Change, Deletion, FieldDiff, NewBody, ObjectKey, Recreation
from jobs.kit.values.reads import decode
from jobs.kit.values.text import HIDDEN, listed

_MOST_FIELDS_NAMED = 4
_LONGEST_LINE = 66  # of JSON: with the indentation of a report, it fits a terminal
TOO_LARGE = "(too large to be shown)"


def content_diff(actual: AnyContent | None, desired: AnyContent, *, secret: bool) -> tuple[FieldDiff, ...]:
    """Return the changed fields. `actual` None: the object does not exist. `secret`: show values in `data` as `***`.

    If the values of one side were too large to keep in memory, none is shown.
    """
    is_digested = isinstance(actual, Digested) or isinstance(desired, Digested)
    values = _digests if is_digested else _values
    before, after = values(actual), values(desired)
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if is_digested or (secret and name.startswith("data.")):
            shown = TOO_LARGE if is_digested else HIDDEN
            old, new = (None if each is None else shown for each in (old, new))
        elif isinstance(desired, FieldContent) and old and new and max(len(old), len(new)) > _LONGEST_LINE:
            old, new = _in_lines(old), _in_lines(new)
        found.append(FieldDiff(name, old, new))
    return tuple(found)


def _values(content: AnyContent | None) -> dict[str, str]:
    return {} if content is None or isinstance(content, Digested) else dict(content.values())


def _digests(content: AnyContent | None) -> dict[str, str]:
    if content is None:
        return {"immutable": str(False)}
    found = digested(content)
    return {**found.digests, "immutable": str(found.immutable)}


def _in_lines(text: str) -> str:
    """Return a list, which is JSON, in several lines, so that a diff shows the items that changed."""
    try:
        value = json.loads(text) if text.startswith("[") else None
    except ValueError:  # a name that begins with a bracket
        return text
    return json.dumps(value, indent=1, ensure_ascii=False) if isinstance(value, list) else text


def metadata_diff(labels: Mapping[str, str], annotations: Mapping[str, str], actual: Header) -> tuple[FieldDiff, ...]:
    """Return the changed labels and annotations; those that other managers own do not count."""
    found = []
    for where, desired, present, owned in (
        ("label", labels, actual.labels, actual.ownership.labels),
        ("annotation", annotations, actual.annotations, actual.ownership.annotations),
    ):
        if present == desired:
            continue  # the usual case, ten times faster this way
        for key in sorted(desired.keys() | (owned & present.keys())):
            if present.get(key) != desired.get(key):
                found.append(FieldDiff(f"{where} {key}", present.get(key), desired.get(key)))
    return tuple(found)


def shown_metadata(found: Iterable[FieldDiff], *, secret: bool = False) -> list[FieldDiff]:
    """Return the changed labels and annotations to show: those of the stamp are left out.

    `secret`: without values, since an annotation of a Secret may contain its data.
    """
    shown = [difference for difference in found if "kubechores.dev/" not in difference.field]
    if not secret:
        return shown
    return [each._replace(actual=each.actual and HIDDEN, desired=each.desired and HIDDEN) for each in shown]


def fields_changed(found: Sequence[FieldDiff], managers: Iterable[str]) -> str:
    """Return which fields changed, and the managers that changed them: "data.a, data.b changed by kubectl"."""
    named = listed([difference.field for difference in found], _MOST_FIELDS_NAMED)
    by = ", ".join(managers)
    return f"{named} changed{f' by {by}' if by else ''}"


# https://github.com/kubernetes/apimachinery/blob/master/pkg/api/validation/objectmeta.go
_LONGEST_ANNOTATIONS = 256 << 10


class ContentManifest(NewBody, frozen=True, gc=False):
    """The body of a create. `owner_references` is JSON.

    If `content` has only digests, the content is read again from `source` before the write, and `select` returns the
    part of it that is copied.
    """

    layout: Layout
    key: ObjectKey
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    content: AnyContent
    owner_references: bytes = b""
    source: ObjectKey | None = None
    select: Callable[[WholeContent], WholeContent] | None = None

    @property
    def reads(self) -> tuple[ObjectKey, ...]:
        """The objects to read before the write."""
        return (self.source,) if self.source and isinstance(self.content, Digested) else ()

    def completed(self, read: Mapping[ObjectKey, bytes]) -> ContentManifest:
        """Return the manifest with the content of the source in `read`.

        Raises:
            InvalidObjectError: the source changed since its digests were computed.
        """
        if not self.reads:
            return self
        assert self.source
        content = decode(read[self.source], WholeObject).content(self.layout)
        with suppress(ValueError):  # the source no longer has the chosen keys
            content = self.select(content) if self.select else content
            if same_content(content, self.content):
                return structs.replace(self, content=content)
        raise InvalidObjectError(f"{self.source} changed meanwhile")

    def encode(self, more: Mapping[str, Any] = {}, fields: Mapping[str, Any] = {}) -> bytes:
        """Return the object as JSON; `more` overrides fields of its metadata, and `fields` are not copied."""
        metadata: dict[str, Any] = {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        }
        if self.owner_references:
            metadata["ownerReferences"] = Raw(self.owner_references)
        assert not isinstance(self.content, Digested), "completed() comes before encode()"
        resource = self.layout.resource
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {**metadata, **more}}
        return msgspec.json.encode({**head, **self.content.document(), **fields})

    def changed_by_server(self, response: bytes) -> tuple[str, ...]:
        """Return the fields of the content that admission changed, by the server's response to the write."""
        stored = decode(response, WholeObject).content(self.layout)
        if stored == self.content:
            return ()
        return tuple(difference.field for difference in content_diff(stored, self.content, secret=True))

    def redact(self, text: str) -> str:
        """Return the text without values of the Secret: an admission webhook may quote the object that it denies."""
        if not self.layout.is_secret:
            return text
        if not isinstance(self.content, Content):
            return "(not shown: it may quote a value of the Secret)"
        for spelling in sorted(quoted_forms(self.content.data.values()), key=len, reverse=True):
            text = text.replace(spelling, HIDDEN)
        return text

    def renamed(self, name: str) -> ContentManifest:
        """Return the same object under another name, for a dry run while the object itself exists."""
        return structs.replace(self, key=self.key._replace(name=name))


class Replacement(Body, frozen=True, gc=False):
    """The body of a replace: `manifest` in place of exactly that version of `actual`.

    It includes the labels and annotations of other clients and the finalizers of `actual`. It also includes its owners,
    unless `manifest` has some, and its fields that are not copied (`kept`). A replace without them would remove them.
    """

    manifest: ContentManifest
    actual: ReducedObject
    kept: Mapping[str, Any] = {}

    @property
    def reads(self) -> tuple[ObjectKey, ...]:
        """The objects to read before the write."""
        return (*self.manifest.reads, self.manifest.key) if self._reads_actual else self.manifest.reads

    @property
    def _reads_actual(self) -> bool:
        return not self.actual.header.is_whole or bool(self.manifest.layout.kept)

    def completed(self, read: Mapping[ObjectKey, bytes]) -> Replacement:
        """Return the replacement with the objects in `read`.

        Raises:
            InvalidObjectError: the source changed since its digests were computed.
            ApiError: the object itself changed, with status 409 as from the API server.
        """
        manifest = self.manifest.completed(read)
        if not self._reads_actual:
            return Replacement(manifest, self.actual)
        layout, body = manifest.layout, read[manifest.key]
        actual = ObjectReducer(None).decode(layout, body, full=False)
        if actual.version != self.actual.version:
            raise ApiError(409, f"{manifest.key} changed meanwhile")
        return Replacement(manifest, actual, decode(body, WholeObject).fields(layout.kept))

    def encode(self) -> bytes:
        """Return the object as JSON."""
        before, manifest = self.actual.header, self.manifest
        ownership = before.ownership
        metadata: dict[str, Any] = {
            "uid": self.actual.uid,
            "resourceVersion": self.actual.resource_version,
            "labels": {**_exclude(before.labels, ownership.labels), **manifest.labels},
            "annotations": {**_exclude(before.annotations, ownership.annotations), **manifest.annotations},
        }
        if before.owner_references and not manifest.owner_references:
            metadata["ownerReferences"] = Raw(before.owner_references)
        if before.finalizers:
            metadata["finalizers"] = Raw(before.finalizers)
        return manifest.encode(metadata, self.kept)

    def fits_without_others(self) -> bool:
        """Whether the annotations of the manifest alone are within the API server's limit."""
        annotations = self.manifest.annotations.items()
        return sum(len(key.encode()) + len(value.encode()) for key, value in annotations) <= _LONGEST_ANNOTATIONS

    def changed_by_server(self, response: bytes) -> tuple[str, ...]:
        """Return the fields of the content that admission changed."""
        return self.manifest.changed_by_server(response)

    def redact(self, text: str) -> str:
        """Return the text without values of the Secret."""
        return self.manifest.redact(text)


def manifest_of(body: Body) -> ContentManifest | None:
    """Return the manifest that a write stores; None for a body without one."""
    made = body.manifest if isinstance(body, Replacement | Recreation) else body
    return made if isinstance(made, ContentManifest) else None


def _exclude(values: Mapping[str, str], names: Container[str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


def repair(manifest: ContentManifest, actual: ReducedObject, recreated: ContentManifest | None = None) -> Change:
    """Return the write that changes a managed object to `manifest`: in place if the API allows it.

    If not, the object is deleted and created again from `recreated`, or from `manifest` if that is None.
    """
    before, after = actual.content, manifest.content
    if before is None or same_content(before, after) or can_update(before, after):
        return Change(Action.REPLACE, Replacement(manifest, actual))
    # The new object has no labels and annotations of other clients: this manager would own them.
    return Change(Action.RECREATE, Recreation(Deletion(actual.uid, actual.resource_version), recreated or manifest))
