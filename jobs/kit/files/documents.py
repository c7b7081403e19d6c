"""Read the documents of -f: files, folders of YAML or JSON, or standard input."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from jobs.kit.files.limited_yaml import load

_SUFFIXES = (".yaml", ".yml", ".json")
# The API server's limit for one request.
MAX_BYTES = 3 << 20


class Document(NamedTuple):
    """One document, and its file and number for messages."""

    where: str
    content: Any


def documents(names: Sequence[str]) -> tuple[list[Document], list[str]]:
    """Return all documents of these files in order, and the problems of files that cannot be read.

    `-` is standard input. Each item of a `kind: List` is a document.
    """
    found: list[Document] = []
    problems: list[str] = []
    for where, text in _read_texts(names, problems):
        contents, wrong = load(text)
        problems += [f"{where}: {problem}" for problem in wrong]
        items = [item for content in contents if content is not None for item in _split_list(content)]
        found += [Document(f"{where}[{n}]" if len(items) > 1 else where, item) for n, item in enumerate(items)]
    return found, problems


def _read_texts(names: Sequence[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    for where, path in _expand(names, problems):
        try:
            yield where, _read_text(path)
        except (OSError, ValueError) as error:
            problems.append(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}")


def _expand(names: Sequence[str], problems: list[str]) -> Iterator[tuple[str, Path | None]]:
    for name in names:
        path = Path(name)
        if name == "-":
            yield "standard input", None
        elif not path.is_dir():
            yield name, path
        else:
            try:
                paths = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
            except OSError as error:
                problems.append(f"{name}: cannot be read: {error.strerror}")
                continue
            yield from ((str(each), each) for each in paths)


def _read_text(path: Path | None) -> str:
    if path is None:
        if sys.stdin is None:
            raise ValueError("standard input is closed")
        return _read(sys.stdin.buffer)
    # Opening a pipe may block forever, and a device may have no end.
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise ValueError("it is not a regular file; use '-f -' to read what another command writes")
    with path.open("rb") as file:
        return _read(file)


def _read(file: BinaryIO) -> str:
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB; split it")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not valid UTF-8 at byte {error.start}") from None


def _split_list(content: Any) -> list[Any]:
    if isinstance(content, dict) and content.get("kind") == "List" and isinstance(content.get("items"), list):
        return list(content["items"])
    return [content]
