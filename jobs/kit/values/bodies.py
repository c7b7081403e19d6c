"""The bodies of a delete, and of a delete and a create. Pure."""

from __future__ import annotations

import msgspec

from jobs.kit.values.model import Body, NewBody


class Deletion(Body, frozen=True, gc=False):
    """The body of a delete of exactly one version of an object.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
    """

    uid: str
    resource_version: str

    def encode(self) -> bytes:
        """Return the DeleteOptions as JSON."""
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})


class Recreation(Body, frozen=True, gc=False):
    """A delete and a create, for a change of immutable fields."""

    deletion: Deletion
    manifest: NewBody

    def encode(self) -> bytes:
        """Return the object to create as JSON."""
        return self.manifest.encode()

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields of the content that admission changed, by the server's answer to the create."""
        return self.manifest.changed_by_server(answer)

    def redact(self, text: str) -> str:
        """Return the text without values of the Secret."""
        return self.manifest.redact(text)
