"""The shape of objects as structured-merge-diff sees them, and the sets of fields that managedFields records.

A path is a tuple of FieldsV1 elements: ("f:data", "f:a"), ("f:conditions", 'k:{"type":"Ready"}', "f:status").
Rules: https://github.com/kubernetes-sigs/structured-merge-diff and KEP-555.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

Path = tuple[str, ...]
FieldSet = set[Path]


class _Missing:
    """Stands for a field that is not there (None is a value)."""


MISSING = _Missing()


@dataclass(frozen=True)
class Shape:
    """How one node of an object merges: granular map by default; lists are atomic unless keyed or a set."""

    fields: Mapping[str, Shape] = field(default_factory=dict)
    element: Shape | None = None
    atomic: bool = False
    keys: tuple[str, ...] = ()
    unique: bool = False
    struct: bool = False
    key_defaults: Mapping[str, object] = field(default_factory=dict)

    def child(self, name: str) -> Shape:
        """The shape of one entry of a map."""
        return self.fields.get(name) or self.element or (STRUCT if self.struct else ANY)

    def item(self) -> Shape:
        """The shape of one item of a list."""
        return self.element or (STRUCT if self.struct else ANY)

    def declares(self, name: str) -> bool:
        """Whether the schema names this field, so that applying it does not own the container."""
        return name in self.fields or (self.struct and self.element is None)

    def associative(self) -> bool:
        """Whether items of the list are identified by key or value."""
        return bool(self.keys) or self.unique


ANY = Shape()
STRUCT = Shape(struct=True)
ATOMIC = Shape(atomic=True)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def item_element(shape: Shape, item: Any) -> str:
    """The path element of one item of an associative list."""
    if shape.unique or not isinstance(item, dict):
        return "v:" + _json(item)
    keys = {key: item.get(key, shape.key_defaults.get(key)) for key in sorted(shape.keys)}
    return "k:" + _json({key: value for key, value in keys.items() if value is not None})


def children(value: Any, shape: Shape) -> dict[str, tuple[Any, Shape]] | None:
    """The parts of a granular value by path element; None for a leaf."""
    if shape.atomic:
        return None
    if isinstance(value, dict):
        return {"f:" + key: (part, shape.child(key)) for key, part in value.items()}
    if isinstance(value, list) and shape.associative():
        return {item_element(shape, part): (part, shape.item()) for part in value}
    return None


_PLAIN = (str, bool, int, float, _Missing)
_NO_PART: tuple[Any, Shape | None] = (MISSING, None)


@dataclass
class Difference:
    """What changed between two objects, as sets of fields."""

    added: FieldSet = field(default_factory=set)
    modified: FieldSet = field(default_factory=set)
    removed: FieldSet = field(default_factory=set)


def compare(old: Any, new: Any, shape: Shape) -> Difference:
    """The fields that differ."""
    difference = Difference()
    _compare((), old, new, shape, difference)
    return difference


def _compare(path: Path, old: Any, new: Any, shape: Shape, out: Difference) -> None:
    if old is not MISSING and new is not MISSING and old == new:
        return
    before = None if old is MISSING else children(old, shape)
    after = None if new is MISSING else children(new, shape)
    is_in_both = old is not MISSING and new is not MISSING
    if before is after is None or (is_in_both and (before is None or after is None)):
        _mark(path, old, new, out)
        return
    before, after = before or {}, after or {}
    for element in before.keys() | after.keys():
        old_part, old_shape = before.get(element, _NO_PART)
        new_part, new_shape = after.get(element, _NO_PART)
        if isinstance(old_part, _PLAIN) and isinstance(new_part, _PLAIN):
            if old_part != new_part:
                _mark((*path, element), old_part, new_part, out)
        else:
            _compare((*path, element), old_part, new_part, new_shape or old_shape or ANY, out)
    if path and not is_in_both:
        _mark(path, old, new, out)


def _mark(path: Path, old: Any, new: Any, out: Difference) -> None:
    if old is MISSING:
        out.added.add(path)
    elif new is MISSING:
        out.removed.add(path)
    else:
        out.modified.add(path)


def field_set(value: Any, shape: Shape) -> FieldSet:
    """The fields that an applied configuration sets."""
    return set(_applied((), value, shape))


def _applied(path: Path, value: Any, shape: Shape) -> Iterator[Path]:
    parts = children(value, shape)
    if parts is None:
        yield path
        return
    for element, (part, part_shape) in parts.items():
        inner = (*path, element)
        yield from _applied(inner, part, part_shape)
        listed = not element.startswith("f:")
        if part in (None, {}) or listed or not shape.declares(element[2:]):
            yield inner


_ORDER = {"f": 0, "k": 1, "v": 2, "i": 3}


@lru_cache(maxsize=1024)
def encode(fields: frozenset[Path]) -> dict[str, Any]:
    """FieldsV1 of a set, in the server's order; objects share the answer and never change it."""
    tree: dict[str, Any] = {}
    members = set(fields)
    for path in fields:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
    return _ordered(tree, (), members)


def _ordered(node: dict[str, Any], path: Path, members: Set[Path]) -> dict[str, Any]:
    if not node:
        return {}
    out: dict[str, Any] = {".": {}} if path in members else {}
    for element in sorted(node, key=lambda name: (_ORDER.get(name[0], 9), name)):
        out[element] = _ordered(node[element], (*path, element), members)
    return out


def is_valid(tree: Any) -> bool:
    """Whether the server takes a FieldsV1 that a client sends."""
    if tree is None or isinstance(tree, msgspec.Raw):
        return True
    return isinstance(tree, dict) and all(_is_element(name) and is_valid(inner) for name, inner in tree.items())


def _is_element(name: str) -> bool:
    kind, colon, rest = name.partition(":")
    if kind not in ("k", "v", "i"):
        return bool(colon) or name == "."
    try:
        value = msgspec.json.decode(rest.encode())
    except msgspec.DecodeError:
        return False
    return kind == "v" or isinstance(value, dict if kind == "k" else int)


def decode(tree: Any) -> FieldSet:
    """The set of a FieldsV1."""
    found: FieldSet = set()
    _decode(tree if isinstance(tree, dict) else {}, (), found)
    return found


def _decode(node: dict[str, Any], path: Path, found: FieldSet) -> None:
    for element, inner in node.items():
        if element == ".":
            found.add(path)
        elif element[0] not in _ORDER:
            continue
        elif inner:
            _decode(inner, (*path, element), found)
        else:
            found.add((*path, element))


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """The live value with an applied configuration laid over it."""
    if shape.atomic or live is MISSING:
        return applied
    if isinstance(applied, dict) and isinstance(live, dict):
        merged = dict(live)
        for key, part in applied.items():
            merged[key] = merge(live.get(key, MISSING), part, shape.child(key))
        return merged
    if isinstance(applied, list) and isinstance(live, list) and shape.associative():
        return _merge_lists(live, applied, shape)
    return applied


def _merge_lists(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    merged = {item_element(shape, item): item for item in live}
    for item in applied:
        element = item_element(shape, item)
        merged[element] = merge(merged.get(element, MISSING), item, shape.item())
    return list(merged.values())


def without(value: Any, paths: FieldSet, shape: Shape, path: Path = ()) -> Any:
    """A copy of the value without the given fields."""
    parts = children(value, shape)
    if parts is None:
        return value
    kept = {
        element: without(part, paths, part_shape, (*path, element))
        for element, (part, part_shape) in parts.items()
        if (*path, element) not in paths
    }
    if isinstance(value, dict):
        return {element[2:]: part for element, part in kept.items()}
    return list(kept.values())
