"""What a run of sync-copies is told, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from jobs.copies.rules import Rule, SourceQuery
from jobs.kit.cluster import InvalidObject
from jobs.kit.custom_resources import Invalid
from jobs.kit.errors import ApiError
from jobs.kit.model import Finding, Need, ObjectKey
from jobs.kit.objects import CONFIGMAPS, SECRETS, ObjectReducer, ReducedObject, Resource
from jobs.kit.runner import ReadResult

if TYPE_CHECKING:
    from jobs.kit.web import Page

NAME = "sync-copies"
KINDS: Mapping[str, Resource] = {"configmap": CONFIGMAPS, "secret": SECRETS}


@dataclass(frozen=True)
class Settings:
    """What one run is told. `rules` are those of files; None means those of the cluster."""

    namespace: str
    rule_name: str | None = None
    rules: tuple[Rule, ...] | None = None
    verify_content: bool = False
    dry_run: bool = False
    diff: bool = False
    verbose: bool = False
    max_deletes: int | None = None


class Namespace(Struct, frozen=True):
    """A namespace as far as it decides about copies."""

    name: str
    labels: Mapping[str, str]
    active: bool
    opted_out: bool
    opted_in: bool = False

    @property
    def is_system(self) -> bool:
        """Whether it is one of Kubernetes' own, which receive copies only where they are named and opted in."""
        return self.name.startswith("kube-")

    @property
    def is_closed(self) -> bool:
        """Whether it receives no copies, though a rule names it."""
        return self.is_system and not self.opted_in


# By name, then by namespace: all copies of a source share one name. An error is why one cannot be decoded.
Copies = Mapping[str, Mapping[str, ReducedObject | ApiError]]


@dataclass(frozen=True)
class Observed:
    """What was read. A type missing in `copies`, or a query missing in `sources`, could not be read: see `failures`.

    `reducer` reduces objects that are looked up.
    """

    rules: tuple[Rule, ...]
    namespaces: tuple[Namespace, ...]
    sources: Mapping[SourceQuery, tuple[ReducedObject | InvalidObject, ...]]
    copies: Mapping[str, Copies]
    invalid_rules: tuple[Invalid, ...] = ()
    failures: tuple[Finding, ...] = ()
    looks: Mapping[ObjectKey, ReducedObject | ApiError] = field(default_factory=dict)
    reducer: ObjectReducer = field(default_factory=lambda: ObjectReducer(None))

    def with_documents(self, documents: Mapping[Need, ReadResult], _pages: Mapping[str, Page]) -> Observed:
        """Return the same, knowing `documents` too; a later reading of an object replaces an earlier one."""
        looks = {
            need.key: document.reduced(partial(self.reducer.decode, full=need.full))
            for need, document in documents.items()
        }
        return replace(self, looks={**self.looks, **looks})
