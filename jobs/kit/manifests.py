"""What writes send: a ConfigMap or Secret, or the deletion of one; what the server made of it; which to choose."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from jobs.kit.decoding import decode
from jobs.kit.diff import HIDDEN, changes
from jobs.kit.errors import ApiError, InvalidObjectError
from jobs.kit.model import Action, Fix, ObjectKey
from jobs.kit.objects import (
    SECRETS,
    Content,
    DataObject,
    Digested,
    ObjectReducer,
    ReducedObject,
    Resource,
    same_content,
)

# https://github.com/kubernetes/apimachinery/blob/master/pkg/api/validation/objectmeta.go
_LONGEST_ANNOTATIONS = 256 << 10
_SHORTEST_HIDDEN = 4  # hiding every "a" would leave no sentence


class Manifest(Struct, frozen=True, gc=False):
    """What a create sends. `owner_references` is JSON.

    A content of which the run kept digests alone is read again from `source` when it is sent.
    """

    resource: Resource
    key: ObjectKey
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    content: Content | Digested
    owner_references: bytes = b""
    source: ObjectKey | None = None

    @property
    def reads(self) -> tuple[ObjectKey, ...]:
        """The objects to be read before this can be sent."""
        return (self.source,) if self.source and isinstance(self.content, Digested) else ()

    def completed(self, read: Mapping[ObjectKey, bytes]) -> Manifest:
        """Return the manifest with what was `read`.

        Raises:
            InvalidObjectError: the source is not as it was when its digests were made.
        """
        if not self.reads:
            return self
        assert self.source
        content = decode(read[self.source], DataObject).content
        if not same_content(content, self.content):
            raise InvalidObjectError(f"{self.source} changed meanwhile")
        return structs.replace(self, content=content)

    def encode(self) -> bytes:
        """Return the object as JSON."""
        return self.encoded_with({})

    def encoded_with(self, more: Mapping[str, Any]) -> bytes:
        """Return the object as JSON, with `more` in its metadata, which is stronger than its own."""
        metadata: dict[str, Any] = {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        }
        if self.owner_references:
            metadata["ownerReferences"] = Raw(self.owner_references)
        assert isinstance(self.content, Content), "a manifest is completed before it is sent"
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": {**metadata, **more}}
        return msgspec.json.encode({**head, **msgspec.to_builtins(self.content)})

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields of the content in which the server's answer differs: admission changed them."""
        got = decode(answer, DataObject).content
        if same_content(got, self.content):
            return ()
        return tuple(change.field for change in changes(got, self.content, secret=True))

    def redact(self, text: str) -> str:
        """Return the text without the values of a Secret: an admission webhook may quote what it refuses."""
        if self.resource is not SECRETS:
            return text
        if isinstance(self.content, Digested):
            return "(not shown: it may quote a value)"
        for spelling in sorted(_spellings(self.content), key=len, reverse=True):
            text = text.replace(spelling, HIDDEN)
        return text

    def renamed(self, name: str) -> Manifest:
        """Return the same object under another name, for a dry run while the object itself exists."""
        return structs.replace(self, key=self.key._replace(name=name))


class Replacement(Struct, frozen=True, gc=False):
    """What a replace sends: `manifest` in the place of that very version of `actual`.

    It keeps the labels and annotations that others put on that, its finalizers, and its owners where `manifest` names
    none: a replace that left them out would remove them.
    """

    manifest: Manifest
    actual: ReducedObject

    @property
    def reads(self) -> tuple[ObjectKey, ...]:
        """The objects to be read before this can be sent."""
        return self.manifest.reads if self.actual.header.is_whole else (self.manifest.key, *self.manifest.reads)

    def completed(self, read: Mapping[ObjectKey, bytes]) -> Replacement:
        """Return the replacement with what was `read`.

        Raises:
            InvalidObjectError: the source is not as it was.
            ApiError: the object itself is not, with the status of a server that finds that out.
        """
        manifest, actual = self.manifest.completed(read), self.actual
        if not actual.header.is_whole:
            actual = ObjectReducer(None).decode(read[manifest.key], full=False)
        if actual.version != self.actual.version:
            raise ApiError(409, f"{manifest.key} changed meanwhile")
        return Replacement(manifest, actual)

    def encode(self) -> bytes:
        """Return the object as JSON."""
        before, manifest = self.actual.header, self.manifest
        ours = before.ownership
        metadata: dict[str, Any] = {
            "uid": self.actual.uid,
            "resourceVersion": self.actual.resource_version,
            "labels": {**_without(before.labels, ours.labels), **manifest.labels},
            "annotations": {**_without(before.annotations, ours.annotations), **manifest.annotations},
        }
        if before.owner_references and not manifest.owner_references:
            metadata["ownerReferences"] = Raw(before.owner_references)
        if before.finalizers:
            metadata["finalizers"] = Raw(before.finalizers)
        return manifest.encoded_with(metadata)

    def fits_alone(self) -> bool:
        """Whether the server takes the object without what others put on it."""
        annotations = self.manifest.annotations.items()
        return sum(len(key.encode()) + len(value.encode()) for key, value in annotations) <= _LONGEST_ANNOTATIONS

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's answer differs."""
        return self.manifest.changed_by_server(answer)

    def redact(self, text: str) -> str:
        """Return the text without the values of a Secret."""
        return self.manifest.redact(text)


def _without(values: Mapping[str, str], names: Container[str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


class Deletion(Struct, frozen=True, gc=False):
    """A delete of one very version of an object.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
    """

    uid: str
    resource_version: str

    def encode(self) -> bytes:
        """Return the DeleteOptions as JSON."""
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})

    def changed_by_server(self, _answer: bytes) -> tuple[str, ...]:
        """Return nothing: there is nothing left to compare."""
        return ()

    def redact(self, text: str) -> str:
        """Return the text as it is: no value was sent."""
        return text


class Recreation(Struct, frozen=True, gc=False):
    """A delete and a create, for what cannot be changed in place."""

    deletion: Deletion
    manifest: Manifest

    def encode(self) -> bytes:
        """Return the object to create as JSON."""
        return self.manifest.encode()

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's answer to the create differs."""
        return self.manifest.changed_by_server(answer)

    def redact(self, text: str) -> str:
        """Return the text without the values of a Secret."""
        return self.manifest.redact(text)


def repair(manifest: Manifest, actual: ReducedObject, recreated: Manifest | None = None) -> Fix:
    """Return the write that makes of an object of ours what `manifest` says: in place where the API allows that.

    `recreated` is what is created where it does not, if that differs from `manifest`.
    """
    before, after = actual.content, manifest.content
    if before is None or same_content(before, after) or not (before.immutable or before.type != after.type):
        return Fix(Action.REPLACE, Replacement(manifest, actual))
    # https://kubernetes.io/docs/concepts/configuration/secret/#secret-immutable; the type of a Secret is as fixed.
    # What others put on the old object goes with it: on the new one it would count as ours.
    return Fix(Action.RECREATE, Recreation(Deletion(actual.uid, actual.resource_version), recreated or manifest))


def _spellings(content: Content) -> set[str]:
    """Return how values of a Secret may be quoted: in base64, decoded, line by line; what is shorter hides nothing."""
    found = set(content.data.values())
    for value in content.data.values():
        with suppress(ValueError):  # not base64, which only another server than kube-apiserver serves
            found |= set(b64decode(value).decode(errors="replace").splitlines())
    return {spelling for spelling in found if len(spelling) >= _SHORTEST_HIDDEN}
