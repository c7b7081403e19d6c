"""ConfigMaps and Secrets as the API serves them, reduced to the fields that jobs use. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Raw, Struct

from jobs.kit.values.decoding import decode, decode_list, decode_map
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.metadata import ManagedFieldsEntry, Metadata, OwnerReference, PartialObject, string_map
from jobs.kit.values.model import Need, ObjectKey
from jobs.kit.values.reads import ReadResult
from jobs.kit.values.stamps import MANAGER

# A run has 128 MiB of memory (cronjobs/), for any objects that tenants may create.
CONTENT_BYTES = 16 << 20
_BYTES_OF_KEYS = 4 << 20  # of the keys that find equal headers
_BYTES_OF_A_KEY = 200
_MOST_DIGESTS = 1000
_MOST_RAW_BYTES = 4096
_LONGEST_VALUES = 4096  # of the labels or annotations that a job uses
_MOST_OWNED_KEYS = 100
_MOST_MANAGERS = 10


class Ownership(Struct, frozen=True):
    """The owners of an object's fields, from its managedFields.

    - `content`: the `field_set` of the content fields that kube-chores owns.
    - `others`: other managers that own content fields.
    - `has_immutable`: whether a manager owns the field `immutable`.
    - `labels`, `annotations`: the keys that kube-chores owns.
    """

    content: bytes
    others: tuple[str, ...]
    has_immutable: bool
    labels: frozenset[str]
    annotations: frozenset[str]


class Header(Struct, frozen=True, gc=False):
    """The reduced metadata of an object, without name and version. Equal headers, as of copies of one source, are one.

    `labels` and `annotations` are those that the job uses and those that kube-chores owns. `is_whole`: the object has
    no others. `owner_references` and `finalizers` are JSON.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ownership: Ownership
    terminating: bool = False
    owner_references: bytes = b""
    finalizers: bytes = b""
    is_whole: bool = True

    @property
    def owners(self) -> list[OwnerReference]:
        """The owner references of the object."""
        return decode_list(self.owner_references, OwnerReference)


def field_set(names: Iterable[str]) -> bytes:
    """Return a digest of a set of field names such as `data.KEY`: a ConfigMap may have 100,000."""
    return hashlib.blake2b("\0".join(sorted(names)).encode(), digest_size=16).digest()


def _ownership(entries: Sequence[ManagedFieldsEntry]) -> Ownership:
    own: set[str] = set()
    others: set[str] = set()
    labels: set[str] = set()
    annotations: set[str] = set()
    has_immutable = False
    for entry in entries:
        fields = _child_fields(entry.fields_v1)
        content = _content_fields(fields)
        has_immutable = has_immutable or "immutable" in content
        if entry.manager == MANAGER:
            own |= content
            metadata = _child_fields(fields.get("f:metadata", Raw()))
            labels |= _keys(metadata.get("f:labels", Raw()))
            annotations |= _keys(metadata.get("f:annotations", Raw()))
        elif content:
            others.add(entry.manager)
    some = (frozenset(sorted(keys)[:_MOST_OWNED_KEYS]) for keys in (labels, annotations))
    return Ownership(field_set(own), tuple(sorted(others)[:_MOST_MANAGERS]), has_immutable, *some)


def _child_fields(raw: Raw) -> Mapping[str, Raw]:
    """Return the next level of a fieldsV1; empty if it is not valid: any client may send one that is not."""
    try:
        return decode_map(raw, Raw)
    except InvalidObjectError:
        return {}


def _keys(raw: Raw) -> set[str]:
    return {key[2:] for key in _child_fields(raw) if key.startswith("f:")}


def _content_fields(fields: Mapping[str, Raw]) -> set[str]:
    """Return the fields of a fieldsV1 without metadata, two levels deep: `f:data: {f:a: {}}` is `data.a`."""
    found: set[str] = set()
    for name, raw in fields.items():
        if name == "f:metadata" or not name.startswith("f:"):
            continue
        below = _child_fields(raw)
        keys = {key[2:] for key in below if key.startswith("f:")}
        found |= {f"{name[2:]}.{key}" for key in keys} if keys or "." in below else {name[2:]}
    return found


