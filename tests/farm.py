"""Pods and FarmPods of small test worlds."""

from typing import Any

from tests.apis import Api, wait_for
from tests.canary import canary

Object = dict[str, Any]
FARMED = {"kubechores.dev/farm": "true"}
VERSION = "kubechores.dev/v1"
COLLECTED_SECONDS = 60.0  # the garbage collector discovers new kinds every 30 s, and FarmPod may be new


def pod(namespace: str, name: str, containers: int = 1, **metadata: Any) -> Object:
    """Return a pod with passwords in its environment variables and in kubectl's last-applied-configuration."""
    env = [{"name": "PASSWORD", "value": canary()}]
    each = [{"name": f"c{number}", "image": "none:1", "env": env} for number in range(containers)]
    metadata["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": canary()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"containers": each, "initContainers": [{"name": "init", "image": "none:1", "env": env}]},
    }


def farm_pod(namespace: str, name: str, containers: int = 1, **metadata: Any) -> Object:
    """Return a FarmPod that somebody else creates for a pod; also sufficient for `api.get`."""
    return {
        "apiVersion": VERSION,
        "kind": "FarmPod",
        "metadata": {"name": f"farm-{name}", "namespace": namespace, **metadata},
        "spec": {"pod": name, "containers": containers},
    }


def llama(namespace: str, name: str = "dolly", weight: float = 31.4, height: float = 0.5) -> Object:
    spec = {"weight": weight, "height": height}
    return {"apiVersion": VERSION, "kind": "Llama", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def farmed(api: Api, name: str = "shop", labels: Any = FARMED) -> str:
    """Create a namespace that opted in, and wait for its ServiceAccount: pods need it."""
    namespace = api.namespace(name, labels=labels)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    wait_for(lambda: api.get(account), f"the account of pods in {namespace}")
    return namespace


def listed(api: Api, namespace: str) -> dict[str, Object]:
    """Return the FarmPods of a namespace by name."""
    return {each["metadata"]["name"]: each for each in api.items(VERSION, "FarmPod", namespace)}


def owner(of: Object) -> Object:
    """Return the owner reference of a FarmPod to its pod."""
    return {"apiVersion": "v1", "kind": "Pod", "name": of["metadata"]["name"], "uid": of["metadata"]["uid"]}


def wait_until_collected(api: Api, obj: Object) -> None:
    """Wait until the garbage collector has removed the object."""
    wait_for(lambda: api.get(obj) is None, f"{obj['metadata']['name']} to be collected", COLLECTED_SECONDS)
