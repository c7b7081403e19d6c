"""What a workload says about its rolls."""

from __future__ import annotations

import json
from dataclasses import dataclass

from soak.history import Object
from soak.invariants.reads import annotations_of, seconds

JOB = "roll-workloads"
KINDS = ("Deployment", "StatefulSet", "DaemonSet")
OPT_IN = "kubechores.dev/roll-on-config-change"
BASELINE = "kubechores.dev/config-baseline"
ROLL_ID = "kubechores.dev/config"


@dataclass(frozen=True)
class Settings:
    """The flags of the installation's roll-workloads: seconds, and rolls in one run."""

    settle: float = 2.0
    cool_down: float = 15.0
    max_rolls: int = 10


@dataclass(frozen=True)
class Baseline:
    """The content of the annotation: fingerprints by use, the id of the key, and the last roll."""

    uid: str
    sources: dict[str, str]
    key: str
    rolled_at: float
    early: int

    @staticmethod
    def of(workload: Object | None) -> Baseline | None:
        """Return the baseline of a workload, None if there is none for its uid."""
        try:
            found = json.loads(annotations_of(workload).get(BASELINE, ""))
            rolled_at = seconds(found["rolledAt"]) if found.get("rolledAt") else 0.0
            baseline = Baseline(found["uid"], found["sources"], found.get("key", ""), rolled_at, found.get("early", 0))
        except (ValueError, KeyError, TypeError):
            return None
        return baseline if workload and baseline.uid == workload["metadata"]["uid"] else None

    def is_comparable(self, other: Baseline) -> bool:
        """Whether the fingerprints of both are of the same uses and computed with the same key."""
        return self.sources.keys() == other.sources.keys() and self.key == other.key


def roll_id(workload: Object | None) -> str:
    """Return the annotation of the pod template that a roll changes."""
    if not workload:
        return ""
    template = workload["spec"]["template"].get("metadata", {})
    return str((template.get("annotations") or {}).get(ROLL_ID, ""))


def deferral(workload: Object) -> str:
    """Return which field of a workload prevents a rolling restart, or an empty string."""
    spec = workload["spec"]
    strategy = spec.get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    if spec.get("paused"):
        return "paused"
    if strategy.get("type") == "OnDelete":
        return "OnDelete"
    return "partition" if partition and partition >= spec.get("replicas", 1) else ""


def is_rolled_out(workload: Object) -> bool:
    """Whether the rollout of a workload is complete, and all of its pods are available."""
    status, spec = workload.get("status", {}), workload["spec"]
    if status.get("observedGeneration") != workload["metadata"]["generation"]:
        return False
    if workload["kind"] == "DaemonSet":
        desired = status.get("desiredNumberScheduled", 0)
        pods = (status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
        return pods == (desired, desired)
    desired = spec.get("replicas", 1)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    if workload["kind"] == "StatefulSet" and status.get("currentRevision") == status.get("updateRevision"):
        counts[1] = desired  # the controller may count no updated pods then
    return counts == [desired] * 3


def is_available(workload: Object) -> bool:
    """Whether a pod of the workload is available."""
    status = workload.get("status", {})
    return bool(status.get("availableReplicas") or status.get("numberAvailable"))


def opted_in(workload: Object | None, namespace: Object | None) -> bool:
    """Whether a workload opted in, itself or by its namespace."""
    if not workload:
        return False
    own = annotations_of(workload).get(OPT_IN)
    return own == "true" or (own is None and annotations_of(namespace).get(OPT_IN) == "true")
