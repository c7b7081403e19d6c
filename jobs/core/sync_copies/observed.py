"""The settings of a run of sync-copies, and what it observed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from jobs.core.sync_copies.kinds import LAYOUTS
from jobs.core.sync_copies.rules import Rule, SourceQuery
from jobs.kit.data.objects import ObjectReducer, ReducedObject
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Dependency, Finding, ObjectKey, RunOptions, Severity
from jobs.kit.values.reads import Download, Invalid, ReadResult

NAME = "sync-copies"
OPT_IN = "kubechores.dev/copies"


class Settings(Struct, frozen=True):
    """The settings of one run. `rules` come from files; None means the rules of the cluster.

    `clusters` is a glob of the other clusters to copy to; empty: this cluster. `forgotten` is the name of one whose
    copies are deleted.
    """

    namespace: str
    rule_name: str | None = None
    rules: tuple[Rule, ...] | None = None
    verify_content: bool = False
    run: RunOptions = field(default_factory=RunOptions)
    max_deletes: int | None = None
    clusters: str = ""
    forgotten: str = ""

    def applies(self, *rules: str) -> bool:
        """Whether the run applies one of these rules, or all rules."""
        return self.rule_name is None or self.rule_name in rules


class Namespace(Struct, frozen=True):
    """A namespace, reduced to what decides about copies. It has its `uid` if a rule names it as a source namespace.

    Any case of "false" opts out. Only "true" opts in, as in the admission policy. `invalid_choice` is the start of the
    value of its annotation if that is neither of both; None: it is valid.
    """

    name: str
    labels: Mapping[str, str]
    active: bool
    opted_out: bool
    opted_in: bool = False
    invalid_choice: str | None = None
    uid: str = ""

    @property
    def is_system(self) -> bool:
        """Whether its name begins with kube-: it receives copies only if a rule names it and it opted in."""
        return self.name.startswith("kube-")

    @property
    def is_closed(self) -> bool:
        """Whether it receives no copies, even if a rule names it."""
        return self.is_system and not self.opted_in


# A finding: the source exists, and is not copied. Its code is `skipped` (never copied), `refused` (not as its rule
# requires, so copies of it stay as they are) or `unreadable`.
Source: TypeAlias = ReducedObject | Finding


def refused(key: ObjectKey, reason: str) -> Finding:
    """Return the finding of a source that exists and cannot be copied as its rule requires."""
    return Finding("refused", Severity.WARNING, key, reason)


# By name, then by namespace: all copies of a source have the same name. An ApiError: the copy cannot be decoded.
Copies = Mapping[str, Mapping[str, ReducedObject | ApiError]]


class Observed(Struct, frozen=True):
    """What was read. A type missing in `copies`, or a query missing in `sources`, could not be read: see `failures`.

    `single_reads` are objects that were read one by one after the lists, reduced by `reducer`. None: it does not exist.
    `rules_elsewhere` are other namespaces with rules, if there are none in the namespace of the run. `accounts` are the
    ServiceAccounts that rules with attachTo name, or that have names of this job; a Finding: they cannot be read.

    `notes` are findings that prevent nothing. `hub` is the uid of the cluster with the rules and sources, if that is
    another one; empty: it is this one. Then `of_sources` are the source namespaces there; None: they are among
    `namespaces`. `orphans` is spec.orphans of all rules, by NAMESPACE/NAME: also of those that are not among `rules`,
    because they are about other clusters. A plan with more than `most_findings` fails: it would take too much memory.
    """

    rules: tuple[Rule, ...]
    namespaces: tuple[Namespace, ...]
    sources: Mapping[SourceQuery, tuple[Source, ...]]
    copies: Mapping[str, Copies]
    invalid_rules: tuple[Invalid, ...] = ()
    failures: tuple[Finding, ...] = ()
    single_reads: Mapping[ObjectKey, ReducedObject | ApiError | None] = field(default_factory=dict)
    reducer: ObjectReducer = field(default_factory=lambda: ObjectReducer(None))
    rules_elsewhere: tuple[str, ...] = ()
    accounts: tuple[ReducedObject | Finding, ...] = ()
    hub: str = ""
    of_sources: tuple[Namespace, ...] | None = None
    notes: tuple[Finding, ...] = ()
    orphans: Mapping[str, str] = field(default_factory=dict)
    most_findings: int = sys.maxsize

    @property
    def source_namespaces(self) -> tuple[Namespace, ...]:
        """The namespaces of the cluster with the sources."""
        return self.namespaces if self.of_sources is None else self.of_sources

    def with_documents(
        self, documents: Mapping[Dependency, ReadResult], _downloads: Mapping[str, Download]
    ) -> Observed:
        """Return a copy with `documents` added; a later read of an object replaces an earlier one."""
        return replace(self, single_reads={**self.single_reads, **self.reducer.decode_reads(documents, LAYOUTS)})
