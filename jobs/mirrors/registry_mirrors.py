"""The RegistryMirror: its types, and what none may say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from jobs.kit.conditions import Condition
from jobs.kit.custom_resources import Broken, Head
from jobs.kit.decoding import decode
from jobs.kit.errors import InvalidObjectError
from jobs.kit.objects import Resource

REGISTRY_MIRRORS = Resource("kubechores.dev/v1", "RegistryMirror", "registrymirrors")
Fallback = Literal["Upstream", "None"]
Amounts = Mapping[str, str | int]
USERNAME, PASSWORD = "username", "password"  # the keys of the Secret with the credentials
UPSTREAM, IMAGES = "kubechores.dev/upstream", "kubechores.dev/images"  # its annotations

# Images of Docker Hub are named docker.io/..., and nothing serves them there.
# https://distribution.github.io/distribution/recipes/mirror/
DOCKER_HUB, DOCKER_HUB_SERVER = "docker.io", "registry-1.docker.io"
_DOCKER_HUB_NAMES = frozenset({DOCKER_HUB, DOCKER_HUB_SERVER, "index.docker.io"})


class Storage(Struct, frozen=True, rename="camel"):
    """The volume of the cache."""

    size: str = "20Gi"
    storage_class_name: str = ""


class Resources(Struct, frozen=True):
    """What the registry's container asks for beside the defaults."""

    requests: Amounts = msgspec.field(default_factory=dict)
    limits: Amounts = msgspec.field(default_factory=dict)


class Toleration(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Spec(Struct, frozen=True, rename="camel"):
    """The spec of a RegistryMirror; its fields are described in cronjobs/crds/registrymirrors.yaml."""

    upstream_url: str
    registry_host: str = ""
    credentials_secret: str = ""
    allow_unauthenticated_readers: bool = False
    fallback: Fallback = "Upstream"
    storage: Storage = Storage()
    ttl: str = "0s"
    image: str = ""
    resources: Resources = Resources()
    tolerations: tuple[Toleration, ...] | None = None

    @property
    def upstream(self) -> str:
        """The host that serves the upstream's images, with its port if that is not the usual one."""
        return served_by(self.upstream_url.removeprefix("https://"))

    @property
    def host(self) -> str:
        """The host in the names of the images that nodes pull through the mirror."""
        return self.registry_host or (DOCKER_HUB if self.upstream == DOCKER_HUB_SERVER else self.upstream)


def served_by(host: str) -> str:
    """Return the host that serves the images of a registry of this name."""
    return DOCKER_HUB_SERVER if host in _DOCKER_HUB_NAMES else host


class MirrorStatus(Struct, frozen=True, rename="camel"):
    """What an earlier audit said."""

    observed_generation: int = 0
    findings: int = 0
    conditions: tuple[Condition, ...] = ()


class RegistryMirror(Struct, frozen=True):
    """A RegistryMirror that can be followed. One without a uid comes from a file."""

    head: Head
    spec: Spec

    @property
    def name(self) -> str:
        """Its name, by which findings name it too: there are no two."""
        return self.head.key.name


def spec_problems(spec: Spec) -> Iterator[str]:
    """Yield what the CEL rules of the CRD refuse, each problem with its field."""
    if spec.allow_unauthenticated_readers and not spec.credentials_secret:
        yield (
            "allowUnauthenticatedReaders: allowUnauthenticatedReaders says something about the images that "
            "credentialsSecret opens, so it needs one"
        )
    for number, each in enumerate(spec.tolerations or ()):
        if not each.key and each.operator != "Exists":
            yield f"tolerations[{number}]: without a key the operator must be Exists"


def parse_registry_mirror(head: Head, spec: bytes) -> RegistryMirror | Broken:
    """Return the RegistryMirror, or what is wrong with it."""
    try:
        mirror = RegistryMirror(head, decode(spec or b"null", Spec))
    except InvalidObjectError as error:
        return Broken(head, (f"spec: {error.why}",))
    problems = tuple(f"spec.{problem}" for problem in spec_problems(mirror.spec))
    return Broken(head, problems) if problems else mirror
