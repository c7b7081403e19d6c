"""Resources, endpoints and Events of mirrors, as the API server has them: decode, validate and reduce them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from msgspec import Meta, Raw, Struct, convert, field

from jobs.core.mirror_audit.desired import NAME
from jobs.core.mirror_audit.registry_mirrors import quantity
from jobs.core.mirror_node.hosts import BYPASSED
from jobs.kit.values import stamps
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import MAX_LEVELS, PartialObject, decode, once_if_short, string_map
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, PODS, SERVICES, STATEFUL_SETS, Resource, is_name
from jobs.kit.values.text import brief

# resources: their stamp, and whether they work

# The memory limit of a run is 128 MiB (cronjobs/). A StatefulSet of a mirror has 8 KiB.
_MOST_BYTES = 32 << 10
_MOST_PULL_SECRETS = 10  # of one pod or ServiceAccount
UNKNOWN = "(unknown)"

Object = Mapping[str, Any]
_Spec = TypeVar("_Spec")


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


class PodSpec(Struct, rename="camel"):
    """The fields of a pod that an audit reads."""

    containers: Annotated[list[_Container], Meta(min_length=1)]
    node_selector: dict[str, str] | None = None
    affinity: dict[str, dict[str, Any] | None] | None = None


class PartialMetadata(Struct, rename="camel"):
    """The metadata of what an audit reads only in part."""

    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Struct):
    metadata: PartialMetadata
    spec: PodSpec


class _WorkloadSpec(Struct):
    template: _Template
    replicas: int | None = None
    ordinals: dict[str, int | None] | None = None


class _ServiceSpec(Struct, rename="camel"):
    cluster_ip: str | None = field(name="clusterIP", default=None)


class _Amounts(Struct):
    storage: str | int = 0


class _Requests(Struct):
    requests: _Amounts


class _ClaimSpec(Struct, rename="camel"):
    resources: _Requests
    storage_class_name: str | None = None


class _Status(Struct, rename="camel"):
    observed_generation: int | None = None
    updated_replicas: int | None = None
    ready_replicas: int | None = None
    replicas: int | None = None
    desired_number_scheduled: int | None = None
    current_number_scheduled: int | None = None
    updated_number_scheduled: int | None = None
    number_ready: int | None = None
    phase: str | None = None
    capacity: _Amounts | None = None


class _Form(Struct, Generic[_Spec]):
    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


_FORMS: Mapping[str, Any] = {
    SERVICES.kind: _Form[_ServiceSpec],
    CLAIMS.kind: _Form[_ClaimSpec],
    STATEFUL_SETS.kind: _Form[_WorkloadSpec],
    DAEMON_SETS.kind: _Form[_WorkloadSpec],
}


def decode_resource(resource: Resource, namespace: str, raw: Raw) -> tuple[ObjectKey, Object]:
    """Return a resource with its key: complete if mirror-audit manages it, otherwise a placeholder.

    Raises:
        InvalidObjectError: it is not a resource of this kind, or it is too large to keep in memory.
    """
    head = decode(raw, PartialObject).metadata
    key = ObjectKey(resource.kind, head.name, namespace)
    if not stamps.is_managed(string_map(head.labels), NAME, ""):
        return key, placeholder(key)
    if len(raw) > _MOST_BYTES:
        raise InvalidObjectError(f"it has {len(raw) >> 10} KiB, the limit is {_MOST_BYTES >> 10} KiB")
    found = decode(raw, _FORMS[resource.kind])
    if resource is CLAIMS:
        capacity = found.status.capacity if found.status else None
        try:
            for each in (found.spec.resources.requests, capacity):
                quantity(each.storage if each else 0)
        except ValueError as error:
            raise InvalidObjectError(str(error)) from None
    return key, _decode(raw)


def _decode(raw: Raw) -> Object:
    """Return a resource as plain values. Its managedFields are its larger part, and those of all mirrors are equal."""
    parts = decode(raw, dict[str, Raw])
    metadata = decode(parts.pop("metadata"), dict[str, Raw])
    owned = decode(metadata.pop("managedFields", Raw(b"[]")), list[dict[str, Raw]])
    values = {"metadata": {**_values(metadata), "managedFields": [_entry(each) for each in owned]}}
    return {**values, **_values(parts)}


def _entry(parts: dict[str, Raw]) -> Object:
    fields = bytes(parts.pop("fieldsV1", b"null"))
    return {**_values(parts), "fieldsV1": _fields(fields)}


def _values(parts: Mapping[str, Raw]) -> Object:
    values = {name: _value(bytes(each)) for name, each in parts.items()}
    return {name: each for name, each in values.items() if each is not None}


def _value(text: bytes) -> Any:
    value: Any = decode(text, object)
    is_plain = b"null" not in text and text.count(b"{") + text.count(b"[") <= MAX_LEVELS
    return value if is_plain else _plain(value)


@once_if_short
def _fields(text: bytes) -> Any:
    return _plain(decode(text, object))


def placeholder(key: ObjectKey) -> Object:
    """Return a placeholder of an object that mirror-audit does not manage, without labels or spec."""
    return {"metadata": {"name": key.name, "namespace": key.namespace, "labels": {}}}


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


# ready endpoints of Services: pods of the registry, and foreign ones

_OF_SERVICE = "kubernetes.io/service-name"
_LONGEST_NAME = 253


class Endpoints(Struct, frozen=True):
    """The numbers of a Service's ready addresses: pods of its registry, and foreign ones with the first foreign pod."""

    own: int = 0
    foreign: int = 0
    foreign_pod: str = ""


