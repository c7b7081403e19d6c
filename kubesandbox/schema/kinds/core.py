"""Kinds besides ConfigMaps, Secrets and workloads."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, forbidden_field, invalid_value, required
from ..resources import RBAC
from .kind import Kind, defaults, status_apart

Obj = dict[str, Any]
CLAIM_IS_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def _decode_namespace(obj: Obj) -> Obj:
    meta = obj["metadata"]
    if meta.get("name"):
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    return {**obj, "spec": obj.get("spec", {}), "status": obj.get("status", {})}


def _prepare_namespace(obj: Obj, _now: str) -> Obj:
    finalizers = dict.fromkeys([*(obj["spec"].get("finalizers") or []), "kubernetes"])
    return {**obj, "spec": {**obj["spec"], "finalizers": list(finalizers)}}


def _prepare_namespace_update(new: Obj, old: Obj, subresource: str) -> Obj:
    if subresource == "status":
        return {
            **old,
            "metadata": {**old["metadata"], "managedFields": new["metadata"].get("managedFields")},
            "status": new.get("status") or {},
        }
    if subresource == "finalize":
        return {**old, "spec": new.get("spec") or {}}
    return {**new, "spec": old.get("spec") or {}, "status": old.get("status") or {}}


_service_defaults = defaults(type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")


def _decode_service(obj: Obj) -> Obj:
    obj = _service_defaults(obj)
    ports = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in obj["spec"].get("ports") or []]
    return {**obj, "spec": {**obj["spec"], **({"ports": ports} if ports else {})}}


def _prepare_service(obj: Obj, _now: str) -> Obj:
    """Give a Service an address of its own: by its uid, since nobody here keeps account of them."""
    spec = obj["spec"]
    address = spec.get("clusterIP")
    if not address and spec["type"] != "ExternalName":
        number = int(obj["metadata"]["uid"][:6], 16)
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {**obj, "spec": {**spec, "clusterIP": address, "clusterIPs": [address]}} if address else obj


def _service_change_causes(obj: Obj, before: Obj) -> list[Cause]:
    new, old = obj["spec"], before["spec"]
    if not old.get("clusterIP") or new.get("clusterIP") == old["clusterIP"]:
        return []
    return [invalid_value("spec.clusterIPs[0]", new.get("clusterIPs"), "may not change once set")]


def _claim_change_causes(obj: Obj, before: Obj) -> list[Cause]:
    new, old = obj["spec"], before["spec"]
    if {**new, "resources": None} != {**old, "resources": None}:
        return [forbidden_field("spec", CLAIM_IS_IMMUTABLE)]
    return []


def _event_causes(obj: Obj) -> list[Cause]:
    where = (obj.get("involvedObject") or {}).get("namespace", "")
    if (where or "default") != obj["metadata"].get("namespace"):
        return [invalid_value("involvedObject.namespace", where, "does not match event.namespace")]
    return []


def _prepare_event(obj: Obj, _now: str) -> Obj:
    return {"eventTime": None, "reportingComponent": "", "reportingInstance": "", **obj}


_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def _decode_limit_range(obj: Obj) -> Obj:
    limits = [_with_limit_defaults(limit) for limit in obj["spec"]["limits"] or []]
    return {**obj, "spec": {"limits": limits or None}}


def _with_limit_defaults(limit: Obj) -> Obj:
    if limit["type"] != "Container":
        return limit
    default = {**limit.get("max", {}), **limit.get("default", {})}
    request = {**limit.get("min", {}), **default, **limit.get("defaultRequest", {})}
    lists = {**limit, "default": default, "defaultRequest": request}
    return {"type": limit["type"], **{name: lists[name] for name in _LISTS if lists.get(name)}}


def _quota_change_causes(new: Obj, old: Obj) -> list[Cause]:
    scopes = new["spec"].get("scopes")
    if set(scopes or []) == set(old["spec"].get("scopes") or []):
        return []
    return [invalid_value("spec.scopes", scopes, "field is immutable")]


def _prepare_quota_update(new: Obj, old: Obj, subresource: str) -> Obj:
    """Keep the status, or the spec. A write of the status can change the metadata too."""
    kept = "spec" if subresource == "status" else "status"
    return {**new, kept: old[kept]}


def _decode_policy(obj: Obj) -> Obj:
    spec = dict(obj["spec"])
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction, []):
            if "ports" in rule:
                rule["ports"] = [{"protocol": "TCP", **port} for port in rule["ports"]]
    spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    return {**obj, "spec": spec}


def _decode_binding(obj: Obj) -> Obj:
    role = {**obj["roleRef"], "apiGroup": obj["roleRef"]["apiGroup"] or RBAC}
    for subject in obj.get("subjects") or []:
        if subject["kind"] in ("User", "Group"):
            subject.setdefault("apiGroup", RBAC)
    return {**obj, "roleRef": role}


def _binding_change_causes(new: Obj, old: Obj) -> list[Cause]:
    role = new["roleRef"]
    if role == old["roleRef"]:
        return []
    shown = {"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]}
    return [invalid_value("roleRef", shown, "cannot change roleRef")]


def _decode_crd(obj: Obj) -> Obj:
    spec = obj.get("spec") or {}
    names = {key: value for key, value in (spec.get("names") or {}).items() if value is not None}
    kind = names.get("kind", "")
    names = {**names, "singular": names.get("singular", kind.lower()), "listKind": names.get("listKind", kind + "List")}
    return {**obj, "spec": {**spec, "names": names, "conversion": spec.get("conversion", {"strategy": "None"})}}


def _crd_causes(obj: Obj) -> list[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    names, versions = spec["names"], spec.get("versions") or []
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    given = {
        "spec.group": spec.get("group"),
        "spec.scope": spec.get("scope"),
        **{f"spec.versions[{number}].schema.openAPIV3Schema": schema for number, schema in enumerate(schemas)},
        "spec.names.plural": names.get("plural"),
        "spec.names.kind": names.get("kind"),
    }
    causes = [required(field) for field, value in given.items() if not value]
    if name == f"{names.get('plural', '')}.{spec.get('group', '')}":
        return causes
    return [invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'), *causes]


def _prepare_crd(obj: Obj, now: str) -> Obj:
    def condition(kind: str, reason: str, message: str) -> Obj:
        return {"lastTransitionTime": now, "message": message, "reason": reason, "status": "True", "type": kind}

    status = {
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": obj["spec"]["names"],
        "storedVersions": [version["name"] for version in obj["spec"].get("versions") or [] if version.get("storage")],
    }
    return {**obj, "status": status}


def before_established(crd: Obj) -> Obj:
    """A CRD as it is created: the server then fills in its status as a writer of its own."""
    status = {"acceptedNames": {}, "conditions": [], "storedVersions": crd["status"]["storedVersions"]}
    return {**crd, "status": status}


def _prepare_crd_update(new: Obj, old: Obj, subresource: str) -> Obj:
    out = status_apart(new, old, subresource)
    if subresource == "status":
        return out
    return {**out, "status": {**old["status"], "acceptedNames": new["spec"]["names"]}}


_BINDING = Kind(decode=_decode_binding, change_causes=_binding_change_causes)
KINDS = {
    "ClusterRole": Kind(("rules", "aggregationRule")),
    "ClusterRoleBinding": _BINDING,
    "CustomResourceDefinition": Kind(
        decode=_decode_crd, causes=_crd_causes, prepare=_prepare_crd, prepare_update=_prepare_crd_update
    ),
    "EndpointSlice": Kind(("addressType", "endpoints", "ports")),
    "Event": Kind(None, causes=_event_causes, prepare=_prepare_event),
    "LimitRange": Kind(decode=_decode_limit_range),
    "Namespace": Kind(
        decode=_decode_namespace,
        first_status={"phase": "Active"},
        prepare=_prepare_namespace,
        prepare_update=_prepare_namespace_update,
    ),
    "NetworkPolicy": Kind(decode=_decode_policy),
    "Node": Kind(),
    "PersistentVolumeClaim": Kind(
        decode=defaults(volumeMode="Filesystem"),
        change_causes=_claim_change_causes,
        first_status={"phase": "Pending"},
    ),
    "Pod": Kind(first_status={"phase": "Pending"}),
    "ResourceQuota": Kind(change_causes=_quota_change_causes, first_status={}, prepare_update=_prepare_quota_update),
    "Role": Kind(("rules",)),
    "RoleBinding": _BINDING,
    "Service": Kind(
        decode=_decode_service,
        change_causes=_service_change_causes,
        first_status={"loadBalancer": {}},
        prepare=_prepare_service,
    ),
    "ValidatingAdmissionPolicy": Kind(),
    "ValidatingAdmissionPolicyBinding": Kind(("spec",)),
}
