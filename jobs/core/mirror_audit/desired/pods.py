"""The pods of a mirror: the registry with its cache, and the pod that configures containerd on each node. Pure.

The order of fields is part of the fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from jobs.core.mirror_audit.desired.names import CACHE_PORT, CACHE_PORT_NAME, PORT, PORT_NAME, PRIORITY_CLASS
from jobs.core.mirror_audit.quantities import quantity
from jobs.core.mirror_audit.registry_mirrors import (
    PASSWORD,
    USERNAME,
    Amounts,
    RegistryMirror,
    Resources,
    Spec,
    Toleration,
)
from jobs.core.mirror_node.hosts import CERTS
from jobs.core.mirror_node.hosts import FOLDER as CONTAINERD

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
    container = _node_container(spec.host, image, _node_args(registry_mirror, cluster_ip))
    tolerations = _EVERYTHING if spec.tolerations is None else spec.tolerations
    return _pod(spec, [container], volumes, security, tolerations)


def _node_args(registry_mirror: RegistryMirror, cluster_ip: str) -> list[str]:
    spec = registry_mirror.spec
    address = f"[{cluster_ip}]" if ":" in cluster_ip else cluster_ip
    return [
        "mirror-node",
        f"--name={registry_mirror.name}",
        f"--host={spec.host}",
        f"--mirror=http://{address}:{PORT}",
        *([f"--upstream=https://{spec.upstream}"] if spec.fallback == "Upstream" else []),
        f"--containerd-dir={_NODE_CONTAINERD}",
        f"--state={_PROBLEMS}",
    ]


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
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "name": name,
        "image": image,
        "resources": resources,
        "securityContext": security,
        "volumeMounts": mounts,
    }


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
    spec: Spec,
    containers: Sequence[Part],
    volumes: Sequence[Part],
    security: Part,
    tolerations: Sequence[Toleration],
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
