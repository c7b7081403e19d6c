"""The RegistryMirror: its types and its validation; and quantities, such as 20Gi or 50m. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Literal

import msgspec
from msgspec import Struct

from jobs.core.mirror_node.hosts import is_host
from jobs.kit.values.conditions import Condition
from jobs.kit.values.reads import Head, Invalid, parse
from jobs.kit.values.resources import key_problems, value_problems

# quantities

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}


def quantity(text: str | int) -> Decimal:
    """Return a quantity as a number, whatever its suffix.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/

    Raises:
        ValueError: the text is not a quantity.
    """
    found = _QUANTITY.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is not a quantity")
    try:
        number, suffix = Decimal(found[1]), found[2] or ""
        return number * _BINARY[suffix] if suffix in _BINARY else number.scaleb(_SUFFIXES[suffix])
    except ArithmeticError:
        raise ValueError(f"{text!r} is not a quantity") from None


# the custom resource

Fallback = Literal["Upstream", "None"]
Amounts = Mapping[str, str | int]
USERNAME, PASSWORD = "username", "password"  # the keys of the Secret with the credentials
UPSTREAM, IMAGES = "kubechores.dev/upstream", "kubechores.dev/images"  # its annotations

# The names of Docker Hub's images start with docker.io, but another host serves them.
# https://distribution.github.io/distribution/recipes/mirror/
DOCKER_HUB, DOCKER_HUB_SERVER = "docker.io", "registry-1.docker.io"
_OLD_DOCKER_HUB = "index.docker.io"  # containerd and all other clients read it as docker.io
_DOCKER_HUB_NAMES = frozenset({DOCKER_HUB, DOCKER_HUB_SERVER, _OLD_DOCKER_HUB})


# https://github.com/distribution/reference/blob/main/reference.go and
# https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests
_PART = r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
_PATH = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_DIGEST = r"sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}"
_IMAGE = re.compile(
    rf"({_PART}(\.{_PART})*(:[0-9]+)?/)?{_PATH}(/{_PATH})*(:[a-zA-Z0-9_][-a-zA-Z0-9_.]{{0,127}})?(@({_DIGEST}))?"
)
_LONGEST_IMAGE = 512
_SIZE = re.compile(r"[1-9][0-9]*(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?")
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]|[KMGTPE]i)?")
_LONGEST_AMOUNT = 32
_MOST: Amounts = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "64Gi"}


class Storage(Struct, frozen=True, rename="camel"):
    """The volume of the cache."""

    size: str = "20Gi"
    storage_class_name: str = ""


class Resources(Struct, frozen=True):
    """The resources of the registry's container that a spec sets; others have defaults."""

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
    ttl: str = "168h"
    image: str = ""
    resources: Resources = Resources()
    priority_class_name: str = ""
    tolerations: tuple[Toleration, ...] | None = None
    registry_tolerations: tuple[Toleration, ...] = ()

    @property
    def upstream(self) -> str:
        """The host that serves the upstream's images, with its port unless that is 443."""
        return served_by(self._given)

    @property
    def _given(self) -> str:
        return self.upstream_url.removeprefix("https://")

    @property
    def host(self) -> str:
        """The host in the names of the images that nodes pull through the mirror, with the port in those names.

        containerd reads the folder of exactly this name.
        """
        if self.registry_host:
            return DOCKER_HUB if self.registry_host == _OLD_DOCKER_HUB else self.registry_host
        return DOCKER_HUB if self.upstream == DOCKER_HUB_SERVER else self._given


def served_by(host: str) -> str:
    """Return the host that serves the images of a registry of this name, without the port 443."""
    host = host.removesuffix(":443")
    return DOCKER_HUB_SERVER if host in _DOCKER_HUB_NAMES else host


class MirrorStatus(Struct, frozen=True, rename="camel"):
    """The status that an earlier audit wrote; changes() in status.py has the times of changes."""

    observed_generation: int = 0
    findings: int = 0
    registry_changed: str = ""
    nodes_changed: str = ""
    conditions: tuple[Condition, ...] = ()


