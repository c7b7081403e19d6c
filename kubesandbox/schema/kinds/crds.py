"""CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, invalid_value, required
from .kind import Kind, status_apart

Obj = dict[str, Any]


def _decode_crd(obj: Obj) -> Obj:
    spec = dict(obj.get("spec") or {})
    names = dict(spec.get("names") or {})
    kind = names.get("kind") or ""
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", kind + "List")
    spec["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    return {**obj, "spec": spec}


def _crd_causes(obj: Obj) -> list[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    causes = []
    expected = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    if name != expected:
        causes.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    for field in ("group", "scope"):
        if not spec.get(field):
            causes.append(required(f"spec.{field}"))
    for number, version in enumerate(spec.get("versions") or []):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(required(f"spec.versions[{number}].schema.openAPIV3Schema"))
    if not spec["names"].get("plural"):
        causes.append(required("spec.names.plural"))
    if not spec["names"].get("kind"):
        causes.append(required("spec.names.kind"))
    return causes


def _prepare_crd(obj: Obj, now: str) -> Obj:
    return {**obj, "status": _crd_status(obj, now)}


def _crd_status(obj: Obj, now: str) -> Obj:
    def condition(kind: str, reason: str, message: str) -> Obj:
        return {
            "lastTransitionTime": now,
            "message": message,
            "reason": reason,
            "status": "True",
            "type": kind,
        }

    return {
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": obj["spec"]["names"],
        "storedVersions": [version["name"] for version in obj["spec"].get("versions") or [] if version.get("storage")],
    }


def before_established(crd: Obj) -> Obj:
    """A CRD as it is created: the server then fills in its status as a writer of its own."""
    status = {"acceptedNames": {}, "conditions": [], "storedVersions": crd["status"]["storedVersions"]}
    return {**crd, "status": status}


def _prepare_crd_update(new: Obj, old: Obj, subresource: str) -> Obj:
    out = status_apart(new, old, subresource)
    if subresource == "status":
        return out
    return {**out, "status": {**old["status"], "acceptedNames": new["spec"]["names"]}}


KINDS = {
    "CustomResourceDefinition": Kind(
        decode=_decode_crd,
        causes=_crd_causes,
        prepare=_prepare_crd,
        prepare_update=_prepare_crd_update,
    ),
}
