"""The clock of the API server, or of the machine of a run, is set by an hour between two runs of a job."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from pathlib import Path

import pytest

from jobs.kit.api import transport
from kubesandbox import Request, Sandbox
from kubesandbox.http import server
from tests.api.conftest import Run, runs
from tests.api.test_roll_workloads import changed, reason, with_baseline
from tests.apis import Api, sandbox_api
from tests.fault_world import Built, differing
from tests.rates import ago
from tests.rates import serve as rates_served
from tests.sandbox.test_every_fault import deleted, every_world
from tests.workloads import KEY_FLAG, set_key, settle, workload
from tests.worlds import configmap, exchange_rate, namespace_object

Clock = Callable[[pytest.MonkeyPatch, float], None]


def set_machine(patch: pytest.MonkeyPatch, hours: float) -> None:
    patch.setattr(transport, "local_time", lambda: datetime.now(timezone.utc) + timedelta(hours=hours))


def set_server(patch: pytest.MonkeyPatch, hours: float) -> None:
    patch.setattr(server, "formatdate", lambda usegmt: formatdate(time.time() + hours * 3600, usegmt=usegmt))


CLOCKS: dict[str, Clock] = {"machine": set_machine, "server": set_server}


@every_world
@pytest.mark.parametrize("first", [1, -1], ids=["forward", "back"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_a_clock_that_is_set_between_runs_changes_no_result(
    built: Built, monkeypatch: pytest.MonkeyPatch, clock: str, first: int
) -> None:
    with built.serve() as cluster:
        untouched = built.world.untouched(cluster)
        CLOCKS[clock](monkeypatch, first)
        ran = [cluster.run()]
        assert differing(built.world.end(cluster), built.end) == []
        writes = len(cluster.writes())
        for hours in (-first, 0):
            CLOCKS[clock](monkeypatch, hours)
            ran.append(cluster.run())

        assert {each.exit_code for each in ran} == {built.world.exit_code}
        assert ran[0].summary == built.world.summary
        later = cluster.writes()[writes:]
        assert [each for each in later if clock == "machine" or not is_report(each)] == []
        assert deleted(cluster.requests()) == deleted(built.trace)
        assert differing(built.world.untouched(cluster), untouched) == []


def is_report(write: Request) -> bool:
    """Whether a write is of a status or an Event: these have the time of the server."""
    return write.path.endswith(("/status", "/events"))


@pytest.fixture
def api(sandbox: Sandbox, tmp_path: Path) -> Api:
    return sandbox_api(sandbox, tmp_path)


@pytest.fixture
def roll(api: Api) -> Run:
    """Run roll-workloads with a cool-down of ten minutes."""
    set_key(api)
    run = runs("roll-workloads", api.kubeconfig)
    return lambda *arguments: run(*KEY_FLAG, "--settle", "0", "--cool-down", "600", *arguments)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_cool_down_ends_with_a_clock_that_is_set_forward_or_back(
    api: Api, roll: Run, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """If a roll seems to be in the future by more than the cool-down, the next one does not wait until then."""
    api.create(namespace_object("shop"))
    source = api.create(configmap("shop"))
    web = with_baseline(api, roll, api.create(workload("shop")))
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    settle(api, web)
    changed(api, source, a="again")
    assert "--cool-down" in reason(roll())

    set_server(monkeypatch, hours)

    assert roll().summary == {"restarted": 1}


def test_a_rate_stays_if_the_clock_is_set_back_to_the_day_before_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    tomorrow = ago(-1)
    midnight = datetime.combine(tomorrow, datetime.min.time(), timezone.utc)
    until_tomorrow = (midnight - datetime.now(timezone.utc)) / timedelta(hours=1)
    api.create(namespace_object("shop"))
    api.create(exchange_rate("shop"))
    with rates_served() as rates:
        fetch = runs("fetch-rates", api.kubeconfig, rates.env())
        rates.publish(day=tomorrow)
        set_server(monkeypatch, until_tomorrow + 0.5)
        assert fetch().summary == {"created": 1}
        before = api.read(configmap("shop", "usd"))

        set_server(monkeypatch, until_tomorrow - 0.5)
        ran = fetch()
        assert (ran.exit_code, "which is in the future" in reason(ran, "unavailable")) == (1, True)
        assert api.read(configmap("shop", "usd")) == before

        set_server(monkeypatch, until_tomorrow + 0.6)
        assert fetch().summary == {"unchanged": 1}
        assert api.read(configmap("shop", "usd")) == before
