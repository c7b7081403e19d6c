"""Count the ready endpoints of mirrors' Services: pods of the registry, and foreign ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec import Struct, field

_OF_SERVICE = "kubernetes.io/service-name"
_LONGEST_NAME = 253


class Endpoints(Struct, frozen=True):
    """The numbers of a Service's ready addresses: pods of its registry, and foreign ones with the first foreign pod."""

    own: int = 0
    foreign: int = 0
    foreign_pod: str = ""


class _Conditions(Struct):
    ready: bool | None = None


class _Target(Struct):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None


class _Endpoint(Struct, rename="camel"):
    addresses: list[str] | None = None
    conditions: _Conditions = field(default_factory=_Conditions)
    target_ref: _Target | None = None


class _SliceMetadata(Struct):
    labels: dict[str, str] | None = None


class Slice(Struct, rename="camel"):
    """The fields of an EndpointSlice that an audit reads."""

    metadata: _SliceMetadata
    address_type: str = ""
    endpoints: list[_Endpoint] | None = None


class Ready(NamedTuple):
    """The ready addresses of a slice, each with the name of its target pod in the namespace, or an empty string."""

    service: str
    family: str
    addresses: list[tuple[str, str]]


def ready(namespace: str, read: Slice) -> Ready:
    """Reduce a slice to its ready addresses."""
    # Unknown counts as ready, as the API defines it.
    serving = [each for each in read.endpoints or () if each.conditions.ready is not False]
    addresses = [(address, _pod(each.target_ref, namespace)) for each in serving for address in each.addresses or ()]
    return Ready((read.metadata.labels or {}).get(_OF_SERVICE, ""), read.address_type, addresses)


def _pod(target: _Target | None, namespace: str) -> str:
    is_pod = target and target.kind == "Pod" and target.namespace == namespace
    return (target.name or "")[:_LONGEST_NAME] if target and is_pod else ""


class _Family(NamedTuple):
    """The endpoints of a Service in one address family: addresses by pod of the registry, and pods of the others."""

    own: dict[str, str]
    foreign: list[str]


def by_service(slices: Iterable[Ready], is_own: Callable[[str, str], bool]) -> dict[str, Endpoints]:
    """Count the endpoints of each Service. `is_own(service, pod)` is whether its registry has a pod of this name."""
    found: dict[str, dict[str, _Family]] = {}
    for each in slices:
        family = found.setdefault(each.service, {}).setdefault(each.family, _Family({}, []))
        for address, pod in each.addresses:
            if not is_own(each.service, pod):
                family.foreign.append(pod)
            # A pod has one address in a family. It can be in two slices for a moment.
            elif family.own.setdefault(pod, address) != address:
                family.foreign.append("")
    return {service: _of_families(list(families.values())) for service, families in found.items()}


def _of_families(families: list[_Family]) -> Endpoints:
    """Return the counts of a Service. With two address families, both have the same pods."""
    own, foreign = max(len(each.own) for each in families), max(len(each.foreign) for each in families)
    pods = (pod for each in families for pod in each.foreign if pod)
    return Endpoints(own, foreign, min(pods, default=""))
