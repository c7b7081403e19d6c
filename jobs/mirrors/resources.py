"""What is to be said of the resources of one mirror: there, ours, as they were made, and at work. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from jobs.kit import stamps
from jobs.kit.model import Finding, ObjectKey
from jobs.mirrors.actual import Object
from jobs.mirrors.containerd import UNUSED
from jobs.mirrors.drift import Drift, Path, drift
from jobs.mirrors.findings import finding
from jobs.mirrors.manifests import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS, Manifest
from jobs.mirrors.mirror import NAME, Mirror
from jobs.mirrors.observed import NODES, SLICES, Observed, Settings
from jobs.mirrors.quantities import quantity

_MOST_FIELDS_NAMED = 3
# Told apart from other drift: what the fingerprint says of the mirror, and what a volume can and cannot do.
UNKNOWN = "(unknown)"
NOT_DRIFT: frozenset[Path] = frozenset(
    {
        ("f:metadata", "f:annotations", f"f:{stamps.FINGERPRINT}"),
        ("f:spec", "f:resources", "f:requests", "f:storage"),
    }
)


def resource_findings(mirror: Mirror, observed: Observed, settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the outgoing resources of a mirror; of those that could not be read nothing."""
    for desired in mirror.children:
        if desired.resource.kind not in observed.denied:
            yield from _of_child(mirror, desired, observed, settings)


def _of_child(mirror: Mirror, desired: Manifest, observed: Observed, settings: Settings) -> Iterator[Finding]:
    actual = observed.children.get(desired.key)
    if desired.key in observed.invalid:
        return
    if actual is None:
        yield finding("missing", desired.key, "is not there", mirror.asked)
    elif not is_ours(actual):
        yield finding("conflict", desired.key, "exists and was not made for a mirror: left untouched", mirror.asked)
    elif actual["metadata"].get("deletionTimestamp"):
        yield finding("terminating", desired.key, "is being deleted", mirror.asked)
    else:
        yield from _drifted(mirror, desired, actual, settings)
        yield from _AT_WORK[desired.resource.kind](mirror, desired, actual, observed)


def is_ours(actual: Object) -> bool:
    """Whether the job made an object for some mirror."""
    return stamps.is_managed(actual["metadata"].get("labels") or {}, NAME, "")


def made_for(actual: Object) -> str:
    """Return the name of the mirror that an object was made for."""
    return str((actual["metadata"].get("annotations") or {}).get(stamps.RULE, UNKNOWN))


def _drifted(mirror: Mirror, desired: Manifest, actual: Object, settings: Settings) -> Iterator[Finding]:
    if desired.resource is DAEMON_SETS and not mirror.cluster_ip:
        return  # what it should say hangs on the address of a Service that is not there, which is told of that
    found = drift(desired.body(), actual, NOT_DRIFT)
    if found:
        changes = tuple(each.change for each in found) if settings.diff else ()
        yield finding("drifted", desired.key, _told(desired, actual, found), mirror.asked, changes)


def _told(desired: Manifest, actual: Object, found: list[Drift]) -> str:
    made_for = (actual["metadata"].get("annotations") or {}).get(stamps.FINGERPRINT)
    by = sorted({each.by for each in found if each.by})
    verb = "is" if len(found) == 1 else "are"
    why = f"changed by {', '.join(by)}" if by else f"{verb} not as the mirror asks for"
    if made_for != desired.metadata.annotations[stamps.FINGERPRINT]:
        why += "; it was made before the mirror, or what it needs, changed"
    return f"{named([each.change.field for each in found])} {why}"


def named(fields: Sequence[str]) -> str:
    """Return the first of the fields, and how many more there are."""
    more = f" and {len(fields) - _MOST_FIELDS_NAMED} more" if len(fields) > _MOST_FIELDS_NAMED else ""
    return f"{', '.join(fields[:_MOST_FIELDS_NAMED])}{more}"


def _service(mirror: Mirror, desired: Manifest, _actual: Object, observed: Observed) -> Iterator[Finding]:
    found = observed.endpoints_of(desired.key)
    if desired is mirror.service and not mirror.cluster_ip:
        # No address is a field that we do not set, and one that no write changes.
        reason = "has no address of its own for nodes to ask: spec.clusterIP is None"
        yield finding("drifted", desired.key, reason, mirror.asked)
    if desired is mirror.service and SLICES.kind not in observed.denied and not found.own:
        yield finding("no-endpoints", desired.key, "has no ready pod behind it", mirror.asked)
    if found.foreign:
        replicas = len(ordinals(observed.children.get(mirror.stateful_set.key)))
        counts = f"has {_counted(found.own + found.foreign, 'endpoint')} for {_counted(replicas, 'replica')}"
        who = f"pod {found.foreign_pod}" if found.foreign_pod else _counted(found.foreign, "address", "es")
        verb = "is" if found.foreign_pod or found.foreign == 1 else "are"
        reason = f"{counts}: {who} {verb} not the registry's, and gets requests for it"
        yield finding("foreign-endpoints", desired.key, reason, mirror.asked)


