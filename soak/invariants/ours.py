"""Our accounts never change an object that is not ours, and never what they may not change of an object."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from soak.history import Key, Object
from soak.invariants.reads import annotations_of, essence, is_managed, shown
from soak.observed import Invariant, Observed, Write
from tests import model

COPIED = frozenset({
    "ConfigMap",
    "Secret",
    "LimitRange",
    "NetworkPolicy",
    "ResourceQuota",
    "RoleBinding",
    "ServiceAccount",
})  # fmt: skip
WORKLOADS = frozenset({"DaemonSet", "Deployment", "StatefulSet"})
# What each account creates, changes and deletes, if the object has the labels of its job.
MANAGED = {
    "sync-copies": COPIED,
    "fetch-rates": frozenset({"ConfigMap"}),
    "farm-pods": frozenset({"FarmPod"}),
    "mirror-repair": frozenset({"StatefulSet", "Service", "PersistentVolumeClaim", "DaemonSet", "Secret"}),
    "mirror-audit": frozenset[str](),
    "roll-workloads": frozenset[str](),
}
JOB_LABEL = {"mirror-repair": "mirror-audit"}  # of the objects of an account, if it is not the account's name
NAMESPACES = {"mirror-repair": ("kube-chores-mirrors", "kube-chores-nodes")}
STATUSES = {
    "sync-copies": "CopyRator",
    "fetch-rates": "ExchangeRate",
    "mirror-audit": "RegistryMirror",
    "mirror-repair": "RegistryMirror",
}
BASELINE = "kubechores.dev/config-baseline"
ROLL_ID = "kubechores.dev/config"
PULLS = "kubechores.dev/pull-secrets"  # the label and the annotation of a ServiceAccount that has names of copies
KEY = Key("Secret", "kube-chores", "roll-workloads-key")


def invariants() -> list[Invariant]:
    """Return the invariant."""
    return [Invariant("our accounts change only our objects", check)]


def check(observed: Observed) -> Iterator[str]:
    """Yield a sentence for each write of another object, or of other fields."""
    for write in observed.writes:
        if problem := _problem(write):
            yield f"{write.verb} of {shown(write.key)} by {write.pod or write.account}: {problem}"


def _problem(write: Write) -> str:
    kind = write.key.kind
    if kind == "Event":
        return "" if write.verb == "create" else "Events are only created"
    if write.subresource == "status":
        return _of_status(write)
    if write.subresource:
        return f"subresource {write.subresource}"
    if write.account == "roll-workloads" and kind in WORKLOADS:
        return _of_roll(write)
    if write.account == "roll-workloads" and write.key == KEY:
        return ""
    if kind not in MANAGED.get(write.account, ()):
        return f"{write.account} does not manage any {kind}"
    if write.key.namespace not in NAMESPACES.get(write.account, (write.key.namespace,)):
        return "it is in a namespace of others"
    job = JOB_LABEL.get(write.account, write.account)
    if write.before is not None and not is_managed(write.before, job):
        return _of_another_object(write)
    if write.after is not None and not is_managed(write.after, job):
        return "the job wrote it without the labels of what it manages"
    return ""


def _of_another_object(write: Write) -> str:
    if write.account == "sync-copies" and write.before and write.after and not model.is_managed(write.before):
        if is_managed(write.after, write.account):
            return ""  # an invariant of copies looks for a rule that adopts it
        if write.key.kind == "ServiceAccount":
            is_same = _without_pulls(write.before) == _without_pulls(write.after)
            return "" if is_same else "more than imagePullSecrets and their record changed"
    return "the object is not managed by the job"


def _without_pulls(account: Object) -> Object:
    """Return what spec.attachTo of a rule does not change of a ServiceAccount."""
    made = copy.deepcopy(essence(account) or {})
    made.pop("imagePullSecrets", None)
    for name in ("labels", "annotations"):
        made["metadata"][name] = {key: each for key, each in (made["metadata"][name] or {}).items() if key != PULLS}
    return made


def _of_status(write: Write) -> str:
    if write.key.kind != STATUSES.get(write.account):
        return f"{write.account} writes no status of a {write.key.kind}"
    if write.before is None or write.after is None:
        return ""
    before, after = write.before["metadata"], write.after["metadata"]
    kept = ("labels", "annotations", "finalizers", "ownerReferences")
    changed = any(before.get(name) != after.get(name) for name in kept)
    if changed or any(write.before.get(field) != write.after.get(field) for field in ("spec", "data")):
        return "more than the status changed"
    return ""


def _of_roll(write: Write) -> str:
    if write.verb != "patch":
        return "roll-workloads neither creates nor deletes workloads"
    if write.before and write.after and _without_roll(write.before) != _without_roll(write.after):
        return "more than the annotations of a roll changed"
    return ""


def _without_roll(workload: Object) -> Object:
    """Return what a roll does not change of a workload."""
    kept = ("name", "uid", "labels", "finalizers", "ownerReferences")
    metadata = {key: value for key, value in workload["metadata"].items() if key in kept}
    spec = copy.deepcopy(workload["spec"])
    template = spec["template"].setdefault("metadata", {})
    template["annotations"] = {
        key: value for key, value in (template.get("annotations") or {}).items() if key != ROLL_ID
    }
    template.pop("creationTimestamp", None)
    ignored = (BASELINE, "deprecated.daemonset.template.generation")
    annotations = {key: value for key, value in annotations_of(workload).items() if key not in ignored}
    return {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
