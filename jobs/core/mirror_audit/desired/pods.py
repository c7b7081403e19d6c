"""The pods of a mirror: the registry with its cache, and the pod that configures containerd on each node. Pure."""

from __future__ import annotations

from jobs.core.mirror_audit.desired.manifests import (
    Container,
    ContainerPort,
    Env,
    PodSecurityContext,
    PodSpec,
    Probe,
    ResourceAmounts,
    SecretKey,
    SecurityContext,
    Volume,
    VolumeMount,
)
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
_REQUESTS: Amounts = {"cpu": "50m", "memory": "128Mi", _STORAGE: "64Mi"}
_LIMITS: Amounts = {"memory": "512Mi", _STORAGE: "512Mi"}
# mirror-node logs changes only.
_NODE_REQUESTS: Amounts = {"cpu": "5m", "memory": "48Mi", _STORAGE: "10Mi"}
_NODE_LIMITS: Amounts = {"memory": "96Mi", _STORAGE: "64Mi"}
# mirror-cache uses 25 MiB for Python, and 60 MiB in addition while it decodes 16 MiB of the scheduler's state.
_CACHE_REQUESTS: Amounts = {"cpu": "10m", "memory": "48Mi", _STORAGE: "10Mi"}
_CACHE_LIMITS: Amounts = {"memory": "128Mi", _STORAGE: "64Mi"}
# mirror-node checks every 30 seconds. A hung one does not.
_IS_RECENT = (
    f"test $(($(date +%s) - $(stat -c %Y {_PROBLEMS}))) -lt 120 || {{ echo no check for 2 minutes or more; false; }}"
)
_SECURITY = SecurityContext(
    allow_privilege_escalation=False, read_only_root_filesystem=True, capabilities={"drop": ("ALL",)}
)


def registry_pod(spec: Spec, image: str, node_image: str, claim: str) -> PodSpec:
    """Return the pod of a registry, which stores its cache in the volume of a claim."""
    security = PodSecurityContext(
        run_as_user=_NOBODY,
        run_as_group=_NOBODY,
        run_as_non_root=True,
        fs_group=_NOBODY,
        seccomp_profile=_RUNTIME_DEFAULT,
    )
    cache = Volume(name="cache", persistent_volume_claim={"claimName": claim})
    # The registry is the first container: kubectl logs prints the log of the first one.
    containers = (_registry_container(spec, image), _cache_container(spec, node_image))
    return _pod(spec, containers, (cache,), security, spec.registry_tolerations)


def _registry_container(spec: Spec, image: str) -> Container:
    registry_request = {"path": "/v2/", "port": PORT_NAME}
    return Container(
        name="registry",
        image=image,
        env=_registry_env(spec),
        ports=(ContainerPort(name=PORT_NAME, container_port=PORT, protocol="TCP"),),
        # A registry contacts its upstream when it starts, for up to 5 minutes.
        startup_probe=Probe(http_get=registry_request, period_seconds=2, timeout_seconds=2, failure_threshold=150),
        readiness_probe=Probe(http_get=registry_request, period_seconds=2, timeout_seconds=3, failure_threshold=3),
        # kubelet pulls one image at a time, so a registry that hangs stops all pulls of the node. This probe ends
        # it within 30 seconds: after four failures in a row, and the grace period. A registry that is slow only
        # for a moment is not killed.
        liveness_probe=Probe(
            http_get=registry_request,
            period_seconds=5,
            timeout_seconds=5,
            failure_threshold=4,
            termination_grace_period_seconds=5,
        ),
        resources=_amounts(spec.resources),
        security_context=_SECURITY,
        volume_mounts=(VolumeMount(name="cache", mount_path=_VOLUME),),
    )


def _cache_container(spec: Spec, image: str) -> Container:
    """Return the container that watches the volume.

    It has a readiness probe only with fallback Upstream: only then can nodes pull while the pod is not ready.
    """
    ready = {"path": "/ready", "port": CACHE_PORT_NAME}
    # Every second, because nodes start pulls for which there is no room until the pod is not ready.
    readiness = Probe(http_get=ready, period_seconds=1, timeout_seconds=3, failure_threshold=1)
    return Container(
        name="cache",
        image=image,
        args=("mirror-cache", f"--upstream={_folder(spec)}", f"--ttl={spec.ttl}"),
        ports=(ContainerPort(name=CACHE_PORT_NAME, container_port=CACHE_PORT, protocol="TCP"),),
        readiness_probe=readiness if spec.fallback == "Upstream" else None,
        liveness_probe=Probe(
            http_get={"path": "/", "port": CACHE_PORT_NAME},
            period_seconds=20,
            timeout_seconds=10,
            failure_threshold=3,
            termination_grace_period_seconds=5,
        ),
        resources=ResourceAmounts(requests=_CACHE_REQUESTS, limits=_CACHE_LIMITS),
        security_context=_SECURITY,
        volume_mounts=(VolumeMount(name="cache", mount_path=_VOLUME),),
    )


def _folder(spec: Spec) -> str:
    """Return the folder of the upstream on the volume: images of an earlier upstream are not served for this one."""
    return spec.upstream.replace(":", "_")


