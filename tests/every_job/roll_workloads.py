"""roll-workloads in the suites that run over all jobs."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.kit.values.resources import EVENTS
from tests.api.conftest import Run, runs
from tests.apis import Api, wait_for
from tests.every_job import RightsWorld, Scenario
from tests.every_job.outputs import listed, shown
from tests.fault_world import FaultWorld, Object, State, World, kinds, metadata
from tests.workloads import (
    BASELINE,
    FROM_A_VOLUME,
    KEY,
    KEY_FLAG,
    KINDS,
    ROLL_ID,
    ROLLOUTS,
    install_rollouts,
    rollout,
    set_key,
    settle,
    with_status,
    workload,
)
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


@contextmanager
def _rollouts(api: Api) -> Iterator[Mapping[str, str]]:
    """A run rolls a Rollout and a workload whose period is over. Two are deferred: paused, and outside of a window."""
    api.create(ROLLOUTS)
    api.create(namespace_object("shop"))
    set_key(api)
    api.create(configmap("shop"))
    web, paused, other, weekly = (
        rollout("shop"),
        rollout("shop", "paused"),
        workload("shop", "outside"),
        workload("shop", "weekly", pod={}),
    )
    weekly["metadata"]["annotations"]["kubechores.dev/roll-every"] = "168h"
    for each in (web, paused):
        api.create(each)
        with_status(api, each)
    for each in (other, weekly):
        settle(api, api.create(each))
    env = {**ENV, "CHORES_ARGO_ROLLOUTS": "1", "CHORES_ROLL_WINDOW": "* * * * * 1h"}
    run = runs(JOB, api.kubeconfig, env)
    assert run().summary == {"annotated": 4}
    settle(api, weekly)
    assert run().summary == {"annotated": 1, "unchanged": 3}, "its period begins"
    baseline = api.read(weekly)["metadata"]["annotations"][BASELINE]
    begun = re.sub(r'"recorded":"\d{4}', '"recorded":"2020', baseline)
    closed = {"kubechores.dev/roll-window": "0 0 29 2 * 1m"}
    api.patch(weekly, {"metadata": {"annotations": {BASELINE: begun}}})
    api.patch(other, {"metadata": {"annotations": closed}})
    for each in (other, weekly):
        api.patch_status(each, {"observedGeneration": 9})
    for each, status in ((web, {}), (paused, {"phase": "Paused", "message": "CanaryPauseStep"})):
        done = {"observedGeneration": "9", "restartedAt": "2100-01-01T00:00:00Z"}
        with_status(api, each, **done, **status)  # as if its controller did each roll at once
    api.patch(configmap("shop"), {"data": {"a": "changed"}})
    for number in range(4):
        api.create(workload("shop", f"unrelated-{number}", opted_in=None))
    yield env


def _with_rollouts(world: World) -> State:
    """Return the state, with Rollouts without the times of their restarts."""
    found = _state(world)
    for key, obj in world.stored("rollouts", "argoproj.io", "v1alpha1").items():
        text = obj["metadata"]["annotations"].get(BASELINE, "").partition('"sources"')[2]
        found[key] = {"baseline": text, "is_restarted": "restartAt" in obj["spec"]}
    return found


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
    FaultWorld(
        name=f"{JOB} of Rollouts and times",
        job=JOB,
        build=_rollouts,
        state=_with_rollouts,
        untouched=_untouched,
        summary={"deferred": 2, "restarted": 2},
        sent=kinds(
            list=f"namespaces cronjobs jobs rollouts {_WORKLOADS}",
            get="configmaps",
            create="events",
            patch="rollouts deployments",
        ),
        read_singly=frozenset({"deployments", "rollouts"}),
        optional=frozenset({"rollouts"}),
    ),
]


# a world whose run uses all rights


def _to_roll(request: pytest.FixtureRequest, roll: Run) -> None:
    api: Api = request.getfixturevalue("api")
    space = api.namespace("shop")
    source = api.create(configmap(space))
    api.create(secret(space))
    made = [api.create(workload(space, "rolled", kind)) for kind in KINDS]
    install_rollouts(api)
    request.addfinalizer(lambda: _deleted(api, ROLLOUTS))
    argo = api.create(rollout(space, "rolled"))
    with_status(api, argo)
    assert roll("--argo-rollouts").exit_code == 0
    for each in made:
        settle(api, each)
    api.patch(source, {"data": {"a": "changed"}})
    api.create(workload(space, "fresh", pod=LOGIN))
    for number in range(7):  # so many that the others are read by name
        for make in (workload, rollout):
            api.create(make(space, f"unrelated-{number}", opted_in=None))
    set_key(api, None)


def _deleted(api: Api, obj: Object) -> None:
    api.delete(obj)
    wait_for(lambda: api.get(obj) is None, "the CRD to be deleted")


RIGHTS = [RightsWorld(JOB, _to_roll, "roll", ("--argo-rollouts",))]


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
