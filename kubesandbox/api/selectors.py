"""Label and field selectors of lists, read as k8s.io/apimachinery/pkg/labels reads them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Container
from itertools import pairwise
from typing import Any

from ..schema.validation import label_key_problems, label_value_problems
from .errors import ApiError, bad_request

Obj = dict[str, Any]
Test = Callable[[Obj], bool]

_TOKEN = re.compile(r"\s*([(),]|[=!<>]+|[^\s=!<>(),]+)")
# Whether a label, or None, has one of these values.
_COMPARISONS: dict[str, Callable[[str | None, set[str]], bool]] = {
    "in": lambda label, values: label in values,
    "notin": lambda label, values: label not in values,
    "=": lambda label, values: label in values,
    "==": lambda label, values: label in values,
    "!=": lambda label, values: label not in values,
    ">": lambda label, values: bool(label and label.isdigit()) and int(label or 0) > int(*values),
    "<": lambda label, values: bool(label and label.isdigit()) and int(label or 0) < int(*values),
}


def label_tests(text: str) -> list[Test]:
    """The tests of labels that an object must pass."""
    tokens = deque([*_TOKEN.findall(text), "", ""])
    tests: list[Test] = []
    while word := tokens[0]:
        if word != "!" and word[0] in "=!<>(),":
            raise bad_request(f"found '{word}', expected: !, identifier, or 'end of string'")
        tests.append(_requirement(tokens))
        word = tokens.popleft()
        if word not in ("", ","):
            raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
        if word == "," and tokens[0] in ("", ","):
            raise bad_request(f"found '{tokens[0]}', expected: identifier after ','")
    return tests


def _requirement(tokens: deque[str]) -> Test:
    """Take one requirement from the left of the tokens, of which the last two are empty."""
    is_absence = tokens[0] == "!"
    if is_absence:
        tokens.popleft()
    key = tokens.popleft()
    for problem in label_key_problems(key):
        raise _unparsable(f'<nil>: Invalid value: "{key}": {problem}')
    if is_absence or tokens[0] in ("", ","):
        return lambda labels: (key in labels) is not is_absence
    operator = tokens.popleft()
    if operator not in _COMPARISONS:
        raise _unparsable(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    values = _values(tokens, operator)
    for number, value in enumerate(sorted(values)):
        for problem in label_value_problems(value):
            raise _unparsable(f'values[{number}][{key}]: Invalid value: "{value}": {problem}')
        if operator in "<>" and not re.fullmatch(r"[-+]?\d+", value):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _unparsable(f'values[0]: Invalid value: "{value}": {why}')
    return lambda labels: _COMPARISONS[operator](labels.get(key), values)


def _values(tokens: deque[str], operator: str) -> set[str]:
    if operator not in ("in", "notin"):
        return {"" if tokens[0] in ("", ",") else tokens.popleft()}
    word = tokens.popleft()
    if word != "(":
        raise _unparsable(f"found '{word}', expected: '('")
    words = [","]
    while (word := tokens.popleft()) != ")":
        if not word:
            raise _unparsable("found '', expected: ',' or ')'")
        words.append(word)
    # Between two commas, or a comma and a parenthesis, is the empty value.
    found = (word if word != "," else "" if last == "," else None for last, word in pairwise([*words, ","]))
    return {word for word in found if word is not None}


def _unparsable(why: str) -> ApiError:
    return bad_request(f"unable to parse requirement: {why}")


def field_terms(text: str) -> list[tuple[str, str, bool]]:
    """Path, value, and whether it must be equal, of each term of a field selector."""
    terms = []
    for part in filter(None, text.split(",")):
        found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        terms.append((found[1], found[3], found[2] != "!="))
    return terms


def field_tests(text: str, allowed: Container[str]) -> list[Test]:
    """The tests of fields that an object must pass; a field that the kind does not offer is a 400."""
    tests: list[Test] = []
    for path, value, expected in field_terms(text):
        if path not in allowed:
            raise bad_request(f"field label not supported: {path}")
        tests.append(_field_test(path, value, expected))
    return tests


def _field_test(path: str, value: str, expected: bool) -> Test:
    return lambda obj: (str(value_at(obj, path)) == value) is expected


def value_at(obj: Obj, path: str, default: Any = "") -> Any:
    """The value of a field such as status.phase, or the default if there is none."""
    node: Any = obj
    for name in path.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return default if node is None else node
