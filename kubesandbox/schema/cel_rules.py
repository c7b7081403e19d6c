"""x-kubernetes-validations: the CEL rules of a schema.

Rules: https://kubernetes.io/docs/reference/using-api/cel/ and KEP-2876.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .causes import Cause
from .quantities import amount

Obj = dict[str, Any]
_REASONS = ("FieldValueRequired", "FieldValueInvalid", "FieldValueForbidden", "FieldValueDuplicate")


@dataclass(frozen=True)
class Rule:
    """One compiled rule of one node."""

    text: str
    program: Any
    message: str
    message_program: Any
    reason: str
    field_path: str
    transition: bool


@lru_cache(maxsize=1024)
def _program(text: str) -> Any:
    import celpy

    environment = celpy.Environment()
    return environment.program(environment.compile(text), functions=_QUANTITIES)


# https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-quantity-library
_QUANTITIES: Obj = {"quantity": amount, "compareTo": lambda one, other: (one > other) - (one < other)}


def _compiled(raw: Obj) -> list[Rule]:
    rules = []
    for rule in raw.get("x-kubernetes-validations") or []:
        text = rule["rule"]
        expression = rule.get("messageExpression")
        rules.append(
            Rule(
                text,
                _program(text),
                rule.get("message") or f"failed rule: {text.strip()}",
                _program(expression) if expression else None,
                rule.get("reason") or "FieldValueInvalid",
                rule.get("fieldPath") or "",
                bool(re.search(r"\boldSelf\b", text)) and not rule.get("optionalOldSelf"),
            )
        )
    return rules


def _visible(obj: Any) -> Any:
    """Return an object as its rules see it: of its metadata only the name.

    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules
    """
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        return obj
    metadata = {name: value for name, value in obj["metadata"].items() if name in ("name", "generateName")}
    return {**obj, "metadata": metadata}


class RuleSet:
    """All rules of a schema, by node."""

    def __init__(self, raw: Obj) -> None:
        self._rules = _compiled(raw)
        self._properties = {name: RuleSet(inner) for name, inner in (raw.get("properties") or {}).items()}
        extra = raw.get("additionalProperties")
        self._extra = RuleSet(extra) if isinstance(extra, dict) else None
        self._items = RuleSet(raw["items"]) if isinstance(raw.get("items"), dict) else None
        inner = [*self._properties.values(), *(part for part in (self._extra, self._items) if part)]
        self.any: bool = bool(self._rules) or any(part.any for part in inner)

    def causes(self, obj: Any, old: Any) -> list[Cause]:
        """The rules that an object breaks."""
        return list(self._walk(_visible(obj), _visible(old), ""))

    def _walk(self, value: Any, old: Any, path: str) -> Iterator[Cause]:
        if value is None:
            return
        for rule in self._rules:
            yield from _check(rule, value, old, path)
        if isinstance(value, dict):
            for name, inner in value.items():
                rules = self._properties.get(name) or self._extra
                if rules and rules.any:
                    before = old.get(name) if isinstance(old, dict) else None
                    yield from rules._walk(inner, before, f"{path}.{name}" if path else name)
        elif isinstance(value, list) and self._items and self._items.any:
            for number, inner in enumerate(value):
                yield from self._items._walk(inner, None, f"{path}[{number}]")


def _check(rule: Rule, value: Any, old: Any, path: str) -> Iterator[Cause]:
    if rule.transition and old is None:
        return
    message = _broken(rule, json.dumps(value), json.dumps(old))
    if message is None:
        return
    field = path + rule.field_path if path else rule.field_path.lstrip(".")
    yield _cause(rule, field, message, value)


@lru_cache(maxsize=256)  # each write of a status checks the same spec again
def _broken(rule: Rule, value: str, old: str) -> str | None:
    """The message of a rule that the JSON value breaks; None if it is valid."""
    from celpy.adapter import json_to_cel

    variables = {"self": json_to_cel(json.loads(value)), "oldSelf": json_to_cel(json.loads(old))}
    try:
        is_valid = bool(rule.program.evaluate(variables))
    except Exception as error:  # whatever the rule does wrong is a field error, as in the server
        is_valid, message = False, f"{error} evaluating rule: {rule.message}"
    else:
        message = rule.message
    if is_valid:
        return None
    return str(rule.message_program.evaluate(variables)) if rule.message_program else message


def _cause(rule: Rule, field: str, message: str, value: Any) -> Cause:
    if rule.reason == "FieldValueRequired":
        return Cause(rule.reason, f"Required value: {message}", field)
    if rule.reason == "FieldValueForbidden":
        return Cause(rule.reason, f"Forbidden: {message}", field)
    shown = "" if isinstance(value, (dict, list)) else f"{_scalar(value)}: "
    return Cause(rule.reason, f"Invalid value: {shown}{message}", field or "<nil>")


def _scalar(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
