"""managedFields: who set which field, kept as kube-apiserver keeps it.

Rules: https://kubernetes.io/docs/reference/using-api/server-side-apply/ and k8s.io/apimachinery/pkg/util/managedfields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from ..schema import fields
from ..schema.causes import Cause
from ..schema.fields import FieldSet, Shape
from .cluster import stamp
from .errors import ApiError

Obj = dict[str, Any]
Key = tuple[str, str, str, str]

_OF_SERVER = "name namespace creationTimestamp selfLink uid clusterName generation managedFields resourceVersion"
UNTRACKED: FieldSet = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(("f:metadata", f"f:{name}") for name in _OF_SERVER.split()),
}
BEFORE_FIRST_APPLY = "before-first-apply"


@dataclass(frozen=True)
class Manager:
    """Who writes, how and through what."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def key(self) -> Key:
        """What identifies an entry: an applier keeps its entry across API versions."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.name, self.operation, version, self.subresource)


@dataclass
class Entry:
    """One entry of managedFields; `deep` is its fieldsV1 if that is too deep to be decoded, which no write changes."""

    manager: Manager
    time: str
    owned: FieldSet = field(default_factory=set)
    deep: msgspec.Raw | None = None

    def as_dict(self) -> Obj:
        """The entry as the API shows it."""
        out: Obj = {
            "manager": self.manager.name,
            "operation": self.manager.operation,
            "apiVersion": self.manager.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.deep or fields.encode(frozenset(self.owned)),
        }
        if not self.time:
            del out["time"]
        if self.manager.subresource:
            out["subresource"] = self.manager.subresource
        return out


def _decode(raw: Any) -> dict[Key, Entry]:
    entries: dict[Key, Entry] = {}
    for item in raw or []:
        manager = Manager(
            item.get("manager", ""), item.get("operation", ""), item.get("apiVersion", ""), item.get("subresource", "")
        )
        tree = item.get("fieldsV1")
        deep = tree if isinstance(tree, msgspec.Raw) else None
        entries[manager.key()] = Entry(manager, item.get("time") or "", set() if deep else fields.decode(tree), deep)
    return entries


def _well_formed(raw: Any) -> bool:
    return all(
        item.get("operation") in ("Apply", "Update")
        and item.get("fieldsType") == "FieldsV1"
        and fields.is_valid(item.get("fieldsV1"))
        for item in raw
    )


def _known(live: Obj, new: Obj, subresource: str) -> dict[Key, Entry]:
    """The entries an update starts from: the request's if usable, none for [{}], else the live ones."""
    given = new.get("metadata", {}).get("managedFields")
    if subresource or not isinstance(given, list):
        return _decode(live.get("metadata", {}).get("managedFields"))
    if given in ([], [{}]):
        return {}
    return _decode(given if _well_formed(given) else live.get("metadata", {}).get("managedFields"))


def _stripped(obj: Obj) -> Obj:
    meta = obj.get("metadata") or {}
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: value for key, value in meta.items() if key != "managedFields"}}


def _with_entries(obj: Obj, entries: dict[Key, Entry]) -> Obj:
    def order(entry: Entry) -> tuple[str, ...]:
        by = entry.manager
        return (by.operation, entry.time, by.name, by.api_version, by.subresource)

    ordered = sorted(entries.values(), key=order)
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    if ordered:
        meta["managedFields"] = [entry.as_dict() for entry in ordered]
    return {**obj, "metadata": meta}


def updated(live: Obj, new: Obj, shape: Shape, manager: Manager, now: datetime, ignored: Collection[str] = ()) -> Obj:
    """`new` with the managedFields that a POST, PUT or PATCH leaves behind."""
    entries = _known(live, new, manager.subresource)
    live, new = _stripped(live), _stripped(new)
    if not entries and live.get("metadata", {}).get("uid"):
        return _with_entries(new, {})
    difference = fields.compare(live, new, shape)
    touched = difference.added | difference.modified
    for entry in entries.values():
        entry.owned = entry.owned - touched - difference.removed
    taken = _counted(touched, ignored)
    key = manager.key()
    if taken:
        previous = entries.get(key)
        owned = taken | (previous.owned if previous else set())
        entries[key] = Entry(manager, stamp(now), owned)
    return _with_entries(new, {k: entry for k, entry in entries.items() if entry.owned or entry.deep})


def _counted(touched: FieldSet, ignored: Collection[str]) -> FieldSet:
    counted = touched - UNTRACKED
    return {path for path in counted if path[0] not in ignored} if ignored else counted


