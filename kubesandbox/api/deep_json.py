"""JSON as deep as kube-apiserver takes it: what Python could not decode or walk through stays as it was sent."""

from __future__ import annotations

import re
from typing import Any

import msgspec

MAX_DEPTH = 10_000
# Of a fieldsV1 that is decoded: the sandbox recurses into it.
DECODED_DEPTH = 100
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_FIELDS = re.compile(rb'"fieldsV1"\s*:\s*')


def decode(text: bytes) -> Any:
    """Decode JSON; a deep fieldsV1 becomes msgspec.Raw.

    Raises:
        msgspec.DecodeError: it is not valid JSON, or too deep.
    """
    if text.count(b"{") + text.count(b"[") <= DECODED_DEPTH:
        return msgspec.json.decode(text)
    shallow, deep = _set_aside(text)
    try:
        decoded = msgspec.json.decode(shallow)
    except RecursionError:
        raise msgspec.DecodeError("exceeded max depth") from None
    if deep:
        _put_back(decoded, deep)
    return decoded


def _set_aside(text: bytes) -> tuple[bytes, list[bytes]]:
    """Return the text with the number of each deep fieldsV1 in its place, and these."""
    parts: list[bytes] = []
    deep: list[bytes] = []
    start = 0
    for field in _FIELDS.finditer(text):
        if field.start() < start:
            continue
        end, depth = _extent(text, field.end())
        if depth > MAX_DEPTH - 5:  # the levels around it
            raise msgspec.DecodeError("exceeded max depth")
        if depth > DECODED_DEPTH:
            parts += [text[start : field.end()], str(len(deep)).encode()]
            deep.append(text[field.end() : end])
            start = end
    return b"".join([*parts, text[start:]]), deep


def _extent(text: bytes, start: int) -> tuple[int, int]:
    """Return where the value ends that begins here, and how deep it is."""
    depth = deepest = 0
    for token in _TOKENS.finditer(text, start):
        if token[0] in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in b"}]":
            depth -= 1
        if depth <= 0:
            return token.end(), deepest
    return len(text), deepest


def _put_back(decoded: Any, deep: list[bytes]) -> None:
    for entry in decoded["metadata"]["managedFields"]:
        if isinstance(entry.get("fieldsV1"), int):
            entry["fieldsV1"] = msgspec.Raw(deep[entry["fieldsV1"]])
