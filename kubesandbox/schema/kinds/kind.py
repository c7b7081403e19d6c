"""What is particular to a built-in kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..causes import Cause

Obj = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """What the server does with the objects of one kind, besides what it does with all objects.

    `fields` are the top-level fields besides apiVersion, kind and metadata, unless the kind has a Go type; None: any.
    `decode` sets defaults. `causes` are the field errors of an object, `change_causes` those of an update, of the new
    and the old object. `first_status` is the status of a new object, and `prepare` what else the server fills in at
    that time (an RFC 3339 timestamp). `prepare_update` takes the new object, the old one and the subresource, instead
    of status_apart(). `counts_annotations`: a change of annotations changes the generation too.
    """

    fields: tuple[str, ...] | None = ("spec", "status")
    decode: Callable[[Obj], Obj] = lambda obj: obj
    causes: Callable[[Obj], list[Cause]] = lambda _obj: []
    change_causes: Callable[[Obj, Obj], list[Cause]] = lambda _new, _old: []
    first_status: Obj | None = None
    prepare: Callable[[Obj, str], Obj] = lambda obj, _now: obj
    prepare_update: Callable[[Obj, Obj, str], Obj] | None = None
    counts_annotations: bool = False


def defaults(**spec: Any) -> Callable[[Obj], Obj]:
    """A `decode` that sets defaults of the spec and an empty status."""
    return lambda obj: {**obj, "spec": {**spec, **(obj.get("spec") or {})}, "status": obj.get("status") or {}}


def status_apart(new: Obj, old: Obj, subresource: str) -> Obj:
    """What of an update counts: the status only through its subresource, and there nothing else."""
    if subresource == "status":
        kept = {key: value for key, value in old.items() if key != "status"}
        if "status" in new:
            kept["status"] = new["status"]
        meta = {**old["metadata"], "managedFields": new["metadata"].get("managedFields")}
        return {**kept, "metadata": meta}
    out = {key: value for key, value in new.items() if key != "status"}
    if "status" in old:
        out["status"] = old["status"]
    return out
