"""What --explain prints: one row for each rule or workload, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jobs.kit.values.errors import ConfigurationError


class Row(NamedTuple):
    """One line: its cells, why, and further lines. `document` is the same for -o json."""

    cells: tuple[str, ...]
    reason: str
    document: Mapping[str, Any]
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The rows of a namespace, with the names of their columns, and a summary."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    summary: str


def does_not_exist(namespace: str, names: Collection[str]) -> ConfigurationError:
    """Return the error that there is no such namespace, with the names that are close to it."""
    from difflib import get_close_matches  # only for a wrong name

    close = get_close_matches(namespace, sorted(names), n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "check --explain"
    return ConfigurationError(f"namespace {namespace} does not exist; {hint}")
