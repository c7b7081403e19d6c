"""Workloads of small test worlds, and their rollouts: without pods these are over as soon as a controller saw them.

The embedded API server runs no controllers of workloads, so statuses are written there.
"""

from __future__ import annotations

from typing import Any

from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.worlds import encoded

OPT_IN = "kubechores.dev/roll-on-config-change"
BASELINE = "kubechores.dev/config-baseline"
MARK = "kubechores.dev/config"
KINDS = ("Deployment", "StatefulSet", "DaemonSet")
KEY: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "roll-workloads-key", "namespace": "kube-chores"},
}
# Where a run outside a pod finds the key.
KEY_ENV = {"CHORES_KEY_SECRET": "kube-chores/roll-workloads-key"}
# One reference of each sort.
FROM_A_VOLUME: Object = {"volumes": [{"name": "config", "configMap": {"name": "settings"}}]}


def workload(
    namespace: str,
    name: str = "web",
    kind: str = "Deployment",
    asks: str | None = "true",
    pod: Object | None = None,
    **spec: Any,
) -> Object:
    """A workload without pods that uses ConfigMap `settings`, or what `pod` says; it mounts all its volumes."""
    labels = {"app": name}
    pod = FROM_A_VOLUME if pod is None else pod
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in pod.get("volumes", ())]
    container = {"name": "main", "image": "example.com/app:1", "volumeMounts": mounts, **pod.get("container", {})}
    others = {key: value for key, value in pod.items() if key != "container"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **others}}
    own = {"serviceName": name} if kind == "StatefulSet" else {}
    size = {} if kind == "DaemonSet" else {"replicas": 0}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": {OPT_IN: asks} if asks is not None else {}},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **size, **own, **spec},
    }


def settle(api: Api, made: Object) -> Object:
    """Wait until the rollout is over, or say so; gives the workload as it is then."""
    if api.kind == "sandbox":
        found = api.get(made)
        assert found
        status = {"status": {"observedGeneration": found["metadata"]["generation"]}}
        api.call("PATCH", f"{api.path(made)}/status", status, headers={"Content-Type": "application/merge-patch+json"})
    wait_for(lambda: _is_settled(api.get(made)), "the rollout to be over")
    found = api.get(made)
    assert found
    return found


def _is_settled(found: Object | None) -> bool:
    assert found
    status = found.get("status", {})
    observed = status.get("observedGeneration") == found["metadata"]["generation"]
    return bool(observed and status.get("currentRevision") == status.get("updateRevision"))


def set_key(api: Api, value: str | None = "") -> None:
    """Write the key of fingerprints, a new one unless told; None empties its Secret, as it is shipped."""
    data = None if value is None else {"key": encoded(value or canary("-" * 20))}
    api.patch(KEY, {"data": data})


def marks(found: Object | None) -> tuple[str | None, str | None]:
    """The baseline, and the mark of the pod template."""
    assert found
    template = found["spec"]["template"].get("metadata", {})
    return (found["metadata"].get("annotations") or {}).get(BASELINE), (template.get("annotations") or {}).get(MARK)


def rollouts(api: Api, found: Object) -> int:
    """How many rollouts a workload has had, the first one included, as its controller counts them."""
    if api.kind == "sandbox":
        raise AssertionError("the embedded cluster has no controllers")
    kind, namespace = found["kind"], found["metadata"]["namespace"]
    of = "ReplicaSet" if kind == "Deployment" else "ControllerRevision"
    owned = api.items("apps/v1", of, namespace)
    uid = found["metadata"]["uid"]
    return sum(1 for each in owned if any(owner["uid"] == uid for owner in each["metadata"]["ownerReferences"]))