class _Conditions(Struct):
    ready: bool | None = None


class _Reference(Struct):
    kind: str = ""
    name: str = ""
    namespace: str | None = None
    uid: str | None = None


class _Endpoint(Struct, rename="camel"):
    addresses: list[str] | None = None
    conditions: _Conditions = field(default_factory=_Conditions)
    target_ref: _Reference | None = None


class Slice(Struct, rename="camel"):
    """The fields of an EndpointSlice that an audit reads."""

    metadata: PartialMetadata
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


def _pod(target: _Reference | None, namespace: str) -> str:
    is_pod = target and target.kind == PODS.kind and target.namespace == namespace
    return target.name[:_LONGEST_NAME] if target and is_pod else ""


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
    counted = {}
    for service, families in found.items():
        # With two address families, both have the same pods.
        own, foreign = (max(map(len, addresses)) for addresses in zip(*families.values(), strict=True))
        pods = (pod for each in families.values() for pod in each.foreign if pod)
        counted[service] = Endpoints(own, foreign, min(pods, default=""))
    return counted


# quotes of Warning Events that explain why a workload is not rolled out or a claim is not bound

# The newest text is the present cause: one of a pod that no longer exists, or from before a pod was ready, explains
# nothing. If the text changed by itself, each run would write a status. So the quote omits the parts that change
# between pods and between attempts, and of texts that alternate for one cause it is the longest.

WARNINGS = "type=Warning"  # a field selector
_MOST_KEPT = 1024
_MOST_PODS = 256
_LONGEST = 400
_LONGEST_REASON = 64
# The beginnings of texts that kubelet writes in turns for one cause.
_ALTERNATING = (
    ("FailedMount: Unable ", "FailedMount: MountVolume", "FailedAttachVolume: "),
    (
        "Failed: Failed to pull ",
        "Failed: Error: ErrImagePull",
        "Failed: Error: ImagePull",
        "BackOff: Back-off pulling ",
    ),
    ("Unhealthy: ", "BackOff: Back-off restarting "),
)
# For a problem that stays, kubelet writes an Event every 5 minutes, and two alternating texts every 10 minutes.
_TOGETHER = timedelta(minutes=15)
# The uid of a pod, the id of its sandbox, and the client port of a node's connection.
_CHANGING = re.compile(r"\(?\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b\)?|\b[0-9a-f]{64}\b|:\d+(?=->)")
_FIRST_POD = "-0"
_POD_OF_DAEMON_SET = re.compile(r"(.+)-[a-z0-9]{5}")


class _Series(Struct, rename="camel"):
    last_observed_time: str | None = None


class Event(Struct, rename="camel"):
    """The fields of an Event that an audit reads."""

    involved_object: _Reference
    metadata: PartialMetadata
    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    @property
    def time(self) -> str:
        """The time of its last occurrence. The field depends on the component that wrote the Event."""
        last = self.series.last_observed_time if self.series else None
        return last or self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class Quote(NamedTuple):
    """A text of Events, and the object that it explains. `length` is that of the text before it was shortened.

    `is_bypass` is whether it reports that a node does not use the mirror.
    """

    about: ObjectKey
    text: str
    length: int
    is_bypass: bool

    @property
    def rank(self) -> tuple[bool, int, str]:
        """The rank by which one quote is chosen: first a bypassed mirror, then the longest."""
        return self.is_bypass, self.length, self.text


class Occurrence(NamedTuple):
    """The last occurrence of a text: its time, and its object: a pod, or the workload or claim itself."""

    time: datetime
    involved: ObjectKey
    uid: str


Quotes = dict[Quote, Occurrence]


