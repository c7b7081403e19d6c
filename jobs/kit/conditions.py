"""Conditions of custom resources: when one changes, and what is then written and told. Pure.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from jobs.kit.model import ObjectKey
from jobs.kit.text import visible

# The schema takes 32768; nobody reads that much in a table.
LONGEST_MESSAGE = 2048
_LONGEST_EVENT = 1024  # as client-go's recorder cuts it


class Condition(Struct, frozen=True, rename="camel"):
    """A metav1.Condition."""

    type: str
    status: str
    reason: str
    message: str
    observed_generation: int = 0
    last_transition_time: str = ""


@dataclass(frozen=True)
class StatusUpdate:
    """What a custom resource's status should say, and an Event to go with it, if its condition changed.

    Of an object that is not ours the status is not either: it is None, and there is the Event alone.
    """

    key: ObjectKey
    uid: str
    status: Mapping[str, Any] | None
    event: Mapping[str, Any] | None = None

    def encode(self) -> bytes:
        """Return the merge patch of the status; with the uid it cannot reach a resource made anew meanwhile."""
        return msgspec.json.encode({"metadata": {"uid": self.uid}, "status": self.status})


def new_condition(kind: str, status: str, reason: str, message: str, generation: int = 0) -> Condition:
    """Return a condition whose message may hold text from outside: it is escaped, and cut to `LONGEST_MESSAGE`."""
    return Condition(kind, status, reason, visible(message)[:LONGEST_MESSAGE], generation)


def changed(before: Sequence[Condition], now: Condition) -> bool:
    """Whether `now` says something else than the condition of its type among `before`."""
    return next((c for c in before if c.type == now.type), None) != now


def dated(before: Sequence[Condition], new: Condition, now: datetime) -> Condition:
    """Return `new` with the time at which its status last changed: an unchanged condition keeps its own."""
    old = next((condition for condition in before if condition.type == new.type), None)
    time = old.last_transition_time if old and old.status == new.status else f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return msgspec.structs.replace(new, last_transition_time=time)


def event(about: ObjectKey, api_version: str, uid: str, condition: Condition, now: datetime) -> dict[str, Any]:
    """Return the Event that tells a condition's change.

    https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
    """
    time = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    involved = {"apiVersion": api_version, "kind": about.kind, "namespace": about.namespace, "name": about.name}
    # As client-go names them, in the order of time and short enough for any name; and another one for each object: a
    # Deployment and a StatefulSet may share theirs. The same again if the answer was lost.
    digest = hashlib.sha256(f"{about.kind} {about.name} {uid} {condition.reason}".encode()).hexdigest()[:8]
    name = f"{about.name[:200].rstrip('-.')}.{int(now.timestamp() * 1e9):x}-{digest}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about.namespace or "default"},
        "involvedObject": {**involved, "uid": uid},
        "type": "Normal" if condition.status == "True" else "Warning",
        "reason": condition.reason,
        "message": condition.message[:_LONGEST_EVENT],
        "source": {"component": "kube-chores"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
