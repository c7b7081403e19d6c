"""Evaluate from its status whether a workload is rolled out or a claim is bound. Pure."""

from __future__ import annotations

from jobs.core.mirror_audit.actual.objects import Object, is_managed, status_of
from jobs.kit.values.resources import CLAIMS, SERVICES, STATEFUL_SETS


def ordinals(stateful_set: Object | None) -> range:
    """Return the ordinals of a StatefulSet's pods. More than one replica is drift, but all of them are the registry."""
    if not stateful_set or not is_managed(stateful_set):
        return range(1)
    start = int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))
    return range(start, start + max(1, int(stateful_set["spec"].get("replicas", 1))))


def rollout_problem(kind: str, actual: Object) -> str:
    """Return why a StatefulSet or DaemonSet is not rolled out, or an empty string."""
    status = status_of(actual)
    if status.get("observedGeneration", 0) < actual["metadata"].get("generation", 0):
        return "its controller has not observed the latest change yet"
    if kind == STATEFUL_SETS.kind:
        desired = int(actual["spec"].get("replicas", 1))
        updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    else:
        desired = status.get("desiredNumberScheduled", 0)
        updated, ready = status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)
    if updated < desired:
        return f"{updated} of {desired} pods are up to date"
    return f"{ready} of {desired} pods are ready" if ready < desired else ""


def is_working(kind: str, actual: Object) -> bool:
    """Return whether a workload is rolled out or a claim is bound. Objects of others and Services count as working."""
    if not is_managed(actual):
        return True
    if kind == CLAIMS.kind:
        return bool(status_of(actual).get("phase") == "Bound")
    return kind == SERVICES.kind or not rollout_problem(kind, actual)
