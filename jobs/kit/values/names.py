"""The syntax of names, and the names of objects that jobs read in their own namespace. Pure.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # a DNS label, as a regular expression
KEY_NAME = "roll-workloads-key"  # a Secret: docs/roll-workloads.md#the-key-for-fingerprints
_LABEL = re.compile(LABEL)
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_OF_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_name(text: object) -> bool:
    """Whether the API allows this name of an object of most kinds: labels of any length, with dots between them."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether the API allows this name of a Namespace: a DNS label, without dots."""
    return _LABEL.fullmatch(text) is not None


def key_problems(key: str, path: str) -> Iterator[str]:
    """Yield the problems of the key of a label, annotation or taint."""
    prefix, slash, name = key.rpartition("/")
    if not _OF_LABEL.fullmatch(name) or (slash and not is_name(prefix)):
        yield f"{path}: {key!r} is not a valid key; use at most 63 of A-Z a-z 0-9 - _ . after an optional PREFIX/"


def value_problems(value: str, path: str) -> Iterator[str]:
    """Yield the problems of the value of a label or taint."""
    if value and not _OF_LABEL.fullmatch(value):
        remedy = "use at most 63 of A-Z a-z 0-9 - _ . and begin and end with a letter or digit"
        yield f"{path}: {value!r} is not a valid label value; {remedy}"
