"""The metadata of objects as the API serves it, reduced to the fields that jobs use. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from jobs.kit.values.decoding import decode_map


class OwnerReference(Struct, rename="camel"):
    """An owner of an object: https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/ ."""

    name: str
    uid: str
    kind: str = ""
    api_version: str = ""
    controller: bool | None = None


class ManagedFieldsEntry(Struct, rename="camel", gc=False):
    """The fields that one manager owns.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """

    manager: str = ""
    fields_v1: Raw = msgspec.field(name="fieldsV1", default=Raw())


class Metadata(Struct, rename="camel"):
    """The used fields of ObjectMeta. Maps stay raw until they are used: those of most objects are equal."""

    name: Annotated[str, Meta(min_length=1)]
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Raw = Raw()
    annotations: Raw = Raw()
    owner_references: Raw = Raw()
    finalizers: Raw = Raw()
    managed_fields: list[ManagedFieldsEntry] | None = None


class _NamespaceStatus(Struct):
    phase: str = ""


class NamespaceObject(Struct):
    """A Namespace as the API serves it."""

    metadata: Metadata
    status: _NamespaceStatus = msgspec.field(default_factory=_NamespaceStatus)

    @property
    def active(self) -> bool:
        """Whether the namespace is not terminating."""
        return self.status.phase == "Active" and self.metadata.deletion_timestamp is None


class PartialObject(Struct):
    """The metadata of an object of any kind: an item of a PartialObjectMetadataList."""

    metadata: Metadata


def string_map(raw: Raw | bytes) -> Mapping[str, str]:
    """Decode the JSON of labels or annotations.

    Raises:
        InvalidObjectError: it is not a map of strings.
    """
    return decode_map(raw, str)
