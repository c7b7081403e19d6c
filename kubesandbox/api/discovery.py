"""What clients discover of the API: versions, groups, resources, and as much OpenAPI as kubectl requests."""

from __future__ import annotations

from typing import Any

import msgspec

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
_SUBRESOURCE_VERBS = {
    "token": ("create",),
    "finalize": ("update",),
    "proxy": ("get",),
    "status": ("get", "patch", "update"),
}


def answer(cluster: Cluster, path: str) -> Answer:
    """The answer to a path that is not a resource's."""
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return _json(VERSION)
        case ["healthz" | "livez" | "readyz", *_]:
            return Answer(200, b"ok", "text/plain; charset=utf-8")
        case ["openapi", *rest]:
            return _openapi(cluster, rest)
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
            return _json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses})
        case ["apis"]:
            return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups(cluster)})
        case ["api", "v1"]:
            return _resource_list(cluster, "v1")
        case ["apis", group, version]:
            return _resource_list(cluster, f"{group}/{version}")
    raise PlainNotFoundError


def _json(value: Any) -> Answer:
    return Answer(200, msgspec.json.encode(value))


def _groups(cluster: Cluster) -> list[Obj]:
    groups: dict[str, list[Obj]] = {}
    for resource in cluster.resources():
        version = {"groupVersion": resource.api_version, "version": resource.version}
        versions = groups.setdefault(resource.group, [])
        if version not in versions:
            versions.append(version)
    return [
        {"name": name, "versions": versions, "preferredVersion": versions[0]}
        for name, versions in groups.items()
        if name
    ]


def _resource_list(cluster: Cluster, api_version: str) -> Answer:
    listed = []
    for resource in cluster.resources():
        if resource.api_version != api_version:
            continue
        entry: Obj = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs,
        }
        if resource.short_names:
            entry["shortNames"] = resource.short_names
        if resource.categories:
            entry["categories"] = resource.categories
        listed.append(entry)
        for name in resource.subresources:
            part = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": "TokenRequest" if name == "token" else resource.kind,
                "verbs": _SUBRESOURCE_VERBS[name],
            }
            listed.append(part | ({"group": "authentication.k8s.io", "version": "v1"} if name == "token" else {}))
    if not listed:
        raise PlainNotFoundError
    return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed})


def _openapi(cluster: Cluster, parts: list[str]) -> Answer:
    match parts:
        case ["v2"]:
            return _json({"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}})
        case ["v3"]:
            paths = {}
            for resource in cluster.resources():
                name = ("apis/" if resource.group else "api/") + resource.api_version
                paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={cluster.store.version}"}
            return _json({"paths": paths})
        case ["v3", "api" | "apis", *api_version]:
            return _json(_document(cluster, "/".join(api_version)))
    raise PlainNotFoundError


def _document(cluster: Cluster, api_version: str) -> Obj:
    """Paths with the parameters that kubectl looks for, and the schemas that `kubectl explain` shows."""
    paths: Obj = {}
    schemas: Obj = {}
    parameters = [
        {"name": query, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for query in ("dryRun", "fieldManager", "fieldValidation")
    ]
    for resource in cluster.resources():
        if resource.api_version != api_version:
            continue
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        group = ".".join(reversed(resource.group.split("."))) or "io.k8s.api.core"
        name = f"{group}.{resource.version}.{resource.kind}"
        plain = {"description": f"{resource.kind} of {api_version}", "x-kubernetes-preserve-unknown-fields": True}
        raw = resource.schema.raw if resource.schema else {"type": "object", **plain}
        schemas[name] = {**raw, "x-kubernetes-group-version-kind": [kind]}
        base = ("/apis/" if resource.group else "/api/") + api_version
        middle = "/namespaces/{namespace}" if resource.namespaced else ""
        media = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        operation = {
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": media}},
            "x-kubernetes-group-version-kind": kind,
        }
        bodies = {"put": media, "patch": {key: {"schema": {"type": "object"}} for key in _PATCHES}}
        paths[f"{base}{middle}/{resource.plural}/{{name}}"] = {
            "get": {**operation, "x-kubernetes-action": "get"},
            **{
                verb: {**operation, "requestBody": {"content": content}, "x-kubernetes-action": verb}
                for verb, content in bodies.items()
            },
        }
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}
