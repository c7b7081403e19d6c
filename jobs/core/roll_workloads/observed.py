"""The settings of a run of roll-workloads, and what it read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from jobs.core.roll_workloads.key import Key, read
from jobs.core.roll_workloads.opt_in import OptIn
from jobs.core.roll_workloads.sources import Source, source
from jobs.core.roll_workloads.workloads import KINDS, Workload, workload
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Finding, Need, ObjectKey, RunOptions
from jobs.kit.values.reads import Page, ReadResult
from jobs.kit.values.resources import SECRETS

NAME = "roll-workloads"
SETTLE_SECONDS = 30
COOL_DOWN_SECONDS = 600
MAX_ROLLS = 10
_WORKLOADS = {resource.kind for resource in KINDS}


@dataclass(frozen=True)
class Settings:
    """The settings of one run. An empty `namespace` means all namespaces.

    `key_secret` is the Secret with the key for fingerprints; None: not set. `new_key` is written to it if it is empty.
    """

    namespace: str = ""
    settle: timedelta = timedelta()
    cool_down: timedelta = timedelta()
    max_rolls: int = 1
    key_secret: ObjectKey | None = None
    new_key: str = field(default="", repr=False)
    run: RunOptions = field(default_factory=RunOptions)


@dataclass(frozen=True)
class Observed:
    """What was read.

    `opted_in` are the workloads that opted in, in active namespaces. `workloads` are those that were read, `sources`
    the ConfigMaps and Secrets that they use; None: the object does not exist. `key` is the key for fingerprints of
    Secrets, or why there is none. It is None until a run reads `key_secret`, which it does before any other Secret.
    `new_key` is written there if the Secret is empty. `namespaces` are the active namespaces that opted in. `listed`
    are the workloads to explain, whether or not they opted in. `used_keys` are the keys that `workloads` name, by
    ConfigMap or Secret, once a source was read.
    """

    opted_in: tuple[ObjectKey, ...]
    failures: tuple[Finding, ...] = ()
    key_secret: ObjectKey | None = None
    new_key: str = field(default="", repr=False)
    key: Key | ApiError | None = None
    workloads: Mapping[ObjectKey, Workload | ApiError | None] = field(default_factory=dict)
    sources: Mapping[ObjectKey, Source | ApiError | None] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    listed: tuple[OptIn, ...] = ()
    used_keys: Mapping[ObjectKey, frozenset[str]] = field(default_factory=dict)

    def with_documents(self, documents: Mapping[Need, ReadResult], _pages: Mapping[str, Page]) -> Observed:
        """Return a copy that includes these `documents`.

        If a workload is read again, its sources are read again too: it was rolled meanwhile, and its config may be
        newer than the one that was read before.
        """
        workloads: dict[ObjectKey, Workload | ApiError | None] = {}
        sources: dict[ObjectKey, Source | ApiError | None] = {}
        has_sources = any(need.key.kind not in _WORKLOADS for need in documents)
        used = (self.used_keys or self._used_keys()) if has_sources else {}
        key = self._key(documents)
        for need, document in documents.items():
            if need.key.kind in _WORKLOADS:
                workloads[need.key] = document.reduced_if_exists(partial(workload, need.key))
            elif need.key != self.key_secret or (need.key in used and isinstance(key, Key)):
                keys = used.get(need.key, frozenset())
                sources[need.key] = document.reduced_if_exists(partial(source, need.key.kind, keys, key=key))
        stale = {each.namespace for each in workloads}
        kept = {each: found for each, found in self.sources.items() if each.namespace not in stale}
        if not _is_same(key, self.key):
            kept = {each: found for each, found in kept.items() if each.kind != SECRETS.kind}
        return replace(
            self,
            key=key,
            workloads={**self.workloads, **workloads},
            sources={**kept, **sources},
            used_keys={} if workloads else used,  # the next batch of sources needs them too
        )

    def _key(self, documents: Mapping[Need, ReadResult]) -> Key | ApiError | None:
        """Return the key from these documents, or the one that was read before."""
        for need, document in documents.items():
            if need.key == self.key_secret:
                return read(need.key, document.body, document.error, self.new_key)
        return self.key

    def _used_keys(self) -> Mapping[ObjectKey, frozenset[str]]:
        """Return the keys that workloads name, by ConfigMap or Secret; all workloads that use it are merged."""
        found: dict[ObjectKey, frozenset[str]] = {}
        for each in self.workloads.values():
            if not isinstance(each, Workload):
                continue
            for reference in each.references:
                key = ObjectKey(reference.kind, reference.name, each.key.namespace)
                found[key] = found.get(key, frozenset()).union(reference.named_keys)
        return found


def _is_same(one: Key | ApiError | None, other: Key | ApiError | None) -> bool:
    """Return whether both keys give the same digests, also if one was written meanwhile."""
    if isinstance(one, Key) and isinstance(other, Key):
        return one.value == other.value
    return one is other
