"""The objects of a new cluster: namespaces and the default roles."""

from __future__ import annotations

import uuid
from typing import Any

from ..schema.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, RBAC
from .cluster import Cluster
from .controllers import aggregate, furnish

Obj = dict[str, Any]
NAMES = ("default", "kube-node-lease", "kube-public", "kube-system")
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_CHANGED = ["configmaps", "events", "persistentvolumeclaims", "pods", "serviceaccounts", "services"]


def _rule(group: str, resources: list[str], *verbs: str) -> Obj:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _workload_rules(*verbs: str) -> list[Obj]:
    return [
        _rule("apps", ["daemonsets", "deployments", "statefulsets"], *verbs),
        _rule("batch", ["cronjobs", "jobs"], *verbs),
        _rule("networking.k8s.io", ["networkpolicies"], *verbs),
    ]


_VISIBLE = [
    _rule("", [*_CHANGED, "limitranges", "namespaces", "resourcequotas", "resourcequotas/status"], *_READ),
    _rule("discovery.k8s.io", ["endpointslices"], *_READ),
    *_workload_rules(*_READ),
]
_EDITABLE = [_rule("", ["secrets"], *_READ, *_WRITE), _rule("", _CHANGED, *_WRITE), *_workload_rules(*_WRITE)]
_ADMINISTRABLE = [_rule(RBAC, ["rolebindings", "roles"], *_READ, *_WRITE)]


def _role(name: str, rules: list[Obj], to: str = "") -> Obj:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if to:
        labels[f"{RBAC}/aggregate-to-{to}"] = "true"
    return {"metadata": {"name": name, "labels": labels}, "rules": rules}


def _aggregated(name: str, to: str = "") -> Obj:
    selector = {"matchLabels": {f"{RBAC}/aggregate-to-{name}": "true"}}
    return {**_role(name, [], to), "aggregationRule": {"clusterRoleSelectors": [selector]}}


def become_another(cluster: Cluster) -> None:
    """Give a copy of a cluster what distinguishes clusters: another uid of namespace kube-system."""
    found = cluster.store.get(NAMESPACES, "", "kube-system")
    assert found
    metadata = {**found.obj["metadata"], "uid": str(uuid.uuid4())}
    with cluster.store.lock:
        cluster.store.put(NAMESPACES, {**found.obj, "metadata": metadata})


def populate(cluster: Cluster) -> None:
    """Make the objects that kube-apiserver and its controllers make at their first start."""
    everything = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    roles = [
        _role("cluster-admin", everything),
        _role("system:aggregate-to-view", _VISIBLE, "view"),
        _role("system:aggregate-to-edit", _EDITABLE, "edit"),
        _role("system:aggregate-to-admin", _ADMINISTRABLE, "admin"),
        _aggregated("view", "edit"),
        _aggregated("edit", "admin"),
        _aggregated("admin"),
    ]
    with cluster.store.lock:
        for name in NAMES:
            cluster.seed(NAMESPACES, {"metadata": {"name": name}})
            furnish(cluster, name)
        for role in roles:
            cluster.seed(CLUSTER_ROLES, role)
        cluster.seed(
            CLUSTER_ROLE_BINDINGS,
            {
                "metadata": {"name": "cluster-admin"},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:masters"}],
            },
        )
        for _ in range(3):
            aggregate(cluster)
