"""Windows for rolls and periods of rolls."""

from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.core.roll_workloads.schedule import due, is_open, next_opening, parse_period, parse_windows

BERLIN, APIA = "Europe/Berlin", "Pacific/Apia"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "opens", "closes"),
    [
        ("0 22 * * 1-5 4h", "2026-11-25T22:00", "2026-11-26T02:00"),  # over midnight
        ("0 22 * * 5 72h Europe/Berlin", "2026-11-27T21:00", "2026-11-30T21:00"),
        ("30 6 * * * 90m Asia/Kolkata", "2026-11-26T01:00", "2026-11-26T02:30"),
        ("0 2 * * * 4h Europe/Berlin", "2026-03-29T01:00", "2026-03-29T05:00"),  # the hour does not exist
        ("0 1 * * * 3h Europe/Berlin", "2026-03-29T00:00", "2026-03-29T03:00"),  # it has two hours on the clock
        ("30 2 * * * 1h Europe/Berlin", "2026-10-25T00:30", "2026-10-25T01:30"),  # the hour comes twice
        ("0 2 * * * 4h Europe/Berlin", "2026-10-25T00:00", "2026-10-25T04:00"),
        ("0 2 * * * 1h America/New_York", "2026-03-08T07:00", "2026-03-08T08:00"),
        ("0 1 * * * 1h America/New_York", "2026-11-01T05:00", "2026-11-01T06:00"),
        ("0 0 1 1 * 1h;0 12 * * * 1h", "2026-11-26T12:00", "2026-11-26T13:00"),
    ],
)
def test_a_window_is_open_for_its_length_from_each_time_of_its_expression(text: str, opens: str, closes: str) -> None:
    windows, minute = parse_windows(text), timedelta(minutes=1)

    around = [utc(opens) - minute, utc(opens), utc(closes) - timedelta(seconds=1), utc(closes)]
    assert [is_open(windows, each) for each in around] == [False, True, True, False]
    first, later = (next_opening(windows, utc(opens) - before) for before in (minute, timedelta()))
    assert first is not None
    assert later is not None
    assert first.astimezone(timezone.utc) == utc(opens)
    assert later >= utc(closes)


@pytest.mark.parametrize(
    ("text", "opens"),
    [
        ("0 0 */2 * 1 1h", ["2026-11-02", "2026-11-03", "2026-11-05", "2026-11-07"]),  # as in CronJobs: or on Mondays
        ("0 0 2 * */3 1h", ["2026-11-02", "2026-11-04", "2026-11-07", "2026-11-08"]),
        ("0 0 */01 * 1 1h", ["2026-11-02", "2026-11-09", "2026-11-16", "2026-11-23"]),
        ("0 0 5,* * 1 1h", ["2026-11-02", "2026-11-09", "2026-11-16", "2026-11-23"]),  # the list has all days
        ("0 0 ? * 1 1h", ["2026-11-02", "2026-11-09", "2026-11-16", "2026-11-23"]),
        ("0 0 4 * ? 1h", ["2026-11-04", "2026-12-04", "2027-01-04", "2027-02-04"]),
        ("0 0 * * SAT/1 1h", ["2026-11-07", "2026-11-14", "2026-11-21", "2026-11-28"]),  # not on Sundays
    ],
)
def test_days_and_weekdays_are_combined_as_in_cron_jobs(text: str, opens: list[str]) -> None:
    windows, found = parse_windows(text), []
    time = utc("2026-11-01T12:00")
    for _ in opens:
        opening = next_opening(windows, time)
        assert opening
        time = opening
        found.append(f"{time:%Y-%m-%d}")

    assert found == opens


@st.composite
def fields(draw: st.DrawFn, first: int, last: int) -> str:
    """Return a field of a cron expression with numbers."""
    number = st.integers(first, last)
    ranges = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.one_of(st.just(""), st.integers(1, 9).map(lambda step: f"/{step}"))
    items = st.tuples(st.one_of(st.sampled_from("*?"), number.map(str), ranges), steps).map("".join)
    return ",".join(draw(st.lists(items, min_size=1, max_size=3)))


