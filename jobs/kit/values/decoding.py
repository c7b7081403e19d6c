"""Decode JSON of other clients: for any input, the result is a value or an InvalidObjectError. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Raw, Struct

from jobs.kit.values.errors import InvalidObjectError

MAX_LEVELS = 100  # fieldsV1 of a pod template has about 20; kube-apiserver allows 10,000
_LONGEST_REASON = 200
# A string is one token, so that brackets in it do not count. One that never ends is a token too: each character is then
# read once, whatever the text.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)

Kind = TypeVar("Kind")


def decode(raw: bytes | Raw | str, kind: type[Kind]) -> Kind:
    """Decode a JSON text as `kind`. Lists and objects that are nested too deep are decoded as null.

    Raises:
        InvalidObjectError: the text is not JSON, or its value is not of that kind.
    """
    decoder: msgspec.json.Decoder[Kind] = _decoder(kind)  # type: ignore[arg-type] # all types have a hash
    try:
        try:
            return decoder.decode(raw)
        except RecursionError:
            return decoder.decode(shallow(raw.encode() if isinstance(raw, str) else bytes(raw)))
    except msgspec.MsgspecError as error:
        raise InvalidObjectError(str(error)[:_LONGEST_REASON]) from None


def decode_plain(raw: bytes | Raw) -> dict[str, Any]:
    """Decode a JSON object as dicts and lists, at most MAX_LEVELS deep, so that recursive code can process it.

    Raises:
        InvalidObjectError: the text is not a JSON object.
    """
    return decode(shallow(bytes(raw)), dict[str, Any])


def decode_any(raw: bytes | Raw) -> Any:
    """Decode a JSON value as dicts, lists and scalars, at most MAX_LEVELS deep.

    Raises:
        InvalidObjectError: the text is not JSON.
    """
    return decode(shallow(bytes(raw)), object)


def decode_list(raw: bytes | Raw, kind: type[Kind]) -> list[Kind]:
    """Decode a JSON list; an absent list, or null, is empty.

    Raises:
        InvalidObjectError: the text is not a list of that kind.
    """
    return decode(raw or b"[]", cast("type[list[Kind] | None]", list[kind] | None)) or []  # type: ignore[valid-type]


def decode_map(raw: bytes | Raw, kind: type[Kind]) -> dict[str, Kind]:
    """Decode a JSON object; an absent object, or null, is empty.

    Raises:
        InvalidObjectError: the text is not an object with values of that kind.
    """
    return decode(raw or b"{}", cast("type[dict[str, Kind] | None]", dict[str, kind] | None)) or {}  # type: ignore[valid-type]


@lru_cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def shallow(text: bytes) -> bytes:
    """Return the JSON text with null in place of each list and object that is nested more than MAX_LEVELS deep.

    A text that ends within such a list or object is cut where that begins, and so it is not JSON either.
    """
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in b"[{":
            level += 1
            if level == MAX_LEVELS + 1:
                kept.append(text[begin : token.start()])
        elif first in b"]}":
            if level == MAX_LEVELS + 1:
                kept.append(b"null")
                begin = token.end()
            level -= 1
    return b"".join(kept if level > MAX_LEVELS else [*kept, text[begin:]])


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
