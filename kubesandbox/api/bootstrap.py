"""The objects of a new cluster: namespaces and the default roles."""

from __future__ import annotations

from typing import Any

from ..schema.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, RBAC
from .cluster import Cluster
from .controllers import aggregate, furnish

Obj = dict[str, Any]
NAMES = ("default", "kube-node-lease", "kube-public", "kube-system")
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_VISIBLE = [
    {
        "apiGroups": [""],
        "resources": [
            "configmaps",
            "events",
            "limitranges",
            "namespaces",
            "persistentvolumeclaims",
            "pods",
            "resourcequotas",
            "resourcequotas/status",
            "serviceaccounts",
            "services",
        ],
        "verbs": _READ,
    },
    {"apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "statefulsets"], "verbs": _READ},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ},
    {"apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": _READ},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _READ},
]
_EDITABLE = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": [*_READ, *_WRITE]},
    {
        "apiGroups": [""],
        "resources": ["configmaps", "events", "persistentvolumeclaims", "pods", "serviceaccounts", "services"],
        "verbs": _WRITE,
    },
    {"apiGroups": ["apps"], "resources": ["daemonsets", "deployments", "statefulsets"], "verbs": _WRITE},
    {"apiGroups": ["batch"], "resources": ["cronjobs", "jobs"], "verbs": _WRITE},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _WRITE},
]
_ADMINISTRABLE = [
    {"apiGroups": [RBAC], "resources": ["rolebindings", "roles"], "verbs": [*_READ, *_WRITE]},
]


def _role(name: str, rules: list[Obj], to: str = "") -> Obj:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    if to:
        labels[f"{RBAC}/aggregate-to-{to}"] = "true"
    return {"metadata": {"name": name, "labels": labels}, "rules": rules}


def _aggregated(name: str, to: str = "") -> Obj:
    selector = {"matchLabels": {f"{RBAC}/aggregate-to-{name}": "true"}}
    return {**_role(name, [], to), "aggregationRule": {"clusterRoleSelectors": [selector]}}


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
