"""What our jobs leave in a cluster does not grow: Jobs, pods, Events, and the size of statuses."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator

from soak.history import Key
from soak.invariants.reads import shown
from soak.observed import Invariant, Observed

NAMESPACE = "kube-chores"
RETRIES = 2  # the largest backoffLimit
RUNNING = 3  # one by the schedule and two by hand
RECENT_SECONDS = 600.0
SAME_EVENTS = 5  # in a row: two jobs, and two manual Jobs, can report a change at the same time
ROLLED = "ConfigChanged"  # of each roll, which another invariant counts: the same ConfigMap can change again and again
EVENTS = 60  # of an object: one for each change of its status, by three runs a minute
STATUS_BYTES = 20_000


def invariants() -> list[Invariant]:
    """Return the invariant."""
    return [Invariant("the number of Jobs, pods and Events is bounded", check)]


def check(observed: Observed) -> Iterator[str]:
    """Yield a sentence for each number that is too large."""
    yield from _jobs(observed)
    yield from _events(observed)
    for kind in ("CopyRator", "ExchangeRate", "RegistryMirror"):
        for version in observed.history.now(kind):
            size = len(json.dumps((version.object or {}).get("status", {})))
            if size > STATUS_BYTES:
                yield f"the status of {shown(version.key)} has {size} bytes"


def _jobs(observed: Observed) -> Iterator[str]:
    limits: dict[str, int] = {}
    for version in observed.history.now("CronJob"):
        spec = (version.object or {})["spec"]
        kept = spec["successfulJobsHistoryLimit"] + spec["failedJobsHistoryLimit"]
        limits[version.key.name] = kept + RUNNING
    jobs = Counter(_cron_job(each.object or {}) for each in observed.history.now("Job") if _is_here(each.key))
    for name, number in jobs.items():
        # The controller of CronJobs deletes old ones with each new one.
        if number > (most := limits.get(name, 0) + RUNNING):
            yield f"CronJob {name} has {number} Jobs, more than {most}"
    pods = sum(1 for each in observed.history.now("Pod") if _is_here(each.key))
    most = (sum(limits.values()) + RUNNING) * (RETRIES + 1)
    if pods > most:
        yield f"namespace {NAMESPACE} has {pods} pods, more than {most}"


def _is_here(key: Key) -> bool:
    return key.namespace == NAMESPACE


def _cron_job(job: dict[str, object]) -> str:
    metadata = job["metadata"]
    assert isinstance(metadata, dict)
    return next((str(each["name"]) for each in metadata.get("ownerReferences") or []), metadata["name"])


def _events(observed: Observed) -> Iterator[str]:
    """Events report changes: the same one is not created again and again."""
    recent: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    for version in sorted(observed.history.now("Event"), key=lambda each: each.revision):
        event = version.object or {}
        is_recent = version.seconds > observed.until - RECENT_SECONDS
        if is_recent and event.get("source", {}).get("component") == "kube-chores":
            about = event["involvedObject"]
            recent[about["kind"], about.get("namespace", ""), about["name"]].append((event["reason"], event["message"]))
    for (kind, namespace, name), events in recent.items():
        if len(events) > EVENTS:
            yield f"{kind} {name} in {namespace} got more than {EVENTS} Events in {RECENT_SECONDS:g} s"
        for (reason, _), same in itertools.groupby(events):
            if reason != ROLLED and len(list(same)) > SAME_EVENTS:
                yield f"{kind} {name} in {namespace} got the same Event {reason} more than {SAME_EVENTS} times in a row"
