"""Kinds that sync-copies copies besides ConfigMaps and Secrets."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, invalid_value
from ..resources import RBAC
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


def _decode_policy(obj: Obj) -> Obj:
    spec = dict(obj["spec"])
    for direction in ("ingress", "egress"):
        if direction in spec:
            spec[direction] = [_with_protocols(rule) for rule in spec[direction]]
    if "policyTypes" not in spec:
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return {**obj, "spec": spec}


def _with_protocols(rule: Obj) -> Obj:
    if "ports" not in rule:
        return rule
    return {**rule, "ports": [{"protocol": "TCP", **port} for port in rule["ports"]]}


def _decode_binding(obj: Obj) -> Obj:
    role = {**obj["roleRef"], "apiGroup": obj["roleRef"]["apiGroup"] or RBAC}
    subjects = [
        {**({} if subject["kind"] not in ("User", "Group") else {"apiGroup": RBAC}), **subject}
        for subject in obj.get("subjects") or []
    ]
    return {**obj, "roleRef": role, **({"subjects": subjects} if subjects else {})}


def _binding_change_causes(new: Obj, old: Obj) -> list[Cause]:
    role = new["roleRef"]
    if role == old["roleRef"]:
        return []
    shown = {"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]}
    return [invalid_value("roleRef", shown, "cannot change roleRef")]


_BINDING = Kind(decode=_decode_binding, change_causes=_binding_change_causes)


KINDS = {
    "LimitRange": Kind(decode=_decode_limit_range),
    "ResourceQuota": Kind(
        change_causes=_quota_change_causes,
        first_status={},
        prepare_update=_prepare_quota_update,
    ),
    "NetworkPolicy": Kind(("spec",), _decode_policy),
    "ClusterRole": Kind(("rules", "aggregationRule")),
    "ClusterRoleBinding": _BINDING,
    "Role": Kind(("rules",)),
    "RoleBinding": _BINDING,
}
