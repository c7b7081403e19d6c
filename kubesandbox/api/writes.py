"""create, update, patch, apply and delete: the path every write takes through decoding, ownership and validation."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import yaml

from ..schema import kinds
from ..schema.causes import Cause, forbidden_field, required
from ..schema.kinds.core import CLAIM_IS_IMMUTABLE, before_established
from ..schema.resources import NAMESPACES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, Resource
from ..schema.validation import metadata_causes, metadata_change_causes
from . import managed_fields, patch
from .bodies import decoded, load_yaml, parse, unknown_fields
from .cluster import Answer, Call, Cluster, fresh, now
from .deletes import is_held
from .errors import (
    ApiError,
    bad_request,
    conflict,
    details_of,
    forbidden,
    invalid,
    not_found,
    unsupported_media_type,
)
from .grants import check_grant
from .managed_fields import Manager
from .patch import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC
from .rbac import Attributes
from .reads import shown
from .store import Stored

Obj = dict[str, Any]
_FIXED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def create(cluster: Cluster, call: Call) -> Answer:
    """POST."""
    obj = decoded(call, parse(call))
    meta = obj["metadata"]
    _check_namespace(call, meta)
    if not call.resource.namespaced:
        meta.pop("namespace", None)
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"][:58] + "".join(random.choices(_SUFFIX, k=5))  # noqa: S311 - a name only
        obj, _ = kinds.decode(call.resource, obj)
    if meta.get("resourceVersion"):
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    obj = _owned(call, call.resource.empty, obj)
    with cluster.store.lock:
        item = insert(cluster, call, obj)
    return shown(call, item, 201)


def _owned(call: Call, old: Obj, new: Obj) -> Obj:
    resource = call.resource
    owner = Manager(call.manager, "Update", resource.api_version, call.subresource)
    return managed_fields.updated(old, new, resource.shape, owner, now(), resource.ignored(call.subresource))


def insert(cluster: Cluster, call: Call, obj: Obj) -> Stored:
    """Store a new object, after everything that may speak against it."""
    resource = call.resource
    _admit(cluster, call, obj["metadata"].get("name", ""))
    check_grant(cluster, call, obj)
    obj = {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in _FIXED}}
    if "status" in resource.subresources and resource.schema:
        obj = resource.schema.defaulted({key: value for key, value in obj.items() if key != "status"})
    obj = fresh(resource, obj)
    if resource.kind == "CustomResourceDefinition":
        server = Manager("kube-apiserver", "Update", resource.api_version, "status")
        obj = managed_fields.updated(before_established(obj), obj, resource.shape, server, now())
    _validate(resource, obj, None)
    name = obj["metadata"]["name"]
    if cluster.store.get(resource, call.namespace, name):
        text = f'{resource.qualified} "{name}" already exists'
        raise ApiError(409, "AlreadyExists", text, details_of(resource, name))
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
        causes += kinds.validate(resource, obj, None if subresource else old)
    if causes:
        raise invalid(resource, obj["metadata"].get("name") or "", causes)


def update(cluster: Cluster, call: Call) -> Answer:
    """PUT."""
    obj = decoded(call, parse(call))
    meta = obj["metadata"]
    _check_place(call, meta)
    with cluster.store.lock:
        live = cluster.store.get(call.resource, call.namespace, call.name)
        if live is None:
            if not call.resource.create_on_update:
                raise not_found(call.resource, call.name)
            if meta.get("uid"):
                raise _uid_conflict(call, meta["uid"], "")
            _check_may_create(cluster, call)
            meta.pop("resourceVersion", None)
            obj = _owned(call, call.resource.empty, obj)
            return shown(call, insert(cluster, call, obj), 201)
        actual = live.obj["metadata"]["uid"]
        if (meta.get("uid") or actual) != actual:
            raise _uid_conflict(call, meta["uid"], actual)
        _check_version(call, live, meta)
        item = change(cluster, call, live, obj)
    return shown(call, item)


def _check_place(call: Call, meta: Obj) -> None:
    name = meta.get("name")
    if not name:
        raise bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )
    if name != call.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
    _check_namespace(call, meta)


def _check_namespace(call: Call, meta: Obj) -> None:
    if call.resource.namespaced and meta.setdefault("namespace", call.namespace) != call.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _uid_conflict(call: Call, expected: str, actual: str) -> ApiError:
    place = "/".join(part for part in (call.resource.plural, call.namespace, call.name) if part)
    if call.resource.schema:
        place = f"{call.resource.group}/{place}"
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {expected}, UID in object meta: {actual}"
    )
    return conflict(call.resource, call.name, why)


def _check_version(call: Call, live: Stored, meta: Obj) -> None:
    resource, version = call.resource, meta.get("resourceVersion")
    if not version and (resource.schema or resource.kind == "CustomResourceDefinition"):
        field = "metadata.resourceVersion"
        cause = Cause("FieldValueInvalid", "Invalid value: 0: must be specified for an update", field)
        raise invalid(replace(resource, kind=resource.plural), call.name, [cause])
    if version and version != str(live.version):
        raise conflict(resource, call.name)


def _admit_growth(cluster: Cluster, call: Call, obj: Obj, old: Obj) -> None:
    """Refuse another size of a claim that cannot grow: the admission plugin PersistentVolumeClaimResize."""
    resource = call.resource
    if resource is not PERSISTENT_VOLUME_CLAIMS or obj["spec"].get("resources") == old["spec"].get("resources"):
        return
    if (old.get("status") or {}).get("phase") != "Bound":
        raise invalid(resource, call.name, [forbidden_field("spec", CLAIM_IS_IMMUTABLE)])
    used = cluster.store.get(STORAGE_CLASSES, "", obj["spec"].get("storageClassName") or "")
    if not used or not used.obj.get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support"
        )
        raise forbidden(resource, call.name, f"{why} resize")


def change(cluster: Cluster, call: Call, live: Stored, obj: Obj, manage: bool = True) -> Stored:
    """Store the new state of an object: a write that changes nothing is none."""
    resource, old = call.resource, live.obj
    obj = kinds.prepare_update(resource, obj, old, call.subresource)
    if manage:
        obj = _owned(call, old, obj)
    check_grant(cluster, call, obj, old)
    moved = metadata_change_causes(obj["metadata"], old["metadata"])
    if moved:
        raise invalid(resource, call.name, moved if resource.schema else moved * 2)
    obj = _identified(obj, old)
    if (resource.spec or resource.schema) and kinds.spec_of(resource, obj) != kinds.spec_of(resource, old):
        obj["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
    _admit_growth(cluster, call, obj, old)
    _validate(resource, obj, old, call.subresource)
    if managed_fields.same_but_for_times(old, obj):
        return live
    if call.dry_run:
        return Stored(obj)
    if obj["metadata"].get("deletionTimestamp") and not is_held(resource, obj):
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


def patched(cluster: Cluster, call: Call) -> Answer:
    """PATCH."""
    kind = call.content_type
    if kind not in (JSON_PATCH, MERGE_PATCH, APPLY) and (kind != STRATEGIC or call.resource.schema):
        raise _unknown_patch(call)
    if kind == APPLY:
        return _apply(cluster, call)
    if call.query.get("force"):
        raise _bad_option(forbidden_field("force", "may not be specified for non-apply patch"))
    body = parse(call)
    with cluster.store.lock:
        live = cluster.store.get(call.resource, call.namespace, call.name)
        if live is None:
            raise not_found(call.resource, call.name)
        obj = decoded(call, _patch(kind, live.obj, body, call.resource))
        _check_place(call, obj["metadata"])
        _check_version(call, live, obj["metadata"])
        item = change(cluster, call, live, obj)
    return shown(call, item)


def _patch(kind: str, old: Obj, body: Any, resource: Resource) -> Any:
    if kind == JSON_PATCH:
        return patch.json_patch(old, body)
    if kind == MERGE_PATCH:
        return patch.merge_patch(old, body)
    return patch.strategic_merge(old, body, resource.shape)


def _unknown_patch(call: Call) -> ApiError:
    if not call.resource.schema:
        return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return unsupported_media_type((JSON_PATCH, MERGE_PATCH, APPLY))


def _bad_option(cause: Cause) -> ApiError:
    details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [cause.as_dict()]}
    return ApiError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {cause.text()}', details)


def _apply(cluster: Cluster, call: Call) -> Answer:
    if not call.query.get("fieldManager"):
        raise _bad_option(required("fieldManager", "is required for apply patch"))
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
            # Another uid is not found out here but as a change of what is immutable.
            _check_version(call, live, {"resourceVersion": str(live.version), **config["metadata"]})
        elif config["metadata"].get("uid"):
            raise conflict(
                resource,
                call.name,
                f"uid mismatch: the provided object specified uid "
                f"{config['metadata']['uid']}, and no existing object was found",
            )
        else:
            _check_may_create(cluster, call)
        merged = managed_fields.applied(
            before, config, resource.shape, owner, now(), force, resource.ignored(call.subresource)
        )
        obj = decoded(call, merged)
        if live:
            return shown(call, change(cluster, call, live, obj, manage=False))
        meta = {**obj["metadata"], "name": call.name}
        if resource.namespaced:
            meta["namespace"] = call.namespace
        return shown(call, insert(cluster, call, {**obj, "metadata": meta}), 201)


def _check_may_create(cluster: Cluster, call: Call) -> None:
    """Refuse an apply or replacement that would create an object, from a user without the right to create."""
    resource = call.resource
    place = call.name if resource is NAMESPACES else call.namespace
    what = Attributes("create", resource.group, resource.plural, namespace=place, name=call.name)
    if not cluster.authorizer.allowed(call.user, what):
        raise forbidden(resource, call.name, what.denial(call.user))


def _apply_config(call: Call) -> Obj:
    try:
        config = load_yaml(call.body)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(config, dict) or not config.get("kind") or not config.get("apiVersion"):
        raise bad_request("invalid object type: /, Kind=")
    meta = config.setdefault("metadata", {})
    if meta.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if meta.get("name", call.name) != call.name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({call.name})")
    if config["kind"] != call.resource.kind or config["apiVersion"] != call.resource.api_version:
        raise bad_request(f"the object provided is unrecognized (must be of type {call.resource.kind})")
    if call.subresource == "status":
        config = {key: value for key, value in config.items() if key in ("apiVersion", "kind", "metadata", "status")}
    _check_declared(call, config)
    return config


def _check_declared(call: Call, config: Obj) -> None:
    unknown = unknown_fields(call.resource, config)
    if unknown:
        lines = [f".{path}: field not declared in schema" for path in sorted(unknown)]
        meta = config["metadata"]
        resource = call.resource
        kind = f"{resource.group}/{resource.version}, Kind={resource.kind}"
        title = f"{meta.get('namespace', '')}/{meta.get('name', '')}; {kind}"
        why = lines[0] if len(lines) == 1 else "errors:\n  " + "\n  ".join(lines)
        raise ApiError(500, "", f"failed to create typed patch object ({title}): {why}")
