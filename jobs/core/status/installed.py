"""CronJobs, their Jobs, the pods of these, and Events, reduced to what `chores status` shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

import msgspec
from msgspec import Struct

from jobs.kit.values import registry
from jobs.kit.values.reads import Metadata, OwnerReference, decode_list
from jobs.kit.values.resources import CRON_JOBS, JOBS

_CONTAINER = "chores"
_OUTCOMES = {"Complete": "succeeded", "Failed": "failed"}  # by condition of a Job
# Reasons of Events that a CronJob creates no Jobs, and what their message quotes of its spec.
_NO_RUNS = {
    "FailedCreate": "",
    "InvalidSchedule": "{0.schedule}",
    "UnparseableSchedule": "{0.schedule}",
    "UnknownTimeZone": '"{0.time_zone}"',
}


class _Container(Struct):
    name: str = ""
    args: list[str] | None = None


class _Taint(Struct):
    key: str = ""
    value: str = ""
    effect: str = ""


class _Template(Struct):
    spec: _Spec | None = None


class _Spec(Struct, rename="camel"):
    """The used fields of the specs of all kinds."""

    schedule: str = ""
    time_zone: str | None = None
    suspend: bool | None = None
    job_template: _Template | None = None
    active_deadline_seconds: int | None = None
    template: _Template | None = None
    containers: list[_Container] | None = None
    node_name: str = ""
    taints: list[_Taint] | None = None


class _Condition(Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _ContainerState(Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class _States(Struct):
    terminated: _ContainerState | None = None
    waiting: _ContainerState | None = None


class _ContainerStatus(Struct):
    name: str = ""
    state: _States = msgspec.field(default_factory=_States)


class _Status(Struct, rename="camel"):
    """The used fields of the statuses of all kinds."""

    last_schedule_time: str | None = None
    last_successful_time: str | None = None
    start_time: str | None = None
    completion_time: str | None = None
    conditions: list[_Condition] | None = None
    phase: str = ""
    reason: str = ""
    message: str = ""
    container_statuses: list[_ContainerStatus] | None = None


class _Involved(Struct):
    name: str = ""


class Served(Struct, rename="camel"):
    """A CronJob, a Job, a pod, a node or an Event as the API serves it. Only Events have the fields after `status`."""

    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)
    involved_object: _Involved = msgspec.field(default_factory=_Involved)
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None


class CronJob(Struct, frozen=True):
    """A CronJob of kube-chores. Times are RFC 3339 texts; empty: not yet.

    `warning` is why its controller creates no Job, or empty.
    """

    name: str
    namespace: str
    schedule: str
    time_zone: str
    suspended: bool
    created: str
    last_schedule: str
    last_success: str
    args: tuple[str, ...] = ()
    warning: str = ""


class RunJob(Struct, frozen=True):
    """A Job of a CronJob: one run. `outcome` is succeeded, failed or running; `reason` and `message` explain a failure.

    `deadline` is in seconds; 0 if there is none.
    """

    name: str
    cronjob: str
    start: str
    end: str
    outcome: str
    reason: str = ""
    message: str = ""
    deadline: int = 0


class JobPod(Struct, frozen=True):
    """A pod of a Job: how its container ended, or why it does not start (`waiting`).

    `reason` is that of a container that was killed, such as OOMKilled. An unscheduled pod may wait for a new node.
    `is_pending` is true until the container starts, also without a reason.
    """

    name: str
    job: str
    created: str
    exit_code: int | None = None
    message: str = ""
    waiting: str = ""
    reason: str = ""
    is_unscheduled: bool = False
    is_pending: bool = False
    node: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether its container ended, or the pod failed without one."""
        return self.exit_code is not None or bool(self.reason or self.message)


def cron_job(read: Served) -> CronJob:
    """Return the reduced CronJob."""
    at, spec, status = read.metadata, read.spec, read.status
    of_job = (spec.job_template or _Template()).spec or _Spec()
    of_pod = (of_job.template or _Template()).spec or _Spec()
    args = tuple(arg for each in of_pod.containers or [] if each.name == _CONTAINER for arg in each.args or [])
    return CronJob(
        at.name,
        at.namespace,
        spec.schedule,
        spec.time_zone or "",
        bool(spec.suspend),
        at.creation_timestamp or "",
        status.last_schedule_time or "",
        status.last_successful_time or "",
        args,
    )


