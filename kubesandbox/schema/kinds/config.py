"""ConfigMap and Secret."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from ..causes import Cause, forbidden_field, invalid_value, required, too_long
from ..go_types import UndecodableError, wrong_type
from ..validation import config_key_problems
from .kind import Kind

Obj = dict[str, Any]
DATA_LIMIT = 1024 * 1024
_IMMUTABLE = "field is immutable when `immutable` is set"


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


def _decode_config_map(obj: Obj) -> Obj:
    decode_strings(obj, "data", "ConfigMap.data")
    decode_bytes(obj, "binaryData", "ConfigMap.binaryData")
    return _without_empty(obj, "data", "binaryData")


def _decode_secret(obj: Obj) -> Obj:
    decode_strings(obj, "stringData", "Secret.stringData")
    decode_bytes(obj, "data", "Secret.data")
    plain = obj.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}
    obj["type"] = obj.get("type") or "Opaque"
    return _without_empty(obj, "data")


def _without_empty(obj: Obj, *names: str) -> Obj:
    return {key: value for key, value in obj.items() if key not in names or value}


def _config_map_causes(obj: Obj) -> list[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes = []
    size = 0
    for key, value in sorted(data.items()):
        causes += [invalid_value(f"data[{key}]", key, problem) for problem in config_key_problems(key)]
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value.encode())
    for key, value in sorted(binary.items()):
        causes += [invalid_value(f"binaryData[{key}]", key, problem) for problem in config_key_problems(key)]
        size += _decoded_length(value)
    return [*causes, too_long("[]", DATA_LIMIT)] if size > DATA_LIMIT else causes


def _decoded_length(text: str) -> int:
    """The bytes that a base64 text stands for."""
    return len(text) // 4 * 3 - text[-2:].count("=")


def _secret_causes(obj: Obj) -> list[Cause]:
    data = obj.get("data") or {}
    causes = []
    for key in sorted(data):
        causes += [invalid_value(f"data[{key}]", key, problem) for problem in config_key_problems(key)]
    if sum(_decoded_length(value) for value in data.values()) > DATA_LIMIT:
        causes.append(too_long("data", DATA_LIMIT))
    return causes + _typed_secret_causes(obj, data)


_REQUIRED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _typed_secret_causes(obj: Obj, data: dict[str, str]) -> list[Cause]:
    kind = obj.get("type", "")
    causes = [required(f"data[{key}]") for key in _REQUIRED_KEYS.get(kind, ()) if key not in data]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        causes += [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        if not (obj["metadata"].get("annotations") or {}).get(annotation):
            causes.append(required(f"metadata.annotations[{annotation}]"))
    for key in (".dockerconfigjson", ".dockercfg"):
        if key in _REQUIRED_KEYS.get(kind, ()) and key in data:
            causes += _json_causes(key, data[key])
    return causes


def _json_causes(key: str, value: str) -> list[Cause]:
    try:
        json.loads(base64.b64decode(value))
    except ValueError:
        text = base64.b64decode(value).decode(errors="replace").lstrip()
        first = text[:1]
        why = (
            "unexpected end of JSON input"
            if not first
            else (f"invalid character '{first}' looking for beginning of value")
        )
        return [invalid_value(f"data[{key}]", "<secret contents redacted>", why)]
    return []


def _secret_change_causes(new: Obj, old: Obj) -> list[Cause]:
    causes = []
    if new.get("type") != old.get("type"):
        causes.append(invalid_value("type", new.get("type", ""), "field is immutable"))
    return causes + _data_change_causes(new, old)


def _data_change_causes(new: Obj, old: Obj) -> list[Cause]:
    if not old.get("immutable"):
        return []
    causes = []
    if not new.get("immutable"):
        causes.append(forbidden_field("immutable", _IMMUTABLE))
    causes += [
        forbidden_field(field, _IMMUTABLE)
        for field in ("data", "binaryData")
        if (new.get(field) or {}) != (old.get(field) or {})
    ]
    return causes


KINDS = {
    "ConfigMap": Kind(("data", "binaryData", "immutable"), _decode_config_map, _config_map_causes, _data_change_causes),
    "Secret": Kind(("data", "stringData", "immutable", "type"), _decode_secret, _secret_causes, _secret_change_causes),
}
