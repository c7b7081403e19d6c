"""Read FarmPods, then namespaces, then their pods: lists of metadata, and full lists only where these are needed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Raw

from jobs.core.farm_pods.farm_pod import FarmPod, PodMetadata, PodObject, reduce_farm_pod, reduce_pod
from jobs.core.farm_pods.observed import OPT_IN, Observed, Settings
from jobs.core.farm_pods.plan import Compared, compare, different, to_read_in_full
from jobs.kit.api.cluster import Cluster, List, complete, retry_if_expired
from jobs.kit.api.custom_resources import not_installed
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import InvalidObject, PartialObject, read_failure, unreadable
from jobs.kit.values.resources import FARM_PODS, NAMESPACES, PODS

# A list of one namespace is as much work as this number of pods in the list of all namespaces (docs/performance.md).
PODS_PER_LIST = 50
LEAST_NAMESPACES = 3  # for fewer, it is not worth a request to count all pods

FarmPods = Mapping[ObjectKey, FarmPod]
Read = dict[str, "list[Compared | InvalidObject] | ApiError"]  # by namespace: its pods, or why they cannot be read


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
    read = _pods(cluster, namespaces, farm_pods, settings)
    listed = [each for found in read.values() if not isinstance(found, ApiError) for each in found]
    pods, left, unchanged = different(_valid(listed), farm_pods)
    invalid += (each for each in listed if isinstance(each, InvalidObject))
    failures = {name: found for name, found in read.items() if isinstance(found, ApiError)}
    return Observed(
        namespaces,
        pods,
        left,
        tuple(
            unreadable(ObjectKey(NAMESPACES.kind, name), error, read_failure(error, "its pods"))
            for name, error in failures.items()
        ),
        tuple(unreadable(each.key, each.error) for each in invalid),
        unchanged=unchanged,
    )


def _farm_pods(cluster: Cluster, namespace: str) -> tuple[dict[ObjectKey, FarmPod], list[InvalidObject]]:
    """Return all FarmPods, also those of others: so a conflict is found without a write."""
    found, invalid = complete(cluster.objects, FARM_PODS, Raw, reduce_farm_pod, namespace=namespace)
    return {each.key: each for each in found}, invalid


def _namespaces(cluster: Cluster) -> tuple[list[str], list[InvalidObject]]:
    """Return the names of the namespaces that opted in, without those in phase Terminating."""
    found, invalid = complete(
        cluster.objects,
        NAMESPACES,
        PartialObject,
        lambda each: (sys.intern(each.metadata.name), each.metadata.deletion_timestamp is None),
        selector=f"{OPT_IN}=true",
        metadata_only=True,
    )
    return sorted(name for name, stays in found if stays), invalid


def _pods(cluster: Cluster, namespaces: Sequence[str], farm_pods: FarmPods, settings: Settings) -> Read:
    """Return the pods of each namespace, compared with their FarmPods.

    Metadata are sufficient for most pods. They are a quarter of the work for the API server, and have environment
    variables only in the annotation of a client-side `kubectl apply`, which is not decoded.
    """
    # With -v, each pod is in the report: none is dropped.
    compared_with = {} if settings.run.verbose else farm_pods
    read = _all_pods(cluster, namespaces, compared_with, len(farm_pods))
    if read is None:
        read = _pods_by_namespace(cluster, namespaces, PodMetadata, compared_with)
    metadata = {name: _valid(found) for name, found in read.items() if not isinstance(found, ApiError)}
    in_full = to_read_in_full(metadata, farm_pods, settings.max_objects)
    more = _pods_by_namespace(cluster, in_full, PodObject, compared_with)
    for name, found in more.items():
        # Otherwise their metadata are complete, and the run reads the pods one by one.
        if not (isinstance(found, ApiError) and found.is_of_one_request):
            read[name] = found
    return read


def _all_pods(cluster: Cluster, namespaces: Sequence[str], farm_pods: FarmPods, expected: int) -> Read | None:
    """List the metadata of all pods, and return those of these namespaces; None if that is more work, or if it fails.

    `expected` is the number of FarmPods: about the number of pods in these namespaces.
    """
    if len(namespaces) < LEAST_NAMESPACES:
        return None
    by_namespace: dict[str, list[Compared | InvalidObject]] = {name: [] for name in namespaces}

    def reduce(each: PodMetadata) -> Compared | None:
        return compare(reduce_pod(each), farm_pods) if each.metadata.namespace in by_namespace else None

    try:
        pods = cluster.count(PODS)
        if pods is None or pods > expected + PODS_PER_LIST * len(namespaces):
            return None
        found = retry_if_expired(lambda: list(cluster.objects(PODS, PodMetadata, reduce, metadata_only=True)))
    except ApiError:
        return None  # perhaps some namespaces can be read: a list of each one shows which
    for each in found:
        if isinstance(each, InvalidObject) and not each.key.namespace:
            return None  # the list of its namespace shows where it is
        namespace = each.key.namespace if isinstance(each, InvalidObject) else each.namespace if each else ""
        if each and namespace in by_namespace:
            by_namespace[namespace].append(each)
    return {**by_namespace}


def _pods_by_namespace(
    cluster: Cluster, namespaces: Iterable[str], item: type[PodMetadata | PodObject], farm_pods: FarmPods
) -> Read:
    """List the pods of each of these namespaces, in full or only their metadata."""

    def reduce(each: PodMetadata | PodObject) -> Compared:
        return compare(reduce_pod(each), farm_pods)

    metadata_only = item is PodMetadata
    lists = (List(PODS, item, reduce, name, metadata_only=metadata_only, tag=name) for name in namespaces)
    return dict(cluster.lists(lists))


def _valid(found: Iterable[Compared | InvalidObject]) -> list[Compared]:
    return [each for each in found if not isinstance(each, InvalidObject)]
