"""Which pods have a FarmPod, and what it says about them."""

from __future__ import annotations

from soak.history import Key, Object
from soak.invariants.reads import is_terminating, labels_of

JOB = "farm-pods"
OPT_IN = "kubechores.dev/farm"


def farm_pod_key(namespace: str, pod: str) -> Key:
    """Return the place of the FarmPod of a pod with a short name."""
    return Key("FarmPod", namespace, f"farm-{pod}")


def is_farmed(namespace: Object | None) -> bool:
    """Whether a namespace opted in."""
    return labels_of(namespace).get(OPT_IN) == "true" and not is_terminating(namespace)


def problem(farm_pod: Object, pod: Object) -> str:
    """Return why a FarmPod does not describe a pod, or an empty string."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    if farm_pod["metadata"].get("ownerReferences") != [owner]:
        return f"its owner is not only pod {metadata['name']} with uid {metadata['uid']}"
    spec, containers = farm_pod["spec"], len(pod["spec"]["containers"])
    if (spec["pod"], spec["containers"]) != (metadata["name"], containers):
        return f"it describes {spec}, and pod {metadata['name']} has {containers} containers"
    return ""
