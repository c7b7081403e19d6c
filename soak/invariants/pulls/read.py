"""The pulls of pods, as pods and Events show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from soak.history import Key, Object, Version
from soak.invariants.reads import seconds
from soak.observed import Observed

PULLS_NAMESPACE = "pulls-1"
# The generator annotates a pod if the mirror had its image when the pod was created, and keeps it for this long.
CACHED = "example.com/cached"


@dataclass
class Pull:
    """A pod that pulls."""

    name: str
    host: str
    created: float
    is_cached: bool = False
    ended: float = 0.0  # the image was pulled, or the pod was deleted
    failed: bool = False
    reported: bool = False


@dataclass(frozen=True)
class Failure:
    """A pull that failed at a time, and the message."""

    pull: Pull
    at: float
    message: str


class Seen:
    """What was read of pods and Events so far: the pulls by pod, and their failures."""

    def __init__(self) -> None:
        self.pulls: dict[Key, Pull] = {}
        self._counts: dict[Key, int] = {}
        self._seen: dict[Key, int] = {}

    def read(self, observed: Observed) -> list[Failure]:
        """Read what is new, and return the failures in it."""
        for version in self._new(observed, "Pod"):
            self._read_pod(version)
        found = [self._failure(each.key, each.object) for each in self._new(observed, "Event") if each.object]
        return [each for each in found if each]

    def _new(self, observed: Observed, kind: str) -> Iterator[Version]:
        for key in observed.history.keys(kind):
            if key.namespace == PULLS_NAMESPACE:
                versions = observed.history.versions(key)
                yield from versions[self._seen.get(key, 0) :]
                self._seen[key] = len(versions)

    def _read_pod(self, version: Version) -> None:
        pod = version.object
        if pod is None:
            if (pull := self.pulls.get(version.key)) and not pull.ended:
                pull.ended = version.seconds
            return
        if version.key not in self.pulls:
            image = pod["spec"]["containers"][0]["image"]
            created = seconds(pod["metadata"]["creationTimestamp"])
            is_cached = CACHED in (pod["metadata"].get("annotations") or {})
            self.pulls[version.key] = Pull(version.key.name, image.partition("/")[0], created, is_cached)
        pull = self.pulls[version.key]
        if not pull.ended and (_has_run(pod) or pod["metadata"].get("deletionTimestamp")):
            pull.ended = version.seconds

    def _failure(self, key: Key, event: Object) -> Failure | None:
        count = event.get("count") or 1
        if not _is_failed_pull(event) or count <= self._counts.get(key, 0):
            return None
        self._counts[key] = count
        pull = self.pulls.get(Key("Pod", PULLS_NAMESPACE, event["involvedObject"]["name"]))
        if not pull:
            return None
        pull.failed = True
        at = seconds(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
        return Failure(pull, at, event["message"])


def _has_run(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return any("running" in one.get("state", {}) or one.get("restartCount") for one in statuses)


def _is_failed_pull(event: Object) -> bool:
    return event.get("reason") == "Failed" and str(event.get("message", "")).startswith("Failed to pull image")
