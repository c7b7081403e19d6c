"""The baseline: an annotation of a workload that records the config its pods started with, and its write. Pure.

It is an annotation of the workload itself, where a change does not start a rollout. A roll changes the baseline and an
annotation of the pod template in one write. A run cannot compare with a baseline of another version, of other
references, or computed with another key.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import Action, Body, Change, ExitCode, Finding, ObjectKey, Severity
from jobs.kit.values.reads import decode, decode_plain
from jobs.kit.values.text import HIDDEN

ROLL_OPT_IN = "kubechores.dev/roll-on-config-change"
BASELINE = "kubechores.dev/config-baseline"
ROLL_ID = "kubechores.dev/config"  # on the pod template
TEMPLATE_FIELD = f"spec.template.metadata.annotations[{ROLL_ID}]"
RESTART_FIELD = "spec.restartAt"  # of a Rollout
_VERSION = 1
_FIRST_YEAR = 2000
# For workloads with Secrets. A release without keys would compare fingerprints that it computes without a key.
_KEYED_VERSION = 2


class Baseline(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fingerprints by reference, the uid of the workload, and the time of its last roll by this job.

    `key` is the id of the key for fingerprints of Secrets; empty if the workload uses no Secrets. `early` is the number
    of consecutive rolls, up to the last one, that replaced a stuck rollout. The last roll made the
    pod template with the digest `template` and the `generation`: a workload with that template runs, or starts, its
    pods. `recorded` is when the `period` of a workload began, which has the text of its annotation.
    """

    version: int
    uid: str
    sources: Mapping[str, str]
    key: str = ""
    rolled_at: Annotated[datetime, Meta(tz=True)] | None = None
    early: Annotated[int, Meta(ge=0)] = 0
    template: str = ""
    generation: int = 0
    recorded: Annotated[datetime, Meta(tz=True)] | None = None
    period: str = ""

    def encode(self) -> str:
        """Return the value of the annotation; equal baselines have equal values."""
        return msgspec.json.encode(self, order="sorted").decode()

    def changed(self, now: Mapping[str, str]) -> list[str]:
        """Return the references whose fingerprint differs `now`; both have the same references."""
        return [name for name in sorted(now) if self.sources.get(name) != now[name]]


def create(uid: str, sources: Mapping[str, str], key: str, rolled_at: datetime | None = None) -> Baseline:
    """Return a baseline of the current version; the time is truncated to seconds."""
    version = _KEYED_VERSION if key else _VERSION
    return Baseline(version, uid, sources, key, rolled_at.replace(microsecond=0) if rolled_at else None)


def parse(text: str, uid: str) -> Baseline | None:
    """Return the baseline from the annotation of a workload.

    None if it is not valid, its version is unknown, or its uid is that of another workload: the workload was copied or
    restored. A time before there was this job is not valid.
    """
    try:
        found = decode(text, Baseline)
    except InvalidObjectError:
        return None
    is_known = found.version in (_VERSION, _KEYED_VERSION) and found.uid == uid
    times = [each for each in (found.rolled_at, found.recorded) if each]
    return found if is_known and all(each.year >= _FIRST_YEAR for each in times) else None


def next_roll_id(before: str, after: Baseline) -> str:
    """Return the next value of the pod template's annotation, which always differs from the one `before`.

    It depends on `before`, because `kubectl rollout undo` restores old values.
    """
    return hashlib.sha256(f"{before}\n{after.encode()}".encode()).hexdigest()[:32]


class BaselinePatch(Body, frozen=True, gc=False):
    """The merge patch of exactly one version of a workload: a baseline, and with a `roll_id` a rolling restart.

    The restart of a Rollout is `restart_at`, a time in RFC 3339, in place of `roll_id`. `last_roll` is not sent: it is
    the time of the workload's previous roll, as text.
    """

    uid: str
    resource_version: str
    baseline: str
    roll_id: str = ""
    last_roll: str = ""
    restart_at: str = ""

    def encode(self) -> bytes:
        """Return the patch as JSON."""
        metadata = {"uid": self.uid, "resourceVersion": self.resource_version, "annotations": {BASELINE: self.baseline}}
        spec: dict[str, object] = {}
        if self.roll_id:
            spec["template"] = {"metadata": {"annotations": {ROLL_ID: self.roll_id}}}
        if self.restart_at:
            spec["restartAt"] = self.restart_at
        return msgspec.json.encode({"metadata": metadata, **({"spec": spec} if spec else {})})

    def changed_by_server(self, response: bytes) -> tuple[str, ...]:
        """Return the annotations whose values in the response differ from those that were sent."""
        kept = decode(response, _Patched)
        found = (kept.metadata.annotations or {}).get(BASELINE) == self.baseline
        roll_id = (kept.spec.template.metadata.annotations or {}).get(ROLL_ID)
        lost = {
            f"metadata.annotations[{BASELINE}]": not found,
            TEMPLATE_FIELD: bool(self.roll_id) and roll_id != self.roll_id,
            RESTART_FIELD: bool(self.restart_at) and kept.spec.restart_at != self.restart_at,
        }
        return tuple(name for name, is_lost in lost.items() if is_lost)

    def fits_without_others(self) -> bool:
        """Return True: the annotations of a patch are always within the API server's limit."""
        return True