def as_in_cron_jobs(field: str, first: int, last: int) -> tuple[set[int], bool]:
    """Return the numbers of a field, and whether it has an item `*` without a step: parser.go of robfig/cron v3."""
    numbers: set[int] = set()
    has_star = False
    for item in field.split(","):
        values, _, step = item.partition("/")
        low, _, high = values.partition("-")
        is_star = low in "*?"
        has_star |= is_star and step in ("", "1")
        begin = first if is_star else int(low)
        end = last if is_star or (step and not high) else int(high or low)
        numbers |= set(range(begin, end + 1, int(step or 1)))
    return numbers, has_star


@given(day=fields(1, 31), weekday=fields(0, 6))
@example(day="*", weekday="1/2")  # not on Sundays
@example(day="*", weekday="5-5/2")  # only on Fridays
def test_a_window_opens_on_the_days_of_a_cron_job(day: str, weekday: str) -> None:
    """dayMatches in spec.go of robfig/cron v3."""
    (days, all_days), (weekdays, all_weekdays) = as_in_cron_jobs(day, 1, 31), as_in_cron_jobs(weekday, 0, 6)
    combine = all if all_days or all_weekdays else any
    windows = parse_windows(f"0 0 {day} * {weekday} 1m")

    for time in (utc("2027-01-25T00:00") + timedelta(days=number) for number in range(38)):
        expected = combine((time.day in days, time.isoweekday() % 7 in weekdays))
        assert is_open(windows, time) is expected, time


@pytest.mark.parametrize(
    ("text", "after", "opens"),
    [
        ("*/30 * * * *", "02:15+0100", "25 02:30+0100"),
        ("*/30 * * * *", "02:45+0200", "25 02:00+0100"),
        ("30 2 * * *", "02:15+0100", "26 02:30+0100"),  # it opened at the first 02:30
        ("*/30 2 * * *", "02:45+0200", "25 02:00+0100"),
    ],
)
def test_after_a_time_in_the_hour_that_comes_twice_the_next_opening_is_later(text: str, after: str, opens: str) -> None:
    time = datetime.strptime(f"2026-10-25 {after}", "%Y-%m-%d %H:%M%z")

    opening = next_opening(parse_windows(f"{text} 1m {BERLIN}"), time)

    assert f"{opening:%d %H:%M%z}" == opens


def test_a_window_at_each_half_hour_does_not_open_in_the_skipped_hour() -> None:
    opening = next_opening(parse_windows(f"*/30 2 * * * 1h {BERLIN}"), utc("2026-03-28T12:00"))

    assert f"{opening:%d %H:%M%z}" == "30 02:00+0200"


def test_a_day_in_another_year_has_no_opening_within_a_year() -> None:
    window = parse_windows("0 0 29 2 * 24h")

    assert [is_open(window, utc(f"2028-02-{text}")) for text in ("28T23:59", "29T00:00", "29T23:59")] == [0, 1, 1]
    assert next_opening(window, utc("2028-02-29T00:00")) is None


def test_after_the_last_year_no_window_opens() -> None:
    assert next_opening(parse_windows(f"0 22 * * * 1h {BERLIN}"), utc("9999-12-31T23:30")) is None


def test_an_opening_more_than_a_year_away_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = []
    monkeypatch.setattr(CronSim, "advance", lambda self: ticks.append(self))

    assert next_opening(parse_windows("; ".join(["0 0 29 2 * 1m"] * 10)), utc("2026-11-26T12:00")) is None
    assert not is_open(parse_windows("0 0 29 2 * 168h"), utc("2026-11-26T12:00"))
    assert ticks == []


def test_a_window_in_a_skipped_hour_is_open_at_its_opening_in_its_zone() -> None:
    windows = parse_windows("30 2 * * * 1h Europe/Berlin")

    opening = next_opening(windows, utc("2026-03-28T12:00"))

    assert opening is not None
    assert is_open(windows, opening)


