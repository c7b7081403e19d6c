"""delete and deletecollection: preconditions, finalizers, propagation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from ..schema.resources import Resource
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
        dry = call.dry_run or options.get("dryRun") == ["All"]
        deleted, item = remove(cluster, call.resource, live, options.get("propagationPolicy", ""), dry)
    if not deleted or call.resource.returns_deleted:
        return shown(call, item)
    details = {**details_of(call.resource, call.name), "uid": live.obj["metadata"]["uid"]}
    return Answer(200, msgspec.json.encode({**SUCCESS, "details": details}))


def _delete_options(call: Call) -> Obj:
    options = parse(call) if call.body.strip() else {}
    if not isinstance(options, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body is not an object")
    if "propagationPolicy" in call.query:
        options = {**options, "propagationPolicy": call.query["propagationPolicy"]}
    return options


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


def remove(
    cluster: Cluster, resource: Resource, live: Stored, policy: str = "", dry: bool = False
) -> tuple[bool, Stored]:
    """Delete an object, or mark it while finalizers block the deletion; whether it was deleted."""
    meta = dict(live.obj["metadata"])
    finalizers = list(meta.get("finalizers") or [])
    finalizer = _POLICIES.get(policy)
    if finalizer and finalizer not in finalizers and not meta.get("deletionTimestamp"):
        finalizers.append(finalizer)
    if resource.kind == "CustomResourceDefinition" and not meta.get("deletionTimestamp"):
        finalizers.append(CLEANUP)
    is_blocked = bool(finalizers) or (resource.kind == "Namespace" and bool(live.obj["spec"].get("finalizers")))
    if not is_blocked:
        return True, live if dry else cluster.store.remove(resource, live)
    if meta.get("deletionTimestamp"):
        return False, live
    meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = stamp(now()), 0
    if finalizers:
        meta["finalizers"] = finalizers
    if resource.kind == "CustomResourceDefinition":
        del meta["deletionGracePeriodSeconds"]
    elif "generation" in meta:
        meta["generation"] += 1
    obj = {**live.obj, "metadata": meta}
    if resource.kind == "Namespace":
        del meta["deletionGracePeriodSeconds"]
        obj["status"] = {**obj["status"], "phase": "Terminating"}
    return False, Stored(obj) if dry else cluster.store.put(resource, obj)


def delete_collection(cluster: Cluster, call: Call) -> Answer:
    """DELETE of everything that is selected."""
    options = _delete_options(call)
    dry = call.dry_run or options.get("dryRun") == ["All"]
    with cluster.store.lock:
        found = page(cluster, call)
        for item in found.items:
            remove(cluster, call.resource, item, options.get("propagationPolicy", ""), dry)
    head: Obj = {
        "kind": call.resource.items_kind,
        "apiVersion": call.resource.api_version,
        "metadata": {"resourceVersion": str(cluster.store.version)},
    }
    return Answer(200, msgspec.json.encode({**head, "items": [_in_list(call, item) for item in found.items]}))


def _in_list(call: Call, item: Stored) -> msgspec.Raw:
    return msgspec.Raw(item.raw if call.resource.schema else bare(item))
