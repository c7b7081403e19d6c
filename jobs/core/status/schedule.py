"""When a CronJob was due. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo

_MACROS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0"}


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
