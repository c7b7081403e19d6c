"""Why a workload or a claim is not at work: what Kubernetes' Warning Events say of it and of its pods. Pure.

A text that changes by itself would have every run write a status. So what differs from pod to pod and from try to try
is left out, and of several texts of one kind the longest counts, whichever came last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field

from jobs.kit.model import ObjectKey
from jobs.kit.text import brief
from jobs.mirrors.manifests import DAEMON_SETS, STATEFUL_SETS

WARNINGS = "type=Warning"  # a field selector
_MOST_KEPT = 1024
_LONGEST = 400
_LONGEST_REASON = 64
_PODS = "Pod"
# kubelet reports a failed pull by one reason and its next try by another.
_SAME = {"BackOff": "Failed"}
# The uid of a pod, and the port from which a node connected.
_CHANGING = re.compile(r"\(?\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b\)?|:\d+(?=->)")
_FIRST_POD = "-0"
_POD_OF_DAEMON_SET = re.compile(r"(.+)-[a-z0-9]{5}")


class _Involved(Struct):
    kind: str = ""
    name: str = ""


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
    """What is quoted of Events of one kind about one object."""

    time: str
    length: int
    text: str


Quotes = dict[tuple[ObjectKey, str], Quote]


def quoted(event: Event, namespace: str) -> tuple[ObjectKey, str, Quote]:
    """Return which object an Event explains, of what kind it is, and what is quoted."""
    about = _explained(event.involved_object, namespace)
    reason = (event.reason or "")[:_LONGEST_REASON]
    text = _CHANGING.sub("", " ".join((event.message or "").split()))
    text = re.sub(rf"\b{re.escape(about.name)}-[a-z0-9]{{5}}\b", f"{about.name}-…", text)
    quote = Quote(event.time, len(text), brief(f"{reason}: {text}", _LONGEST))
    return about, _SAME.get(reason, reason), quote


def _explained(involved: _Involved, namespace: str) -> ObjectKey:
    """Return the object itself, or the workload of a pod, by the pod's name."""
    if involved.kind != _PODS:
        return ObjectKey(involved.kind, involved.name, namespace)
    if involved.name.endswith(_FIRST_POD):
        return ObjectKey(STATEFUL_SETS.kind, involved.name.removesuffix(_FIRST_POD), namespace)
    found = _POD_OF_DAEMON_SET.fullmatch(involved.name)
    return ObjectKey(DAEMON_SETS.kind, found[1] if found else involved.name, namespace)


def keep(kept: Quotes, about: ObjectKey, kind: str, quote: Quote) -> None:
    """Keep a quote, with the text of the kind that says most and the time of the last."""
    before = kept.get((about, kind))
    if before:
        most = max(before, quote, key=lambda each: (each.length, each.text))
        kept[about, kind] = most._replace(time=max(before.time, quote.time))
    elif len(kept) < _MOST_KEPT:
        kept[about, kind] = quote


def newest(kept: Quotes) -> Mapping[ObjectKey, str]:
    """Return for each object the quote of the kind that was seen last."""
    by_time: Iterable[tuple[tuple[ObjectKey, str], Quote]] = sorted(kept.items(), key=lambda each: each[1].time)
    return {about: quote.text for (about, _), quote in by_time}
