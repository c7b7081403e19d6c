"""Request bodies: their media type, their decoding, and the fields that a kind does not know."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import yaml

from ..schema import kinds
from ..schema.causes import invalid_value
from ..schema.go_types import UndecodableError
from ..schema.resources import Resource
from . import protobuf
from .cluster import Call
from .errors import ApiError, bad_request, invalid, unsupported_media_type

Obj = dict[str, Any]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH = 10_000
# Of a fieldsV1 that is decoded: the sandbox recurses into it.
DECODED_DEPTH = 100
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_FIELDS = re.compile(rb'"fieldsV1"\s*:\s*')


def load_yaml(body: bytes) -> Any:
    """A YAML document, which JSON is too."""
    return yaml.load(body, Loader=_Loader)  # noqa: S506 - one of the two safe loaders


def parse(call: Call) -> Any:
    """The body as JSON or YAML."""
    kind = call.content_type
    try:
        if "yaml" in kind:
            return load_yaml(call.body)
        if "json" in kind or kind == "":
            return decode_json(call.body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        shown = call.body[:200].decode(errors="replace") if call.resource.kind != "Secret" else "..."
        why = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
        raise bad_request(
            f"the object provided is unrecognized (must be of type {call.resource.kind}): couldn't get version/kind; "
            f"json parse error: {why} ({shown})"
        ) from None
    if kind == protobuf.MEDIA_TYPE:
        return _parse_protobuf(call)
    raise unsupported_media_type()


def _parse_protobuf(call: Call) -> Any:
    try:
        return protobuf.decode(call.body)
    except protobuf.ProtobufError as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {call.resource.kind}): {error}"
        ) from None


def decoded(call: Call, raw: Any) -> Obj:
    """The object in a body; fields that were dropped become warnings of the call."""
    resource = call.resource
    if not isinstance(raw, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body is not an object")
    kind, version = raw.get("kind") or resource.kind, raw.get("apiVersion") or resource.api_version
    if resource.schema:
        _check_custom(call, raw)
    elif version != resource.api_version:
        why = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')
    elif kind != resource.kind:
        why = f"converting ({version}.{kind}) to (core.{resource.kind}): unknown conversion"
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')
    return _pruned(call, raw)


def _check_custom(call: Call, raw: Obj) -> None:
    resource = call.resource
    for name in ("Kind", "apiVersion"):
        if not raw.get(name[0].lower() + name[1:]):
            text = call.body.decode(errors="replace")
            raise bad_request(
                f"the object provided is unrecognized (must be of type {resource.kind}): Object '{name}' is missing in "
                f"'{text}' ({text})"
            )
    if raw["apiVersion"] != resource.api_version:
        raise bad_request(
            f"the API version in the data ({raw['apiVersion']}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if raw["kind"] != resource.kind:
        cause = invalid_value("kind", raw["kind"], f"must be {resource.kind}")
        other = replace(resource, kind=raw["kind"])
        raise invalid(other, (raw.get("metadata") or {}).get("name", ""), [cause])


def _pruned(call: Call, raw: Obj) -> Obj:
    resource = call.resource
    obj, unknown = _known(resource, raw)
    texts = [f'unknown field "{path}"' for path in unknown]
    mode = call.query.get("fieldValidation", "Warn")
    if texts and mode == "Strict":
        why = "strict decoding error: " + ", ".join(texts)
        raise bad_request(why) if call.verb == "patch" else _cannot_handle(resource, why)
    if resource.schema:
        obj = resource.schema.defaulted(obj)
    if mode == "Warn":
        call.warnings.extend(texts)
    return obj


def unknown_fields(resource: Resource, obj: Obj) -> list[str]:
    """The paths of fields that the resource does not have."""
    return _known(resource, obj)[1]


def _known(resource: Resource, raw: Obj) -> tuple[Obj, list[str]]:
    """The object without its unknown fields, and their paths."""
    obj, unknown = resource.schema.prune(raw) if resource.schema else (raw, [])
    try:
        obj, others = kinds.decode(resource, obj)
    except UndecodableError as error:
        raise _cannot_handle(resource, str(error)) from None
    return obj, [*sorted(unknown), *others]


def _cannot_handle(resource: Resource, why: str) -> ApiError:
    return bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}')


def decode_json(text: bytes) -> Any:
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