class _Metadata(Struct):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class _Template(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)


class _Spec(Struct, rename="camel"):
    template: _Template = field(default_factory=_Template)
    restart_at: str | None = None


class _Patched(Struct):
    """The fields of the response to a BaselinePatch that the patch can change."""

    metadata: _Metadata
    spec: _Spec


_FIELD = "key"
_FEWEST_BYTES = 32
_LABEL = ("app.kubernetes.io/component", "roll-workloads")


class NoKeyError(ApiError):
    """There is no key, and a user must act first."""

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class Key(Struct, frozen=True):
    """The key. `empty_secret` is the JSON of its Secret as it was read, if a run must write the key there."""

    value: bytes
    empty_secret: bytes = b""

    @property
    def id(self) -> str:
        """An identifier of the key that does not reveal it: 64 bits of a hash, in hexadecimal digits."""
        return self.digest("key id")[:16]

    def digest(self, *parts: str) -> str:
        """Return an HMAC of the parts, which contain no null character."""
        return hmac.new(self.value, "\0".join(parts).encode(), hashlib.sha256).hexdigest()

    def __repr__(self) -> str:
        return "Key()"


class KeySecretPatch(Body, frozen=True, gc=False):
    """The write of a new key: exactly the version of the Secret that was read, with the key."""

    key: Key

    def encode(self) -> bytes:
        """Return the Secret as JSON."""
        secret = decode_plain(self.key.empty_secret)
        secret["metadata"].pop("managedFields", None)  # the server keeps them if they are not sent
        secret["data"] = {**(secret.get("data") or {}), _FIELD: self._encoded}
        return msgspec.json.encode(secret)

    def changed_by_server(self, response: bytes) -> tuple[str, ...]:
        """Return the field of the key if its value in the response differs.

        Raises:
            InvalidObjectError: it is not a key, so each run would write another one.
        """
        if len(value := _value(decode(response, _Document))) < _FEWEST_BYTES:
            raise InvalidObjectError(f"admission removed `{_FIELD}`")
        return () if value == self.key.value else (f"data[{_FIELD}]",)

    def redact(self, text: str) -> str:
        """Return the text without the key: an admission webhook can quote the object that it denies."""
        return text.replace(self._encoded, HIDDEN).replace(self.key.value.decode(), HIDDEN)

    @property
    def _encoded(self) -> str:
        return b64encode(self.key.value).decode()

    def __repr__(self) -> str:
        return "KeySecretPatch()"


class _Document(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    data: dict[str, str | None] | None = None

    def __repr__(self) -> str:
        return "_Document()"


def read_key(secret: ObjectKey, body: bytes, error: ApiError | None, new: str) -> Key | ApiError:
    """Return the key from the JSON of its Secret, the `new` key if a Secret of the manifests has none, or an error.

    A value that is too short can be guessed, so it does not count as a key. A Secret without the label of the manifests
    is not filled: --key-secret may name it by mistake. A copy is not a key: the author of its source knows its value.
    """
    if error:
        if error.status != 404:
            return error
        why = "does not exist; the manifests in cronjobs/ create it empty, and a run adds the key"
        return NoKeyError(f"{secret} {why}")
    try:
        found = decode(body, _Document)
    except InvalidObjectError as invalid:
        return NoKeyError(f"{secret}: {invalid.message}")
    value, labels = _value(found), found.metadata.labels or {}
    if stamps.JOB in labels:
        why = f"has the label {stamps.JOB} of a copy, so its author may be a tenant"
        return NoKeyError(f"{secret} {why}; delete it, and apply the manifests again")
    if len(value) >= _FEWEST_BYTES:
        return Key(value)
    name, desired = _LABEL
    if labels.get(name) == desired:
        return Key(new.encode(), empty_secret=body)
    why = f"has no `{_FIELD}` of at least {_FEWEST_BYTES} bytes"
    return NoKeyError(f"{secret} {why}; label it {name}={desired}, so that a run sets the key")


def _value(found: _Document) -> bytes:
    with suppress(ValueError):
        return b64decode((found.data or {}).get(_FIELD) or "")
    return b""


def key_secret_patch(secret: ObjectKey, new: Key) -> Finding:
    """Return the finding that the Secret has no key, with the write of the key as its change."""
    reason = "has no key yet, and the fingerprints of Secrets require one"
    change = Change(Action.REPLACE, KeySecretPatch(new), "has a new key for the fingerprints of Secrets")
    return Finding("missing", Severity.WARNING, secret, reason, change)
