"""The kinds that sync-copies copies only with a component, by name: the objects are those of tests/worlds.py."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.rights import RBAC
from tests.worlds import cluster_role_ref, limit_range, network_policy, resource_quota, role_binding, service_account

Object = dict[str, Any]
NOBODY = {"apiGroup": RBAC, "kind": "Group", "name": "nobody"}  # a group with users would change the rights of jobs
VIEW = cluster_role_ref("view")
# By kind: how to build an object, and a change of it, as a merge patch.
MORE_KINDS: Mapping[str, tuple[Callable[..., Object], Object]] = {
    "NetworkPolicy": (network_policy, {"spec": {"policyTypes": ["Egress"]}}),
    "LimitRange": (limit_range, {"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}),
    "ResourceQuota": (resource_quota, {"spec": {"hard": {"pods": "20"}}}),
    "RoleBinding": (role_binding, {"subjects": None}),
    "ServiceAccount": (service_account, {"automountServiceAccountToken": True}),
}


def of_kind(kind: str, namespace: str, labels: Object | None = None, /, name: str = "x", **fields: Any) -> Object:
    """Return an object of MORE_KINDS, which rules select only with these labels."""
    return MORE_KINDS[kind][0](namespace, name, labels=labels or {}, **fields)
