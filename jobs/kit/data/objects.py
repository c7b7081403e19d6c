"""Objects that jobs copy as the API serves them, reduced to the fields that jobs use. Pure."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw, Struct

from jobs.kit.data.contents import AnyContent, Content, Layout, WholeContent, digested, field_content, field_set
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import Dependency, ObjectKey
from jobs.kit.values.reads import (
    ManagedFieldsEntry,
    Metadata,
    OwnerReference,
    PartialObject,
    ReadResult,
    decode,
    decode_any,
    decode_list,
    members,
    string_map,
)
from jobs.kit.values.stamps import MANAGER

# A run has 128 MiB of memory (cronjobs/), for any objects that tenants may create.
CONTENT_BYTES = 16 << 20
_BYTES_OF_KEYS = 4 << 20  # of the keys that find equal headers
_BYTES_OF_A_KEY = 200
_BYTES_OF_AN_OBJECT = 150  # without its texts, in a map by name and namespace
_BYTES_OF_A_NAME = 300
_BYTES_OF_A_HEADER = 1000  # without its texts
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


# Of an object that is not stored.
NO_HEADER = Header(
    {}, {}, Ownership(field_set(()), (), has_immutable=False, labels=frozenset(), annotations=frozenset())
)


def size_of(*texts: str | bytes) -> int:
    """Return the bytes that texts take in memory."""
    return sum(map(sys.getsizeof, texts))


def _size_if_new(interned: str, name: str) -> int:
    """Return the bytes of a name, and of its entries in maps; none if it was interned before."""
    return _BYTES_OF_A_NAME + size_of(name) if interned is name else 0


def _size_of_header(header: Header) -> int:
    owned = header.ownership
    texts = (*header.labels.items(), *header.annotations.items(), owned.others, owned.labels, owned.annotations)
    return _BYTES_OF_A_HEADER + size_of(*chain.from_iterable(texts), header.owner_references, header.finalizers)


def _ownership(entries: Sequence[ManagedFieldsEntry], layout: Layout) -> Ownership:
    own: set[str] = set()
    others: set[str] = set()
    labels: set[str] = set()
    annotations: set[str] = set()
    has_immutable = False
    for entry in entries:
        fields = members(entry.fields_v1)
        names = (name for name in layout.fields if f"f:{name}" in fields)
        content = {path for name in names for path in _paths(name, fields[f"f:{name}"], layout)}
        has_immutable = has_immutable or "immutable" in content
        if entry.manager == MANAGER:
            own |= content
            metadata = members(fields.get("f:metadata", Raw()))
            labels |= _keys(metadata.get("f:labels", Raw()))
            annotations |= _keys(metadata.get("f:annotations", Raw()))
        elif content:
            others.add(entry.manager)
    some = (frozenset(sorted(keys)[:_MOST_OWNED_KEYS]) for keys in (labels, annotations))
    return Ownership(field_set(own), tuple(sorted(others)[:_MOST_MANAGERS]), has_immutable, *some)


def _keys(raw: Raw) -> set[str]:
    return {key[2:] for key in members(raw) if key.startswith("f:")}


def _paths(path: str, raw: Raw, layout: Layout) -> set[str]:
    """Return the copied fields below a path of a fieldsV1, with the keys of maps: `f:data: {f:a: {}}` is `data.a`."""
    if path not in layout.maps:
        return {path}
    below = members(raw)
    keys = {key[2:]: each for key, each in below.items() if key.startswith("f:")}
    if not keys:
        return set() if "." in below else {path}
    return {found for key, each in keys.items() for found in _paths(f"{path}.{key}", each, layout)}


class WholeObject(Struct, rename="camel"):
    """A copied object as the API serves it: the fields of all kinds that jobs copy. Its repr shows no value."""

    metadata: Metadata
    type: str = ""
    data: dict[str, str | None] | None = None
    binary_data: dict[str, str | None] | None = None
    immutable: bool | None = None
    spec: Raw = Raw()
    role_ref: Raw = Raw()
    subjects: Raw = Raw()
    image_pull_secrets: Raw = Raw()
    automount_service_account_token: Raw = Raw()
    secrets: Raw = Raw()

    def __repr__(self) -> str:
        return f"WholeObject({self.metadata.namespace}/{self.metadata.name})"

    def content(self, layout: Layout) -> WholeContent:
        """Return the copied fields; a null value of a ConfigMap or Secret counts as empty."""
        if not layout.has_data:
            return field_content(layout, self.fields(layout.fields))
        return Content(
            self.type,
            {key: value or "" for key, value in (self.data or {}).items()},
            {key: value or "" for key, value in (self.binary_data or {}).items()},
            bool(self.immutable),
        )

    def fields(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the fields with these names; those that are absent are left out."""
        attributes = dict(zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True))
        found = {name: getattr(self, attributes[name]) for name in names}
        return {name: decode_any(raw) for name, raw in found.items() if raw}


