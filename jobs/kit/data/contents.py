"""The copied content of an object: the data of ConfigMaps and Secrets, or fields of other kinds. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from jobs.kit.values.resources import CONFIGMAPS, SECRETS, Resource

_MOST_DIGESTS = 1000


class Layout(NamedTuple):
    """Which fields of a kind are copied, and how the API server treats them.

    - `fields`: the copied fields of the object. Other fields in managedFields do not count.
    - `maps`: the paths of maps whose keys managedFields lists one by one. It lists other values as a whole.
    - `fixed`: the path of the field that no update can change; empty if there is none.
    - `kept`: fields that are not copied, and that a replace leaves as they are.
    - `is_secret`: whether its values are never shown.
    """

    resource: Resource
    fields: tuple[str, ...]
    maps: tuple[str, ...] = ()
    fixed: str = ""
    kept: tuple[str, ...] = ()
    is_secret: bool = False

    @property
    def has_data(self) -> bool:
        """Whether the content is the data of a ConfigMap or Secret."""
        return "data" in self.fields


# https://kubernetes.io/docs/concepts/configuration/secret/#secret-types: no update can change the type of a Secret.
DATA_FIELDS = ("type", "data", "binaryData", "stringData", "immutable")
CONFIGMAP = Layout(CONFIGMAPS, DATA_FIELDS, ("data", "binaryData", "stringData"))
SECRET = Layout(SECRETS, DATA_FIELDS, ("data", "binaryData", "stringData"), fixed="type", is_secret=True)


def field_set(names: Iterable[str]) -> bytes:
    """Return a digest of a set of field names such as `data.KEY`: a ConfigMap may have 100,000."""
    return hashlib.blake2b("\0".join(sorted(names)).encode(), digest_size=16).digest()


class Content(Struct, frozen=True):
    """The content of a ConfigMap or Secret. Values of a Secret are base64, as in the API. Its repr shows no value."""

    type: str = ""
    data: Mapping[str, str] = msgspec.field(default_factory=dict)
    binary_data: Mapping[str, str] = msgspec.field(default_factory=dict)
    immutable: bool = False

    def __repr__(self) -> str:
        return f"Content({', '.join(sorted(path for path, _ in self.values())) or 'empty'})"

    @property
    def fixed(self) -> str:
        """The value that no update can change: the type of a Secret."""
        return self.type

    @property
    def size(self) -> int:
        """The number of characters of its values."""
        return sum(map(len, (*self.data.values(), *self.binary_data.values())))

    def field_sets(self) -> tuple[bytes, ...]:
        """Return the `field_set`s that managedFields may list for this content: there is only one."""
        return (field_set(path for path, _ in self.values()),)

    def values(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the value of each field that is set, as for a diff."""
        if self.type:
            yield "type", self.type
        if self.immutable:
            yield "immutable", "true"
        yield from ((f"data.{key}", value) for key, value in self.data.items())
        yield from ((f"binaryData.{key}", value) for key, value in self.binary_data.items())

    def document(self) -> dict[str, Any]:
        """Return the content as fields of the object."""
        fields = {"type": self.type, "data": self.data, "binaryData": self.binary_data, "immutable": self.immutable}
        return {name: value for name, value in fields.items() if value}

    def canonical(self) -> bytes:
        """Return the canonical JSON of this content, for comparisons and fingerprints."""
        return json.dumps(
            [self.type, sorted(self.data.items()), sorted(self.binary_data.items()), self.immutable],
            separators=(",", ":"),
        ).encode()


