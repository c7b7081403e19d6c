"""Read the documents of -f: files, folders of YAML or JSON, or standard input; validate them with the schemas of CRDs.

YAML is decoded as JSON values, as kubectl does: dates and sexagesimal numbers are strings, and keys become strings.
Aliases are refused: they can make a short text gigabytes, or recursive.

A document is validated as the API server does, and all problems are reported at once. CEL rules are not evaluated here:
the job of the kind checks the same conditions in code.
"""

from __future__ import annotations

import json
import re
import stat
import sys
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jsonschema
import yaml
from yaml.parser import ParserError
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from jobs.kit.values.text import visible

MAX_PROBLEMS = 100
_HEAD, _TAIL = 200, 100
_SUFFIXES = (".yaml", ".yml", ".json")
# The API server's limit for one request.
MAX_BYTES = 3 << 20
_PREFIX = "tag:yaml.org,2002:"
_LONGEST_KEY = 60


def crd(plural: str) -> dict[str, Any]:
    """Return the shipped CustomResourceDefinition of this plural name."""
    text = (files("cronjobs") / "crds" / f"{plural}.yaml").read_text()
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def crd_names() -> list[str]:
    """Return the plural names of the shipped CustomResourceDefinitions, sorted."""
    names = (file.name.partition(".")[0] for file in (files("cronjobs") / "crds").iterdir() if file.is_file())
    return sorted(name for name in names if name != "kustomization")


def schema_problems(document: object, plural: str) -> list[str]:
    """Return the problems of a custom resource, each as `field: problem`, sorted.

    Return at most MAX_PROBLEMS + 1 of them, so that a caller can detect that there are more.
    """
    errors = islice(_validator(plural).iter_errors(document), MAX_PROBLEMS + 1)
    return sorted(shortened(f"{_field_path(error.absolute_path)}: {error.message}") for error in errors)


@cache
def is_namespaced(plural: str) -> bool:
    """Whether custom resources of this plural name are namespaced."""
    return bool(crd(plural)["spec"]["scope"] == "Namespaced")


def shortened(problem: str) -> str:
    """Return a problem as one line of limited length: it may quote a value of any length, with any characters."""
    if len(problem) > _HEAD + _TAIL:
        problem = f"{problem[:_HEAD]} ... {problem[-_TAIL:]}"
    return visible(problem)


def _validate_pattern(
    _validator: Any, pattern: str, value: object, _schema: Any
) -> Iterator[jsonschema.ValidationError]:
    """Validate `pattern` as the API server does: its `$` does not match before a final newline."""
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _validate_list_type(
    _validator: Any, kind: str, value: object, _schema: Any
) -> Iterator[jsonschema.ValidationError]:
    """Validate that a list of type set has each string only once."""
    if kind != "set" or not isinstance(value, list):
        return
    found: set[str] = set()
    for number, item in enumerate(value):
        if not isinstance(item, str):
            continue  # the schema of the items reports it
        if item in found:
            yield jsonschema.ValidationError(f"{item!r} is already in the list; remove it", path=[number])
        found.add(item)


_Validator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"pattern": _validate_pattern, "x-kubernetes-list-type": _validate_list_type}
)


@cache
def _validator(plural: str) -> Any:
    return _Validator(_refuse_unknown_fields(crd(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))


def _refuse_unknown_fields(schema: Any) -> Any:
    """Return the schema with additionalProperties false, to refuse unknown fields as fieldValidation=Strict does."""
    if isinstance(schema, list):
        return [_refuse_unknown_fields(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _refuse_unknown_fields(value) for key, value in schema.items()}
    if isinstance(closed.get("properties"), dict) and "additionalProperties" not in closed:
        closed["additionalProperties"] = False
    return closed


def _field_path(path: Iterable[str | int]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).lstrip(".") or "the document"


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
    for name in names:
        is_folder = name != "-" and Path(name).is_dir()
        try:
            found = sorted(each for each in Path(name).iterdir() if each.suffix in _SUFFIXES) if is_folder else [name]
        except OSError as error:
            problems.append(f"{name}: cannot be read: {error.strerror}")
            continue
        for each in found:
            where = "standard input" if each == "-" else str(each)
            try:
                yield where, _read_text(None if each == "-" else Path(each))
            except (OSError, ValueError) as error:
                problems.append(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}")


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
    """Return a scalar as JSON has it, or raise a ValueError."""
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
