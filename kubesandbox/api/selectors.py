"""Label and field selectors of lists, read as k8s.io/apimachinery/pkg/labels reads them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..schema.validation import label_key_problems, label_value_problems
from .errors import ApiError, bad_request

Obj = dict[str, Any]
Matcher = Callable[[dict[str, str]], bool]

_TOKEN = re.compile(r"\s*([(),]|[=!<>]+|[^\s=!<>(),]+)")
_SPECIAL = set("=!<>(),")


class _Parser:
    """One selector on its way to requirements."""

    def __init__(self, text: str) -> None:
        self._left = _TOKEN.findall(text)

    def _peek(self) -> str:
        return self._left[0] if self._left else ""

    def _take(self) -> str:
        return self._left.pop(0) if self._left else ""

    def requirements(self) -> list[Matcher]:
        found: list[Matcher] = []
        while self._left:
            word = self._peek()
            if word != "!" and word[0] in _SPECIAL:
                raise bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
            found.append(self._requirement())
            word = self._take()
            if word not in ("", ","):
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if word == "," and (not self._peek() or self._peek() == ","):
                raise bad_request(f"found '{self._peek()}', expected: identifier after ','")
        return found

    def _requirement(self) -> Matcher:
        if self._peek() == "!":
            self._take()
            absent = self._key()
            return lambda labels: absent not in labels
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return lambda labels: key in labels
        self._take()
        if operator in ("in", "notin"):
            return _membership(key, operator, self._values(key))
        if operator not in ("=", "==", "!=", ">", "<"):
            raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
        value = "" if self._peek() in ("", ",") else self._take()
        return _comparison(key, operator, value)

    def _key(self) -> str:
        key = self._take()
        for problem in label_key_problems(key):
            raise _unparsable(f'<nil>: Invalid value: "{key}": {problem}')
        return key

    def _values(self, key: str) -> set[str]:
        word = self._take()
        if word != "(":
            raise _unparsable(f"found '{word}', expected: '('")
        values: set[str] = set()
        last = ","
        while (word := self._take()) != ")":
            if not word:
                raise _unparsable("found '', expected: ',' or ')'")
            if word != ",":
                values.add(word)
            elif last == ",":
                values.add("")
            last = word
        if last == ",":
            values.add("")
        for number, value in enumerate(sorted(values)):
            _check_value(key, value, number)
        return values


def _unparsable(why: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {why}")


def _check_value(key: str, value: str, number: int = 0) -> None:
    for problem in label_value_problems(value):
        raise _unparsable(f'values[{number}][{key}]: Invalid value: "{value}": {problem}')


def _membership(key: str, operator: str, values: set[str]) -> Matcher:
    if operator == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _comparison(key: str, operator: str, value: str) -> Matcher:
    _check_value(key, value)
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if not re.fullmatch(r"[-+]?\d+", value):
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise _unparsable(f'values[0]: Invalid value: "{value}": {why}')
    bound = int(value)
    if operator == ">":
        return lambda labels: labels.get(key, "").isdigit() and int(labels[key]) > bound
    return lambda labels: labels.get(key, "").isdigit() and int(labels[key]) < bound


def label_matcher(text: str) -> Matcher | None:
    """A test of labels; None when the selector is empty."""
    requirements = _Parser(text).requirements() if text.strip() else []
    if not requirements:
        return None
    if len(requirements) == 1:
        return requirements[0]
    return lambda labels: all(matches(labels) for matches in requirements)


def field_terms(text: str) -> list[tuple[str, str, bool]]:
    """Path, value, and whether it must be equal, of each term of a field selector."""
    terms = []
    for part in text.split(","):
        if not part:
            continue
        found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append((found[1], found[3], found[2] != "!="))
    return terms


def field_matcher(text: str, allowed: Callable[[str], bool]) -> Callable[[Obj], bool] | None:
    """A test of objects by fields; a field that the kind does not offer is a 400."""
    terms = field_terms(text)
    for path, _, _ in terms:
        if not allowed(path):
            raise bad_request(f"field label not supported: {path}")
    if not terms:
        return None
    return lambda obj: all((_text_at(obj, path) == value) is expected for path, value, expected in terms)


def _text_at(obj: Obj, path: str) -> str:
    value = value_at(obj, path)
    return "" if value is None else str(value)


def value_at(obj: Obj, path: str) -> Any:
    """The value of a field such as status.phase, if there is one."""
    node: Any = obj
    for name in path.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node
