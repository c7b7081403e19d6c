"""The desired resources of a mirror: what a RegistryMirror defines, as manifests. Pure.

mirror.service.spec.ports[0].port
mirror.stateful_set.spec.template.spec.containers[0].image
[each.key for each in mirror.resources]
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
from msgspec import Struct, structs

from jobs.core.mirror_audit.desired import names
from jobs.core.mirror_audit.desired.manifests import (
    ClaimSpec,
    Manifest,
    Metadata,
    PodSpec,
    PodTemplate,
    ResourceAmounts,
    ServicePort,
    ServiceSpec,
    UpdateStrategy,
    WorkloadSpec,
)
from jobs.core.mirror_audit.desired.pods import node_pod, registry_pod
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, Spec
from jobs.kit.values import stamps
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import (
    CLAIMS,
    DAEMON_SETS,
    REGISTRY_MIRRORS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)

CONFIG_HASH = "kubechores.dev/config-hash"
CREDENTIALS_VERSION = "kubechores.dev/credentials-version"
_ROLLING = "RollingUpdate"


@dataclass(frozen=True)
class Mirror:
    """What a RegistryMirror defines. Its resources are in `namespace`; its DaemonSet is in names.NODE_NAMESPACE.

    `cluster_ip` is the address of its Service, empty while there is none. `credentials_version` is the resourceVersion
    of its Secret.
    """

    registry_mirror: RegistryMirror
    namespace: str
    node_image: str
    cluster_ip: str = ""
    credentials_version: str = ""

    @property
    def spec(self) -> Spec:
        """The spec of its RegistryMirror."""
        return self.registry_mirror.spec

    @property
    def name(self) -> str:
        """The name of its resources, to which some add a suffix."""
        return names.PREFIX + self.registry_mirror.name

    @property
    def image(self) -> str:
        """The image of its registry: spec.image, or the default."""
        return self.spec.image or names.REGISTRY_IMAGE

    @property
    def secret(self) -> ObjectKey:
        """The key of the Secret with its credentials, if its spec names one."""
        return ObjectKey(SECRETS.kind, self.spec.credentials_secret, self.namespace)

    @property
    def resources(self) -> tuple[Manifest, ...]:
        """Its resources, in the order of creation."""
        return (self.service, self.headless_service, self.claim, self.stateful_set, self.daemon_set)

    @cached_property
    def service(self) -> Manifest:
        """The Service from which nodes pull."""
        return self._manifest(SERVICES, self._service_spec())

    @cached_property
    def headless_service(self) -> Manifest:
        """The Service that gives the StatefulSet's pod its DNS name."""
        spec = self._service_spec()
        # The audit also reads from the container cache why a registry is not ready.
        ports = (*spec.ports, _port(names.CACHE_PORT_NAME, names.CACHE_PORT))
        spec = structs.replace(spec, ports=ports, cluster_ip="None", publish_not_ready_addresses=True)
        return self._manifest(SERVICES, spec, names.HEADLESS)

    def _service_spec(self) -> ServiceSpec:
        return ServiceSpec(
            type="ClusterIP",
            selector=self._selector_labels("registry"),
            ports=(_port(names.PORT_NAME, names.PORT),),
            # With other values, nodes get no response, or pull from a pod that is not ready instead of the upstream.
            publish_not_ready_addresses=False,
            internal_traffic_policy="Cluster",
        )

    @cached_property
    def claim(self) -> Manifest:
        """The claim of the cache. It is retained when the RegistryMirror is deleted."""
        storage = self.spec.storage
        spec = ClaimSpec(
            access_modes=("ReadWriteOnce",),
            resources=ResourceAmounts(requests={"storage": storage.size}),
            storage_class_name=storage.storage_class_name or None,
        )
        return self._manifest(CLAIMS, spec, orphans="Retain")

    @cached_property
    def stateful_set(self) -> Manifest:
        """The StatefulSet of the registry. It has one replica: each replica would have a cache of its own."""
        pod = registry_pod(self.spec, self.image, self.node_image, self.claim.metadata.name)
        version = {CREDENTIALS_VERSION: self.credentials_version} if self.credentials_version else {}
        spec = WorkloadSpec(
            replicas=1,
            service_name=self.headless_service.metadata.name,
            # With OrderedReady, a pod with a wrong upstream is never replaced, since it never becomes ready.
            pod_management_policy="Parallel",
            update_strategy=UpdateStrategy(type=_ROLLING, rolling_update={"partition": 0}),
            selector={"matchLabels": self._selector_labels("registry")},
            template=self._template("registry", pod, version),
        )
        return self._manifest(STATEFUL_SETS, spec)

    @cached_property
    def daemon_set(self) -> Manifest:
        """The DaemonSet that configures containerd on each node.

        It configures the Service's IP address, because nodes do not use the cluster's DNS.
        """
        pod = node_pod(self.registry_mirror, self.node_image, self.cluster_ip)
        spec = WorkloadSpec(
            # All pods at once: otherwise one node that does not use the mirror blocks a change on all others. The
            # files on nodes stay meanwhile.
            update_strategy=UpdateStrategy(type=_ROLLING, rolling_update={"maxUnavailable": "100%"}),
            selector={"matchLabels": self._selector_labels("node")},
            template=self._template("node", pod, {}),
        )
        return self._manifest(DAEMON_SETS, spec, "-node")

    def _template(self, component: str, pod: PodSpec, more: Mapping[str, str]) -> PodTemplate:
        labels = {"app.kubernetes.io/name": "registry-mirror", **self._selector_labels(component)}
        configuration = [(each.args, each.env) for each in pod.containers]
        metadata = Metadata(labels=labels, annotations={CONFIG_HASH: _hash(configuration), **more})
        return PodTemplate(metadata=metadata, spec=pod)

    def _selector_labels(self, component: str) -> Mapping[str, str]:
        return {names.MIRROR: self.registry_mirror.name, names.COMPONENT: component}

    def _manifest(self, resource: Resource, spec: Struct, suffix: str = "", orphans: str = "Delete") -> Manifest:
        mirror = self.registry_mirror.name
        source = f"{REGISTRY_MIRRORS.plural}/{mirror}"
        stamp = stamps.stamp(names.NAME, "", mirror, source, f"v1:{_hash(spec)}", orphans)
        metadata = Metadata(
            name=f"{self.name}{suffix}",
            namespace=names.NODE_NAMESPACE if resource is DAEMON_SETS else self.namespace,
            labels={"app.kubernetes.io/name": "registry-mirror", names.MIRROR: mirror, **stamp.labels},
            annotations=stamp.annotations,
        )
        return Manifest(resource, metadata, spec)


def _port(name: str, number: int) -> ServicePort:
    return ServicePort(name=name, port=number, target_port=name, protocol="TCP")


def _hash(what: object) -> str:
    return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]
