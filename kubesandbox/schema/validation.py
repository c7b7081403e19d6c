"""Names, labels, annotations and metadata, validated in the server's words.

Source of rules and wording: k8s.io/apimachinery/pkg/util/validation and pkg/api/validation.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from .causes import Cause, duplicate, forbidden_field, invalid_value, required, too_long
from .resources import RBAC, Resource

Obj = dict[str, Any]

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = rf"({_QUALIFIED})?"
_CONFIG_KEY = r"[-._a-zA-Z0-9]+"

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
_TOO_MANY_BYTES = "must be no more than 63 bytes"


def subdomain_problems(value: str) -> list[str]:
    """What is wrong with a DNS subdomain."""
    problems = [_TOO_MANY_CHARACTERS] if len(value) > 253 else []
    return problems if re.fullmatch(_SUBDOMAIN, value) else [*problems, SUBDOMAIN_RULE]


def label_name_problems(value: str) -> list[str]:
    """What is wrong with a DNS label."""
    problems = ["must be no more than 63 characters"] if len(value) > 63 else []
    if re.fullmatch(_LABEL, value):
        return problems
    return [*problems, "must not contain dots" if re.fullmatch(_SUBDOMAIN, value) else LABEL_RULE]


@lru_cache(maxsize=4096)
def label_key_problems(key: str) -> tuple[str, ...]:
    """What is wrong with the key of a label."""
    prefix, slash, name = key.rpartition("/")
    if prefix.count("/"):
        example = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a valid label key {QUALIFIED_RULE}{example}",)
    problems = []
    if slash:
        wrong = subdomain_problems(prefix) if prefix else ["must be non-empty"]
        problems += [f"prefix part {problem}" for problem in wrong]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part " + _TOO_MANY_BYTES)
    if not re.fullmatch(_QUALIFIED, name):
        problems.append("name part " + QUALIFIED_RULE)
    return tuple(problems)


@lru_cache(maxsize=4096)
def label_value_problems(value: str) -> tuple[str, ...]:
    """What is wrong with the value of a label."""
    problems = [_TOO_MANY_BYTES] if len(value) > 63 else []
    return tuple(problems if re.fullmatch(_VALUE, value) else [*problems, VALUE_RULE])


@lru_cache(maxsize=4096)
def config_key_problems(key: str) -> tuple[str, ...]:
    """What is wrong with a key of a ConfigMap or Secret."""
    problems = [_TOO_MANY_CHARACTERS] if len(key) > 253 else []
    if not re.fullmatch(_CONFIG_KEY, key):
        problems.append(CONFIG_KEY_RULE)
    if key in (".", ".."):
        problems.append(f"must not be '{key}'")
    elif key.startswith(".."):
        problems.append("must not start with '..'")
    return tuple(problems)


def name_problems(resource: Resource, name: str) -> list[str]:
    """What is wrong with the name of an object."""
    if resource.group == RBAC:
        return (
            [f"may not be '{name}'"] if name in (".", "..") else [f"may not contain '{c}'" for c in "/%" if c in name]
        )
    return label_name_problems(name) if resource.kind == "Namespace" else subdomain_problems(name)


def metadata_causes(resource: Resource, meta: Obj) -> list[Cause]:
    """Field errors of metadata."""
    name = meta.get("name") or ""
    causes = [invalid_value("metadata.name", name, problem) for problem in name_problems(resource, name)]
    if not name:
        causes = [required("metadata.name", "name or generateName is required")]
    for key, value in sorted((meta.get("labels") or {}).items()):
        causes += [invalid_value("metadata.labels", key, problem) for problem in label_key_problems(key)]
        causes += [invalid_value("metadata.labels", value, problem) for problem in label_value_problems(value)]
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


def _annotation_causes(annotations: dict[str, str]) -> list[Cause]:
    path = "metadata.annotations"
    causes = [invalid_value(path, key, why) for key in sorted(annotations) for why in label_key_problems(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        causes.append(too_long(path, ANNOTATIONS_LIMIT))
    return causes


def _reference_causes(references: list[Obj]) -> list[Cause]:
    path = "metadata.ownerReferences"
    causes = []
    uids = set()
    controllers: list[str] = []
    for reference in references:
        missing = [field for field in ("apiVersion", "kind", "name", "uid") if not reference.get(field)]
        causes += [invalid_value(f"{path}.{field}", "", "must not be empty") for field in missing]
        uid = reference.get("uid")
        if uid in uids:
            causes.append(duplicate(path, uid))
        uids.add(uid)
        if reference.get("controller"):
            controllers.append(f"{reference.get('kind')}/{reference.get('name')}")
            if len(controllers) > 1:
                both = f'Found "true" in references for {controllers[0]} and {controllers[-1]}'
                why = f"Only one reference can have Controller set to true. {both}"
                causes.append(invalid_value(path, json.dumps(references), why))
    return causes
