"""The key of roll-workloads with failing reads and writes, and with a concurrent run that writes it."""

from base64 import b64decode
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.kit.api.connect import Connection
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.run import session
from kubesandbox import Fault
from tests.apis import sandbox_api
from tests.fault_world import World
from tests.sandbox.conftest import Limit
from tests.workloads import KEY, set_key

pytestmark = pytest.mark.parametrize("built", ["roll-workloads-first"], indirect=True)
PATH = "/api/v1/namespaces/kube-chores/secrets/roll-workloads-key"


def key_of(world: World) -> str:
    (found,) = [obj for key, obj in world.stored("secrets").items() if key[2] == KEY["metadata"]["name"]]
    return b64decode((found.get("data") or {}).get("key", "")).decode()


def test_of_two_first_runs_one_writes_the_key_and_both_use_it(world: World) -> None:
    with world.run_elsewhere() as run:
        world.sandbox.inject(Fault("PUT", kind="call-before", call=run))
        ran = world.run()

    assert (ran.exit_code, ran.summary["skipped"]) == (0, 1)
    assert [each.status for each in world.writes() if each.method == "PUT"].count(200) == 1
    assert world.run().summary == {"annotated": 1, "unchanged": 2}


def test_a_secret_that_is_labelled_meanwhile_gets_its_key(world: World, tmp_path: Path) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    label = {"metadata": {"labels": {"theirs": "yes"}}}
    world.sandbox.inject(Fault("PUT", kind="call-before", call=lambda: api.patch(KEY, label)))
    ran = world.run()

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 2, "configured": 1, "skipped": 1})
    assert world.run().summary == {"annotated": 1, "unchanged": 2}


@pytest.mark.parametrize("status", [403, 422, 500])
def test_a_key_that_cannot_be_written_affects_only_workloads_with_secrets(
    world: World, status: int, limit: Limit
) -> None:
    limit(retry_seconds=0)
    world.sandbox.inject(Fault("PUT", PATH, status=status, times=None))
    ran = world.run()

    assert (ran.exit_code, ran.summary) == (1, {"annotated": 2, "failed": 1, "skipped": 1})
    assert sorted(each.method for each in world.writes()) == ["PATCH", "PATCH", "PUT"]


def test_a_key_in_the_message_of_a_webhook_is_redacted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.roll_workloads.secrets.token_hex", lambda _bytes: "5ec2e7" * 10)
    encoded = "NWVjMmU3" * 10
    message = f'admission webhook "x" denied the request: {"5ec2e7" * 10} {encoded}'
    world.sandbox.inject(Fault("PUT", PATH, status=422, message=message))
    ran = world.run()

    assert 'denied the request: *** ***"' in ran.stdout
    assert "5ec2e7" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("given", [(), ("-n", "shop")])
def test_in_a_pod_the_key_is_in_the_namespace_of_the_pod(
    world: World, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    endpoint = Endpoint(world.sandbox.url, lambda: f"Bearer {world.sandbox.admin_token}")
    connection = Connection(endpoint, "kube-chores", in_pod=True, pod_namespace="kube-chores")
    monkeypatch.setattr(session, "connect", lambda *_, **__: connection)

    done = CliRunner().invoke(chores, ["roll-workloads", *given])

    assert done.exit_code == 0, done.output
    assert len(key_of(world)) == 64


def test_a_large_key_is_used_unchanged(world: World, tmp_path: Path) -> None:
    set_key(sandbox_api(world.sandbox, tmp_path), "canary" * 10_000)

    assert world.run().summary == {"annotated": 3}
