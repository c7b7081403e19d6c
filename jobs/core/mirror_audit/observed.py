"""The settings of a run of mirror-audit, and what it reads from the cluster and the network."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from jobs.core.mirror_audit.actual import (
    Endpoints,
    Object,
    PartialMetadata,
    PodSpec,
    Quote,
    SecretReference,
    is_managed,
    secret_names,
)
from jobs.core.mirror_audit.registry_mirrors import IMAGES, PASSWORD, UPSTREAM, USERNAME, RegistryMirror
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Dependency, ObjectKey, RunOptions
from jobs.kit.values.reads import Download, Invalid, ReadResult, decode
from jobs.kit.values.resources import (
    CLAIMS,
    DAEMON_SETS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICE_PROXY,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)

if TYPE_CHECKING:
    from jobs.core.mirror_audit.image_uses import Images
    from jobs.core.mirror_audit.pull_secrets import Entry

NAMESPACE = "kube-chores-mirrors"
RESOURCE_KINDS = (SERVICES, CLAIMS, STATEFUL_SETS, DAEMON_SETS)


class Probing(str, Enum):
    """How a run probes mirrors and upstreams; the values of --probe."""

    NETWORK = "network"
    SERVICE_PROXY = "service-proxy"
    NONE = "none"


class Settings(Struct, frozen=True):
    """The settings of one run.

    `mirrors` come from files; None means the RegistryMirrors in the cluster. `node_image` is the image of --node-image;
    if that is empty, the image is that of `pod`, the pod of the run. Outside a pod, each mirror keeps its image.
    `images` is how many images of pods and CronJobs the run checks of each registry; 0: none.
    """

    namespace: str
    node_image: str
    probing: Probing = Probing.NONE
    mirrors: tuple[RegistryMirror, ...] | None = None
    pod: ObjectKey | None = None
    run: RunOptions = field(default_factory=RunOptions)
    repair: bool = False
    allow_cache_loss: bool = False
    max_deletes: int | None = None
    images: int = 0


class Credentials(Struct, frozen=True):
    """What an audit keeps of a Secret: which of its two keys have a value, never the values, and its annotations."""

    version: str
    keys: frozenset[str]
    upstream: str
    images: frozenset[str] = frozenset()


class PullSecret(Credentials, frozen=True):
    """What an audit keeps of a pull secret."""

    entries: tuple[Entry, ...] = ()

    def __repr__(self) -> str:
        return "PullSecret()"


class Account(Struct, frozen=True):
    """The names of the pull secrets of a ServiceAccount."""

    secrets: tuple[str, ...]


class StorageClass(Struct, frozen=True, rename="camel"):
    """The fields of a StorageClass that a repair reads."""

    allow_volume_expansion: bool = False


class CacheState(Struct, frozen=True, rename="camel"):
    """The fields of mirror-cache's response that an audit reads.

    `shortage` is why nodes do not use the registry: "access" if it cannot use the volume, "space" or "inodes" if the
    volume has too few, "layers" if a layer was interrupted, "answer" if the volume does not answer.
    `refusal` is why the upstream refuses the registry's requests: "login" if its token server rejects the login,
    "unauthorized" if it answers 401, "rate" if it answers 429. Earlier versions do not report it.
    """

    least_free_bytes: Annotated[int, Meta(ge=0, le=1 << 60)]
    shortage: Literal["", "access", "space", "inodes", "layers", "answer"]
    used: bool
    corrupt_blobs: Annotated[int, Meta(ge=0, le=1_000_000)]
    refusal: Literal["", "login", "unauthorized", "rate"] = ""


# A str is the image of the container `chores` in the pod of the run, empty if it has no such container.
Document = Account | CacheState | Credentials | str | StorageClass | ApiError | None


class _Pod(Struct):
    spec: PodSpec


class _Secret(Struct):
    metadata: PartialMetadata
    data: dict[str, str | None] | None = None
    type: str = ""

    def __repr__(self) -> str:
        return "_Secret()"


class _Account(Struct, rename="camel"):
    image_pull_secrets: list[SecretReference] | None = None


class Observed(Struct, frozen=True):
    """What a run read.

    `resources` are all objects of RESOURCE_KINDS in the namespace of the settings, managed by kube-chores or not.
    `invalid` has the objects of any kind that cannot be decoded. `endpoints` are the ready ones by Service. `nodes` is
    the number of Linux nodes. `list_errors` has, by kind, the error of each list request that failed. `documents` are
    objects read by name, and responses of Services through the API server. `downloads` are from the network, by URL.
    `events` are quotes of Events, by the workload or claim that they explain. `images` are those of pods and CronJobs;
    None: they are not checked, or could not be listed.
    """

    mirrors: tuple[RegistryMirror, ...]
    invalid_mirrors: tuple[Invalid, ...] = ()
    resources: Mapping[ObjectKey, Object] = field(default_factory=dict)
    invalid: Mapping[ObjectKey, ApiError] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoints] = field(default_factory=dict)
    nodes: int = 0
    list_errors: Mapping[str, ApiError] = field(default_factory=dict)
    documents: Mapping[ObjectKey, Document] = field(default_factory=dict)
    downloads: Mapping[str, Download] = field(default_factory=dict)
    events: Mapping[ObjectKey, Quote] = field(default_factory=dict)
    images: Images | None = None

    def managed(self, key: ObjectKey) -> Object | None:
        """Return the resource of this name if kube-chores manages it."""
        found = self.resources.get(key)
        return found if found and is_managed(found) else None

    def endpoints_of(self, service: ObjectKey) -> Endpoints:
        """Return the ready endpoints of a Service, none if it has no EndpointSlice."""
        return self.endpoints.get(service.name, Endpoints())

    def node_image(self, settings: Settings) -> str:
        """Return the image of kube-chores for the pods of all mirrors; empty if each mirror keeps its image."""
        pod = self.documents.get(settings.pod) if settings.pod else None
        return settings.node_image or (pod if isinstance(pod, str) else "")

    def with_documents(self, documents: Mapping[Dependency, ReadResult], downloads: Mapping[str, Download]) -> Observed:
        """Return a copy with these documents and downloads added."""
        reduced = {
            dependency.key: found.reduced(partial(_reduced, dependency.key)) for dependency, found in documents.items()
        }
        return replace(self, documents={**self.documents, **reduced}, downloads={**self.downloads, **downloads})


def _reduced(key: ObjectKey, body: bytes) -> Document:
    """Return the part of a response that the run keeps: nothing of a registry's, only that it came."""
    if key.kind == SERVICE_PROXY.kind and not key.name.endswith("/v2/"):
        return decode(body, CacheState)
    if key.kind == STORAGE_CLASSES.kind:
        return decode(body, StorageClass)
    if key.kind == PODS.kind:
        containers = decode(body, _Pod).spec.containers
        return next((each.image for each in containers if each.name == "chores"), "")
    if key.kind == SERVICE_ACCOUNTS.kind:
        return Account(secret_names(decode(body, _Account).image_pull_secrets))
    if key.kind != SECRETS.kind:
        return None
    secret = decode(body, _Secret)
    keys = frozenset(name for name, value in (secret.data or {}).items() if value and name in (USERNAME, PASSWORD))
    annotations = secret.metadata.annotations or {}
    images = frozenset(annotations.get(IMAGES, "").replace(",", " ").split())
    found = (secret.metadata.resource_version, keys, annotations.get(UPSTREAM, ""), images)
    if not secret.type.startswith("kubernetes.io/dockerc"):
        return Credentials(*found)
    from jobs.core.mirror_audit.pull_secrets import entries  # only for checks of images

    return PullSecret(*found, entries(secret.type, secret.data or {}))
