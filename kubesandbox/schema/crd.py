"""Structural schemas of custom resources: pruning, defaults, validation, merging.

Rules: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
import msgspec

from .causes import Cause, duplicate, invalid_value, not_supported, quoted, required, too_long, too_many, wrong_type
from .cel_rules import RuleSet
from .fields import ANY, ATOMIC, Shape, item_element
from .shapes import METADATA

Obj = dict[str, Any]
_ROOT = ("apiVersion", "kind", "metadata")
_LISTS = ("allOf", "anyOf", "oneOf")
_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
_UNCHECKED = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
    "<nil>",
)
_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")


def to_shape(raw: Obj) -> Shape:
    """How values of a schema merge."""
    if raw.get("x-kubernetes-preserve-unknown-fields") and not raw.get("properties"):
        return ANY
    if raw.get("type") == "array":
        item = to_shape(raw.get("items") or {})
        kind = raw.get("x-kubernetes-list-type", "atomic")
        if kind == "map":
            defaults = {
                key: (raw["items"].get("properties") or {}).get(key, {}).get("default")
                for key in raw.get("x-kubernetes-list-map-keys") or []
            }
            return Shape(element=item, keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()), key_defaults=defaults)
        return Shape(element=item, unique=kind == "set")
    if raw.get("x-kubernetes-map-type") == "atomic":
        return ATOMIC
    properties = {name: to_shape(inner) for name, inner in (raw.get("properties") or {}).items()}
    extra = raw.get("additionalProperties")
    return Shape(fields=properties, element=to_shape(extra) if isinstance(extra, dict) else None)


def _json_schema(raw: Obj) -> Obj:
    inner_schemas = ("properties", "additionalProperties", "items", "not", *_LISTS)
    out: Obj = {key: raw[key] for key in raw if key not in inner_schemas and not key.startswith("x-kubernetes-")}
    if raw.get("x-kubernetes-int-or-string"):
        out.pop("type", None)
        out["type"] = ["integer", "string"]
    if raw.get("nullable"):
        types = out.get("type", [])
        out["type"] = [*(types if isinstance(types, list) else [types]), "null"]
        if "enum" in out:
            out["enum"] = [*out["enum"], None]
    if "properties" in raw:
        out["properties"] = {name: _json_schema(inner) for name, inner in raw["properties"].items()}
    if isinstance(raw.get("additionalProperties"), dict):
        out["additionalProperties"] = _json_schema(raw["additionalProperties"])
    if isinstance(raw.get("items"), dict):
        out["items"] = _json_schema(raw["items"])
    for key in _LISTS:
        if key in raw:
            out[key] = [_json_schema(inner) for inner in raw[key]]
    if "not" in raw:
        out["not"] = _json_schema(raw["not"])
    return out


_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("date-time")
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or bool(_DATE_TIME.match(value))


def _pattern(_validator: Any, pattern: str, value: object, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    """Match as the server does: its `$` does not match before a newline at the end."""
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


_Validator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft4Validator, {"pattern": _pattern}
)


class Schema:
    """One version of a CRD: its schema and what follows from it."""

    def __init__(self, raw: Obj, version: Obj) -> None:
        self.raw = raw
        self.columns: list[Obj] = version.get("additionalPrinterColumns") or []
        self.selectable = {field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or []}
        shape = to_shape(raw)
        self.shape = Shape(fields={**shape.fields, "metadata": METADATA}, element=shape.element)
        body = _json_schema(raw)
        body["properties"] = {key: value for key, value in body.get("properties", {}).items() if key not in _ROOT}
        self._validator = _Validator(body, format_checker=_FORMATS)
        self._rules = RuleSet(raw)

    def prune(self, obj: Obj) -> tuple[Obj, list[str]]:
        """The object without fields that the schema does not know, and their paths."""
        unknown: list[str] = []
        kept = {key: value for key, value in obj.items() if key not in _ROOT}
        pruned = _prune(kept, self.raw, "", unknown)
        return {**{key: obj[key] for key in _ROOT if key in obj}, **pruned}, unknown

    def defaulted(self, obj: Obj) -> Obj:
        """The object with the schema's defaults."""
        out: Obj = _default(obj, self.raw)
        return out

    def causes(self, obj: Obj, old: Obj | None) -> list[Cause]:
        """Field errors: of the schema, of lists, and of CEL rules if those could be checked."""
        body = {key: value for key, value in obj.items() if key not in _ROOT}
        found = [cause for error in _first_of_each(self._validator.iter_errors(body)) for cause in _translate(error)]
        found += list(_list_causes(body, self.raw, ""))
        if not self._rules.any:
            return found
        if any(cause.reason in _BLOCKING for cause in found):
            return [*found, _UNCHECKED]
        return found + self._rules.causes(obj, old)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _prune(value: Any, raw: Obj, path: str, unknown: list[str]) -> Any:
    if isinstance(value, list) and isinstance(raw.get("items"), dict):
        return [_prune(item, raw["items"], f"{path}[{number}]", unknown) for number, item in enumerate(value)]
    if not isinstance(value, dict) or raw.get("type") not in (None, "object"):
        return value
    properties, extra = raw.get("properties") or {}, raw.get("additionalProperties")
    out = {}
    for name, inner in value.items():
        if name in properties:
            out[name] = _prune(inner, properties[name], _join(path, name), unknown)
        elif isinstance(extra, dict):
            out[name] = _prune(inner, extra, _join(path, name), unknown)
        elif raw.get("x-kubernetes-preserve-unknown-fields") or extra is True or _embedded(raw, name):
            out[name] = inner
        else:
            unknown.append(_join(path, name))
    return out


