"""The apiserver's audit log of runs in pods: every request is covered by a shipped rule, and every rule was needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.api.conftest import Ran
from tests.api.test_rights import busy, rights
from tests.apis import Api, Object, wait_for
from tests.control_plane import audit_events
from tests.node.hands import Jobs
from tests.one_node import Node

pytestmark = pytest.mark.node
USER = "system:serviceaccount:kube-chores:sync-copies"


def test_a_run_uses_every_shipped_rule_and_nothing_else(
    node: Node, api: Api, jobs: Jobs, figure: Callable[[str], None]
) -> None:
    runs: list[str] = []

    def sync() -> Ran:
        runs.append(f"run-{len(runs)}")
        jobs.create(runs[-1])
        assert jobs.end(runs[-1]) == "Complete"
        return Ran(0, jobs.log(runs[-1]), "")

    busy(api, sync)
    start = node.plane.audit_log.stat().st_size
    sync()
    wait_for(lambda: len(requests(node, start, "RequestReceived")) == len(requests(node, start)), "the audit log")

    events = requests(node, start)
    assert [event for event in events if event["annotations"]["authorization.k8s.io/decision"] != "allow"] == []
    used = {right(event) for event in events}
    assert used == {(each.role, each.verb, each.resource) for each in rights()}
    figure(f"audit log of a full run: {len(events)} requests, {len(used)} of {len(rights())} shipped rights, 0 others")


def requests(node: Node, start: int, stage: str = "ResponseComplete") -> list[Object]:
    """The events of requests of the shipped ServiceAccount."""
    events = [event for event in audit_events(node.plane.audit_log, start) if event["stage"] == stage]
    return [event for event in events if event["user"]["username"] == USER]


def right(event: dict[str, Any]) -> tuple[str, str, str]:
    """The role that allowed it, by the server's own words, the verb and the resource."""
    found = re.search(r'of (?:Cluster)?Role "([^"]+)"', event["annotations"]["authorization.k8s.io/reason"])
    resource = event["objectRef"]
    name = "/".join(filter(None, [resource["resource"], resource.get("subresource")]))
    return found[1] if found else "", event["verb"], name