class RegistryMirror(Struct, frozen=True):
    """A valid RegistryMirror. One without a uid comes from a file."""

    head: Head
    spec: Spec

    @property
    def name(self) -> str:
        """Its name, which is unique in the cluster; findings name it as their subject."""
        return self.head.key.name


def is_image(text: str) -> bool:
    """Whether this is the reference of an image, with or without its registry."""
    return len(text) <= _LONGEST_IMAGE and _IMAGE.fullmatch(text) is not None


def spec_problems(spec: Spec) -> Iterator[str]:
    """Yield what the CRD rejects, each problem with its field: the cluster may have an older CRD."""
    yield from _name_problems(spec)
    yield from _amount_problems(spec)
    if spec.allow_unauthenticated_readers and not spec.credentials_secret:
        yield "allowUnauthenticatedReaders: allowUnauthenticatedReaders requires credentialsSecret"
    for field, tolerations in (
        ("tolerations", spec.tolerations or ()),
        ("registryTolerations", spec.registry_tolerations),
    ):
        for number, each in enumerate(tolerations):
            yield from _toleration_problems(each, f"{field}[{number}]")


def _toleration_problems(toleration: Toleration, path: str) -> Iterator[str]:
    """Yield the problems for which the API would refuse a pod with this toleration."""
    exists = toleration.operator == "Exists"
    if toleration.key:
        yield from key_problems(toleration.key, f"{path}.key")
    elif not exists:
        yield f"{path}: without a key the operator must be Exists"
    if exists and toleration.value:
        yield f"{path}.value: with operator Exists the value must be empty"
    yield from value_problems(toleration.value, f"{path}.value")
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        yield f"{path}.tolerationSeconds: tolerationSeconds requires effect NoExecute"


def _name_problems(spec: Spec) -> Iterator[str]:
    if not is_host(spec.upstream_url.removeprefix("https://")):
        yield f"upstreamUrl: {spec.upstream_url!r} is not a host, with or without https://"
    if spec.registry_host and not is_host(spec.registry_host):
        yield f"registryHost: {spec.registry_host!r} is not a host"
    if spec.image and not is_image(spec.image):
        yield f"image: {spec.image!r} is not an image reference"
    if spec.priority_class_name.startswith("system-"):
        yield f"priorityClassName: {spec.priority_class_name!r}: pods of mirrors cannot have a PriorityClass system-*"


def _amount_problems(spec: Spec) -> Iterator[str]:
    if not _is_amount(spec.storage.size, _SIZE):
        yield f"storage.size: {spec.storage.size!r} is not a size; write one such as 20Gi"
    for field, amounts in (("requests", spec.resources.requests), ("limits", spec.resources.limits)):
        for name, amount in amounts.items():
            if not _is_amount(str(amount), _AMOUNT):
                yield f"resources.{field}.{name}: {amount!r} is not a quantity; write one such as 500m or 1Gi"
            elif name not in _MOST or quantity(amount) > quantity(_MOST[name]):
                yield (
                    f"resources.{field}.{name}: a registry can have at most 16 CPUs, 64Gi of memory and 64Gi of "
                    "ephemeral-storage, and no other resources"
                )
    for name, limit in spec.resources.limits.items():
        request = spec.resources.requests.get(name, 0)
        are_amounts = all(_is_amount(str(each), _AMOUNT) for each in (request, limit))
        if are_amounts and quantity(request) > quantity(limit):
            yield f"resources.requests.{name}: {request!r} is greater than the limit {limit!r}"


def _is_amount(text: str, form: re.Pattern[str]) -> bool:
    return len(text) <= _LONGEST_AMOUNT and form.fullmatch(text) is not None


def parse_registry_mirror(head: Head, spec: bytes) -> RegistryMirror | Invalid:
    """Return the RegistryMirror, or the problems of its spec."""
    return parse(head, spec, Spec, spec_problems, RegistryMirror)
