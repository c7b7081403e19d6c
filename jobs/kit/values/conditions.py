"""Conditions of custom resources, and the Events that report a changed condition. Pure.

https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
from msgspec import Struct, structs

from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import Resource
from jobs.kit.values.text import visible

READY = "Ready"
# What kstatus adds to Ready=False: a later run may make the resource ready, or a person must act first. Neither exists
# if it is ready. https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
RECONCILING, STALLED = "Reconciling", "Stalled"
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

    `head` is that of the object which the run read. `status` is None for an object of another API, such as a
    Deployment: it only gets the Event.
    """

    head: Head
    status: Mapping[str, Any] | None
    event: Mapping[str, Any] | None = None

    @property
    def key(self) -> ObjectKey:
        """The object."""
        return self.head.key

    def encode(self) -> bytes:
        """Return the merge patch of the status. The API server refuses it if the resource changed or was recreated.

        Conditions are one list, and a server that was restored has another object.
        """
        metadata = {"uid": self.head.uid, "resourceVersion": self.head.version}
        return msgspec.json.encode({"metadata": metadata, "status": self.status})


def timestamp(time: datetime) -> str:
    """Return a time in UTC as metav1.Time: RFC 3339, in seconds."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def is_recent(time: str, now: datetime, limit: timedelta) -> bool:
    """Return whether a time in RFC 3339 is less than `limit` ago; not if it is not valid, or in the future."""
    try:
        then = datetime.fromisoformat(time.replace("Z", "+00:00")).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return False
    return timedelta() <= now - then < limit


def new_condition(kind: str, status: str, reason: str, message: str) -> Condition:
    """Return a condition with its message escaped and cut to `LONGEST_MESSAGE`: it may quote other clients."""
    return Condition(kind, status, reason, visible(message)[:LONGEST_MESSAGE])


def about(key: ObjectKey, resource: Resource, text: str) -> str:
    """Return the text about an object for a message; it names the object if that is not of the kind `resource`."""
    return text if key.kind == resource.kind else f"{key}: {text}"


def status_update(
    head: Head,
    resource: Resource,
    before: Any,
    ready: Condition,
    now: datetime,
    *,
    transient: Container[str],
    of_others: Collection[str] = (),
    **fields: Any,
) -> StatusUpdate | None:
    """Return the update that sets condition `ready` and `fields`, with an Event if the condition changed.

    It is condition Ready, or another one of a job that writes only a part of the status: that one, and `fields`.
    `before` is the status that an earlier run wrote, a Struct with `observed_generation`, `conditions` and `fields`.
    Returns None if the status is up to date. Conditions of other clients stay. The lastTransitionTime stays unless the
    condition's status changed. If it is not ready for a reason that is not `transient`, a person must act first. The
    fields `of_others` are those that another job writes.
    """
    old = {each.type: each for each in before.conditions}

    def stamped(condition: Condition) -> Condition:
        last = old.get(condition.type)
        time = last.last_transition_time if last and last.status == condition.status else timestamp(now)
        return structs.replace(condition, observed_generation=head.generation, last_transition_time=time)

    made, is_part = [stamped(ready)], ready.type != READY
    if ready.status != "True" and not is_part:
        is_stalled = ready.status == "False" and ready.reason not in transient
        made.append(stamped(structs.replace(ready, type=STALLED if is_stalled else RECONCILING, status="True")))
    own = (ready.type,) if is_part else (READY, RECONCILING, STALLED)
    others = (each for each in before.conditions if each.type not in own)
    observed = before.observed_generation if is_part else head.generation
    after = structs.replace(before, observed_generation=observed, conditions=(*others, *made), **fields)
    if after == before:
        return None
    condition = made[0]
    is_changed = condition != old.get(ready.type)
    new_event = event(head.key, resource.api_version, head.uid, condition, now) if is_changed else None
    # Every field: a merge patch keeps a field that it does not contain, and null removes it.
    patch = {name: None if value == "" else value for name, value in msgspec.to_builtins(after).items()}
    kept = {*patch} - {*fields, "conditions"} if is_part else set(of_others)
    patch = {name: value for name, value in patch.items() if name not in kept}
    return StatusUpdate(head, patch, new_event)


def event(
    about: ObjectKey, api_version: str, uid: str, condition: Condition, now: datetime, identity: str = ""
) -> dict[str, Any]:
    """Return the Event that reports a changed condition.

    With an `identity`, its name contains that in place of the time. So the same Event exists only once at a time.

    https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
    """
    time = timestamp(now)
    involved = {"apiVersion": api_version, "kind": about.kind, "namespace": about.namespace, "name": about.name}
    # As in client-go, the name contains the time, so that names sort by it, and fits the longest name of an object. The
    # digest makes the names of a Deployment and a StatefulSet of one name differ. A repeated request has the same name.
    digest = hashlib.sha256(f"{about.kind} {about.name} {uid} {condition.reason}".encode()).hexdigest()[:8]
    name = f"{about.name[:200].rstrip('-.')}.{identity or f'{int(now.timestamp() * 1e9):x}'}-{digest}"
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
