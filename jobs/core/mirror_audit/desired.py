"""The desired resources of a mirror: what a RegistryMirror defines, as manifests. Pure.

They have exactly the fields that kube-chores sets: the server sets defaults for all others, and users can set them.
The order of fields is part of the fingerprint.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from jobs import __version__
from jobs.core.mirror_audit.registry_mirrors import (
    PASSWORD,
    USERNAME,
    Amounts,
    RegistryMirror,
    Resources,
    Spec,
    Toleration,
    quantity,
)
from jobs.core.mirror_node.hosts import CERTS
from jobs.core.mirror_node.hosts import FOLDER as CONTAINERD
from jobs.kit.values import stamps
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, REGISTRY_MIRRORS, SECRETS, SERVICES, STATEFUL_SETS, Resource

# names, labels, ports and images

NAME = "mirror-audit"
# DaemonSets mount a folder of the node. The namespace of the registries does not allow such mounts.
NODE_NAMESPACE = "kube-chores-nodes"
REGISTRY_IMAGE = "docker.io/library/registry:3"
NODE_IMAGE = f"kube-chores:{__version__}"
PRIORITY_CLASS = "kube-chores-mirrors"
MIRROR = "kubechores.dev/mirror"
COMPONENT = "app.kubernetes.io/component"
PORT = 5000
PORT_NAME = "registry"
CACHE_PORT = 5001
CACHE_PORT_NAME = "cache"
# Each pod of a StatefulSet has the label value NAME-HASH, with a hash of ten characters. A label value has at most 63.
# https://github.com/kubernetes/kubernetes/issues/64023
MOST_CHARACTERS = 52
PREFIX, HEADLESS = "registry-mirror-", "-headless"
_PINNED = re.compile(r"[^@]*(:(?!latest$)[^:/@]+|@[^@]+)")


def name_problem(name: str) -> str:
    """Return why a mirror of this name cannot have resources, or an empty string."""
    if "." in name:
        return "contains dots, which are not valid in the name of a Service"
    if name.endswith(HEADLESS):
        return f"ends in {HEADLESS}, like the name of the second Service of another mirror"
    longest = MOST_CHARACTERS - len(PREFIX)
    if len(name) > longest:
        return f"has {len(name)} characters; at most {longest} fit in the names of its pods"
    return ""


def registry_of(image: str) -> str:
    """Return the host from which nodes pull an image: the first part of its name, or docker.io.

    https://github.com/distribution/reference/blob/main/normalize.go
    """
    host, slash, _ = image.partition("/")
    return host if slash and (host == "localhost" or set(host) & {".", ":"}) else "docker.io"


def is_pinned(image: str) -> bool:
    """Return whether an image has a digest, or a tag other than `latest`."""
    return _PINNED.fullmatch(image) is not None


# the pods: the registry with its cache, and the pod that configures containerd on each node

Part = dict[str, Any]

_NOBODY = 65532
_RUNTIME_DEFAULT = {"type": "RuntimeDefault"}
_VOLUME = "/var/lib/registry"
_NODE_CONTAINERD = "/node/etc/containerd"  # where a pod mounts the node's configuration of containerd
_STATE = "/run/kube-chores"
_PROBLEMS = f"{_STATE}/problems"  # what mirror-node could not do at its last check; probes read it
_EVERYTHING = (Toleration(operator="Exists"),)
# Only logs use the node's storage: the cache is in a claim, and the root filesystem is read-only. A registry logs each
# request. kubelet keeps five log files for each container, of 10 MiB each, or of 50 MiB in some managed clusters.
# https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation
_STORAGE = "ephemeral-storage"
_REQUESTS: Amounts = {"cpu": "50m", _STORAGE: "64Mi", "memory": "128Mi"}
_LIMITS: Amounts = {_STORAGE: "512Mi", "memory": "512Mi"}
# mirror-node logs changes only.
_NODE_RESOURCES = {
    "requests": {"cpu": "5m", _STORAGE: "10Mi", "memory": "48Mi"},
    "limits": {_STORAGE: "64Mi", "memory": "96Mi"},
}
# mirror-cache uses 25 MiB for Python, and 60 MiB in addition while it decodes 16 MiB of the scheduler's state.
_CACHE_RESOURCES = {
    "requests": {"cpu": "10m", _STORAGE: "10Mi", "memory": "48Mi"},
    "limits": {_STORAGE: "64Mi", "memory": "128Mi"},
}
# mirror-node checks every 30 seconds. A hung one does not.
_IS_RECENT = (
    f"test $(($(date +%s) - $(stat -c %Y {_PROBLEMS}))) -lt 120 || {{ echo no check for 2 minutes or more; false; }}"
)


def registry_pod(spec: Spec, image: str, node_image: str, claim: str) -> Part:
    """Return the pod of a registry, which stores its cache in the volume of a claim."""
    security = {
        "runAsUser": _NOBODY,
        "runAsGroup": _NOBODY,
        "seccompProfile": _RUNTIME_DEFAULT,
        "runAsNonRoot": True,
        "fsGroup": _NOBODY,
    }
    cache = {"name": "cache", "persistentVolumeClaim": {"claimName": claim}}
    # The registry is the first container: kubectl logs prints the log of the first one.
    containers = [_registry_container(spec, image), _cache_container(spec, node_image)]
    return _pod(spec, containers, [cache], security, spec.registry_tolerations)


def _registry_container(spec: Spec, image: str) -> Part:
    request = {"httpGet": {"path": "/v2/", "port": PORT_NAME}}
    return {
        **_container("registry", image, _amounts(spec.resources), [{"name": "cache", "mountPath": _VOLUME}]),
        "readinessProbe": _probe(2, 3, 3) | request,
        # kubelet pulls one image at a time, so a registry that hangs stops all pulls of the node. This probe ends
        # it within 30 seconds: after four failures in a row, and the grace period. A registry that is slow only
        # for a moment is not killed.
        "livenessProbe": _probe(5, 5, 4) | {"terminationGracePeriodSeconds": 5} | request,
        # A registry contacts its upstream when it starts, for up to 5 minutes.
        "startupProbe": _probe(2, 2, 150) | request,
        "env": _registry_env(spec),
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
    }


def _cache_container(spec: Spec, image: str) -> Part:
    """Return the container that watches the volume.

    It has a readiness probe only with fallback Upstream: only then can nodes pull while the pod is not ready.
    """
    # Every second, because nodes start pulls for which there is no room until the pod is not ready.
    ready = _probe(1, 3, 1) | {"httpGet": {"path": "/ready", "port": CACHE_PORT_NAME}}
    alive = {"httpGet": {"path": "/", "port": CACHE_PORT_NAME}}
    return {
        **_container("cache", image, _CACHE_RESOURCES, [{"name": "cache", "mountPath": _VOLUME}]),
        **({"readinessProbe": ready} if spec.fallback == "Upstream" else {}),
        "livenessProbe": _probe(20, 10, 3) | {"terminationGracePeriodSeconds": 5} | alive,
        "args": ["mirror-cache", f"--upstream={_folder(spec)}", f"--ttl={spec.ttl}"],
        "ports": [{"name": CACHE_PORT_NAME, "containerPort": CACHE_PORT, "protocol": "TCP"}],
    }


def _folder(spec: Spec) -> str:
    """Return the folder of the upstream on the volume: images of an earlier upstream are not served for this one."""
    return spec.upstream.replace(":", "_")


def _registry_env(spec: Spec) -> list[Part]:
    """Return the settings of the registry.

    https://distribution.github.io/distribution/about/configuration/
    """
    settings: dict[str, Part] = {
        "OTEL_TRACES_EXPORTER": {"value": "none"},  # otherwise it logs errors that there is no collector on localhost
        "REGISTRY_HTTP_ADDR": {"value": f":{PORT}"},
        # Some images serve memory profiles there, and the memory contains the login. Without a value nothing listens.
        "REGISTRY_HTTP_DEBUG_ADDR": {},
        "REGISTRY_PROXY_REMOTEURL": {"value": f"https://{spec.upstream}"},
        "REGISTRY_PROXY_TTL": {"value": spec.ttl},
        "REGISTRY_STORAGE_DELETE_ENABLED": {"value": "true"},  # otherwise nothing is ever deleted, whatever the ttl
        # With descriptors in memory, the registry answers 200 without content for a blob that was removed:
        # https://github.com/distribution/distribution/issues/2367
        "REGISTRY_STORAGE_CACHE_BLOBDESCRIPTOR": {"value": "none"},
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": {"value": f"{_VOLUME}/{_folder(spec)}"},
    }
    if secret := spec.credentials_secret:
        for name, key in (("REGISTRY_PROXY_USERNAME", USERNAME), ("REGISTRY_PROXY_PASSWORD", PASSWORD)):
            settings[name] = {"valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
    return [{"name": name, **value} for name, value in sorted(settings.items())]


def node_pod(registry_mirror: RegistryMirror, image: str, cluster_ip: str) -> Part:
    """Return the pod that configures containerd on a node, with the address of the mirror's Service."""
    spec = registry_mirror.spec
    security = {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": _RUNTIME_DEFAULT}  # root owns the folder
    # The folders, not the file: a runtime creates a folder if the file to mount does not exist.
    volumes = [
        {"name": "certs", "hostPath": {"path": CERTS, "type": "DirectoryOrCreate"}},
        {"name": "containerd", "hostPath": {"path": CONTAINERD, "type": "DirectoryOrCreate"}},
        {"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    ]
    address = f"[{cluster_ip}]" if ":" in cluster_ip else cluster_ip
    args = [
        "mirror-node",
        f"--name={registry_mirror.name}",
        f"--host={spec.host}",
        f"--mirror=http://{address}:{PORT}",
        *([f"--upstream=https://{spec.upstream}"] if spec.fallback == "Upstream" else []),
        f"--containerd-dir={_NODE_CONTAINERD}",
        f"--state={_PROBLEMS}",
    ]
    tolerations = _EVERYTHING if spec.tolerations is None else spec.tolerations
    return _pod(spec, [_node_container(spec.host, image, args)], volumes, security, tolerations)


def _node_container(host: str, image: str, args: list[str]) -> Part:
    # For a host with a port, containerd reads one of two folders. The pod must read both before it writes one.
    certs = {"name": "certs", "mountPath": CERTS}
    if ":" not in host:
        # A subPath, because kubelet follows symbolic links in the path of a volume, but not in a subPath.
        certs = {"name": "certs", "mountPath": f"{CERTS}/{host}", "subPath": host}
    mounts: list[Part] = [
        certs,
        {"name": "containerd", "mountPath": _NODE_CONTAINERD, "readOnly": True},
        {"name": "state", "mountPath": _STATE},
    ]
    return {
        **_container("node", image, _NODE_RESOURCES, mounts),
        "readinessProbe": _probe(60, 10, 1) | _script(f"cat {_PROBLEMS} && test ! -s {_PROBLEMS}"),
        "livenessProbe": _probe(120, 10, 2) | _script(_IS_RECENT),
        "startupProbe": _probe(2, 10, 150) | _script(f"test -e {_PROBLEMS}"),
        "args": args,
    }


def _script(script: str) -> Part:
    """Return a probe of the shell: to start Python for each probe would be most of the CPU of the pod."""
    return {"exec": {"command": ["sh", "-c", script]}}


def _probe(period: int, timeout: int, failures: int) -> Part:
    return {"periodSeconds": period, "timeoutSeconds": timeout, "failureThreshold": failures}


def _container(name: str, image: str, resources: Mapping[str, Amounts], mounts: Sequence[Part]) -> Part:
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    return {"name": name, "image": image, "resources": resources, "securityContext": security, "volumeMounts": mounts}


def _amounts(resources: Resources) -> Mapping[str, Amounts]:
    """Add defaults to the resources of a spec, adjusted so that no limit is less than its request."""
    requests = {
        **{name: min(amount, resources.limits.get(name, amount), key=quantity) for name, amount in _REQUESTS.items()},
        **resources.requests,
    }
    limits = {
        **{name: max(amount, requests.get(name, amount), key=quantity) for name, amount in _LIMITS.items()},
        **resources.limits,
    }
    return {"requests": dict(sorted(requests.items())), "limits": dict(sorted(limits.items()))}


def _pod(
    spec: Spec, containers: Sequence[Part], volumes: Sequence[Part], security: Part, tolerations: Sequence[Toleration]
) -> Part:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": security,
        "containers": containers,
        "volumes": volumes,
        "priorityClassName": spec.priority_class_name or PRIORITY_CLASS,
        **({"tolerations": [to_builtins(each) for each in tolerations]} if tolerations else {}),
    }


# all resources

CONFIG_HASH = "kubechores.dev/config-hash"
CREDENTIALS_VERSION = "kubechores.dev/credentials-version"
_NAME_LABEL = {"app.kubernetes.io/name": "registry-mirror"}


class Manifest(Struct, frozen=True):
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


class Mirror(Struct, frozen=True, dict=True):
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
