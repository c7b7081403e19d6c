"""Roles and their bindings."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, invalid_value
from ..resources import RBAC
from .kind import Kind

Obj = dict[str, Any]


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
    "ClusterRole": Kind(("rules", "aggregationRule")),
    "ClusterRoleBinding": _BINDING,
    "Role": Kind(("rules",)),
    "RoleBinding": _BINDING,
}
