"""Decode and validate resources of mirrors from the API server; read their stamp and whether they work. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field

from jobs.core.mirror_audit.desired.names import NAME
from jobs.core.mirror_audit.quantities import quantity
from jobs.kit.values import stamps
from jobs.kit.values.decoding import MAX_LEVELS, decode
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.metadata import string_map
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS, Resource

# The memory limit of a run is 128 MiB (cronjobs/). A StatefulSet of a mirror has 8 KiB.
_MOST_BYTES = 32 << 10
UNKNOWN = "(unknown)"

Object = Mapping[str, Any]


class _Head(Struct):
    name: Annotated[str, Meta(min_length=1)]
    labels: Raw = Raw()


class _Any(Struct):
    metadata: _Head


class _Entry(Struct, rename="camel"):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] | None = field(name="fieldsV1", default=None)


class _Metadata(Struct, rename="camel"):
    name: str
    uid: str
    resource_version: str
    generation: int = 0
    creation_timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    managed_fields: list[_Entry] | None = None


class _Container(Struct, rename="camel"):
    name: str
    image: str = ""
    args: list[str] | None = None
    readiness_probe: dict[str, Any] | None = None


class _PodSpec(Struct, rename="camel"):
    containers: Annotated[list[_Container], Meta(min_length=1)]
    node_selector: dict[str, str] | None = None
    affinity: dict[str, dict[str, Any] | None] | None = None


class _PodMetadata(Struct):
    annotations: dict[str, str] | None = None


class _Template(Struct):
    metadata: _PodMetadata
    spec: _PodSpec


class _WorkloadSpec(Struct):
    template: _Template
    replicas: int | None = None
    ordinals: dict[str, int | None] | None = None


class _WorkloadStatus(Struct, rename="camel"):
    observed_generation: int | None = None
    updated_replicas: int | None = None
    ready_replicas: int | None = None
    replicas: int | None = None
    desired_number_scheduled: int | None = None
    current_number_scheduled: int | None = None
    updated_number_scheduled: int | None = None
    number_ready: int | None = None


class _Workload(Struct):
    metadata: _Metadata
    spec: _WorkloadSpec
    status: _WorkloadStatus | None = None


class _ServiceSpec(Struct, rename="camel"):
    cluster_ip: str | None = field(name="clusterIP", default=None)


class _Service(Struct):
    metadata: _Metadata
    spec: _ServiceSpec


class _Amounts(Struct):
    storage: str | int = 0


class _Requests(Struct):
    requests: _Amounts


class _ClaimSpec(Struct, rename="camel"):
    resources: _Requests
    storage_class_name: str | None = None


class _ClaimStatus(Struct):
    phase: str | None = None
    capacity: _Amounts | None = None


class _Claim(Struct):
    metadata: _Metadata
    spec: _ClaimSpec
    status: _ClaimStatus | None = None


_FORMS: Mapping[str, type[Struct]] = {
    SERVICES.kind: _Service,
    CLAIMS.kind: _Claim,
    STATEFUL_SETS.kind: _Workload,
    DAEMON_SETS.kind: _Workload,
}


def decode_resource(resource: Resource, namespace: str, raw: Raw) -> tuple[ObjectKey, Object]:
    """Return a resource with its key: complete if mirror-audit manages it, otherwise a placeholder.

    Raises:
        InvalidObjectError: it is not a resource of this kind, or it is too large to keep in memory.
    """
    head = decode(raw, _Any).metadata
    key = ObjectKey(resource.kind, head.name, namespace)
    if not stamps.is_managed(string_map(head.labels), NAME, ""):
        return key, placeholder(key)
    if len(raw) > _MOST_BYTES:
        raise InvalidObjectError(f"it has {len(raw) >> 10} KiB, the limit is {_MOST_BYTES >> 10} KiB")
    found = decode(raw, _FORMS[resource.kind])
    if isinstance(found, _Claim):
        _check_amounts(found)
    return key, _plain(decode(raw, dict[str, Any]))


def placeholder(key: ObjectKey) -> Object:
    """Return a placeholder of an object that mirror-audit does not manage, without labels or spec."""
    return {"metadata": {"name": key.name, "namespace": key.namespace, "labels": {}}}


def _check_amounts(claim: _Claim) -> None:
    capacity = claim.status.capacity if claim.status else None
    try:
        for each in (claim.spec.resources.requests, capacity):
            quantity(each.storage if each else 0)
    except ValueError as error:
        raise InvalidObjectError(str(error)) from None


def _plain(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return the value without null fields, which mean the same as absent ones.

    What is nested too deep for recursive code is null too.
    """
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return None
    if isinstance(value, list):
        return [_plain(each, levels - 1) for each in value]
    fields = {name: _plain(each, levels - 1) for name, each in value.items()}
    return {name: each for name, each in fields.items() if each is not None}


def is_managed(actual: Object) -> bool:
    """Return whether the job manages an object, for any mirror."""
    return stamps.is_managed(actual["metadata"].get("labels") or {}, NAME, "")


def is_terminating(actual: Object) -> bool:
    """Return whether an object is being deleted."""
    return bool(actual["metadata"].get("deletionTimestamp"))


def mirror_name(actual: Object) -> str:
    """Return the name of the mirror of an object, or UNKNOWN if its annotation was removed."""
    return str((actual["metadata"].get("annotations") or {}).get(stamps.RULE, UNKNOWN))


def status_of(actual: Object) -> Object:
    """Return the status, empty if no controller wrote one yet."""
    status: Object = actual.get("status") or {}
    return status


def ordinals(stateful_set: Object | None) -> range:
    """Return the ordinals of a StatefulSet's pods. More than one replica is drift, but all of them are the registry."""
    if not stateful_set or not is_managed(stateful_set):
        return range(1)
    start = int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))
    return range(start, start + max(1, int(stateful_set["spec"].get("replicas", 1))))


def rollout_problem(kind: str, actual: Object) -> str:
    """Return why a StatefulSet or DaemonSet is not rolled out, or an empty string."""
    status = status_of(actual)
    if status.get("observedGeneration", 0) < actual["metadata"].get("generation", 0):
        return "its controller has not observed the latest change yet"
    if kind == STATEFUL_SETS.kind:
        desired = int(actual["spec"].get("replicas", 1))
        updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    else:
        desired = status.get("desiredNumberScheduled", 0)
        updated, ready = status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)
    if updated < desired:
        return f"{updated} of {desired} pods are up to date"
    return f"{ready} of {desired} pods are ready" if ready < desired else ""


def has_all_pods(kind: str, actual: Object) -> bool:
    """Return whether all pods of a StatefulSet or DaemonSet exist; never of another kind."""
    status = status_of(actual)
    if kind == STATEFUL_SETS.kind:
        return bool(status.get("replicas", 0) >= actual["spec"].get("replicas", 1))
    desired = status.get("desiredNumberScheduled", 0)
    return kind == DAEMON_SETS.kind and bool(status.get("currentNumberScheduled", 0) >= desired)


def is_working(kind: str, actual: Object) -> bool:
    """Return whether a workload is rolled out or a claim is bound. Objects of others and Services count as working."""
    if not is_managed(actual):
        return True
    if kind == CLAIMS.kind:
        return bool(status_of(actual).get("phase") == "Bound")
    return kind == SERVICES.kind or not rollout_problem(kind, actual)
