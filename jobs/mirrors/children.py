"""What is to be said of the resources of one mirror: there, ours, as they were made, and at work. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from jobs.kit import stamps
from jobs.kit.model import Finding, ObjectKey
from jobs.mirrors.containerd import UNUSED
from jobs.mirrors.drift import Drift, Path, drift
from jobs.mirrors.findings import finding
from jobs.mirrors.manifests import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS, Manifest
from jobs.mirrors.mirror import NAME, Mirror
from jobs.mirrors.observed_resources import Object
from jobs.mirrors.quantities import quantity
from jobs.mirrors.seen import NODES, SLICES, Seen, Settings

_MOST_FIELDS_NAMED = 3
# Told apart from other drift: what the fingerprint says of the mirror, and what a volume can and cannot do.
UNKNOWN = "(unknown)"
NOT_DRIFT: frozenset[Path] = frozenset(
    {
        ("f:metadata", "f:annotations", f"f:{stamps.FINGERPRINT}"),
        ("f:spec", "f:resources", "f:requests", "f:storage"),
    }
)


def child_findings(mirror: Mirror, seen: Seen, settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the outgoing resources of a mirror; of those that could not be read nothing."""
    for wanted in mirror.children:
        if wanted.resource.kind not in seen.denied:
            yield from _of_child(mirror, wanted, seen, settings)


def _of_child(mirror: Mirror, wanted: Manifest, seen: Seen, settings: Settings) -> Iterator[Finding]:
    actual = seen.children.get(wanted.key)
    if wanted.key in seen.invalid:
        return
    if actual is None:
        yield finding("missing", wanted.key, "is not there", mirror.asked)
    elif not is_ours(actual):
        yield finding("conflict", wanted.key, "exists and was not made for a mirror: left untouched", mirror.asked)
    elif actual["metadata"].get("deletionTimestamp"):
        yield finding("terminating", wanted.key, "is being deleted", mirror.asked)
    else:
        yield from _drifted(mirror, wanted, actual, settings)
        yield from _AT_WORK[wanted.resource.kind](mirror, wanted, actual, seen)


def is_ours(actual: Object) -> bool:
    """Whether the job made an object for some mirror."""
    return stamps.is_ours(actual["metadata"].get("labels") or {}, NAME, "")


def made_for(actual: Object) -> str:
    """Return the name of the mirror that an object was made for."""
    return str((actual["metadata"].get("annotations") or {}).get(stamps.RULE, UNKNOWN))


def _drifted(mirror: Mirror, wanted: Manifest, actual: Object, settings: Settings) -> Iterator[Finding]:
    if wanted.resource is DAEMON_SETS and not mirror.cluster_ip:
        return  # what it should say hangs on the address of a Service that is not there, which is told of that
    found = drift(wanted.body(), actual, NOT_DRIFT)
    if found:
        changes = tuple(each.change for each in found) if settings.diff else ()
        yield finding("drifted", wanted.key, _told(wanted, actual, found), mirror.asked, changes)


def _told(wanted: Manifest, actual: Object, found: list[Drift]) -> str:
    made_for = (actual["metadata"].get("annotations") or {}).get(stamps.FINGERPRINT)
    by = sorted({each.by for each in found if each.by})
    verb = "is" if len(found) == 1 else "are"
    why = f"changed by {', '.join(by)}" if by else f"{verb} not as the mirror asks for"
    if made_for != wanted.metadata.annotations[stamps.FINGERPRINT]:
        why += "; it was made before the mirror, or what it needs, changed"
    return f"{named([each.change.field for each in found])} {why}"


def named(fields: Sequence[str]) -> str:
    """Return the first of the fields, and how many more there are."""
    more = f" and {len(fields) - _MOST_FIELDS_NAMED} more" if len(fields) > _MOST_FIELDS_NAMED else ""
    return f"{', '.join(fields[:_MOST_FIELDS_NAMED])}{more}"


def _service(mirror: Mirror, wanted: Manifest, _actual: Object, seen: Seen) -> Iterator[Finding]:
    found = seen.endpoints_of(wanted.key)
    if wanted is mirror.service and not mirror.cluster_ip:
        # No address is a field that we do not set, and one that no write changes.
        reason = "has no address of its own for nodes to ask: spec.clusterIP is None"
        yield finding("drifted", wanted.key, reason, mirror.asked)
    if wanted is mirror.service and SLICES.kind not in seen.denied and not found.own:
        yield finding("no-endpoints", wanted.key, "has no ready pod behind it", mirror.asked)
    if found.foreign:
        replicas = len(ordinals(seen.children.get(mirror.stateful_set.key)))
        counts = f"has {_counted(found.own + found.foreign, 'endpoint')} for {_counted(replicas, 'replica')}"
        who = f"pod {found.foreign_pod}" if found.foreign_pod else _counted(found.foreign, "address", "es")
        verb = "is" if found.foreign_pod or found.foreign == 1 else "are"
        reason = f"{counts}: {who} {verb} not the registry's, and gets requests for it"
        yield finding("foreign-endpoints", wanted.key, reason, mirror.asked)


