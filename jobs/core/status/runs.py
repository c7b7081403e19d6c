"""The state of each CronJob, from its Jobs and their pods, and when it was due. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from jobs.core.status.installed import CronJob, JobPod, RunJob, parse_time

_MACROS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Return the seconds from one time to another; 0 if clocks differ so that it is negative."""
    first, last = parse_time(start or ""), parse_time(end or "")
    return None if first is None or last is None else max(0.0, (last - first).total_seconds())


def span(seconds: float) -> str:
    """Return a duration in its largest unit, as 59 s, 3 min, 5 h, 12 d."""
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{int(seconds // size)} {unit}"


def ago(start: str | None, now: str) -> str:
    """Return the age of a time; empty if it is not a time."""
    seconds = seconds_between(start, now)
    return "" if seconds is None else f"{span(seconds)} ago"


def clock(text: str | None) -> str:
    """Return a time for readers: 2026-05-04 06:00:00 UTC."""
    read = parse_time(text or "")
    return read.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if read else text or ""


def due_times(schedule: str, time_zone: str, now: datetime) -> Iterator[datetime]:
    """Yield the times before `now` at which a CronJob was due, the latest first; none if its schedule is not known.

    https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax
    """
    from cronsim import CronSim, CronSimError

    try:
        zone: tzinfo = ZoneInfo(time_zone) if time_zone else timezone.utc
    except (OSError, ValueError, LookupError):  # the machine does not have it
        zone = timezone.utc
    try:
        times = CronSim(_MACROS.get(schedule, schedule.replace("?", "*")), now.astimezone(zone), reverse=True)
    except CronSimError:
        return
    for each in times:
        yield each.astimezone(timezone.utc)


_MOST_RUNS = 20  # of one CronJob: its history limits keep six, and Jobs by hand count
_LONGEST_MESSAGE = 2000
_MOST_LINES = 4  # of a log
_LONGEST_CAUSE = 900  # of two in one message
_MISSED = 3  # so many runs in a row without success are late
_UNSCHEDULED = timedelta(minutes=1)  # a new node may start
_PENDING = timedelta(minutes=2)  # a pod usually starts within seconds
_RETRYING = timedelta(minutes=2)  # after the first pod of a Job failed
_UNSTARTED = timedelta(minutes=3)  # at least, without a run: clocks differ
_SLOW = timedelta(minutes=1)  # at least, for a Job without a deadline
_TIMES = 10  # so many times the last duration is slow
_LATE = timedelta(minutes=10)  # at least: a run may take some minutes, and clocks differ

DEADLINE = "DeadlineExceeded"  # of a Job: activeDeadlineSeconds

WITHOUT_CRONJOB: Mapping[str, Any] = {
    **dict.fromkeys(("schedule", "timeZone", "lastSuccess", "lastSchedule", "warning")),
    "runs": [],
}


def job_fields(
    cronjob: CronJob, jobs: Sequence[RunJob], pods: Sequence[JobPod], warnings: Mapping[str, str], now: datetime
) -> dict[str, Any]:
    """Return the fields of a job in the document that its CronJob, the Jobs and their pods decide."""
    own = sorted((each for each in jobs if each.cronjob == cronjob.name), key=lambda each: each.start, reverse=True)
    of_job: dict[str, list[JobPod]] = {}
    for pod in sorted(pods, key=lambda each: each.created):
        of_job.setdefault(pod.job, []).append(pod)
    due = list(islice(due_times(cronjob.schedule, cronjob.time_zone, now), _MISSED))
    usual = _usual(due, own)
    runs = [_run(each, of_job.get(each.name, []), warnings, usual, now) for each in own[:_MOST_RUNS]]
    last_success = max([cronjob.last_success, *(each.end for each in own if each.outcome == "succeeded")])
    return {
        "state": _state(cronjob, runs, due, last_success, now),
        "schedule": cronjob.schedule,
        "timeZone": cronjob.time_zone or None,
        "lastSuccess": last_success or None,
        "lastSchedule": cronjob.last_schedule or None,
        "warning": cronjob.warning[:_LONGEST_CAUSE] or None,
        "runs": runs,
    }


def _usual(due: Sequence[datetime], jobs: Sequence[RunJob]) -> timedelta:
    """Return how long a run may take: 10 times the last one that succeeded, or 3 periods if that is shorter."""
    limits = [_MISSED * (due[0] - due[1])] if len(due) > 1 else []
    last = next((each for each in jobs if each.outcome == "succeeded"), None)
    if last and (start := parse_time(last.start)) and (end := parse_time(last.end)):
        limits.append(_TIMES * (end - start))
    return min(limits, default=timedelta.max)


def _run(
    job: RunJob, pods: Sequence[JobPod], warnings: Mapping[str, str], usual: timedelta, now: datetime
) -> dict[str, Any]:
    ended = next((each for each in reversed(pods) if each.has_ended), None)
    blocked = _blocked(job, pods, warnings, now) if job.outcome == "running" else ""
    exit_code, reason, message = None, "", ""
    if blocked:
        message = "\n".join(filter(None, (blocked, _earlier(ended))))
    elif job.outcome == "succeeded":
        message = next((each.message for each in reversed(pods) if each.exit_code == 0), "")
    elif ended:
        exit_code, reason, message = ended.exit_code, ended.reason, ended.message
    if job.outcome == "failed" and (not message or job.reason == DEADLINE):
        reason, message = reason or job.reason, message or _unstarted(job, pods, warnings) or job.message or job.reason
    is_between = exit_code is not None and pods[-1].has_ended
    retries = job.outcome == "running" and is_between and _is_older(job.start, _RETRYING, now)
    # Half of the deadline at least: the last run may have had nothing to do.
    longest = max(usual, timedelta(seconds=job.deadline / 2) if job.deadline else _SLOW)
    runs = job.outcome == "running" and not blocked and not (pods and pods[-1].is_pending)
    return {
        "name": job.name,
        "start": job.start or None,
        "end": job.end or None,
        "outcome": job.outcome,
        "exitCode": exit_code,
        "reason": reason or None,
        "message": message.strip()[-_LONGEST_MESSAGE:],
        "stuck": bool(blocked) or retries,
        "slow": runs and _is_older(job.start, longest, now),
        "pod": pods[-1].name if pods else None,
        "node": next((each.node for each in reversed(pods) if each.node), None),
    }


def _blocked(job: RunJob, pods: Sequence[JobPod], warnings: Mapping[str, str], now: datetime) -> str:
    """Return why a run that is not finished has no pod that runs; empty if it has one, or may have one soon."""
    pod = pods[-1] if pods else None
    if pod is None or pod.has_ended:
        return f"no pod can be created: {warnings[job.name]}" if job.name in warnings else ""
    if pod.is_unscheduled and not _is_older(pod.created, _UNSCHEDULED, now):
        return ""
    why = pod.waiting
    if not why and pod.is_pending and (pod.is_unscheduled or _is_older(pod.created, _PENDING, now)):
        unseen = "it has no node after a minute; check that kube-scheduler runs"
        usual = unseen if pod.is_unscheduled else "it is pending for more than two minutes"
        why = warnings.get(pod.name, "") or usual
    return f"pod {pod.name} does not start: {why[:_LONGEST_CAUSE]}" if why else ""


def _unstarted(job: RunJob, pods: Sequence[JobPod], warnings: Mapping[str, str]) -> str:
    """Return the last warning about a pod of a run that has none any more; empty if there is none."""
    found = [each for each in warnings if each.rpartition("-")[0] == job.name]
    return f"the last warning about pod {found[-1]}: {warnings[found[-1]]}" if found and not pods else ""


def _earlier(ended: JobPod | None) -> str:
    """Return a sentence about the pod that failed before one that does not start."""
    if ended is None:
        return ""
    code = "" if ended.exit_code is None else f" (exit code {ended.exit_code})"
    return f"the pod before it failed{code}: {last_lines(ended.message)[-_LONGEST_CAUSE:]}"


def _is_older(start: str, age: timedelta, now: datetime) -> bool:
    since = parse_time(start)
    return since is not None and now - since > age


def _state(
    cronjob: CronJob, runs: Sequence[Mapping[str, Any]], due: Sequence[datetime], last_success: str, now: datetime
) -> str:
    if cronjob.suspended:
        return "suspended"
    active = [each for each in runs if each["outcome"] == "running"]
    has_failed = any(each["outcome"] == "failed" and (each["end"] or "") > last_success for each in runs)
    if has_failed or any(each["stuck"] for each in active):
        return "failing"
    # Due three times since the last success, or since the last run if none is active.
    moments = [(last_success, _LATE), *([] if active else [(cronjob.last_schedule, _UNSTARTED)])]
    sinces = [(parse_time(max(text, cronjob.created)), least) for text, least in moments]
    is_late = len(due) == _MISSED and any(since and since < min(due[-1], now - least) for since, least in sinces)
    if is_late or (cronjob.warning and not active):
        return "late"
    if active and last_success:
        return "running"
    return "ok" if last_success else "never"


def last_lines(log: str) -> str:
    """Return the end of a log: the cause of a failure is there, after the report."""
    return "\n".join([line for line in log.splitlines() if line.strip()][-_MOST_LINES:])
