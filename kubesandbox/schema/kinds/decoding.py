"""Values of typed fields as Go decodes them, with its errors."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ..go_types import UndecodableError, wrong_type

Obj = dict[str, Any]


def decode_strings(node: Obj, name: str, field: str) -> None:
    """Check a map of strings in place; null becomes an empty string. `field` is its name in errors.

    Raises:
        UndecodableError: it is not a map of strings.
    """
    values = node.get(name)
    if values is None:
        node.pop(name, None)
        return
    if not isinstance(values, dict):
        raise wrong_type(values, field, "map[string]string")
    for value in values.values():
        if value is not None and not isinstance(value, str):
            raise wrong_type(value, field, "string")
    node[name] = {key: "" if value is None else value for key, value in values.items()}


def decode_bytes(node: Obj, name: str, field: str) -> None:
    """Check a map of base64 texts in place, and remove their line breaks.

    Raises:
        UndecodableError: it is not a map of base64 texts.
    """
    values = node.get(name)
    if not values:
        return
    if not isinstance(values, dict):
        raise wrong_type(values, field, "map[string][]uint8")
    node[name] = {key: _canonical_base64(value, field) for key, value in values.items()}


def _canonical_base64(value: Any, field: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong_type(value, field, "[]uint8")
    text = value.replace("\r", "").replace("\n", "")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UndecodableError(f"illegal base64 data at input byte {_bad_byte(text)}") from None
    return text


def _bad_byte(text: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for position, char in enumerate(text):
        if char not in alphabet:
            return position
    return len(text) - len(text) % 4 if len(text) % 4 else len(text)
