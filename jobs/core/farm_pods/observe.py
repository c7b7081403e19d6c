"""Read FarmPods, then namespaces, then their pods."""

from __future__ import annotations

import sys

from jobs.core.farm_pods.farm_pod import FarmPod, FarmPodObject, Pod, PodObject
from jobs.core.farm_pods.observed import OPT_IN, Observed, Settings
from jobs.kit.api.cluster import Cluster, complete
from jobs.kit.api.custom_resources import not_installed
from jobs.kit.values.errors import ApiError
from jobs.kit.values.findings import read_failure, unreadable
from jobs.kit.values.metadata import PartialObject
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import InvalidObject
from jobs.kit.values.resources import FARM_PODS, NAMESPACES, PODS


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read FarmPods, then namespaces, then their pods.

    In this order a FarmPod in the list is never newer than its pod, even if another run writes meanwhile.

    Raises:
        ConfigurationError: the CRD is not installed.
        ApiError: FarmPods or namespaces cannot be read; without them nothing can be evaluated.
    """
    try:
        farm_pods, invalid = _farm_pods(cluster, settings.namespace)
    except ApiError as error:
        if error.status != 404:
            raise
        raise not_installed(FARM_PODS) from error
    if settings.namespace:
        namespaces = [settings.namespace]
    else:
        namespaces, more = _namespaces(cluster)
        invalid += more
    pods: list[Pod] = []
    failures = []
    for namespace in namespaces:
        try:
            found, more = _pods(cluster, namespace)
        except ApiError as error:
            key = ObjectKey(NAMESPACES.kind, namespace)
            failures.append(unreadable(key, error, read_failure(error, "its pods")))
        else:
            pods += found
            invalid += more
    return Observed(
        namespaces, pods, farm_pods, tuple(failures), tuple(unreadable(each.key, each.error) for each in invalid)
    )


def _farm_pods(cluster: Cluster, namespace: str) -> tuple[dict[ObjectKey, FarmPod], list[InvalidObject]]:
    """Return all FarmPods, also those of others: so a conflict is found without a write."""
    found, invalid = complete(cluster.objects, FARM_PODS, FarmPodObject, _with_key, namespace=namespace)
    return dict(found), invalid


def _with_key(read: FarmPodObject) -> tuple[ObjectKey, FarmPod]:
    at = read.metadata
    return ObjectKey(FARM_PODS.kind, at.name, sys.intern(at.namespace)), read.reduced


def _namespaces(cluster: Cluster) -> tuple[list[str], list[InvalidObject]]:
    """Return the names of the namespaces that opted in, without those in phase Terminating."""
    found, invalid = complete(
        cluster.objects,
        NAMESPACES,
        PartialObject,
        lambda each: (each.metadata.name, each.metadata.deletion_timestamp is None),
        selector=f"{OPT_IN}=true",
        metadata_only=True,
    )
    return sorted(name for name, stays in found if stays), invalid


def _pods(cluster: Cluster, namespace: str) -> tuple[list[Pod], list[InvalidObject]]:
    """Return the pods of a namespace. A list of all namespaces would be larger if only a few opted in."""
    return complete(cluster.objects, PODS, PodObject, lambda each: each.reduced, namespace=namespace)
