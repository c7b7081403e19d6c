"""What a run of sync-copies is told, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import Struct

from jobs.copies.rules import Rule, SourceQuery
from jobs.kit.custom_resources import Broken
from jobs.kit.errors import ApiError
from jobs.kit.model import Finding, Need, ObjectKey
from jobs.kit.objects import CONFIGMAPS, SECRETS, Content, Object, Resource, decoded
from jobs.kit.runner import Document

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


class Namespace(Struct, frozen=True):
    """A namespace as far as it decides about copies."""

    name: str
    labels: Mapping[str, str]
    active: bool
    opted_out: bool


Copies = Mapping[str, Mapping[str, Object]]  # by name, then by namespace: all copies of a source share one name


@dataclass(frozen=True)
class Seen:
    """What was read. A type missing in `copies`, or a query missing in `sources`, could not be read: see `failures`."""

    rules: tuple[Rule, ...]
    namespaces: tuple[Namespace, ...]
    sources: Mapping[SourceQuery, tuple[Object, ...]]
    copies: Mapping[str, Copies]
    broken: tuple[Broken, ...] = ()
    failures: tuple[Finding, ...] = ()
    looks: Mapping[ObjectKey, Object | ApiError] = field(default_factory=dict)

    def looked_up(self, documents: Mapping[Need, Document], _pages: Mapping[str, Page]) -> Seen:
        """Return the same, knowing `documents` too; a later reading of an object replaces an earlier one."""
        contents: dict[bytes, Content] = {}
        looks = {
            need.key: document.error or decoded(document.body, contents, full=need.full)
            for need, document in documents.items()
        }
        return replace(self, looks={**self.looks, **looks})
