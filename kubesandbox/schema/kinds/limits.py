"""LimitRange and ResourceQuota."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..causes import Cause, duplicate, forbidden_field, invalid_value, required
from ..quantities import amount
from ..validation import label_key_problems
from .kind import Kind

Obj = dict[str, Any]
_COMPUTE = {"cpu", "memory", "ephemeral-storage"}
_COUNTED = {
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
}
_LIMITED = {f"{prefix}.{name}" for prefix in ("requests", "limits") for name in _COMPUTE}
_STANDARD = _COMPUTE | _COUNTED | _LIMITED | {"storage", "requests.storage"}
_BY_TYPE = {"Container": "containers", "Pod": "pods", "PersistentVolumeClaim": "persistent volume claims"}
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
# Each row: the lower list, the higher one, the one that is reported, the one whose value is shown, and their names.
_ORDER = (
    ("min", "max", "min", "min", "min value", "max value"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min value", "default request value"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value", "max value"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest", "default request value", "default limit value"),
    ("min", "default", "default", "min", "min value", "default value"),
    ("default", "max", "default", "max", "default value", "max value"),
)


def _decode_limit_range(obj: Obj) -> Obj:
    limits = [_with_defaults(limit) for limit in obj["spec"]["limits"] or []]
    return {**obj, "spec": {"limits": limits or None}}


def _with_defaults(limit: Obj) -> Obj:
    if limit["type"] != "Container":
        return limit
    default = {**limit.get("max", {}), **limit.get("default", {})}
    request = {**limit.get("min", {}), **default, **limit.get("defaultRequest", {})}
    lists = {**limit, "default": default, "defaultRequest": request}
    return {"type": limit["type"], **{name: lists[name] for name in _LISTS if lists.get(name)}}


def _limit_range_causes(obj: Obj) -> list[Cause]:
    causes: list[Cause] = []
    known = set()
    for number, limit in enumerate(obj["spec"]["limits"] or []):
        field, kind = f"spec.limits[{number}]", limit["type"]
        causes += _type_causes(f"{field}.type", kind)
        if kind in known:
            causes.append(duplicate(f"{field}.type", kind))
        known.add(kind)
        causes += _limit_causes(field, limit)
    return causes


def _type_causes(field: str, kind: str) -> Iterator[Cause]:
    problems = label_key_problems(kind)
    yield from (invalid_value(field, kind, problem) for problem in problems)
    if not problems and "/" not in kind and kind not in _BY_TYPE:
        yield invalid_value(field, kind, "must be a standard limit type or fully qualified")


def _limit_causes(field: str, limit: Obj) -> Iterator[Cause]:
    kind = limit["type"]
    forbidden = [name for name in ("default", "defaultRequest") if kind == "Pod" and name in limit]
    for name in _LISTS:
        if name in forbidden:
            yield forbidden_field(f"{field}.{name}", "may not be specified when `type` is 'Pod'")
        else:
            for resource in limit.get(name, {}):
                yield from _name_causes(f"{field}.{name}[{resource}]", resource, _COMPUTE, _BY_TYPE.get(kind, ""))
    if kind == "PersistentVolumeClaim" and "storage" not in {**limit.get("min", {}), **limit.get("max", {})}:
        why = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{field}.limits", why)
    yield from _order_causes(field, {**limit, **{name: {} for name in forbidden}})


def _order_causes(field: str, limit: Obj) -> Iterator[Cause]:
    for lower, higher, reported, shown, less, more in _ORDER:
        low, high = limit.get(lower, {}), limit.get(higher, {})
        for resource in sorted(low.keys() & high.keys()):
            if amount(low[resource]) > amount(high[resource]):
                why = f"{less} {low[resource]} is greater than {more} {high[resource]}"
                yield invalid_value(f"{field}.{reported}[{resource}]", limit[shown][resource], why)
    least, most = limit.get("min", {}), limit.get("max", {})
    for resource, ratio in limit.get("maxLimitRequestRatio", {}).items():
        where = f"{field}.maxLimitRequestRatio[{resource}]"
        if amount(ratio) < 1:
            yield invalid_value(where, ratio, f"ratio {ratio} is less than 1")
        possible = amount(most.get(resource, "0")) / (amount(least.get(resource, "0")) or 1)
        if resource in least and resource in most and amount(ratio) > possible:
            why = f"ratio {ratio} is greater than max/min = {float(possible):f}"
            yield invalid_value(where, ratio, why)


def _name_causes(field: str, name: str, standard: set[str], used_in: str) -> Iterator[Cause]:
    problems = label_key_problems(name)
    yield from (invalid_value(field, name, problem) for problem in problems)
    if "/" in name:
        return
    if not problems and name not in _STANDARD and not _is_of_class(name):
        yield invalid_value(field, name, "must be a standard resource type or fully qualified")
    if used_in in ("containers", "quota") and name not in standard and not _is_of_class(name):
        yield invalid_value(field, name, f"must be a standard resource for {used_in}")


def _is_of_class(name: str) -> bool:
    """Whether it is the name of huge pages."""
    return name.removeprefix("requests.").startswith("hugepages-")


def _quota_causes(obj: Obj) -> list[Cause]:
    causes: list[Cause] = []
    for name, quantity in obj["spec"].get("hard", {}).items():
        field = f"spec.hard[{name}]"
        causes += _name_causes(field, name, _STANDARD - {"storage"}, "quota")
        if amount(quantity) < 0:
            causes.append(invalid_value(field, quantity, "must be greater than or equal to 0"))
        if name in _COUNTED and amount(quantity).denominator != 1:
            causes.append(invalid_value(field, quantity, "must be an integer"))
    return causes + list(_scope_causes(obj["spec"]))


_SCOPES = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)
_OF_PODS = {"pods"}


def _scope_causes(spec: Obj) -> Iterator[Cause]:
    scopes = spec.get("scopes") or []
    if not all(scope in _SCOPES for scope in scopes):
        yield invalid_value("spec.scopes", scopes, "unsupported scope")
    if "BestEffort" in scopes and spec.get("hard", {}).keys() - _OF_PODS:
        yield invalid_value("spec.scopes", scopes, "unsupported scope applied to resource")
    for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or []:
        field, operator = "spec.scopeSelector.matchExpressions", term["operator"]
        if operator in ("In", "NotIn") and not term.get("values"):
            why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(f"{field}.values", why)
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield invalid_value(f"{field}.operator", operator, "not a valid selector operator")
    for pair in (set(_SCOPES[:2]), set(_SCOPES[2:4])):
        if pair <= set(scopes):
            yield invalid_value("spec.scopes", scopes, "conflicting scopes")


def _quota_change_causes(new: Obj, old: Obj) -> list[Cause]:
    scopes = new["spec"].get("scopes")
    if set(scopes or []) == set(old["spec"].get("scopes") or []):
        return []
    return [invalid_value("spec.scopes", scopes, "field is immutable")]


def _prepare_quota_update(new: Obj, old: Obj, subresource: str) -> Obj:
    """Keep the status, or the spec. A write of the status can change the metadata too."""
    kept = "spec" if subresource == "status" else "status"
    return {**new, kept: old[kept]}


KINDS = {
    "LimitRange": Kind(decode=_decode_limit_range, causes=_limit_range_causes),
    "ResourceQuota": Kind(
        causes=_quota_causes,
        change_causes=_quota_change_causes,
        first_status={},
        prepare_update=_prepare_quota_update,
    ),
}