class Content(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The content of a ConfigMap or Secret. Values of a Secret are base64, as in the API. Its repr shows no value."""

    type: str = ""
    data: Mapping[str, str] = msgspec.field(default_factory=dict)
    binary_data: Mapping[str, str] = msgspec.field(default_factory=dict)
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Content({', '.join(sorted(self._names())) or 'empty'})"

    def _names(self) -> list[str]:
        names = [f"data.{key}" for key in self.data] + [f"binaryData.{key}" for key in self.binary_data]
        return [*names, *["type"] * bool(self.type), *["immutable"] * self.immutable]

    def fields(self) -> bytes:
        """Return the `field_set` of the fields that are set."""
        return field_set(self._names())

    def canonical(self) -> bytes:
        """Return the canonical JSON of this content, for comparisons and fingerprints."""
        return json.dumps(
            [self.type, sorted(self.data.items()), sorted(self.binary_data.items()), self.immutable],
            separators=(",", ":"),
        ).encode()

    def fingerprint(self, key: str) -> str:
        """Return the fingerprint for the stamp: an HMAC-SHA256. `key` is the source's uid if the content may be secret.

        With a plain hash of a short secret, a reader of the annotation could guess the secret. The uid has 122 random
        bits that a reader of the copy cannot see.
        """
        return f"v1:{hmac.new(key.encode(), self.canonical(), hashlib.sha256).hexdigest()}"

    def digested(self, uid: str = "") -> Digested:
        """Return the digests of a content that is too large to keep, read from the object with this uid."""
        return Digested(
            self.type,
            _digest_values("data", self.data) | _digest_values("binaryData", self.binary_data),
            self.immutable,
            self.fields(),
            self.fingerprint(uid),
        )


def _digest_values(field: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return a digest by key; one digest for all if there are too many keys."""
    if len(values) > _MOST_DIGESTS:
        items = json.dumps(sorted(values.items())).encode()
        return {field: hashlib.sha256(items).hexdigest()}
    return {f"{field}.{key}": hashlib.sha256(value.encode()).hexdigest() for key, value in values.items()}


class Digested(Struct, frozen=True):
    """A content whose values are too large to keep: digests by field in place of the values.

    `names` is the `field_set` of its fields. `mark` is its fingerprint, keyed with the uid of the object that it was
    read from.
    """

    type: str
    digests: Mapping[str, str]
    immutable: bool
    names: bytes
    mark: str

    def fields(self) -> bytes:
        """Return the `field_set` of the fields that are set."""
        return self.names

    def fingerprint(self, _key: str) -> str:
        """Return the fingerprint of the content, keyed with the uid of the object that it was read from."""
        return self.mark


def same_content(one: Content | Digested, other: Content | Digested) -> bool:
    """Whether two contents are equal; compares digests if one has no values."""
    if isinstance(one, Content) and isinstance(other, Content):
        return one == other
    first, second = (each.digested() if isinstance(each, Content) else each for each in (one, other))
    return (first.type, first.immutable, first.digests) == (second.type, second.immutable, second.digests)


class DataObject(Struct, rename="camel"):
    """A ConfigMap or Secret as the API serves it. Its repr shows no value."""

    metadata: Metadata
    type: str = ""
    data: dict[str, str | None] | None = None
    binary_data: dict[str, str | None] | None = None
    immutable: bool | None = None

    def __repr__(self) -> str:
        return f"DataObject({self.metadata.namespace}/{self.metadata.name})"

    @property
    def content(self) -> Content:
        """The content; a null value counts as empty."""
        return Content(
            self.type,
            {key: value or "" for key, value in (self.data or {}).items()},
            {key: value or "" for key, value in (self.binary_data or {}).items()},
            bool(self.immutable),
        )


class ReducedObject(Struct, frozen=True, gc=False):
    """A reduced ConfigMap or Secret: a run keeps one for each copy in the cluster.

    `content` is None if only metadata was read. `version` is the uid and the resourceVersion, separated by a space.
    """

    namespace: str
    name: str
    version: str
    header: Header
    content: Content | Digested | None = None

    @property
    def uid(self) -> str:
        """The uid in `version`."""
        return self.version.partition(" ")[0]

    @property
    def resource_version(self) -> str:
        """The resourceVersion in `version`."""
        return self.version.partition(" ")[2]


class ObjectReducer:
    """Reduces objects to the fields that a job uses. Stores equal values once, and not more than a limit.

    `used` are the keys of labels and annotations to keep; None: all of them. Contents and long annotations may take
    `room` bytes together. A content beyond that is reduced to digests.
    """

    def __init__(self, used: Collection[str] | None, room: int = CONTENT_BYTES) -> None:
        self._used = used
        self._room = room
        self._room_for_keys = _BYTES_OF_KEYS
        self._headers: dict[bytes, Header] = {}
        self._contents: dict[bytes, Content] = {}

    def reduce(self, read: DataObject | PartialObject) -> ReducedObject:
        """Return the reduced form of a decoded object.

        Raises:
            InvalidObjectError: its metadata is not valid, or is too large to keep.
        """
        metadata = read.metadata
        content = self._content(read.content, metadata.uid) if isinstance(read, DataObject) else None
        version = f"{metadata.uid} {metadata.resource_version}"
        return ReducedObject(
            sys.intern(metadata.namespace), sys.intern(metadata.name), version, self._header(metadata), content
        )

    def decode(self, body: bytes, *, full: bool) -> ReducedObject:
        """Return the reduced form of an object's JSON; `full`: the JSON is the whole object, not only its metadata.

        Raises:
            InvalidObjectError: the JSON is not valid, or the metadata is too large to keep.
        """
        item: type[DataObject] | type[PartialObject] = DataObject if full else PartialObject
        return self.reduce(decode(body, item))

    def decode_reads(self, documents: Mapping[Need, ReadResult]) -> dict[ObjectKey, ReducedObject | ApiError | None]:
        """Return the reduced form of each object that was read by its name; None: it does not exist."""
        return {
            need.key: document.reduced_if_exists(partial(self.decode, full=need.full))
            for need, document in documents.items()
        }

    def _content(self, content: Content, uid: str) -> Content | Digested:
        key = hashlib.sha256(content.canonical()).digest()
        if key in self._contents:
            return self._contents[key]
        values = (*content.data.values(), *content.binary_data.values())
        size = sum(map(sys.getsizeof, values)) + _BYTES_OF_A_KEY * len(values)
        if not self._reserve(size):
            return content.digested(uid)
        self._contents[key] = content
        return content

    def _reserve(self, size: int) -> bool:
        fits = size <= self._room
        self._room -= size if fits else 0
        return fits

    def _header(self, metadata: Metadata) -> Header:
        """Return the header; objects with equal metadata, such as copies of one source, share one."""
        entries = metadata.managed_fields or []
        parts = [bytes(metadata.labels), metadata.annotations, metadata.owner_references, metadata.finalizers]
        for entry in entries:
            parts += [entry.manager.encode(), entry.fields_v1]
        # With the lengths of the parts: two different sets of parts could have the same text.
        head = repr((metadata.deletion_timestamp is None, *map(len, parts))).encode()
        key = b"".join([head, *parts])
        header = self._headers.get(key)
        if header is None and len(key) > self._room_for_keys:
            key = hashlib.blake2b(key, digest_size=16).digest()  # slower than a comparison, but short
            header = self._headers.get(key)
        if header is None:
            self._room_for_keys -= len(key)
            header = self._headers[key] = self._reduce_header(metadata, entries)
        return header

    def _reduce_header(self, metadata: Metadata, entries: Sequence[ManagedFieldsEntry]) -> Header:
        for field, raw in (("ownerReferences", metadata.owner_references), ("finalizers", metadata.finalizers)):
            if len(raw) > _MOST_RAW_BYTES:
                raise InvalidObjectError(
                    f"metadata.{field} has {len(raw) >> 10} KiB, the limit is {_MOST_RAW_BYTES >> 10} KiB"
                )
        decode_list(metadata.owner_references, OwnerReference)  # raises here, not where it is used
        ownership = _ownership(entries)
        labels, annotations = string_map(metadata.labels), string_map(metadata.annotations)
        kept = self._keep_used(labels, ownership.labels), self._keep_used(annotations, ownership.annotations)
        return Header(
            *kept,
            ownership,
            metadata.deletion_timestamp is not None,
            bytes(metadata.owner_references),
            bytes(metadata.finalizers),
            (len(labels), len(annotations)) == (len(kept[0]), len(kept[1])),
        )

    def _keep_used(self, values: Mapping[str, str], owned: frozenset[str]) -> Mapping[str, str]:
        if self._used is None:
            return values
        kept = {key: value for key, value in values.items() if key in self._used or key in owned}
        size = sum(map(len, kept.values()))
        if size > _LONGEST_VALUES and not self._reserve(size):
            raise InvalidObjectError("its labels and annotations are too large to keep with those of other objects")
        return kept
