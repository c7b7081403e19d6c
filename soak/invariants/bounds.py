"""What our jobs leave in a cluster does not grow: Jobs, pods, Events, and the size of statuses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from soak.history import Key
from soak.invariants.reads import shown
from soak.observed import Invariant, Observed

NAMESPACE = "kube-chores"
RETRIES = 2  # the largest backoffLimit
RUNNING = 3  # one by the schedule and two by hand
EVENTS_OF_AN_OBJECT = 25  # by our jobs, in the hour that the API server keeps Events
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
        if number > limits.get(name, 0) + RUNNING:
            yield f"CronJob {name} has {number} Jobs, more than {limits.get(name, 0)}"
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
    numbers: Counter[tuple[str, str, str]] = Counter()
    for version in observed.history.now("Event"):
        event = version.object or {}
        if str(event.get("reportingComponent", "")).startswith("kube-chores"):
            about = event["involvedObject"]
            numbers[about["kind"], about.get("namespace", ""), about["name"]] += 1
    for (kind, namespace, name), number in numbers.items():
        if number > EVENTS_OF_AN_OBJECT:
            yield f"{kind} {name} in {namespace} has {number} Events by our jobs"
