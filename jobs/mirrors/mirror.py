"""A mirror and its outgoing resources: what should be in the cluster for a RegistryMirror. Pure.

mirror.service.spec.ports[0].port
mirror.stateful_set.spec.template.spec.containers[0].image
[each.key for each in mirror.children]
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
from jobs.kit import stamps
from jobs.mirrors.containerd import CERTS
from jobs.mirrors.containerd import FOLDER as CONTAINERD
from jobs.mirrors.manifests import (
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
from jobs.mirrors.quantities import quantity
from jobs.mirrors.registry_mirrors import (
    PASSWORD,
    REGISTRY_MIRRORS,
    USERNAME,
    Amounts,
    RegistryMirror,
    Resources,
    Spec,
    Toleration,
)

NAME = "mirror-audit"
# What mounts a folder of nodes is apart from registries, whose namespace refuses that.
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
# A pod of a StatefulSet carries NAME-HASH, with ten characters of hash, as a label's value of at most 63 characters.
# https://github.com/kubernetes/kubernetes/issues/64023
MOST_CHARACTERS = 52
_PREFIX, _HEADLESS = "registry-mirror-", "-headless"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PINNED = re.compile(r"[^@]*(:(?!latest$)[^:/@]+|@[^@]+)")
_NOBODY = 65532
_ROLLING = "RollingUpdate"
_VOLUME = "/var/lib/registry"
_NODE_CONTAINERD = "/node/etc/containerd"  # where a pod sees the node's configuration of containerd
_EVERYTHING = (Toleration(operator="Exists"),)
# Storage of the node is for logs alone: the cache is a claim's, the root read-only. Of a container kubelet keeps five
# files of 10 MiB, of 50 MiB in some managed clusters, and a registry logs each request.
# https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation
_STORAGE = "ephemeral-storage"
_REQUESTS: Amounts = {"cpu": "50m", "memory": "128Mi", _STORAGE: "64Mi"}
_LIMITS: Amounts = {"memory": "512Mi", _STORAGE: "512Mi"}
# mirror-node logs only what changes.
_NODE_REQUESTS: Amounts = {"cpu": "5m", "memory": "48Mi", _STORAGE: "10Mi"}
_NODE_LIMITS: Amounts = {"memory": "96Mi", _STORAGE: "64Mi"}
# mirror-cache has 25 MiB of Python, and 60 more while it decodes 16 MiB of the scheduler's state.
_CACHE_REQUESTS: Amounts = {"cpu": "10m", "memory": "48Mi", _STORAGE: "10Mi"}
_CACHE_LIMITS: Amounts = {"memory": "128Mi", _STORAGE: "64Mi"}


def name_problem(name: str) -> str:
    """Return why nothing can be made for a mirror of this name, or nothing."""
    if not _NAME.fullmatch(name):
        return "has dots, which the name of a Service may not have"
    if name.endswith(_HEADLESS):
        return f"ends in {_HEADLESS}, as the name of the second Service of another mirror"
    longest = MOST_CHARACTERS - len(_PREFIX)
    if len(name) > longest:
        return f"is {len(name)} characters long; at most {longest} leave room for the names of pods"
    return ""


def stateful_set_of(service: str) -> str:
    """Return the name of the StatefulSet whose pods are behind a Service of a mirror."""
    return service.removesuffix(_HEADLESS)


def registry_of(image: str) -> str:
    """Return the host that nodes pull an image from: the first part of its name, if that can be one.

    https://github.com/distribution/reference/blob/main/normalize.go
    """
    host, slash, _ = image.partition("/")
    return host if slash and (host == "localhost" or set(host) & {".", ":"}) else "docker.io"


def is_pinned(image: str) -> bool:
    """Whether an image has a digest, or a tag that is not meant to move with each release."""
    return _PINNED.fullmatch(image) is not None


@dataclass(frozen=True)
class Mirror:
    """What a RegistryMirror asks for, in `namespace`, and in NODE_NAMESPACE what writes files of nodes.

    `cluster_ip` is the address that its Service has got, empty while there is none; `credentials_version` is the
    resourceVersion of its Secret.
    """

    asked: RegistryMirror
    namespace: str
    node_image: str
    cluster_ip: str = ""
    credentials_version: str = ""

    @property
    def spec(self) -> Spec:
        """What its RegistryMirror says."""
        return self.asked.spec

    @property
    def name(self) -> str:
        """The name of what is made for it."""
        return _PREFIX + self.asked.name

    @property
    def image(self) -> str:
        """The image of its registry."""
        return self.spec.image or REGISTRY_IMAGE

    @property
    def children(self) -> tuple[Manifest, ...]:
        """Its outgoing resources, in the order in which they can be made."""
        return (self.service, self.headless_service, self.claim, self.stateful_set, self.daemon_set)

    @cached_property
    def service(self) -> Service:
        """Where nodes find the mirror."""
        spec = self._service_spec()
        return Service(metadata=self._metadata(self.name, spec), spec=spec)

    @cached_property
    def headless_service(self) -> Service:
        """What gives the StatefulSet's pod its name."""
        spec = self._service_spec()
        cache = ServicePort(name=CACHE_PORT_NAME, port=CACHE_PORT, target_port=CACHE_PORT_NAME, protocol="TCP")
        # An audit asks the cache of a registry that is not ready why.
        spec = structs.replace(spec, ports=(*spec.ports, cache), cluster_ip="None", publish_not_ready_addresses=True)
        return Service(metadata=self._metadata(f"{self.name}{_HEADLESS}", spec), spec=spec)

    def _service_spec(self) -> ServiceSpec:
        port = ServicePort(name=PORT_NAME, port=PORT, target_port=PORT_NAME, protocol="TCP")
        return ServiceSpec(
            type="ClusterIP",
            selector=self._selects("registry"),
            ports=(port,),
            # With other values nodes get no answer, or are sent to a pod that is not ready instead of the upstream.
            publish_not_ready_addresses=False,
            internal_traffic_policy="Cluster",
        )

    @cached_property
    def claim(self) -> Claim:
        """The volume of the cache. What is in it is kept when nobody asks for the mirror any more."""
        storage = self.spec.storage
        spec = ClaimSpec(
            access_modes=("ReadWriteOnce",),
            resources=VolumeResources(requests={"storage": storage.size}),
            storage_class_name=storage.storage_class_name or None,
        )
        return Claim(metadata=self._metadata(self.name, spec, orphans="Retain"), spec=spec)

    @cached_property
    def stateful_set(self) -> StatefulSet:
        """The registry that fetches and keeps what nodes ask for: one, since two would keep two caches."""
        labels = self._selects("registry")
        template = self._template("registry", self._registry_pod(), self._credentials_version())
        spec = StatefulSetSpec(
            replicas=1,
            service_name=self.headless_service.metadata.name,
            # A pod in order is not replaced before it was ready: one with a wrong upstream never would be.
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
        # The registry is first: its log is what kubectl shows.
        return _pod((self._registry_container(), self._cache_container()), (cache,), security)

    def _registry_container(self) -> Container:
        answers = HttpGet(path="/v2/", port=PORT_NAME)
        return Container(
            name="registry",
            image=self.image,
            env=self._registry_env(),
            ports=(ContainerPort(name=PORT_NAME, container_port=PORT, protocol="TCP"),),
            # A registry asks its upstream first, for up to 5 minutes.
            startup_probe=Probe(http_get=answers, period_seconds=2, timeout_seconds=2, failure_threshold=150),
            readiness_probe=Probe(http_get=answers, period_seconds=2, timeout_seconds=3, failure_threshold=3),
            # kubelet pulls one image at a time, so a registry that hangs stops all pulls of the node. It ends within 30
            # seconds: four failures in a row, since one that is slow for a moment is not killed, and the grace period.
            liveness_probe=Probe(
                http_get=answers,
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
        """Return what guards the volume. It takes the pod out of the Service only where nodes can go elsewhere."""
        ready = HttpGet(path="/ready", port=CACHE_PORT_NAME)
        # Each second counts: meanwhile nodes begin pulls for which there is no room.
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
        """The folder of the upstream: what one had is not served as another one's, though the volume stays."""
        return self.spec.upstream.replace(":", "_")

    def _registry_env(self) -> tuple[Env, ...]:
        """Return the registry's settings: https://distribution.github.io/distribution/about/configuration/ ."""
        plain = {
            "OTEL_TRACES_EXPORTER": "none",  # it would look for a collector on loopback and complain
            "REGISTRY_HTTP_ADDR": f":{PORT}",
            "REGISTRY_PROXY_REMOTEURL": f"https://{self.spec.upstream}",
            "REGISTRY_PROXY_TTL": self.spec.ttl,
            "REGISTRY_STORAGE_DELETE_ENABLED": "true",  # without it nothing is ever dropped, whatever the ttl
            # With a descriptor in memory, a blob that was removed is answered with 200 and no content:
            # https://github.com/distribution/distribution/issues/2367
            "REGISTRY_STORAGE_CACHE_BLOBDESCRIPTOR": "none",
            "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": f"{_VOLUME}/{self._folder}",
        }
        env = [Env(name=name, value=value) for name, value in plain.items()]
        # Some images serve profiles there, of a memory that holds the login. Without a value nothing listens.
        env.append(Env(name="REGISTRY_HTTP_DEBUG_ADDR"))
        if secret := self.spec.credentials_secret:
            for name, key in (("REGISTRY_PROXY_USERNAME", USERNAME), ("REGISTRY_PROXY_PASSWORD", PASSWORD)):
                source = EnvSource(secret_key_ref=SecretKey(name=secret, key=key))
                env.append(Env(name=name, value_from=source))
        return tuple(sorted(env, key=lambda each: each.name))

    @cached_property
    def daemon_set(self) -> DaemonSet:
        """What tells each node's containerd of the mirror. It names the Service's address: nodes do not ask DNS."""
        template = self._template("node", self._node_pod(), {})
        spec = DaemonSetSpec(
            # One by one, a node that does not use the mirror would keep all others from a change. The files stay.
            update_strategy=UpdateStrategy(type=_ROLLING, rolling_update=RollingUpdate(max_unavailable="100%")),
            selector=Selector(match_labels=self._selects("node")),
            template=template,
        )
        metadata = self._metadata(f"{self.name}-node", spec)
        return DaemonSet(metadata=structs.replace(metadata, namespace=NODE_NAMESPACE), spec=spec)

    def _node_pod(self) -> PodSpec:
        address = f"[{self.cluster_ip}]" if ":" in self.cluster_ip else self.cluster_ip
        args = [
            "mirror-node",
            f"--name={self.asked.name}",
            f"--host={self.spec.host}",
            f"--mirror=http://{address}:{PORT}",
        ]
        if self.spec.fallback == "Upstream":
            args.append(f"--upstream=https://{self.spec.upstream}")
        args.append(f"--containerd-dir={_NODE_CONTAINERD}")
        # Of a host with a port containerd reads one of two folders, so both must be seen before one is written.
        mount = VolumeMount(name="certs", mount_path=CERTS)
        if ":" not in self.spec.host:
            # As subPath, since kubelet follows symbolic links in the path of a volume, and not in a subPath.
            mount = VolumeMount(name="certs", mount_path=f"{CERTS}/{self.spec.host}", sub_path=self.spec.host)
        container = Container(
            name="node",
            image=self.node_image,
            args=tuple(args),
            readiness_probe=Probe(
                exec=Exec(command=("chores", *args, "--check")),
                period_seconds=30,
                timeout_seconds=10,  # Python starts slowly where the CPU is scarce
                failure_threshold=2,
            ),
            resources=ResourceAmounts(requests=_NODE_REQUESTS, limits=_NODE_LIMITS),
            security_context=_SECURITY,
            volume_mounts=(mount, VolumeMount(name="containerd", mount_path=_NODE_CONTAINERD, read_only=True)),
        )
        security = PodSecurityContext(  # the folder is root's
            run_as_user=0, run_as_group=0, seccomp_profile=SeccompProfile(type="RuntimeDefault")
        )
        certs = Volume(name="certs", host_path=HostPath(path=CERTS, type="DirectoryOrCreate"))
        # Not its file: a runtime creates a folder where a file to mount is not there.
        configuration = Volume(name="containerd", host_path=HostPath(path=CONTAINERD, type="DirectoryOrCreate"))
        pod = _pod((container,), (certs, configuration), security)
        asked = self.spec.tolerations
        return structs.replace(pod, tolerations=_EVERYTHING if asked is None else asked)

    def _template(self, component: str, pod: PodSpec, more: Mapping[str, str]) -> PodTemplate:
        labels = {"app.kubernetes.io/name": "registry-mirror", **self._selects(component)}
        configuration = [(each.args, each.env) for each in pod.containers]
        annotations = {CONFIG_HASH: _hash(configuration), **more}
        return PodTemplate(metadata=PodMetadata(labels=labels, annotations=annotations), spec=pod)

    def _selects(self, component: str) -> Mapping[str, str]:
        return {MIRROR: self.asked.name, COMPONENT: component}

    def _metadata(self, name: str, spec: Struct, orphans: str = "Delete") -> Metadata:
        source = f"{REGISTRY_MIRRORS.plural}/{self.asked.name}"
        stamp = stamps.stamp(NAME, "", self.asked.name, source, f"v1:{_hash(spec)}", orphans)
        labels = {"app.kubernetes.io/name": "registry-mirror", MIRROR: self.asked.name, **stamp.labels}
        return Metadata(name=name, namespace=self.namespace, labels=labels, annotations=stamp.annotations)


def _hash(what: object) -> str:
    return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:16]


def _amounts(asked: Resources) -> ResourceAmounts:
    """Return what is asked for, and defaults that are in keeping with it: no limit is less than a request."""
    requests = {
        **{name: min(amount, asked.limits.get(name, amount), key=quantity) for name, amount in _REQUESTS.items()},
        **asked.requests,
    }
    limits = {
        **{name: max(amount, requests.get(name, amount), key=quantity) for name, amount in _LIMITS.items()},
        **asked.limits,
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
