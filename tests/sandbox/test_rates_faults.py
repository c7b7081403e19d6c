"""fetch-rates that is killed, disturbed or runs twice at once: the next run ends where an undisturbed one does."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.kit import cluster, transport
from kubesandbox import Fault, Request, Sandbox
from tests.apis import sandbox_api
from tests.manifests import ROOT, load
from tests.rates import RATES, RatesServer, ago, ecb, frankfurter, serve
from tests.sandbox.small_world import PAGE, Key, Object, World, differing, forked, served
from tests.sandbox.test_every_fault import ONCE
from tests.worlds import configmap, exchange_rate

pytestmark = pytest.mark.sweep
FOREIGN = {("configmaps", "shop", "taken"), ("configmaps", "shop", "unrelated")}
Worlds = tuple[Sandbox, RatesServer]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Small pages, one request after the other, and no pauses before a retry: from the first run of this module on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "PAGE_SIZE", PAGE)
        patch.setattr(cluster, "DATA_PAGE_SIZE", PAGE)
        patch.setattr(transport, "IN_FLIGHT", 1)
        patch.setattr(transport, "LONGEST_PAUSE_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """A world in which the next run creates, replaces, repairs, recreates, deletes, holds, tells and is in the way."""
    folder: Path = tmp_path_factory.mktemp("world")
    with serve() as rates, Sandbox() as sandbox:
        api = sandbox_api(sandbox, folder)
        for obj in load(ROOT / "cronjobs" / "crds"):
            api.put(obj)
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        for code in ("USD", "GBP", "JPY", "CHF", "PLN"):
            api.create(exchange_rate("shop", code.lower(), code))
        api.create(exchange_rate("shop", "moved", "CAD"))
        rates.publish(day=ago(1))
        world = World(sandbox, "fetch-rates", rates.env())
        assert world.run().summary == {"created": 6}
        api.patch(exchange_rate("shop", "moved"), {"spec": {"configMapName": "there"}})
        assert world.run().summary == {"created": 1, "unchanged": 5}
        api.patch(configmap("shop", "gbp"), {"data": {"rate": "0", "more": "x"}})
        api.patch(configmap("shop", "jpy"), {"immutable": True})
        api.delete(configmap("shop", "chf"))
        for name in FOREIGN:
            api.create({**configmap("shop", name[2]), "data": {"rate": "theirs"}})
        api.create(exchange_rate("shop", "taken", "SEK"))
        api.create(exchange_rate("shop", "fresh", "ISK"))
        # The new rate of PLN jumps, and the world is still to see any of today's.
        rates.tell("ecb", ecb(rates={**RATES, "PLN": "9.99"}))
        rates.tell("frankfurter", frankfurter(ago(1)))
        yield Sandbox(of=sandbox), rates


def state(world: World) -> dict[Key, Object]:
    """What counts: ConfigMaps without what a second making changes, and what ExchangeRates say."""
    configmaps = {
        key: {
            **{name: obj.get(name) for name in ("data", "immutable")},
            **{name: obj["metadata"].get(name) for name in ("labels", "annotations", "ownerReferences")},
        }
        for key, obj in world.stored("configmaps").items()
    }
    return configmaps | {key: _told(obj) for key, obj in world.stored("exchangerates", "kubechores.dev").items()}


def _told(rate: Object) -> Object:
    status: dict[str, Any] = dict(rate.get("status", {}))
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.pop("conditions", [])]
    return {**status, "conditions": conditions}


@pytest.fixture(scope="module")
def trace(before: Worlds) -> list[Request]:
    """The requests of a run that nothing disturbs."""
    with served(before[0], "fetch-rates", before[1].env()) as world:
        world.run()
        return world.requests()


@pytest.fixture(scope="module")
def undisturbed(before: Worlds) -> dict[Key, Object]:
    """How the world is after a run that nothing disturbs."""
    with served(before[0], "fetch-rates", before[1].env()) as world:
        ran = world.run()
        written = {"created": 2, "configured": 3, "replaced": 1, "deleted": 1}
        assert (ran.exit_code, ran.summary) == (4, {**written, "conflict": 1, "jump": 1}), ran
        return state(world)


def _wrong(world: World, undisturbed: dict[Key, Object]) -> list[object]:
    """What is not as it should be after the run that follows, and after one more."""
    ran = world.run()
    end = state(world)
    writes = len(world.writes())
    again = world.run()
    codes = [each for each in (ran, again) if each.exit_code != 4]
    return [*codes, *differing(end, undisturbed), *world.writes()[writes:]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_finishes_what_a_killed_one_began(
    before: Worlds, trace: list[Request], undisturbed: dict[Key, Object], capsys: pytest.CaptureFixture[str], when: str
) -> None:
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before[0], "fetch-rates", before[1].env()) as world:
            foreign = {key: world.stored("configmaps")[key] for key in FOREIGN}
            assert world.run_killed(number, when)
            found = _wrong(world, undisturbed)
            found += [key for key in FOREIGN if world.stored("configmaps")[key] != foreign[key]]
        if found:
            wrong[f"killed {when} request {number}, {request.method} {request.path}"] = found

    with capsys.disabled():
        print(f"\n{len(trace)} runs of fetch-rates killed {when} a request")  # noqa: T201 - seen without -s
    assert wrong == {}
    assert len(trace) > 15


@pytest.mark.parametrize("fault", [name for name in ONCE if name != "late"])
def test_a_run_or_the_next_makes_good_for_a_fault_at_any_request(
    before: Worlds, trace: list[Request], undisturbed: dict[Key, Object], capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    wrong: dict[str, object] = {}
    codes: Counter[int] = Counter()
    numbers = [n for n, each in enumerate(trace) if fault != "410 in a list" or "continue" in each.query]
    for number in numbers:
        with served(before[0], "fetch-rates", before[1].env()) as world:
            world.sandbox.inject(Fault(skip=number, **ONCE[fault]))
            code = world.run().exit_code
            world.sandbox.clear_faults()
            codes[int(code)] += 1
            # 401 is the one that no retry helps, and 2 goes after 4.
            found: list[object] = [] if code in ({2, 4} if fault == "401" else {4}) else [f"exit {code}"]
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"{trace[number].method} {trace[number].path}"] = found

    with capsys.disabled():
        print(f"\n{len(numbers)} runs of fetch-rates with {fault}: exit codes {dict(codes)}")  # noqa: T201
    assert wrong == {}
    assert numbers


def test_runs_that_overlap_anywhere_end_where_one_ends(
    before: Worlds, trace: list[Request], undisturbed: dict[Key, Object]
) -> None:
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before[0], "fetch-rates", before[1].env()) as world:
            world.sandbox.inject(Fault(kind="call-before", call=lambda world=world: _another(world), skip=number))  # type: ignore[misc]
            ran = world.run()
            found: list[object] = [] if ran.exit_code == 4 else [ran]
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"a whole run before request {number}, {request.method} {request.path}"] = found
    assert wrong == {}


def _another(world: World) -> None:
    """Run the job in a process of its own, from beginning to end."""
    os.waitpid(forked(world.run), 0)


def test_the_world_takes_every_kind_of_write(trace: list[Request]) -> None:
    kinds = {(each.method, each.path.split("/")[-1 if each.method in ("POST", "PATCH") else -2]) for each in trace}

    assert kinds >= {
        ("POST", "configmaps"),
        ("PUT", "configmaps"),
        ("DELETE", "configmaps"),
        ("PATCH", "status"),
        ("POST", "events"),
    }
    assert [each for each in trace if "continue" in each.query]
