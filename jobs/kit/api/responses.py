"""Requests and their responses. Decode and validate those of the Kubernetes API: a proxy may answer in its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from jobs.kit.values.errors import ApiError, CredentialsError, InvalidObjectError
from jobs.kit.values.reads import decode
from jobs.kit.values.resources import Resource
from jobs.kit.values.text import cut

RESPONSE_BYTES = 512 << 10  # the longest response that is read, unless the request sets another limit
_LONGEST_KIND = 253
_METADATA_KIND = ("meta.k8s.io/v1", "PartialObjectMetadata")
# By parts of the messages of libcurl and OpenSSL.
_CHECKS = {
    ("certificate is not yet valid", "certificate has expired"): (
        "check the clock of this machine, then the certificate of the API server"
    ),
    ("certificate", "SSL", "TLS"): ("check that the certificate authority of this client is that of the API server"),
    ("Could not resolve",): "check the name of the API server, and the DNS",
}
Form = TypeVar("Form", bound="TypeMeta")


class Request(Struct, frozen=True):
    """One HTTP request. `repeatable`: idempotent, so that it is retried if its response is lost.

    A body of more than `max_bytes` in the response is not read to its end. `compressed`: the server may compress the
    response. `weighs_response`: the response to a write may be as long as that.
    """

    method: str
    path: str
    body: bytes | None = None
    accept: str = "application/json"
    content_type: str = "application/json"
    repeatable: bool = True
    tag: Any = None
    max_bytes: int = RESPONSE_BYTES
    compressed: bool = False
    weighs_response: bool = False

    @property
    def weight(self) -> int:
        """The bytes that the request and its response may need: to a write, it has about the size of its body."""
        if self.body is None or self.weighs_response:
            return self.max_bytes
        return 2 * len(self.body)


class Response(Struct, frozen=True):
    """The response to a request. `status` is 0 without a complete response; `error` then has the reason.

    `attempts` counts from 1. `is_too_long`: the body has more than the `max_bytes` of the request; `start` is
    its first part. `is_unsent`: the request was not sent, since its credentials are missing.
    """

    request: Request
    status: int
    body: bytes = b""
    error: str = ""
    attempts: int = 1
    is_too_long: bool = False
    start: bytes = b""
    is_unsent: bool = False

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class Traffic(Struct):
    """Counts of a run: requests by method (with retries), and bytes of bodies as they were received and sent."""

    requests: Counter[str] = msgspec.field(default_factory=Counter)
    retries: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0

    def add(self, other: Traffic) -> None:
        """Add the counts of other requests."""
        self.requests.update(other.requests)
        self.retries += other.retries
        self.bytes_received += other.bytes_received
        self.bytes_sent += other.bytes_sent


class TypeMeta(Struct, rename="camel"):
    """The fields of every answer of the API: https://kubernetes.io/docs/reference/using-api/api-concepts/ ."""

    api_version: str
    kind: str


class ObjectName(Struct):
    """The metadata that identify an object."""

    name: str = ""
    namespace: str = ""


class _NamedObject(TypeMeta):
    metadata: ObjectName


class _Cause(Struct):
    reason: str = ""
    field: str = ""


class _Details(Struct):
    causes: list[_Cause] | None = None


class _Status(TypeMeta):
    message: str = ""
    details: _Details | None = None


def what_to_check(error: str) -> str:
    """Return what to check after this error of a connection, or an empty string: nothing is known about it."""
    return next((check for causes, check in _CHECKS.items() if any(each in error for each in causes)), "")


