"""API errors: the Status objects of kube-apiserver, with its reasons, details and wording.

Reference: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..schema.causes import Cause
from ..schema.resources import Resource

Obj = dict[str, Any]

MEDIA_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(eq=False)
class ApiError(Exception):
    """A request that fails: becomes a Status response."""

    code: int
    reason: str
    message: str
    details: Obj | None = None
    headers: dict[str, str] = field(default_factory=dict)
    metadata: Obj = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def status(self) -> Obj:
        """The Status object."""
        status: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


class PlainNotFoundError(Exception):
    """A path that no handler serves: kube-apiserver answers it in plain text."""


def details_of(resource: Resource, name: str, kind: str = "") -> Obj:
    """The object that a Status is about; `kind` instead of the plural name."""
    details: Obj = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    """404 of an object."""
    text = f'{resource.qualified} "{name}" not found'
    return ApiError(404, "NotFound", text, details_of(resource, name))


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> ApiError:
    """409 of an update or a precondition."""
    text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", text, details_of(resource, name))


def forbidden(resource: Resource, name: str, why: str, causes: list[Cause] | None = None) -> ApiError:
    """403 of an authorizer or an admission rule."""
    title = f'{resource.qualified} "{name}"' if name else resource.qualified
    details = details_of(resource, name)
    if causes:
        details["causes"] = [cause.as_dict() for cause in causes]
    return ApiError(403, "Forbidden", f"{title} is forbidden: {why}", details)


def invalid(resource: Resource, name: str, causes: list[Cause]) -> ApiError:
    """422 with all its causes."""
    texts = list(dict.fromkeys(cause.text() for cause in causes))
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = details_of(resource, name, resource.kind)
    details["causes"] = [cause.as_dict() for cause in causes]
    title = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return ApiError(422, "Invalid", f'{title} "{name}" is invalid: {joined}', details)


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(accepted: tuple[str, ...] = MEDIA_TYPES) -> ApiError:
    """415 of a body that is not an object."""
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", text)


def unknown_path() -> ApiError:
    """404 of a resource that a known API version does not have."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})
