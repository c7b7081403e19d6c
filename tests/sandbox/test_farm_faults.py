"""farm-pods that is killed, disturbed or runs twice at once: the next run ends where an undisturbed one does."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.kit import cluster, transport
from kubesandbox import Fault, Request, Sandbox
from tests.apis import Api, sandbox_api
from tests.farm import FARMED, farm_pod, owner, pod
from tests.manifests import ROOT, load
from tests.sandbox.small_world import PAGE, Key, Object, World, differing, forked, served
from tests.sandbox.test_every_fault import ONCE

pytestmark = pytest.mark.sweep
FOREIGN = {("farmpods", "shop", "farm-taken"), ("farmpods", "shop", "farm-no-pod")}
AT_ONCE = {"CHORES_WRITES_PER_SECOND": "1000"}


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
    """A world in which the next run creates, repairs, gives a FarmPod to a later pod, and has something in its way."""
    folder: Path = tmp_path_factory.mktemp("world")
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, folder)
        for obj in load(ROOT / "cronjobs" / "crds"):
            api.put(obj)
        for name in ("shop", "search"):
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": FARMED}})
        for name in ("kept", "edited", "anew", "disowned"):
            api.create(pod("shop", name))
        assert World(sandbox, "farm-pods").run().summary == {"created": 4}
        _change(api)
        yield Sandbox(of=sandbox)


def _change(api: Api) -> None:
    api.patch(farm_pod("shop", "edited"), {"spec": {"containers": 9}})
    for name in ("anew", "disowned"):
        api.patch(farm_pod("shop", name), {"metadata": {"ownerReferences": None}})
    api.delete(pod("shop", "anew"))
    api.create(pod("shop", "anew", containers=2))
    for name in ("taken", "no-pod"):
        api.create(farm_pod("shop", name, containers=9))
    for namespace, name in (("shop", "taken"), ("shop", "new"), ("search", "web"), ("search", "x" * 250)):
        api.create(pod(namespace, name))


def state(world: World) -> dict[Key, Object]:
    """What counts: FarmPods without what a second making changes."""
    kept = ("labels", "annotations", "ownerReferences")
    return {
        key: {"spec": obj["spec"], **{name: obj["metadata"].get(name) for name in kept}}
        for key, obj in world.stored("farmpods", "kubechores.dev").items()
    }


@pytest.fixture(scope="module")
def trace(before: Sandbox) -> list[Request]:
    """The requests of a run that nothing disturbs."""
    with served(before, "farm-pods", AT_ONCE) as world:
        world.run()
        return world.requests()


@pytest.fixture(scope="module")
def undisturbed(before: Sandbox) -> dict[Key, Object]:
    """How the world is after a run that nothing disturbs."""
    with served(before, "farm-pods", AT_ONCE) as world:
        ran = world.run()
        assert (ran.exit_code, ran.summary) == (
            0,
            {"created": 3, "configured": 3, "unchanged": 1, "conflict": 1},
        ), ran
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
        with served(before, "farm-pods", AT_ONCE) as world:
            foreign = {key: world.stored("farmpods", "kubechores.dev")[key] for key in FOREIGN}
            assert world.run_killed(number, when)
            found = _wrong(world, undisturbed)
            found += [key for key in FOREIGN if world.stored("farmpods", "kubechores.dev")[key] != foreign[key]]
        if found:
            wrong[f"killed {when} request {number}, {request.method} {request.path}"] = found

    with capsys.disabled():
        print(f"\n{len(trace)} runs of farm-pods killed {when} a request")  # noqa: T201 - seen without -s
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
        with served(before, "farm-pods", AT_ONCE) as world:
            world.sandbox.inject(Fault(skip=number, **ONCE[fault]))
            code = world.run().exit_code
            world.sandbox.clear_faults()
            codes[int(code)] += 1
            found: list[object] = [] if code == (2 if fault == "401" else 0) else [f"exit {code}"]
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"{trace[number].method} {trace[number].path}"] = found

    with capsys.disabled():
        print(f"\n{len(numbers)} runs of farm-pods with {fault}: exit codes {dict(codes)}")  # noqa: T201
    assert wrong == {}
    assert numbers


def test_runs_that_overlap_anywhere_end_where_one_ends(
    before: Sandbox, trace: list[Request], undisturbed: dict[Key, Object]
) -> None:
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before, "farm-pods", AT_ONCE) as world:
            world.sandbox.inject(Fault(kind="call-before", call=lambda world=world: _another(world), skip=number))  # type: ignore[misc]
            ran = world.run()
            found: list[object] = [ran] if ran.exit_code else []
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"a whole run before request {number}, {request.method} {request.path}"] = found
    assert wrong == {}


def _another(world: World) -> None:
    """Run the job in a process of its own, from beginning to end."""
    os.waitpid(forked(world.run), 0)


def test_a_pod_made_anew_at_any_moment_of_a_run_owns_its_farm_pod_after_the_next(
    before: Sandbox, trace: list[Request], tmp_path: Path
) -> None:
    """Whoever is first, the job or the garbage collector, the end is the same."""
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before, "farm-pods", AT_ONCE) as world:
            api = sandbox_api(world.sandbox, tmp_path)
            world.sandbox.inject(Fault(kind="call-before", call=lambda api=api: _renew(api), skip=number))  # type: ignore[misc]
            codes = {world.run().exit_code for _ in range(2)}
            end = state(world).get(("farmpods", "shop", "farm-kept"))
            now = world.stored("pods")["pods", "shop", "kept"]
        if codes != {0} or not end or (end["ownerReferences"], end["spec"]["containers"]) != ([owner(now)], 3):
            wrong[f"before request {number}, {request.method} {request.path}"] = (codes, end, now["metadata"]["uid"])
    assert wrong == {}


def _renew(api: Api) -> None:
    api.delete(pod("shop", "kept"))
    api.create(pod("shop", "kept", containers=3))


def test_the_world_takes_every_kind_of_request(trace: list[Request]) -> None:
    kinds = {(each.method, each.path.split("/")[-1 if each.method == "POST" else -2]) for each in trace}

    assert kinds >= {("POST", "farmpods"), ("PUT", "farmpods"), ("GET", "farmpods"), ("GET", "pods")}
    assert [each for each in trace if "continue" in each.query]
