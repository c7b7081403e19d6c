"""Quote Warning Events that explain why a workload is not rolled out or a claim is not bound. Pure.

If the text changed by itself, each run would write a status. So the quote omits the parts that change between pods and
between attempts. Of several texts it uses the longest of the last minutes, not the newest. But a failed probe reports
the present state, so an earlier failed probe explains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from msgspec import Struct, convert

from jobs.core.mirror_audit.actual.objects import Object
from jobs.core.mirror_node.hosts import UNUSED
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import DAEMON_SETS, STATEFUL_SETS
from jobs.kit.values.text import brief

WARNINGS = "type=Warning"  # a field selector
_MOST_KEPT = 1024
_LONGEST = 400
_LONGEST_REASON = 64
_PODS = "Pod"
_FAILED_PROBE = "Unhealthy: "  # the reason of kubelet's Events about probes
# For a problem that stays, kubelet writes an Event every 5 minutes, and two alternating texts every 10 minutes.
_TOGETHER = timedelta(minutes=15)
# The uid of a pod, and the client port of a node's connection.
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
    """The fields of an Event that an audit reads."""

    involved_object: _Involved
    metadata: _Metadata
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
    """A text of Events, and the object that it explains. `length` is that of the text before it was shortened."""

    about: ObjectKey
    text: str
    length: int

    @property
    def rank(self) -> tuple[bool, int, str]:
        """The rank by which one quote is chosen: first an unused mirror, then the longest."""
        return UNUSED in self.text, self.length, self.text


Quotes = dict[Quote, datetime]  # with the time of the last occurrence


class Quoted(NamedTuple):
    """A quote of one Event, the time of its last occurrence, and the uid of the object: None for an Event of a pod."""

    quote: Quote
    time: datetime
    uid: str | None

    def is_of(self, actual: Object) -> bool:
        """Return whether the Event is about this object or its pods, not about an earlier object of the same name."""
        metadata = actual["metadata"]
        if self.uid is not None:
            return bool(self.uid == metadata.get("uid"))
        created = metadata.get("creationTimestamp")
        return created is None or self.time >= convert(created, datetime)


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
    uid = None if involved.kind == _PODS else involved.uid or ""
    return Quoted(Quote(about, brief(f"{reason}: {text}", _LONGEST), len(text)), time, uid)


def _explained(involved: _Involved, namespace: str) -> ObjectKey:
    """Return the involved object, or for a pod its workload, by the pod's name."""
    if involved.kind != _PODS:
        return ObjectKey(involved.kind, involved.name, namespace)
    if involved.name.endswith(_FIRST_POD):
        return ObjectKey(STATEFUL_SETS.kind, involved.name.removesuffix(_FIRST_POD), namespace)
    found = _POD_OF_DAEMON_SET.fullmatch(involved.name)
    return ObjectKey(DAEMON_SETS.kind, found[1] if found else involved.name, namespace)


def keep(kept: Quotes, quote: Quote, time: datetime) -> None:
    """Add a quote, or update its time, up to a limit of quotes."""
    if quote in kept or len(kept) < _MOST_KEPT:
        kept[quote] = max(time, kept.get(quote, time))


def most_informative(kept: Quotes) -> Mapping[ObjectKey, str]:
    """Return for each object the text of the highest rank, of those in the minutes before the newest.

    Of failed probes, only the newest and those that report an unused mirror have a rank.
    """
    newest: dict[ObjectKey, datetime] = {}
    newest_probe: dict[ObjectKey, Quote] = {}
    for quote, time in sorted(kept.items(), key=lambda each: (each[1], each[0])):
        newest[quote.about] = time
        if quote.text.startswith(_FAILED_PROBE):
            newest_probe[quote.about] = quote
    found: dict[ObjectKey, Quote] = {}
    for quote, time in kept.items():
        is_earlier_probe = quote.text.startswith(_FAILED_PROBE) and quote != newest_probe[quote.about]
        if newest[quote.about] - time <= _TOGETHER and (UNUSED in quote.text or not is_earlier_probe):
            found[quote.about] = max(quote, found.get(quote.about, quote), key=lambda each: each.rank)
    return {about: quote.text for about, quote in found.items()}
