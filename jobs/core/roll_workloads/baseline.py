"""The baseline: an annotation of a workload that records the config its pods started with, and its write. Pure.

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
from msgspec import Meta, Struct, field

from jobs.kit.values.decoding import decode
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import Body

ROLL_OPT_IN = "kubechores.dev/roll-on-config-change"
BASELINE = "kubechores.dev/config-baseline"
ROLL_ID = "kubechores.dev/config"  # on the pod template
TEMPLATE_FIELD = f"spec.template.metadata.annotations[{ROLL_ID}]"
_VERSION = 1
# For workloads with Secrets. A release without keys would compare fingerprints that it computes without a key.
_KEYED_VERSION = 2


class Baseline(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fingerprints by reference, the uid of the workload, and the time of its last roll by this job.

    `key` is the id of the key for fingerprints of Secrets; empty if the workload uses no Secrets. `early` is the number
    of consecutive rolls, up to the last one, that replaced a stuck rollout. The last roll made the
    pod template with the digest `template` and the `generation`: a workload with that template runs, or starts, its
    pods.
    """

    version: int
    uid: str
    sources: Mapping[str, str]
    key: str = ""
    rolled_at: Annotated[datetime, Meta(tz=True)] | None = None
    early: Annotated[int, Meta(ge=0)] = 0
    template: str = ""
    generation: int = 0

    def encode(self) -> str:
        """Return the value of the annotation; equal baselines have equal values."""
        return msgspec.json.encode(self, order="sorted").decode()

    def changed(self, now: Mapping[str, str]) -> list[str]:
        """Return the references whose fingerprint differs `now`; both have the same references."""
        return [name for name in sorted(now) if self.sources.get(name) != now[name]]


def create(
    uid: str,
    sources: Mapping[str, str],
    key: str,
    rolled_at: datetime | None = None,
    early: int = 0,
    template: str = "",
    generation: int = 0,
) -> Baseline:
    """Return a baseline of the current version; `rolled_at` is truncated to seconds."""
    version = _KEYED_VERSION if key else _VERSION
    whole = rolled_at.replace(microsecond=0) if rolled_at else None
    return Baseline(version, uid, sources, key, whole, early, template, generation)


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


class BaselinePatch(Body, frozen=True, gc=False):
    """The merge patch of exactly one version of a workload: a baseline, and with a `roll_id` a rolling restart.

    `last_roll` is not sent: it is the time of the workload's previous roll, as text.
    """

    uid: str
    resource_version: str
    baseline: str
    roll_id: str = ""
    last_roll: str = ""

    def encode(self) -> bytes:
        """Return the patch as JSON."""
        metadata = {"uid": self.uid, "resourceVersion": self.resource_version, "annotations": {BASELINE: self.baseline}}
        template = {"template": {"metadata": {"annotations": {ROLL_ID: self.roll_id}}}}
        return msgspec.json.encode({"metadata": metadata, **({"spec": template} if self.roll_id else {})})

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the annotations whose values in the response differ from those that were sent."""
        kept = decode(answer, _Annotations)
        found = kept.metadata.annotations.get(BASELINE) == self.baseline
        rolled = not self.roll_id or kept.spec.template.metadata.annotations.get(ROLL_ID) == self.roll_id
        lost = {f"metadata.annotations[{BASELINE}]": not found, TEMPLATE_FIELD: not rolled}
        return tuple(name for name, is_lost in lost.items() if is_lost)

    def fits_without_others(self) -> bool:
        """Return True: the annotations of a patch are always within the API server's limit."""
        return True


class _Metadata(Struct):
    annotations: dict[str, str] = field(default_factory=dict)


class _Template(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)


class _Spec(Struct):
    template: _Template


class _Annotations(Struct):
    """The fields of the response to a BaselinePatch that the patch can change."""

    metadata: _Metadata
    spec: _Spec
