"""Objects of small test worlds as plain dicts."""

import json
from typing import Any

from tests.canary import canary
from tests.model import encoded as encoded
from tests.rights import RBAC

Object = dict[str, Any]
SELECTED = {"copyrator": "true"}
_BOOLEANS = ("automountServiceAccountToken",)  # whose false is not the same as its absence
_DATA = ("type", "data", "binaryData", "immutable")
_COPIED = (*_DATA, "spec", "roleRef", "subjects", "imagePullSecrets", *_BOOLEANS)


def namespace_object(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}


def configmap(namespace: str, name: str = "settings", *, labels: Any = SELECTED, **fields: Any) -> Object:
    """Return a ConfigMap that the rules of `rule()` select."""
    fields = fields or {"data": {"a": "1", "b": "2"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(namespace, name, labels), **fields}


def secret(namespace: str, name: str = "login", *, labels: Any = SELECTED, **fields: Any) -> Object:
    """Return a Secret that the rules of `rule(ruleType="secret")` select; every value contains a canary."""
    fields = fields or {"data": {"user": encoded(canary()), "password": encoded(canary())}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(namespace, name, labels), **fields}


def pull_secret(namespace: str, name: str = "login", **fields: Any) -> Object:
    """Return a Secret for pulls."""
    text = json.dumps({"auths": {"registry.example.com": {"auth": canary()}}})
    data = {".dockerconfigjson": encoded(text)}
    return secret(namespace, name, **{"type": "kubernetes.io/dockerconfigjson", "data": data, **fields})


def network_policy(namespace: str, name: str = "isolation", *, labels: Any = SELECTED, **fields: Any) -> Object:
    """Return a NetworkPolicy for rules with `ruleType="networkpolicy"`, as the next four for rules of their types."""
    fields = fields or {"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [_ports(80)]}}
    version = "networking.k8s.io/v1"
    return {"apiVersion": version, "kind": "NetworkPolicy", "metadata": _metadata(namespace, name, labels), **fields}


def limit_range(namespace: str, name: str = "defaults", *, labels: Any = SELECTED, **fields: Any) -> Object:
    limits = [{"type": "Container", "default": {"cpu": "1"}}, {"type": "Pod", "max": {"cpu": "4"}}]
    fields = fields or {"spec": {"limits": limits}}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": _metadata(namespace, name, labels), **fields}


def resource_quota(namespace: str, name: str = "limits", *, labels: Any = SELECTED, **fields: Any) -> Object:
    """Return a ResourceQuota that is large enough for the pods of a test."""
    fields = fields or {"spec": {"hard": {"pods": "100", "requests.cpu": "50"}}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _metadata(namespace, name, labels), **fields}


def role_binding(namespace: str, name: str = "viewers", *, labels: Any = SELECTED, **fields: Any) -> Object:
    """Return a RoleBinding to ClusterRole view, for the group viewers and ServiceAccount robot of the namespace."""
    subjects = [
        {"kind": "Group", "name": "viewers", "apiGroup": RBAC},
        {"kind": "ServiceAccount", "name": "robot", "namespace": namespace},
    ]
    fields = {"roleRef": cluster_role_ref("view"), "subjects": subjects} | fields
    version = f"{RBAC}/v1"
    return {"apiVersion": version, "kind": "RoleBinding", "metadata": _metadata(namespace, name, labels), **fields}


def cluster_role_ref(name: str) -> Object:
    return {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}


def service_account(namespace: str, name: str = "robot", *, labels: Any = SELECTED, **fields: Any) -> Object:
    pull = [{"name": "registry"}, {"name": "mirror"}]
    fields = fields or {"imagePullSecrets": pull, "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(namespace, name, labels), **fields}


def rule(name: str, source_namespace: str, to: str | list[str], **spec: Any) -> Object:
    """Return a CopyratorRule in namespace kube-chores; `to` are globs of target namespaces."""
    include = [to] if isinstance(to, str) else to
    return {
        "apiVersion": "kubechores.dev/v1",
        "kind": "CopyratorRule",
        "metadata": {"name": name, "namespace": "kube-chores"},
        "spec": {
            "ruleType": "configmap",
            "namespaces": [source_namespace],
            "selector": {"matchLabels": SELECTED},
            "targets": {"include": include},
            **spec,
        },
    }


def by_name(name: str, source_namespace: str, to: str | list[str], **spec: Any) -> Object:
    """Return a CopyratorRule that selects its sources by spec.names only."""
    made = rule(name, source_namespace, to, **spec)
    del made["spec"]["selector"]
    return made


def exchange_rate(namespace: str, name: str = "usd", currency: str = "USD", **spec: Any) -> Object:
    return {
        "apiVersion": "kubechores.dev/v1",
        "kind": "ExchangeRate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"currency": currency, **spec},
    }


def at(namespace: str, source: Object) -> Object:
    """Return the key fields of a source's copy: sufficient for `api.get`, `api.patch` and `api.delete`."""
    place = {"namespace": namespace, "name": source["metadata"]["name"]}
    return {"apiVersion": source["apiVersion"], "kind": source["kind"], "metadata": place}


def content(obj: Object | None) -> Object | None:
    """Return the content of an object, to compare a copy with its source."""
    if obj is None:
        return None
    return {key: obj[key] for key in _COPIED if obj.get(key) or (key in _BOOLEANS and key in obj)}


def _ports(*numbers: int) -> Object:
    return {"ports": [{"protocol": "TCP", "port": number} for number in numbers]}


def _metadata(namespace: str, name: str, labels: Any) -> Object:
    return {"name": name, "namespace": namespace, "labels": dict(labels)}
