"""What clients discover of the API: versions, groups, resources, and as much OpenAPI as kubectl requests."""

from __future__ import annotations

from typing import Any

import msgspec

from ..schema.resources import ALL_VERBS, Resource
from .cluster import Answer, Cluster
from .errors import PlainNotFoundError
from .patch import APPLY, JSON_PATCH, MERGE_PATCH

Obj = dict[str, Any]
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "kubesandbox",
    "gitTreeState": "clean",
    "platform": "linux/amd64",
}
_INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
# Without strategic merge patch kubectl takes its own types for it, and needs no schemas of built-in kinds.
_PATCHES = (JSON_PATCH, MERGE_PATCH, APPLY)
_STATUS_VERBS = ("get", "patch", "update")


def answer(cluster: Cluster, path: str) -> Answer:
    """The answer to a path that is not a resource's."""
    parts = [part for part in path.split("/") if part]
    if path.rstrip("/") == "/version":
        return _json(VERSION)
    if parts and parts[0] in ("healthz", "livez", "readyz"):
        return Answer(200, b"ok", "text/plain; charset=utf-8")
    if parts[:1] == ["openapi"]:
        return _openapi(cluster, parts[1:])
    if parts == ["api"] or parts == ["apis"]:
        return _roots(cluster, parts[0])
    if parts == ["api", "v1"]:
        return _resource_list(cluster, "", "v1")
    if len(parts) == 3 and parts[0] == "apis":
        return _resource_list(cluster, parts[1], parts[2])
    raise PlainNotFoundError


def _json(value: Any) -> Answer:
    return Answer(200, msgspec.json.encode(value))


def _versions(cluster: Cluster) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for resource in cluster.resources():
        versions = found.setdefault(resource.group, [])
        if resource.version not in versions:
            versions.append(resource.version)
    return found


def _groups(cluster: Cluster) -> list[Obj]:
    groups = []
    for name, versions in _versions(cluster).items():
        if name:
            listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
            groups.append({"name": name, "versions": listed, "preferredVersion": listed[0]})
    return groups


def _roots(cluster: Cluster, root: str) -> Answer:
    if root == "api":
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
        return _json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses})
    return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(cluster)})


def _verbs(resource: Resource) -> list[str]:
    return [verb for verb in ALL_VERBS if verb in resource.verbs]


def _resource_list(cluster: Cluster, group: str, version: str) -> Answer:
    found = [item for item in cluster.resources() if (item.group, item.version) == (group, version)]
    if not found:
        raise PlainNotFoundError
    listed = []
    for resource in found:
        entry: Obj = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": _verbs(resource),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        listed.append(entry)
        listed.extend(_subresource(resource, name) for name in resource.subresources)
    name = f"{group}/{version}" if group else version
    return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed})


def _subresource(resource: Resource, name: str) -> Obj:
    entry: Obj = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": "TokenRequest" if name == "token" else resource.kind,
        "verbs": list(_subresource_verbs(name)),
    }
    if name == "token":
        entry.update(group="authentication.k8s.io", version="v1")
    return entry


def _subresource_verbs(name: str) -> tuple[str, ...]:
    return {"token": ("create",), "finalize": ("update",), "proxy": ("get",)}.get(name, _STATUS_VERBS)


def _openapi(cluster: Cluster, parts: list[str]) -> Answer:
    if parts == ["v2"]:
        return _json({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}})
    if parts == ["v3"]:
        paths = {}
        for group, versions in _versions(cluster).items():
            for version in versions:
                name = f"apis/{group}/{version}" if group else f"api/{version}"
                paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={cluster.store.version}"}
        return _json({"paths": paths})
    if parts[:1] == ["v3"]:
        group, version = ("", parts[2]) if parts[1] == "api" else (parts[2], parts[3])
        return _json(_document(cluster, group, version))
    raise PlainNotFoundError


def _document(cluster: Cluster, group: str, version: str) -> Obj:
    """Paths with the parameters that kubectl looks for, and the schemas that `kubectl explain` shows."""
    paths: Obj = {}
    schemas: Obj = {}
    for resource in cluster.resources():
        if (resource.group, resource.version) != (group, version):
            continue
        kind = {"group": group, "version": version, "kind": resource.kind}
        name = f"{'.'.join(reversed(group.split('.'))) or 'io.k8s.api.core'}.{version}.{resource.kind}"
        raw = resource.schema.raw if resource.schema else {"type": "object", **_plain_schema(resource)}
        schemas[name] = {**raw, "x-kubernetes-group-version-kind": [kind]}
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        middle = "/namespaces/{namespace}" if resource.namespaced else ""
        path = f"{base}{middle}/{resource.plural}/{{name}}"
        reference = {"$ref": f"#/components/schemas/{name}"}
        media = {"application/json": {"schema": reference}}
        parameters = [
            {"name": query, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for query in ("dryRun", "fieldManager", "fieldValidation")
        ]
        operation = {
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": media}},
            "x-kubernetes-group-version-kind": kind,
        }
        patch = {
            **operation,
            "requestBody": {"content": {key: {"schema": {"type": "object"}} for key in _PATCHES}},
            "x-kubernetes-action": "patch",
        }
        paths[path] = {
            "get": {**operation, "x-kubernetes-action": "get"},
            "put": {**operation, "x-kubernetes-action": "put", "requestBody": {"content": media}},
            "patch": patch,
        }
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _plain_schema(resource: Resource) -> Obj:
    return {"description": f"{resource.kind} of {resource.api_version}", "x-kubernetes-preserve-unknown-fields": True}
