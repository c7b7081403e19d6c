"""The Go types of some built-in kinds: the fields of an object, what a request may set them to, and how they merge.

Source: the types of k8s.io/api and the published OpenAPI documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from .fields import ANY, ATOMIC, STRUCT, Shape
from .quantities import QuantityError, canonical

Obj = dict[str, Any]
_JSON = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}


class UndecodableError(ValueError):
    """A value of another type than the field of a built-in kind has."""


def wrong_type(value: object, where: str, expected: str) -> UndecodableError:
    """The error of Go's decoder; `where` is the struct and the path of the field."""
    found = _JSON.get(type(value), "value")
    return UndecodableError(f"json: cannot unmarshal {found} into Go struct field {where} of type {expected}")


@dataclass(frozen=True)
class GoType:
    """A type as Go's decoder sees it.

    `fields` are those of a struct, `element` is the type in a list or map, `keys` identify the items of a list. A field
    is left out if it is empty, unless it is `always` served; a `pointer` is served if it is given.
    """

    name: str
    json: tuple[type, ...]
    fields: Mapping[str, GoType] | None = None
    element: GoType | None = None
    keys: tuple[str, ...] = ()
    atomic: bool = False
    always: bool = False
    pointer: bool = False

    @property
    def zero(self) -> Any:
        """The value of a field that is not given."""
        if self.fields is not None:
            return {name: field.zero for name, field in self.fields.items() if field.always}
        return {str: "", bool: False, int: 0}.get(self.json[0]) if self is not QUANTITY else "0"

    @property
    def shape(self) -> Shape:
        """How values of the type merge."""
        if self.keys:
            return Shape(keys=self.keys, element=self.element.shape if self.element else STRUCT)
        if self.atomic or self.json == (list,):
            return ATOMIC
        if self.fields is not None:
            return Shape(fields={name: field.shape for name, field in self.fields.items()}, struct=True)
        return Shape(element=ANY) if self.element else ANY


QUANTITY = GoType("resource.Quantity", (str, int, float))
_KNOWN = {
    "string": GoType("string", (str,)),
    "bool": GoType("bool", (bool,)),
    "int32": GoType("int32", (int,)),
    "IntOrString": GoType("intstr.IntOrString", (int, str)),
    "ResourceList": GoType("v1.ResourceList", (dict,), element=QUANTITY),
}
_STRUCTS: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "types.yaml").read_text())


def _type(text: str) -> GoType:
    """The type that a text of types.yaml means."""
    word, _, rest = text.partition(" ")
    if word == "always":
        return replace(_type(rest), always=True)
    if word == "pointer":
        return replace(_type(rest), pointer=True, always=False)
    if word == "atomic":
        return replace(_type(rest), atomic=True)
    if word == "list":
        item, _, key = rest.partition(" by ")
        element = _type(item)
        return GoType(f"[]{element.name}", (list,), element=element, keys=(key,) if key else ())
    if word == "map":
        element = _type(rest)
        return GoType(f"map[string]{element.name}", (dict,), element=element)
    if word in _STRUCTS:
        fields = {name: _type(inner) for name, inner in _STRUCTS[word].items()}
        return GoType(f"v1.{word}", (dict,), fields, always=True)
    return _KNOWN.get(word) or GoType(f"v1.{word}", (str,))


# Objects of other kinds are decoded with few checks.
TYPES: dict[str, GoType] = {name: _type(name) for name in _STRUCTS}


@dataclass(frozen=True)
class _At:
    """Where a value is: the struct around it, its path in errors and in warnings, and the unknown fields so far."""

    struct: str
    path: str = ""
    warned: str = ""
    unknown: list[str] = field(default_factory=list)

    def child(self, of: GoType, name: str) -> _At:
        def joined(path: str) -> str:
            return f"{path}.{name}" if path else name

        return _At(of.name.removeprefix("v1."), joined(self.path), joined(self.warned), self.unknown)

    def item(self, number: int) -> _At:
        return replace(self, warned=f"{self.warned}[{number}]")


def decode(kind: str, fields: Obj) -> tuple[Obj, list[str]]:
    """The fields of an object as the server has them, and the paths of those that the kind does not have.

    Raises:
        UndecodableError: a value has another type than its field.
    """
    at = _At(kind)
    decoded: Obj = _struct(fields, TYPES[kind], at)
    return decoded, at.unknown


def _struct(value: Obj, kind: GoType, at: _At) -> Obj:
    fields = kind.fields or {}
    parts = {}
    for name, given in value.items():
        where = at.child(kind, name)
        if name not in fields:
            at.unknown.append(where.warned)
        elif given is not None:
            parts[name] = _value(given, fields[name], where)
    return {
        name: parts.get(name, field_type.zero)
        for name, field_type in fields.items()
        if field_type.always or (name in parts if field_type.pointer else parts.get(name))
    }


def _value(value: Any, kind: GoType, at: _At) -> Any:
    if value is None:
        return kind.zero
    if kind is QUANTITY:
        return _quantity(value)
    if type(value) not in kind.json:
        raise wrong_type(value, f"{at.struct}.{at.path}", kind.name)
    if kind.fields is not None:
        return _struct(value, kind, at)
    if kind.element and isinstance(value, list):
        return [_value(item, kind.element, at.item(number)) for number, item in enumerate(value)] or None
    if kind.element:
        return {key: _value(item, kind.element, at) for key, item in sorted(value.items())}
    return value


def _quantity(value: Any) -> str:
    try:
        return canonical("" if isinstance(value, bool) else str(value).strip())
    except QuantityError as error:
        raise UndecodableError(str(error)) from None