def test_the_next_opening_is_shown_in_the_zone_of_its_window() -> None:
    opening = next_opening(parse_windows(f"0 22 * * * 4h {BERLIN}"), utc("2026-11-26T12:00"))

    assert opening is not None
    assert (opening.isoformat(), str(opening.tzinfo)) == ("2026-11-26T22:00:00+01:00", BERLIN)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a window is empty"),
        ("0 22 * * 1-5", "it has 5 fields"),
        ("0 22 * * 1-5 4h Europe/Berlin CET", "it has 8 fields"),
        ("x", "it has 1 field:"),
        ("0 22 L * * 4h", "DAY L is not valid: only numbers"),
        ("0 22 * * 1#5 4h", "WEEKDAY 1#5 is not valid: only numbers, names, * ? , - and / are"),
        ("0 22 * * * \u0663h", "is not a duration"),
        ("0 22 * * * 4h localtime", "localtime is not a time zone"),
        ("0 22 * * * 4h Factory", "Factory is not a time zone"),
        ("61 22 * * * 4h", "MINUTE 61 is not valid"),
        ("0 0 31 2 * 4h", "DAY 31 is not valid in MONTH 2"),
        ("0 24 * * * 4h", "HOUR 24 is not valid"),
        ("0 0 * FEV * 4h", "MONTH FEV is not valid"),
        ("0 0 * * 5-8/2 4h", "WEEKDAY 5-8/2 is not valid"),
        ("0 0 */0 * * 4h", "DAY */0 is not valid"),
        ("@daily 4h", "it has 2 fields"),
        ("0 22 * * * 4", "4 is not a duration between 1m and 168h"),
        ("0 22 * * * 0m", "0m is not a duration"),
        ("0 22 * * * 169h", "169h is not a duration"),
        ("0 22 * * * -4h", "-4h is not a duration"),
        ("0 22 * * * 4h Europe/Bonn", "Europe/Bonn is not a time zone"),
        ("0 22 * * * 4h ../../etc/passwd", "../../etc/passwd is not a time zone"),
        ("0 22 * * * 4h Europe", "Europe is not a time zone"),
        ("0 22 * * * 4h \0", "is not a time zone"),
        ("0 22 * * * 4h;x;0 22 * * * 9999h", '"x": it has 1 field'),
        ("; ".join(["0 22 * * * 4h"] * 11), "it has 11 windows, the limit is 10"),
        ("0 22 * * * 4h " + "x" * 2000, "it has more than 1000 characters"),
    ],
)
def test_a_window_that_is_not_valid_is_described(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        parse_windows(text)

    assert problem in str(raised.value)


def test_all_problems_of_several_windows_are_described_at_once() -> None:
    with pytest.raises(ValueError, match=r'"x".*9999h is not a duration'):
        parse_windows("0 22 * * * 4h;x;0 22 * * * 9999h")


@pytest.mark.parametrize("text", ["", "7d", "59m", "8761h", "1w", "-1h", "168", "h", "1.5h", "9" * 5000])
def test_a_period_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="between 1h and 8760h"):
        parse_period(text)


def test_each_workload_is_due_once_in_a_period_and_they_are_spread_over_it() -> None:
    period, start = parse_period("168h"), utc("2026-11-26T12:00")
    days: Counter[int] = Counter()
    for number in range(700):
        name = f"deployment/web-{number} in namespace shop"
        assert due(period, name, start, start) is None
        moment = due(period, name, start, start + period)
        assert moment is not None
        assert start < moment <= start + period
        assert due(period, name, start, moment - timedelta(seconds=1)) is None
        assert due(period, name, moment, moment + period - timedelta(seconds=1)) is None
        assert due(period, name, moment, moment + period) == moment + period
        days[(moment - start).days] += 1

    assert set(days) <= set(range(8))
    assert max(days.values()) < 2 * 100, "about a hundred a day"
