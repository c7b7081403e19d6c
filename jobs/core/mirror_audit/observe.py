"""Read the resources of mirrors, then the RegistryMirrors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Raw

from jobs.core.mirror_audit.actual.endpoints import Endpoints, Slice, by_service, ready
from jobs.core.mirror_audit.actual.events import WARNINGS, Event, Quotes, keep, most_informative, quoted
from jobs.core.mirror_audit.actual.objects import Object, decode_resource, is_working, ordinals, placeholder
from jobs.core.mirror_audit.desired.names import HEADLESS, NODE_NAMESPACE
from jobs.core.mirror_audit.observed import RESOURCE_KINDS, Observed, Settings
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, parse_registry_mirror
from jobs.kit.api.cluster import Cluster, complete, retry_if_expired
from jobs.kit.api.custom_resources import from_cluster
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Invalid, InvalidObject
from jobs.kit.values.resources import (
    DAEMON_SETS,
    ENDPOINT_SLICES,
    EVENTS,
    NODES,
    REGISTRY_MIRRORS,
    STATEFUL_SETS,
    Resource,
)

_LINUX = "kubernetes.io/os=linux"
Reduced = TypeVar("Reduced")


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read the resources, then the RegistryMirrors.

    In this order, a resource that an overlapping run creates meanwhile is never an orphan.

    Raises:
        ConfigurationError: the CRD is missing.
        ApiError: the list of RegistryMirrors failed; without it there is no audit.
    """
    list_errors: dict[str, ApiError] = {}

    def read(kind: str, reading: Callable[[], Reduced]) -> Reduced | None:
        try:
            return reading()
        except ApiError as error:
            list_errors[kind] = error
            return None

    resources: dict[ObjectKey, Object] = {}
    invalid: list[InvalidObject] = []
    for resource in RESOURCE_KINDS:
        resources |= read(resource.kind, partial(_objects, cluster, resource, settings.namespace, invalid)) or {}
    # Both namespaces: earlier versions created DaemonSets in that of the registries.
    resources |= read(DAEMON_SETS.kind, partial(_objects, cluster, DAEMON_SETS, NODE_NAMESPACE, invalid)) or {}
    quotes: Quotes = {}
    if not all(is_working(key.kind, each) for key, each in resources.items()):
        for namespace in (settings.namespace, NODE_NAMESPACE):
            read(EVENTS.kind, partial(retry_if_expired, partial(_events, cluster, namespace, resources, quotes)))
    endpoints = read(ENDPOINT_SLICES.kind, partial(_endpoints, cluster, settings.namespace, resources, invalid)) or {}
    nodes = read(NODES.kind, partial(_nodes, cluster)) or 0
    mirrors, invalid_mirrors = _mirrors(cluster, settings)
    errors = {each.key: each.error for each in invalid}
    return Observed(
        mirrors, invalid_mirrors, resources, errors, endpoints, nodes, list_errors, events=most_informative(quotes)
    )


def _mirrors(cluster: Cluster, settings: Settings) -> tuple[tuple[RegistryMirror, ...], tuple[Invalid, ...]]:
    if settings.mirrors is not None:
        return settings.mirrors, ()
    return from_cluster(cluster, REGISTRY_MIRRORS, parse_registry_mirror)


def _objects(
    cluster: Cluster, resource: Resource, namespace: str, invalid: list[InvalidObject]
) -> dict[ObjectKey, Object]:
    decode = partial(decode_resource, resource, namespace)
    found, undecoded = complete(cluster.objects, resource, Raw, decode, namespace=namespace)
    invalid += undecoded
    return {**dict(found), **{each.key: placeholder(each.key) for each in undecoded}}


def _events(cluster: Cluster, namespace: str, resources: Mapping[ObjectKey, Object], quotes: Quotes) -> None:
    """Keep quotes of Warning Events about resources of mirrors. Events that cannot be decoded are ignored."""
    reduce = partial(quoted, namespace=namespace)
    for each in cluster.objects(EVENTS, Event, reduce, namespace=namespace, fields=WARNINGS):
        if isinstance(each, InvalidObject) or each.quote.about not in resources:
            continue
        if each.is_of(resources[each.quote.about]):
            keep(quotes, each.quote, each.time)


def _endpoints(
    cluster: Cluster, namespace: str, resources: Mapping[ObjectKey, Object], invalid: list[InvalidObject]
) -> dict[str, Endpoints]:
    reduce = partial(ready, namespace)
    slices, undecoded = complete(cluster.objects, ENDPOINT_SLICES, Slice, reduce, namespace=namespace)
    invalid += undecoded
    return by_service(slices, partial(_is_own, resources, namespace))


def _is_own(resources: Mapping[ObjectKey, Object], namespace: str, service: str, pod: str) -> bool:
    """Return whether the StatefulSet of a Service has a pod of this name."""
    name = service.removesuffix(HEADLESS)
    prefix, _, number = pod.rpartition("-")
    if prefix != name or not number.isdecimal() or number != str(int(number)):
        return False
    return int(number) in ordinals(resources.get(ObjectKey(STATEFUL_SETS.kind, name, namespace)))


def _nodes(cluster: Cluster) -> int:
    """Return the number of Linux nodes; their content is not decoded."""
    nodes, undecoded = complete(cluster.objects, NODES, Raw, len, selector=_LINUX, metadata_only=True)
    return len(nodes) + len(undecoded)