def _registry_env(spec: Spec) -> tuple[Env, ...]:
    """Return the settings of the registry.

    https://distribution.github.io/distribution/about/configuration/
    """
    plain = {
        "OTEL_TRACES_EXPORTER": "none",  # otherwise it logs errors that there is no collector on localhost
        "REGISTRY_HTTP_ADDR": f":{PORT}",
        "REGISTRY_PROXY_REMOTEURL": f"https://{spec.upstream}",
        "REGISTRY_PROXY_TTL": spec.ttl,
        "REGISTRY_STORAGE_DELETE_ENABLED": "true",  # otherwise nothing is ever deleted, whatever the ttl
        # With descriptors in memory, the registry answers 200 without content for a blob that was removed:
        # https://github.com/distribution/distribution/issues/2367
        "REGISTRY_STORAGE_CACHE_BLOBDESCRIPTOR": "none",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": f"{_VOLUME}/{_folder(spec)}",
    }
    env = [Env(name=name, value=value) for name, value in plain.items()]
    # Some images serve memory profiles there, and the memory contains the login. Without a value nothing listens.
    env.append(Env(name="REGISTRY_HTTP_DEBUG_ADDR"))
    if secret := spec.credentials_secret:
        for name, key in (("REGISTRY_PROXY_USERNAME", USERNAME), ("REGISTRY_PROXY_PASSWORD", PASSWORD)):
            source = {"secretKeyRef": SecretKey(name=secret, key=key)}
            env.append(Env(name=name, value_from=source))
    return tuple(sorted(env, key=lambda each: each.name))


def node_pod(registry_mirror: RegistryMirror, image: str, cluster_ip: str) -> PodSpec:
    """Return the pod that configures containerd on a node, with the address of the mirror's Service."""
    spec = registry_mirror.spec
    security = PodSecurityContext(  # root owns the folder
        run_as_user=0, run_as_group=0, seccomp_profile=_RUNTIME_DEFAULT
    )
    # The folders, not the file: a runtime creates a folder if the file to mount does not exist.
    volumes = (
        Volume(name="certs", host_path={"path": CERTS, "type": "DirectoryOrCreate"}),
        Volume(name="containerd", host_path={"path": CONTAINERD, "type": "DirectoryOrCreate"}),
        Volume(name="state", empty_dir={"medium": "Memory", "sizeLimit": "1Mi"}),
    )
    container = _node_container(spec.host, image, _node_args(registry_mirror, cluster_ip))
    tolerations = _EVERYTHING if spec.tolerations is None else spec.tolerations
    return _pod(spec, (container,), volumes, security, tolerations)


def _node_args(registry_mirror: RegistryMirror, cluster_ip: str) -> tuple[str, ...]:
    spec = registry_mirror.spec
    address = f"[{cluster_ip}]" if ":" in cluster_ip else cluster_ip
    return (
        "mirror-node",
        f"--name={registry_mirror.name}",
        f"--host={spec.host}",
        f"--mirror=http://{address}:{PORT}",
        *([f"--upstream=https://{spec.upstream}"] if spec.fallback == "Upstream" else []),
        f"--containerd-dir={_NODE_CONTAINERD}",
        f"--state={_PROBLEMS}",
    )


def _node_container(host: str, image: str, args: tuple[str, ...]) -> Container:
    # For a host with a port, containerd reads one of two folders. The pod must read both before it writes one.
    mount = VolumeMount(name="certs", mount_path=CERTS)
    if ":" not in host:
        # A subPath, because kubelet follows symbolic links in the path of a volume, but not in a subPath.
        mount = VolumeMount(name="certs", mount_path=f"{CERTS}/{host}", sub_path=host)
    return Container(
        name="node",
        image=image,
        args=args,
        startup_probe=_node_probe(f"test -e {_PROBLEMS}", period_seconds=2, failure_threshold=150),
        readiness_probe=_node_probe(f"cat {_PROBLEMS} && test ! -s {_PROBLEMS}", period_seconds=60),
        liveness_probe=_node_probe(_IS_RECENT, period_seconds=120, failure_threshold=2),
        resources=ResourceAmounts(requests=_NODE_REQUESTS, limits=_NODE_LIMITS),
        security_context=_SECURITY,
        volume_mounts=(
            mount,
            VolumeMount(name="containerd", mount_path=_NODE_CONTAINERD, read_only=True),
            VolumeMount(name="state", mount_path=_STATE),
        ),
    )


def _node_probe(script: str, *, period_seconds: int, failure_threshold: int = 1) -> Probe:
    """Return a probe of the shell: to start Python for each probe would be most of the CPU of the pod."""
    return Probe(
        exec={"command": ("sh", "-c", script)},
        period_seconds=period_seconds,
        timeout_seconds=10,
        failure_threshold=failure_threshold,
    )


def _amounts(resources: Resources) -> ResourceAmounts:
    """Add defaults to the resources of a spec, adjusted so that no limit is less than its request."""
    requests = {
        **{name: min(amount, resources.limits.get(name, amount), key=quantity) for name, amount in _REQUESTS.items()},
        **resources.requests,
    }
    limits = {
        **{name: max(amount, requests.get(name, amount), key=quantity) for name, amount in _LIMITS.items()},
        **resources.limits,
    }
    return ResourceAmounts(requests=requests, limits=limits)


def _pod(
    spec: Spec,
    containers: tuple[Container, ...],
    volumes: tuple[Volume, ...],
    security: PodSecurityContext,
    tolerations: tuple[Toleration, ...],
) -> PodSpec:
    return PodSpec(
        automount_service_account_token=False,
        enable_service_links=False,
        termination_grace_period_seconds=30,
        node_selector={"kubernetes.io/os": "linux"},
        security_context=security,
        containers=containers,
        volumes=volumes,
        priority_class_name=spec.priority_class_name or PRIORITY_CLASS,
        tolerations=tolerations,
    )
