"""Quote Warning Events that explain why a workload is not rolled out or a claim is not bound. Pure.

The newest text is the present cause: one of a pod that no longer exists, or from before a pod was ready, explains
nothing. If the text changed by itself, each run would write a status. So the quote omits the parts that change between
pods and between attempts, and of texts that alternate for one cause it is the longest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from msgspec import Struct, convert, field

from jobs.core.mirror_audit.actual.objects import Object, has_all_pods
from jobs.core.mirror_node.hosts import BYPASSED
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import DAEMON_SETS, STATEFUL_SETS
from jobs.kit.values.text import brief

WARNINGS = "type=Warning"  # a field selector
_MOST_KEPT = 1024
_MOST_PODS = 256
_LONGEST = 400
_LONGEST_REASON = 64
_PODS = "Pod"
# The beginnings of texts that kubelet writes in turns for one cause.
_ALTERNATING = (
    ("FailedMount: Unable ", "FailedMount: MountVolume", "FailedAttachVolume: "),
    (
        "Failed: Failed to pull ",
        "Failed: Error: ErrImagePull",
        "Failed: Error: ImagePull",
        "BackOff: Back-off pulling ",
    ),
    ("Unhealthy: ", "BackOff: Back-off restarting "),
)
# For a problem that stays, kubelet writes an Event every 5 minutes, and two alternating texts every 10 minutes.
_TOGETHER = timedelta(minutes=15)
# The uid of a pod, the id of its sandbox, and the client port of a node's connection.
_CHANGING = re.compile(r"\(?\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b\)?|\b[0-9a-f]{64}\b|:\d+(?=->)")
_FIRST_POD = "-0"
_POD_OF_DAEMON_SET = re.compile(r"(.+)-[a-z0-9]{5}")


class _Involved(Struct):
    kind: str = ""
    name: str = ""
    uid: str | None = None


class _Series(Struct, rename="camel"):
    last_observed_time: str | None = None


class _EventMetadata(Struct, rename="camel"):
    creation_timestamp: str | None = None


class Event(Struct, rename="camel"):
    """The fields of an Event that an audit reads."""

    involved_object: _Involved
    metadata: _EventMetadata
    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    @property
    def time(self) -> str:
        """The time of its last occurrence. The field depends on the component that wrote the Event."""
        last = self.series.last_observed_time if self.series else None
        return last or self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class Quote(NamedTuple):
    """A text of Events, and the object that it explains. `length` is that of the text before it was shortened.

    `is_bypass` is whether it reports that a node does not use the mirror.
    """

    about: ObjectKey
    text: str
    length: int
    is_bypass: bool

    @property
    def rank(self) -> tuple[bool, int, str]:
        """The rank by which one quote is chosen: first a bypassed mirror, then the longest."""
        return self.is_bypass, self.length, self.text


class Involved(NamedTuple):
    """The object of an Event: a pod, or the workload or claim itself."""

    key: ObjectKey
    uid: str


class Occurrence(NamedTuple):
    """The last occurrence of a text: its time, and its object."""

    time: datetime
    involved: Involved


Quotes = dict[Quote, Occurrence]


class _Condition(Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _PodStatus(Struct):
    conditions: list[_Condition] | None = None


class _QuotedPodMetadata(Struct):
    uid: str = ""


class Pod(Struct):
    """The fields of a pod that show whether an Event about it is obsolete."""

    metadata: _QuotedPodMetadata
    status: _PodStatus = field(default_factory=_PodStatus)

    def is_explained_by(self, event: Occurrence) -> bool:
        """Return whether the Event is about this pod, and not from before it was ready."""
        ready = [each for each in self.status.conditions or () if each.type == "Ready" and each.status == "True"]
        since = ready[0].last_transition_time if ready else None
        return event.involved.uid == self.metadata.uid and not (since and since.tzinfo and since >= event.time)


class Quoted(NamedTuple):
    """A quote of one Event, and its last occurrence."""

    quote: Quote
    event: Occurrence

    def is_of(self, actual: Object) -> bool:
        """Return whether the Event is about this object or its pods, not about an earlier object of the same name.

        An Event of a workload itself is about pods that do not exist yet.
        """
        metadata = actual["metadata"]
        if self.event.involved.key.kind == _PODS:
            created = metadata.get("creationTimestamp")
            return created is None or self.event.time >= convert(created, datetime)
        return bool(self.event.involved.uid == metadata.get("uid")) and not has_all_pods(self.quote.about.kind, actual)


def quoted(event: Event, namespace: str) -> Quoted:
    """Reduce an Event to its quote.

    Raises:
        InvalidObjectError: its time is not valid.
    """
    about = _explained(event.involved_object, namespace)
    reason = (event.reason or "")[:_LONGEST_REASON]
    text = _CHANGING.sub("", " ".join((event.message or "").split()))
    text = re.sub(rf"\b{re.escape(about.name)}-[a-z0-9]{{5}}\b", f"{about.name}-…", text)
    try:
        time = datetime.fromisoformat(event.time.replace("Z", "+00:00")).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        raise InvalidObjectError(str(error)) from None
    involved = event.involved_object
    last = Occurrence(time, Involved(about._replace(kind=involved.kind, name=involved.name), involved.uid or ""))
    return Quoted(Quote(about, brief(f"{reason}: {text}", _LONGEST), len(text), BYPASSED in text), last)


def _explained(involved: _Involved, namespace: str) -> ObjectKey:
    """Return the involved object, or for a pod its workload, by the pod's name."""
    if involved.kind != _PODS:
        return ObjectKey(involved.kind, involved.name, namespace)
    if involved.name.endswith(_FIRST_POD):
        return ObjectKey(STATEFUL_SETS.kind, involved.name.removesuffix(_FIRST_POD), namespace)
    found = _POD_OF_DAEMON_SET.fullmatch(involved.name)
    return ObjectKey(DAEMON_SETS.kind, found[1] if found else involved.name, namespace)


