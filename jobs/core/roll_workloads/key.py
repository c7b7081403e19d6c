"""The key for fingerprints of Secrets: in a Secret that the manifests create empty and the first run fills. Pure."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from contextlib import suppress

import msgspec
from msgspec import Struct, field

from jobs.kit.values import stamps
from jobs.kit.values.decoding import decode, decode_plain
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import Action, Body, ExitCode, Finding, Fix, ObjectKey, Severity
from jobs.kit.values.names import KEY_NAME
from jobs.kit.values.text import HIDDEN

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

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the field of the key if its value in the response differs.

        Raises:
            InvalidObjectError: it is not a key, so each run would write another one.
        """
        if len(value := _value(answer)) < _FEWEST_BYTES:
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


class _KeyMetadata(Struct):
    labels: dict[str, str] | None = None


class _Document(Struct):
    metadata: _KeyMetadata = field(default_factory=_KeyMetadata)
    data: dict[str, str | None] | None = None

    def __repr__(self) -> str:
        return "_Document()"


def read(secret: ObjectKey, body: bytes, error: ApiError | None, new: str) -> Key | ApiError:
    """Return the key from the JSON of its Secret, the `new` key if a Secret of the manifests has none, or an error.

    A value that is too short can be guessed, so it does not count as a key. A Secret without the label of the manifests
    is not filled: --key-secret may name it by mistake. A copy is not a key: the author of its source knows its value.
    """
    if error:
        if error.status != 404:
            return error
        return NoKeyError(
            f"{secret} does not exist; the manifests in cronjobs/ create it empty, and a run adds the key"
        )
    try:
        value, labels = _value(body), decode(body, _Document).metadata.labels or {}
    except InvalidObjectError as invalid:
        return NoKeyError(f"{secret}: {invalid.message}")
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


def _value(body: bytes) -> bytes:
    encoded = (decode(body, _Document).data or {}).get(_FIELD) or ""
    with suppress(ValueError):
        return b64decode(encoded)
    return b""


def key_secret_not_set() -> NoKeyError:
    """Return the error of a run outside a pod without --key-secret."""
    return NoKeyError(
        f"its Secret is not set; use --key-secret kube-chores/{KEY_NAME}, with the namespace of your installation"
    )


def key_secret_patch(secret: ObjectKey, new: Key) -> Finding:
    """Return the finding that the Secret has no key, with the write of the key as its fix."""
    reason = "has no key yet, and the fingerprints of Secrets require one"
    fix = Fix(Action.REPLACE, KeySecretPatch(new), "has a new key for the fingerprints of Secrets")
    return Finding("missing", Severity.WARNING, secret, reason, fix)