def is_of_installation(cronjob: CronJob) -> bool:
    """Whether it is a CronJob of the manifests, and not a dry run of one."""
    is_dry_run = any(each.startswith(("--dry-run", "--check")) for each in cronjob.args)
    return cronjob.name in (*registry.JOBS, registry.VERIFY, registry.REPAIR, registry.CLUSTERS) and not is_dry_run


def run_job(read: Served) -> RunJob:
    """Return the reduced Job; `cronjob` is empty if no CronJob owns it."""
    at, status = read.metadata, read.status
    ended = {each.type: each for each in status.conditions or [] if each.status == "True"}
    start, deadline = status.start_time or at.creation_timestamp or "", read.spec.active_deadline_seconds or 0
    outcome, done = next(
        ((outcome, ended[condition]) for condition, outcome in _OUTCOMES.items() if condition in ended),
        ("running", _Condition()),
    )
    end = status.completion_time or done.last_transition_time or ""
    owner = _owner(at, CRON_JOBS.kind)
    return RunJob(at.name, owner, start, end, outcome, done.reason, done.message, deadline)


def job_pod(read: Served) -> JobPod:
    """Return the reduced pod; `job` is empty if no Job owns it."""
    status, name = read.status, read.metadata.name
    job, created = _owner(read.metadata, JOBS.kind), read.metadata.creation_timestamp or ""
    state = next((each.state for each in status.container_statuses or [] if each.name == _CONTAINER), _States())
    if ended := state.terminated:
        reason = status.reason or (ended.reason if ended.reason not in ("Error", "Completed") else "")
        return JobPod(name, job, created, ended.exit_code, ended.message.strip() or status.message, reason=reason)
    if status.phase == "Failed":  # evicted, for example
        return JobPod(name, job, created, None, status.message, reason=status.reason)
    if state.waiting:
        is_usual = state.waiting.reason in ("", "ContainerCreating", "PodInitializing")
        waiting = "" if is_usual else _joined(state.waiting.reason, state.waiting.message)
        return JobPod(name, job, created, waiting=waiting, is_pending=True)
    unscheduled = (each for each in status.conditions or [] if each.type == "PodScheduled" and each.status == "False")
    waiting = next((_joined(each.reason, each.message) for each in unscheduled), "")
    is_pending, node = status.phase == "Pending", read.spec.node_name
    is_unscheduled = is_pending and not node  # without a condition, no scheduler has seen it
    return JobPod(name, job, created, waiting=waiting, is_unscheduled=is_unscheduled, is_pending=is_pending, node=node)


def taints(read: Served) -> list[str]:
    """Return the taints that keep pods from a node, as kubectl prints them."""
    found = (each for each in read.spec.taints or [] if each.effect != "PreferNoSchedule")
    return [f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in found]


def warning(read: Served) -> tuple[str, str, str]:
    """Return the time of an Event, the name of its object, and its message."""
    return read.last_timestamp or read.event_time or "", read.involved_object.name, read.message


def no_run(cronjobs: Mapping[str, CronJob], read: Served) -> tuple[str, str, str] | None:
    """Return the same of an Event that one of these CronJobs cannot create Jobs.

    None if it has another reason, is from before the last run, or about a schedule or time zone that was changed since.
    """
    cronjob, found = cronjobs.get(read.involved_object.name), warning(read)
    if cronjob is None or read.reason not in _NO_RUNS:
        return None
    if quoted := _NO_RUNS[read.reason].format(cronjob):
        return found if quoted in read.message else None
    return found if found[0] > max(cronjob.last_schedule, cronjob.last_success) else None


def parse_time(text: str) -> datetime | None:
    """Return the time of an RFC 3339 text of the API, or None."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _owner(metadata: Metadata, kind: str) -> str:
    owners: Iterable[OwnerReference] = decode_list(metadata.owner_references, OwnerReference)
    return next((each.name for each in owners if each.kind == kind), "")


def _joined(reason: str, message: str) -> str:
    return ": ".join(part for part in (reason, message) if part)
