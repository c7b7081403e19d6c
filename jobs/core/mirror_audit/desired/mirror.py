"""The desired resources of a mirror: what a RegistryMirror defines, as manifests. Pure.

mirror.service.spec.ports[0].port
mirror.stateful_set.spec.template.spec.containers[0].image
[each.key for each in mirror.resources]
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec
from msgspec import Struct, structs

from jobs import __version__
from jobs.core.mirror_audit.desired.manifests import (
    Capabilities,
    Claim,
    ClaimSpec,
    ClaimVolume,
    Container,
    ContainerPort,
    DaemonSet,
    DaemonSetSpec,
    Env,
    EnvSource,
    Exec,
    HostPath,
    HttpGet,
    Manifest,
    Metadata,
    PodMetadata,
    PodSecurityContext,
    PodSpec,
    PodTemplate,
    Probe,
    ResourceAmounts,
    RollingUpdate,
    SeccompProfile,
    SecretKey,
    SecurityContext,
    Selector,
    Service,
    ServicePort,
    ServiceSpec,
    StatefulSet,
    StatefulSetSpec,
    UpdateStrategy,
    Volume,
    VolumeMount,
    VolumeResources,
)
from jobs.core.mirror_audit.desired.quantities import quantity
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
from jobs.kit.values import stamps
from jobs.kit.values.resources import REGISTRY_MIRRORS

NAME = "mirror-audit"
# DaemonSets mount a folder of the node. The namespace of the registries does not allow such mounts.
NODE_NAMESPACE = "kube-chores-nodes"
REGISTRY_IMAGE = "docker.io/library/registry:3"
NODE_IMAGE = f"kube-chores:{__version__}"
MIRROR = "kubechores.dev/mirror"
CONFIG_HASH = "kubechores.dev/config-hash"
CREDENTIALS_VERSION = "kubechores.dev/credentials-version"
COMPONENT = "app.kubernetes.io/component"
PORT = 5000
PORT_NAME = "registry"
CACHE_PORT = 5001
CACHE_PORT_NAME = "cache"
# Each pod of a StatefulSet has the label value NAME-HASH, with a hash of ten characters. A label value has at most 63.
# https://github.com/kubernetes/kubernetes/issues/64023
MOST_CHARACTERS = 52
_PREFIX, _HEADLESS = "registry-mirror-", "-headless"
_PINNED = re.compile(r"[^@]*(:(?!latest$)[^:/@]+|@[^@]+)")
_NOBODY = 65532
_ROLLING = "RollingUpdate"
_VOLUME = "/var/lib/registry"
_NODE_CONTAINERD = "/node/etc/containerd"  # where a pod mounts the node's configuration of containerd
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


def name_problem(name: str) -> str:
    """Return why a mirror of this name cannot have resources, or an empty string."""
    if "." in name:
        return "contains dots, which are not valid in the name of a Service"
    if name.endswith(_HEADLESS):
        return f"ends in {_HEADLESS}, like the name of the second Service of another mirror"
    longest = MOST_CHARACTERS - len(_PREFIX)
    if len(name) > longest:
        return f"has {len(name)} characters; at most {longest} fit in the names of its pods"
    return ""


def stateful_set_of(service: str) -> str:
    """Return the name of the StatefulSet whose pods a Service of a mirror selects."""
    return service.removesuffix(_HEADLESS)


def registry_of(image: str) -> str:
    """Return the host from which nodes pull an image: the first part of its name, or docker.io.

    https://github.com/distribution/reference/blob/main/normalize.go
    """
    host, slash, _ = image.partition("/")
    return host if slash and (host == "localhost" or set(host) & {".", ":"}) else "docker.io"


def is_pinned(image: str) -> bool:
    """Return whether an image has a digest, or a tag other than `latest`."""
    return _PINNED.fullmatch(image) is not None


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
        return _PREFIX + self.registry_mirror.name

    @property
    def image(self) -> str:
        """The image of its registry: spec.image, or the default."""
        return self.spec.image or REGISTRY_IMAGE

    @property
    def resources(self) -> tuple[Manifest, ...]:
        """Its resources, in the order of creation."""
        return (self.service, self.headless_service, self.claim, self.stateful_set, self.daemon_set)

    @cached_property
    def service(self) -> Service:
        """The Service from which nodes pull."""
        spec = self._service_spec()
        return Service(metadata=self._metadata(self.name, spec), spec=spec)

    @cached_property
    def headless_service(self) -> Service:
        """The Service that gives the StatefulSet's pod its DNS name."""
        spec = self._service_spec()
        cache = ServicePort(name=CACHE_PORT_NAME, port=CACHE_PORT, target_port=CACHE_PORT_NAME, protocol="TCP")
        # The audit also reads from the container cache why a registry is not ready.
        spec = structs.replace(spec, ports=(*spec.ports, cache), cluster_ip="None", publish_not_ready_addresses=True)
        return Service(metadata=self._metadata(f"{self.name}{_HEADLESS}", spec), spec=spec)

    def _service_spec(self) -> ServiceSpec:
        port = ServicePort(name=PORT_NAME, port=PORT, target_port=PORT_NAME, protocol="TCP")
        return ServiceSpec(
            type="ClusterIP",
            selector=self._selector_labels("registry"),
            ports=(port,),
            # With other values, nodes get no response, or pull from a pod that is not ready instead of the upstream.
            publish_not_ready_addresses=False,
            internal_traffic_policy="Cluster",
        )

    @cached_property
    def claim(self) -> Claim:
        """The claim of the cache. It is retained when the RegistryMirror is deleted."""
        storage = self.spec.storage
        spec = ClaimSpec(
            access_modes=("ReadWriteOnce",),
            resources=VolumeResources(requests={"storage": storage.size}),
            storage_class_name=storage.storage_class_name or None,
        )
        return Claim(metadata=self._metadata(self.name, spec, orphans="Retain"), spec=spec)

    @cached_property
    def stateful_set(self) -> StatefulSet:
        """The StatefulSet of the registry. It has one replica: each replica would have a cache of its own."""
        labels = self._selector_labels("registry")
        template = self._template("registry", self._registry_pod(), self._credentials_version())
        spec = StatefulSetSpec(
            replicas=1,
            service_name=self.headless_service.metadata.name,
            # With OrderedReady, a pod with a wrong upstream is never replaced, since it never becomes ready.
            pod_management_policy="Parallel",
            update_strategy=UpdateStrategy(type=_ROLLING, rolling_update=RollingUpdate(partition=0)),
            selector=Selector(match_labels=labels),
            template=template,
        )
        return StatefulSet(metadata=self._metadata(self.name, spec), spec=spec)

    def _credentials_version(self) -> Mapping[str, str]:
        return {CREDENTIALS_VERSION: self.credentials_version} if self.credentials_version else {}

    def _registry_pod(self) -> PodSpec:
        security = PodSecurityContext(
            run_as_user=_NOBODY,
            run_as_group=_NOBODY,
            run_as_non_root=True,
            fs_group=_NOBODY,
            seccomp_profile=SeccompProfile(type="RuntimeDefault"),
        )
        cache = Volume(name="cache", persistent_volume_claim=ClaimVolume(claim_name=self.claim.metadata.name))
        # The registry is the first container: kubectl logs prints the log of the first one.
        return _pod((self._registry_container(), self._cache_container()), (cache,), security)

    def _registry_container(self) -> Container:
        registry_request = HttpGet(path="/v2/", port=PORT_NAME)
        return Container(
            name="registry",
            image=self.image,
            env=self._registry_env(),
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
            resources=_amounts(self.spec.resources),
            security_context=_SECURITY,
            volume_mounts=(VolumeMount(name="cache", mount_path=_VOLUME),),
        )

    def _cache_container(self) -> Container:
        """Return the container that watches the volume.

        It has a readiness probe only with fallback Upstream: only then can nodes pull while the pod is not ready.
        """
        ready = HttpGet(path="/ready", port=CACHE_PORT_NAME)
        # Every second, because nodes start pulls for which there is no room until the pod is not ready.
        readiness = Probe(http_get=ready, period_seconds=1, timeout_seconds=3, failure_threshold=1)
        return Container(
            name="cache",
            image=self.node_image,
            args=("mirror-cache", f"--upstream={self._folder}", f"--ttl={self.spec.ttl}"),
            ports=(ContainerPort(name=CACHE_PORT_NAME, container_port=CACHE_PORT, protocol="TCP"),),
            readiness_probe=readiness if self.spec.fallback == "Upstream" else None,
            liveness_probe=Probe(
                http_get=HttpGet(path="/", port=CACHE_PORT_NAME),
                period_seconds=20,
                timeout_seconds=10,
                failure_threshold=3,
                termination_grace_period_seconds=5,
            ),
            resources=ResourceAmounts(requests=_CACHE_REQUESTS, limits=_CACHE_LIMITS),
            security_context=_SECURITY,
            volume_mounts=(VolumeMount(name="cache", mount_path=_VOLUME),),
        )

    @property
    def _folder(self) -> str:
        """The folder of the upstream on the volume: images of an earlier upstream are not served for this one."""
        return self.spec.upstream.replace(":", "_")

    def _registry_env(self) -> tuple[Env, ...]:
        """Return the settings of the registry.

        https://distribution.github.io/distribution/about/configuration/
        """
        plain = {
            "OTEL_TRACES_EXPORTER": "none",  # otherwise it logs errors that there is no collector on localhost
            "REGISTRY_HTTP_ADDR": f":{PORT}",
            "REGISTRY_PROXY_REMOTEURL": f"https://{self.spec.upstream}",
            "REGISTRY_PROXY_TTL": self.spec.ttl,
            "REGISTRY_STORAGE_DELETE_ENABLED": "true",  # otherwise nothing is ever deleted, whatever the ttl
            # With descriptors in memory, the registry registry_request 200 without content for a blob that was removed:
            # https://github.com/distribution/distribution/issues/2367
            "REGISTRY_STORAGE_CACHE_BLOBDESCRIPTOR": "none",
            "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": f"{_VOLUME}/{self._folder}",
        }
        env = [Env(name=name, value=value) for name, value in plain.items()]
        # Some images serve memory profiles there, and the memory contains the login. Without a value nothing listens.
        env.append(Env(name="REGISTRY_HTTP_DEBUG_ADDR"))
        if secret := self.spec.credentials_secret:
            for name, key in (("REGISTRY_PROXY_USERNAME", USERNAME), ("REGISTRY_PROXY_PASSWORD", PASSWORD)):
                source = EnvSource(secret_key_ref=SecretKey(name=secret, key=key))
                env.append(Env(name=name, value_from=source))
        return tuple(sorted(env, key=lambda each: each.name))

    @cached_property
    def daemon_set(self) -> DaemonSet:
        """The DaemonSet that configures containerd on each node.

        It configures the Service's IP address, because nodes do not use the cluster's DNS.
        """
        template = self._template("node", self._node_pod(), {})
        spec = DaemonSetSpec(
            # All pods at once: otherwise one node that does not use the mirror blocks a change on all others. The
            # files on nodes stay meanwhile.
            update_strategy=UpdateStrategy(type=_ROLLING, rolling_update=RollingUpdate(max_unavailable="100%")),
            selector=Selector(match_labels=self._selector_labels("node")),
            template=template,
        )
        metadata = self._metadata(f"{self.name}-node", spec)
        return DaemonSet(metadata=structs.replace(metadata, namespace=NODE_NAMESPACE), spec=spec)

    def _node_pod(self) -> PodSpec:
        address = f"[{self.cluster_ip}]" if ":" in self.cluster_ip else self.cluster_ip
        args = [
            "mirror-node",
            f"--name={self.registry_mirror.name}",
            f"--host={self.spec.host}",
            f"--mirror=http://{address}:{PORT}",
        ]
        if self.spec.fallback == "Upstream":
            args.append(f"--upstream=https://{self.spec.upstream}")
        args.append(f"--containerd-dir={_NODE_CONTAINERD}")
        # For a host with a port, containerd reads one of two folders. The pod must read both before it writes one.
        mount = VolumeMount(name="certs", mount_path=CERTS)
        if ":" not in self.spec.host:
            # A subPath, because kubelet follows symbolic links in the path of a volume, but not in a subPath.
            mount = VolumeMount(name="certs", mount_path=f"{CERTS}/{self.spec.host}", sub_path=self.spec.host)
        container = Container(
            name="node",
            image=self.node_image,
            args=tuple(args),
            readiness_probe=Probe(
                exec=Exec(command=("chores", *args, "--check")),
                period_seconds=30,
                timeout_seconds=10,  # Python starts slowly with little CPU
                failure_threshold=2,
            ),
            resources=ResourceAmounts(requests=_NODE_REQUESTS, limits=_NODE_LIMITS),
            security_context=_SECURITY,
            volume_mounts=(mount, VolumeMount(name="containerd", mount_path=_NODE_CONTAINERD, read_only=True)),
        )
        security = PodSecurityContext(  # root owns the folder
            run_as_user=0, run_as_group=0, seccomp_profile=SeccompProfile(type="RuntimeDefault")
        )
        certs = Volume(name="certs", host_path=HostPath(path=CERTS, type="DirectoryOrCreate"))
        # The folder, not the file: a runtime creates a folder if the file to mount does not exist.
        configuration = Volume(name="containerd", host_path=HostPath(path=CONTAINERD, type="DirectoryOrCreate"))
        pod = _pod((container,), (certs, configuration), security)
        tolerations = self.spec.tolerations
        return structs.replace(pod, tolerations=_EVERYTHING if tolerations is None else tolerations)

    def _template(self, component: str, pod: PodSpec, more: Mapping[str, str]) -> PodTemplate:
        labels = {"app.kubernetes.io/name": "registry-mirror", **self._selector_labels(component)}
        configuration = [(each.args, each.env) for each in pod.containers]
        annotations = {CONFIG_HASH: _hash(configuration), **more}
        return PodTemplate(metadata=PodMetadata(labels=labels, annotations=annotations), spec=pod)

    def _selector_labels(self, component: str) -> Mapping[str, str]:
        return {MIRROR: self.registry_mirror.name, COMPONENT: component}

    def _metadata(self, name: str, spec: Struct, orphans: str = "Delete") -> Metadata:
        source = f"{REGISTRY_MIRRORS.plural}/{self.registry_mirror.name}"
        stamp = stamps.stamp(NAME, "", self.registry_mirror.name, source, f"v1:{_hash(spec)}", orphans)
        labels = {"app.kubernetes.io/name": "registry-mirror", MIRROR: self.registry_mirror.name, **stamp.labels}
        return Metadata(name=name, namespace=self.namespace, labels=labels, annotations=stamp.annotations)


def _hash(what: object) -> str:
    return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]


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


_SECURITY = SecurityContext(
    allow_privilege_escalation=False, read_only_root_filesystem=True, capabilities=Capabilities(drop=("ALL",))
)


def _pod(containers: tuple[Container, ...], volumes: tuple[Volume, ...], security: PodSecurityContext) -> PodSpec:
    return PodSpec(
        automount_service_account_token=False,
        enable_service_links=False,
        termination_grace_period_seconds=30,
        node_selector={"kubernetes.io/os": "linux"},
        security_context=security,
        containers=containers,
        volumes=volumes,
    )
