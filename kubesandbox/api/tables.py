"""The table form of objects, which `kubectl get` prints: https://kubernetes.io/docs/reference/using-api/api-concepts/."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from ..schema.resources import Resource
from .selectors import value_at
from .store import Stored

Obj = dict[str, Any]
Cell = Callable[[Obj], Any]


def age(text: str | None) -> str:
    """A time as kubectl shows its distance from now."""
    if not text:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return "<invalid>"
    seconds = max(0, int((datetime.now(timezone.utc) - then).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _at(obj: Obj, path: str, default: Any = "") -> Any:
    found = value_at(obj, path)
    return default if found is None else found


def _count(*names: str) -> Cell:
    return lambda obj: sum(len(obj.get(name) or {}) for name in names)


def _field(path: str, default: Any = "") -> Cell:
    return lambda obj: _at(obj, path, default)


def _job_status(obj: Obj) -> str:
    for condition in _at(obj, "status.conditions", []):
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed", "Suspended"):
            return str(condition["type"])
    return "Running"


def _role_of(obj: Obj) -> str:
    return f"{_at(obj, 'roleRef.kind')}/{_at(obj, 'roleRef.name')}"


def _pod_ready(obj: Obj) -> str:
    ready = sum(1 for status in _at(obj, "status.containerStatuses", []) if status.get("ready"))
    return f"{ready}/{len(_at(obj, 'spec.containers', []))}"


def _completions(obj: Obj) -> str:
    return f"{_at(obj, 'status.succeeded', 0)}/{_at(obj, 'spec.completions', 1)}"


def _used(limits: bool) -> Cell:
    def cell(obj: Obj) -> str:
        used, hard = _at(obj, "status.used", {}), sorted(_at(obj, "status.hard", {}).items())
        shown = [(name, most) for name, most in hard if name.startswith("limits.") is limits]
        return ", ".join(f"{name}: {used.get(name, 0)}/{most}" for name, most in shown)

    return cell


def _selected(obj: Obj) -> str:
    labels = _at(obj, "spec.podSelector.matchLabels", {})
    return ",".join(f"{key}={value}" for key, value in labels.items()) or "<none>"


def _last_seen(obj: Obj) -> str:
    return age(_at(obj, "lastTimestamp") or _at(obj, "eventTime") or _at(obj, "metadata.creationTimestamp"))


def _age_or(path: str, default: str) -> Cell:
    return lambda obj: age(_at(obj, path)) if _at(obj, path) else default


_NAME: dict[str, Cell] = {"Name": _field("metadata.name")}
_AGE: dict[str, Cell] = {"Age": lambda obj: age(_at(obj, "metadata.creationTimestamp", None))}
_CREATED: dict[str, Cell] = {**_NAME, "Created At": _field("metadata.creationTimestamp")}
_ROLE: dict[str, Cell] = {**_NAME, "Role": _role_of, **_AGE}
_COLUMNS: dict[str, dict[str, Cell]] = {
    "ConfigMap": {**_NAME, "Data": _count("data", "binaryData"), **_AGE},
    "Secret": {**_NAME, "Type": _field("type"), "Data": _count("data"), **_AGE},
    "Namespace": {**_NAME, "Status": _field("status.phase"), **_AGE},
    "Role": _CREATED,
    "ClusterRole": _CREATED,
    "RoleBinding": _ROLE,
    "ClusterRoleBinding": _ROLE,
    "CustomResourceDefinition": _CREATED,
    "CronJob": {
        **_NAME,
        "Schedule": _field("spec.schedule"),
        "Timezone": _field("spec.timeZone", "<none>"),
        "Suspend": lambda obj: str(_at(obj, "spec.suspend", False)),
        "Active": lambda obj: len(_at(obj, "status.active", [])),
        "Last Schedule": _age_or("status.lastScheduleTime", "<none>"),
        **_AGE,
    },
    "Job": {
        **_NAME,
        "Status": _job_status,
        "Completions": _completions,
        "Duration": _age_or("status.startTime", ""),
        **_AGE,
    },
    "Pod": {**_NAME, "Ready": _pod_ready, "Status": _field("status.phase"), "Restarts": lambda obj: "0", **_AGE},
    "LimitRange": _CREATED,
    "ResourceQuota": {**_NAME, "Request": _used(limits=False), "Limit": _used(limits=True), **_AGE},
    "NetworkPolicy": {**_NAME, "Pod-Selector": _selected, **_AGE},
    "Event": {
        "Last Seen": _last_seen,
        "Type": _field("type"),
        "Reason": _field("reason"),
        "Object": lambda obj: f"{_at(obj, 'involvedObject.kind').lower()}/{_at(obj, 'involvedObject.name')}",
        "Message": lambda obj: str(_at(obj, "message")).strip(),
        **_NAME,
    },
}


def _definition(name: str, kind: str, fmt: str = "", description: str = "", priority: int = 0) -> Obj:
    return {"name": name, "type": kind, "format": fmt, "description": description or name, "priority": priority}


_COLUMN = "Custom resource definition column (in JSONPath format)"
_CUSTOM_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _columns(resource: Resource) -> tuple[list[Obj], list[Cell]]:
    if not resource.schema:
        columns = _COLUMNS.get(resource.kind, {**_NAME, **_AGE})
        definitions = [_definition(name, "string", "name" if name == "Name" else "") for name in columns]
        return definitions, list(columns.values())
    definitions, cells = [_definition("Name", "string", "name")], [*_NAME.values()]
    for column in resource.schema.columns or [_CUSTOM_AGE]:
        kind, path = column["type"], column["jsonPath"]
        description = column.get("description") or f"{_COLUMN}: {path}"
        definitions.append(
            _definition(column["name"], kind, column.get("format", ""), description, column.get("priority", 0))
        )
        cells.append(_custom_cell(path, kind))
    return definitions, cells


_TOKEN = re.compile(r"\.([A-Za-z0-9_\-]+)|\['([^']+)'\]|\[\?\(@\.([\w.]+)\s*==\s*\"([^\"]*)\"\)\]|\[(\d+|\*)\]")


def json_path(obj: Any, path: str) -> list[Any]:
    """What a printer column's path finds: fields, indexes and equality filters."""
    found = [obj]
    for match in _TOKEN.finditer(path):
        name, literal, field, expected, index = match.groups()
        following: list[Any] = []
        for node in found:
            following += _step(node, name or literal, field, expected, index)
        found = following
    return found


