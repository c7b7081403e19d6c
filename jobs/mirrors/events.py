"""Why a workload or a claim is not at work: what Kubernetes' Warning Events say of it and of its pods. Pure.

A text that changes by itself would have every run write a status. So what differs from pod to pod and from try to try
is left out, and of several texts the longest of the last minutes counts, whichever came last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from msgspec import Struct, convert, field

from jobs.kit.errors import InvalidObjectError
from jobs.kit.model import ObjectKey
from jobs.kit.text import brief
from jobs.mirrors.actual import Object
from jobs.mirrors.containerd import UNUSED
from jobs.mirrors.manifests import DAEMON_SETS, STATEFUL_SETS

WARNINGS = "type=Warning"  # a field selector
_MOST_KEPT = 1024
_LONGEST = 400
_LONGEST_REASON = 64
_PODS = "Pod"
# kubelet reports what goes on of a pod every 5 minutes in the end, two texts in turn every 10.
_TOGETHER = timedelta(minutes=15)
# The uid of a pod, and the port from which a node connected.
_CHANGING = re.compile(r"\(?\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b\)?|:\d+(?=->)")
_FIRST_POD = "-0"
_POD_OF_DAEMON_SET = re.compile(r"(.+)-[a-z0-9]{5}")


class _Involved(Struct):
    kind: str = ""
    name: str = ""
    uid: str | None = None


class _Series(Struct, rename="camel"):
    last_observed_time: str | None = None


class _Metadata(Struct, rename="camel"):
    creation_timestamp: str | None = None


class Event(Struct, rename="camel"):
    """An Event as far as an audit reads it."""

    involved_object: _Involved
    metadata: _Metadata
    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = field(default=None)

    @property
    def time(self) -> str:
        """When it was seen last. Which field says so depends on who wrote it."""
        last = self.series.last_observed_time if self.series else None
        return last or self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class Quote(NamedTuple):
    """What is quoted of Events: the object that they explain, and their text."""

    about: ObjectKey
    text: str
    length: int

    @property
    def says(self) -> tuple[bool, int, str]:
        """How much it says, to choose one."""
        return UNUSED in self.text, self.length, self.text


Quotes = dict[Quote, datetime]  # with the time at which each was seen last


class Quoted(NamedTuple):
    """A quote of one Event, when it was seen last, and the uid of the object; nothing where it is about a pod."""

    quote: Quote
    time: datetime
    uid: str | None

    def is_of(self, actual: Object) -> bool:
        """Whether the Event is of this object or of its pods, and not of an earlier one of the same name."""
        metadata = actual["metadata"]
        if self.uid is not None:
            return bool(self.uid == metadata.get("uid"))
        created = metadata.get("creationTimestamp")
        return created is None or self.time >= convert(created, datetime)


def quoted(event: Event, namespace: str) -> Quoted:
    """Return what is quoted of an Event.

    Raises:
        InvalidObjectError: its time is not one.
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
    uid = None if involved.kind == _PODS else involved.uid or ""
    return Quoted(Quote(about, brief(f"{reason}: {text}", _LONGEST), len(text)), time, uid)


def _explained(involved: _Involved, namespace: str) -> ObjectKey:
    """Return the object itself, or the workload of a pod, by the pod's name."""
    if involved.kind != _PODS:
        return ObjectKey(involved.kind, involved.name, namespace)
    if involved.name.endswith(_FIRST_POD):
        return ObjectKey(STATEFUL_SETS.kind, involved.name.removesuffix(_FIRST_POD), namespace)
    found = _POD_OF_DAEMON_SET.fullmatch(involved.name)
    return ObjectKey(DAEMON_SETS.kind, found[1] if found else involved.name, namespace)


def keep(kept: Quotes, quote: Quote, time: datetime) -> None:
    """Keep a quote with the time of the last, unless there are too many."""
    if quote in kept or len(kept) < _MOST_KEPT:
        kept[quote] = max(time, kept.get(quote, time))


def most_telling(kept: Quotes) -> Mapping[ObjectKey, str]:
    """Return for each object the text that says most, of those of the minutes before the newest."""
    newest: dict[ObjectKey, datetime] = {}
    for quote, time in kept.items():
        newest[quote.about] = max(time, newest.get(quote.about, time))
    found: dict[ObjectKey, Quote] = {}
    for quote, time in kept.items():
        if newest[quote.about] - time <= _TOGETHER:
            found[quote.about] = max(quote, found.get(quote.about, quote), key=lambda each: each.says)
    return {about: quote.text for about, quote in found.items()}
