"""What a run reads: objects, custom resources, and pages of the web; each may be an error, which is a finding. Pure.

JSON of other clients is decoded: for any input, the result is a value or an InvalidObjectError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import ExitCode, Finding, ObjectKey, Result, Severity

MAX_LEVELS = 100  # fieldsV1 of a pod template has about 20; kube-apiserver allows 10,000
_LONGEST_KNOWN = 4096  # bytes of a fieldsV1
_LONGEST_REASON = 200
_LONGEST_FIELD = 1024  # of metadata that a run keeps; the API limits most of them to 253
# A string is one token, so that brackets in it do not count. One that never ends is a token too: each character is then
# read once, whatever the text.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)

Kind = TypeVar("Kind")
Reduced = TypeVar("Reduced")
Status = TypeVar("Status")
Spec = TypeVar("Spec")
Parsed = TypeVar("Parsed")
# The errors of downloads that were not requested.
NOT_FETCHED = "not fetched: the run was stopped"
NOT_IN_TIME = "not probed in time"
NOT_REQUESTED = "not requested: an earlier request to the registry failed"
# The errors of downloads whose host name was not resolved.
NO_DNS = "no DNS server answered"
NAME_NOT_FOUND = "its host name was not found"
# The statuses of downloads that a server refuses without a login, or with this one.
REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


def decode(raw: bytes | Raw | str, kind: type[Kind]) -> Kind:
    """Decode a JSON text as `kind`. Lists and objects that are nested too deep are decoded as null.

    Raises:
        InvalidObjectError: the text is not JSON, or its value is not of that kind.
    """
    decoded: Kind = _decode(raw, _decoder(kind))  # type: ignore[arg-type] # all types have a hash
    return decoded


def _decode(raw: bytes | Raw | str, decoder: msgspec.json.Decoder[Any]) -> Any:
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
    return _decode(raw or b"[]", _list_decoder(kind)) or []  # type: ignore[arg-type]


def decode_map(raw: bytes | Raw, kind: type[Kind]) -> dict[str, Kind]:
    """Decode a JSON object; an absent object, or null, is empty.

    Raises:
        InvalidObjectError: the text is not an object with values of that kind.
    """
    return _decode(raw or b"{}", _map_decoder(kind)) or {}  # type: ignore[arg-type]


def members(raw: bytes | Raw) -> dict[str, Raw]:
    """Decode one level of a JSON object, such as a fieldsV1; empty if it is none: any client may send such a text."""
    try:
        return decode_map(raw, Raw)
    except InvalidObjectError:
        return {}


def once_if_short(convert: Callable[[bytes], Kind]) -> Callable[[bytes], Kind]:
    """Keep the last results of a function of a fieldsV1, if it is short: those that one client wrote are few."""
    known = lru_cache(maxsize=64)(convert)
    return lambda text: (known if len(text) <= _LONGEST_KNOWN else convert)(text)


@lru_cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@lru_cache
def _list_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[kind] | None)


@lru_cache
def _map_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(dict[str, kind] | None)


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

    name: Annotated[str, Meta(min_length=1, max_length=_LONGEST_FIELD)]
    uid: Annotated[str, Meta(max_length=_LONGEST_FIELD)] = ""
    namespace: Annotated[str, Meta(max_length=_LONGEST_FIELD)] = ""
    resource_version: Annotated[str, Meta(max_length=_LONGEST_FIELD)] = ""
    generation: int = 0
    creation_timestamp: Annotated[str, Meta(max_length=_LONGEST_FIELD)] | None = None
    deletion_timestamp: Annotated[str, Meta(max_length=_LONGEST_FIELD)] | None = None
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


class ReadResult(Struct, frozen=True):
    """The result of reading one object: its JSON or an error. An error with status 404: the object does not exist."""

    body: bytes = b""
    error: ApiError | None = None

    def reduced(self, reduce: Callable[[bytes], Reduced]) -> Reduced | ApiError:
        """Return the object reduced by `reduce`, or the error of the read or of `reduce`."""
        if self.error:
            return self.error
        try:
            return reduce(self.body)
        except InvalidObjectError as error:
            return error.without_traceback()

    def reduced_if_exists(self, reduce: Callable[[bytes], Reduced]) -> Reduced | ApiError | None:
        """Return the same as `reduced`, but None for an object that does not exist."""
        return None if self.error and self.error.status == 404 else self.reduced(reduce)


class InvalidObject(NamedTuple):
    """An object of a list that could not be decoded, and why. Without a name, its `key` has its number in the list."""

    key: ObjectKey
    error: InvalidObjectError


class Head(Struct, frozen=True):
    """The metadata of a custom resource, and its status as JSON, as an earlier run wrote it.

    `created` is a time in RFC 3339, `version` the resourceVersion. A custom resource from a file has neither of them,
    and no `uid` and `status`.
    """

    key: ObjectKey
    uid: str = ""
    generation: int = 0
    terminating: bool = False
    status: bytes = b""
    created: str = ""
    version: str = ""

    def status_as(self, kind: type[Status]) -> Status:
        """Return the status decoded as `kind`; an empty one if another client wrote something else."""
        try:
            return decode(self.status, kind) if self.status else kind()
        except InvalidObjectError:
            return kind()


class Invalid(Struct, frozen=True):
    """A custom resource that is not valid, with all its problems. One that could not be decoded has no uid."""

    head: Head
    problems: tuple[str, ...]


def parse(
    head: Head,
    spec: bytes,
    kind: type[Spec],
    problems: Callable[[Spec], Iterable[str]],
    combine: Callable[[Head, Spec], Parsed],
) -> Parsed | Invalid:
    """Return the custom resource, or all problems of its spec; `problems` yields each with its path in the spec."""
    try:
        decoded = decode(spec or b"null", kind)
    except InvalidObjectError as error:
        return Invalid(head, (f"spec: {error.why}",))
    found = tuple(f"spec.{problem}" for problem in problems(decoded))
    return Invalid(head, found) if found else combine(head, decoded)


class Download(NamedTuple):
    """A document, or an error. The same cause has the same text, so that statuses stay unchanged.

    `status` is the one of the last answer, or 0 without a response; `challenge` is its header WWW-Authenticate. That of
    a ManifestRequest has no body: `digest` and `media_type` are those of the manifest.
    """

    body: bytes = b""
    error: str = ""
    status: int = 0
    challenge: str = ""
    digest: str = ""
    media_type: str = ""


def unreadable(key: ObjectKey, error: ApiError, reason: str = "", subjects: tuple[str, ...] = ()) -> Finding:
    """Return the finding of an object that cannot be read; never treat this as a missing object.

    Without a `reason`, it is the message of the error.
    """
    reason = reason or error.message
    return Finding("unreadable", error.severity, key, reason, subjects=subjects, exit_code=error.exit_code)


def read_failure(error: ApiError, what: str = "", remedy: str = "") -> str:
    """Return the reason of a finding about `what`, such as a list, with the remedy if rights are missing."""
    remedy = remedy or "the manifests in cronjobs/ grant the permissions that this job needs"
    return f"{what} cannot be read: {error.message}{f'; {remedy}' * error.is_permission}".lstrip()


def invalid(custom_resource: Invalid, subject: str = "") -> Finding:
    """Return the finding of a custom resource with all its problems; its name is the subject if that is empty."""
    key, reason = custom_resource.head.key, "; ".join(custom_resource.problems)
    subjects = (subject or key.name,)
    return Finding("invalid", Severity.CRITICAL, key, reason, subjects=subjects, exit_code=ExitCode.REFUSED)


def terminating(key: ObjectKey, subject: str, severity: Severity = Severity.INFO) -> Finding:
    """Return the finding of an object that is skipped because it is being deleted."""
    return Finding("skipped", severity, key, "is being deleted", subjects=(subject,))


def by_subject(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Return the results by the names of the custom resources that they are about."""
    found: dict[str, list[Result]] = {}
    for result in results:
        for name in result.finding.subjects:
            found.setdefault(name, []).append(result)
    return found
