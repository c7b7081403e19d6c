"""JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge patch.

Strategic merge: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

from __future__ import annotations

from typing import Any

from ..schema.fields import ATOMIC, Shape, item_element
from .errors import ApiError, bad_request

Obj = dict[str, Any]
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902; a failing test or a missing path is a 422, as in the server."""
    import jsonpatch  # imported here: the extra may not be installed

    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        return jsonpatch.apply_patch(target, operations)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):  # TypeError: no object
        text = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", text, {}) from None


def strategic_merge(target: Any, patch: Any, shape: Shape) -> Any:
    """Merge by the keys of the kind's lists; directives: $patch, $deleteFromPrimitiveList, $retainKeys."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    out = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        out = {key: value for key, value in out.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$"):
            _directive(out, key, value)
        elif value is None:
            out.pop(key, None)
        else:
            out[key] = _strategic_part(out.get(key), value, shape.child(key) if shape is not ATOMIC else shape)
    return out


def _directive(out: Obj, key: str, value: Any) -> None:
    if key.startswith("$deleteFromPrimitiveList/"):
        name = key.split("/", 1)[1]
        out[name] = [item for item in out.get(name) or [] if item not in value]
        if not out[name]:
            del out[name]


def _strategic_part(old: Any, value: Any, shape: Shape) -> Any:
    if isinstance(value, dict):
        return strategic_merge(old, value, shape)
    if not isinstance(value, list) or not shape.associative():
        return value
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in value):
        return [item for item in value if item.get("$patch") != "replace"]
    merged = {item_element(shape, item): item for item in old or []}
    for item in value:
        element = item_element(shape, _keys_only(item, shape))
        if isinstance(item, dict) and item.get("$patch") == "delete":
            merged.pop(element, None)
        elif isinstance(item, dict):
            merged[element] = strategic_merge(merged.get(element), item, shape.item())
        else:
            merged[element] = item
    return list(merged.values())


def _keys_only(item: Any, shape: Shape) -> Any:
    return {key: item.get(key) for key in shape.keys} if isinstance(item, dict) and shape.keys else item
