"""Names, labels, annotations and metadata, validated in the server's words.

Source of rules and wording: k8s.io/apimachinery/pkg/util/validation and pkg/api/validation.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from .causes import Cause, duplicate, forbidden_field, invalid_value, required, too_long
from .resources import Resource

Obj = dict[str, Any]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_QUALIFIED})?"
_CONFIG_KEY = r"[-._a-zA-Z0-9]+"

_LABEL_RE = re.compile(_LABEL + r"\Z")
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN + r"\Z")
_QUALIFIED_RE = re.compile(_QUALIFIED + r"\Z")
_VALUE_RE = re.compile(_VALUE + r"\Z")
_CONFIG_KEY_RE = re.compile(_CONFIG_KEY + r"\Z")

STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
ANNOTATIONS_LIMIT = 256 * 1024


def _regex(text: str, examples: str, pattern: str) -> str:
    return f"{text} ({examples}, regex used for validation is '{pattern}')"


SUBDOMAIN_RULE = _regex(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character",
    "e.g. 'example.com'",
    _SUBDOMAIN,
)
LABEL_RULE = _regex(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character",
    "e.g. 'my-name',  or '123-abc'",
    _LABEL,
)
QUALIFIED_RULE = _regex(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    "e.g. 'MyName',  or 'my.name',  or '123-abc'",
    _QUALIFIED,
)
VALUE_RULE = _regex(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character",
    "e.g. 'MyValue',  or 'my_value',  or '12345'",
    _VALUE,
)
CONFIG_KEY_RULE = _regex(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    "e.g. 'key.name',  or 'KEY_NAME',  or 'key-name'",
    _CONFIG_KEY,
)


_TOO_MANY_CHARACTERS = "must be no more than 253 characters"


def _too_many_bytes(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def subdomain_problems(value: str) -> list[str]:
    """What is wrong with a DNS subdomain."""
    problems = [_TOO_MANY_CHARACTERS] if len(value) > 253 else []
    return problems if _SUBDOMAIN_RE.match(value) else [*problems, SUBDOMAIN_RULE]


def label_name_problems(value: str) -> list[str]:
    """What is wrong with a DNS label."""
    problems = ["must be no more than 63 characters"] if len(value) > 63 else []
    if _LABEL_RE.match(value):
        return problems
    return [*problems, "must not contain dots" if _SUBDOMAIN_RE.match(value) else LABEL_RULE]


@lru_cache(maxsize=4096)
def label_key_problems(key: str) -> tuple[str, ...]:
    """What is wrong with the key of a label."""
    prefix, slash, name = key.rpartition("/")
    if prefix.count("/"):
        example = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {QUALIFIED_RULE}{example}",)
    problems = []
    if slash:
        problems += (
            ["prefix part must be non-empty"]
            if not prefix
            else ["prefix part " + problem for problem in subdomain_problems(prefix)]
        )
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part " + _too_many_bytes(63))
    if not _QUALIFIED_RE.match(name):
        problems.append("name part " + QUALIFIED_RULE)
    return tuple(problems)


@lru_cache(maxsize=4096)
def label_value_problems(value: str) -> tuple[str, ...]:
    """What is wrong with the value of a label."""
    problems = [_too_many_bytes(63)] if len(value) > 63 else []
    return tuple(problems if _VALUE_RE.match(value) else [*problems, VALUE_RULE])


@lru_cache(maxsize=4096)
def config_key_problems(key: str) -> tuple[str, ...]:
    """What is wrong with a key of a ConfigMap or Secret."""
    problems = [_TOO_MANY_CHARACTERS] if len(key) > 253 else []
    if not _CONFIG_KEY_RE.match(key):
        problems.append(CONFIG_KEY_RULE)
    if key in (".", ".."):
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return tuple(problems)


def path_segment_problems(value: str) -> list[str]:
    """What is wrong with a name in a path, such as that of a role."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in value]


def name_problems(resource: Resource, name: str) -> list[str]:
    """What is wrong with the name of an object."""
    if resource.group == "rbac.authorization.k8s.io":
        return path_segment_problems(name)
    if resource.kind == "Namespace":
        return label_name_problems(name)
    return subdomain_problems(name)


def metadata_causes(resource: Resource, meta: Obj) -> list[Cause]:
    """Field errors of metadata."""
    name = meta.get("name") or ""
    causes = []
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        causes += [invalid_value("metadata.name", name, problem) for problem in name_problems(resource, name)]
    causes += label_causes("metadata.labels", meta.get("labels") or {})
    causes += _annotation_causes(meta.get("annotations") or {})
    causes += _reference_causes(meta.get("ownerReferences") or [])
    for number, finalizer in enumerate(meta.get("finalizers") or []):
        causes += _finalizer_causes(resource, number, finalizer)
    return causes


def _finalizer_causes(resource: Resource, number: int, finalizer: str) -> list[Cause]:
    problems = label_key_problems(finalizer)
    if problems or resource.schema or "/" in finalizer or finalizer in STANDARD_FINALIZERS:
        return [invalid_value("metadata.finalizers", finalizer, problem) for problem in problems]
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [invalid_value(f"metadata.finalizers[{number}]", finalizer, why)]


def metadata_change_causes(new: Obj, old: Obj) -> list[Cause]:
    """Field errors of an update's metadata."""
    causes = []
    if new.get("uid", old["uid"]) != old["uid"]:
        causes.append(invalid_value("metadata.uid", new["uid"], "field is immutable"))
    added = sorted(set(new.get("finalizers") or []) - set(old.get("finalizers") or []))
    if old.get("deletionTimestamp") and added:
        listed = ", ".join(f'"{name}"' for name in added)
        why = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        causes.append(forbidden_field("metadata.finalizers", why))
    return causes


def label_causes(field: str, labels: dict[str, str]) -> list[Cause]:
    """Field errors of a map of labels."""
    causes = []
    for key, value in sorted(labels.items()):
        causes += [invalid_value(field, key, problem) for problem in label_key_problems(key)]
        causes += [invalid_value(field, value, problem) for problem in label_value_problems(value)]
    return causes


def _annotation_causes(annotations: dict[str, str]) -> list[Cause]:
    causes = []
    for key in sorted(annotations):
        problems = label_key_problems(key.lower())
        causes += [invalid_value("metadata.annotations", key, problem) for problem in problems]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        causes.append(too_long("metadata.annotations", ANNOTATIONS_LIMIT))
    return causes


def _reference_causes(references: list[Obj]) -> list[Cause]:
    causes = []
    known = set()
    controller = ""
    path = "metadata.ownerReferences"
    for reference in references:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not reference.get(field):
                causes.append(invalid_value(f"{path}.{field}", "", "must not be empty"))
        if reference.get("uid") in known:
            causes.append(duplicate(path, reference.get("uid")))
        known.add(reference.get("uid"))
        if reference.get("controller"):
            named = f"{reference.get('kind')}/{reference.get('name')}"
            if controller:
                both = f'Found "true" in references for {controller} and {named}'
                why = f"Only one reference can have Controller set to true. {both}"
                causes.append(invalid_value(path, json.dumps(references), why))
            controller = controller or named
    return causes
