"""Decode YAML as JSON values, as kubectl does: dates and sexagesimal numbers are strings, and keys become strings.

Aliases are refused: they can make a short text gigabytes, or recursive.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.parser import ParserError
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

_PREFIX = "tag:yaml.org,2002:"
_LONGEST_KEY = 60
_TAGS = {_PREFIX + name for name in ("null", "bool", "int", "float", "str", "seq", "map")}


def load(text: str) -> tuple[list[Any], list[str]]:
    """Return the documents of a YAML text, and its problem with its line.

    Documents after a problem are missing. No problem quotes a value: the text may contain Secrets.
    """
    documents: list[Any] = []
    try:
        loader = _Loader(text)
    except ReaderError as error:
        place = f"line {text.count(chr(10), 0, error.position) + 1}"
        return [], [f"is not valid YAML at {place}: a control character must be escaped"]
    try:
        while loader.check_data():  # type: ignore[no-untyped-call]
            documents.append(loader.get_data())
    except yaml.MarkedYAMLError as error:
        # Without the line that PyYAML quotes, and without a tag: both may contain a value.
        is_known = isinstance(error, ScannerError | ParserError | _InvalidError) and error.problem
        problem = f": {str(error.problem).partition(' tag handle ')[0]}" if is_known else ""
        return documents, [f"is not valid YAML at {_position(error.problem_mark or loader.get_mark())}{problem}"]
    except RecursionError:
        return documents, [f"is nested too deeply at {_position(loader.get_mark())}"]
    except (ValueError, OverflowError):  # raised by the scanner for an escape beyond Unicode
        return documents, [f"is not valid YAML at {_position(loader.get_mark())}"]
    return documents, []


class _InvalidError(yaml.MarkedYAMLError):
    """YAML that JSON does not have."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(None, None, problem, mark)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML declares it
        first: [each for each in resolvers if each[0] in _TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012
        tag: constructor for tag, constructor in yaml.SafeLoader.yaml_constructors.items() if tag in _TAGS
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _InvalidError("aliases are not allowed; repeat the value", event.start_mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag not in self.yaml_constructors:
            raise _InvalidError("unknown tag", node.start_mark)
        try:
            value = super().construct_object(node, deep)
            return _as_json(value, node.value) if isinstance(node, yaml.ScalarNode) else value
        except (ValueError, OverflowError, LookupError):  # also what PyYAML's constructors raise
            kind = node.tag.removeprefix(_PREFIX)
            raise _InvalidError(f"the {kind} is not valid in JSON", node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str | int | float):
                raise _InvalidError("a key must be a string", key_node.start_mark)
            name = key if isinstance(key, str) else json.dumps(key)
            if name in found:
                raise _InvalidError(f"key {name[:_LONGEST_KEY]!r} is already set", key_node.start_mark)
            found[name] = self.construct_object(value_node, deep)
        return found


def _as_json(value: Any, text: str) -> Any:
    """Return a scalar as JSON has it.

    Raises:
        ValueError: JSON does not have it.
    """
    if isinstance(value, str):
        # JSON escapes one character beyond 16 bits as two surrogates.
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16")
    if isinstance(value, int | float) and ":" in text:
        return text
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise ValueError
    json.dumps(value, allow_nan=False)
    return value


def _position(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
