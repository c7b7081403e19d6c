"""The key of the fingerprints of Secrets: a Secret that the manifests ship empty and that the first run fills. Pure."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from contextlib import suppress

import msgspec
from msgspec import Struct, field

from jobs.kit.decoding import decode, decode_plain
from jobs.kit.diff import HIDDEN
from jobs.kit.errors import ApiError, InvalidObjectError
from jobs.kit.model import Action, ExitCode, Finding, Fix, ObjectKey, Severity

KEY_NAME = "roll-workloads-key"
_FIELD = "key"
_FEWEST_BYTES = 32
_LABEL = ("app.kubernetes.io/component", "roll-workloads")


class NoKeyError(ApiError):
    """There is no key, and a person must act first."""

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class Key(Struct, frozen=True):
    """The key. `unfilled` is the JSON of its Secret as it was read, where the key is still to be written there."""

    value: bytes
    unfilled: bytes = b""

    @property
    def id(self) -> str:
        """A name for the key that reveals nothing of it."""
        return self.digest("key id")[:16]

    def digest(self, *parts: str) -> str:
        """Return an HMAC of the parts, which contain no null character."""
        return hmac.new(self.value, "\0".join(parts).encode(), hashlib.sha256).hexdigest()

    def __repr__(self) -> str:
        return "Key()"


class KeySecretPatch(Struct, frozen=True, gc=False):
    """What the write of a new key sends: exactly that version of the Secret, with the key."""

    key: Key

    def encode(self) -> bytes:
        """Return the Secret as JSON."""
        whole = decode_plain(self.key.unfilled)
        whole["metadata"].pop("managedFields", None)  # left out, they stay as they are
        whole["data"] = {**(whole.get("data") or {}), _FIELD: self._encoded}
        return msgspec.json.encode(whole)

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the field of the key if the server keeps another value."""
        return () if _value(answer) == self.key.value else (f"data[{_FIELD}]",)

    def redact(self, text: str) -> str:
        """Return the text without the key: an admission webhook may quote what it refuses."""
        return text.replace(self._encoded, HIDDEN).replace(self.key.value.decode(), HIDDEN)

    @property
    def _encoded(self) -> str:
        return b64encode(self.key.value).decode()

    def __repr__(self) -> str:
        return "FilledSecret()"


class _Metadata(Struct):
    labels: dict[str, str] | None = None


class _Document(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    data: dict[str, str | None] | None = None

    def __repr__(self) -> str:
        return "_Document()"


def read(place: ObjectKey, body: bytes, error: ApiError | None, new: str) -> Key | ApiError:
    """Return the key from the JSON of its Secret, the `new` one where the Secret is shipped and has none, or an error.

    A value that is too short is none: it could be guessed. A Secret without the label of the manifests is not filled:
    the name that was given may be a mistake.
    """
    if error:
        return _absent(place) if error.status == 404 else error
    try:
        value, labels = _value(body), decode(body, _Document).metadata.labels or {}
    except InvalidObjectError as invalid:
        return NoKeyError(f"{place}: {invalid.message}")
    if len(value) >= _FEWEST_BYTES:
        return Key(value)
    name, desired = _LABEL
    return Key(new.encode(), unfilled=body) if labels.get(name) == desired else _not_ours(place)


def _value(body: bytes) -> bytes:
    encoded = (decode(body, _Document).data or {}).get(_FIELD) or ""
    with suppress(ValueError):
        return b64decode(encoded)
    return b""


def _absent(place: ObjectKey) -> NoKeyError:
    return NoKeyError(f"{place} does not exist; the manifests in cronjobs/ create it empty, and a run fills it")


def _not_ours(place: ObjectKey) -> NoKeyError:
    label = "=".join(_LABEL)
    return NoKeyError(
        f"{place} has no `{_FIELD}` of at least {_FEWEST_BYTES} bytes, and runs fill only a Secret labelled {label}"
    )


def unnamed() -> NoKeyError:
    """Return the error that a run outside a pod does not know where the key is."""
    return NoKeyError(f"name its Secret: --key-secret kube-chores/{KEY_NAME}, or where kube-chores is installed")


def key_secret_patch(place: ObjectKey, new: Key) -> Finding:
    """Return the finding that the Secret is to be filled."""
    reason = "has no key yet, and fingerprints of Secrets need one"
    fix = Fix(Action.REPLACE, KeySecretPatch(new), "has a new key for fingerprints of Secrets")
    return Finding("missing", Severity.WARNING, place, reason, fix)