def applied(
    live: Obj, config: Obj, shape: Shape, manager: Manager, now: datetime, force: bool, ignored: Collection[str] = ()
) -> Obj:
    """The live object after a server-side apply of `config`; a conflict is a 409."""
    entries = _decode(live.get("metadata", {}).get("managedFields"))
    live, config = _stripped(live), _stripped(config)
    if not entries and live.get("metadata", {}).get("uid"):
        before = fields.compare({"metadata": {}}, live, shape).added - UNTRACKED
        if before:
            first = Manager(BEFORE_FIRST_APPLY, "Update", manager.api_version)
            entries[first.key()] = Entry(first, stamp(now), before)
    key = manager.key()
    previous = entries.get(key)
    expected = _counted(fields.field_set(config, shape), ignored)
    entries[key] = Entry(manager, stamp(now), expected)
    merged = fields.merge(live, config, shape)
    if previous:
        merged = fields.without(merged, _dropped(previous.owned, entries, shape), shape)
    difference = fields.compare(live, merged, shape)
    _settle(entries, key, difference, force)
    if live == merged:
        entries[key] = replace(entries[key], time=previous.time if previous else "")
    return _with_entries(merged, {k: entry for k, entry in entries.items() if entry.owned or entry.deep})


def _dropped(before: FieldSet, entries: dict[Key, Entry], shape: Shape) -> FieldSet:
    """Fields the applier no longer sets and nobody else owns, even in part, with structures that have none left.

    So does EnsureNamedFieldsAreMembers of sigs.k8s.io/structured-merge-diff.
    """
    before = before | {each for path in before if path[0] != "f:metadata" for each in _structures(path, shape)}
    owned: FieldSet = set()
    for entry in entries.values():
        for path in entry.owned:
            owned.update(path[:depth] for depth in range(1, len(path) + 1))
    return before - owned


def _structures(path: fields.Path, shape: Shape) -> Iterator[fields.Path]:
    """Yield the fields of a schema that this path is in; not the keys of maps and the items of lists."""
    for depth, element in enumerate(path[:-1], 1):
        name = element.removeprefix("f:")
        is_field = name != element
        if is_field and shape.declares(name):
            yield path[:depth]
        shape = shape.child(name) if is_field else shape.item()


def _settle(entries: dict[Key, Entry], key: Key, difference: fields.Difference, force: bool) -> None:
    touched = difference.added | difference.modified
    conflicts = [
        (entry, entry.owned & touched) for other, entry in entries.items() if other != key and entry.owned & touched
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    for other, entry in entries.items():
        if other != key:
            entry.owned = entry.owned - touched - difference.removed


def _conflict(conflicts: list[tuple[Entry, FieldSet]]) -> ApiError:
    causes: list[Cause] = []
    for entry, owned in sorted(conflicts, key=lambda pair: pair[0].manager.name):
        who = f'"{entry.manager.name}"'
        if entry.manager.subresource:
            who += f' with subresource "{entry.manager.subresource}"'
        if entry.manager.operation == "Update":
            who += f" using {entry.manager.api_version}"
        causes.extend(Cause("FieldManagerConflict", f"conflict with {who}", readable(path)) for path in sorted(owned))
    return ApiError(409, "Conflict", _conflict_text(causes), {"causes": [cause.as_dict() for cause in causes]})


def _conflict_text(causes: list[Cause]) -> str:
    count = len(causes)
    if count == 1:
        return f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    by_manager: dict[str, list[str]] = {}
    for cause in causes:
        by_manager.setdefault(cause.message.replace("conflict with", "conflicts with", 1), []).append(cause.field)
    lines = []
    for message, names in by_manager.items():
        lines.append(f"{message}:")
        lines.extend(f"- {name}" for name in names)
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def readable(path: fields.Path) -> str:
    """A path as error messages show it: .data.a, .status.conditions[type="Ready"]."""
    out = ""
    for element in path:
        kind, rest = element.split(":", 1)
        if kind == "f":
            out += "." + rest
        elif kind == "v":
            out += f"[={rest}]"
        else:
            out += "[" + rest.strip("{}").replace('"', "", 2).replace(":", "=", 1) + "]"
    return out


def same_but_for_times(old: Obj, new: Obj) -> bool:
    """Whether two objects differ in nothing but the times of managedFields: such a write is none."""
    first, second = old.get("metadata", {}).get("managedFields"), new.get("metadata", {}).get("managedFields")
    if _stripped(old) != _stripped(new):
        return False
    timeless = [[{**entry, "time": ""} for entry in (raw or [])] for raw in (first, second)]
    order = [sorted(entries, key=repr) for entries in timeless]
    return order[0] == order[1]
