"""roll-workloads that is killed, disturbed or runs twice at once: never two rollouts for one change."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.kit import cluster, transport
from kubesandbox import Fault, Request, Sandbox
from tests.apis import Api, sandbox_api
from tests.sandbox.small_world import PAGE, Key, Object, World, differing, forked, served
from tests.sandbox.test_every_fault import ONCE
from tests.workloads import BASELINE, KINDS, MARK, settle, workload
from tests.worlds import configmap, secret

pytestmark = pytest.mark.sweep
JOB = "roll-workloads"
ENV = {"CHORES_SETTLE": "0", "CHORES_COOL_DOWN": "0"}
POD: Object = {
    "volumes": [
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "login", "secret": {"secretName": "login"}},
    ]
}
Worlds = tuple[Sandbox, Api]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Small pages, one request after the other, and no pauses before a retry: from the first run of this module on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "PAGE_SIZE", PAGE)
        patch.setattr(transport, "IN_FLIGHT", 1)
        patch.setattr(transport, "LONGEST_PAUSE_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A world in which workloads are to be rolled, adopted, held and left alone."""
    folder: Path = tmp_path_factory.mktemp("world")
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, folder)
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        api.create(configmap("shop"))
        api.create(secret("shop"))
        for kind in KINDS:
            settle(api, api.create(workload("shop", "rolled", kind, pod=POD)))
        paused = workload("shop", "paused", pod=POD, paused=True)
        settle(api, api.create(paused))
        assert World(sandbox, JOB, ENV).run().summary == {"annotated": 4}
        for each in (paused, *(workload("shop", "rolled", kind) for kind in KINDS)):
            settle(api, each)
        api.patch(configmap("shop"), {"data": {"a": "changed"}})
        api.patch(secret("shop"), secret("shop"))
        settle(api, api.create(workload("shop", "fresh", pod=POD)))
        for number in range(4):
            api.create(workload("shop", f"unrelated-{number}", asks=None, pod=POD))
        yield Sandbox(of=sandbox)


def state(world: World) -> dict[Key, Object]:
    """What counts of workloads: rollouts are counted by generations, and times are no difference."""
    found: dict[Key, Object] = {}
    for plural in ("deployments", "statefulsets", "daemonsets"):
        for key, obj in world.stored(plural, "apps").items():
            annotations = {**obj["metadata"].get("annotations", {})}
            annotations[BASELINE] = annotations.get(BASELINE, "").partition(',"rolledAt"')[0].partition('"sources"')[2]
            template = obj["spec"]["template"]
            marked = MARK in (template["metadata"].get("annotations") or {})
            generation = obj["metadata"]["generation"]
            found[key] = {"annotations": annotations, "generation": generation, "marked": marked}
    return found


@pytest.fixture(scope="module")
def trace(before: Sandbox) -> list[Request]:
    """The requests of a run that nothing disturbs."""
    with served(before, JOB, ENV) as world:
        world.run()
        return world.requests()


@pytest.fixture(scope="module")
def undisturbed(before: Sandbox) -> dict[Key, Object]:
    """How the world is after a run that nothing disturbs."""
    with served(before, JOB, ENV) as world:
        ran = world.run()
        assert (ran.exit_code, ran.summary) == (0, {"annotated": 1, "held": 1, "restarted": 3}), ran
        return state(world)


def _wrong(world: World, undisturbed: dict[Key, Object]) -> list[object]:
    """What is not as it should be after the run that follows, and after one more."""
    ran = world.run()
    end = state(world)
    writes = len(world.writes())
    again = world.run()
    codes = [each for each in (ran, again) if each.exit_code]
    return [*codes, *differing(end, undisturbed), *world.writes()[writes:]]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_finishes_what_a_killed_one_began(
    before: Sandbox, trace: list[Request], undisturbed: dict[Key, Object], capsys: pytest.CaptureFixture[str], when: str
) -> None:
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before, JOB, ENV) as world:
            assert world.run_killed(number, when)
            found = _wrong(world, undisturbed)
        if found:
            wrong[f"killed {when} request {number}, {request.method} {request.path}"] = found

    with capsys.disabled():
        print(f"\n{len(trace)} runs of {JOB} killed {when} a request")  # noqa: T201 - seen without -s
    assert wrong == {}
    assert len(trace) > 15