def _counted(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural * (number != 1)}"


def ordinals(stateful_set: Object | None) -> range:
    """Return the numbers of the pods that a StatefulSet may have: others may have scaled it, which is drift."""
    if not stateful_set or not is_ours(stateful_set):
        return range(1)
    start = int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))
    return range(start, start + max(1, int(stateful_set["spec"].get("replicas", 1))))


def _claim(mirror: Mirror, wanted: Manifest, actual: Object, seen: Seen) -> Iterator[Finding]:
    phase = _status(actual).get("phase", "Pending")
    if phase == "Lost":
        yield finding("volume-lost", wanted.key, "has lost its volume, and the cache with it", mirror.asked)
    elif phase != "Bound":
        reason = _explained(f"is {phase}, not Bound", wanted.key, seen)
        yield finding("volume-pending", wanted.key, reason, mirror.asked)
    asks = _storage(actual["spec"].get("resources", {}).get("requests", {}))
    has = _storage(_status(actual).get("capacity", {}))
    should = mirror.spec.storage.size
    if quantity(asks) > quantity(should):
        yield finding("volume-shrink", wanted.key, f"asks for {asks}, the mirror for {should} only", mirror.asked)
    elif quantity(asks) < quantity(should):
        yield finding("volume-too-small", wanted.key, f"asks for {asks}, the mirror for {should}", mirror.asked)
    elif phase == "Bound" and quantity(has) < quantity(asks):
        yield finding("volume-too-small", wanted.key, f"asks for {asks} and has {has} so far", mirror.asked)


def _storage(amounts: Object) -> str:
    return str(amounts.get("storage", "0"))


def _stateful_set(mirror: Mirror, wanted: Manifest, actual: Object, seen: Seen) -> Iterator[Finding]:
    if why := behind(STATEFUL_SETS.kind, actual):
        yield finding("not-rolled-out", wanted.key, _explained(why, wanted.key, seen), mirror.asked)


def _daemon_set(mirror: Mirror, wanted: Manifest, actual: Object, seen: Seen) -> Iterator[Finding]:
    meant_for = _status(actual).get("desiredNumberScheduled", 0)
    if why := behind(DAEMON_SETS.kind, actual):
        code = "mirror-bypassed" if UNUSED in seen.events.get(wanted.key, "") else "not-rolled-out"
        yield finding(code, wanted.key, _explained(why, wanted.key, seen), mirror.asked)
    elif NODES.kind not in seen.denied and meant_for < seen.nodes:
        fields = " and ".join(f"spec.template.spec.{field}" for field in _narrowing(wanted, actual))
        what = f"{fields} lets it run" if fields else "runs"
        reason = f"{what} on {meant_for} of {seen.nodes} Linux nodes; the others do not know the mirror"
        yield finding("nodes-uncovered", wanted.key, reason, mirror.asked)


def _narrowing(wanted: Manifest, actual: Object) -> Iterator[str]:
    """Yield the fields by which others keep pods from nodes."""
    ours, pod = (each["spec"]["template"]["spec"] for each in (wanted.body(), actual))
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
        wanted = int(actual["spec"].get("replicas", 1))
        updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    else:
        wanted = status.get("desiredNumberScheduled", 0)
        updated, ready = status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)
    if updated < wanted:
        return f"{updated} of {wanted} pods are up to date"
    return f"{ready} of {wanted} pods are ready" if ready < wanted else ""


def is_at_work(kind: str, actual: Object) -> bool:
    """Whether a workload or a claim does what it is for; nobody knows it of what is not a mirror's, or is a Service."""
    if not is_ours(actual):
        return True
    if kind == CLAIMS.kind:
        return bool(_status(actual).get("phase") == "Bound")
    return kind == SERVICES.kind or not behind(kind, actual)


def _explained(why: str, about: ObjectKey, seen: Seen) -> str:
    """Return the reason with what an Event says of it."""
    return f"{why}; {seen.events[about]}" if about in seen.events else why


def _status(actual: Object) -> Object:
    status: Object = actual.get("status") or {}
    return status


_AT_WORK: Mapping[str, Callable[[Mirror, Manifest, Object, Seen], Iterator[Finding]]] = {
    SERVICES.kind: _service,
    CLAIMS.kind: _claim,
    STATEFUL_SETS.kind: _stateful_set,
    DAEMON_SETS.kind: _daemon_set,
}
