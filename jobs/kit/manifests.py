"""A ConfigMap or Secret to write, and what the server made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from jobs.kit.diff import changes
from jobs.kit.model import ObjectKey
from jobs.kit.objects import Content, DataObject, Resource


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
