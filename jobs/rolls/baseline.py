"""The baseline: with what config the pods of a workload run, as an annotation of the workload itself. Pure.

It is on the workload's own metadata, where it rolls nothing; a roll changes it and an annotation of the pod template in
one write. It has a version and names what it was made of: a baseline of another version, of other references, or made
with another key, says nothing of what changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from jobs.kit.decoding import decode
from jobs.kit.errors import InvalidObjectError

OPT_IN = "kubechores.dev/roll-on-config-change"
BASELINE = "kubechores.dev/config-baseline"
ROLLED = "kubechores.dev/config"  # on the pod template
_VERSION = 1
# A release that knows no key would compare fingerprints that it makes without.
_KEYED_VERSION = 2


class Baseline(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fingerprints by reference, the uid of the workload that they are of, and when this job last rolled that.

    `key` is the id of the key of the fingerprints of Secrets; empty where the workload uses none. `early` is how many
    rolls up to the last one replaced a rollout that was blocked.
    """

    version: int
    uid: str
    sources: Mapping[str, str]
    key: str = ""
    rolled_at: Annotated[datetime, Meta(tz=True)] | None = None
    early: Annotated[int, Meta(ge=0)] = 0

    def encode(self) -> str:
        """Return the annotation's value, always the same for the same baseline."""
        return msgspec.json.encode(self, order="sorted").decode()

    def changed(self, now: Mapping[str, str]) -> list[str]:
        """Return which of the same references have another fingerprint now."""
        return [name for name in sorted(now) if self.sources.get(name) != now[name]]


def of(uid: str, sources: Mapping[str, str], key: str, rolled_at: datetime | None = None, early: int = 0) -> Baseline:
    """Return a baseline of today's version; times have whole seconds."""
    version = _KEYED_VERSION if key else _VERSION
    return Baseline(version, uid, sources, key, rolled_at.replace(microsecond=0) if rolled_at else None, early)


def parse(text: str, uid: str) -> Baseline | None:
    """Return the baseline that an annotation of a workload holds.

    None if it is of an unknown version, or came along when the workload was copied or restored.
    """
    try:
        found = decode(text, Baseline)
    except InvalidObjectError:
        return None
    return found if found.version in (_VERSION, _KEYED_VERSION) and found.uid == uid else None


def template_mark(before: str, after: Baseline) -> str:
    """Return the next value of the pod template's annotation.

    It hangs on the one `before`, so it is another one whatever that is: `kubectl rollout undo` brings old ones back.
    """
    return hashlib.sha256(f"{before}\n{after.encode()}".encode()).hexdigest()[:32]
