"""fetch-rates in the suites that run over all jobs."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.conftest import Run, runs
from tests.apis import Api
from tests.every_job import RightsWorld, Scenario
from tests.every_job.outputs import listed as table
from tests.every_job.outputs import shown
from tests.fault_world import FaultWorld, State, World, kinds, metadata, status_of
from tests.rates import RATES, RatesServer, ago, ecb, frankfurter, serve, status, today
from tests.worlds import configmap, exchange_rate, namespace_object

JOB = "fetch-rates"
UNMANAGED = {("configmaps", "shop", "taken"), ("configmaps", "shop", "unrelated")}


# a world whose requests fail in the tests of faults


@contextmanager
def _world(api: Api) -> Iterator[Mapping[str, str]]:
    """A run creates, replaces, repairs, recreates, deletes, blocks a jump and reports a conflict."""
    with serve() as rates:
        fetch = runs(JOB, api.kubeconfig, rates.env())
        api.create(namespace_object("shop"))
        for code in ("USD", "GBP", "JPY", "CHF", "PLN"):
            api.create(exchange_rate("shop", code.lower(), code))
        api.create(exchange_rate("shop", "moved", "CAD"))
        rates.publish(day=ago(2))  # not of today: a test sets the clock back by an hour, which may be before midnight
        assert fetch().summary == {"created": 6}
        api.patch(exchange_rate("shop", "moved"), {"spec": {"configMapName": "there"}})
        assert fetch().summary == {"created": 1, "unchanged": 5}
        api.patch(configmap("shop", "gbp"), {"data": {"rate": "0", "more": "x"}})
        api.patch(configmap("shop", "jpy"), {"immutable": True})
        api.delete(configmap("shop", "chf"))
        for name in UNMANAGED:
            api.create({**configmap("shop", name[2]), "data": {"rate": "theirs"}})
        api.create(exchange_rate("shop", "taken", "SEK"))
        api.create(namespace_object("bank"))
        api.create(exchange_rate("bank", "fresh", "ISK"))
        # The new rate of PLN jumps, and no run has read the rates of yesterday yet.
        rates.serve("ecb", ecb(ago(1), {**RATES, "PLN": "9.99"}))
        rates.serve("frankfurter", frankfurter(ago(2)))
        yield rates.env()


def _state(world: World) -> State:
    """Return ConfigMaps without the fields that differ when they are recreated, and the statuses of ExchangeRates."""
    configmaps = {
        key: {
            **{name: obj.get(name) for name in ("data", "immutable")},
            **metadata(obj, "labels", "annotations", "ownerReferences"),
        }
        for key, obj in world.stored("configmaps").items()
    }
    rates = world.stored("exchangerates", "kubechores.dev")
    return configmaps | {key: status_of(obj) for key, obj in rates.items()}


def _untouched(world: World) -> State:
    found = world.stored("configmaps")
    return {key: found[key] for key in UNMANAGED}


FAULTS = [
    FaultWorld(
        name=JOB,
        job=JOB,
        build=_world,
        state=_state,
        untouched=_untouched,
        exit_code=4,
        summary={"created": 2, "configured": 3, "replaced": 1, "deleted": 1, "conflict": 1, "jump": 1},
        codes_after_401=frozenset({2, 4}),  # 4 takes precedence over 2
        sent=kinds(
            list="exchangerates configmaps",
            get="configmaps",
            create="configmaps events",
            update="configmaps",
            patch="exchangerates/status",
            delete="configmaps",
        )
        | {"create configmaps (dry run)"},
        read_by_name=frozenset({"taken"}),
    )
]


# a world whose run uses all rights


def _to_fetch(request: pytest.FixtureRequest, fetch: Run) -> None:
    rates_to_fetch(request.getfixturevalue("api"), fetch)


def rates_to_fetch(api: Api, fetch: Run) -> None:
    """Create ExchangeRates for which the next run creates, updates, moves and deletes ConfigMaps."""
    shop = api.namespace("shop")
    moved = api.create(exchange_rate(shop, "moved"))
    stale = api.create(exchange_rate(shop, "stale"))
    taken = api.create(exchange_rate(shop, "taken"))
    api.create({**configmap(shop, "taken"), "data": {}})
    assert fetch().exit_code == 0
    api.patch(moved, {"spec": {"configMapName": "elsewhere"}})
    assert fetch().exit_code == 0
    api.patch(configmap(shop, stale["metadata"]["name"]), {"data": {"rate": "0"}})
    api.patch(taken, {"spec": {"maxChange": 5}})
    api.create(exchange_rate(shop, "fresh", "JPY"))


RIGHTS = [RightsWorld(JOB, _to_fetch, "fetch")]


# the output that users read


def run(api: Api, rates: RatesServer, *arguments: str) -> str:
    return always(shown(api, JOB, *arguments, env=rates.env()))


def always(text: str) -> str:
    """Return the text with fixed dates and URLs."""
    for days in range(-1, 8):
        text = text.replace(str(ago(days)), f"2026-01-{20 - days}")
    return re.sub(r"http://127\.0\.0\.1:\d+", "https://rates.example.com", text)


def listed(api: Api) -> str:
    path = "/apis/kubechores.dev/v1/namespaces/team-shop/exchangerates"
    return table(api, path, "kubectl get exchangerates -n team-shop", always)


def first(api: Api, _folder: Path) -> str:
    with serve() as rates:
        api.create(exchange_rate("team-shop"))
        api.create(exchange_rate("team-shop", "usd-to-jpy", "JPY", base="USD"))
        return "\n".join([run(api, rates), listed(api), run(api, rates)])


def another_day(api: Api, _folder: Path) -> str:
    with serve() as rates:
        rates.publish(day=ago(1))
        api.create(exchange_rate("team-shop"))
        run(api, rates)
        rates.publish(rates={**RATES, "USD": "1.1402"})
        return run(api, rates, "--diff")


def jump(api: Api, _folder: Path) -> str:
    with serve() as rates:
        rates.publish(day=ago(1))
        api.create(exchange_rate("team-shop"))
        run(api, rates)
        rates.serve("ecb", ecb(today(), {**RATES, "USD": "1.5932"}))
        rates.serve("frankfurter", status(404))
        return run(api, rates)


def printed(api: Api, _folder: Path) -> str:
    with serve() as rates:
        usual = run(api, rates, "--currency", "USD")
        return "\n".join([usual, run(api, rates, "--currency", "JPY", "--base", "USD", "-o", "json")])


SCENARIOS: dict[str, Scenario] = {
    "A first run, and a second one": first,
    "New rates": another_day,
    "A rate jumps": jump,
    "A rate on a laptop, without a cluster": printed,
}
