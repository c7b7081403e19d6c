"""What of an object is not as we set it: fields that differ, and fields that we set once and nobody asks for any more.

What others set beside ours, and what the server fills in, is theirs, except for a key that others add to a selector: it
selects other pods. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jobs.kit.model import Change
from jobs.kit.objects import MANAGER
from jobs.mirrors.quantities import quantity

Object = Mapping[str, Any]
Path = tuple[str, ...]  # of FieldsV1 elements: ("f:spec", 'k:{"name":"registry"}', "f:image")

# By which fields the items of a list are told apart, as server-side apply does; other lists are compared whole.
# https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
}
_AMOUNTS = ("requests", "limits")
_WHOLE: frozenset[Path] = frozenset({("f:spec", "f:selector")})
_LEFT_OUT = "f:publishNotReadyAddresses"  # by the server, where it is false
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


class Drift(NamedTuple):
    """A field that is not as we set it, and who set it so, where that is known."""

    change: Change
    by: str = ""


def drift(desired: Object, actual: Object, ignored: frozenset[Path] = frozenset()) -> list[Drift]:
    """Return what of `actual` is not as `desired` says, but for fields at or below `ignored`."""
    entries = [entry for entry in actual["metadata"].get("managedFields") or [] if not entry.get("subresource")]
    others = [entry for entry in entries if entry.get("manager") != MANAGER]
    ours = [entry for entry in entries if entry.get("manager") == MANAGER and entry.get("operation") == "Apply"]
    found = [
        Drift(change, _owner(path, others))
        for path, change in _differing((), desired, actual)
        if not any(path[: len(each)] == each for each in ignored)
    ]
    abandoned = (change for entry in ours for change in _abandoned((), entry.get("fieldsV1") or {}, desired, actual))
    return sorted([*found, *map(Drift, abandoned)])


def _differing(path: Path, desired: Any, actual: Any) -> Iterator[tuple[Path, Change]]:
    """Yield what differs, of a list with keys item by item."""
    keys = _item_keys(path, desired)
    if isinstance(desired, dict) and isinstance(actual, dict):
        for name, value in desired.items():
            yield from _differing((*path, f"f:{name}"), value, actual.get(name))
        for name in sorted(actual.keys() - desired.keys()) if path in _WHOLE else ():
            more = (*path, f"f:{name}")
            yield more, Change(field_name(more), _shown(actual[name]), None)
    elif keys and isinstance(actual, list):
        for item in desired:
            there = next((each for each in actual if _same_item(item, each, keys)), None)
            yield from _differing((*path, _element(item, keys)), item, there)
    elif not _equal(path, desired, actual):
        yield path, Change(field_name(path), _shown(actual), _shown(desired))


def _item_keys(path: Path, value: Any) -> tuple[str, ...]:
    if not path or not isinstance(value, list) or not value:
        return ()
    choices = _KEYS.get(path[-1][2:], ())
    return next((keys for keys in choices if isinstance(value[0], dict) and keys[0] in value[0]), ())


def _same_item(one: Object, other: Any, keys: tuple[str, ...]) -> bool:
    return isinstance(other, dict) and all(one.get(key) == other.get(key) for key in keys)


def _element(item: Object, keys: tuple[str, ...]) -> str:
    return "k:" + json.dumps({key: item[key] for key in keys}, separators=(",", ":"))


def _equal(path: Path, desired: Any, actual: Any) -> bool:
    if desired == actual or (path and path[-1] == _LEFT_OUT and not desired and actual is None):
        return True
    try:
        is_amount = len(path) > 1 and path[-2][2:] in _AMOUNTS and isinstance(actual, (str, int))
        return is_amount and quantity(desired) == quantity(actual)
    except ValueError:
        return False


def _owner(path: Path, entries: list[Object]) -> str:
    """Return who owns a field; who removed an item of a list is told by owning others of it."""
    is_part = path[-1].startswith("k:") or path[:-1] in _WHOLE
    return _holder(path, entries) or (_holder(path[:-1], entries) if is_part else "")


def _holder(path: Path, entries: list[Object]) -> str:
    return next((str(entry.get("manager")) for entry in entries if _holds(entry.get("fieldsV1") or {}, path)), "")


def _holds(fields: Object, path: Path) -> bool:
    node: Any = fields
    for element in path:
        node = node.get(element) if isinstance(node, dict) else None
        if node is None:
            return False
    return True


def _abandoned(path: Path, fields: Object, desired: Any, actual: Any) -> Iterator[Change]:
    """Yield the fields that we own by `fields` and that `desired` does not have, each at its top."""
    for element, below in fields.items():
        if not _is_field(element):
            continue
        inner, value = _child(desired, element), _child(actual, element)
        if inner is None:
            yield Change(field_name((*path, element)), _shown(value), None)
        elif isinstance(below, dict) and below:
            yield from _abandoned((*path, element), below, inner, value)


def _is_field(element: str) -> bool:
    """Whether an element of a fieldsV1 names a field or an item of a list; anybody may send what is neither."""
    try:
        return element.startswith("f:") or (element.startswith("k:") and bool(dict(json.loads(element[2:]))))
    except (TypeError, ValueError):
        return False


def _child(value: Any, element: str) -> Any:
    if element.startswith("f:"):
        return value.get(element[2:]) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    keys: Object = json.loads(element[2:])
    return next((item for item in value if _same_item(keys, item, tuple(keys))), None)


def field_name(path: Path) -> str:
    """Return how people write a path: spec.template.spec.containers[registry].image."""
    text = ""
    for element in path:
        if element.startswith("k:"):
            text += f"[{next(iter(json.loads(element[2:]).values()))}]"
        elif re.fullmatch(r"[A-Za-z0-9]+", element[2:]):
            text += f".{element[2:]}"
        else:
            text += f"[{element[2:]}]"
    return text.lstrip(".")


def _shown(value: Any) -> str | None:
    """Return a value for people to read; a password that somebody wrote into a URL is not for that."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return _USER_IN_URL.sub("***@", text)
