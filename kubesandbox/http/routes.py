"""From a request's path to the handler that answers it, past the authorizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from ..api import deletes, discovery, reads, writes
from ..api.cluster import Answer, Call, Cluster
from ..api.errors import ApiError, PlainNotFoundError, forbidden, method_not_allowed, not_found, unknown_path
from ..api.rbac import Attributes, User
from ..schema.resources import BUILT_IN, Resource
from . import identity
from .identity import acting
from .proxy import proxied

_BUILT_IN_GROUPS = {resource.group for resource in BUILT_IN}
_EITHER = ("list", "watch", "deletecollection")
_METHODS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Target:
    """What a path names: a resource, or nothing of the kind."""

    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""


def target_of(path: str) -> Target | None:
    """The resource that a path names; None for discovery and other paths."""
    parts = [unquote(part) for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not _of_namespace(rest):
        namespace, rest = rest[1], rest[2:]
    beyond = ""
    if rest[2:3] == ["proxy"]:
        beyond = path.partition("/proxy")[2].lstrip("/")
    elif len(rest) > 3:
        raise PlainNotFoundError
    plural, name, subresource = (*rest, "", "")[:3]
    return Target(group, version, plural, namespace, name, subresource, beyond)


def _of_namespace(rest: list[str]) -> bool:
    return len(rest) == 3 and rest[2] in ("status", "finalize")


def parse_query(text: str) -> dict[str, str]:
    """The query as a dict; of a repeated name the first counts."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True) if text else ():
        found.setdefault(name, value)
    return found


def _verb(method: str, target: Target, query: Mapping[str, str]) -> str:
    verb = _METHODS.get(method, method.lower())
    if verb == "get" and not target.name:
        return "watch" if query.get("watch") in ("true", "1") else "list"
    if verb == "get" and query.get("watch") in ("true", "1"):
        return "watch"
    return "deletecollection" if verb == "delete" and not target.name else verb


def dispatch(
    cluster: Cluster, user: User, method: str, path: str, text: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """Authorize and answer one request."""
    target = target_of(path)
    if target is None:
        return _plain(cluster, user, method, path, headers)
    query = parse_query(text)
    verb = _verb(method, target, query)
    resource = cluster.find(target.group, target.version, target.plural)
    what = Attributes(
        verb,
        target.group,
        target.plural,
        target.subresource,
        target.name if target.plural == "namespaces" and not target.group and target.name else target.namespace,
        _asked_name(verb, target, query),
    )
    user = acting(cluster.authorizer, user, headers, what)
    if not cluster.authorizer.allowed(user, what):
        known = resource or Resource(target.group, target.version, "", target.plural)
        raise forbidden(known, what.name, what.denial(user))
    if resource is None and target.group in _BUILT_IN_GROUPS:
        raise unknown_path()
    if resource is None or (target.namespace and not resource.namespaced):
        raise PlainNotFoundError
    if target.subresource and target.subresource not in resource.subresources:
        raise not_found(resource, target.name) if resource.schema else unknown_path()
    call = Call(
        verb, resource, target.namespace, target.name, target.subresource, query, headers, body, user, target.rest
    )
    try:
        answer = _answer(cluster, call)
    except ApiError as error:
        error.warnings = call.warnings
        raise
    answer.warnings = call.warnings
    return answer


def _asked_name(verb: str, target: Target, query: Mapping[str, str]) -> str:
    if target.name or verb not in ("list", "watch", "deletecollection"):
        return target.name
    for part in query.get("fieldSelector", "").split(","):
        if part.startswith("metadata.name="):
            return part.removeprefix("metadata.name=").lstrip("=")
    return ""


def _plain(cluster: Cluster, user: User, method: str, path: str, headers: Mapping[str, str]) -> Answer:
    what = Attributes(_METHODS.get(method, method.lower()), path=path)
    user = acting(cluster.authorizer, user, headers, what)
    if not cluster.authorizer.allowed(user, what):
        raise ApiError(403, "Forbidden", f"forbidden: {what.denial(user)}", {})
    if method not in ("GET", "HEAD"):
        raise method_not_allowed()
    return discovery.answer(cluster, path)


def _answer(cluster: Cluster, call: Call) -> Answer:
    resource = call.resource
    special = _SUBRESOURCES.get(call.subresource) if resource.stored else ("create", identity.review)
    if special:
        verb, handler = special
        if call.verb != verb:
            raise method_not_allowed()
        return handler(cluster, call)
    if call.verb not in resource.verbs or (bool(call.name) is (call.verb == "create") and call.verb not in _EITHER):
        raise method_not_allowed()
    if call.verb in ("create", "update", "patch") and resource.namespaced and not call.namespace:
        raise method_not_allowed()
    return _VERBS[call.verb](cluster, call)


_SUBRESOURCES = {"proxy": ("get", proxied), "token": ("create", identity.token_request)}
_VERBS = {
    "get": reads.get,
    "list": reads.list_objects,
    "watch": reads.watch,
    "create": writes.create,
    "update": writes.update,
    "patch": writes.patched,
    "delete": deletes.delete,
    "deletecollection": deletes.delete_collection,
}
