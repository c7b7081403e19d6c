"""Typed manifests of a mirror's resources, with exactly the fields that kube-chores sets.

The server sets defaults for all other fields, and users can set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import Struct, field

from jobs.core.mirror_audit.registry_mirrors import Toleration
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS, Resource

Labels = Mapping[str, str]


class _Part(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a manifest. A field that has its default value is not sent."""


class Metadata(_Part, frozen=True):
    """ObjectMeta."""

    name: str
    namespace: str
    labels: Labels
    annotations: Labels


class Manifest(_Part, frozen=True):
    """A desired object; https://kubernetes.io/docs/reference/kubernetes-api/ documents the fields."""

    resource: ClassVar[Resource]
    metadata: Metadata

    @property
    def key(self) -> ObjectKey:
        """Its kind, name and namespace."""
        return ObjectKey(self.resource.kind, self.metadata.name, self.metadata.namespace)

    def body(self) -> dict[str, Any]:
        """Return it as plain data without apiVersion and kind, like an item of a list."""
        body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return body

    def document(self) -> dict[str, Any]:
        """Return it as plain data with apiVersion and kind: the body of a server-side apply."""
        return {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **self.body()}


class ServicePort(_Part, frozen=True):
    """A port of a Service."""

    name: str
    port: int
    target_port: str
    protocol: str


class ServiceSpec(_Part, frozen=True):
    """The spec of a Service."""

    type: str
    selector: Labels
    ports: tuple[ServicePort, ...]
    cluster_ip: str | None = field(name="clusterIP", default=None)
    publish_not_ready_addresses: bool | None = None
    internal_traffic_policy: str | None = None


class Service(Manifest, frozen=True):
    """A Service."""

    resource = SERVICES
    spec: ServiceSpec


class VolumeResources(_Part, frozen=True):
    """The storage that a claim requests."""

    requests: Mapping[str, str]


class ClaimSpec(_Part, frozen=True):
    """The spec of a claim."""

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
    """The source of an environment variable's value."""

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
    """The Linux capabilities that a container drops."""

    drop: tuple[str, ...]


class SeccompProfile(_Part, frozen=True):
    """The seccomp profile of a pod's containers."""

    type: str


class SecurityContext(_Part, frozen=True):
    """The security context of a container."""

    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Capabilities


class PodSecurityContext(_Part, frozen=True):
    """The security context of a pod: the users and groups of its containers."""

    run_as_user: int
    run_as_group: int
    seccomp_profile: SeccompProfile
    run_as_non_root: bool | None = None
    fs_group: int | None = None


class HttpGet(_Part, frozen=True):
    """The HTTP request of a probe."""

    path: str
    port: str


class Exec(_Part, frozen=True):
    """The command of a probe."""

    command: tuple[str, ...]


class Probe(_Part, frozen=True):
    """A startup, readiness or liveness probe."""

    period_seconds: int
    timeout_seconds: int
    failure_threshold: int
    termination_grace_period_seconds: int | None = None
    http_get: HttpGet | None = None
    exec: Exec | None = None


class ResourceAmounts(_Part, frozen=True):
    """The resource requests and limits of a container."""

    requests: Mapping[str, str | int]
    limits: Mapping[str, str | int]


class VolumeMount(_Part, frozen=True):
    """The path at which a container mounts a volume."""

    name: str
    mount_path: str
    sub_path: str | None = None
    read_only: bool | None = None


class Container(_Part, frozen=True):
    """A container of a pod."""

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
    """A volume from a PersistentVolumeClaim."""

    claim_name: str


class HostPath(_Part, frozen=True):
    """A volume that is a directory of the node."""

    path: str
    type: str


class Volume(_Part, frozen=True):
    """A volume of a pod."""

    name: str
    persistent_volume_claim: ClaimVolume | None = None
    host_path: HostPath | None = None


class PodSpec(_Part, frozen=True):
    """The spec of a pod."""

    automount_service_account_token: bool
    enable_service_links: bool
    termination_grace_period_seconds: int
    node_selector: Labels
    security_context: PodSecurityContext
    containers: tuple[Container, ...]
    volumes: tuple[Volume, ...]
    tolerations: tuple[Toleration, ...] = ()


class PodMetadata(_Part, frozen=True):
    """The metadata of a pod template."""

    labels: Labels
    annotations: Labels


class PodTemplate(_Part, frozen=True):
    """The pod template of a workload."""

    metadata: PodMetadata
    spec: PodSpec


class Selector(_Part, frozen=True):
    """The labels by which a workload selects its pods."""

    match_labels: Labels


class RollingUpdate(_Part, frozen=True):
    """The parameters of a rolling update: `partition` of a StatefulSet, `max_unavailable` of a DaemonSet."""

    partition: int | None = None
    max_unavailable: str | None = None


class UpdateStrategy(_Part, frozen=True):
    """The update strategy of a workload."""

    type: str
    rolling_update: RollingUpdate | None = None


class StatefulSetSpec(_Part, frozen=True):
    """The spec of a StatefulSet."""

    replicas: int
    service_name: str
    pod_management_policy: str
    update_strategy: UpdateStrategy
    selector: Selector
    template: PodTemplate


class StatefulSet(Manifest, frozen=True):
    """A StatefulSet."""

    resource = STATEFUL_SETS
    spec: StatefulSetSpec


class DaemonSetSpec(_Part, frozen=True):
    """The spec of a DaemonSet."""

    update_strategy: UpdateStrategy
    selector: Selector
    template: PodTemplate


class DaemonSet(Manifest, frozen=True):
    """A DaemonSet."""

    resource = DAEMON_SETS
    spec: DaemonSetSpec
