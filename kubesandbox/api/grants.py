"""Escalation: bindings grant only rights that their author has, or roles that it may bind.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..schema.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, RBAC, ROLE_BINDINGS, ROLES
from .cluster import Call, Cluster
from .errors import ApiError, forbidden, not_found
from .rbac import Attributes, Authorizer, User

Obj = dict[str, Any]
_ROLES = {"ClusterRole": CLUSTER_ROLES, "Role": ROLES}
_OF_COLLECTOR = ("finalizers", "ownerReferences", "managedFields")


def check_grant(cluster: Cluster, call: Call, obj: Obj, old: Obj | None = None) -> None:
    """Refuse a binding that grants more than its author has. What the garbage collector changes grants nothing."""
    is_binding = call.resource in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
    if not is_binding or "system:masters" in call.user.groups or (old and _bare(obj) == _bare(old)):
        return
    reference = obj["roleRef"]
    resource = _ROLES.get(reference["kind"])
    if resource is None:
        raise ApiError(500, "", f'unsupported role reference kind: "{reference["kind"]}"')
    bind = Attributes("bind", RBAC, resource.plural, namespace=call.namespace, name=reference["name"])
    if cluster.authorizer.allowed(call.user, bind):
        return
    role = cluster.store.get(resource, call.namespace if resource.namespaced else "", reference["name"])
    if role is None:
        raise not_found(call.resource, reference["name"])
    missing = _missing(cluster.authorizer, call.user, call.namespace, role.obj.get("rules") or [])
    if missing:
        raise forbidden(call.resource, obj["metadata"].get("name", ""), _reason(call.user, missing))


def _bare(obj: Obj) -> Obj:
    meta = {name: value for name, value in obj["metadata"].items() if name not in _OF_COLLECTOR}
    return {**obj, "metadata": meta}


def _reason(user: User, missing: list[str]) -> str:
    groups = " ".join(json.dumps(group) for group in user.groups)
    who = f'user "{user.name}" (groups=[{groups}])'
    return "\n".join((f"{who} is attempting to grant RBAC permissions not currently held:", *missing))


def _missing(authorizer: Authorizer, user: User, namespace: str, rules: list[Obj]) -> list[str]:
    """The rights that the user does not have, with the verbs of each resource together."""
    verbs: dict[tuple[_What, str], list[str]] = {}
    for what, right in _each_right(rules):
        if not authorizer.has_right(user, namespace, right):
            verbs.setdefault((what, right.verb if right.path else ""), []).append(right.verb)
    return sorted(_text(what, found) for (what, _), found in verbs.items())


_What = tuple[tuple[str, str], ...]  # fields of a rule, and one value of each


def _each_right(rules: list[Obj]) -> Iterator[tuple[_What, Attributes]]:
    """What the rules grant, one by one, and the request that needs exactly this right."""
    for rule in rules:
        for group in rule.get("apiGroups") or []:
            for resource in rule.get("resources") or []:
                plural, _, subresource = resource.partition("/")
                for verb in rule.get("verbs") or []:
                    for name in rule.get("resourceNames") or [""]:
                        named = (("ResourceNames", name),) if name else ()
                        what = (("APIGroups", group), ("Resources", resource), *named)
                        yield what, Attributes(verb, group, plural, subresource, name=name)
        for path in rule.get("nonResourceURLs") or []:
            for verb in rule.get("verbs") or []:
                yield (("NonResourceURLs", path),), Attributes(verb, path=path)


def _text(what: _What, verbs: list[str]) -> str:
    fields = [f"{field}:[{json.dumps(value)}]" for field, value in what]
    listed = " ".join(json.dumps(verb) for verb in verbs)
    return "{" + ", ".join((*fields, f"Verbs:[{listed}]")) + "}"
