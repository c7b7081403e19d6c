"""Read the resources of mirrors, then the RegistryMirrors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from jobs.core.mirror_audit.actual import (
    WARNINGS,
    Event,
    Object,
    Pod,
    Quotes,
    Slice,
    by_service,
    decode_resource,
    is_working,
    keep,
    most_informative,
    ordinals,
    placeholder,
    pods,
    quoted,
    ready,
    without_obsolete,
)
from jobs.core.mirror_audit.desired import HEADLESS, NODE_NAMESPACE
from jobs.core.mirror_audit.observed import RESOURCE_KINDS, Observed, Settings
from jobs.core.mirror_audit.registry_mirrors import parse_registry_mirror
from jobs.kit.api.cluster import Cluster, List, retry_if_expired
from jobs.kit.api.custom_resources import from_cluster
from jobs.kit.api.responses import error_of
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Invalid, InvalidObject, ReadResult, decode
from jobs.kit.values.resources import (
    CLAIMS,
    CRON_JOBS,
    DAEMON_SETS,
    ENDPOINT_SLICES,
    EVENTS,
    NODES,
    PODS,
    REGISTRY_MIRRORS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)

if TYPE_CHECKING:
    from jobs.core.mirror_audit.image_uses import Images

_MOST_INVALID = 10  # of pods, and of CronJobs, that are reported
_LINUX = "kubernetes.io/os=linux"


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read the resources, then the RegistryMirrors.

    In this order, a resource that an overlapping run creates meanwhile is never an orphan. Each kind of resource is
    read after those that a repair deletes only when it no longer exists.

    Raises:
        ConfigurationError: the CRD is missing.
        ApiError: the list of RegistryMirrors failed; without it there is no audit.
    """
    here, lists = settings.namespace, _Lists(cluster)
    nodes = List(NODES, Raw, len, selector=_LINUX, metadata_only=True)  # their content is not decoded
    found = lists.read(_resources(SERVICES, here), _resources(CLAIMS, here), nodes)
    found |= lists.read(_resources(STATEFUL_SETS, here))
    slices = List(ENDPOINT_SLICES, Slice, partial(ready, here), here, large=True)
    # Both namespaces: earlier versions created DaemonSets in that of the registries.
    found |= lists.read(_resources(DAEMON_SETS, here), _resources(DAEMON_SETS, NODE_NAMESPACE), slices)
    resources: dict[ObjectKey, Object] = dict(pair for each in RESOURCE_KINDS for pair in found[each.kind])
    kinds = {each.kind for each in RESOURCE_KINDS}
    resources |= {each.key: placeholder(each.key) for each in lists.invalid if each.key.kind in kinds}
    quotes: Quotes = {}
    if not all(is_working(key.kind, each) for key, each in resources.items()):
        for namespace in (here, NODE_NAMESPACE):
            try:
                retry_if_expired(partial(_events, cluster, namespace, resources, quotes))
            except ApiError as error:
                lists.errors[EVENTS.kind] = error
        quotes = without_obsolete(quotes, lists.pods(pods(quotes)))
    images = _images(cluster, lists) if settings.images else None
    endpoints = by_service(found[ENDPOINT_SLICES.kind], partial(is_own, resources, here))
    invalid_mirrors: tuple[Invalid, ...] = ()
    if (mirrors := settings.mirrors) is None:
        mirrors, invalid_mirrors, *_ = from_cluster(cluster, REGISTRY_MIRRORS, parse_registry_mirror)
    return Observed(
        mirrors,
        invalid_mirrors,
        resources,
        {each.key: each.error for each in lists.invalid},
        endpoints,
        len(found[NODES.kind]),
        lists.errors,
        events=most_informative(quotes),
        images=images,
    )


class _Lists:
    """Lists objects, several kinds at once; collects the error of each kind that failed, and undecoded objects."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.errors: dict[str, ApiError] = {}
        self.invalid: list[InvalidObject] = []

    def read(self, *requested: List) -> dict[str, list[Any]]:
        """Return the decoded objects by kind."""
        found: dict[str, list[Any]] = {each.resource.kind: [] for each in requested}
        for kind, objects in self.cluster.lists(each._replace(tag=each.resource.kind) for each in requested):
            if isinstance(objects, ApiError):
                self.errors[kind] = objects
                continue
            for each in objects:
                (self.invalid if isinstance(each, InvalidObject) else found[kind]).append(each)
        return found

    def pods(self, keys: Iterable[ObjectKey]) -> dict[ObjectKey, Pod | None]:
        """Return the pods, None for one that does not exist, without those that cannot be read."""
        found: dict[ObjectKey, Pod | None] = {}
        for response in self.cluster.read((PODS, key.namespace, key.name, True) for key in keys):
            _, namespace, name, _ = response.request.tag
            pod = ReadResult(response.body, error_of(response)).reduced_if_exists(partial(decode, kind=Pod))
            if isinstance(pod, ApiError):
                self.errors[PODS.kind] = pod
            else:
                found[ObjectKey(PODS.kind, name, namespace)] = pod
        return found


def _resources(resource: Resource, namespace: str) -> List:
    return List(resource, Raw, partial(decode_resource, resource, namespace), namespace, large=True)


def _events(cluster: Cluster, namespace: str, resources: Mapping[ObjectKey, Object], quotes: Quotes) -> None:
    """Keep quotes of Warning Events about resources of mirrors. Events that cannot be decoded are ignored."""
    reduce = partial(quoted, namespace=namespace)
    for each in cluster.objects(EVENTS, Event, reduce, namespace=namespace, fields=WARNINGS):
        if isinstance(each, InvalidObject) or each.quote.about not in resources:
            continue
        if each.is_of(resources[each.quote.about]):
            keep(quotes, each.quote, each.event)


def _images(cluster: Cluster, lists: _Lists) -> Images | None:
    """Return the images of pods and CronJobs; None if a list failed: the images of the other are not all."""
    from jobs.core.mirror_audit.image_uses import CronJobObject, Images, PodObject

    of: list[Resource] = []

    def read() -> Images:
        images, invalid = Images(), []
        listed: tuple[tuple[Resource, type[Any], Callable[[Any], None]], ...] = (
            (PODS, PodObject, images.add_pod),
            (CRON_JOBS, CronJobObject, images.add_cron_job),
        )
        for resource, form, add in listed:
            of.append(resource)
            # Not compressed: they are objects of several tenants.
            found = cluster.objects(resource, form, add, compressed=False)
            invalid += [each for each in found if isinstance(each, InvalidObject)][:_MOST_INVALID]
        lists.invalid += invalid
        return images

    try:
        return retry_if_expired(read)
    except ApiError as error:
        lists.errors[of[-1].kind] = error
        return None


def is_own(resources: Mapping[ObjectKey, Object], namespace: str, service: str, pod: str) -> bool:
    """Return whether the StatefulSet of a Service has a pod of this name."""
    name = service.removesuffix(HEADLESS)
    prefix, _, number = pod.rpartition("-")
    if prefix != name or not number.isdecimal() or number != str(int(number)):
        return False
    return int(number) in ordinals(resources.get(ObjectKey(STATEFUL_SETS.kind, name, namespace)))
