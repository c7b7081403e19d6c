"""Label and field selectors of lists.

Syntax: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .errors import bad_request
from .validation import label_key_problems, label_value_problems

Obj = dict[str, Any]
Matcher = Callable[[dict[str, str]], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUALS = re.compile(r"^([^\s=!<>(),]+)\s*(==|=|!=|>|<)\s*([^\s=!<>(),]*)$")
_EXISTS = re.compile(r"^(!?)\s*([^\s=!<>(),]+)$")


def _unparsable(text: str) -> Exception:
    return bad_request(f'unable to parse requirement: found \'{text}\', expected: an identifier, "in" or "notin"')


def split(text: str) -> list[str]:
    """The requirements of a selector: commas outside parentheses separate them."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _checked(key: str, values: list[str]) -> None:
    problems = [f'key: Invalid value: "{key}": {problem}' for problem in label_key_problems(key)]
    for value in values:
        problems += [
            f'values[0][{key}]: Invalid value: "{value}": {problem}' for problem in label_value_problems(value)
        ]
    if problems:
        raise bad_request("unable to parse requirement: " + "; ".join(problems))


def _requirement(text: str) -> Matcher:
    if found := _SET.match(text):
        key, operator, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        _checked(key, list(values))
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALS.match(text):
        key, operator, value = found.groups()
        _checked(key, [value])
        return _comparison(key, operator, value)
    if found := _EXISTS.match(text):
        negated, key = found.groups()
        _checked(key, [])
        if negated:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise _unparsable(text)


def _comparison(key: str, operator: str, value: str) -> Matcher:
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    bound = int(value)
    if operator == ">":
        return lambda labels: labels.get(key, "").isdigit() and int(labels[key]) > bound
    return lambda labels: labels.get(key, "").isdigit() and int(labels[key]) < bound


def label_matcher(text: str) -> Matcher | None:
    """A test of labels; None when the selector is empty."""
    requirements = [_requirement(part) for part in split(text)]
    if not requirements:
        return None
    if len(requirements) == 1:
        return requirements[0]
    return lambda labels: all(matches(labels) for matches in requirements)


def field_matcher(text: str, allowed: Callable[[str], bool], title: str) -> Callable[[Obj], bool] | None:
    """A test of objects by fields; a field that the kind does not offer is a 400."""
    tests: list[tuple[str, str, bool]] = []
    for part in split(text):
        found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
        if not found:
            raise bad_request(f"invalid field selector {text!r}: can't understand {part!r}")
        path, operator, value = found.groups()
        if not allowed(path):
            raise bad_request(
                f"field label not supported: {path}"
                if not title
                else f'Unable to find "{title}" that match label selector "", field selector "{text}": '
                f"field label not supported: {path}"
            )
        tests.append((path, value, operator != "!="))
    if not tests:
        return None
    return lambda obj: all((field_value(obj, path) == value) is wanted for path, value, wanted in tests)


def field_value(obj: Obj, path: str) -> str:
    """The value of a field as selectors compare it."""
    node: Any = obj
    for name in path.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return "" if node is None else str(node)
