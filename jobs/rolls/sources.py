"""ConfigMaps and Secrets, reduced to what says whether they changed: a digest of each key, never a value."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from functools import partial

import msgspec
from msgspec import Raw, Struct

from jobs.kit.decoding import decode, decode_map
from jobs.kit.errors import ApiError, InvalidObjectError
from jobs.kit.objects import SECRETS
from jobs.rolls.key import Key
from jobs.rolls.references import Reference

_LONG_ENOUGH = 32  # hexadecimal digits: 128 bits
_CONTENT = ("f:data", "f:binaryData")


class Source(Struct, frozen=True):
    """A ConfigMap or Secret: a digest of each of the `keys` that are used, and one of all keys.

    `changed` is when its content last changed, if the API server tells.
    """

    whole: str
    keys: frozenset[str]
    digests: Mapping[str, str]
    changed: datetime | None = None

    def covers(self, reference: Reference) -> bool:
        """Whether enough was kept to say of this reference whether it changed."""
        return self.keys.issuperset(reference.named_keys)


class _Entry(Struct, rename="camel"):
    time: datetime | None = None
    fields_v1: Raw = msgspec.field(name="fieldsV1", default=Raw())


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    creation_timestamp: datetime | None = None
    managed_fields: list[_Entry] | None = None


class _Document(Struct, rename="camel"):
    metadata: _Metadata
    data: dict[str, str | None] | None = None
    binary_data: dict[str, str | None] | None = None

    def __repr__(self) -> str:
        return "_Document()"


def source(kind: str, keys: frozenset[str], body: bytes, key: Key | ApiError | None = None) -> Source:
    """Return a ConfigMap or Secret, from its JSON, reduced to what says whether one of these `keys` changed, or any.

    Digests of a Secret need the key: annotations of workloads are widely readable, and who knows how a digest is made
    finds a short password by trying. The uid is part of them, or a tenant could compare another Secret's digests with
    those of values that he writes into his own.
    """
    document = decode(body, _Document)
    fields = {"data": document.data, "binaryData": document.binary_data}
    digest = _unkeyed
    if kind == SECRETS.kind:
        assert isinstance(key, Key), "the key is read before Secrets"
        digest = partial(key.digest, document.metadata.uid)
    digests = {
        name: digest(field, name, value or "")
        for field, values in fields.items()
        for name, value in (values or {}).items()
    }
    used = {name: digest for name, digest in digests.items() if name in keys}
    return Source(_fingerprint(digests), keys, used, _changed(document.metadata))


def _unkeyed(*parts: str) -> str:
    return hmac.new(b"", "\0".join(parts).encode(), hashlib.sha256).hexdigest()


def _changed(metadata: _Metadata) -> datetime | None:
    """Return when somebody last changed content.

    The time of an entry is that of its manager's last change to any field that it holds.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """
    holders = [entry for entry in metadata.managed_fields or () if _holds_content(entry)]
    times = [each for each in (metadata.creation_timestamp, *(entry.time for entry in holders)) if each]
    return max(times, default=None)


def _holds_content(entry: _Entry) -> bool:
    try:
        fields = decode_map(entry.fields_v1, Raw)
    except InvalidObjectError:  # anybody may send what is not one
        return True
    return any(name in fields for name in _CONTENT)


def fingerprint(reference: Reference, found: Source | None) -> str:
    """Return what changes when anything changes that pods use of the source; what is not there holds nothing."""
    if reference.keys is None:
        return found.whole if found else _fingerprint({})
    digests = found.digests if found else {}
    return _fingerprint({name: digests[name] for name in reference.keys if name in digests})


def _fingerprint(digests: Mapping[str, str]) -> str:
    used = "\n".join(f"{name} {digests[name]}" for name in sorted(digests))
    return hashlib.sha256(used.encode()).hexdigest()[:_LONG_ENOUGH]


def missing(reference: Reference, found: Source | None) -> str:
    """Return what pods need of the source and is not there, or nothing."""
    if found is None:
        return f"{reference} is not there, create it" if reference.required else ""
    absent = [key for key in reference.required_keys if key not in found.digests]
    return f"{reference} has no key {', '.join(absent)}, add it" if absent else ""