def error_of(response: Response) -> ApiError | None:
    """Return the error of a response, or None for a status of 2xx."""
    if response.is_success:
        return None
    if response.is_unsent:
        return CredentialsError(response.error)
    if not response.status:
        # Other errors have many causes, such as a server that restarts.
        check = f"; {what_to_check(response.error)}" if "certificate" in response.error else ""
        return ApiError(0, response.error + check)
    if response.status == 401:
        todo = "check that the token or certificate is of this cluster and has not expired"
        return ApiError(401, f"Unauthorized: the API server does not accept these credentials; {todo}")
    status = _decode_status(response)
    if status is None:
        text = response.body[:200].decode(errors="replace").strip()
        message = f"HTTP {response.status} for {response.request.method} {response.request.path}: {text}"
        return ApiError(response.status, message)
    if response.request.body is None:  # else the message may quote values, and apply.py redacts it first
        return ApiError(response.status, cut(status.message) or f"HTTP {response.status}")
    causes = (status.details and status.details.causes) or []
    reasons, fields = [cause.reason for cause in causes], {cause.field for cause in causes}
    return ApiError(response.status, status.message or f"HTTP {response.status}", reasons, fields)


def decode_response(response: Response, form: type[Form], kind: tuple[str, str]) -> Form:
    """Decode a response as `form`, and check its API version and kind.

    Raises:
        ApiError: the response is an error, or is not of this kind: a proxy may answer in place of the API server.
    """
    error = error_of(response)
    if error:
        raise error
    try:
        found = decode(response.body, form)
    except InvalidObjectError as invalid:
        raise ApiError(0, f"{mismatch(response, kind[1])}: {invalid.why}") from None
    if (found.api_version, found.kind) != kind:
        other = f"{found.kind[:_LONGEST_KIND]!r} of {found.api_version[:_LONGEST_KIND]!r}"
        raise ApiError(0, f"{mismatch(response, kind[1])} of {kind[0]}, but {other}")
    return found


def check_read_response(response: Response) -> Response:
    """Return the response to a GET of one object, with status 0 and an error if it is not a response of the API."""
    resource, namespace, name, full = response.request.tag
    if not resource.is_object:
        return response
    kind = (resource.api_version, resource.kind) if full else _METADATA_KIND
    return _checked(response, kind, may_be_absent=True, at=ObjectName(name, namespace))


def check_write_response(response: Response, resource: Resource) -> Response:
    """Return the response to a write, with status 0 if it is neither an error nor an object of `resource`.

    The response to a delete is a Status or the object.
    """
    is_delete = response.request.method == "DELETE"
    if is_delete and response.is_success and _decode_status(response):
        return response
    return _checked(response, (resource.api_version, resource.kind), may_be_absent=is_delete)


def _checked(
    response: Response, kind: tuple[str, str], *, may_be_absent: bool, at: ObjectName | None = None
) -> Response:
    """Return the response, with status 0 if it is a success without an object of this kind, or 404 without a Status."""
    try:
        if response.is_success:
            found = decode_response(response, _NamedObject if at else TypeMeta, kind)
            if isinstance(found, _NamedObject) and found.metadata != at:
                raise ApiError(0, mismatch(response, "the object of that name"))
        elif response.status == 404 and may_be_absent and not _decode_status(response):
            raise ApiError(0, mismatch(response, "a Status of the Kubernetes API"))
    except ApiError as error:
        return structs.replace(response, status=0, body=b"", error=error.message)
    return response


def mismatch(response: Response, what: str) -> str:
    """Return the message for a response that is not `what`."""
    return f"the answer to {response.request.method} {response.request.path.partition('?')[0]} is not {what}"


def with_message(body: bytes, change: Callable[[str], str]) -> bytes:
    """Return the body of an error with a changed message; without a Status, the whole text is its message."""
    status = _status_in(body)
    if status is None:
        return change(body.decode(errors="replace")).encode()
    return msgspec.json.encode(structs.replace(status, message=change(status.message)))


def _decode_status(response: Response) -> _Status | None:
    return _status_in(response.body)


def _status_in(body: bytes) -> _Status | None:
    """Return the Status in a response, or None: a proxy may answer in place of the API server."""
    try:
        status = decode(body, _Status)
    except InvalidObjectError:
        return None
    return status if (status.api_version, status.kind) == ("v1", "Status") else None
