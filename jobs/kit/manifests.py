"""What writes send: a ConfigMap or Secret, or the deletion of one; what the server made of it; which to choose."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from jobs.kit.diff import HIDDEN, changes
from jobs.kit.model import Action, Fix, ObjectKey
from jobs.kit.objects import SECRETS, Content, DataObject, Header, Object, Resource

_SHORTEST_HIDDEN = 4  # hiding every "a" would leave no sentence


class Manifest(Struct, frozen=True):
    """What a create or replace sends. With `uid` and `resource_version` the server takes it for that very version only.

    `owner_references` and `finalizers` are JSON as it came, since a replace that left them out would remove them.
    """

    resource: Resource
    key: ObjectKey
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    content: Content
    uid: str = ""
    resource_version: str = ""
    owner_references: bytes = b""
    finalizers: bytes = b""

    def encode(self) -> bytes:
        """Return the object as JSON."""
        metadata: dict[str, Any] = {
            "name": self.key.name,
            "namespace": self.key.namespace,
            "labels": self.labels,
            "annotations": self.annotations,
        }
        if self.uid:
            metadata |= {"uid": self.uid, "resourceVersion": self.resource_version}
        if self.owner_references:
            metadata["ownerReferences"] = Raw(self.owner_references)
        if self.finalizers:
            metadata["finalizers"] = Raw(self.finalizers)
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, "metadata": metadata}
        return msgspec.json.encode({**head, **msgspec.to_builtins(self.content)})

    def unlike(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields of the content in which the server's answer differs: admission changed them."""
        got = msgspec.json.decode(answer, type=DataObject).content
        return tuple(change.field for change in changes(got, self.content, secret=True))

    def conceal(self, text: str) -> str:
        """Return the text without the values of a Secret: an admission webhook may quote what it refuses."""
        if self.resource is not SECRETS:
            return text
        for spelling in sorted(_spellings(self.content), key=len, reverse=True):
            text = text.replace(spelling, HIDDEN)
        return text

    def elsewhere(self, name: str) -> Manifest:
        """Return the same object under another name, to ask the server whether it would take it."""
        return structs.replace(self, key=self.key._replace(name=name))


class Deletion(Struct, frozen=True):
    """A delete of one very version of an object.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
    """

    uid: str
    resource_version: str

    def encode(self) -> bytes:
        """Return the DeleteOptions as JSON."""
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})

    def unlike(self, _answer: bytes) -> tuple[str, ...]:
        """Return nothing: there is nothing left to compare."""
        return ()

    def conceal(self, text: str) -> str:
        """Return the text as it is: no value was sent."""
        return text


class Recreation(Struct, frozen=True):
    """A delete and a create, for what cannot be changed in place."""

    deletion: Deletion
    manifest: Manifest

    def encode(self) -> bytes:
        """Return the object to create as JSON."""
        return self.manifest.encode()

    def unlike(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's answer to the create differs."""
        return self.manifest.unlike(answer)

    def conceal(self, text: str) -> str:
        """Return the text without the values of a Secret."""
        return self.manifest.conceal(text)


def replacement(manifest: Manifest, actual: Header) -> Manifest:
    """Return `manifest` as what is there is to become, with the labels and annotations that others put on that."""
    ownership = actual.ownership
    labels = {name: value for name, value in actual.labels.items() if name not in ownership.labels}
    annotations = {name: value for name, value in actual.annotations.items() if name not in ownership.annotations}
    return structs.replace(
        manifest,
        labels={**labels, **manifest.labels},
        annotations={**annotations, **manifest.annotations},
        uid=actual.uid,
        resource_version=actual.resource_version,
        owner_references=manifest.owner_references or actual.owner_references,
        finalizers=actual.finalizers,
    )


def repair(manifest: Manifest, actual: Object) -> Fix:
    """Return the write that makes of an object of ours what `manifest` says: in place where the API allows that."""
    before, after = actual.content, manifest.content
    if before is None or before == after or not (before.immutable or before.type != after.type):
        return Fix(Action.REPLACE, replacement(manifest, actual.header))
    # https://kubernetes.io/docs/concepts/configuration/secret/#secret-immutable; the type of a Secret is as fixed.
    # What others put on the old object goes with it: on the new one it would count as ours.
    return Fix(Action.RECREATE, Recreation(Deletion(actual.header.uid, actual.header.resource_version), manifest))


def _spellings(content: Content) -> set[str]:
    """Return how values of a Secret may be quoted: in base64, decoded, line by line; what is shorter hides nothing."""
    found = set(content.data.values())
    for value in content.data.values():
        found |= set(b64decode(value).decode(errors="replace").splitlines())
    return {spelling for spelling in found if len(spelling) >= _SHORTEST_HIDDEN}
