"""LimitRange and ResourceQuota."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, invalid_value
from .kind import Kind

Obj = dict[str, Any]
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def _decode_limit_range(obj: Obj) -> Obj:
    limits = [_with_defaults(limit) for limit in obj["spec"]["limits"] or []]
    return {**obj, "spec": {"limits": limits or None}}


def _with_defaults(limit: Obj) -> Obj:
    if limit["type"] != "Container":
        return limit
    default = {**limit.get("max", {}), **limit.get("default", {})}
    request = {**limit.get("min", {}), **default, **limit.get("defaultRequest", {})}
    lists = {**limit, "default": default, "defaultRequest": request}
    return {"type": limit["type"], **{name: lists[name] for name in _LISTS if lists.get(name)}}


def _quota_change_causes(new: Obj, old: Obj) -> list[Cause]:
    scopes = new["spec"].get("scopes")
    if set(scopes or []) == set(old["spec"].get("scopes") or []):
        return []
    return [invalid_value("spec.scopes", scopes, "field is immutable")]


def _prepare_quota_update(new: Obj, old: Obj, subresource: str) -> Obj:
    """Keep the status, or the spec. A write of the status can change the metadata too."""
    kept = "spec" if subresource == "status" else "status"
    return {**new, kept: old[kept]}


KINDS = {
    "LimitRange": Kind(decode=_decode_limit_range),
    "ResourceQuota": Kind(
        change_causes=_quota_change_causes,
        first_status={},
        prepare_update=_prepare_quota_update,
    ),
}
