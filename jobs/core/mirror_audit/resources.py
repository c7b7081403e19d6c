"""Evaluate the resources of one mirror: whether each exists, is managed, has not drifted, and works. Pure.

Fields that others or the server set in addition are not drift. The exception is a key that others add to a selector,
because it selects other pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

from jobs.core.mirror_audit.actual import Object, is_managed, is_terminating, ordinals, rollout_problem, status_of
from jobs.core.mirror_audit.desired import Manifest, Mirror
from jobs.core.mirror_audit.findings import Problem, finding
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.registry_mirrors import quantity
from jobs.kit.values import stamps
from jobs.kit.values.model import FieldDiff, Finding, ObjectKey
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, ENDPOINT_SLICES, NODES, SERVICES, STATEFUL_SETS
from jobs.kit.values.text import listed

# drift: fields that differ, and fields that kube-chores set once and no longer sets

Path = tuple[str, ...]  # of FieldsV1 elements: ("f:spec", 'k:{"name":"registry"}', "f:image")

# The merge keys of lists, as in server-side apply. Other lists are compared as one value.
# https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy
_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
}
_AMOUNTS = ("requests", "limits")
_WHOLE: frozenset[Path] = frozenset({("f:spec", "f:selector")})
_OMITTED_IF_FALSE = "f:publishNotReadyAddresses"  # by the server
# Not drift of a resource: the fingerprint only explains other drift, and separate findings report a claim's size.
_NOT_DRIFT: frozenset[Path] = frozenset(
    {("f:metadata", "f:annotations", f"f:{stamps.FINGERPRINT}"), ("f:spec", "f:resources", "f:requests", "f:storage")}
)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]*@")


class Drift(NamedTuple):
    """A field that drifted, and the field manager that changed it, if known."""

    difference: FieldDiff
    by: str = ""


def drift(desired: Object, actual: Object) -> list[Drift]:
    """Return the drift of a resource from the body of its manifest, sorted."""
    entries = [entry for entry in actual["metadata"].get("managedFields") or [] if not entry.get("subresource")]
    others = [entry for entry in entries if entry.get("manager") != stamps.MANAGER]
    own = [entry for entry in entries if entry.get("manager") == stamps.MANAGER and entry.get("operation") == "Apply"]
    found = [
        Drift(difference, _owner(path, others))
        for path, difference in _differences((), desired, actual)
        if path not in _NOT_DRIFT
    ]
    no_longer_set = (
        difference for entry in own for difference in _no_longer_set((), entry.get("fieldsV1") or {}, desired, actual)
    )
    return sorted([*found, *map(Drift, no_longer_set)])


def _differences(path: Path, desired: Any, actual: Any) -> Iterator[tuple[Path, FieldDiff]]:
    """Yield the differences; lists with merge keys are compared item by item."""
    if desired == actual:  # most parts are: this is faster than to compare what is in them
        return
    keys = _item_keys(path, desired)
    if isinstance(desired, dict) and isinstance(actual, dict):
        for name, value in desired.items():
            yield from _differences((*path, f"f:{name}"), value, actual.get(name))
        for name in sorted(actual.keys() - desired.keys()) if path in _WHOLE else ():
            more = (*path, f"f:{name}")
            yield more, FieldDiff(field_name(more), _displayed(actual[name]), None)
    elif keys and isinstance(actual, list):
        for item in desired:
            actual_item = next((each for each in actual if _same_item(item, each, keys)), None)
            yield from _differences((*path, _element(item, keys)), item, actual_item)
    elif not _equal(path, desired, actual):
        yield path, FieldDiff(field_name(path), _displayed(actual), _displayed(desired))


def _item_keys(path: Path, value: Any) -> tuple[str, ...]:
    if not path or not isinstance(value, list) or not value:
        return ()
    choices = _KEYS.get(path[-1][2:], ())
    return next((keys for keys in choices if isinstance(value[0], dict) and keys[0] in value[0]), ())


def _same_item(one: Object, other: Any, keys: tuple[str, ...]) -> bool:
    return isinstance(other, dict) and all(one.get(key) == other.get(key) for key in keys)


def _element(item: Object, keys: tuple[str, ...]) -> str:
    return "k:" + json.dumps({key: item[key] for key in keys}, separators=(",", ":"))


def _equal(path: Path, desired: Any, actual: Any) -> bool:
    if path and path[-1] == _OMITTED_IF_FALSE and not desired and actual is None:
        return True
    try:
        is_amount = len(path) > 1 and path[-2][2:] in _AMOUNTS and isinstance(actual, (str, int))
        return is_amount and quantity(desired) == quantity(actual)
    except ValueError:
        return False


def _owner(path: Path, entries: list[Object]) -> str:
    """Return the manager of a field. For a removed item of a list, return the manager of other items."""
    is_part = path[-1].startswith("k:") or path[:-1] in _WHOLE
    return _manager(path, entries) or (_manager(path[:-1], entries) if is_part else "")


def _manager(path: Path, entries: list[Object]) -> str:
    return next((str(entry.get("manager")) for entry in entries if _owns(entry.get("fieldsV1") or {}, path)), "")


def _owns(fields: Object, path: Path) -> bool:
    node: Any = fields
    for element in path:
        node = node.get(element) if isinstance(node, dict) else None
        if node is None:
            return False
    return True


def _no_longer_set(path: Path, fields: Object, desired: Any, actual: Object) -> Iterator[FieldDiff]:
    """Yield the fields that kube-chores owns by `fields` and `desired` no longer has, each at its topmost path.

    `fields` and `desired` are those at the path, `actual` is the whole resource.
    """
    for element, below in fields.items():
        if not _is_field(element):
            continue
        inner = _value_at(desired, element)
        if inner is None:
            yield FieldDiff(field_name((*path, element)), _displayed(reduce(_value_at, (*path, element), actual)), None)
        elif isinstance(below, dict) and below:
            yield from _no_longer_set((*path, element), below, inner, actual)


def _is_field(element: str) -> bool:
    """Return whether an element of a fieldsV1 names a field or an item of a list; clients can send other elements."""
    return element.startswith("f:") or (element.startswith("k:") and bool(_item_fields(element)))


@lru_cache(maxsize=64)  # resources of all mirrors have the same few
def _item_fields(element: str) -> Object:
    """Return the fields by which "k:{...}" selects an item of a list, none if it is not valid; values are scalars."""
    try:
        found = json.loads(element[2:])
    except (ValueError, RecursionError):
        return {}
    is_valid = isinstance(found, dict) and not any(isinstance(each, (dict, list)) for each in found.values())
    return found if is_valid else {}


def _value_at(value: Any, element: str) -> Any:
    if element.startswith("f:"):
        return value.get(element[2:]) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return None
    keys = _item_fields(element)
    return next((item for item in value if _same_item(keys, item, tuple(keys))), None)


def field_name(path: Path) -> str:
    """Format a path for people: spec.template.spec.containers[registry].image."""
    text = ""
    for element in path:
        if element.startswith("k:"):
            text += f"[{next(iter(json.loads(element[2:]).values()))}]"
        elif re.fullmatch(r"[A-Za-z0-9]+", element[2:]):
            text += f".{element[2:]}"
        else:
            text += f"[{element[2:]}]"
    return text.lstrip(".")


def _displayed(value: Any) -> str | None:
    """Format a value for people, without a user and password in a URL."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return _USER_IN_URL.sub("***@", text)


