"""Times of the status document: ages, durations in their largest unit, and when a CronJob was due. Pure.

Times come from statuses, so one that is not a time is shown as it is, and has no age.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo

from jobs.core.status.installed import parse_time

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
        times = CronSim(
            _MACROS.get(schedule, schedule.replace("?", "*")), now.astimezone(_zone(time_zone)), reverse=True
        )
    except CronSimError:
        return
    for each in times:
        yield each.astimezone(timezone.utc)


def _zone(name: str) -> tzinfo:
    """Return a time zone; UTC if the name is empty or the machine does not have it."""
    try:
        return ZoneInfo(name) if name else timezone.utc
    except (OSError, ValueError, LookupError):
        return timezone.utc
