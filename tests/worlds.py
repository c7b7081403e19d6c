"""Objects of small test worlds as plain dicts."""

import base64
from typing import Any

from tests.canary import canary

Object = dict[str, Any]
SELECTED = {"copyrator": "true"}


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
    return {"apiVersion": "v1", "kind": source["kind"], "metadata": place}


def content(obj: Object | None) -> Object | None:
    """Return the content of an object, to compare a copy with its source."""
    if obj is None:
        return None
    return {key: obj[key] for key in ("type", "data", "binaryData", "immutable") if obj.get(key)}


def encoded(value: str) -> str:
    """Return the value in Base64, as in a Secret's data."""
    return base64.b64encode(value.encode()).decode()


def _metadata(namespace: str, name: str, labels: Any) -> Object:
    return {"name": name, "namespace": namespace, "labels": dict(labels)}
