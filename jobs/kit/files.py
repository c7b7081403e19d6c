"""Documents that the user names with -f: files, folders of YAML or JSON, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.parser import ParserError
from yaml.scanner import ScannerError

from jobs.kit.errors import ConfigurationError

_SUFFIXES = (".yaml", ".yml", ".json")


class Document(NamedTuple):
    """One document of a file, and where it stands."""

    where: str
    content: Any


def documents(names: Sequence[str]) -> list[Document]:
    """Return all documents of these files in order; `-` is standard input, the items of a `kind: List` are documents.

    Raises:
        ConfigurationError: with every file that cannot be read or is no YAML.
    """
    found: list[Document] = []
    problems: list[str] = []
    for where, text in _texts(names, problems):
        try:
            contents = [content for content in yaml.safe_load_all(text) if content is not None]
        except yaml.YAMLError as error:
            problems.append(f"{where}: is not valid YAML{_position(error)}")
            continue
        items = [item for content in contents for item in _items(content)]
        found += [Document(f"{where}[{n}]" if len(items) > 1 else where, item) for n, item in enumerate(items)]
    if problems:
        raise ConfigurationError(*problems)
    return found


def _position(error: yaml.YAMLError) -> str:
    """Return where the error is. Its own text quotes the line, which may be that of a Secret beside the rules."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return ""
    why = f": {error.problem}" if isinstance(error, (ScannerError, ParserError)) else ""
    return f" at line {mark.line + 1}, column {mark.column + 1}{why}"


def _texts(names: Sequence[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name == "-":
            yield "standard input", sys.stdin.read()
            continue
        path = Path(name)
        paths = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        for each in paths:
            try:
                yield str(each), each.read_text()
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{each}: cannot be read: {getattr(error, 'strerror', None) or error}")


def _items(content: Any) -> list[Any]:
    if isinstance(content, dict) and content.get("kind") == "List" and isinstance(content.get("items"), list):
        return list(content["items"])
    return [content]
