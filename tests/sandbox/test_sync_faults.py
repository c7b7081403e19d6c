"""sync-copies when it cannot read copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubesandbox import Fault
from tests.apis import sandbox_api
from tests.every_job.sync_copies import rules
from tests.fault_world import Built
from tests.worlds import rule

pytestmark = pytest.mark.parametrize("built", ["sync-copies"], indirect=True)


def test_a_list_of_copies_that_no_rule_is_about_is_missed_when_it_fails(built: Built, tmp_path: Path) -> None:
    with built.serve() as world:
        api = sandbox_api(world.sandbox, tmp_path)
        for _, _, name in rules(world):
            api.delete(rule(name, "", ""))
        world.sandbox.inject(Fault("GET", "/api/v1/secrets", status=403, times=None))
        ran = world.run()

    assert ran.exit_code == 1
    assert [each["code"] for each in ran.results if each["severity"] == "error"] == ["unreadable"]
    assert "a fault was injected" in ran.stdout


def test_a_create_whose_answer_was_lost_is_read_and_not_sent_again(built: Built) -> None:
    path, query = "/api/v1/namespaces/team-a/secrets", {"fieldManager": "kube-chores"}
    with built.serve() as world:
        world.sandbox.inject(Fault("POST", path, "fieldManager=kube-chores", kind="reset-after"))
        ran = world.run()
        sent = [each for each in world.requests() if (each.method, each.path, each.query) == ("POST", path, query)]

    usual = [each for each in built.trace if (each.method, each.path, each.query) == ("POST", path, query)]
    assert (ran.exit_code, len(sent)) == (0, len(usual))
    assert [each.status for each in sent].count(0) == 1