class _Condition(Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _PodStatus(Struct):
    conditions: list[_Condition] | None = None


class Pod(Struct):
    """The fields of a pod that show whether an Event about it is obsolete."""

    metadata: PartialMetadata
    status: _PodStatus = field(default_factory=_PodStatus)

    def is_explained_by(self, event: Occurrence) -> bool:
        """Return whether the Event is about this pod, and not from before it was ready."""
        ready = [each for each in self.status.conditions or () if each.type == "Ready" and each.status == "True"]
        since = ready[0].last_transition_time if ready else None
        return event.uid == self.metadata.uid and not (since and since.tzinfo and since >= event.time)


class Quoted(NamedTuple):
    """A quote of one Event, and its last occurrence."""

    quote: Quote
    event: Occurrence

    def is_of(self, actual: Object) -> bool:
        """Return whether the Event is about this object or its pods, not about an earlier object of the same name.

        An Event of a workload itself is about pods that do not exist yet.
        """
        metadata = actual["metadata"]
        if self.event.involved.kind == PODS.kind:
            created = metadata.get("creationTimestamp")
            return created is None or self.event.time >= convert(created, datetime)
        return bool(self.event.uid == metadata.get("uid")) and not has_all_pods(self.quote.about.kind, actual)


def quoted(event: Event, namespace: str) -> Quoted:
    """Reduce an Event to its quote.

    Raises:
        InvalidObjectError: its time is not valid.
    """
    about = _explained(event.involved_object, namespace)
    reason = (event.reason or "")[:_LONGEST_REASON]
    text = _CHANGING.sub("", " ".join((event.message or "").split()))
    text = re.sub(rf"\b{re.escape(about.name)}-[a-z0-9]{{5}}\b", f"{about.name}-…", text)
    try:
        time = datetime.fromisoformat(event.time.replace("Z", "+00:00")).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        raise InvalidObjectError(str(error)) from None
    involved = event.involved_object
    last = Occurrence(time, about._replace(kind=involved.kind, name=involved.name), involved.uid or "")
    return Quoted(Quote(about, brief(f"{reason}: {text}", _LONGEST), len(text), BYPASSED in text), last)


def _explained(involved: _Reference, namespace: str) -> ObjectKey:
    """Return the involved object, or for a pod its workload, by the pod's name."""
    if involved.kind != PODS.kind:
        return ObjectKey(involved.kind, involved.name, namespace)
    if involved.name.endswith(_FIRST_POD):
        return ObjectKey(STATEFUL_SETS.kind, involved.name.removesuffix(_FIRST_POD), namespace)
    found = _POD_OF_DAEMON_SET.fullmatch(involved.name)
    return ObjectKey(DAEMON_SETS.kind, found[1] if found else involved.name, namespace)


def keep(kept: Quotes, quote: Quote, event: Occurrence) -> None:
    """Add a quote, or update its last occurrence, up to a limit of quotes."""
    if quote in kept or len(kept) < _MOST_KEPT:
        kept[quote] = max(event, kept.get(quote, event))


def pods(kept: Quotes) -> list[ObjectKey]:
    """Return the pods of the newest quotes, up to a limit."""
    newest = sorted(kept.values(), reverse=True)
    keys = dict.fromkeys(each.involved for each in newest if each.involved.kind == PODS.kind)
    return list(keys)[:_MOST_PODS]


def without_obsolete(kept: Quotes, found: Mapping[ObjectKey, Pod | None]) -> Quotes:
    """Return the quotes that the pods `found`, None if one does not exist, do not show to be obsolete."""
    return {
        quote: event
        for quote, event in kept.items()
        if event.involved not in found or ((pod := found[event.involved]) and pod.is_explained_by(event))
    }


def most_informative(kept: Quotes) -> Mapping[ObjectKey, Quote]:
    """Return for each object the newest text; of texts that alternate with it, in the minutes before, the longest.

    The text of a bypassed mirror comes before all others of these minutes.
    """
    by_object: dict[ObjectKey, dict[Quote, datetime]] = {}
    for quote, event in sorted(kept.items(), key=lambda each: (each[1].time, each[0])):
        by_object.setdefault(quote.about, {})[quote] = event.time
    return {about: _most_informative(times) for about, times in by_object.items()}


def _most_informative(times: Mapping[Quote, datetime]) -> Quote:
    """Return the quote for one object. `times` are sorted, the newest last."""
    *_, newest = times
    together = [each for each, time in times.items() if times[newest] - time <= _TOGETHER]
    beginnings = next((each for each in _ALTERNATING if newest.text.startswith(each)), ())
    # The newest of each beginning: an earlier one is obsolete.
    last = {beginning: each for each in together for beginning in beginnings if each.text.startswith(beginning)}
    bypassed = [each for each in together if each.is_bypass]
    return max([newest, *last.values(), *bypassed], key=lambda each: each.rank)


class SecretReference(Struct):
    """One of the imagePullSecrets of a pod or a ServiceAccount."""

    name: str = ""


def secret_names(references: Sequence[SecretReference] | None) -> tuple[str, ...]:
    """Return the names of pull secrets that are valid, only the first of too many."""
    return tuple(each.name for each in (references or ())[:_MOST_PULL_SECRETS] if is_name(each.name))
