"""roll-workloads with failing reads and writes, and with config that changes during a run."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kubesandbox import Fault
from tests.apis import sandbox_api
from tests.fault_world import Built, World
from tests.sandbox.conftest import Limit
from tests.workloads import settle
from tests.worlds import configmap

DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
DAEMON_SET = "/apis/apps/v1/namespaces/shop/daemonsets/rolled"
DEPLOYMENT = f"{DEPLOYMENTS}/rolled"
pytestmark = pytest.mark.parametrize("built", ["roll-workloads"], indirect=True)


def test_a_run_that_read_an_older_config_does_not_roll_back_the_roll_of_another(
    built: Built, world: World, tmp_path: Path
) -> None:
    """One run reads the config, then it changes and another run rolls. The first run must read the config again."""
    api = sandbox_api(world.sandbox, tmp_path)

    def meanwhile(run: Callable[[], None]) -> None:
        api.patch(configmap("shop"), {"data": {"a": "newer"}})
        run()
        for obj in world.stored("deployments", "apps").values():
            settle(api, obj | {"apiVersion": "apps/v1", "kind": "Deployment"})

    with world.run_elsewhere() as run:
        world.sandbox.inject(Fault("PATCH", kind="call-before", call=partial(meanwhile, run)))
        assert world.run().exit_code == 0
    after = built.world.state(world)
    assert world.run().summary == {"deferred": 1, "unchanged": 4}
    assert built.world.state(world) == after
    rolled = {key: each["generation"] for key, each in after.items() if key[2] == "rolled"}
    assert rolled == {key: 3 if key[0] == "deployments" else 2 for key in rolled}


def test_a_list_that_cannot_be_read_does_not_stop_others(world: World) -> None:
    world.sandbox.inject(Fault("GET", "/apis/apps/v1/statefulsets", status=403, times=None))
    ran = world.run()

    assert ran.exit_code == 1  # a 403 without an authorizer's message may be temporary
    assert ran.summary == {"annotated": 1, "deferred": 1, "restarted": 2, "unreadable": 1}


@pytest.mark.parametrize("status", [403, 500])
def test_workloads_of_a_list_in_full_that_fails_are_read_one_by_one(
    built: Built, world: World, status: int, limit: Limit
) -> None:
    limit(retry_seconds=0)
    world.sandbox.inject(Fault("GET", DEPLOYMENTS, status=status, times=None))
    ran = world.run()

    assert (ran.exit_code, ran.summary) == (0, built.world.summary)
    assert built.world.state(world) == built.end


def test_workloads_are_not_read_one_by_one_if_the_server_does_not_answer(world: World, limit: Limit) -> None:
    limit(retry_seconds=0)
    world.sandbox.inject(Fault("GET", DEPLOYMENTS, kind="reset-before", times=None))
    ran = world.run()

    assert (ran.exit_code, ran.summary) == (1, {"restarted": 2, "unreadable": 3})
    assert [each.path for each in world.requests() if each.path.startswith(f"{DEPLOYMENTS}/")] == []


@pytest.mark.parametrize("status", [403, 500])
def test_an_object_that_cannot_be_read_is_not_missing(world: World, status: int, limit: Limit) -> None:
    limit(retry_seconds=0)
    world.sandbox.inject(Fault("GET", "/api/v1/namespaces/shop/secrets/login", status=status, times=None))
    ran = world.run()

    assert (ran.exit_code, ran.summary, world.writes()) == (1, {"unreadable": 5}, [])


def test_a_refused_roll_has_no_event(world: World) -> None:
    world.sandbox.inject(Fault("PATCH", status=403, times=None))
    ran = world.run()

    assert (ran.exit_code, ran.summary) == (1, {"failed": 4, "deferred": 1})
    events = [each["reason"] for each in world.stored("events").values()]
    assert events == ["RollDeferred"]


def test_after_a_refused_roll_the_next_one_proceeds(world: World) -> None:
    world.sandbox.inject(Fault("PATCH", DAEMON_SET, status=403))
    ran = world.run("--max-rolls", "1")

    assert (ran.exit_code, ran.summary) == (1, {"annotated": 1, "failed": 1, "deferred": 2, "restarted": 1})
    assert world.run("--max-rolls", "1").summary == {"deferred": 2, "restarted": 1, "unchanged": 2}


def test_a_workload_that_is_too_large_for_etcd_fails_no_run_and_the_next_one_rolls(world: World) -> None:
    too_large = "etcdserver: request is too large"
    world.sandbox.inject(Fault("PATCH", DAEMON_SET, status=500, message=too_large, times=2))
    ran = world.run("--max-rolls", "1")

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 1, "failed": 1, "deferred": 2, "restarted": 1})
    assert "labels and annotations of other clients leave no room" in ran.stdout
    assert len([each for each in world.writes() if each.path == DAEMON_SET]) == 1


def test_a_substitute_that_changed_meanwhile_is_left_to_the_next_run(world: World, tmp_path: Path) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    found = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "rolled"}}
    label = {"metadata": {"labels": {"theirs": "yes"}}}
    world.sandbox.inject(Fault("PATCH", DAEMON_SET, status=403))
    world.sandbox.inject(Fault("PATCH", DEPLOYMENT, kind="call-before", call=lambda: api.patch(found, label)))
    ran = world.run("--max-rolls", "1")

    assert (ran.exit_code, ran.summary) == (1, {"annotated": 1, "failed": 1, "deferred": 3})
    assert world.run("--max-rolls", "3").summary == {"deferred": 1, "restarted": 3, "unchanged": 1}


def test_workloads_are_listed_by_their_metadata(built: Built) -> None:
    lists = [each for each in built.trace if each.path.startswith("/apis/apps/") and "/namespaces/" not in each.path]

    assert len(lists) > 3
    assert [each for each in lists if "as=PartialObjectMetadataList" not in each.accept] == []


@pytest.mark.parametrize(
    ("path", "arguments"), [("/api/v1/namespaces", ("-n", "shop")), ("/apis/batch/v1/cronjobs", ())]
)
def test_a_run_continues_without_the_right_to_find_mistakes(
    world: World, path: str, arguments: tuple[str, ...]
) -> None:
    plural = path.rpartition("/")[2]
    message = f'{plural} is forbidden: User "tenant" cannot list resource "{plural}" in API group ""'
    world.sandbox.inject(Fault("GET", path, status=403, message=message, times=None))
    ran = world.run("-v", *arguments)

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 1, "deferred": 1, "restarted": 3, "skipped": 1})
    assert [each["reason"].partition(": ")[2] for each in ran.results if each["code"] == "skipped"] == [message]


def test_a_run_with_credentials_that_are_not_valid_ends(world: World) -> None:
    world.sandbox.inject(Fault("GET", "/api/v1/namespaces", status=403, times=None))

    assert (world.run("-n", "shop").exit_code, world.writes()) == (1, [])


@pytest.mark.parametrize("plural", ["cronjobs", "jobs"])
def test_jobs_that_cannot_be_listed_are_listed_by_the_next_run(world: World, plural: str, limit: Limit) -> None:
    limit(retry_seconds=0)
    world.sandbox.inject(Fault("GET", f"/apis/batch/v1/{plural}", status=500, times=None))
    ran = world.run()

    assert (ran.exit_code, ran.summary) == (1, {"annotated": 1, "deferred": 1, "restarted": 3, "unreadable": 1})
