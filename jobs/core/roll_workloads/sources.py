"""ConfigMaps and Secrets, reduced to a digest of each key, never a value: enough to detect a change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial

import msgspec
from msgspec import Raw, Struct

from jobs.core.roll_workloads.key import Key
from jobs.core.roll_workloads.references import Reference
from jobs.kit.values.decoding import decode, decode_map
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.resources import SECRETS

_FINGERPRINT_DIGITS = 32  # hexadecimal digits: 128 bits
_CONTENT_FIELDS = ("f:data", "f:binaryData")


class Source(Struct, frozen=True):
    """A ConfigMap or Secret: `digests` of those `keys` that are used, and one `digest` of all keys.

    `changed` is the time of the last change of its content, if its metadata contains one.
    """

    digest: str
    keys: frozenset[str]
    digests: Mapping[str, str]
    changed: datetime | None = None

    def covers(self, reference: Reference) -> bool:
        """Return whether all keys of the reference have been digested."""
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
    """Return a ConfigMap or Secret from its JSON, reduced to digests of these `keys` and of all keys.

    Digests of a Secret are computed with the `key`: many users can read annotations of workloads, and could find a
    short password by trial. The Secret's uid is part of its digests. Otherwise a tenant could compare them
    with digests of values in a Secret of their own.
    """
    document = decode(body, _Document)
    fields = {"data": document.data, "binaryData": document.binary_data}
    digest = Key(b"").digest
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


def _changed(metadata: _Metadata) -> datetime | None:
    """Return the time of the last change of the content, or a later one.

    The time of an entry is that of its manager's last change to any field that the manager owns.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """
    owners = [entry for entry in metadata.managed_fields or () if _owns_content(entry)]
    times = [each for each in (metadata.creation_timestamp, *(entry.time for entry in owners)) if each]
    return max(times, default=None)


def _owns_content(entry: _Entry) -> bool:
    try:
        fields = decode_map(entry.fields_v1, Raw)
    except InvalidObjectError:  # a client can send an invalid entry
        return True
    return any(name in fields for name in _CONTENT_FIELDS)


def fingerprint(reference: Reference, found: Source | None) -> str:
    """Return a hash of the keys of the source that pods use; a source that does not exist has no keys."""
    if reference.keys is None:
        return found.digest if found else _fingerprint({})
    digests = found.digests if found else {}
    return _fingerprint({name: digests[name] for name in reference.keys if name in digests})


def _fingerprint(digests: Mapping[str, str]) -> str:
    used = "\n".join(f"{name} {digests[name]}" for name in sorted(digests))
    return hashlib.sha256(used.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def missing(reference: Reference, found: Source | None) -> str:
    """Return what pods need to start and is missing, with the remedy, or an empty string."""
    if found is None:
        return f"{reference} does not exist; create it" if reference.required else ""
    absent = [key for key in reference.required_keys if key not in found.digests]
    return f"{reference} has no key {', '.join(absent)}; add it" if absent else ""