@pytest.mark.parametrize("fault", [name for name in ONCE if name != "late"])
def test_a_run_or_the_next_makes_good_for_a_fault_at_any_request(
    before: Sandbox,
    trace: list[Request],
    undisturbed: dict[Key, Object],
    capsys: pytest.CaptureFixture[str],
    fault: str,
) -> None:
    wrong: dict[str, object] = {}
    codes: Counter[int] = Counter()
    numbers = [n for n, each in enumerate(trace) if fault != "410 in a list" or "continue" in each.query]
    for number in numbers:
        with served(before, JOB, ENV) as world:
            world.sandbox.inject(Fault(skip=number, **ONCE[fault]))
            code = world.run().exit_code
            world.sandbox.clear_faults()
            codes[int(code)] += 1
            # 401 is the one that no retry helps.
            found: list[object] = [] if code == (2 if fault == "401" else 0) else [f"exit {code}"]
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"{number} {trace[number].method} {trace[number].path}"] = found

    with capsys.disabled():
        print(f"\n{len(numbers)} runs of {JOB} with {fault}: exit codes {dict(codes)}")  # noqa: T201
    assert wrong == {}
    assert numbers


def test_runs_that_overlap_anywhere_roll_once(
    before: Sandbox, trace: list[Request], undisturbed: dict[Key, Object]
) -> None:
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before, JOB, ENV) as world:
            world.sandbox.inject(Fault(kind="call-before", call=lambda world=world: _another(world), skip=number))  # type: ignore[misc]
            ran = world.run()
            found: list[object] = [ran] if ran.exit_code else []
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"a whole run before request {number}, {request.method} {request.path}"] = found
    assert wrong == {}


def test_a_run_that_saw_an_older_config_does_not_roll_back_what_another_rolled(before: Sandbox, tmp_path: Path) -> None:
    """One run reads the config, then it changes and another run rolls: the first must look at the config again."""
    with served(before, JOB, ENV) as world:
        api = sandbox_api(world.sandbox, tmp_path)

        def meanwhile() -> None:
            api.patch(configmap("shop"), {"data": {"a": "newer"}})
            _another(world)
            for obj in world.stored("deployments", "apps").values():
                settle(api, obj | {"apiVersion": "apps/v1", "kind": "Deployment"})

        world.sandbox.inject(Fault("PATCH", kind="call-before", call=meanwhile))
        assert world.run().exit_code == 0
        after = state(world)
        assert world.run().summary == {"held": 1, "unchanged": 4}
        assert state(world) == after
        rolled = {key: each["generation"] for key, each in after.items() if key[2] == "rolled"}
        assert rolled == {key: 3 if key[0] == "deployments" else 2 for key in rolled}


def _another(world: World) -> None:
    """Run the job in a process of its own, from beginning to end."""
    os.waitpid(forked(world.run), 0)


def test_a_list_that_cannot_be_read_stops_no_other(before: Sandbox) -> None:
    with served(before, JOB, ENV) as world:
        world.sandbox.inject(Fault("GET", "/apis/apps/v1/statefulsets", status=403, times=None))
        ran = world.run()

        assert ran.exit_code == 1  # what no authorizer said may be another thing the next time
        assert ran.summary == {"annotated": 1, "held": 1, "restarted": 2, "unreadable": 1}


@pytest.mark.parametrize("status", [403, 500])
def test_what_cannot_be_read_is_not_missing(before: Sandbox, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = transport.Transport.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "retry_seconds", 0)
    with served(before, JOB, ENV) as world:
        world.sandbox.inject(Fault("GET", "/api/v1/namespaces/shop/secrets/login", status=status, times=None))
        ran = world.run()

        assert (ran.exit_code, ran.summary, world.writes()) == (1, {"unreadable": 5}, [])


def test_a_roll_that_was_refused_is_told_in_no_event(before: Sandbox) -> None:
    with served(before, JOB, ENV) as world:
        world.sandbox.inject(Fault("PATCH", status=403, times=None))
        ran = world.run()

        assert (ran.exit_code, ran.summary) == (1, {"failed": 4, "held": 1})
        assert {each.method for each in world.writes()} == {"PATCH"}


def test_workloads_are_listed_by_their_metadata(trace: list[Request]) -> None:
    lists = [each for each in trace if each.path.startswith("/apis/apps/") and "/namespaces/" not in each.path]

    assert len(lists) > 3
    assert [each for each in lists if "as=PartialObjectMetadataList" not in each.accept] == []


def test_the_world_takes_every_kind_of_request(trace: list[Request]) -> None:
    kinds = {(each.method, each.path.split("/")[-2 if each.path.split("/")[-1] in NAMES else -1]) for each in trace}

    assert kinds == {
        *(("GET", plural) for plural in ("namespaces", "configmaps", "secrets")),
        *((method, plural) for plural in ("deployments", "statefulsets", "daemonsets") for method in ("GET", "PATCH")),
        ("POST", "events"),
    }


NAMES = ("settings", "login", "rolled", "paused", "fresh")
