"""What a run of mirror-audit is told, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from jobs.kit.custom_resources import Invalid
from jobs.kit.decoding import decode
from jobs.kit.errors import ApiError
from jobs.kit.model import Need, ObjectKey
from jobs.kit.objects import SECRETS, Resource
from jobs.kit.runner import ReadResult
from jobs.kit.web import Page
from jobs.mirrors.actual import Object
from jobs.mirrors.endpoints import Endpoints
from jobs.mirrors.manifests import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS
from jobs.mirrors.registry_mirrors import IMAGES, PASSWORD, UPSTREAM, USERNAME, RegistryMirror

NAMESPACE = "kube-chores-mirrors"
CHILD_KINDS = (SERVICES, CLAIMS, STATEFUL_SETS, DAEMON_SETS)
SLICES = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
NODES = Resource("v1", "Node", "nodes")
STORAGE_CLASSES = Resource("storage.k8s.io/v1", "StorageClass", "storageclasses")
# What a Service answers, asked through the API server; the name of such an "object" ends with the path to ask for.
# https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/#manually-constructing-apiserver-proxy-urls
SERVICE_PROXY = Resource("v1", "ServiceProxy", "services", is_object=False)


class Probing(str, Enum):
    """How it is found out whether mirrors and upstreams answer."""

    NETWORK = "network"
    SERVICE_PROXY = "service-proxy"
    NONE = "none"


@dataclass(frozen=True)
class Settings:
    """What one run is told. `mirrors` are those of files; None means those of the cluster.

    `node_image` empty is the one that a DaemonSet has.
    """

    namespace: str
    node_image: str
    probing: Probing = Probing.NONE
    mirrors: tuple[RegistryMirror, ...] | None = None
    diff: bool = False
    verbose: bool = False
    repair: bool = False
    allow_cache_loss: bool = False
    max_deletes: int | None = None


class Credentials(Struct, frozen=True):
    """A Secret as far as an audit looks at it: which of its two keys have a value, never which, and what it is for."""

    version: str
    keys: frozenset[str]
    upstream: str
    images: frozenset[str] = frozenset()


class StorageClass(Struct, frozen=True, rename="camel"):
    """A StorageClass as far as a repair looks at it."""

    allow_volume_expansion: bool = False


class CacheState(Struct, frozen=True, rename="camel"):
    """What mirror-cache answers, as far as an audit looks at it.

    `shortage` is why nodes pass over the registry: "access" if it cannot use the volume, "layers" if one ended early,
    "answer" if the volume does not answer.
    """

    least_free_bytes: Annotated[int, Meta(ge=0, le=1 << 60)]
    shortage: Literal["", "access", "space", "inodes", "layers", "answer"]
    used: bool
    corrupt_blobs: Annotated[int, Meta(ge=0, le=1_000_000)]


class _Metadata(Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


Look = CacheState | Credentials | StorageClass | ApiError | None


class _Secret(Struct):
    metadata: _Metadata
    data: dict[str, str | None] | None = None

    def __repr__(self) -> str:
        return "_Secret()"


@dataclass(frozen=True)
class Observed:
    """What was read.

    `children` are all objects of the kinds that mirrors consist of, in the namespace of the settings; `invalid` says
    which objects cannot be decoded, of whatever kind. `endpoints` are the ready ones by Service. `denied` says by kind
    why a list could not be read. `looks` are objects that were looked up and what a Service answered through the API
    server; `pages` are answers from the network. `events` are quotes of Events, by the workload or claim that they
    explain.
    """

    mirrors: tuple[RegistryMirror, ...]
    invalid_mirrors: tuple[Invalid, ...] = ()
    children: Mapping[ObjectKey, Object] = field(default_factory=dict)
    invalid: Mapping[ObjectKey, ApiError] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoints] = field(default_factory=dict)
    nodes: int = 0
    denied: Mapping[str, ApiError] = field(default_factory=dict)
    looks: Mapping[ObjectKey, Look] = field(default_factory=dict)
    pages: Mapping[str, Page] = field(default_factory=dict)
    events: Mapping[ObjectKey, str] = field(default_factory=dict)

    def endpoints_of(self, service: ObjectKey) -> Endpoints:
        """Return the ready endpoints of a Service."""
        return self.endpoints.get(service.name, Endpoints())

    def with_documents(self, documents: Mapping[Need, ReadResult], pages: Mapping[str, Page]) -> Observed:
        """Return the same, knowing these `documents` and `pages` too."""
        looks = {need.key: document.reduced(partial(_reduced, need.key)) for need, document in documents.items()}
        return replace(self, looks={**self.looks, **looks}, pages={**self.pages, **pages})


def _reduced(key: ObjectKey, body: bytes) -> CacheState | Credentials | StorageClass | None:
    """Return what is kept of an answer: of a registry's nothing but that it came."""
    if key.kind == SERVICE_PROXY.kind and not key.name.endswith("/v2/"):
        return decode(body, CacheState)
    if key.kind == STORAGE_CLASSES.kind:
        return decode(body, StorageClass)
    if key.kind != SECRETS.kind:
        return None
    secret = decode(body, _Secret)
    keys = frozenset(name for name, value in (secret.data or {}).items() if value and name in (USERNAME, PASSWORD))
    annotations = secret.metadata.annotations or {}
    images = frozenset(annotations.get(IMAGES, "").replace(",", " ").split())
    return Credentials(secret.metadata.resource_version, keys, annotations.get(UPSTREAM, ""), images)
