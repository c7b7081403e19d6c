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


def _age_of(path: str) -> Cell:
    return lambda obj: age(_at(obj, path, None))


_AGE = ("Age", "string", _age_of("metadata.creationTimestamp"))


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


def _created(obj: Obj) -> str:
    return str(_at(obj, "metadata.creationTimestamp"))


def _completions(obj: Obj) -> str:
    return f"{_at(obj, 'status.succeeded', 0)}/{_at(obj, 'spec.completions', 1)}"


def _used(obj: Obj, limits: bool) -> str:
    used = _at(obj, "status.used", {})
    hard = sorted(_at(obj, "status.hard", {}).items())
    return ", ".join(
        f"{name}: {used.get(name, 0)}/{most}" for name, most in hard if name.startswith("limits.") is limits
    )


_COLUMNS: dict[str, list[tuple[str, str, Cell]]] = {
    "ConfigMap": [("Data", "string", _count("data", "binaryData")), _AGE],
    "Secret": [("Type", "string", _field("type")), ("Data", "string", _count("data")), _AGE],
    "Namespace": [("Status", "string", _field("status.phase")), _AGE],
    "Role": [("Created At", "date", _created)],
    "ClusterRole": [("Created At", "date", _created)],
    "RoleBinding": [("Role", "string", _role_of), _AGE],
    "ClusterRoleBinding": [("Role", "string", _role_of), _AGE],
    "CustomResourceDefinition": [("Created At", "date", _created)],
    "CronJob": [
        ("Schedule", "string", _field("spec.schedule")),
        ("Timezone", "string", _field("spec.timeZone", "<none>")),
        ("Suspend", "string", lambda obj: str(_at(obj, "spec.suspend", False))),
        ("Active", "integer", lambda obj: len(_at(obj, "status.active", []))),
        (
            "Last Schedule",
            "string",
            lambda obj: age(obj["status"]["lastScheduleTime"]) if _at(obj, "status.lastScheduleTime") else "<none>",
        ),
        _AGE,
    ],
    "Job": [
        ("Status", "string", _job_status),
        ("Completions", "string", _completions),
        (
            "Duration",
            "string",
            lambda obj: age(_at(obj, "status.startTime", None)) if _at(obj, "status.startTime") else "",
        ),
        _AGE,
    ],
    "Pod": [
        ("Ready", "string", _pod_ready),
        ("Status", "string", _field("status.phase")),
        ("Restarts", "string", lambda obj: "0"),
        _AGE,
    ],
    "LimitRange": [("Created At", "date", _created)],
    "ResourceQuota": [
        ("Request", "string", lambda obj: _used(obj, limits=False)),
        ("Limit", "string", lambda obj: _used(obj, limits=True)),
        _AGE,
    ],
    "NetworkPolicy": [
        (
            "Pod-Selector",
            "string",
            lambda obj: (
                ",".join(f"{key}={value}" for key, value in _at(obj, "spec.podSelector.matchLabels", {}).items())
                or "<none>"
            ),
        ),
        _AGE,
    ],
}
_EVENT: list[tuple[str, str, Cell]] = [
    (
        "Last Seen",
        "string",
        lambda obj: age(_at(obj, "lastTimestamp") or _at(obj, "eventTime") or _at(obj, "metadata.creationTimestamp")),
    ),
    ("Type", "string", _field("type")),
    ("Reason", "string", _field("reason")),
    ("Object", "string", lambda obj: f"{_at(obj, 'involvedObject.kind').lower()}/{_at(obj, 'involvedObject.name')}"),
    ("Message", "string", lambda obj: str(_at(obj, "message")).strip()),
    ("Name", "string", _field("metadata.name")),
]


def _definition(name: str, kind: str, fmt: str = "", description: str = "", priority: int = 0) -> Obj:
    return {"name": name, "type": kind, "format": fmt, "description": description or name, "priority": priority}


_COLUMN = "Custom resource definition column (in JSONPath format)"
_NAME = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)


def _columns(resource: Resource) -> tuple[list[Obj], list[Cell]]:
    if resource.kind == "Event" and not resource.schema:
        return [_definition(name, kind) for name, kind, _ in _EVENT], [cell for _, _, cell in _EVENT]
    definitions = [_definition("Name", "string", "name", _NAME)]
    cells: list[Cell] = [_field("metadata.name")]
    if resource.schema:
        columns = resource.schema.columns or [
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
        ]
        for column in columns:
            kind = column["type"]
            definitions.append(
                _definition(
                    column["name"],
                    kind,
                    column.get("format", ""),
                    column.get("description") or f"{_COLUMN}: {column['jsonPath']}",
                    column.get("priority", 0),
                )
            )
            cells.append(_custom_cell(column["jsonPath"], kind))
    else:
        for name, kind, cell in _COLUMNS.get(resource.kind, [_AGE]):
            definitions.append(_definition(name, kind))
            cells.append(cell)
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
