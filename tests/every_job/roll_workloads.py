"""roll-workloads in the suites that run over all jobs."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.kit.values.resources import EVENTS
from tests.api.conftest import Run, runs
from tests.apis import Api
from tests.every_job import RightsWorld, Scenario
from tests.every_job.outputs import listed, shown
from tests.fault_world import FaultWorld, Object, State, World, kinds, metadata
from tests.workloads import BASELINE, FROM_A_VOLUME, KEY, KEY_FLAG, KINDS, ROLL_ID, set_key, settle, workload
from tests.worlds import configmap, namespace_object, secret

JOB = "roll-workloads"
ENV = {"CHORES_SETTLE": "0", "CHORES_COOL_DOWN": "0"}
POD: Object = {
    "volumes": [
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "login", "secret": {"secretName": "login"}},
    ]
}


# a world whose requests fail in the tests of faults


@contextmanager
def _world(api: Api) -> Iterator[Mapping[str, str]]:
    """A run rolls three workloads, records one baseline, defers one roll, and ignores the others."""
    api.create(namespace_object("shop"))
    api.create(configmap("shop"))
    api.create(secret("shop"))
    set_key(api)
    for kind in KINDS:
        settle(api, api.create(workload("shop", "rolled", kind, pod=POD)))
    paused = workload("shop", "paused", pod=POD, paused=True)
    settle(api, api.create(paused))
    assert runs(JOB, api.kubeconfig, ENV)(*KEY_FLAG).summary == {"annotated": 4}
    for each in (paused, *(workload("shop", "rolled", kind) for kind in KINDS)):
        api.patch_status(each, {"observedGeneration": 9})  # as if controllers observed each roll at once
    api.patch(configmap("shop"), {"data": {"a": "changed"}})
    api.patch(secret("shop"), secret("shop"))
    settle(api, api.create(workload("shop", "fresh", pod=POD)))
    for number in range(4):
        api.create(workload("shop", f"unrelated-{number}", opted_in=None, pod=POD))
    yield ENV


@contextmanager
def _first(api: Api) -> Iterator[Mapping[str, str]]:
    """A run writes the key and records two baselines; the next one records the third, of a workload with a Secret."""
    api.create(namespace_object("shop"))
    api.create(configmap("shop"))
    api.create(secret("shop"))
    api.create(workload("shop", "fresh", pod=POD))
    for kind in ("StatefulSet", "DaemonSet"):
        api.create(workload("shop", "no-secret", kind))
    yield ENV


def _filled(world: World) -> State:
    """Return workloads without fingerprints of Secrets, and the fields of the Secret of the key."""
    found = _state(world)
    for each in found.values():
        each["annotations"][BASELINE] = re.sub(r'(secret/login)":"\w+', r"\1", each["annotations"][BASELINE] or "")
    ((key, stored),) = [item for item in world.stored("secrets").items() if item[0][2] == KEY["metadata"]["name"]]
    return {**found, key: {**metadata(stored, "labels", "uid"), "keys": sorted(stored.get("data") or {})}}


def _given(world: World) -> State:
    return world.stored("configmaps") | {
        key: obj for key, obj in world.stored("secrets").items() if key[1] != KEY["metadata"]["namespace"]
    }


def _state(world: World) -> State:
    """Return workloads without the times of their baselines; their generations count rollouts."""
    found: State = {}
    for plural in ("deployments", "statefulsets", "daemonsets"):
        for key, obj in world.stored(plural, "apps").items():
            annotations = {**obj["metadata"].get("annotations", {})}
            annotations[BASELINE] = annotations.get(BASELINE, "").partition(',"rolledAt"')[0].partition('"sources"')[2]
            template = obj["spec"]["template"]
            was_rolled = ROLL_ID in (template["metadata"].get("annotations") or {})
            generation = obj["metadata"]["generation"]
            found[key] = {"annotations": annotations, "generation": generation, "was_rolled": was_rolled}
    return found


def _untouched(world: World) -> State:
    workloads = world.stored("deployments", "apps")
    unrelated = {key: obj for key, obj in workloads.items() if key[2].startswith("unrelated-")}
    return unrelated | world.stored("configmaps") | world.stored("secrets")


_WORKLOADS = "deployments statefulsets daemonsets"
FAULTS = [
    FaultWorld(
        name=JOB,
        job=JOB,
        build=_world,
        state=_state,
        untouched=_untouched,
        summary={"annotated": 1, "deferred": 1, "restarted": 3},
        sent=kinds(
            list=f"namespaces cronjobs jobs {_WORKLOADS}",
            get="configmaps secrets statefulsets daemonsets",  # Deployments are listed in full
            create="events",
            patch=_WORKLOADS,
        ),
        read_singly=frozenset({"deployments"}),
    ),
    FaultWorld(
        name=f"{JOB}-first",
        job=JOB,
        build=_first,
        state=_filled,
        untouched=_given,
        summary={"annotated": 2, "configured": 1, "skipped": 1},
        sent=kinds(
            list=f"namespaces cronjobs jobs {_WORKLOADS}",
            get=f"configmaps secrets {_WORKLOADS}",
            update="secrets",
            patch="statefulsets daemonsets",
        ),
        independent_writes=False,
        runs=2,
    ),
]


# a world whose run uses all rights


def _to_roll(request: pytest.FixtureRequest, roll: Run) -> None:
    api: Api = request.getfixturevalue("api")
    space = api.namespace("shop")
    source = api.create(configmap(space))
    api.create(secret(space))
    made = [api.create(workload(space, "rolled", kind)) for kind in KINDS]
    assert roll().exit_code == 0
    for each in made:
        settle(api, each)
    api.patch(source, {"data": {"a": "changed"}})
    api.create(workload(space, "fresh", pod=LOGIN))
    for number in range(7):  # so many that the others are read by name
        api.create(workload(space, f"unrelated-{number}", opted_in=None))
    set_key(api, None)


RIGHTS = [RightsWorld(JOB, _to_roll, "roll")]


# the output that users read

AT_ONCE = ("--settle", "0", "--cool-down", "0")
LOGIN = {"volumes": [*FROM_A_VOLUME["volumes"], {"name": "login", "secret": {"secretName": "login"}}]}


WORKLOADS = (workload("team-shop", "api", pod=LOGIN), workload("team-shop", "db", "StatefulSet"))


def run(api: Api, *arguments: str) -> str:
    return re.sub(r"\b\d+ s ago", "3 s ago", shown(api, JOB, *KEY_FLAG, *arguments))


def shop(api: Api, *, has_key: bool = True) -> None:
    """Create two workloads in team-shop."""
    if has_key:
        set_key(api)
    api.create(configmap("team-shop"))
    api.create(secret("team-shop"))
    for each in WORKLOADS:
        settle(api, api.create(each))


def with_baselines(api: Api) -> None:
    """Create two workloads in team-shop with baselines."""
    shop(api)
    run(api)
    for each in WORKLOADS:
        settle(api, each)


def change(api: Api) -> None:
    api.patch(configmap("team-shop"), {"data": {"a": "changed"}})


def first(api: Api, _folder: Path) -> str:
    shop(api, has_key=False)
    return f"{run(api)}\n{run(api)}"


def deferred(api: Api, _folder: Path) -> str:
    shop(api)
    fresh = workload("team-shop", "fresh", pod={"volumes": [{"name": "v", "configMap": {"name": "to-come"}}]})
    api.create(fresh)
    run(api)
    change(api)
    api.patch(workload("team-shop", "api"), {"spec": {"paused": True}})
    api.patch(workload("team-shop", "db", "StatefulSet"), {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    deferred = run(api, *AT_ONCE)
    only = "involvedObject.name=api"
    path = f"{EVENTS.path('team-shop')}?fieldSelector={only}"
    events = listed(api, path, f"kubectl get events -n team-shop --field-selector {only}", _age)
    return f"{deferred}\n{events}"


def _age(cell: str) -> str:
    return re.sub(r"^\d+s$", "12s", cell)


def explained(api: Api, _folder: Path) -> str:
    with_baselines(api)
    change(api)
    api.create(workload("team-shop", "web", opted_in=None))
    api.patch(WORKLOADS[1], {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    every = run(api, *AT_ONCE, "--explain", "team-shop")
    one = re.sub(r"after 20\S+", "after 2026-01-01T00:00:30Z", run(api, "--explain", "team-shop/api"))
    return f"{every}\n{one}"


SCENARIOS: dict[str, Scenario] = {
    "A first run, and a second one": first,
    "Deferred workloads": deferred,
    "Why workloads of a namespace are, or are not, restarted": explained,
}
