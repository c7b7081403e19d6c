"""The baseline: an annotation of a workload that records the config its pods started with. Pure.

It is an annotation of the workload itself, where a change does not start a rollout. A roll changes the baseline and an
annotation of the pod template in one write. A run cannot compare with a baseline of another version, of other
references, or computed with another key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from jobs.kit.values.decoding import decode
from jobs.kit.values.errors import InvalidObjectError

ROLL_OPT_IN = "kubechores.dev/roll-on-config-change"
BASELINE = "kubechores.dev/config-baseline"
ROLL_ID = "kubechores.dev/config"  # on the pod template
_VERSION = 1
# For workloads with Secrets. A release without keys would compare fingerprints that it computes without a key.
_KEYED_VERSION = 2


class Baseline(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fingerprints by reference, the uid of the workload, and the time of its last roll by this job.

    `key` is the id of the key for fingerprints of Secrets; empty if the workload uses no Secrets. `early` is the number
    of consecutive rolls, up to the last one, that replaced a stuck rollout.
    """

    version: int
    uid: str
    sources: Mapping[str, str]
    key: str = ""
    rolled_at: Annotated[datetime, Meta(tz=True)] | None = None
    early: Annotated[int, Meta(ge=0)] = 0

    def encode(self) -> str:
        """Return the value of the annotation; equal baselines have equal values."""
        return msgspec.json.encode(self, order="sorted").decode()

    def changed(self, now: Mapping[str, str]) -> list[str]:
        """Return the references whose fingerprint differs `now`; both have the same references."""
        return [name for name in sorted(now) if self.sources.get(name) != now[name]]


def create(
    uid: str, sources: Mapping[str, str], key: str, rolled_at: datetime | None = None, early: int = 0
) -> Baseline:
    """Return a baseline of the current version; `rolled_at` is truncated to seconds."""
    version = _KEYED_VERSION if key else _VERSION
    return Baseline(version, uid, sources, key, rolled_at.replace(microsecond=0) if rolled_at else None, early)


def parse(text: str, uid: str) -> Baseline | None:
    """Return the baseline from the annotation of a workload.

    None if it is not valid, its version is unknown, or its uid is that of another workload: the workload was copied or
    restored.
    """
    try:
        found = decode(text, Baseline)
    except InvalidObjectError:
        return None
    return found if found.version in (_VERSION, _KEYED_VERSION) and found.uid == uid else None


def next_roll_id(before: str, after: Baseline) -> str:
    """Return the next value of the pod template's annotation, which always differs from the one `before`.

    It depends on `before`, because `kubectl rollout undo` restores old values.
    """
    return hashlib.sha256(f"{before}\n{after.encode()}".encode()).hexdigest()[:32]
