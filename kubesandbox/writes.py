"""create, update, patch, apply and delete: the path every write takes through decoding, ownership and validation."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from . import kinds, managed_fields, patch
from .cluster import Answer, Call, Cluster, now, stamp
from .errors import (
    ApiError,
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_value,
    not_found,
    unsupported_media_type,
)
from .managed_fields import Manager
from .reads import filter_of, page, shown
from .resources import NAMESPACES, Resource
from .store import Stored
from .validation import metadata_causes

Obj = dict[str, Any]
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
_FIXED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
SUCCESS: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def parse(call: Call) -> Any:
    """The body as JSON or YAML."""
    kind = call.content_type
    try:
        if "yaml" in kind:
            return yaml.safe_load(call.body)
        if "json" in kind or kind == "":
            return msgspec.json.decode(call.body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding the body: {error}") from None
    raise unsupported_media_type(["application/json", "application/yaml"])


def _decoded(call: Call, raw: Any) -> tuple[Obj, list[str]]:
    """The object that a body holds, and the warnings about fields that were dropped."""
    resource = call.resource
    if not isinstance(raw, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body is not an object")
    kind, version = raw.get("kind") or resource.kind, raw.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): "
            f"couldn't get version/kind; got {version}, Kind={kind}"
            if resource.schema is None
            else f'{kind} in version "{version}" cannot be handled as a {resource.kind}: no match'
        )
    return _pruned(call, raw)


def _pruned(call: Call, raw: Obj) -> tuple[Obj, list[str]]:
    resource = call.resource
    if resource.schema:
        obj, unknown = resource.schema.prune(raw)
    else:
        obj, unknown = raw, kinds.unknown_fields(resource, raw)
    mode = call.query.get("fieldValidation", "Warn" if resource.schema else "Warn")
    texts = [f'unknown field "{path}"' for path in sorted(unknown)]
    if texts and mode == "Strict":
        raise bad_request("strict decoding error: " + ", ".join(texts))
    obj = kinds.decode(resource, obj)
    if resource.schema:
        obj = resource.schema.defaulted(obj)
    return obj, texts if mode == "Warn" else []


def create(cluster: Cluster, call: Call) -> Answer:
    """POST."""
    obj, warnings = _decoded(call, parse(call))
    meta = obj["metadata"]
    if call.resource.namespaced:
        if meta.setdefault("namespace", call.namespace) != call.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        meta.pop("namespace", None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"][:58] + "".join(random.choices(_SUFFIX, k=5))  # noqa: S311 - a name only
        obj = kinds.decode(call.resource, obj)
    if meta.get("resourceVersion"):
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    owner = Manager(call.manager, "Update", call.resource.api_version)
    obj = managed_fields.updated(call.resource.empty, obj, call.resource.shape, owner, now())
    with cluster.store.lock:
        item = insert(cluster, call, obj)
    return _warned(shown(call, item, 201), warnings)


def insert(cluster: Cluster, call: Call, obj: Obj) -> Stored:
    """Store a new object, after everything that may speak against it."""
    resource = call.resource
    _admit(cluster, call, obj["metadata"].get("name", ""))
    moment = stamp(now())
    meta = {key: value for key, value in obj["metadata"].items() if key not in _FIXED}
    meta["uid"], meta["creationTimestamp"] = str(uuid.uuid4()), moment
    if resource.spec or resource.schema:
        meta["generation"] = 1
    if "status" in resource.subresources and resource.schema:
        obj = {key: value for key, value in obj.items() if key != "status"}
    obj = kinds.prepare_create(resource, {**obj, "metadata": meta}, moment)
    _validate(resource, obj, None)
    if cluster.store.get(resource, call.namespace, meta["name"]):
        raise already_exists(resource, meta["name"])
    if call.dry_run:
        return Stored(obj)
    return cluster.store.put(resource, obj)


def _admit(cluster: Cluster, call: Call, name: str) -> None:
    if not call.namespace or call.resource.key == NAMESPACES.key:
        return
    namespace = cluster.namespace(call.namespace)
    if namespace is None:
        raise not_found(NAMESPACES, call.namespace)
    if namespace.obj["metadata"].get("deletionTimestamp"):
        where = f"namespace {call.namespace}"
        cause = Cause("NamespaceTerminating", f"{where} is being terminated", "metadata.namespace")
        why = f"unable to create new content in {where} because it is being terminated"
        raise forbidden(call.resource, name, why, [cause])


def _validate(resource: Resource, obj: Obj, old: Obj | None, subresource: str = "") -> None:
    causes = metadata_causes(resource, obj["metadata"])
    if resource.schema:
        causes += resource.schema.causes(obj, old)
    else:
        causes += kinds.validate(resource, obj)
        if old is not None and not subresource:
            causes += kinds.validate_change(resource, obj, old)
    if causes:
        raise invalid(resource, obj["metadata"].get("name") or "", causes)


def _warned(answer: Answer, warnings: list[str]) -> Answer:
    if warnings:
        answer.headers["Warning"] = ", ".join('299 - "' + text.replace('"', '\\"') + '"' for text in warnings)
    return answer


def update(cluster: Cluster, call: Call) -> Answer:
    """PUT."""
    obj, warnings = _decoded(call, parse(call))
    meta = obj["metadata"]
    if meta.get("name") != call.name:
        raise bad_request(
            f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({call.name})"
        )
    if call.resource.namespaced and meta.setdefault("namespace", call.namespace) != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    with cluster.store.lock:
        live = cluster.store.get(call.resource, call.namespace, call.name)
        if live is None:
            if not call.resource.create_on_update:
                raise not_found(call.resource, call.name)
            owner = Manager(call.manager, "Update", call.resource.api_version)
            obj = managed_fields.updated(call.resource.empty, obj, call.resource.shape, owner, now())
            return shown(call, insert(cluster, call, obj), 201)
        _check_identity(call, live, meta)
        item = change(cluster, call, live, obj)
    return _warned(shown(call, item), warnings)


def _check_identity(call: Call, live: Stored, meta: Obj) -> None:
    resource, actual = call.resource, live.obj["metadata"]["uid"]
    if meta.get("uid") and meta["uid"] != actual:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {actual}"
        raise conflict(resource, call.name, why)
    version = meta.get("resourceVersion")
    if not version and (resource.schema or resource.kind == "CustomResourceDefinition"):
        field = "metadata.resourceVersion"
        cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", field)
        raise invalid(resource, call.name, [cause])
    if version and version != str(live.version):
        raise conflict(resource, call.name)


def change(cluster: Cluster, call: Call, live: Stored, obj: Obj, manage: bool = True) -> Stored:
    """Store the new state of an object: a write that changes nothing is none."""
    resource, old = call.resource, live.obj
    if manage:
        owner = Manager(call.manager, "Update", resource.api_version, call.subresource)
        obj = kinds.prepare_update(resource, _identified(obj, old), old, call.subresource)
        obj = managed_fields.updated(old, obj, resource.shape, owner, now())
    else:
        obj = kinds.prepare_update(resource, obj, old, call.subresource)
    obj = _identified(obj, old)
    if (resource.spec or resource.schema) and kinds.spec_of(resource, obj) != kinds.spec_of(resource, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
    _validate(resource, obj, old, call.subresource)
    if managed_fields.same_but_for_times(old, obj):
        return live
    if call.dry_run:
        return Stored(obj)
    if _finished(resource, obj):
        return cluster.store.remove(resource, cluster.store.put(resource, obj))
    return cluster.store.put(resource, obj)


def _identified(obj: Obj, old: Obj) -> Obj:
    before = old["metadata"]
    meta = {key: value for key, value in obj["metadata"].items() if key not in _FIXED}
    meta.update({key: before[key] for key in _FIXED if key in before})
    meta["resourceVersion"] = before["resourceVersion"]
    for name in ("finalizers", "ownerReferences", "managedFields"):
        if name in meta and not meta[name]:
            del meta[name]
    return {**obj, "metadata": meta}


def _finished(resource: Resource, obj: Obj) -> bool:
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    return resource.kind != "Namespace" or not obj["spec"].get("finalizers")


def patched(cluster: Cluster, call: Call) -> Answer:
    """PATCH."""
    kind = call.content_type
    accepted = [JSON_PATCH, MERGE_PATCH, *([] if call.resource.schema else [STRATEGIC]), APPLY]
    if kind not in accepted:
        raise unsupported_media_type(accepted)
    if kind == APPLY:
        return _apply(cluster, call)
    if call.query.get("force"):
        raise ApiError(
            422,
            "Invalid",
            'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch',
            {},
        )
    body = parse(call)
    with cluster.store.lock:
        live = cluster.store.get(call.resource, call.namespace, call.name)
        if live is None:
            raise not_found(call.resource, call.name)
        obj, warnings = _decoded(call, _patch(kind, live.obj, body, call.resource))
        _check_unmoved(call, live, obj)
        item = change(cluster, call, live, obj)
    return _warned(shown(call, item), warnings)


def _patch(kind: str, old: Obj, body: Any, resource: Resource) -> Any:
    if kind == JSON_PATCH:
        return patch.json_patch(old, body)
    if kind == MERGE_PATCH:
        return patch.merge_patch(old, body)
    return patch.strategic_merge(old, body, resource.shape)


def _check_unmoved(call: Call, live: Stored, obj: Obj) -> None:
    meta = obj["metadata"]
    if meta.get("name") != call.name or meta.get("namespace", "") != live.namespace:
        field = "metadata.name" if meta.get("name") != call.name else "metadata.namespace"
        value = meta.get(field.split(".")[1], "")
        raise invalid(call.resource, call.name, [invalid_value(field, value, "field is immutable")])
    _check_identity(call, live, meta)


def _apply(cluster: Cluster, call: Call) -> Answer:
    if not call.query.get("fieldManager"):
        raise ApiError(
            422,
            "Invalid",
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch',
            {},
        )
    config = _apply_config(call)
    resource = call.resource
    owner = Manager(call.manager, "Apply", resource.api_version, call.subresource)
    force = call.query.get("force") in ("true", "1")
    with cluster.store.lock:
        live = cluster.store.get(resource, call.namespace, call.name)
        if live is None and call.subresource:
            raise not_found(resource, call.name)
        before = live.obj if live else resource.empty
        if live:
            _check_identity(call, live, {"resourceVersion": str(live.version), **config["metadata"]})
        elif config["metadata"].get("uid"):
            raise conflict(
                resource,
                call.name,
                f"uid mismatch: the provided object specified uid "
                f"{config['metadata']['uid']}, and no existing object was found",
            )
        merged = managed_fields.applied(before, config, resource.shape, owner, now(), force)
        obj, warnings = _decoded(call, merged)
        if live:
            return _warned(shown(call, change(cluster, call, live, obj, manage=False)), warnings)
        meta = {**obj["metadata"], "name": call.name}
        if resource.namespaced:
            meta["namespace"] = call.namespace
        return _warned(shown(call, insert(cluster, call, {**obj, "metadata": meta}), 201), warnings)


def _apply_config(call: Call) -> Obj:
    try:
        config = yaml.load(call.body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(config, dict) or not config.get("kind") or not config.get("apiVersion"):
        raise bad_request("error decoding YAML: invalid object type: apiVersion and kind are required")
    meta = config.setdefault("metadata", {})
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if meta.get("name", call.name) != call.name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({call.name})")
    if config["kind"] != call.resource.kind or config["apiVersion"] != call.resource.api_version:
        raise bad_request(f"the object provided is unrecognized (must be of type {call.resource.kind})")
    if call.subresource == "status":
        config = {key: value for key, value in config.items() if key in ("apiVersion", "kind", "metadata", "status")}
    return config


def delete(cluster: Cluster, call: Call) -> Answer:
    """DELETE of one object."""
    options = _delete_options(call)
    with cluster.store.lock:
        live = cluster.store.get(call.resource, call.namespace, call.name)
        if live is None:
            raise not_found(call.resource, call.name)
        _check_preconditions(call, live, options.get("preconditions") or {})
        dry = call.dry_run or options.get("dryRun") == ["All"]
        gone, item = remove(cluster, call.resource, live, options.get("propagationPolicy", ""), dry)
    if not gone or call.resource.returns_deleted:
        return shown(call, item)
    details = {
        "name": call.name,
        **({"group": call.resource.group} if call.resource.group else {}),
        "kind": call.resource.plural,
        "uid": live.obj["metadata"]["uid"],
    }
    return Answer(200, msgspec.json.encode({**SUCCESS, "details": details}))


def _delete_options(call: Call) -> Obj:
    options = parse(call) if call.body.strip() else {}
    if not isinstance(options, dict):
        raise bad_request("couldn't get version/kind; json parse error: the body is not an object")
    if "propagationPolicy" in call.query:
        options = {**options, "propagationPolicy": call.query["propagationPolicy"]}
    return options


def _check_preconditions(call: Call, live: Stored, wanted: Obj) -> None:
    uid, version = live.obj["metadata"]["uid"], str(live.version)
    if wanted.get("uid") and wanted["uid"] != uid:
        why = f"UID in precondition: {wanted['uid']}, UID in object meta: {uid}"
    elif wanted.get("resourceVersion") and wanted["resourceVersion"] != version:
        given = wanted["resourceVersion"]
        why = f"ResourceVersion in precondition: {given}, ResourceVersion in object meta: {version}"
    else:
        return
    raise conflict(call.resource, call.name, f"Precondition failed: {why}")


_POLICIES = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def remove(
    cluster: Cluster, resource: Resource, live: Stored, policy: str = "", dry: bool = False
) -> tuple[bool, Stored]:
    """Delete an object, or mark it when finalizers hold it; whether it is gone."""
    meta = dict(live.obj["metadata"])
    finalizers = list(meta.get("finalizers") or [])
    wanted = _POLICIES.get(policy)
    if wanted and wanted not in finalizers and not meta.get("deletionTimestamp"):
        finalizers.append(wanted)
    held = bool(finalizers) or (resource.kind == "Namespace" and bool(live.obj["spec"].get("finalizers")))
    if not held:
        return True, live if dry else cluster.store.remove(resource, live)
    if meta.get("deletionTimestamp"):
        return False, live
    meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = stamp(now()), 0
    if finalizers:
        meta["finalizers"] = finalizers
    if "generation" in meta:
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
    filter_of(call)
    with cluster.store.lock:
        found = page(cluster, call)
        for item in found.items:
            remove(cluster, call.resource, item, options.get("propagationPolicy", ""), dry)
    head: Obj = {
        "kind": call.resource.items_kind,
        "apiVersion": call.resource.api_version,
        "metadata": {"resourceVersion": str(cluster.store.version)},
    }
    return Answer(200, msgspec.json.encode({**head, "items": [item.obj for item in found.items]}))


VERBS: dict[str, Callable[[Cluster, Call], Answer]] = {
    "create": create,
    "update": update,
    "patch": patched,
    "delete": delete,
    "deletecollection": delete_collection,
}
