"""Evaluate the resources of one mirror: whether each exists, is managed, has not drifted, and works. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from jobs.core.mirror_audit.actual.objects import (
    Object,
    is_managed,
    is_terminating,
    ordinals,
    rollout_problem,
    status_of,
)
from jobs.core.mirror_audit.checks.drift import Drift, resource_drift
from jobs.core.mirror_audit.checks.findings import Problem, finding
from jobs.core.mirror_audit.desired.mirror import Manifest, Mirror
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.quantities import quantity
from jobs.kit.values import stamps
from jobs.kit.values.model import Change, Finding, ObjectKey
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, ENDPOINT_SLICES, NODES, SERVICES, STATEFUL_SETS
from jobs.kit.values.text import listed

_MOST_FIELDS_NAMED = 3
_SHORT = re.compile(r"[A-Za-z0-9._/:@%-]{1,40}")  # a scalar


def resource_findings(mirror: Mirror, observed: Observed, settings: Settings) -> Iterator[Finding]:
    """Yield the findings about the resources of a mirror, except those that could not be read."""
    for desired in mirror.resources:
        if desired.resource.kind in observed.list_errors or desired.key in observed.invalid:
            continue
        actual = observed.resources.get(desired.key)
        if problem := _existence_problem(actual):
            yield finding(*problem, desired.key, mirror.registry_mirror)
        elif actual:
            yield from _drifted(mirror, desired, actual, settings)
            for problem in _HEALTH_CHECKS[desired.resource.kind](mirror, desired, actual, observed):
                yield finding(*problem, desired.key, mirror.registry_mirror)


def _existence_problem(actual: Object | None) -> Problem | None:
    if actual is None:
        return Problem("missing", "does not exist")
    if not is_managed(actual):
        return Problem("conflict", "exists and is not managed by kube-chores: left untouched")
    return Problem("terminating", "is being deleted") if is_terminating(actual) else None


def _drifted(mirror: Mirror, desired: Manifest, actual: Object, settings: Settings) -> Iterator[Finding]:
    if desired.resource is DAEMON_SETS and not mirror.cluster_ip:
        return  # its arguments depend on the address of the Service, which has a separate finding
    if found := resource_drift(desired, actual):
        changes = tuple(each.change for each in found) if settings.run.diff else ()
        code = "scaled-to-zero" if actual["spec"].get("replicas") == 0 else "drifted"
        problem = Problem(code, _drift_reason(desired, actual, found))
        yield finding(*problem, desired.key, mirror.registry_mirror, changes)


def _drift_reason(desired: Manifest, actual: Object, found: list[Drift]) -> str:
    fingerprint = (actual["metadata"].get("annotations") or {}).get(stamps.FINGERPRINT)
    changed = ", ".join(sorted({each.by for each in found if each.by}))
    changed = f"changed by {changed}" if changed else ""
    if len(found) == 1 and _is_short(found[0].change):
        field, was, wanted = found[0].change
        reason = "; ".join(filter(None, (f"{field} is {was}, the mirror defines {wanted}", changed)))
    else:
        verb = "differs" if len(found) == 1 else "differ"
        reason = f"{named([each.change.field for each in found])} {changed or f'{verb} from what the mirror defines'}"
    if fingerprint != desired.body["metadata"]["annotations"][stamps.FINGERPRINT]:
        reason += "; the mirror, or something it depends on, changed after the last write"
    return reason


def _is_short(change: Change) -> bool:
    """Return whether a reason shows the values: short scalars, but no environment variables, which may be secret.

    Users who read the status of a mirror may not be allowed to read its workloads.
    """
    values = (change.actual, change.desired)
    return ".env[" not in change.field and all(_SHORT.fullmatch(each or "") for each in values)


def named(fields: Sequence[str]) -> str:
    """Join the first of the fields, and the number of the others."""
    return listed(fields, _MOST_FIELDS_NAMED)


def _service(mirror: Mirror, desired: Manifest, _actual: Object, observed: Observed) -> Iterator[Problem]:
    found = observed.endpoints_of(desired.key)
    if desired is mirror.service and not mirror.cluster_ip:
        # kube-chores does not set spec.clusterIP, and no write can change None.
        yield Problem("drifted", "has no IP address from which nodes can pull: spec.clusterIP is None")
    if desired is mirror.service and ENDPOINT_SLICES.kind not in observed.list_errors and not found.own:
        yield Problem("no-endpoints", "has no ready endpoint")
    if found.foreign:
        replicas = len(ordinals(observed.resources.get(mirror.stateful_set.key)))
        counts = f"has {_counted(found.own + found.foreign, 'endpoint')} for {_counted(replicas, 'replica')}"
        who = f"pod {found.foreign_pod}" if found.foreign_pod else _counted(found.foreign, "address", "es")
        verb = "is" if found.foreign_pod or found.foreign == 1 else "are"
        reason = f"{counts}: {who} {verb} not part of the registry, but nodes send requests there"
        yield Problem("foreign-endpoints", reason)


def _counted(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural * (number != 1)}"


def _claim(mirror: Mirror, desired: Manifest, actual: Object, observed: Observed) -> Iterator[Problem]:
    phase = status_of(actual).get("phase", "Pending")
    if phase == "Lost":
        yield Problem("volume-lost", "lost its volume, and the cache with it")
    elif phase != "Bound":
        yield Problem("volume-pending", _explained(f"is {phase}, not Bound", desired.key, observed))
    requested = storage(actual["spec"].get("resources", {}).get("requests", {}))
    capacity = storage(status_of(actual).get("capacity", {}))
    size = mirror.spec.storage.size
    if quantity(requested) > quantity(size):
        yield Problem("volume-shrink", f"requests {requested}, more than the {size} of spec.storage.size")
    elif quantity(requested) < quantity(size):
        yield Problem("volume-too-small", f"requests {requested}, less than the {size} of spec.storage.size")
    elif phase == "Bound" and quantity(capacity) < quantity(requested):
        yield Problem("volume-too-small", f"requests {requested}, but its capacity is still {capacity}")


def storage(amounts: Object) -> str:
    """Return the amount of storage in requests, limits or a capacity; "0" if it is not set."""
    return str(amounts.get("storage", "0"))


def _stateful_set(mirror: Mirror, desired: Manifest, actual: Object, observed: Observed) -> Iterator[Problem]:
    if why := rollout_problem(STATEFUL_SETS.kind, actual):
        yield Problem("not-rolled-out", _explained(why, desired.key, observed))


def _daemon_set(mirror: Mirror, desired: Manifest, actual: Object, observed: Observed) -> Iterator[Problem]:
    scheduled = status_of(actual).get("desiredNumberScheduled", 0)
    if why := rollout_problem(DAEMON_SETS.kind, actual):
        quote = observed.events.get(desired.key)
        code = "mirror-bypassed" if quote and quote.is_bypass else "not-rolled-out"
        yield Problem(code, _explained(why, desired.key, observed))
    elif NODES.kind not in observed.list_errors and scheduled < observed.nodes:
        fields = " and ".join(f"spec.template.spec.{field}" for field in _restricting_fields(desired, actual))
        why = f", because of {fields}" if fields else ""
        reason = f"runs on {scheduled} of {observed.nodes} Linux nodes{why}; the others do not use the mirror"
        yield Problem("nodes-not-covered", reason)


def _restricting_fields(desired: Manifest, actual: Object) -> Iterator[str]:
    """Yield the fields, changed by others, that restrict on which nodes pods run."""
    desired_pod, pod = (each["spec"]["template"]["spec"] for each in (desired.body, actual))
    if (pod.get("nodeSelector") or {}) != desired_pod["nodeSelector"]:
        yield "nodeSelector"
    if ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
        yield "affinity"


def _explained(why: str, about: ObjectKey, observed: Observed) -> str:
    """Append the text of an Event to the reason, if there is one."""
    return f"{why}; {observed.events[about].text}" if about in observed.events else why


_HEALTH_CHECKS: Mapping[str, Callable[[Mirror, Manifest, Object, Observed], Iterator[Problem]]] = {
    SERVICES.kind: _service,
    CLAIMS.kind: _claim,
    STATEFUL_SETS.kind: _stateful_set,
    DAEMON_SETS.kind: _daemon_set,
}
