"""The API server's audit log of runs in pods: a shipped rule allows each request, and each rule is needed."""

import re
from typing import Any

import pytest

from tests.api.conftest import Ran
from tests.api.test_rights import rights
from tests.apis import Api, Object, wait_for
from tests.control_plane import audit_events
from tests.every_job import rights_worlds
from tests.manifests import rights_on_copies
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs
from tests.node.publisher import Publisher
from tests.one_node import Node

pytestmark = pytest.mark.node
# A role of Kubernetes permits every account to review its own rights.
OF_EVERYBODY = ("system:basic-user", "create", "selfsubjectaccessreviews")
ENV = {"roll-workloads": {"CHORES_SETTLE": "0", "CHORES_COOL_DOWN": "0"}}


# The rights of mirrors are tested only without a node: the mirrors of that test have no pods that answer probes.
@pytest.mark.parametrize("job", [account for account in rights_worlds() if not account.startswith("mirror-")])
def test_a_run_uses_every_shipped_rule_and_nothing_else(
    node: Node, api: Api, jobs: Jobs, figure: Figure, request: pytest.FixtureRequest, job: str
) -> None:
    runs: list[str] = []
    # Only for fetch-rates: sync-copies would copy to the publisher's namespace too.
    publisher: Publisher | None = request.getfixturevalue("publisher") if job == "fetch-rates" else None

    def run() -> Ran:
        runs.append(f"run-{len(runs)}")
        jobs.create(runs[-1], of=job, env=publisher.env() if publisher else ENV.get(job, {}))
        assert jobs.end(runs[-1]) == "Complete"
        return Ran(0, jobs.log(runs[-1]), "")

    for obj in rights_on_copies() if job == "sync-copies" else ():
        api.create(obj)
    rights_worlds()[job].build(request, run)
    start = node.plane.audit_log.stat().st_size
    run()
    received = "RequestReceived"
    wait_for(lambda: len(requests(node, job, start, received)) == len(requests(node, job, start)), "the audit log")

    events = requests(node, job, start)
    assert [event for event in events if event["annotations"]["authorization.k8s.io/decision"] != "allow"] == []
    used = {right(event) for event in events} - {OF_EVERYBODY}
    shipped = {(each.role, each.verb, each.resource) for each in rights() if each.job == job}
    assert used <= shipped
    # If two roles allow a request, the authorizer names one.
    assert {each[1:] for each in used} == {each[1:] for each in shipped}
    figure(f"audit log of a full run of {job}: {len(events)} requests, all {len(shipped)} shipped rights, 0 others")


def requests(node: Node, job: str, start: int, stage: str = "ResponseComplete") -> list[Object]:
    """Return the audit events of a job's shipped ServiceAccount."""
    events = [event for event in audit_events(node.plane.audit_log, start) if event["stage"] == stage]
    user = f"system:serviceaccount:kube-chores:{job}"
    return [event for event in events if event["user"]["username"] == user]


def right(event: dict[str, Any]) -> tuple[str, str, str]:
    """Return the role that allowed a request, as the audit log reports it, the verb and the resource."""
    found = re.search(r'of (?:Cluster)?Role "([^"]+)"', event["annotations"]["authorization.k8s.io/reason"])
    resource = event["objectRef"]
    name = "/".join(filter(None, [resource["resource"], resource.get("subresource")]))
    return found[1] if found else "", event["verb"], name
