"""The table form of objects, which `kubectl get` prints: https://kubernetes.io/docs/reference/using-api/api-concepts/."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from ..schema.resources import Resource
from .selectors import value_at as _at
from .store import Stored

Obj = dict[str, Any]
Cell = Callable[[Obj], Any]
Columns = dict[str, Cell]


def age(text: str) -> str:
    """A time as kubectl shows its distance from now."""
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


def _count(*names: str) -> Cell:
    return lambda obj: sum(len(obj.get(name) or {}) for name in names)


def _field(path: str, default: Any = "") -> Cell:
    return lambda obj: _at(obj, path, default)


def _age_of(*paths: str, default: str = "<unknown>") -> Cell:
    """The age of the first time that is there."""
    return lambda obj: next((age(text) for path in paths if (text := _at(obj, path))), default)


def _job_status(obj: Obj) -> str:
    for condition in _at(obj, "status.conditions", []):
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed", "Suspended"):
            return str(condition["type"])
    return "Running"


def _pod_ready(obj: Obj) -> str:
    ready = sum(1 for status in _at(obj, "status.containerStatuses", []) if status.get("ready"))
    return f"{ready}/{len(_at(obj, 'spec.containers', []))}"


def _used(limits: bool) -> Cell:
    def cell(obj: Obj) -> str:
        used, hard = _at(obj, "status.used", {}), sorted(_at(obj, "status.hard", {}).items())
        shown = [(name, most) for name, most in hard if name.startswith("limits.") is limits]
        return ", ".join(f"{name}: {used.get(name, 0)}/{most}" for name, most in shown)

    return cell


def _selected(obj: Obj) -> str:
    labels = _at(obj, "spec.podSelector.matchLabels", {})
    return ",".join(f"{key}={value}" for key, value in labels.items()) or "<none>"


_NAME: Columns = {"Name": _field("metadata.name")}
_AGE: Columns = {"Age": _age_of("metadata.creationTimestamp")}
_CREATED: Columns = {**_NAME, "Created At": _field("metadata.creationTimestamp")}
_ROLE: Columns = {**_NAME, "Role": lambda obj: f"{_at(obj, 'roleRef.kind')}/{_at(obj, 'roleRef.name')}", **_AGE}
_COLUMNS: dict[str, Columns] = {
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
        "Last Schedule": _age_of("status.lastScheduleTime", default="<none>"),
        **_AGE,
    },
    "Job": {
        **_NAME,
        "Status": _job_status,
        "Completions": lambda obj: f"{_at(obj, 'status.succeeded', 0)}/{_at(obj, 'spec.completions', 1)}",
        "Duration": _age_of("status.startTime", default=""),
        **_AGE,
    },
    "Pod": {**_NAME, "Ready": _pod_ready, "Status": _field("status.phase"), "Restarts": lambda obj: "0", **_AGE},
    "LimitRange": _CREATED,
    "ResourceQuota": {**_NAME, "Request": _used(limits=False), "Limit": _used(limits=True), **_AGE},
    "NetworkPolicy": {**_NAME, "Pod-Selector": _selected, **_AGE},
    "Event": {
        "Last Seen": _age_of("lastTimestamp", "eventTime", "metadata.creationTimestamp"),
        "Type": _field("type"),
        "Reason": _field("reason"),
        "Object": lambda obj: f"{_at(obj, 'involvedObject.kind').lower()}/{_at(obj, 'involvedObject.name')}",
        "Message": lambda obj: str(_at(obj, "message")).strip(),
        **_NAME,
    },
}


_COLUMN = "Custom resource definition column (in JSONPath format)"
_CUSTOM_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _columns(resource: Resource) -> list[tuple[Obj, Cell]]:
    """The definition and the cell of each column."""
    columns = _COLUMNS.get(resource.kind, {**_NAME, **_AGE}) if not resource.schema else _NAME
    found = [(_definition(name, "string", "name" if name == "Name" else ""), cell) for name, cell in columns.items()]
    for column in (resource.schema.columns or [_CUSTOM_AGE]) if resource.schema else []:
        kind, path = column["type"], column["jsonPath"]
        description = column.get("description") or f"{_COLUMN}: {path}"
        definition = _definition(column["name"], kind, column.get("format", ""), description, column.get("priority", 0))
        found.append((definition, _custom_cell(path, kind)))
    return found


def _definition(name: str, kind: str, fmt: str, description: str = "", priority: int = 0) -> Obj:
    return {"name": name, "type": kind, "format": fmt, "description": description or name, "priority": priority}


_TOKEN = re.compile(r"\.([A-Za-z0-9_\-]+)|\['([^']+)'\]|\[\?\(@\.([\w.]+)\s*==\s*\"([^\"]*)\"\)\]|\[(\d+|\*)\]")


def json_path(obj: Any, path: str) -> list[Any]:
    """What a printer column's path finds: fields, indexes and equality filters."""
    found = [obj]
    for match in _TOKEN.finditer(path):
        found = [each for node in found for each in _step(node, *match.groups())]
    return found


def _step(node: Any, name: str | None, literal: str | None, field: str | None, expected: str, index: str) -> list[Any]:
    name = name or literal
    if name is not None:
        return [node[name]] if isinstance(node, dict) and name in node else []
    items = node if isinstance(node, list) else []
    if field is not None:
        return [item for item in items if str(_at(item, field)) == expected]
    return items if index == "*" else items[int(index) :][:1]


def _custom_cell(path: str, kind: str) -> Cell:
    def cell(obj: Obj) -> Any:
        value = next(iter(json_path(obj, path)), None)
        if value is not None and kind == "date":
            return age(value)
        if value is not None and kind == "string" and not isinstance(value, str):
            return msgspec.json.encode(value).decode()
        return value

    return cell


def render(resource: Resource, items: list[Stored], query: Mapping[str, str], meta: Obj) -> bytes:
    """A Table of objects."""
    columns = _columns(resource)
    include = query.get("includeObject", "Metadata")
    rows = []
    for item in items:
        row: Obj = {"cells": [cell(item.obj) for _, cell in columns]}
        if include in ("Object", "Metadata"):
            row["object"] = msgspec.Raw(item.raw if include == "Object" else item.metadata_only)
        rows.append(row)
    return msgspec.json.encode(
        {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "columnDefinitions": [definition for definition, _ in columns],
            "rows": rows,
        }
    )
