"""Roles and their bindings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..causes import Cause, invalid_value, not_supported, required
from ..resources import RBAC
from ..validation import path_segment_problems, subdomain_problems
from .kind import Kind

Obj = dict[str, Any]
_GROUPS = {"ServiceAccount": "", "User": RBAC, "Group": RBAC}  # of the kinds of subjects


def _decode_binding(obj: Obj) -> Obj:
    role = {**obj["roleRef"], "apiGroup": obj["roleRef"]["apiGroup"] or RBAC}
    subjects = [
        {**({} if subject["kind"] not in ("User", "Group") else {"apiGroup": RBAC}), **subject}
        for subject in obj.get("subjects") or []
    ]
    return {**obj, "roleRef": role, **({"subjects": subjects} if subjects else {})}


def _binding_causes(obj: Obj) -> list[Cause]:
    role, field = obj["roleRef"], "roleRef"
    causes = []
    if role["apiGroup"] != RBAC:
        causes.append(not_supported(f"{field}.apiGroup", role["apiGroup"], [RBAC]))
    if role["kind"] not in ("Role", "ClusterRole"):
        causes.append(not_supported(f"{field}.kind", role["kind"], ["Role", "ClusterRole"]))
    causes += _name_causes(f"{field}.name", role["name"], path_segment_problems)
    for number, subject in enumerate(obj.get("subjects") or []):
        causes += _subject_causes(f"subjects[{number}]", subject, obj["metadata"].get("namespace", ""))
    return causes


def _subject_causes(field: str, subject: Obj, namespace: str) -> list[Cause]:
    kind, group = subject["kind"], subject.get("apiGroup", "")
    if kind not in _GROUPS:
        causes = [] if subject["name"] else [required(f"{field}.name")]
        return [*causes, not_supported(f"{field}.kind", kind, list(_GROUPS))]
    is_account = kind == "ServiceAccount"
    causes = _name_causes(f"{field}.name", subject["name"], subdomain_problems if is_account else _no_problems)
    if group != _GROUPS[kind]:
        causes.append(not_supported(f"{field}.apiGroup", group, [_GROUPS[kind]]))
    if is_account and not (subject.get("namespace") or namespace):
        causes.append(required(f"{field}.namespace"))
    return causes


def _name_causes(field: str, name: str, problems: Callable[[str], list[str]]) -> list[Cause]:
    if not name:
        return [required(field)]
    return [invalid_value(field, name, problem) for problem in problems(name)]


def _no_problems(_name: str) -> list[str]:
    return []


def _binding_change_causes(new: Obj, old: Obj) -> list[Cause]:
    role = new["roleRef"]
    if role == old["roleRef"]:
        return []
    shown = {"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]}
    return [invalid_value("roleRef", shown, "cannot change roleRef")]


_BINDING = Kind(decode=_decode_binding, causes=_binding_causes, change_causes=_binding_change_causes)
KINDS = {
    "ClusterRole": Kind(("rules", "aggregationRule")),
    "ClusterRoleBinding": _BINDING,
    "Role": Kind(("rules",)),
    "RoleBinding": _BINDING,
}
