"""Workloads: CronJob, Job, Deployment, StatefulSet and DaemonSet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..causes import Cause, forbidden_field, invalid_value, required
from .kind import Kind, defaults

Obj = dict[str, Any]


def _cron_job_causes(obj: Obj) -> list[Cause]:
    spec = obj["spec"]
    causes = [] if spec.get("schedule") else [required("spec.schedule")]
    if not _containers(spec.get("jobTemplate") or {}):
        causes.append(required("spec.jobTemplate.spec.template.spec.containers"))
    return causes


def job_causes(obj: Obj) -> list[Cause]:
    """The field error of a job or workload without containers."""
    return [] if _containers(obj) else [required("spec.template.spec.containers")]


def _containers(job: Obj) -> list[Obj]:
    template = (job.get("spec") or {}).get("template") or {}
    containers: list[Obj] = (template.get("spec") or {}).get("containers") or []
    return containers


def _decode_deployment(obj: Obj) -> Obj:
    strategy = (obj.get("spec") or {}).get("strategy") or {}
    kind = strategy.get("type") or "RollingUpdate"
    rolling = {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}} if kind == "RollingUpdate" else {}
    numbers = {"progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10}
    return {**obj, "spec": {**numbers, **(obj.get("spec") or {}), "strategy": {"type": kind, **rolling, **strategy}}}


def _with_pod_defaults(**spec: Any) -> Callable[[Obj], Obj]:
    pod = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}

    def decode(obj: Obj) -> Obj:
        obj = defaults(**spec)(obj)
        template = obj["spec"].get("template") or {}
        template = {**template, "spec": {**pod, **(template.get("spec") or {})}}
        return {**obj, "spec": {**obj["spec"], "template": template}}

    return decode


_MUTABLE = (
    "replicas ordinals template updateStrategy revisionHistoryLimit persistentVolumeClaimRetentionPolicy "
    "minReadySeconds"
)


def _stateful_set_change_causes(obj: Obj, before: Obj) -> list[Cause]:
    new, old = obj["spec"], before["spec"]
    mutable = _MUTABLE.split()
    if {**new, **dict.fromkeys(mutable)} == {**old, **dict.fromkeys(mutable)}:
        return []
    names = ", ".join(f"'{name}'" for name in mutable[:-1])
    why = f"updates to statefulset spec for fields other than {names} and '{mutable[-1]}' are forbidden"
    return [forbidden_field("spec", why)]


def _selector_change_causes(obj: Obj, before: Obj) -> list[Cause]:
    new, old = obj["spec"], before["spec"]
    if new.get("selector") == old.get("selector"):
        return []
    return [invalid_value("spec.selector", new.get("selector"), "field is immutable")]


_OF_NODES = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
KINDS = {
    "CronJob": Kind(
        decode=defaults(
            concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1
        ),
        causes=_cron_job_causes,
        first_status={},
    ),
    "Job": Kind(causes=job_causes, first_status={}),
    "DaemonSet": Kind(
        decode=_with_pod_defaults(
            revisionHistoryLimit=10,
            updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        ),
        causes=job_causes,
        change_causes=_selector_change_causes,
        first_status=dict.fromkeys(_OF_NODES, 0),
    ),
    "Deployment": Kind(
        decode=_decode_deployment,
        causes=job_causes,
        change_causes=_selector_change_causes,
        first_status={},
        counts_annotations=True,
    ),
    "StatefulSet": Kind(
        decode=_with_pod_defaults(
            replicas=1,
            podManagementPolicy="OrderedReady",
            revisionHistoryLimit=10,
            updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"},
        ),
        causes=job_causes,
        change_causes=_stateful_set_change_causes,
        first_status={"replicas": 0, "availableReplicas": 0},
    ),
}
