"""What a run of sync-copies is told, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
from msgspec import Struct

from jobs.copies.rules import BrokenRule, Rule, SourceQuery
from jobs.kit import stamps
from jobs.kit.errors import ApiError
from jobs.kit.model import Finding, Need, ObjectKey
from jobs.kit.objects import CONFIGMAPS, SECRETS, Content, DataObject, Header, PartialObject, Resource, header
from jobs.kit.runner import Document

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


class Object(Struct, frozen=True):
    """A source, or an object at the place of a copy. `content` is None where only metadata was read."""

    header: Header
    content: Content | None = None


Copies = Mapping[str, Mapping[str, Object]]  # by name, then by namespace: all copies of a source share one name


@dataclass(frozen=True)
class Seen:
    """What was read. A type missing in `copies`, or a query missing in `sources`, could not be read: see `failures`."""

    rules: tuple[Rule, ...]
    namespaces: tuple[Namespace, ...]
    sources: Mapping[SourceQuery, tuple[Object, ...]]
    copies: Mapping[str, Copies]
    broken: tuple[BrokenRule, ...] = ()
    failures: tuple[Finding, ...] = ()
    looks: Mapping[ObjectKey, Object | ApiError] = field(default_factory=dict)

    def looked_up(self, documents: Mapping[Need, Document]) -> Seen:
        """Return the same, knowing `documents` too; a later reading of an object replaces an earlier one."""
        contents: dict[bytes, Content] = {}
        looks = {
            need.key: document.error or _decoded(need, document.body, contents) for need, document in documents.items()
        }
        return replace(self, looks={**self.looks, **looks})


def reduced(read: DataObject | PartialObject, contents: dict[bytes, Content]) -> Object:
    """Return an object as it came, reduced; what it holds is shared with all that hold the same, by `contents`."""
    if isinstance(read, PartialObject):
        return Object(header(read.metadata, stamps.MANAGER))
    content = read.content
    return Object(header(read.metadata, stamps.MANAGER), contents.setdefault(content.canonical(), content))


def _decoded(need: Need, body: bytes, contents: dict[bytes, Content]) -> Object:
    item: type[DataObject] | type[PartialObject] = DataObject if need.full else PartialObject
    return reduced(msgspec.json.decode(body, type=item), contents)
