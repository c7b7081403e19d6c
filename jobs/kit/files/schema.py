"""Validate a document with the schema of its CRD, as the API server does, and report all problems at once.

CEL rules are not evaluated here. The job of the kind checks the same conditions in code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

import jsonschema
import yaml

from jobs.kit.values.text import visible

MAX_PROBLEMS = 100
_HEAD, _TAIL = 200, 100


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