def _step(node: Any, name: str | None, field: str | None, expected: str | None, index: str | None) -> list[Any]:
    if name is not None:
        return [node[name]] if isinstance(node, dict) and name in node else []
    items = node if isinstance(node, list) else []
    if field is not None:
        return [item for item in items if str(_at(item, field)) == expected]
    if index == "*":
        return list(items)
    place = int(index or 0)
    return [items[place]] if place < len(items) else []


def _custom_cell(path: str, kind: str) -> Cell:
    def cell(obj: Obj) -> Any:
        found = json_path(obj, path)
        if not found or found[0] is None:
            return None
        value = found[0]
        if kind == "date":
            return age(value)
        if kind == "string" and not isinstance(value, str):
            return msgspec.json.encode(value).decode()
        return value

    return cell


def render(
    resource: Resource, items: list[Stored], query: Mapping[str, str], version: str, meta: Obj | None = None
) -> bytes:
    """A Table of objects."""
    definitions, cells = _columns(resource)
    include = query.get("includeObject", "Metadata")
    rows = []
    for item in items:
        row: Obj = {"cells": [cell(item.obj) for cell in cells]}
        if include == "Object":
            row["object"] = msgspec.Raw(item.raw)
        elif include == "Metadata":
            row["object"] = msgspec.Raw(item.metadata_only)
        rows.append(row)
    return msgspec.json.encode(
        {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta or {"resourceVersion": version},
            "columnDefinitions": definitions,
            "rows": rows,
        }
    )
