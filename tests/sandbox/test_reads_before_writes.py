"""Objects that are read before they are written: some at once, each once, and not more than fit into memory."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.kit.api.cluster import Cluster
from jobs.kit.api.responses import Response
from jobs.kit.run import apply
from kubesandbox import Fault, Sandbox
from tests import embedded
from tests.apis import Api, sandbox_api
from tests.every_job.sync_copies import JOB
from tests.fault_world import World, served
from tests.more_kinds import of_kind
from tests.worlds import SELECTED, namespace_object, rule

TEAMS = [f"team-{number:02}" for number in range(40)]
SOURCE = of_kind("ServiceAccount", "home", SELECTED)


@pytest.fixture
def world() -> Iterator[World]:
    with served(embedded.installed(), JOB) as world:
        yield world


@pytest.fixture
def api(world: World, tmp_path: Path) -> Api:
    """A source that changed after it was copied to all teams: each copy must be read and updated."""
    api = sandbox_api(world.sandbox, tmp_path)
    for name in ("home", *TEAMS):
        api.create(namespace_object(name))
    api.create(SOURCE)
    api.create(rule("rule", "home", "team-*", ruleType="serviceaccount"))
    assert world.run().summary == {"created": len(TEAMS)}
    api.patch(SOURCE, {"imagePullSecrets": [{"name": "changed"}]})
    world.sandbox.requests.clear()
    return api


def accounts(sandbox: Sandbox) -> list[tuple[str, str]]:
    """The reads and writes of copies in their order."""
    found = [each for each in sandbox.requests if each.path.endswith("/serviceaccounts/x")]
    return [(each.method, each.path.split("/")[4]) for each in found]


def test_each_copy_is_read_once_and_some_are_read_at_once(
    world: World, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []
    read = Cluster.read

    def noted(self: Cluster, requested: Iterable[Any]) -> Iterator[Response]:
        known = list(requested)
        at_once.append(len(known))
        return read(self, known)

    monkeypatch.setattr(Cluster, "read", noted)

    assert world.run().summary == {"configured": len(TEAMS)}
    assert sorted(accounts(world.sandbox)) == sorted((method, team) for method in ("GET", "PUT") for team in TEAMS)
    assert at_once == [16, 16, 8]


def test_more_bodies_than_fit_are_read_one_by_one(world: World, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "BYTES_IN_FLIGHT", 1)

    assert world.run().summary == {"configured": len(TEAMS)}
    reads = [team for method, team in accounts(world.sandbox) if method == "GET"]
    assert set(reads) == set(TEAMS)


def test_a_read_that_fails_fails_only_its_copy(world: World, api: Api) -> None:
    path = f"/api/v1/namespaces/{TEAMS[20]}/serviceaccounts/x"
    world.sandbox.inject(Fault("GET", path, status=403, times=None))

    ran = world.run()

    assert ran.summary == {"configured": len(TEAMS) - 1, "failed": 1}


def test_a_copy_that_changed_before_it_is_read_is_planned_again(world: World, api: Api) -> None:
    path = f"/api/v1/namespaces/{TEAMS[20]}/serviceaccounts/x"
    note = json.dumps({"metadata": {"labels": {"note": "mine"}}})

    def label() -> None:
        status, *_ = api.request(
            "PATCH", path, json.loads(note), headers={"Content-Type": "application/merge-patch+json"}
        )
        assert status == 200

    world.sandbox.inject(Fault("GET", path, kind="call-before", call=label))

    assert world.run().summary == {"configured": len(TEAMS)}
    assert world.run().summary == {"unchanged": len(TEAMS)}