# findings

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
    if found := drift(desired.body, actual):
        diff = tuple(each.difference for each in found) if settings.run.diff else ()
        code = "scaled-to-zero" if actual["spec"].get("replicas") == 0 else "drifted"
        problem = Problem(code, _drift_reason(desired, actual, found))
        yield finding(*problem, desired.key, mirror.registry_mirror, diff)


def _drift_reason(desired: Manifest, actual: Object, found: list[Drift]) -> str:
    fingerprint = (actual["metadata"].get("annotations") or {}).get(stamps.FINGERPRINT)
    changed = ", ".join(sorted({each.by for each in found if each.by}))
    changed = f"changed by {changed}" if changed else ""
    if len(found) == 1 and _is_short(found[0].difference):
        field, was, wanted = found[0].difference
        reason = "; ".join(filter(None, (f"{field} is {was}, the mirror defines {wanted}", changed)))
    else:
        verb = "differs" if len(found) == 1 else "differ"
        reason = (
            f"{named([each.difference.field for each in found])} {changed or f'{verb} from what the mirror defines'}"
        )
    if fingerprint != desired.body["metadata"]["annotations"][stamps.FINGERPRINT]:
        reason += "; the mirror, or something it depends on, changed after the last write"
    return reason


def _is_short(difference: FieldDiff) -> bool:
    """Return whether a reason shows the values: short scalars, but no environment variables, which may be secret.

    Users who read the status of a mirror may not be allowed to read its workloads.
    """
    values = (difference.actual, difference.desired)
    return ".env[" not in difference.field and all(_SHORT.fullmatch(each or "") for each in values)


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
