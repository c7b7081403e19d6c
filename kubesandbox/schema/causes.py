"""Field errors of objects, in the words of kube-apiserver.

Source of the wording: k8s.io/apimachinery/pkg/util/validation/field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

Obj = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """One field error of a 422, or one conflict of a 409."""

    reason: str
    message: str
    field: str

    def text(self) -> str:
        """The cause as it reads in the Status message."""
        return f"{self.field}: {self.message}"

    def as_dict(self) -> Obj:
        """The cause as it stands in details.causes."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def quoted(value: object) -> str:
    """A value as Go's %q or JSON prints it inside field errors."""
    return msgspec.json.encode(value).decode()


def required(field: str, detail: str = "") -> Cause:
    """A missing value."""
    return Cause("FieldValueRequired", "Required value" + (f": {detail}" if detail else ""), field)


def invalid_value(field: str, value: object, detail: str) -> Cause:
    """A value that breaks a rule."""
    return Cause("FieldValueInvalid", f"Invalid value: {quoted(value)}: {detail}", field)


def wrong_type(field: str, value: object, detail: str) -> Cause:
    """A value of another type than the schema's."""
    return Cause("FieldValueTypeInvalid", f"Invalid value: {quoted(value)}: {detail}", field)


def forbidden_field(field: str, detail: str) -> Cause:
    """A value that may not be set or changed."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def not_supported(field: str, value: object, supported: list[str]) -> Cause:
    """A value outside an enumeration."""
    choices = ", ".join(quoted(choice) for choice in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {choices}", field)


def too_long(field: str, limit: int) -> Cause:
    """A value with too many bytes."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list with too many items."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def duplicate(field: str, value: object) -> Cause:
    """An item that a set or map already has."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {quoted(value)}", field)
