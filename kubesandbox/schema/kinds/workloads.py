"""Workloads: CronJob, Job, Deployment, StatefulSet and DaemonSet."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, forbidden_field, invalid_value, required
from .kind import Kind

Obj = dict[str, Any]


def _decode_cron_job(obj: Obj) -> Obj:
    defaults = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    return {**obj, "spec": {**defaults, **(obj.get("spec") or {})}, "status": obj.get("status") or {}}


def _cron_job_causes(obj: Obj) -> list[Cause]:
    spec = obj["spec"]
    causes = []
    if not spec.get("schedule"):
        causes.append(required("spec.schedule"))
    containers = _containers(spec.get("jobTemplate") or {})
    if not containers:
        causes.append(required("spec.jobTemplate.spec.template.spec.containers"))
    return causes


def job_causes(obj: Obj) -> list[Cause]:
    """The field error of a job or workload without containers."""
    return [] if _containers(obj) else [required("spec.template.spec.containers")]


def _containers(job: Obj) -> list[Obj]:
    template = (job.get("spec") or {}).get("template") or {}
    containers: list[Obj] = (template.get("spec") or {}).get("containers") or []
    return containers


def _decode_stateful_set(obj: Obj) -> Obj:
    defaults = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    return _decode_workload(obj, defaults)


def _decode_deployment(obj: Obj) -> Obj:
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    strategy = (obj.get("spec") or {}).get("strategy") or {}
    kind = strategy.get("type") or "RollingUpdate"
    defaults = {"type": kind, **({"rollingUpdate": rolling} if kind == "RollingUpdate" else {})}
    spec = {
        "progressDeadlineSeconds": 600,
        "replicas": 1,
        "revisionHistoryLimit": 10,
        **(obj.get("spec") or {}),
        "strategy": {**defaults, **strategy},
    }
    return {**obj, "spec": spec}


def _decode_daemon_set(obj: Obj) -> Obj:
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return _decode_workload(obj, {"revisionHistoryLimit": 10, "updateStrategy": update})


def _decode_workload(obj: Obj, defaults: Obj) -> Obj:
    spec = {**defaults, **(obj.get("spec") or {})}
    template = spec.get("template") or {}
    pod = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        **(template.get("spec") or {}),
    }
    return {**obj, "spec": {**spec, "template": {**template, "spec": pod}}, "status": obj.get("status") or {}}


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


KINDS = {
    "CronJob": Kind(decode=_decode_cron_job, causes=_cron_job_causes, first_status={}),
    "Job": Kind(causes=job_causes, first_status={}),
    "DaemonSet": Kind(
        decode=_decode_daemon_set,
        causes=job_causes,
        change_causes=_selector_change_causes,
        first_status={
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        },
    ),
    "Deployment": Kind(
        decode=_decode_deployment,
        causes=job_causes,
        change_causes=_selector_change_causes,
        first_status={},
        counts_annotations=True,
    ),
    "StatefulSet": Kind(
        decode=_decode_stateful_set,
        causes=job_causes,
        change_causes=_stateful_set_change_causes,
        first_status={"replicas": 0, "availableReplicas": 0},
    ),
}
