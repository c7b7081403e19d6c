"""Job and CronJob."""

from __future__ import annotations

from typing import Any

from ..causes import Cause, required
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


KINDS = {
    "CronJob": Kind(decode=_decode_cron_job, causes=_cron_job_causes, first_status={}),
    "Job": Kind(causes=job_causes, first_status={}),
}
