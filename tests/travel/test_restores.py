"""etcd is restored from a backup while sync-copies runs: afterwards, copies are those that rules require."""

import contextlib
import random
import subprocess
from collections.abc import Callable, Iterator
from threading import Event, Thread

import pytest

from tests import model
from tests.api.conftest import Ran, runs
from tests.apis import Api, ApiError, wait_for
from tests.conftest import Chores
from tests.model import Place
from tests.planes import Plane
from tests.worlds import Object, at, configmap, namespace_object, rule, secret

pytestmark = pytest.mark.travel
TEAMS = [f"team-{number}" for number in range(4)]
NAMES = ("settings", "theme", "flags")
RULES = [
    rule("settings", "home", "team-*", metadata={"labels": {"from": "home"}}),
    rule("logins", "home", ["team-1", "team-2"], ruleType="secret"),
    rule("kept", "annex", "team-*", orphans="Retain"),
]


@pytest.fixture(scope="module", autouse=True)
def _namespaces(hub: Plane) -> None:
    for name in ("home", "annex", *TEAMS):
        hub.api.put(namespace_object(name))


def sources() -> list[Object]:
    made = [configmap("home", name) for name in NAMES]
    return [*made, configmap("annex", "kept"), secret("home"), configmap("team-0", "unrelated")]


def run(hub: Plane) -> Ran:
    account = hub.api.service_account_kubeconfig("kube-chores", "sync-copies")
    return runs("sync-copies", account)("-n", "kube-chores")


def objects(api: Api) -> dict[Place, Object]:
    found = [each for kind in ("ConfigMap", "Secret") for each in api.items("v1", kind)]
    return {model.place(each): each for each in found if not each["metadata"]["namespace"].startswith("kube-")}


def changes(api: Api, by: random.Random) -> list[Callable[[], object]]:
    """What tenants do: one of these is a write or two."""
    source, team = configmap("home", by.choice(NAMES)), by.choice(TEAMS)
    copy, added = (
        at(team, source),
        rule("added", "home", by.choice(TEAMS), targetName=f"added-{by.randrange(3)}", names=["theme"]),
    )
    return [
        lambda: api.patch(source, {"data": {"a": str(by.random())}}),
        lambda: api.patch(secret("home"), {"data": {"user": secret("home")["data"]["user"]}}),
        lambda: api.delete(source) if api.get(source) else api.create(source),
        lambda: api.patch(copy, {"data": {"a": "by hand"}}),
        lambda: api.delete(copy),
        lambda: api.delete(added) if api.get(added) else api.create(added),
        lambda: api.patch(RULES[0], {"spec": {"targets": {"exclude": [team]}}}),
        lambda: api.patch(
            namespace_object(team), {"metadata": {"annotations": {"kubechores.dev/copies": by.choice(["false", None])}}}
        ),
    ]


def check_run(hub: Plane) -> Ran:
    """Run, and check what that wrote and deleted."""
    before, namespaces = objects(hub.api), hub.api.items("v1", "Namespace")
    rules = hub.api.items("kubechores.dev/v1", "CopyratorRule", "kube-chores")
    ran = run(hub)
    after = objects(hub.api)
    assert ran.exit_code in (0, 4), ran
    assert [*model.wrong(before, after, rules, namespaces)] == []
    required = model.desired(rules, before.values(), namespaces)
    assert [
        place for place in before.keys() - after.keys() if place in required or not model.is_managed(before[place])
    ] == []
    return ran


@contextlib.contextmanager
def running(hub: Plane, chores: Chores) -> Iterator[Callable[[], bool]]:
    """Run the job in a thread, again and again, whatever it finds; after a first run, yield whether one is running."""
    account, end, is_run = hub.api.service_account_kubeconfig("kube-chores", "sync-copies"), Event(), Event()
    ended: list[subprocess.CompletedProcess[str]] = []

    def repeat() -> None:
        while not end.is_set():
            is_run.set()
            ended.append(chores("sync-copies", "-n", "kube-chores", kubeconfig=account))
            is_run.clear()

    thread = Thread(target=repeat)
    thread.start()
    try:
        wait_for(lambda: ended, "the first run")
        assert ended[0].returncode in (0, 4), ended[0]
        yield is_run.is_set
    finally:
        end.set()
        thread.join()
    assert [each for each in ended if "Traceback" in each.stderr] == []


@pytest.mark.parametrize("is_running", [False, True], ids=["between runs", "during runs"])
@pytest.mark.parametrize("writes", [1, 10, 1000])
def test_runs_after_a_restore_do_what_rules_require(hub: Plane, chores: Chores, writes: int, is_running: bool) -> None:
    by = random.Random(f"{writes} {is_running}")
    for each in [*sources(), *RULES]:
        hub.api.put(each)
    assert check_run(hub).exit_code == 0
    hub.snapshot()
    for number in range(writes):
        with contextlib.suppress(ApiError):  # of a copy that does not exist
            by.choice(changes(hub.api, by))()
        if number % max(1, writes // 5) == 0:
            check_run(hub)

    if is_running:
        with running(hub, chores) as is_run:
            hub.stop()
            wait_for(is_run, "a run while the cluster is down")
            hub.restore()
    else:
        hub.restore()

    check_run(hub)
    assert check_run(hub).summary.keys() <= {"unchanged", "retained", "conflict"}
    after = objects(hub.api)
    assert [name for name in NAMES if after.get(("ConfigMap", "team-3", name)) is None] == []
