"""Kinds of the core group without data: namespaces, claims, Services, Events and others."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, forbidden_field, invalid_value
from .kind import Kind

Obj = dict[str, Any]
CLAIM_IS_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def _decode_namespace(obj: Obj) -> Obj:
    name = obj["metadata"].get("name")
    if name:
        labels = dict(obj["metadata"].get("labels") or {})
        labels["kubernetes.io/metadata.name"] = name
        obj["metadata"]["labels"] = labels
    obj.setdefault("spec", {})
    obj.setdefault("status", {})
    return obj


def _prepare_namespace(obj: Obj, _now: str) -> Obj:
    finalizers = list(obj["spec"].get("finalizers") or [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    return {**obj, "spec": {**obj["spec"], "finalizers": finalizers}}


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


def _decode_service(obj: Obj) -> Obj:
    spec = {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        **(obj.get("spec") or {}),
    }
    ports = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec.get("ports") or []]
    return {**obj, "spec": {**spec, **({"ports": ports} if ports else {})}, "status": obj.get("status") or {}}


def _prepare_service(obj: Obj, _now: str) -> Obj:
    return {**obj, "spec": _addressed(obj)}


def _addressed(service: Obj) -> Obj:
    """A Service's spec with an address of its own: by its uid, since nobody here keeps account of them."""
    spec: Obj = service["spec"]
    if spec["type"] == "ExternalName" or spec.get("clusterIP"):
        return {**spec, **({"clusterIPs": [spec["clusterIP"]]} if spec.get("clusterIP") else {})}
    number = int(service["metadata"]["uid"][:6], 16)
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {**spec, "clusterIP": address, "clusterIPs": [address]}


def _service_change_causes(obj: Obj, before: Obj) -> list[Cause]:
    new, old = obj["spec"], before["spec"]
    if not old.get("clusterIP") or new.get("clusterIP") == old["clusterIP"]:
        return []
    return [invalid_value("spec.clusterIPs[0]", new.get("clusterIPs"), "may not change once set")]


def _decode_claim(obj: Obj) -> Obj:
    return {**obj, "spec": {"volumeMode": "Filesystem", **(obj.get("spec") or {})}, "status": obj.get("status") or {}}


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


KINDS = {
    "Event": Kind(None, causes=_event_causes, prepare=_prepare_event),
    "Namespace": Kind(
        decode=_decode_namespace,
        first_status={"phase": "Active"},
        prepare=_prepare_namespace,
        prepare_update=_prepare_namespace_update,
    ),
    "Node": Kind(),
    "PersistentVolumeClaim": Kind(
        decode=_decode_claim, change_causes=_claim_change_causes, first_status={"phase": "Pending"}
    ),
    "Pod": Kind(first_status={"phase": "Pending"}),
    "Service": Kind(
        decode=_decode_service,
        change_causes=_service_change_causes,
        first_status={"loadBalancer": {}},
        prepare=_prepare_service,
    ),
}
