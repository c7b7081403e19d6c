"""The desired resources of a mirror: what a RegistryMirror defines, as manifests. Pure.

They have exactly the fields that kube-chores sets: the server sets defaults for all others, and users can set them.
The order of fields is part of the fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from jobs.core.mirror_audit.desired.names import (
    CACHE_PORT,
    CACHE_PORT_NAME,
    COMPONENT,
    HEADLESS,
    MIRROR,
    NAME,
    NODE_NAMESPACE,
    PORT,
    PORT_NAME,
    PREFIX,
    REGISTRY_IMAGE,
)
from jobs.core.mirror_audit.desired.pods import Part, node_pod, registry_pod
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
_NAME_LABEL = {"app.kubernetes.io/name": "registry-mirror"}


@dataclass(frozen=True)
class Manifest:
    """A desired object. `body` is its content without apiVersion and kind, like an item of a list."""

    resource: Resource
    body: Mapping[str, Any]

    @property
    def key(self) -> ObjectKey:
        """Its kind, name and namespace."""
        return ObjectKey(self.resource.kind, self.name, self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    def document(self) -> dict[str, Any]:
        """Return a copy of its whole content: the body of a server-side apply."""
        return {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **deepcopy(dict(self.body))}


@dataclass(frozen=True)
class Mirror:
    """What a RegistryMirror defines. Its resources are in `namespace`; its DaemonSet is in NODE_NAMESPACE.

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
        return PREFIX + self.registry_mirror.name

    @property
    def image(self) -> str:
        """The image of its registry: spec.image, or the default."""
        return self.spec.image or REGISTRY_IMAGE

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
        # With other values, nodes get no response, or pull from a pod that is not ready instead of the upstream.
        fields = {"publishNotReadyAddresses": False, "internalTrafficPolicy": "Cluster"}
        return self._manifest(SERVICES, self._service_spec([_port(PORT_NAME, PORT)]) | fields)

    @cached_property
    def headless_service(self) -> Manifest:
        """The Service that gives the StatefulSet's pod its DNS name."""
        # The audit also reads from the container cache why a registry is not ready.
        ports = [_port(PORT_NAME, PORT), _port(CACHE_PORT_NAME, CACHE_PORT)]
        fields = {"clusterIP": "None", "publishNotReadyAddresses": True, "internalTrafficPolicy": "Cluster"}
        return self._manifest(SERVICES, self._service_spec(ports) | fields, HEADLESS)

    def _service_spec(self, ports: list[Part]) -> Part:
        return {"type": "ClusterIP", "selector": self._selector_labels("registry"), "ports": ports}

    @cached_property
    def claim(self) -> Manifest:
        """The claim of the cache. It is retained when the RegistryMirror is deleted."""
        storage = self.spec.storage
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage.size}},
            **({"storageClassName": storage.storage_class_name} if storage.storage_class_name else {}),
        }
        return self._manifest(CLAIMS, spec, orphans="Retain")

    @cached_property
    def stateful_set(self) -> Manifest:
        """The StatefulSet of the registry. It has one replica: each replica would have a cache of its own."""
        pod = registry_pod(self.spec, self.image, self.node_image, self.claim.name)
        version = {CREDENTIALS_VERSION: self.credentials_version} if self.credentials_version else {}
        spec = {
            "replicas": 1,
            "serviceName": self.headless_service.name,
            # With OrderedReady, a pod with a wrong upstream is never replaced, since it never becomes ready.
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "selector": {"matchLabels": self._selector_labels("registry")},
            "template": self._template("registry", pod, version),
        }
        return self._manifest(STATEFUL_SETS, spec)

    @cached_property
    def daemon_set(self) -> Manifest:
        """The DaemonSet that configures containerd on each node.

        It configures the Service's IP address, because nodes do not use the cluster's DNS.
        """
        pod = node_pod(self.registry_mirror, self.node_image, self.cluster_ip)
        spec = {
            # All pods at once: otherwise one node that does not use the mirror blocks a change on all others. The
            # files on nodes stay meanwhile.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "selector": {"matchLabels": self._selector_labels("node")},
            "template": self._template("node", pod, {}),
        }
        return self._manifest(DAEMON_SETS, spec, "-node")

    def _template(self, component: str, pod: Part, more: Mapping[str, str]) -> Part:
        configuration = [(each.get("args", ()), each.get("env", ())) for each in pod["containers"]]
        metadata = {
            "labels": dict(sorted((_NAME_LABEL | self._selector_labels(component)).items())),
            "annotations": {CONFIG_HASH: _hash(configuration), **more},
        }
        return {"metadata": metadata, "spec": pod}

    def _selector_labels(self, component: str) -> dict[str, str]:
        return {COMPONENT: component, MIRROR: self.registry_mirror.name}

    def _manifest(self, resource: Resource, spec: Part, suffix: str = "", orphans: str = "Delete") -> Manifest:
        mirror = self.registry_mirror.name
        source = f"{REGISTRY_MIRRORS.plural}/{mirror}"
        stamp = stamps.stamp(NAME, "", mirror, source, f"v1:{_hash(spec)}", orphans)
        metadata = {
            "name": f"{self.name}{suffix}",
            "namespace": NODE_NAMESPACE if resource is DAEMON_SETS else self.namespace,
            "labels": {**_NAME_LABEL, MIRROR: mirror, **stamp.labels},
            "annotations": stamp.annotations,
        }
        return Manifest(resource, {"metadata": metadata, "spec": spec})


def _port(name: str, number: int) -> Part:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}


def _hash(what: object) -> str:
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:16]
