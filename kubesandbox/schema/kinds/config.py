"""ConfigMap and Secret."""

from __future__ import annotations

import base64
import binascii
import json
import string
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
        valid = len(text) - len(text.lstrip(string.ascii_letters + string.digits + "+/"))
        byte = valid if valid < len(text) else valid - valid % 4
        raise UndecodableError(f"illegal base64 data at input byte {byte}") from None
    return text


def _decode_config_map(obj: Obj) -> Obj:
    decode_strings(obj, "data", "ConfigMap.data")
    decode_bytes(obj, "binaryData", "ConfigMap.binaryData")
    return _without_empty(obj, "data", "binaryData")


def _decode_secret(obj: Obj) -> Obj:
    decode_strings(obj, "stringData", "Secret.stringData")
    decode_bytes(obj, "data", "Secret.data")
    plain = obj.pop("stringData", {})
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
    obj["data"] = {**(obj.get("data") or {}), **encoded}
    obj["type"] = obj.get("type") or "Opaque"
    return _without_empty(obj, "data")


def _without_empty(obj: Obj, *names: str) -> Obj:
    return {key: value for key, value in obj.items() if key not in names or value}


def _key_causes(obj: Obj, name: str) -> list[Cause]:
    keys = sorted(obj.get(name) or {})
    return [invalid_value(f"{name}[{key}]", key, problem) for key in keys for problem in config_key_problems(key)]


def _config_map_causes(obj: Obj) -> list[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_length, binary.values()))
    return [
        *_key_causes(obj, "data"),
        *(
            invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in sorted(data.keys() & binary.keys())
        ),
        *_key_causes(obj, "binaryData"),
        *([too_long("[]", DATA_LIMIT)] if size > DATA_LIMIT else []),
    ]


def _decoded_length(text: str) -> int:
    """The bytes that a base64 text stands for."""
    return len(text) // 4 * 3 - text[-2:].count("=")


_REQUIRED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret_causes(obj: Obj) -> list[Cause]:
    data, kind, causes = obj.get("data") or {}, obj["type"], _key_causes(obj, "data")
    if sum(map(_decoded_length, data.values())) > DATA_LIMIT:
        causes.append(too_long("data", DATA_LIMIT))
    for key in _REQUIRED_KEYS.get(kind, ()):
        if key not in data:
            causes.append(required(f"data[{key}]"))
        elif key.startswith(".docker"):
            causes += _json_causes(key, data[key])
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        causes += [required("data[username]"), required("data[password]")]
    annotation = "kubernetes.io/service-account.name"
    if kind == "kubernetes.io/service-account-token" and not obj["metadata"].get("annotations", {}).get(annotation):
        causes.append(required(f"metadata.annotations[{annotation}]"))
    return causes


def _json_causes(key: str, value: str) -> list[Cause]:
    raw = base64.b64decode(value)
    try:
        json.loads(raw)
    except ValueError:
        first = raw.decode(errors="replace").lstrip()[:1]
        why = f"invalid character '{first}' looking for beginning of value" if first else "unexpected end of JSON input"
        return [invalid_value(f"data[{key}]", "<secret contents redacted>", why)]
    return []


def _secret_change_causes(new: Obj, old: Obj) -> list[Cause]:
    changed = [invalid_value("type", new["type"], "field is immutable")] if new["type"] != old["type"] else []
    return changed + _data_change_causes(new, old)


def _data_change_causes(new: Obj, old: Obj) -> list[Cause]:
    if not old.get("immutable"):
        return []
    changed = [] if new.get("immutable") else ["immutable"]
    changed += [field for field in ("data", "binaryData") if (new.get(field) or {}) != (old.get(field) or {})]
    return [forbidden_field(field, _IMMUTABLE) for field in changed]


KINDS = {
    "ConfigMap": Kind(("data", "binaryData", "immutable"), _decode_config_map, _config_map_causes, _data_change_causes),
    "Secret": Kind(("data", "stringData", "immutable", "type"), _decode_secret, _secret_causes, _secret_change_causes),
}
