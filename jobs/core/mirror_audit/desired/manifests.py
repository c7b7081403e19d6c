"""Typed manifests of a mirror's resources, with exactly the fields that kube-chores sets.

The server sets defaults for all other fields, and users can set them. The order of fields is part of the fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct, field

from jobs.core.mirror_audit.registry_mirrors import Amounts, Toleration
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import Resource

Labels = Mapping[str, str]


class _Part(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a manifest. A field that has its default value is not sent."""


class Metadata(_Part, frozen=True, kw_only=True):
    """ObjectMeta. That of a pod template has no name."""

    name: str = ""
    namespace: str = ""
    labels: Labels
    annotations: Labels


@dataclass(frozen=True)
class Manifest:
    """A desired object. `spec` is one of the structs below.

    https://kubernetes.io/docs/reference/kubernetes-api/ documents the fields.
    """

    resource: Resource
    metadata: Metadata
    spec: Any

    @property
    def key(self) -> ObjectKey:
        """Its kind, name and namespace."""
        return ObjectKey(self.resource.kind, self.metadata.name, self.metadata.namespace)

    def body(self) -> dict[str, Any]:
        """Return it as plain data without apiVersion and kind, like an item of a list."""
        content = {"metadata": self.metadata, "spec": self.spec}
        body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(content))
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


class ResourceAmounts(_Part, frozen=True):
    """The resource requests and limits of a container, or the storage that a claim requests."""

    requests: Amounts
    limits: Amounts = field(default_factory=dict)


class ClaimSpec(_Part, frozen=True):
    """The spec of a claim."""

    access_modes: tuple[str, ...]
    resources: ResourceAmounts
    storage_class_name: str | None = None


class SecretKey(_Part, frozen=True):
    """A key of a Secret."""

    name: str
    key: str


class Env(_Part, frozen=True):
    """An environment variable."""

    name: str
    value: str | None = None
    value_from: Mapping[str, SecretKey] | None = None


class ContainerPort(_Part, frozen=True):
    """A port that a container listens on."""

    name: str
    container_port: int
    protocol: str


class SecurityContext(_Part, frozen=True):
    """The security context of a container."""

    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Mapping[str, tuple[str, ...]]


class PodSecurityContext(_Part, frozen=True):
    """The security context of a pod: the users and groups of its containers."""

    run_as_user: int
    run_as_group: int
    seccomp_profile: Labels
    run_as_non_root: bool | None = None
    fs_group: int | None = None


class Probe(_Part, frozen=True):
    """A startup, readiness or liveness probe."""

    period_seconds: int
    timeout_seconds: int
    failure_threshold: int
    termination_grace_period_seconds: int | None = None
    http_get: Labels | None = None
    exec: Mapping[str, tuple[str, ...]] | None = None


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


class Volume(_Part, frozen=True):
    """A volume of a pod."""

    name: str
    persistent_volume_claim: Labels | None = None
    host_path: Labels | None = None
    empty_dir: Labels | None = None


class PodSpec(_Part, frozen=True):
    """The spec of a pod."""

    automount_service_account_token: bool
    enable_service_links: bool
    termination_grace_period_seconds: int
    node_selector: Labels
    security_context: PodSecurityContext
    containers: tuple[Container, ...]
    volumes: tuple[Volume, ...]
    priority_class_name: str = ""
    tolerations: tuple[Toleration, ...] = ()


class PodTemplate(_Part, frozen=True):
    """The pod template of a workload."""

    metadata: Metadata
    spec: PodSpec


class UpdateStrategy(_Part, frozen=True):
    """The update strategy of a workload."""

    type: str
    rolling_update: Mapping[str, str | int]


class WorkloadSpec(_Part, frozen=True, kw_only=True):
    """The spec of a StatefulSet or DaemonSet. Only a StatefulSet has the first three fields."""

    replicas: int | None = None
    service_name: str | None = None
    pod_management_policy: str | None = None
    update_strategy: UpdateStrategy
    selector: Mapping[str, Labels]
    template: PodTemplate
