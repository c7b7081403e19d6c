"""Request bodies: their media type, their decoding, and the fields that a kind does not know."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from . import kinds
from .cluster import Call
from .errors import bad_request, unsupported_media_type

Obj = dict[str, Any]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
            return msgspec.json.decode(call.body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        shown = call.body[:200].decode(errors="replace") if call.resource.kind != "Secret" else "..."
        why = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
        raise bad_request(
            f"the object provided is unrecognized (must be of type {call.resource.kind}): couldn't get version/kind; "
            f"json parse error: {why} ({shown})"
        ) from None
    raise unsupported_media_type()


def decoded(call: Call, raw: Any) -> tuple[Obj, list[str]]:
    """The object that a body holds, and the warnings about fields that were dropped."""
    resource = call.resource
    if not isinstance(raw, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body is not an object")
    kind, version = raw.get("kind") or resource.kind, raw.get("apiVersion") or resource.api_version
    if version != resource.api_version:
        why = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')
    if kind != resource.kind:
        why = f"converting ({version}.{kind}) to (core.{resource.kind}): unknown conversion"
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}')
    return _pruned(call, raw)


def _pruned(call: Call, raw: Obj) -> tuple[Obj, list[str]]:
    resource = call.resource
    mode = call.query.get("fieldValidation", "Warn")
    if resource.schema:
        obj, unknown = resource.schema.prune(raw)
    else:
        obj, unknown = raw, kinds.unknown_fields(resource, raw)
    texts = [f'unknown field "{path}"' for path in sorted(unknown)]
    if texts and mode == "Strict":
        why = "strict decoding error: " + ", ".join(texts)
        raise bad_request(why) if resource.schema or call.verb == "patch" else kinds.cannot_handle(resource, why)
    obj = kinds.decode(resource, obj)
    if resource.schema:
        obj = resource.schema.defaulted(obj)
    return obj, texts if mode == "Warn" else []
