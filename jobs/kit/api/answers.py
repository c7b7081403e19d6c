"""Decode and validate the answers of the Kubernetes API: a proxy may answer in its place. Errors as exceptions."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from msgspec import Struct

from jobs.kit.api.messages import Answer
from jobs.kit.values.decoding import decode
from jobs.kit.values.errors import ApiError, CredentialsError, InvalidObjectError
from jobs.kit.values.resources import Resource

_METADATA_KIND = ("meta.k8s.io/v1", "PartialObjectMetadata")

Form = TypeVar("Form", bound="TypeMeta")


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


def error_of(answer: Answer) -> ApiError | None:
    """Return the error of an answer, or None for a status of 2xx."""
    if answer.is_success:
        return None
    if answer.is_unsent:
        return CredentialsError(answer.error)
    if not answer.status:
        return ApiError(0, answer.error)
    if answer.status == 401:
        return ApiError(401, "Unauthorized: the API server does not accept these credentials; check the context's user")
    status = _decode_status(answer)
    if status is None:
        text = answer.body[:200].decode(errors="replace").strip()
        message = f"HTTP {answer.status} for {answer.request.method} {answer.request.path}: {text}"
        return ApiError(answer.status, message)
    causes = (status.details and status.details.causes) or []
    reasons, fields = [cause.reason for cause in causes], {cause.field for cause in causes}
    return ApiError(answer.status, status.message or f"HTTP {answer.status}", reasons, fields)


def decode_answer(answer: Answer, form: type[Form], kind: tuple[str, str]) -> Form:
    """Decode an answer as `form`, and check its API version and kind.

    Raises:
        ApiError: the answer is an error, or is not of this kind: a proxy may answer in place of the API server.
    """
    error = error_of(answer)
    if error:
        raise error
    try:
        found = decode(answer.body, form)
    except InvalidObjectError as invalid:
        raise ApiError(0, f"{mismatch(answer, kind[1])}: {invalid.why}") from None
    if (found.api_version, found.kind) != kind:
        raise ApiError(0, f"{mismatch(answer, kind[1])} of {kind[0]}, but {found.kind!r} of {found.api_version!r}")
    return found


def check_read_answer(answer: Answer) -> Answer:
    """Return the answer to a GET of one object, with status 0 and an error if it is not an answer of the API."""
    resource, namespace, name, full = answer.request.tag
    if not resource.is_object:
        return answer
    kind = (resource.api_version, resource.kind) if full else _METADATA_KIND
    return _checked(answer, kind, may_be_absent=True, at=ObjectName(name, namespace))


def check_write_answer(answer: Answer, resource: Resource) -> Answer:
    """Return the answer to a write, with status 0 if it is neither an error nor an object of `resource`.

    The answer to a delete is a Status or the object.
    """
    is_delete = answer.request.method == "DELETE"
    if is_delete and answer.is_success and _decode_status(answer):
        return answer
    return _checked(answer, (resource.api_version, resource.kind), may_be_absent=is_delete)


def _checked(answer: Answer, kind: tuple[str, str], *, may_be_absent: bool, at: ObjectName | None = None) -> Answer:
    """Return the answer, with status 0 if it is a success without an object of this kind, or 404 without a Status."""
    try:
        if answer.is_success:
            found = decode_answer(answer, _NamedObject if at else TypeMeta, kind)
            if isinstance(found, _NamedObject) and found.metadata != at:
                raise ApiError(0, mismatch(answer, "the object of that name"))
        elif answer.status == 404 and may_be_absent and not _decode_status(answer):
            raise ApiError(0, mismatch(answer, "a Status of the Kubernetes API"))
    except ApiError as error:
        return replace(answer, status=0, body=b"", error=error.message)
    return answer


def mismatch(answer: Answer, what: str) -> str:
    """Return the message for an answer that is not `what`."""
    return f"the answer to {answer.request.method} {answer.request.path.partition('?')[0]} is not {what}"


def _decode_status(answer: Answer) -> _Status | None:
    """Return the Status in an answer, or None: a proxy may answer in place of the API server."""
    try:
        status = decode(answer.body, _Status)
    except InvalidObjectError:
        return None
    return status if (status.api_version, status.kind) == ("v1", "Status") else None