class ReducedObject(Struct, frozen=True, gc=False):
    """A reduced source or copy: a run keeps one for each copy in the cluster.

    `content` is None if only metadata was read. `version` is the uid and the resourceVersion, separated by a space.
    """

    namespace: str
    name: str
    version: str
    header: Header
    content: AnyContent | None = None

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
    `room` bytes together. A content beyond that is reduced to digests. An object with long annotations beyond that is
    invalid: then `has_refused` is true. Which objects these are depends on the order in which they are reduced.
    `take` is called with the bytes of each reduced object, without its content.
    """

    def __init__(
        self, used: Collection[str] | None, room: int = CONTENT_BYTES, take: Callable[[int], None] | None = None
    ) -> None:
        self._used, self._take = used, take
        self._all_room = room
        self.clear()

    def clear(self) -> None:
        """Forget all objects: they are reduced again."""
        self.has_refused = False
        self._room = self._all_room
        self._room_for_keys = _BYTES_OF_KEYS
        self._headers: dict[bytes, Header] = {}
        self._ownerships: dict[Ownership, Ownership] = {}
        self._labels: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._contents: dict[bytes, WholeContent] = {}

    def reduce(
        self, layout: Layout, read: WholeObject | PartialObject, content: WholeContent | None = None
    ) -> ReducedObject:
        """Return the reduced form of a decoded object; `content` replaces that of a whole object.

        Raises:
            InvalidObjectError: its metadata is not valid, or is too large to keep.
        """
        metadata = read.metadata
        whole = content or (read.content(layout) if isinstance(read, WholeObject) else None)
        namespace, name = sys.intern(metadata.namespace), sys.intern(metadata.name)
        version = f"{metadata.uid} {metadata.resource_version}"
        if self._take:
            self._take(_BYTES_OF_AN_OBJECT + size_of(version) + _size_if_new(namespace, metadata.namespace))
            self._take(_size_if_new(name, metadata.name))
        return ReducedObject(
            namespace,
            name,
            version,
            self._header(layout, metadata),
            self._content(whole, metadata.uid) if whole else None,
        )

    def decode(self, layout: Layout, body: bytes, *, full: bool) -> ReducedObject:
        """Return the reduced form of an object's JSON; `full`: the JSON is the whole object, not only its metadata.

        Raises:
            InvalidObjectError: the JSON is not valid, or the metadata is too large to keep.
        """
        item: type[WholeObject] | type[PartialObject] = WholeObject if full else PartialObject
        return self.reduce(layout, decode(body, item))

    def decode_reads(
        self, documents: Mapping[Dependency, ReadResult], layouts: Mapping[str, Layout]
    ) -> dict[ObjectKey, ReducedObject | ApiError | None]:
        """Return the reduced form of each object that was read by its name; None: it does not exist.

        `layouts` has the layout of each kind.
        """
        return {
            dependency.key: document.reduced_if_exists(
                partial(self.decode, layouts[dependency.key.kind], full=dependency.full)
            )
            for dependency, document in documents.items()
        }

    def _content(self, content: WholeContent, uid: str) -> AnyContent:
        key = hashlib.sha256(msgspec.json.encode((type(content).__name__, content))).digest()
        if key in self._contents:
            return self._contents[key]
        texts = [value for _, value in content.values()]
        if not self._reserve(sum(map(sys.getsizeof, texts)) + _BYTES_OF_A_KEY * len(texts)):
            return digested(content, uid)
        self._contents[key] = content
        return content

    def _reserve(self, size: int) -> bool:
        fits = size <= self._room
        self._room -= size if fits else 0
        return fits

    def _header(self, layout: Layout, metadata: Metadata) -> Header:
        """Return the header; objects with equal metadata, such as copies of one source, share one."""
        entries = metadata.managed_fields or []
        parts = [bytes(metadata.labels), metadata.annotations, metadata.owner_references, metadata.finalizers]
        for entry in entries:
            parts += [entry.manager.encode(), entry.fields_v1]
        # With the lengths of the parts: two different sets of parts could have the same text.
        head = repr((layout.resource.kind, metadata.deletion_timestamp is None, *map(len, parts))).encode()
        key = b"".join([head, *parts])
        header = self._headers.get(key)
        if header is None and len(key) > self._room_for_keys:
            key = hashlib.blake2b(key, digest_size=16).digest()  # slower than a comparison, but short
            header = self._headers.get(key)
        if header is None:
            self._room_for_keys -= len(key)
            header = self._headers[key] = self._reduce_header(layout, metadata, entries)
            if self._take:
                self._take(_size_of_header(header))
        return header

    def _reduce_header(self, layout: Layout, metadata: Metadata, entries: Sequence[ManagedFieldsEntry]) -> Header:
        for field, raw in (("ownerReferences", metadata.owner_references), ("finalizers", metadata.finalizers)):
            if len(raw) > _MOST_RAW_BYTES:
                raise InvalidObjectError(
                    f"metadata.{field} has {len(raw) >> 10} KiB, the limit is {_MOST_RAW_BYTES >> 10} KiB"
                )
        decode_list(metadata.owner_references, OwnerReference)  # raises here, not where it is used
        ownership = _ownership(entries, layout)
        ownership = self._ownerships.setdefault(ownership, ownership)
        labels, annotations = string_map(metadata.labels), string_map(metadata.annotations)
        kept = self._keep_used(labels, ownership.labels), self._keep_used(annotations, ownership.annotations)
        return Header(
            self._labels.setdefault(tuple(kept[0].items()), kept[0]),
            kept[1],
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
            self.has_refused = True
            raise InvalidObjectError("its labels and annotations are too large to keep with those of other objects")
        return kept
