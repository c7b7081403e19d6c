"""Compare the state of a soak's cluster with that of a fresh cluster with the same input.

Copies have the same content and the same stamp. Their fingerprints differ, since their key is the UID of the source.
The fresh cluster has no node, so mirrors are not compared, nor rates, whose providers it cannot reach: the invariants
of pulls and of rates check them after everything settled. A baseline of roll-workloads depends on the UIDs of Secrets.
So it is compared which workloads have one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from soak.history import Key, Object
from soak.invariants.copies.mistakes import retains
from soak.invariants.copies.stamps import STAMPED_RULE, stamp_of
from soak.invariants.ours import BASELINE, WORKLOADS
from soak.invariants.reads import annotations_of, is_managed, is_terminating, shown
from tests.apis import Api, ApiError, real_api
from tests.control_plane import ROOT, control_plane
from tests.model import FIELDS
from tests.node.kubectl import Kubectl

JOBS = ("sync-copies", "farm-pods", "roll-workloads")
RUNS = 2
RUN_SECONDS = 120
CONFLICT = 409
ARGUMENTS = {"roll-workloads": ["--key-secret", "kube-chores/roll-workloads-key"]}  # by default in a pod
RULES = ("kubechores.dev/v1", "CopyratorRule")
# In an order in which they can be created.
INPUTS = (
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("v1", "Pod"),
    ("v1", "LimitRange"),
    ("v1", "ResourceQuota"),
)
FARM_POD = ("kubechores.dev/v1", "FarmPod")
SYSTEM = ("kube-", "default", "mirrors", "rates-")
CONTAINERS = ("containers", "initContainers")
_KEPT = ("name", "namespace", "labels", "annotations")
_OWN = ("kubernetes.io/service-account-token", "helm.sh/release.v1")


def differences(api: Api, manifests: Sequence[Path], folder: Path) -> list[str]:
    """Return a sentence for each difference, without contents; `manifests` install all jobs."""
    with control_plane() as plane:
        kubectl = Kubectl(plane.kubeconfig)
        for each in manifests:
            kubectl(f"apply -k {each}")
        fresh = real_api(plane, folder)
        problems = list(_copy_inputs(api, fresh))
        for _ in range(RUNS):
            problems += [problem for job in JOBS if (problem := run(fresh, job))]
        return [*problems, *compare(api, fresh)]


# inputs


def _copy_inputs(api: Api, fresh: Api) -> Iterator[str]:
    names = []
    for each in api.items("v1", "Namespace"):
        if not each["metadata"]["name"].startswith(SYSTEM) and not is_terminating(each):
            names.append(each["metadata"]["name"])
            _create(fresh, _without_identity(each))
    for version, kind in INPUTS:
        for each in api.items(version, kind):
            if each["metadata"]["namespace"] in names and _is_input(each):
                yield from _put(fresh, each)
    for each in api.items(*RULES, "kube-chores"):
        yield from _put(fresh, each)


def _is_input(obj: Object) -> bool:
    if any(is_managed(obj, job) for job in (*JOBS, "fetch-rates")) or is_terminating(obj):
        return False
    if obj["kind"] == "Pod" and obj["metadata"].get("ownerReferences"):
        return False  # its controller creates it
    return obj.get("type") not in _OWN and obj["metadata"]["name"] != "kube-root-ca.crt"


def _put(fresh: Api, obj: Object) -> Iterator[str]:
    try:
        _create(fresh, _without_identity(obj))
        if obj["kind"] == "Pod" and obj["status"].get("phase") in ("Succeeded", "Failed"):
            fresh.patch_status(_without_identity(obj), {"phase": obj["status"]["phase"]})
    except (ApiError, AssertionError) as error:
        yield f"{obj['kind']} {obj['metadata']['name']} cannot be created in the fresh cluster: {error}"


def _create(fresh: Api, obj: Object) -> None:
    try:
        fresh.put(obj)
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        fresh.put(obj)  # a controller created it meanwhile, as the default ServiceAccount


def _without_identity(obj: Object) -> Object:
    """Return an object as a user would apply it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key in _KEPT}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: value for key, value in annotations.items() if key != BASELINE}
    made = {**obj, "metadata": metadata}
    if obj["kind"] == "Pod":
        spec = dict(obj["spec"])
        spec.pop("nodeName", None)  # a pod of a node that does not exist is deleted
        containers = {name: [*map(_without_mounts, spec[name])] for name in CONTAINERS if name in spec}
        made["spec"] = {**spec, "volumes": [], **containers}
    made.pop("status", None)
    return made


def _without_mounts(container: Object) -> Object:
    return {key: value for key, value in container.items() if key != "volumeMounts"}


# results


def run(fresh: Api, job: str) -> str:
    """Run a job with its account. Return why it failed, or an empty text."""
    kubeconfig = fresh.service_account_kubeconfig("kube-chores", job)
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "jobs", job, *ARGUMENTS.get(job, ())]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    return f"{job} in a fresh cluster ends with {done.returncode}: {done.stderr[-500:]}" if done.returncode else ""


def compare(api: Api, fresh: Api) -> list[str]:
    """Return a sentence for each difference between what the jobs wrote in two clusters."""
    rules = {each["metadata"]["name"]: each for each in api.items(*RULES, "kube-chores")}
    return list(_differing(_results(api), _results(fresh), rules))


def _results(api: Api) -> dict[Key, Object]:
    found: dict[Key, Object] = {}
    for version, kind in (*INPUTS, FARM_POD):
        for each in api.items(version, kind):
            key = Key(kind, each["metadata"]["namespace"], each["metadata"]["name"])
            if kind in FIELDS and is_managed(each, "sync-copies"):
                found[key] = {**{name: each.get(name) for name in FIELDS[kind]}, **stamp_of(each)}
            elif kind in WORKLOADS and BASELINE in annotations_of(each):
                found[key] = {}
            elif kind == "FarmPod" and is_managed(each, "farm-pods"):
                owners = [each["name"] for each in each["metadata"].get("ownerReferences", [])]
                found[key] = {"spec": each["spec"], "owners": owners}
    return found


def _may_stay(key: Key, found: Object, rules: Mapping[str, Object]) -> bool:
    """Whether no job removes what a fresh cluster lacks: a retained copy, the baseline of a workload that opted out."""
    if key.kind not in FIELDS or STAMPED_RULE not in found:
        return key.kind in WORKLOADS
    rule = rules.get(found[STAMPED_RULE].partition("/")[2])
    return retains(rule, {"metadata": {"annotations": found}})


def _differing(soaked: dict[Key, Object], fresh: dict[Key, Object], rules: Mapping[str, Object]) -> Iterator[str]:
    for key in sorted({*soaked, *fresh}):
        if key not in fresh and not _may_stay(key, soaked[key], rules):
            yield f"{shown(key)} would not exist in a fresh cluster"
        elif key not in soaked:
            yield f"{shown(key)} is missing, and exists in a fresh cluster"
        elif key in fresh and soaked[key] != fresh[key]:
            fields = {*soaked[key], *fresh[key]}
            wrong = sorted(each for each in fields if soaked[key].get(each) != fresh[key].get(each))
            yield f"{shown(key)} is not as in a fresh cluster: {', '.join(wrong)}"
