"""When roll-workloads rolls: windows, periods and --now."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.api.conftest import Ran, Run
from tests.api.test_roll_workloads import changed, check_rolled_once, reason, web_with_baseline
from tests.apis import Api, Object
from tests.workloads import BASELINE, roll_annotations, settle, workload
from tests.worlds import configmap, namespace_object

WINDOW, EVERY = "kubechores.dev/roll-window", "kubechores.dev/roll-every"


def window(hours: int) -> str:
    """Return a window of two hours each day, which opens in so many hours, or opened before."""
    opens = datetime.now(timezone.utc) + timedelta(hours=hours)
    return f"{opens.minute} {opens.hour} * * * 2h"


def windows(state: str) -> str | None:
    """Return windows that are now "closed" or "open", or one of each for "both"; None for an empty state."""
    by_state = {"closed": window(3), "open": window(-1), "both": f"{window(3)}; {window(-1)}"}
    return by_state.get(state)


def annotate(api: Api, obj: Object, **annotations: str | None) -> None:
    api.patch(obj, {"metadata": {"annotations": {f"kubechores.dev/{key}": each for key, each in annotations.items()}}})
    if obj["kind"] != "Namespace":
        settle(api, obj)  # annotations of a workload are a new generation


def with_key(text: str | None) -> dict[str, Any]:
    return {"roll-window": text}


@pytest.mark.parametrize(
    ("option", "namespace", "own", "rolls"),
    [
        ("closed", "", "", False),
        ("open", "", "", True),
        ("open", "closed", "", False),
        ("closed", "open", "", True),
        ("open", "open", "closed", False),
        ("closed", "closed", "open", True),
        ("", "", "both", True),
    ],
)
def test_a_roll_waits_for_its_window_that_of_the_workload_first(
    api: Api, roll: Run, option: str, namespace: str, own: str, rolls: bool
) -> None:
    space, source, web = web_with_baseline(api, roll)
    annotate(api, namespace_object(space), **with_key(windows(namespace)))
    annotate(api, web, **with_key(windows(own)))
    changed(api, source)
    arguments = ("--roll-window", str(windows(option))) if option else ()

    ran = roll(*arguments)

    if rolls:
        assert ran.summary == {"restarted": 1}
        check_rolled_once(api, web)
    else:
        assert (ran.exit_code, ran.summary) == (0, {"deferred": 1})
        assert ran.results[0]["deferral"] == "outside-window"
        assert "configmap/settings changed, but its window for rolls is closed until 20" in reason(ran)
        explained = json.loads(roll("--explain", f"{space}/web", *arguments).stdout)
        (row,) = explained["rows"]
        until = datetime.fromisoformat(row["until"].replace("Z", "+00:00"))
        assert timedelta(hours=2) < until - datetime.now(timezone.utc) < timedelta(hours=4)
        assert (roll(*arguments).summary, roll_annotations(api.read(web))[1]) == ({"deferred": 1}, None)


@pytest.mark.parametrize("of_namespace", [False, True])
def test_a_window_that_is_not_valid_is_reported_and_no_typo_lets_a_workload_roll(
    api: Api, roll: Run, of_namespace: bool
) -> None:
    space, source, web = web_with_baseline(api, roll)
    annotated = namespace_object(space) if of_namespace else web
    annotate(api, annotated, **with_key("0 22 * * 1-5 4h Europe/Bonn"))

    ran = roll()
    assert ran.summary["invalid"] == 1
    assert "Europe/Bonn is not a time zone" in reason(ran, "invalid")

    changed(api, source)
    ran = roll()
    assert [each["deferral"] for each in ran.results if "deferral" in each] == ["invalid-window"]
    assert "Europe/Bonn is not a time zone" in reason(ran)
    assert roll_annotations(api.read(web))[1] is None

    annotate(api, annotated, **with_key(window(-1)))
    assert roll().summary == {"restarted": 1}


def test_a_window_that_is_not_valid_is_an_error_of_the_option(api: Api, roll: Run) -> None:
    ran = roll("--roll-window", "0 22 * * 1-5")

    assert ran.exit_code == 2
    assert "it has 5 fields" in ran.stderr


def test_now_rolls_one_workload_whose_window_is_closed(api: Api, roll: Run) -> None:
    space, source, web = web_with_baseline(api, roll)
    other = settle(api, api.create(workload(space, "other")))
    roll()
    for each in (web, other):
        annotate(api, each, **with_key(window(3)))

    assert roll("--now", f"{space}/web").summary == {"unchanged": 1}
    changed(api, source)
    assert roll("--now", f"{space}/web", "--settle", "3600", "--cool-down", "3600").summary == {"restarted": 1}
    check_rolled_once(api, web)
    assert roll_annotations(api.read(other))[1] is None
    assert roll().summary == {"deferred": 1, "unchanged": 1}


@pytest.mark.parametrize("where", ["shop", "shop/", "/web", "a/b/c", "Shop/web"])
def test_now_needs_a_namespace_and_a_name(roll: Run, where: str) -> None:
    ran = roll("--now", where)

    assert (ran.exit_code, "is not NAMESPACE/NAME" in ran.stderr) == (2, True)


def test_now_names_what_is_missing(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(workload(space, opted_in=None))

    missing = f"--now {space}/web: no workload of this name opted in; see chores roll-workloads --explain {space}/web"
    for arguments, message in (
        (("-n", "other"), f"--now {space}/web is not in the namespace of -n"),
        (("--explain", space), "--now rolls a workload, and --explain writes nothing: use one of them"),
        ((), missing),
    ):
        check_error(roll("--now", f"{space}/web", *arguments), message)
    annotate(api, namespace_object(space), **with_key("x"))
    check_error(roll("--now", f"{space}/web"), missing)  # also if a run has other findings
    check_error(roll("--now", f"{space}/web", "--argo-rollouts"), missing)


def check_error(ran: Ran, message: str) -> None:
    assert (ran.exit_code, message in " ".join(ran.stderr.split())) == (2, True), ran.stderr


def moved_back(api: Api, web: Object, field: str, by: timedelta) -> None:
    """Move a time in the baseline of a workload back."""
    baseline = json.loads(str(roll_annotations(api.read(web))[0]))
    before = datetime.fromisoformat(baseline[field].replace("Z", "+00:00"))
    text = json.dumps({**baseline, field: (before - by).isoformat()})
    annotate(api, web, **{BASELINE.partition("/")[2]: text})


def test_a_workload_is_rolled_once_in_each_period(api: Api, roll: Run) -> None:
    space, _, web = web_with_baseline(api, roll)
    assert roll().summary == {"unchanged": 1}
    annotate(api, web, **{"roll-every": "168h"})

    ran = roll()
    assert (ran.summary, "its period (kubechores.dev/roll-every) begins" in reason(ran, "baseline-recorded")) == (
        {"annotated": 1},
        True,
    )
    assert (roll().summary, roll_annotations(api.read(web))[1]) == ({"unchanged": 1}, None)

    moved_back(api, web, "recorded", timedelta(hours=168))
    annotate(api, namespace_object(space), **with_key(window(3)))
    assert roll().results[0]["deferral"] == "outside-window"
    annotate(api, namespace_object(space), **with_key(None))
    ran = roll()
    assert ran.summary == {"restarted": 1}
    assert reason(ran, "period-over").startswith("kubechores.dev/roll-every is due since 20")
    after = check_rolled_once(api, web)
    assert [each["reason"] for each in api.events() if each["involvedObject"]["name"] == "web"] == [
        "RollDeferred",
        "PeriodOver",
    ]
    assert (roll().summary, roll_annotations(api.read(web))) == ({"unchanged": 1}, roll_annotations(after))

    moved_back(api, web, "rolledAt", timedelta(hours=168))
    assert roll().summary == {"restarted": 1}


def test_a_period_of_a_namespace_is_within_the_limit_of_rolls(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    webs = [settle(api, api.create(workload(space, f"web-{number}"))) for number in range(3)]
    annotate(api, namespace_object(space), **{"roll-every": "1h"})
    assert roll().summary == {"annotated": 3}
    for each in webs:
        settle(api, each)
    assert roll().summary == {"annotated": 3}, "their periods begin"
    for each in webs:
        moved_back(api, each, "recorded", timedelta(hours=1))

    assert roll("--max-rolls", "2").summary == {"restarted": 2, "deferred": 1}


def test_a_period_that_is_set_again_begins_again(api: Api, roll: Run) -> None:
    _, _, web = web_with_baseline(api, roll)
    annotate(api, web, **{"roll-every": "168h"})
    roll()
    moved_back(api, web, "recorded", timedelta(days=90))
    annotate(api, web, **{"roll-every": None})

    assert f"annotation {EVERY} was removed" in reason(roll(), "baseline-recorded")
    for period in ("168h", "24h"):
        annotate(api, web, **{"roll-every": period})
        assert roll().summary == {"annotated": 1}
        assert (roll().summary, roll_annotations(api.read(web))[1]) == ({"unchanged": 1}, None)


def test_a_period_that_began_in_the_future_begins_again(api: Api, roll: Run) -> None:
    _, _, web = web_with_baseline(api, roll)
    annotate(api, web, **{"roll-every": "168h"})
    roll()
    moved_back(api, web, "recorded", -timedelta(days=300))

    assert (roll().summary, roll().summary) == ({"annotated": 1}, {"unchanged": 1})


@pytest.mark.parametrize(("ahead", "summary"), [(1, {"unchanged": 1}), (99 * 168 * 3600, {"restarted": 1})])
def test_a_period_counts_a_roll_by_a_run_meanwhile_but_none_in_the_far_future(
    api: Api, roll: Run, ahead: int, summary: dict[str, int]
) -> None:
    """A run keeps the time of its begin, and reads the workload again after a conflict."""
    _, source, web = web_with_baseline(api, roll)
    annotate(api, web, **{"roll-every": "168h"})
    roll()
    settle(api, web)
    changed(api, source)
    roll()
    settle(api, web)
    moved_back(api, web, "recorded", timedelta(hours=169))
    moved_back(api, web, "rolledAt", -timedelta(seconds=ahead))

    assert roll().summary == summary


def test_a_workload_that_was_rolled_long_ago_waits_for_its_first_period(api: Api, roll: Run) -> None:
    _, source, web = web_with_baseline(api, roll)
    changed(api, source)
    roll()
    settle(api, web)
    moved_back(api, web, "rolledAt", timedelta(days=30))
    annotate(api, web, **{"roll-every": "168h"})

    assert (roll().summary, roll().summary) == ({"annotated": 1}, {"unchanged": 1})
    assert roll("--now", f"{web['metadata']['namespace']}/web").summary == {"unchanged": 1}
    moved_back(api, web, "recorded", timedelta(hours=168))
    assert roll("--now", f"{web['metadata']['namespace']}/web").summary == {"restarted": 1}


@pytest.mark.parametrize("field", ["rolledAt", "recorded"])
@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:30:00Z",
        "9999-12-31T23:59:59-23:59",
        "1999-01-01T00:00:00Z",
        "2026-01-01T00:00:00",
    ],
)
def test_a_time_of_a_tenant_in_a_baseline_fails_no_run(api: Api, roll: Run, field: str, time: str) -> None:
    space, source, web = web_with_baseline(api, roll)
    annotate(api, web, **{"roll-every": "1h"})
    roll()
    baseline = json.loads(str(roll_annotations(api.read(web))[0]))
    forged = {BASELINE.partition("/")[2]: json.dumps({**baseline, field: time})}
    annotate(api, web, **forged)
    assert roll().exit_code == 0
    assert roll("--explain", f"{space}/web").exit_code == 0

    changed(api, source)
    annotate(api, web, **forged, **with_key(window(3)))
    for cool_down in ("0", "600"):
        assert roll("--cool-down", cool_down).exit_code == 0
        annotate(api, web, **forged)
        assert roll("--cool-down", cool_down, "--explain", f"{space}/web").exit_code == 0


@pytest.mark.parametrize("text", ["", "7d", "10m", "-1h"])
def test_a_period_that_is_not_valid_is_reported_and_changes_still_roll(api: Api, roll: Run, text: str) -> None:
    _, source, web = web_with_baseline(api, roll)
    annotate(api, web, **{"roll-every": text})

    ran = roll()
    assert (ran.summary, "is not a duration between 1h and 8760h" in reason(ran, "invalid")) == ({"invalid": 1}, True)
    changed(api, source)
    assert roll().summary == {"restarted": 1}
