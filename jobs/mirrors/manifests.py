"""Manifests of the kinds that a mirror consists of, typed, with the fields that we set and no others.

What is not named here is the server's to default and everybody's to set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from jobs.kit.model import ObjectKey
from jobs.kit.objects import Resource
from jobs.mirrors.registry_mirrors import Toleration

SERVICES = Resource("v1", "Service", "services")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
DAEMON_SETS = Resource("apps/v1", "DaemonSet", "daemonsets")

Labels = Mapping[str, str]


class _Part(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a manifest: what is left at its default is not set."""


class Metadata(_Part, frozen=True):
    """ObjectMeta."""

    name: str
    namespace: str
    labels: Labels
    annotations: Labels


class Manifest(_Part, frozen=True):
    """An object as it should be: https://kubernetes.io/docs/reference/kubernetes-api/ has the fields."""

    resource: ClassVar[Resource]
    metadata: Metadata

    @property
    def key(self) -> ObjectKey:
        """Which object it is."""
        return ObjectKey(self.resource.kind, self.metadata.name, self.metadata.namespace)

    def body(self) -> dict[str, Any]:
        """Return it as plain data, as an item of a list is: without the kind."""
        body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return body

    def document(self) -> dict[str, Any]:
        """Return it as plain data, whole: what a server-side apply sends."""
        return {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **self.body()}


class ServicePort(_Part, frozen=True):
    """A port of a Service."""

    name: str
    port: int
    target_port: str
    protocol: str


class ServiceSpec(_Part, frozen=True):
    """What a Service is to be."""

    type: str
    selector: Labels
    ports: tuple[ServicePort, ...]
    cluster_ip: str | None = field(name="clusterIP", default=None)
    publish_not_ready_addresses: bool | None = None
    internal_traffic_policy: str | None = None


class Service(Manifest, frozen=True):
    """A name and an address for pods."""

    resource = SERVICES
    spec: ServiceSpec


class VolumeResources(_Part, frozen=True):
    """How much a claim asks for."""

    requests: Mapping[str, str]


class ClaimSpec(_Part, frozen=True):
    """What a claim is to be."""

    access_modes: tuple[str, ...]
    resources: VolumeResources
    storage_class_name: str | None = None


class Claim(Manifest, frozen=True):
    """A PersistentVolumeClaim."""

    resource = CLAIMS
    spec: ClaimSpec


class SecretKey(_Part, frozen=True):
    """A key of a Secret."""

    name: str
    key: str


class EnvSource(_Part, frozen=True):
    """Where a variable's value comes from."""

    secret_key_ref: SecretKey


class Env(_Part, frozen=True):
    """An environment variable."""

    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class ContainerPort(_Part, frozen=True):
    """A port that a container listens on."""

    name: str
    container_port: int
    protocol: str


class Capabilities(_Part, frozen=True):
    """What root may do."""

    drop: tuple[str, ...]


class SeccompProfile(_Part, frozen=True):
    """Which system calls there are."""

    type: str


class SecurityContext(_Part, frozen=True):
    """What a container may do."""

    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Capabilities


class PodSecurityContext(_Part, frozen=True):
    """As whom containers run."""

    run_as_user: int
    run_as_group: int
    seccomp_profile: SeccompProfile
    run_as_non_root: bool | None = None
    fs_group: int | None = None


class HttpGet(_Part, frozen=True):
    """A request of a probe."""

    path: str
    port: str


class Exec(_Part, frozen=True):
    """A command of a probe."""

    command: tuple[str, ...]


class Probe(_Part, frozen=True):
    """How to know that a container is well."""

    period_seconds: int
    timeout_seconds: int
    failure_threshold: int
    termination_grace_period_seconds: int | None = None
    http_get: HttpGet | None = None
    exec: Exec | None = None


class ResourceAmounts(_Part, frozen=True):
    """What a container asks for and may have."""

    requests: Mapping[str, str | int]
    limits: Mapping[str, str | int]


class VolumeMount(_Part, frozen=True):
    """Where a container sees a volume."""

    name: str
    mount_path: str
    sub_path: str | None = None
    read_only: bool | None = None


class Container(_Part, frozen=True):
    """A container."""

    name: str
    image: str
    resources: ResourceAmounts
    security_context: SecurityContext
    volume_mounts: tuple[VolumeMount, ...]
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None
    args: tuple[str, ...] = ()
    env: tuple[Env, ...] = ()
    ports: tuple[ContainerPort, ...] = ()


class ClaimVolume(_Part, frozen=True):
    """A volume that is a claim."""

    claim_name: str


class HostPath(_Part, frozen=True):
    """A volume that is a folder of the node."""

    path: str
    type: str


class Volume(_Part, frozen=True):
    """A volume of a pod."""

    name: str
    persistent_volume_claim: ClaimVolume | None = None
    host_path: HostPath | None = None


class PodSpec(_Part, frozen=True):
    """A pod."""

    automount_service_account_token: bool
    enable_service_links: bool
    termination_grace_period_seconds: int
    node_selector: Labels
    security_context: PodSecurityContext
    containers: tuple[Container, ...]
    volumes: tuple[Volume, ...]
    tolerations: tuple[Toleration, ...] = ()


class PodMetadata(_Part, frozen=True):
    """Labels and annotations of pods."""

    labels: Labels
    annotations: Labels


class PodTemplate(_Part, frozen=True):
    """The pods of a workload."""

    metadata: PodMetadata
    spec: PodSpec


class Selector(_Part, frozen=True):
    """Which pods are a workload's."""

    match_labels: Labels


class RollingUpdate(_Part, frozen=True):
    """Which pods of a StatefulSet are replaced, how many of a DaemonSet at a time."""

    partition: int | None = None
    max_unavailable: str | None = None


class UpdateStrategy(_Part, frozen=True):
    """When a workload replaces its pods."""

    type: str
    rolling_update: RollingUpdate | None = None


class StatefulSetSpec(_Part, frozen=True):
    """What a StatefulSet is to be."""

    replicas: int
    service_name: str
    pod_management_policy: str
    update_strategy: UpdateStrategy
    selector: Selector
    template: PodTemplate


class StatefulSet(Manifest, frozen=True):
    """Pods with names of their own."""

    resource = STATEFUL_SETS
    spec: StatefulSetSpec


class DaemonSetSpec(_Part, frozen=True):
    """What a DaemonSet is to be."""

    update_strategy: UpdateStrategy
    selector: Selector
    template: PodTemplate


class DaemonSet(Manifest, frozen=True):
    """A pod on each node."""

    resource = DAEMON_SETS
    spec: DaemonSetSpec
