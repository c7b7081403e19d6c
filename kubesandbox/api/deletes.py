"""delete and deletecollection: preconditions, finalizers, propagation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from ..schema.resources import CRDS, NAMESPACES, Resource
from .bodies import parse
from .cluster import Answer, Call, Cluster, now, stamp
from .errors import bad_request, conflict, details_of, not_found
from .reads import bare, page, shown
from .store import Stored

Obj = dict[str, Any]
SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def delete(cluster: Cluster, call: Call) -> Answer:
    """DELETE of one object."""
    options = _delete_options(call)
    with cluster.store.lock:
        live = cluster.store.get(call.resource, call.namespace, call.name)
        if live is None:
            raise not_found(call.resource, call.name)
        _check_preconditions(call, live, options.get("preconditions") or {})
        deleted, item = remove(cluster, call.resource, live, options.get("propagationPolicy", ""), _is_dry(options))
    if not deleted or call.resource.returns_deleted:
        return shown(call, item)
    details = {**details_of(call.resource, call.name), "uid": live.obj["metadata"]["uid"]}
    return Answer(200, msgspec.json.encode({**SUCCESS, "details": details}))


def _delete_options(call: Call) -> Obj:
    """Return the options of the body, or those of the query if there is no body."""
    if not call.body:
        return {**call.query, "dryRun": ["All"] if call.dry_run else []}
    options = parse(call)
    if not isinstance(options, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body is not an object")
    return options


def _is_dry(options: Obj) -> bool:
    return options.get("dryRun") == ["All"]


def _check_preconditions(call: Call, live: Stored, expected: Obj) -> None:
    uid, version = live.obj["metadata"]["uid"], str(live.version)
    if expected.get("uid") and expected["uid"] != uid:
        why = (
            f"the UID in the precondition ({expected['uid']}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        )
    elif expected.get("resourceVersion") and expected["resourceVersion"] != version:
        why = (
            f"the ResourceVersion in the precondition ({expected['resourceVersion']}) does not match the "
            f"ResourceVersion in record ({version}). The object might have been modified"
        )
    else:
        return
    raise conflict(replace(call.resource, plural=call.resource.kind), call.name, why)


CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_POLICIES = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def is_held(resource: Resource, obj: Obj) -> bool:
    """Whether finalizers block the deletion of an object."""
    return bool(obj["metadata"].get("finalizers") or (resource is NAMESPACES and obj["spec"].get("finalizers")))


def remove(
    cluster: Cluster, resource: Resource, live: Stored, policy: str = "", dry: bool = False
) -> tuple[bool, Stored]:
    """Delete an object, or mark it while finalizers block the deletion; whether it was deleted."""
    meta = dict(live.obj["metadata"])
    obj, is_marked = {**live.obj, "metadata": meta}, bool(meta.get("deletionTimestamp"))
    finalizers = meta.get("finalizers") or []
    for added in (_POLICIES.get(policy), CLEANUP if resource is CRDS else None):
        if added and added not in finalizers and not is_marked:
            meta["finalizers"] = finalizers = [*finalizers, added]
    if not is_held(resource, obj):
        return True, live if dry else cluster.store.remove(resource, live)
    if is_marked:
        return False, live
    meta["deletionTimestamp"] = stamp(now())
    if resource not in (CRDS, NAMESPACES):
        meta["deletionGracePeriodSeconds"] = 0
    if resource is not CRDS and "generation" in meta:
        meta["generation"] += 1
    if resource is NAMESPACES:
        obj["status"] = {**obj["status"], "phase": "Terminating"}
    return False, Stored(obj) if dry else cluster.store.put(resource, obj)


def delete_collection(cluster: Cluster, call: Call) -> Answer:
    """DELETE of everything that is selected."""
    options = _delete_options(call)
    with cluster.store.lock:
        found = page(cluster, call)
        for item in found.items:
            remove(cluster, call.resource, item, options.get("propagationPolicy", ""), _is_dry(options))
    listed = {
        "kind": call.resource.items_kind,
        "apiVersion": call.resource.api_version,
        "metadata": {"resourceVersion": str(cluster.store.version)},
        "items": [msgspec.Raw(item.raw if call.resource.schema else bare(item)) for item in found.items],
    }
    return Answer(200, msgspec.json.encode(listed))
