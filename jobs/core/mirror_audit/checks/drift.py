"""Find the drift of an object: fields that differ, and fields that kube-chores set once and no longer sets. Pure.

Fields that others or the server set in addition are not drift. The exception is a key that others add to a selector,
because it selects other pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from jobs.core.mirror_audit.actual.objects import Object
from jobs.core.mirror_audit.desired.mirror import Manifest
from jobs.core.mirror_audit.quantities import quantity
from jobs.kit.values import stamps
from jobs.kit.values.model import Change

Path = tuple[str, ...]  # of FieldsV1 elements: ("f:spec", 'k:{"name":"registry"}', "f:image")

# The merge keys of lists, as in server-side apply. Other lists are compared as one value.
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
_OMITTED_IF_FALSE = "f:publishNotReadyAddresses"  # by the server
# Not drift of a resource: the fingerprint only explains other drift, and separate findings report a claim's size.
_NOT_DRIFT: frozenset[Path] = frozenset(
    {
        ("f:metadata", "f:annotations", f"f:{stamps.FINGERPRINT}"),
        ("f:spec", "f:resources", "f:requests", "f:storage"),
    }
)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


class Drift(NamedTuple):
    """A field that drifted, and the field manager that changed it, if known."""

    change: Change
    by: str = ""


def resource_drift(desired: Manifest, actual: Object) -> list[Drift]:
    """Return the drift of a resource, sorted."""
    return drift(desired.body, actual, _NOT_DRIFT)


def drift(desired: Object, actual: Object, ignored: frozenset[Path] = frozenset()) -> list[Drift]:
    """Return the drift of `actual` from `desired`, sorted, without the fields at or below `ignored`."""
    entries = [entry for entry in actual["metadata"].get("managedFields") or [] if not entry.get("subresource")]
    others = [entry for entry in entries if entry.get("manager") != stamps.MANAGER]
    own = [entry for entry in entries if entry.get("manager") == stamps.MANAGER and entry.get("operation") == "Apply"]
    found = [
        Drift(change, _owner(path, others))
        for path, change in _differences((), desired, actual)
        if not any(path[: len(each)] == each for each in ignored)
    ]
    no_longer_set = (
        change for entry in own for change in _no_longer_set((), entry.get("fieldsV1") or {}, desired, actual)
    )
    return sorted([*found, *map(Drift, no_longer_set)])


def _differences(path: Path, desired: Any, actual: Any) -> Iterator[tuple[Path, Change]]:
    """Yield the differences; lists with merge keys are compared item by item."""
    if desired == actual:  # most parts are: this is faster than to compare what is in them
        return
    keys = _item_keys(path, desired)
    if isinstance(desired, dict) and isinstance(actual, dict):
        for name, value in desired.items():
            yield from _differences((*path, f"f:{name}"), value, actual.get(name))
        for name in sorted(actual.keys() - desired.keys()) if path in _WHOLE else ():
            more = (*path, f"f:{name}")
            yield more, Change(field_name(more), _displayed(actual[name]), None)
    elif keys and isinstance(actual, list):
        for item in desired:
            actual_item = next((each for each in actual if _same_item(item, each, keys)), None)
            yield from _differences((*path, _element(item, keys)), item, actual_item)
    elif not _equal(path, desired, actual):
        yield path, Change(field_name(path), _displayed(actual), _displayed(desired))


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
    if path and path[-1] == _OMITTED_IF_FALSE and not desired and actual is None:
        return True
    try:
        is_amount = len(path) > 1 and path[-2][2:] in _AMOUNTS and isinstance(actual, (str, int))
        return is_amount and quantity(desired) == quantity(actual)
    except ValueError:
        return False


def _owner(path: Path, entries: list[Object]) -> str:
    """Return the manager of a field. For a removed item of a list, return the manager of other items."""
    is_part = path[-1].startswith("k:") or path[:-1] in _WHOLE
    return _manager(path, entries) or (_manager(path[:-1], entries) if is_part else "")


def _manager(path: Path, entries: list[Object]) -> str:
    return next((str(entry.get("manager")) for entry in entries if _owns(entry.get("fieldsV1") or {}, path)), "")


def _owns(fields: Object, path: Path) -> bool:
    node: Any = fields
    for element in path:
        node = node.get(element) if isinstance(node, dict) else None
        if node is None:
            return False
    return True


def _no_longer_set(path: Path, fields: Object, desired: Any, actual: Any) -> Iterator[Change]:
    """Yield the fields that kube-chores owns by `fields` and `desired` no longer has, each at its topmost path."""
    for element, below in fields.items():
        if not _is_field(element):
            continue
        inner = _value_at(desired, element)
        if inner is None:
            yield Change(field_name((*path, element)), _displayed(_value_at(actual, element)), None)
        elif isinstance(below, dict) and below:
            yield from _no_longer_set((*path, element), below, inner, _value_at(actual, element))


def _is_field(element: str) -> bool:
    """Return whether an element of a fieldsV1 names a field or an item of a list; clients can send other elements."""
    return element.startswith("f:") or (element.startswith("k:") and bool(_item_fields(element)))


@lru_cache(maxsize=64)  # resources of all mirrors have the same few
def _item_fields(element: str) -> Object:
    """Return the fields by which "k:{...}" selects an item of a list, none if it is not valid; values are scalars."""
    try:
        found = json.loads(element[2:])
    except (ValueError, RecursionError):
        return {}
    is_valid = isinstance(found, dict) and not any(isinstance(each, (dict, list)) for each in found.values())
    return found if is_valid else {}


def _value_at(value: Any, element: str) -> Any:
    if element.startswith("f:"):
        return value.get(element[2:]) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    keys = _item_fields(element)
    return next((item for item in value if _same_item(keys, item, tuple(keys))), None)


def field_name(path: Path) -> str:
    """Format a path for people: spec.template.spec.containers[registry].image."""
    text = ""
    for element in path:
        if element.startswith("k:"):
            text += f"[{next(iter(json.loads(element[2:]).values()))}]"
        elif re.fullmatch(r"[A-Za-z0-9]+", element[2:]):
            text += f".{element[2:]}"
        else:
            text += f"[{element[2:]}]"
    return text.lstrip(".")


def _displayed(value: Any) -> str | None:
    """Format a value for people, without a user and password in a URL."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return _USER_IN_URL.sub("***@", text)