def _embedded(raw: Obj, name: str) -> bool:
    return bool(raw.get("x-kubernetes-embedded-resource")) and name in _ROOT


def _default(value: Any, raw: Obj) -> Any:
    """Defaults set, and null dropped where the schema does not allow it."""
    if isinstance(value, list) and isinstance(raw.get("items"), dict):
        return [_default(item, raw["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    properties, extra = raw.get("properties") or {}, raw.get("additionalProperties")
    given = {**{name: None for name, inner in properties.items() if "default" in inner}, **value}
    out = {}
    for name, part in given.items():
        schema = properties.get(name) or (extra if isinstance(extra, dict) else None)
        if schema is None:
            out[name] = part
            continue
        if part is None and "default" in schema and not (name in value and schema.get("nullable")):
            part = copy.deepcopy(schema["default"])
        if part is not None or schema.get("nullable"):
            out[name] = _default(part, schema)
    return {**{name: out[name] for name in value if name in out}, **out}


def _first_of_each(errors: Iterable[Any]) -> list[Any]:
    """The errors that the server reports: of a string that is too short or too long, it does not report the pattern."""
    found = list(errors)
    sized = {tuple(error.absolute_path) for error in found if error.validator in ("minLength", "maxLength")}
    return [error for error in found if error.validator != "pattern" or tuple(error.absolute_path) not in sized]


def _path_of(parts: Any) -> str:
    text = ""
    for part in parts:
        text = f"{text}[{part}]" if isinstance(part, int) else _join(text, str(part))
    return text


_TYPE_NAMES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
_TYPE_NAMES[type(None)] = "null"


def _translate(error: Any) -> Iterator[Cause]:
    path, value, limit = _path_of(error.absolute_path), error.instance, error.validator_value
    if error.validator == "required":
        missing = [name for name in limit if name not in value and f"'{name}'" in error.message]
        yield from (required(_join(path, name)) for name in missing[:1])
    elif error.validator == "type":
        expected = limit if isinstance(limit, str) else ",".join(name for name in limit if name != "null")
        kind = _TYPE_NAMES.get(type(value), "object")
        yield wrong_type(path, kind, f'{path} in body must be of type {expected}: "{kind}"')
    elif error.validator == "enum":
        yield not_supported(path, value, [choice for choice in limit if choice is not None])
    elif error.validator in ("minimum", "maximum") and error.schema.get(f"exclusive{error.validator.title()}"):
        how = "greater" if error.validator == "minimum" else "less"
        yield invalid_value(path, value, f"{path} in body should be {how} than {limit}")
    elif error.validator in _SIZES:
        yield _shown_size(error, path)
    elif error.validator == "format":
        inner = path.removeprefix("status.")
        yield wrong_type(path, value, f"{inner} in body must be of type {limit}: {quoted(value)}")
    else:
        yield Cause("FieldValueInvalid", f'Invalid value: "": {_combination(error, path)}', "<nil>")


def _combination(error: Any, path: str) -> str:
    name = error.validator
    if name == "oneOf":
        valid = sum(_matches(error, part) for part in error.validator_value)
        found = f"Found {valid} valid alternatives" if valid else "Found none valid"
        return f'"{path}" must validate one and only one schema (oneOf). {found}'
    how = {"anyOf": "at least one schema (anyOf)", "allOf": "all the schemas (allOf)"}.get(name, f"({name})")
    return f'"{path}" must validate {how}'


def _matches(error: Any, part: Obj) -> bool:
    return bool(_Validator(part).is_valid(error.instance))


def _shown_size(error: Any, path: str) -> Cause:
    """The cause of a limit that a value breaks."""
    value, limit, name = error.instance, error.validator_value, error.validator
    if name == "maxLength":
        return too_long(path, limit)
    if name in ("maxItems", "maxProperties"):
        return too_many(path, len(value), limit)
    shown = len(value) if name in ("minItems", "minProperties") else value
    return invalid_value(path, shown, f"{path} in body should {_SIZES[name].format(limit)}")


_SIZES = {
    "pattern": "match '{}'",
    "minLength": "be at least {} chars long",
    "minItems": "have at least {} items",
    "minProperties": "have at least {} properties",
    "minimum": "be greater than or equal to {}",
    "maximum": "be less than or equal to {}",
    "maxLength": "",
    "maxItems": "",
    "maxProperties": "",
}


def _list_causes(value: Any, raw: Obj, path: str) -> Iterator[Cause]:
    if isinstance(value, dict):
        extra = raw.get("additionalProperties")
        for name, inner in value.items():
            schema = (raw.get("properties") or {}).get(name) or extra
            if isinstance(schema, dict):
                yield from _list_causes(inner, schema, _join(path, name))
    elif isinstance(value, list):
        yield from _duplicates(value, raw, path)
        for number, inner in enumerate(value):
            yield from _list_causes(inner, raw.get("items") or {}, f"{path}[{number}]")


def _duplicates(value: list[Any], raw: Obj, path: str) -> Iterator[Cause]:
    shape = to_shape(raw)
    if not shape.associative():
        return
    known: set[str] = set()
    for number, item in enumerate(value):
        element = item_element(shape, item)
        if element in known:
            shown = item if shape.unique else msgspec.json.decode(element[2:])
            yield duplicate(f"{path}[{number}]", shown)
        known.add(element)
