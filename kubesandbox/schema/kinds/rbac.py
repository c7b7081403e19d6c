"""Roles and their bindings."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, invalid_value, not_supported, required
from ..resources import RBAC
from .kind import Kind

Obj = dict[str, Any]


def _decode_binding(obj: Obj) -> Obj:
    role = {"apiGroup": RBAC, **(obj.get("roleRef") or {})}
    subjects = []
    for subject in obj.get("subjects") or []:
        group = "" if subject.get("kind") == "ServiceAccount" else RBAC
        subjects.append({**({"apiGroup": group} if group else {}), **subject})
    return {**obj, "roleRef": role, **({"subjects": subjects} if subjects else {})}


def _binding_causes(obj: Obj) -> list[Cause]:
    role = obj.get("roleRef") or {}
    causes = []
    if role.get("kind") not in ("Role", "ClusterRole"):
        causes.append(not_supported("roleRef.kind", role.get("kind", ""), ["Role", "ClusterRole"]))
    if not role.get("name"):
        causes.append(required("roleRef.name"))
    for number, subject in enumerate(obj.get("subjects") or []):
        if not subject.get("name"):
            causes.append(required(f"subjects[{number}].name"))
    return causes


def _binding_change_causes(new: Obj, old: Obj) -> list[Cause]:
    if new.get("roleRef") == old.get("roleRef"):
        return []
    role = new.get("roleRef") or {}
    shown = {"APIGroup": role.get("apiGroup", ""), "Kind": role.get("kind", ""), "Name": role.get("name", "")}
    return [invalid_value("roleRef", shown, "cannot change roleRef")]


_BINDING = Kind(("subjects", "roleRef"), _decode_binding, _binding_causes, _binding_change_causes)
KINDS = {
    "ClusterRole": Kind(("rules", "aggregationRule")),
    "ClusterRoleBinding": _BINDING,
    "Role": Kind(("rules",)),
    "RoleBinding": _BINDING,
}
