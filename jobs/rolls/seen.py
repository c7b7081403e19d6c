"""What a run of roll-workloads is told, and what it saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from jobs.kit.errors import ApiError
from jobs.kit.model import Finding, Need, ObjectKey
from jobs.kit.runner import Document
from jobs.kit.web import Page
from jobs.rolls.sources import Source, source
from jobs.rolls.workloads import KINDS, Workload, workload

NAME = "roll-workloads"
Reduced = TypeVar("Reduced")
_WORKLOADS = {resource.kind for resource in KINDS}


@dataclass(frozen=True)
class Settings:
    """What one run is told. `namespace` empty is all of them."""

    namespace: str = ""
    settle: timedelta = timedelta()
    cool_down: timedelta = timedelta()
    max_rolls: int = 1
    diff: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Seen:
    """What was read.

    `opted_in` are the workloads that ask for it, in active namespaces; what was read of them is in `workloads`, what
    they use in `sources`. None is one that is not there.
    """

    opted_in: tuple[ObjectKey, ...]
    failures: tuple[Finding, ...] = ()
    workloads: Mapping[ObjectKey, Workload | ApiError | None] = field(default_factory=dict)
    sources: Mapping[ObjectKey, Source | ApiError | None] = field(default_factory=dict)

    def looked_up(self, documents: Mapping[Need, Document], _pages: Mapping[str, Page]) -> Seen:
        """Return the same, knowing these `documents` too.

        Of a workload that is read again what it uses is read again as well: somebody rolled it meanwhile, for a config
        that may be newer than the one that was read before.
        """
        workloads: dict[ObjectKey, Workload | ApiError | None] = {}
        sources: dict[ObjectKey, Source | ApiError | None] = {}
        used = self._used_keys()
        for need, document in documents.items():
            if need.key.kind in _WORKLOADS:
                workloads[need.key] = _read(document, partial(workload, need.key))
            else:
                sources[need.key] = _read(document, partial(source, need.key.kind, used.get(need.key, frozenset())))
        stale = {key.namespace for key in workloads}
        kept = {key: each for key, each in self.sources.items() if key.namespace not in stale}
        return replace(self, workloads={**self.workloads, **workloads}, sources={**kept, **sources})

    def _used_keys(self) -> Mapping[ObjectKey, frozenset[str]]:
        """Return the keys that workloads name, by ConfigMap or Secret."""
        found: dict[ObjectKey, frozenset[str]] = {}
        for each in self.workloads.values():
            if not isinstance(each, Workload):
                continue
            for reference in each.references:
                key = ObjectKey(reference.kind, reference.name, each.key.namespace)
                found[key] = found.get(key, frozenset()).union(reference.named_keys)
        return found


def _read(document: Document, reduced: Callable[[bytes], Reduced]) -> Reduced | ApiError | None:
    """Return what is kept, None for what is not there, the error for what cannot be read: these are never the same."""
    found = document.reduced(reduced)
    return None if isinstance(found, ApiError) and found.status == 404 else found
