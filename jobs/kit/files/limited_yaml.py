"""Decode untrusted YAML as JSON values, within limits: aliases can make a short text gigabytes, or recursive.

It accepts what kubectl accepts: dates and sexagesimal numbers are strings, keys become strings, no key is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from math import isfinite
from typing import Any

import yaml
from yaml.parser import ParserError
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

MAX_DEPTH = 100
# The weight of a value is its number of characters, plus a constant for PyYAML. Each alias of it adds it again.
MAX_WEIGHT = 10 << 20
_VALUE_WEIGHT = 32
_TOO_MUCH = f"its values have more than {MAX_WEIGHT >> 20} MiB, with the copies that aliases add"
_PREFIX = "tag:yaml.org,2002:"
_KEYS = frozenset(_PREFIX + name for name in ("str", "int", "float", "bool", "merge"))
_ONLY_YAML = frozenset(_PREFIX + name for name in ("timestamp", "value"))
_LONGEST_KEY = 60


def load(text: str) -> tuple[list[Any], list[str]]:
    """Return the documents of a YAML text, and its problems with their lines.

    Documents after a syntax error are missing. No problem quotes a value: the text may contain Secrets.
    """
    try:
        loader = _Loader(text)
    except ReaderError as error:
        place = f"line {text.count(chr(10), 0, error.position) + 1}"
        return [], [f"is not valid YAML at {place}: a control character must be escaped"]
    documents: list[Any] = []
    try:
        while loader.check_data():  # type: ignore[no-untyped-call]
            documents.append(loader.get_data())
    except yaml.MarkedYAMLError as error:
        loader.problems.append(_describe_error(error))
    except (ValueError, OverflowError):  # raised by the scanner for an escape beyond Unicode
        loader.problems.append(f"is not valid YAML at {_position(loader.get_mark())}")
    return documents, loader.problems


class _InvalidError(yaml.MarkedYAMLError):
    """A YAML value that JSON does not have."""


class _LimitError(yaml.MarkedYAMLError):
    """YAML that exceeds a limit."""


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML declares it
        first: [each for each in resolvers if each[0] not in _ONLY_YAML]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.problems: list[str] = []
        self._depth = 0
        self._weight = 0
        self._anchored: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            self._add_alias(event)
            return super().compose_node(parent, index)
        if self._depth == MAX_DEPTH:
            raise _LimitError(None, None, f"nested deeper than {MAX_DEPTH} levels", event.start_mark)
        before = self._weight
        self._anchored.pop(event.anchor, None)
        self._add_weight(_VALUE_WEIGHT + len(getattr(event, "value", "")), event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._anchored[event.anchor] = self._weight - before
        return node

    def _add_alias(self, alias: Any) -> None:
        if alias.anchor in self.anchors and alias.anchor not in self._anchored:
            raise _InvalidError(None, None, "an alias inside the value that it repeats", alias.start_mark)
        self._add_weight(self._anchored.get(alias.anchor, 0), alias.start_mark)

    def _add_weight(self, weight: int, mark: yaml.Mark) -> None:
        self._weight += weight
        if self._weight > MAX_WEIGHT:
            raise _LimitError(None, None, _TOO_MUCH, mark)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _KEYS:
                raise _InvalidError(None, None, "a key must be a string", key.start_mark)
            name = key.value if key.tag == _PREFIX + "merge" else _key_text(self.construct_object(key))
            if name in lines:
                shown = repr(name[:_LONGEST_KEY])
                self.problems.append(f"{_position(key.start_mark)}: key {shown} is already set at line {lines[name]}")
            lines.setdefault(name, key.start_mark.line + 1)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError, LookupError, AttributeError):  # what PyYAML's constructors raise
            kind = node.tag.removeprefix(_PREFIX)
            raise _InvalidError(None, None, f"the {kind} is not valid in JSON", node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        return {_key_text(key): value for key, value in super().construct_mapping(node, deep).items()}

    def construct_undefined(self, node: yaml.Node) -> Any:
        raise _InvalidError(None, None, "unknown tag", node.start_mark)

    def construct_str(self, node: yaml.ScalarNode) -> str:
        value: str = self.construct_yaml_str(node)
        # JSON escapes one character beyond 16 bits as two surrogates.
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16")

    def construct_int(self, node: yaml.ScalarNode) -> int | str:
        if ":" in node.value:
            return str(node.value)
        value: int = self.construct_yaml_int(node)
        if not -(1 << 63) <= value < 1 << 64:
            raise ValueError
        return value

    def construct_float(self, node: yaml.ScalarNode) -> float | str:
        if ":" in node.value:
            return str(node.value)
        value: float = self.construct_yaml_float(node)
        if not isfinite(value):
            raise ValueError
        return value


for _type in ("str", "int", "float"):
    _Loader.add_constructor(_PREFIX + _type, getattr(_Loader, f"construct_{_type}"))
_Loader.add_constructor(None, _Loader.construct_undefined)


def _key_text(key: Hashable) -> str:
    return key if isinstance(key, str) else json.dumps(key)


def _position(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _describe_error(error: yaml.MarkedYAMLError) -> str:
    """Return the problem without the line that PyYAML quotes, and without a tag: both may contain a value."""
    what = "is too large to read" if isinstance(error, _LimitError) else "is not valid YAML"
    place = f" at {_position(error.problem_mark)}" if error.problem_mark else ""
    known = isinstance(error, (ScannerError, ParserError, _InvalidError, _LimitError)) and error.problem
    return f"{what}{place}: {str(error.problem).partition(' tag handle ')[0]}" if known else f"{what}{place}"
