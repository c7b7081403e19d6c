"""Objects as they come over the wire, reduced to what is looked at; and how to name them in a URL."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct


@dataclass(frozen=True)
class Resource:
    """A kind of object and where the API serves it. What a Service answers through its proxy is not an object."""

    api_version: str
    kind: str
    plural: str
    is_object: bool = True

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the URL path of one object, of a namespace's objects, or of all objects of this kind."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        where = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{where}/{self.plural}" + (f"/{name}" if name else "")


NAMESPACES = Resource("v1", "Namespace", "namespaces")
CONFIGMAPS = Resource("v1", "ConfigMap", "configmaps")
SECRETS = Resource("v1", "Secret", "secrets")
EVENTS = Resource("v1", "Event", "events")
MANAGER = "kube-chores"  # the field manager of all writes
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_name(text: object) -> bool:
    """Whether an object can be called so: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ ."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


class ManagedFieldsEntry(Struct, rename="camel", gc=False):
    """Who set which fields.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """

    manager: str = ""
    fields_v1: Raw = msgspec.field(name="fieldsV1", default=Raw())


class Metadata(Struct, rename="camel"):
    """ObjectMeta as far as it is looked at. Maps stay raw until they are wanted: most objects' are all the same."""

    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: Raw = Raw()
    annotations: Raw = Raw()
    owner_references: Raw = Raw()
    finalizers: Raw = Raw()
    managed_fields: list[ManagedFieldsEntry] | None = None


class _NamespaceStatus(Struct):
    phase: str = ""


class NamespaceObject(Struct):
    """A Namespace as it comes."""

    metadata: Metadata
    status: _NamespaceStatus = msgspec.field(default_factory=_NamespaceStatus)

    @property
    def active(self) -> bool:
        """Whether anything should be done in it."""
        return self.status.phase == "Active" and self.metadata.deletion_timestamp is None


class PartialObject(Struct):
    """Any object, its metadata alone: an item of a PartialObjectMetadataList."""

    metadata: Metadata


class Ownership(Struct, frozen=True):
    """Who owns an object's content, field by field, from its managedFields.

    Fields are named `data.KEY`, `type` and so on; `labels` and `annotations` hold the keys that our manager owns.
    """

    ours: frozenset[str]
    theirs: Mapping[str, frozenset[str]]
    labels: frozenset[str]
    annotations: frozenset[str]


