"""When workloads may be rolled: windows such as "0 22 * * 1-5 4h Europe/Berlin", and periods such as 168h. Pure.

Fields of a window: a cron expression as in CronJobs, hours and minutes such as 4h30m, and a time zone, by default UTC.
Tenants write them: no text may make a run slow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple

from jobs.kit.values.text import format_count

WINDOW = "kubechores.dev/roll-window"
EVERY = "kubechores.dev/roll-every"
_LONGEST = 1000  # characters of an annotation: tenants write them
_MOST_WINDOWS = 10
_FIELDS = ("MINUTE", "HOUR", "DAY", "MONTH", "WEEKDAY")
_OF_CRONSIM = ("minute", "hour", "day-of-month", "month", "day-of-week")  # the same, in its messages
EXAMPLE = "0 22 * * 1-5 4h Europe/Berlin"
_FORM = f'"{" ".join(_FIELDS)} DURATION ZONE", such as "{EXAMPLE}"'
_DURATION = re.compile(r"(?=.)(?:([0-9]{1,4})h)?(?:([0-9]{1,5})m)?")
_ZONE = re.compile(r"[A-Z][A-Za-z0-9+_-]*(?:/[A-Za-z0-9+_-]+){0,2}")  # others, such as localtime, depend on the machine
# As in CronJobs, which have no L, W and #: https://en.wikipedia.org/wiki/Cron
_ITEM = r"(?:[*?]|[0-9]{1,2}(?:-[0-9]{1,2})?|[A-Za-z]{3}(?:-[A-Za-z]{3})?)(?:/[0-9]{1,2})?"
_CRON_FIELD = re.compile(rf"{_ITEM}(?:,{_ITEM})*")
_EVERY_DAY = re.compile(r"\*(?:/0?1)?")
_DAYS = 366  # in which a run searches an opening
_LONGEST_WINDOW = timedelta(days=7)
_SHORTEST_PERIOD, _LONGEST_PERIOD = timedelta(hours=1), timedelta(days=365)


class Window(NamedTuple):
    """A window that opens at each time of a cron expression in a zone."""

    cron: str
    length: timedelta
    zone: tzinfo

    def is_open(self, now: datetime) -> bool:
        """Whether the window is open: it stays so for its elapsed length, also over midnight and if clocks change."""
        now = now.astimezone(timezone.utc)
        opened = self.next_opening(now - self.length)
        return opened is not None and opened <= now

    def next_opening(self, now: datetime) -> datetime | None:
        """Return the first time after `now` at which the window opens, in UTC; None if there is none within a year.

        If clocks change, a time that does not exist counts as the next that does, and one that exists twice counts
        once; but not if the minute or hour begins with `*`: such a window follows the clock.
        """
        with suppress(OverflowError):  # tenants write times; there is none after the year 9999
            return self._next_opening(now)
        return None

    def _next_opening(self, now: datetime) -> datetime | None:
        from cronsim import CronSim  # most runs need no times

        local = now.astimezone(self.zone)
        rule = CronSim(self.cron, local)
        days = (local.date() + timedelta(days=number) for number in range(_DAYS))
        # CronSim searches days for 50 years, and is slower.
        if (day := next((each for each in days if each.month in rule.months and rule.match_day(each)), None)) is None:
            return None
        midnight = datetime.combine(day, time.min, self.zone) - timedelta(seconds=1)
        openings = CronSim(self.cron, max(local, midnight))
        # In UTC: a difference of local times ignores changes of clocks.
        found = next((opening for each in openings if (opening := each.astimezone(timezone.utc)) > now), None)
        return found if found and found <= now + timedelta(days=_DAYS) else None


class Annotations(NamedTuple):
    """The annotations WINDOW and EVERY of an object; None: not set."""

    window: str | None = None
    every: str | None = None

    def problems(self) -> list[str]:
        """Return the problem of each annotation that is not valid."""
        return [*_problem(WINDOW, self.window, parse_windows), *_problem(EVERY, self.every, parse_period)]


def annotations_of(found: Mapping[str, str]) -> Annotations:
    """Return the annotations; of one that is too long, only what shows that it is not valid."""
    return Annotations(
        *(None if (text := found.get(name)) is None else text[: _LONGEST + 1] for name in (WINDOW, EVERY))
    )


def _problem(name: str, text: str | None, parse: Callable[[str], object]) -> list[str]:
    try:
        if text is not None:
            parse(text)
    except ValueError as error:
        return [f"annotation {name} is not valid: {error}"]
    return []


@lru_cache(maxsize=10_000)  # a namespace has the same for all its workloads
def is_open(windows: tuple[Window, ...], now: datetime) -> bool:
    """Whether one of the windows is open."""
    return any(each.is_open(now) for each in windows)


@lru_cache(maxsize=10_000)
def next_opening(windows: tuple[Window, ...], now: datetime) -> datetime | None:
    """Return when the first of the windows opens, in its zone; None if none does within a year."""
    found = [(opening, each.zone) for each in windows if (opening := each.next_opening(now))]
    opening, zone = min(found, key=lambda each: each[0], default=(None, None))
    return opening.astimezone(zone) if opening else None


def parse_windows(text: str) -> tuple[Window, ...]:
    """Return the windows in a text, which are separated by `;`.

    Raises:
        ValueError: the text is not valid; the message has each problem.
    """
    found, problems = _windows(text)
    if problems:
        raise ValueError("; ".join(problems))
    return found


@lru_cache(maxsize=10_000)  # also of texts that are not valid
def _windows(text: str) -> tuple[tuple[Window, ...], list[str]]:
    """Return the windows in a text, and its problems."""
    if len(text) > _LONGEST:
        return (), [f"it has more than {_LONGEST} characters"]
    parts = [each.strip() for each in text.split(";")]
    if len(parts) > _MOST_WINDOWS:
        return (), [f"it has {len(parts)} windows, the limit is {_MOST_WINDOWS}"]
    found: list[Window] = []
    problems: list[str] = []
    for part in parts:
        try:
            found.append(_window(part))
        except ValueError as error:
            problems.append(f'"{part}": {error}' if part else f"a window is empty: write {_FORM}")
    return tuple(found), problems


def _window(text: str) -> Window:
    fields = text.split()
    if len(fields) - len(_FIELDS) not in (1, 2):
        raise ValueError(f"it has {format_count('fields', len(fields))}: write {_FORM}")
    length, *zones = fields[len(_FIELDS) :]
    return Window(_cron(fields[: len(_FIELDS)]), _length(length), _zone(zones[0]) if zones else timezone.utc)


def _cron(fields: list[str]) -> str:
    """Return the fields as an expression with the meaning that it has in CronJobs."""
    from cronsim import CronSim, CronSimError

    for name, field in zip(_FIELDS, fields, strict=True):
        if not _CRON_FIELD.fullmatch(field):
            raise ValueError(f"{name} {field} is not valid: only numbers, names, * ? , - and / are")
    minute, hour, day, month, weekday = (each.replace("?", "*").upper() for each in fields)
    # In CronJobs, the last weekday is 6. For CronSim, it is 7, which is also Sunday.
    weekday = re.sub(r"(?<![\w-])(\w+)/", r"\1-6/", weekday.replace("SAT", "6"))
    cron = " ".join([minute, hour, _days(day, "1-31"), month, _days(weekday, "0-6")])
    cron = re.sub(r"\b(\w+)-\1/\d+", r"\1", cron)  # for CronSim, N-N/STEP is N/STEP
    try:
        CronSim(cron, datetime(2026, 1, 1, tzinfo=timezone.utc))
    except CronSimError as error:  # such as "Bad minute"
        number = _OF_CRONSIM.index(str(error).removeprefix("Bad "))
        where = f" in MONTH {fields[3]}" if _FIELDS[number] == "DAY" else ""
        raise ValueError(f"{_FIELDS[number]} {fields[number]} is not valid{where}") from None
    return cron


def _days(field: str, every: str) -> str:
    """Return a field of days: `*` if it has an item `*` without a step, otherwise without a leading `*`.

    In CronJobs, a day or weekday suffices, unless one of them has such an item. For CronSim, unless one begins with *.
    """
    return "*" if any(map(_EVERY_DAY.fullmatch, field.split(","))) else re.sub(r"^\*", every, field)


def _duration(text: str) -> timedelta:
    """Return a duration; zero if the text is not valid."""
    found = _DURATION.fullmatch(text)
    return timedelta(hours=int(found[1] or 0), minutes=int(found[2] or 0)) if found else timedelta()


def _length(text: str) -> timedelta:
    length = _duration(text)
    if not timedelta() < length <= _LONGEST_WINDOW:
        raise ValueError(f"{text} is not a duration between 1m and 168h, such as 90m or 4h")
    return length


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    try:
        if _ZONE.fullmatch(name) and name != "Factory":
            return ZoneInfo(name)
        raise KeyError(name)
    except (KeyError, ValueError, OSError):  # not found, a name with .., or a folder
        raise ValueError(f"{name} is not a time zone: write one such as Europe/Berlin") from None


def parse_period(text: str) -> timedelta:
    """Return a period.

    Raises:
        ValueError: the text is not a duration within the limits.
    """
    period = _duration(text)
    if not _SHORTEST_PERIOD <= period <= _LONGEST_PERIOD:
        raise ValueError(f"{text} is not a duration between 1h and 8760h, such as 168h")
    return period


def due(period: timedelta, name: str, since: datetime, now: datetime) -> datetime | None:
    """Return the first moment of a workload after `since`; None if it is after `now`.

    The moments of a workload are a period apart, and depend on its name: workloads with the same period do not come
    together, also if all of them were rolled at the same time.
    """
    seconds = int(period.total_seconds())
    phase = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % seconds
    periods = (int(since.timestamp()) - phase) // seconds + 1
    moment = phase + periods * seconds
    return datetime.fromtimestamp(moment, timezone.utc) if moment <= now.timestamp() else None
