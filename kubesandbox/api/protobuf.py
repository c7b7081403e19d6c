"""Protobuf bodies, which kubectl sends when it creates built-in objects.

Envelope and encoding: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding.
Non-pointer fields are on the wire even when they are empty, so empty strings and messages are left out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Obj = dict[str, Any]
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_SCALARS = ("string", "bytes", "bool", "int")


class ProtobufError(ValueError):
    """A body that is none of the messages known here."""


@cache
def _messages() -> dict[str, dict[int, tuple[str, str]]]:
    raw = yaml.safe_load((Path(__file__).parent / "protobuf.yaml").read_text())
    return {
        message: {number: tuple(field.split(" ", 1)) for number, field in fields.items()}
        for message, fields in raw.items()
    }


def decode(body: bytes) -> Obj:
    """The object in an envelope, as JSON would have it."""
    if not body.startswith(_MAGIC):
        raise ProtobufError("the body lacks the prefix of Kubernetes' protobuf")
    envelope = dict(_fields(body[len(_MAGIC) :]))
    header = dict(_fields(envelope.get(1, b"")))
    version, kind = header.get(1, b"").decode(), header.get(2, b"").decode()
    if kind not in _messages():
        raise ProtobufError(f"{kind} is not read as protobuf here, send JSON")
    return {"kind": kind, "apiVersion": version, **_message(kind, envelope.get(2, b""))}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, at = _varint(data, at)
                yield number, value
            elif wire == 2:
                length, at = _varint(data, at)
                yield number, data[at : at + length]
                at += length
            else:
                at += 8 if wire == 1 else 4
    except IndexError:
        raise ProtobufError("the body is cut short") from None


def _message(kind: str, data: bytes) -> Obj:
    known = _messages().get(kind, {})
    out: Obj = {}
    for number, raw in _fields(data):
        if number not in known:
            continue
        name, type_name = known[number]
        form, _, inner = type_name.rpartition(" ")
        if form == "map":
            entry = dict(_fields(raw))
            out.setdefault(name, {})[entry.get(1, b"").decode()] = _value(inner, entry.get(2, b""))
        elif form == "list":
            out.setdefault(name, []).append(_value(inner, raw))
        elif form == "inline":
            out.update(_message(inner, raw))
        else:
            value = _value(inner, raw)
            if value not in ("", {}, None):
                out[name] = value
    return out


def _value(type_name: str, raw: Any) -> Any:
    if type_name in _SCALARS:
        return _scalar(type_name, raw)
    if type_name == "Time":
        seconds = dict(_fields(raw)).get(1)
        return None if not seconds else f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    if type_name == "Quantity":
        return dict(_fields(raw)).get(1, b"").decode()
    if type_name == "IntOrString":
        parts = dict(_fields(raw))
        return parts.get(3, b"").decode() if parts.get(1) else parts.get(2, 0)
    return _message(type_name, raw)


def _scalar(type_name: str, raw: Any) -> Any:
    if type_name == "string":
        return raw.decode()
    if type_name == "bytes":
        return base64.b64encode(raw).decode()
    if type_name == "bool":
        return bool(raw)
    return raw - (1 << 64) if raw >= 1 << 63 else raw