class FieldContent(Struct, frozen=True):
    """The copied fields of an object of another kind, such as `spec`, each as canonical JSON."""

    layout: Layout
    json: Mapping[str, str]

    immutable: ClassVar[bool] = False  # only ConfigMaps and Secrets can be immutable

    @property
    def fixed(self) -> str:
        """The value that no update can change, such as the roleRef of a RoleBinding; a list counts as a set."""
        name, *path = self.layout.fixed.split(".")
        value = json.loads(self.json.get(name, "null"))
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return _canonical(sorted({*map(str, value)}) if isinstance(value, list) else value) if value else ""

    @property
    def size(self) -> int:
        """The number of characters of its fields."""
        return sum(map(len, self.json.values()))

    def field_sets(self) -> tuple[bytes, ...]:
        """Return the `field_set`s that managedFields may list for this content.

        The API server does not list a field that is null or {} from the start, such as the podSelector of a
        NetworkPolicy for all pods. It lists one that had another value before.
        """
        leaves = list(_leaves(self.document(), self.layout.maps))
        not_empty = [path for path, value in leaves if value not in (None, {})]
        return field_set(path for path, _ in leaves), field_set(not_empty)

    def values(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the value of each field that is set; a list is one value."""
        for path, value in _leaves(self.document(), None):
            yield path, value if isinstance(value, str) else _canonical(value)

    def document(self) -> dict[str, Any]:
        """Return the content as fields of the object."""
        return {name: json.loads(text) for name, text in self.json.items()}

    def canonical(self) -> bytes:
        """Return the canonical JSON of this content."""
        return _canonical({"kind": self.layout.resource.kind, **self.document()}).encode()


def field_content(layout: Layout, fields: Mapping[str, Any]) -> FieldContent:
    """Return the content with these fields; those that are null are absent."""
    return FieldContent(
        layout, {name: _canonical(value) for name, value in sorted(fields.items()) if value is not None}
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _leaves(value: Any, maps: tuple[str, ...] | None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths and values of a tree; `maps` are the paths of maps that are not one value. None: all maps."""
    if isinstance(value, dict) and (value or not path) and (maps is None or path in ("", *maps)):
        for key, each in value.items():
            yield from _leaves(each, maps, f"{path}.{key}" if path else key)
    else:
        yield path, value


class Digested(Struct, frozen=True):
    """A content whose values are too large to keep: digests by field in place of the values.

    `names` are its `field_sets`. `mark` is its fingerprint, keyed with the uid of the object that it was read from.
    `size` is the number of characters of its values.
    """

    fixed: str
    digests: Mapping[str, str]
    immutable: bool
    names: tuple[bytes, ...]
    mark: str
    size: int = 0

    def field_sets(self) -> tuple[bytes, ...]:
        """Return the `field_set`s that managedFields may list for this content."""
        return self.names


WholeContent: TypeAlias = Content | FieldContent
AnyContent: TypeAlias = Content | FieldContent | Digested


def fingerprint(content: AnyContent, key: str) -> str:
    """Return the fingerprint for the stamp: an HMAC-SHA256. `key` is the source's uid if the content may be secret.

    With a plain hash of a short secret, a reader of the annotation could guess the secret. The uid has 122 random
    bits that a reader of the copy cannot see.
    """
    if isinstance(content, Digested):
        return content.mark
    return f"v1:{hmac.digest(key.encode(), content.canonical(), 'sha256').hex()}"


def digested(content: AnyContent, uid: str = "") -> Digested:
    """Return the digests of a content that is too large to keep, read from the object with this uid."""
    if isinstance(content, Digested):
        return content
    values = list(content.values())
    if len(values) > _MOST_DIGESTS:
        values = [("data", content.canonical().decode())]
    digests = {path: hashlib.sha256(value.encode()).hexdigest() for path, value in values}
    mark = fingerprint(content, uid)
    return Digested(content.fixed, digests, content.immutable, content.field_sets(), mark, content.size)


def same_content(one: AnyContent, other: AnyContent) -> bool:
    """Whether two contents are equal; compares digests if one has no values."""
    if not isinstance(one, Digested) and not isinstance(other, Digested):
        return one == other
    first, second = digested(one), digested(other)
    return (first.fixed, first.immutable, first.digests) == (second.fixed, second.immutable, second.digests)


def can_update(before: AnyContent, after: AnyContent) -> bool:
    """Whether an update can change an object with the content `before` to `after`.

    https://kubernetes.io/docs/concepts/configuration/secret/#secret-immutable
    """
    return not before.immutable and before.fixed == after.fixed
