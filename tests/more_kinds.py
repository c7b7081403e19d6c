"""Small objects of the kinds that sync-copies copies only with a component."""

from collections.abc import Mapping
from typing import Any

from tests.rights import RBAC

Object = dict[str, Any]
NOBODY = {"apiGroup": RBAC, "kind": "Group", "name": "nobody"}  # a group with users would change the rights of jobs
VIEW = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
# By kind: the API version, the content, and a change of it, as a merge patch.
MORE_KINDS: Mapping[str, tuple[str, Object, Object]] = {
    "NetworkPolicy": (
        "networking.k8s.io/v1",
        {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
        {"spec": {"policyTypes": ["Egress"]}},
    ),
    "LimitRange": (
        "v1",
        {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
        {"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}},
    ),
    "ResourceQuota": ("v1", {"spec": {"hard": {"pods": "10"}}}, {"spec": {"hard": {"pods": "20"}}}),
    "RoleBinding": (f"{RBAC}/v1", {"roleRef": VIEW, "subjects": [NOBODY]}, {"subjects": None}),
    "ServiceAccount": ("v1", {"automountServiceAccountToken": False}, {"automountServiceAccountToken": True}),
}


def of_kind(kind: str, namespace: str, labels: Object | None = None, /, name: str = "x", **fields: Any) -> Object:
    """Return an object of MORE_KINDS."""
    version, content, _ = MORE_KINDS[kind]
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content, **fields}
