"""What the server does with each built-in kind: decoding, defaults, preparation and validation.

Source of rules and wording: k8s.io/kubernetes/pkg/apis/core/validation and pkg/registry.
"""

from __future__ import annotations

from typing import Any

from .. import go_types
from ..causes import Cause
from ..resources import Resource
from .config import KINDS as CONFIG
from .config import decode_strings
from .core import KINDS as CORE
from .kind import Kind, status_apart
from .workloads import KINDS as WORKLOADS

Obj = dict[str, Any]
KINDS: dict[str, Kind] = {**CONFIG, **CORE, **WORKLOADS}
_OTHER = Kind(fields=None)
_ALWAYS = ("kind", "apiVersion", "metadata")


def _kind_of(resource: Resource) -> Kind:
    return _OTHER if resource.schema else KINDS.get(resource.kind, _OTHER)


def decode(resource: Resource, obj: Obj) -> tuple[Obj, list[str]]:
    """Check types, drop unknown fields and set defaults, as before an object is validated.

    Returns the object and the paths of the unknown fields of a built-in kind.

    Raises:
        UndecodableError: a value has another type than its field.
    """
    meta = dict(obj.get("metadata") or {})
    obj = {"kind": resource.kind, "apiVersion": resource.api_version, **obj, "metadata": meta}
    for name in ("labels", "annotations"):
        decode_strings(meta, name, f"ObjectMeta.{name}" if resource.schema else f"ObjectMeta.metadata.{name}")
        if meta.get(name) == {}:
            del meta[name]
    meta.pop("selfLink", None)
    if resource.schema:
        return obj, []
    head, fields = {name: obj[name] for name in _ALWAYS}, {name: obj[name] for name in obj if name not in _ALWAYS}
    fields, unknown = _fields(resource, fields)
    return _kind_of(resource).decode({**head, **fields}), unknown


def _fields(resource: Resource, fields: Obj) -> tuple[Obj, list[str]]:
    if resource.kind in go_types.TYPES:
        return go_types.decode(resource.kind, fields)
    known = _kind_of(resource).fields
    unknown = [] if known is None else [name for name in fields if name not in known]
    return {name: value for name, value in fields.items() if name not in unknown and value is not None}, unknown


def validate(resource: Resource, obj: Obj, old: Obj | None) -> list[Cause]:
    """Field errors of a built-in object, except those of its metadata, and of its update if there is an old object."""
    kind = _kind_of(resource)
    return kind.causes(obj) + (kind.change_causes(obj, old) if old else [])


def prepare_create(resource: Resource, obj: Obj, now: str) -> Obj:
    """What the server fills in or throws away when an object is made."""
    kind = _kind_of(resource)
    if kind.first_status is not None:
        obj = {**obj, "status": kind.first_status}
    return kind.prepare(obj, now)


def prepare_update(resource: Resource, new: Obj, old: Obj, subresource: str) -> Obj:
    """What of an update counts: the status only through its subresource, and there nothing else."""
    if special := _kind_of(resource).prepare_update:
        return special(new, old, subresource)
    return status_apart(new, old, subresource) if "status" in resource.subresources else new


def spec_of(resource: Resource, obj: Obj) -> Obj:
    """What generation counts changes of."""
    if resource.schema:
        skip = ("metadata", "status") if "status" in resource.subresources else ("metadata",)
        return {key: value for key, value in obj.items() if key not in skip}
    annotations = obj["metadata"].get("annotations") if _kind_of(resource).counts_annotations else None
    return {"spec": obj.get("spec"), "annotations": annotations}
