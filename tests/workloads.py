"""Workloads without pods, and their rollouts, which complete as soon as the controller observes them.

The embedded API server runs no controllers of workloads, so tests write the statuses there.
"""

from typing import Any

import yaml

from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.manifests import ROOT
from tests.worlds import encoded

OPT_IN = "kubechores.dev/roll-on-config-change"
BASELINE = "kubechores.dev/config-baseline"
ROLL_ID = "kubechores.dev/config"
KINDS = ("Deployment", "StatefulSet", "DaemonSet")
KEY: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "roll-workloads-key", "namespace": "kube-chores"},
}
# The Secret of the key, for a run outside a pod.
KEY_FLAG = ("--key-secret", "kube-chores/roll-workloads-key")
ROLLOUTS: Object = yaml.safe_load((ROOT / "tests" / "argo_rollouts_crd.yaml").read_text())
HEALTHY = {"phase": "Healthy", "availableReplicas": 1, "replicas": 1, "updatedReplicas": 1}
FROM_A_VOLUME: Object = {"volumes": [{"name": "config", "configMap": {"name": "settings"}}]}


def workload(
    namespace: str,
    name: str = "web",
    kind: str = "Deployment",
    opted_in: str | None = "true",
    pod: Object | None = None,
    **spec: Any,
) -> Object:
    """Return a workload without pods that uses ConfigMap `settings`, or the volumes and fields of `pod`.

    `opted_in` is the value of its annotation; None: not set. The container mounts all volumes.
    """
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
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {OPT_IN: opted_in} if opted_in is not None else {},
        },
        "spec": {"selector": {"matchLabels": labels}, "template": template, **size, **own, **spec},
    }


def install_rollouts(api: Api, crd: Object = ROLLOUTS) -> None:
    """Create the CRD of Argo Rollouts, once the one of an earlier test is deleted."""
    wait_for(lambda: api.get(crd) is None, "an earlier test's CRD to be deleted")
    api.create(crd)


def rollout(namespace: str, name: str = "web", **fields: Any) -> Object:
    """Return a Rollout of Argo Rollouts; the CRD is ROLLOUTS."""
    made = workload(namespace, name, replicas=1, **fields)
    return {**made, "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}


def with_status(api: Api, made: Object, **status: Any) -> None:
    """Write the status of a Rollout as its controller does: by default, all of it is healthy."""
    found = api.read(made)
    observed = {"observedGeneration": str(found["metadata"]["generation"])}
    api.patch_status(made, {**HEALTHY, **observed, "restartedAt": found["spec"].get("restartAt"), **status})


def settle(api: Api, made: Object) -> Object:
    """Wait until the rollout is complete, and return the workload; on the embedded server, write that status."""
    if api.kind == "sandbox":
        found = api.read(made)
        api.patch_status(made, {"observedGeneration": found["metadata"]["generation"]})
    wait_for(lambda: _is_settled(api.get(made)), "the rollout to complete")
    return api.read(made)


def _is_settled(found: Object | None) -> bool:
    assert found
    status = found.get("status", {})
    observed = status.get("observedGeneration") == found["metadata"]["generation"]
    return bool(observed and status.get("currentRevision") == status.get("updateRevision"))


def set_key(api: Api, value: str | None = "") -> None:
    """Write the key for fingerprints: a new one by default; None empties its Secret, as the manifests create it."""
    data = None if value is None else {"key": encoded(value or canary("-" * 20))}
    api.patch(KEY, {"data": data})


def roll_annotations(found: Object | None) -> tuple[str | None, str | None]:
    """Return the baseline of a workload and the roll ID of its pod template."""
    assert found
    template = found["spec"]["template"].get("metadata", {})
    return (found["metadata"].get("annotations") or {}).get(BASELINE), (template.get("annotations") or {}).get(ROLL_ID)


def rollouts(api: Api, found: Object) -> int:
    """Return the number of rollouts of a workload, including the first, as its controller counts them."""
    if api.kind == "sandbox":
        raise AssertionError("the embedded cluster has no controllers")
    kind, namespace = found["kind"], found["metadata"]["namespace"]
    of = "ReplicaSet" if kind == "Deployment" else "ControllerRevision"
    owned = api.items("apps/v1", of, namespace)
    uid = found["metadata"]["uid"]
    return sum(1 for each in owned if any(owner["uid"] == uid for owner in each["metadata"]["ownerReferences"]))
