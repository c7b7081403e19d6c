"""`chores status` when the API server refuses one of its requests, or one kind of object."""

from pathlib import Path

from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Fault, Sandbox
from tests.apis import Api, sandbox_api
from tests.every_job import status as scenarios
from tests.sandbox.conftest import Limit
from tests.worlds import configmap, exchange_rate, namespace_object, rule, secret

# The clock of this machine serves as well; the list of one namespace too; roll-workloads needs no right to list Jobs.
OPTIONAL = ("/version", "/apis/batch/v1/cronjobs", "/apis/batch/v1/jobs")


def build(sandbox: Sandbox, folder: Path) -> Api:
    """Build a cluster with objects for each job."""
    api = sandbox_api(sandbox, folder)
    for name in ("platform", "team-shop"):
        api.create(namespace_object(name, labels={"kubechores.dev/farm": "true"}))
    api.create(configmap("platform"))
    api.create(secret("platform"))
    api.create(rule("ca", "platform", "team-*"))
    api.create(rule("logins", "platform", "team-*", ruleType="secret"))
    api.create(exchange_rate("team-shop"))
    scenarios.failed(api, "fetch-rates", 2, "a role is missing")
    return api


def test_a_request_that_is_refused_becomes_a_note(sandbox: Sandbox, tmp_path: Path, limit: Limit) -> None:
    api = build(sandbox, tmp_path)

    def status() -> tuple[int, str]:
        done = CliRunner().invoke(chores, ["status"], env={"KUBECONFIG": str(api.kubeconfig)})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, " ".join(done.output.split())

    api.mark()
    assert "note:" not in status()[1]
    paths = {each.path for each in api.requests() if each.method == "GET"}

    unnoticed = []
    for path in sorted(paths):
        resource = path.rstrip("/").split("/")[-1]
        message = f'User "ada" cannot list resource "{resource}" in API group "" at the cluster scope'
        sandbox.inject(Fault("GET", path, status=403, message=f"{resource} is forbidden: {message}", times=None))
        code, shown = status()
        sandbox.clear_faults()
        if code != 0 or ("cannot" not in shown and path not in OPTIONAL):
            unnoticed.append((path, code, shown[-300:]))

    assert unnoticed == []
    assert len(paths) > 15
    limit(retry_seconds=0)
    sandbox.inject(Fault("GET", "/apis/batch/v1/cronjobs", status=500, times=None))
    assert status()[0] == 1, "an installation that cannot be read is not one without CronJobs"