def keep(kept: Quotes, quote: Quote, event: Occurrence) -> None:
    """Add a quote, or update its last occurrence, up to a limit of quotes."""
    if quote in kept or len(kept) < _MOST_KEPT:
        kept[quote] = max(event, kept.get(quote, event))


def pods(kept: Quotes) -> list[ObjectKey]:
    """Return the pods of the newest quotes, up to a limit."""
    newest = sorted(kept.values(), reverse=True)
    keys = dict.fromkeys(each.involved.key for each in newest if each.involved.key.kind == _PODS)
    return list(keys)[:_MOST_PODS]


def without_obsolete(kept: Quotes, found: Mapping[ObjectKey, Pod | None]) -> Quotes:
    """Return the quotes that the pods `found`, None if one does not exist, do not show to be obsolete."""
    return {
        quote: event
        for quote, event in kept.items()
        if event.involved.key not in found or ((pod := found[event.involved.key]) and pod.is_explained_by(event))
    }


def most_informative(kept: Quotes) -> Mapping[ObjectKey, Quote]:
    """Return for each object the newest text; of texts that alternate with it, in the minutes before, the longest.

    The text of a bypassed mirror comes before all others of these minutes.
    """
    by_object: dict[ObjectKey, dict[Quote, datetime]] = {}
    for quote, event in sorted(kept.items(), key=lambda each: (each[1].time, each[0])):
        by_object.setdefault(quote.about, {})[quote] = event.time
    return {about: _most_informative(times) for about, times in by_object.items()}


def _most_informative(times: Mapping[Quote, datetime]) -> Quote:
    """Return the quote for one object. `times` are sorted, the newest last."""
    *_, newest = times
    together = [each for each, time in times.items() if times[newest] - time <= _TOGETHER]
    beginnings = next((each for each in _ALTERNATING if newest.text.startswith(each)), ())
    # The newest of each beginning: an earlier one is obsolete.
    last = {beginning: each for each in together for beginning in beginnings if each.text.startswith(beginning)}
    bypassed = [each for each in together if each.is_bypass]
    return max([newest, *last.values(), *bypassed], key=lambda each: each.rank)