def _counted(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural * (number != 1)}"


def ordinals(stateful_set: Object | None) -> range:
    """Return the numbers of the pods that a StatefulSet may have: others may have scaled it, which is drift."""
    if not stateful_set or not is_ours(stateful_set):
        return range(1)
    start = int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))
    return range(start, start + max(1, int(stateful_set["spec"].get("replicas", 1))))


def _claim(mirror: Mirror, desired: Manifest, actual: Object, observed: Observed) -> Iterator[Finding]:
    phase = _status(actual).get("phase", "Pending")
    if phase == "Lost":
        yield finding("volume-lost", desired.key, "has lost its volume, and the cache with it", mirror.asked)
    elif phase != "Bound":
        reason = _explained(f"is {phase}, not Bound", desired.key, observed)
        yield finding("volume-pending", desired.key, reason, mirror.asked)
    asks = _storage(actual["spec"].get("resources", {}).get("requests", {}))
    has = _storage(_status(actual).get("capacity", {}))
    should = mirror.spec.storage.size
    if quantity(asks) > quantity(should):
        yield finding("volume-shrink", desired.key, f"asks for {asks}, the mirror for {should} only", mirror.asked)
    elif quantity(asks) < quantity(should):
        yield finding("volume-too-small", desired.key, f"asks for {asks}, the mirror for {should}", mirror.asked)
    elif phase == "Bound" and quantity(has) < quantity(asks):
        yield finding("volume-too-small", desired.key, f"asks for {asks} and has {has} so far", mirror.asked)


def _storage(amounts: Object) -> str:
    return str(amounts.get("storage", "0"))


def _stateful_set(mirror: Mirror, desired: Manifest, actual: Object, observed: Observed) -> Iterator[Finding]:
    if why := behind(STATEFUL_SETS.kind, actual):
        yield finding("not-rolled-out", desired.key, _explained(why, desired.key, observed), mirror.asked)


def _daemon_set(mirror: Mirror, desired: Manifest, actual: Object, observed: Observed) -> Iterator[Finding]:
    meant_for = _status(actual).get("desiredNumberScheduled", 0)
    if why := behind(DAEMON_SETS.kind, actual):
        code = "mirror-bypassed" if UNUSED in observed.events.get(desired.key, "") else "not-rolled-out"
        yield finding(code, desired.key, _explained(why, desired.key, observed), mirror.asked)
    elif NODES.kind not in observed.denied and meant_for < observed.nodes:
        fields = " and ".join(f"spec.template.spec.{field}" for field in _narrowing(desired, actual))
        what = f"{fields} lets it run" if fields else "runs"
        reason = f"{what} on {meant_for} of {observed.nodes} Linux nodes; the others do not know the mirror"
        yield finding("nodes-not-covered", desired.key, reason, mirror.asked)


def _narrowing(desired: Manifest, actual: Object) -> Iterator[str]:
    """Yield the fields by which others keep pods from nodes."""
    ours, pod = (each["spec"]["template"]["spec"] for each in (desired.body(), actual))
    if (pod.get("nodeSelector") or {}) != ours["nodeSelector"]:
        yield "nodeSelector"
    if ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
        yield "affinity"


def behind(kind: str, actual: Object) -> str:
    """Return in what a StatefulSet or DaemonSet is not yet as its spec says, or nothing."""
    status = _status(actual)
    if status.get("observedGeneration", 0) < actual["metadata"].get("generation", 0):
        return "its controller has not seen the latest change yet"
    if kind == STATEFUL_SETS.kind:
        desired = int(actual["spec"].get("replicas", 1))
        updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    else:
        desired = status.get("desiredNumberScheduled", 0)
        updated, ready = status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)
    if updated < desired:
        return f"{updated} of {desired} pods are up to date"
    return f"{ready} of {desired} pods are ready" if ready < desired else ""


def is_at_work(kind: str, actual: Object) -> bool:
    """Whether a workload or a claim does what it is for; nobody knows it of what is not a mirror's, or is a Service."""
    if not is_ours(actual):
        return True
    if kind == CLAIMS.kind:
        return bool(_status(actual).get("phase") == "Bound")
    return kind == SERVICES.kind or not behind(kind, actual)


def _explained(why: str, about: ObjectKey, observed: Observed) -> str:
    """Return the reason with what an Event says of it."""
    return f"{why}; {observed.events[about]}" if about in observed.events else why


def _status(actual: Object) -> Object:
    status: Object = actual.get("status") or {}
    return status


_AT_WORK: Mapping[str, Callable[[Mirror, Manifest, Object, Observed], Iterator[Finding]]] = {
    SERVICES.kind: _service,
    CLAIMS.kind: _claim,
    STATEFUL_SETS.kind: _stateful_set,
    DAEMON_SETS.kind: _daemon_set,
}
