"""Conditions of custom resources, and the Events that report a changed condition. Pure.

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

from jobs.kit.values.model import ObjectKey
from jobs.kit.values.text import visible

# The API allows 32768; a table column needs less.
LONGEST_MESSAGE = 2048
_LONGEST_EVENT = 1024  # as in client-go's recorder


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
    """The status to write to a custom resource, and an Event if its condition changed.

    `status` is None for an object of another API, such as a Deployment: it only gets the Event.
    """

    key: ObjectKey
    uid: str
    status: Mapping[str, Any] | None
    event: Mapping[str, Any] | None = None

    def encode(self) -> bytes:
        """Return the merge patch of the status. With the uid, the API server refuses it for a recreated resource."""
        return msgspec.json.encode({"metadata": {"uid": self.uid}, "status": self.status})


def new_condition(kind: str, status: str, reason: str, message: str, generation: int = 0) -> Condition:
    """Return a condition with its message escaped and cut to `LONGEST_MESSAGE`: it may quote other clients."""
    return Condition(kind, status, reason, visible(message)[:LONGEST_MESSAGE], generation)


def changed(before: Sequence[Condition], now: Condition) -> bool:
    """Whether `now` differs from the condition of its type in `before`, or is new."""
    return next((c for c in before if c.type == now.type), None) != now


def dated(before: Sequence[Condition], new: Condition, now: datetime) -> Condition:
    """Return `new` with its lastTransitionTime: the old one unless the condition's status changed."""
    old = next((condition for condition in before if condition.type == new.type), None)
    time = old.last_transition_time if old and old.status == new.status else f"{now:%Y-%m-%dT%H:%M:%SZ}"
    return msgspec.structs.replace(new, last_transition_time=time)


def event(about: ObjectKey, api_version: str, uid: str, condition: Condition, now: datetime) -> dict[str, Any]:
    """Return the Event that reports a changed condition.

    https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
    """
    time = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    involved = {"apiVersion": api_version, "kind": about.kind, "namespace": about.namespace, "name": about.name}
    # As in client-go, the name contains the time, so that names sort by it, and fits the longest name of an object. The
    # digest makes the names of a Deployment and a StatefulSet of one name differ. A repeated request has the same name.
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
