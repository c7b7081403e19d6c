"""farm-pods in the suites that run over all jobs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.conftest import Run, runs
from tests.apis import Api
from tests.every_job import RightsWorld, Scenario
from tests.every_job.outputs import shown
from tests.farm import FARMED, farm_pod, farmed, pod
from tests.fault_world import FaultWorld, State, World, kinds, metadata
from tests.worlds import namespace_object

JOB = "farm-pods"
FOREIGN = {("farmpods", "shop", "farm-foreign"), ("farmpods", "shop", "farm-no-pod")}
AT_ONCE = {"CHORES_WRITES_PER_SECOND": "1000"}


# a world for runs with faults


@contextmanager
def _world(api: Api) -> Iterator[Mapping[str, str]]:
    """Build a world in which a run creates and repairs FarmPods, changes an owner, and finds a conflict."""
    for name in ("shop", "search"):
        api.create(namespace_object(name, labels=FARMED))
    for name in ("kept", "edited", "recreated", "disowned"):
        api.create(pod("shop", name))
    assert runs(JOB, api.kubeconfig)().summary == {"created": 4}
    _changes(api)
    yield AT_ONCE


def _changes(api: Api) -> None:
    api.patch(farm_pod("shop", "edited"), {"spec": {"containers": 9}})
    for name in ("recreated", "disowned"):
        api.patch(farm_pod("shop", name), {"metadata": {"ownerReferences": None}})
    api.delete(pod("shop", "recreated"))
    api.create(pod("shop", "recreated", containers=2))
    for name in ("foreign", "no-pod"):
        api.create(farm_pod("shop", name, containers=9))
    for namespace, name in (("shop", "foreign"), ("shop", "new"), ("search", "web"), ("search", "x" * 250)):
        api.create(pod(namespace, name))


def _state(world: World) -> State:
    """Return FarmPods without fields that change when they are recreated."""
    return {
        key: {"spec": obj["spec"], **metadata(obj, "labels", "annotations", "ownerReferences")}
        for key, obj in world.stored("farmpods", "kubechores.dev").items()
    }


def _untouched(world: World) -> State:
    found = world.stored("farmpods", "kubechores.dev")
    return {key: found[key] for key in FOREIGN} | world.stored("pods")


FAULTS = [
    FaultWorld(
        name=JOB,
        job=JOB,
        build=_world,
        state=_state,
        untouched=_untouched,
        summary={"created": 3, "configured": 3, "unchanged": 1, "conflict": 1},
        sent=kinds(list="namespaces pods farmpods", get="pods farmpods", create="farmpods", update="farmpods"),
        read_singly=frozenset({"pods"}),
        read_by_name=frozenset(
            {"farm-edited", "edited", "farm-recreated", "recreated"}
        ),  # a FarmPod whose spec was ever changed, and its pod
    )
]


# a world in which a run uses all its permissions


def _to_list(request: pytest.FixtureRequest, farm: Run) -> None:
    api: Api = request.getfixturevalue("api")
    shop = farmed(api)
    api.create(pod(shop, "kept"))
    assert farm().exit_code == 0
    api.patch(farm_pod(shop, "kept"), {"metadata": {"ownerReferences": None}})
    api.create(pod(shop, "new"))


RIGHTS = [RightsWorld(JOB, _to_list)]


# outputs


def run(api: Api, *arguments: str) -> str:
    return shown(api, JOB, *arguments)


def opted_in(api: Api, *pods: str) -> None:
    api.patch(namespace_object("team-shop"), labelled(True))
    for name in pods:
        api.create(pod("team-shop", name, containers=2 if name.startswith("web") else 1))


def labelled(yes: bool) -> dict[str, object]:
    return {"metadata": {"labels": FARMED if yes else dict.fromkeys(FARMED)}}


def first(api: Api, _folder: Path) -> str:
    opted_in(api, "web-0", "web-1", "rates-29384")
    return "\n".join([run(api), run(api), run(api, "-v")])


def braked(api: Api, _folder: Path) -> str:
    opted_in(api, "web-0", "web-1", "rates-29384")
    return run(api, "--max-objects", "2")


SCENARIOS: dict[str, Scenario] = {
    "A first run, a second one, and the second one with -v": first,
    "There would be more FarmPods than allowed": braked,
}