class Header(Struct, frozen=True, gc=False):
    """An object's metadata beside what names it, reduced. Copies of one source have the same: it is held once."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ownership: Ownership
    terminating: bool = False
    owner_references: bytes = b""
    finalizers: bytes = b""


@lru_cache(maxsize=16384)
def _header(
    terminating: bool,
    labels: bytes,
    annotations: bytes,
    managed_fields: tuple[tuple[str, bytes], ...],
    owner_references: bytes,
    finalizers: bytes,
) -> Header:
    ownership = _ownership(managed_fields)
    return Header(string_map(labels), string_map(annotations), ownership, terminating, owner_references, finalizers)


def string_map(raw: Raw | bytes) -> Mapping[str, str]:
    """Return labels or annotations from their JSON."""
    return (msgspec.json.decode(raw, type=dict[str, str] | None) if raw else None) or {}


def _ownership(entries: tuple[tuple[str, bytes], ...]) -> Ownership:
    ours: set[str] = set()
    theirs: dict[str, set[str]] = {}
    labels: set[str] = set()
    annotations: set[str] = set()
    for owner, raw in entries:
        fields = msgspec.json.decode(raw) if raw else {}
        content = _content_fields(fields)
        if owner == MANAGER:
            ours |= content
            labels |= _keys(fields.get("f:metadata", {}).get("f:labels", {}))
            annotations |= _keys(fields.get("f:metadata", {}).get("f:annotations", {}))
        elif content:
            theirs.setdefault(owner, set()).update(content)
    return Ownership(
        frozenset(ours),
        {owner: frozenset(fields) for owner, fields in sorted(theirs.items())},
        frozenset(labels),
        frozenset(annotations),
    )


def _keys(fields: Mapping[str, Any]) -> set[str]:
    return {key[2:] for key in fields if key.startswith("f:")}


def _content_fields(fields: Mapping[str, Any]) -> set[str]:
    """Return what a fieldsV1 says beside metadata, two levels deep: `f:data: {f:a: {}}` is `data.a`."""
    found: set[str] = set()
    for name, below in fields.items():
        if name == "f:metadata" or not name.startswith("f:"):
            continue
        keys = _keys(below)
        found |= {f"{name[2:]}.{key}" for key in keys} if keys or "." in below else {name[2:]}
    return found


class Content(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a ConfigMap or Secret holds. Values of a Secret are base64, as on the wire. Its repr shows no value."""

    type: str = ""
    data: Mapping[str, str] = msgspec.field(default_factory=dict)
    binary_data: Mapping[str, str] = msgspec.field(default_factory=dict)
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Content({', '.join(sorted(self.fields())) or 'empty'})"

    def fields(self) -> frozenset[str]:
        """Return the names of the fields that are set, in the form of `Ownership`."""
        names = [f"data.{key}" for key in self.data] + [f"binaryData.{key}" for key in self.binary_data]
        return frozenset(names + ["type"] * bool(self.type) + ["immutable"] * self.immutable)

    def canonical(self) -> bytes:
        """Return the one spelling of this content, for comparing and fingerprints."""
        return json.dumps(
            [self.type, sorted(self.data.items()), sorted(self.binary_data.items()), self.immutable],
            separators=(",", ":"),
        ).encode()


class DataObject(Struct, rename="camel"):
    """A ConfigMap or Secret as it comes. Its repr shows no value."""

    metadata: Metadata
    type: str = ""
    data: dict[str, str | None] | None = None
    binary_data: dict[str, str | None] | None = None
    immutable: bool | None = None

    def __repr__(self) -> str:
        return f"DataObject({self.metadata.namespace}/{self.metadata.name})"

    @property
    def content(self) -> Content:
        """What it holds; a null value is an empty one."""
        return Content(
            self.type,
            {key: value or "" for key, value in (self.data or {}).items()},
            {key: value or "" for key, value in (self.binary_data or {}).items()},
            bool(self.immutable),
        )


class Object(Struct, frozen=True, gc=False):
    """A ConfigMap or Secret, reduced: a run holds one for each copy there is. `content` is None where it was not read.

    `version` is the uid and the resourceVersion, which only writes need.
    """

    namespace: str
    name: str
    version: str
    header: Header
    content: Content | None = None

    @property
    def uid(self) -> str:
        """The object's uid."""
        return self.version.partition(" ")[0]

    @property
    def resource_version(self) -> str:
        """The version that was read."""
        return self.version.partition(" ")[2]


def reduced(read: DataObject | PartialObject, contents: dict[bytes, Content]) -> Object:
    """Return an object as it came, reduced; what it holds is shared with all that hold the same, by `contents`."""
    metadata = read.metadata
    header = _header(
        metadata.deletion_timestamp is not None,
        bytes(metadata.labels),
        bytes(metadata.annotations),
        tuple((entry.manager, bytes(entry.fields_v1)) for entry in metadata.managed_fields or []),
        bytes(metadata.owner_references),
        bytes(metadata.finalizers),
    )
    content = None
    if isinstance(read, DataObject):
        content = read.content
        content = contents.setdefault(content.canonical(), content)
    version = f"{metadata.uid} {metadata.resource_version}"
    return Object(sys.intern(metadata.namespace), sys.intern(metadata.name), version, header, content)


def decoded(body: bytes, contents: dict[bytes, Content], *, full: bool) -> Object:
    """Return an object from its JSON, reduced; `full` says whether that is more than its metadata."""
    item: type[DataObject] | type[PartialObject] = DataObject if full else PartialObject
    return reduced(msgspec.json.decode(body, type=item), contents)
