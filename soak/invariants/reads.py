"""What a run may have read before it wrote: any version since shortly before its start, in any combination."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from soak.history import History, Key, Object
from soak.observed import Invariant, Observed, Run, Write

MARGIN_SECONDS = 15.0  # a list from a cache of the API server can be this old
LONGEST_RUN_SECONDS = 600.0  # the largest activeDeadlineSeconds of our CronJobs, that of sync-copies-verify
RUNS = 2  # complete runs after which an object is in its desired state
NO_REVISION = 1 << 63  # later than all
RESOLUTION_SECONDS = 1.0  # of the times of a pod
T = TypeVar("T")


def seconds(stamp: str) -> float:
    """Return the seconds since the epoch of a timestamp of the API, as 2026-11-23T10:00:00Z; a fraction is dropped."""
    return float(calendar.timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")))


def clock(at: float) -> str:
    """Return the time of day of a moment, in UTC."""
    return time.strftime("%H:%M:%S", time.gmtime(at))


def window_start(observed: Observed, write: Write) -> float:
    """Return a time that is earlier than all that the run of a write can have read."""
    if run := observed.run_of(write):
        return run.created - MARGIN_SECONDS
    for version in observed.history.versions(Key("Pod", "kube-chores", write.pod)):
        if version.object:
            return seconds(version.object["metadata"]["creationTimestamp"]) - MARGIN_SECONDS
    return write.seconds - LONGEST_RUN_SECONDS - MARGIN_SECONDS


def possible(history: History, key: Key, start: float, revision: int) -> list[Object | None]:
    """Return the states of an object from a time up to a revision; None: it did not exist."""
    versions = history.during(key, start, revision)
    states = [version.object for version in versions]
    return states if versions and versions[0].seconds <= start else [None, *states]


def essence(obj: Object | None) -> Object | None:
    """Return what users write of an object: not its status, nor what each write changes."""
    if obj is None:
        return None
    fields = {key: value for key, value in obj.items() if key not in ("apiVersion", "metadata", "status")}
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences", "deletionTimestamp")
    return {**fields, "metadata": {key: obj["metadata"].get(key) or None for key in kept}}


def distinct(states: Iterable[T], key: Callable[[T], object]) -> list[T]:
    """Return the states without those that have the same key as an earlier one."""
    found: list[T] = []
    keys: list[object] = []
    for each in states:
        if (one := key(each)) not in keys:
            found.append(each)
            keys.append(one)
    return found


def latest(history: History, key: Key) -> Object | None:
    """Return the object as it is now, or None."""
    versions = history.versions(key)
    return versions[-1].object if versions else None


def changed_at(history: History, key: Key) -> float:
    """Return the time of the last change of an object, 0 if it never existed."""
    versions = history.versions(key)
    return versions[-1].seconds if versions else 0.0


def edited_at(history: History, key: Key) -> float:
    """Return the time of the last change of what users write of an object, 0 if it never existed."""
    seconds, last = 0.0, latest(history, key)
    for version in reversed(history.versions(key)):
        if essence(version.object) != essence(last):
            break
        seconds = version.seconds
    return seconds


def is_known(observed: Observed, run: Run) -> bool:
    """Whether all that a run can have read and written is in the history: the watch of pods can be ahead of others."""
    return run.ended + RESOLUTION_SECONDS <= observed.until


def runs_since(observed: Observed, job: str, since: float, exit_codes: Collection[int] = (0,)) -> list[Run]:
    """Return the runs of a job that began after a time, ended with one of these codes, and are known; latest first."""
    runs = (each for each in reversed(observed.ended_runs) if each.job == job and each.began > since)
    return [each for each in runs if each.exit_code in exit_codes and is_known(observed, each)]


def has_settled(observed: Observed, job: str, since: float) -> bool:
    """Whether the job must have brought an object into its desired state that last changed at `since`."""
    return observed.settled or len(runs_since(observed, job, since)) >= RUNS


def each_write(
    name: str, account: str, kinds: Iterable[str], check: Callable[[Observed, Write], Iterable[str]]
) -> Invariant:
    """Return the invariant that checks each write of an account to objects of these kinds."""
    selected = frozenset(kinds)

    def checked(observed: Observed) -> Iterable[str]:
        for write in observed.writes:
            if write.account == account and write.key.kind in selected:
                yield from check(observed, write)

    return Invariant(name, checked)


def annotations_of(obj: Object | None) -> dict[str, str]:
    """Return the annotations of an object."""
    return ((obj or {}).get("metadata") or {}).get("annotations") or {}


def labels_of(obj: Object | None) -> dict[str, str]:
    """Return the labels of an object."""
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def is_managed(obj: Object | None, job: str) -> bool:
    """Whether an object has the labels of an object that a job manages."""
    of = labels_of(obj)
    return (of.get("app.kubernetes.io/managed-by"), of.get("kubechores.dev/job")) == ("kube-chores", job)


def is_terminating(obj: Object | None) -> bool:
    """Whether an object is being deleted, or does not exist."""
    return obj is None or "deletionTimestamp" in obj["metadata"]


def shown(key: Key) -> str:
    """Return an object's name for messages, as deployment/web in shop."""
    return f"{key.kind.lower()}/{key.name}" + (f" in {key.namespace}" if key.namespace else "")
