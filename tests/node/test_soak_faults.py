"""Faults of a soak on a node of their own: a pod sees their effect, and afterwards the cluster works again."""

import json
import random
from collections.abc import Callable, Iterator
from itertools import groupby

import pytest

from soak.cluster import SCHEDULES, lab
from soak.faults import Faults
from soak.lab import Action, Lab
from tests.apis import GIVE_UP_SECONDS, Object, wait_for
from tests.node.kubectl import Jobs
from tests.orphans import machine

pytestmark = pytest.mark.node

# Prints a line when the result of a request changes. CONTINUE stands for the token of a list before the first request.
CLIENT = """
import http.client, json, signal, ssl, sys, time
method, path, body = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
own = "/var/run/secrets/kubernetes.io/serviceaccount"
context = ssl.create_default_context(cafile=own + "/ca.crt")
headers = {"Authorization": "Bearer " + open(own + "/token").read(), "Content-Type": "application/json"}
def send(path):
    connection = http.client.HTTPSConnection("10.0.0.1", timeout=2, context=context)
    connection.request(method, path, body or None, headers)
    response = connection.getresponse()
    return response.status, response.read()
if "CONTINUE" in path:
    listed = json.loads(send(path.replace("&continue=CONTINUE", ""))[1])
    path = path.replace("CONTINUE", listed["metadata"]["continue"])
last = None
while True:
    try:
        now = str(send(path)[0])
    except (OSError, http.client.HTTPException) as error:
        now = type(error).__name__
    if now != last:
        print(now, flush=True)
    last = now
    time.sleep(0.1)
"""
CONFIG_MAPS = "/api/v1/configmaps?limit=1"
PODS = "/api/v1/pods?limit=1"
# The admission policies refuse an object without the stamp of a copy.
STAMP = {
    "app.kubernetes.io/managed-by": "kube-chores",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-namespace": "kube-chores",
}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trial", "labels": STAMP}}
DELETE_JOBS = "delete jobs --all -n kube-chores --cascade=foreground"  # and wait for the end of their pods
FIRST_SECONDS = 180.0  # controllers may wait for up to 30 seconds after a restart of the API server
EXPIRES_SECONDS = 60.0
NAMESPACE = "team-1"
# What a request results in during a fault.
ERRORS = {
    "api-kill": "ConnectionRefusedError",
    "network-down": "TimeoutError",
    "network-reset": "ConnectionResetError",
    "credentials-binding": "403",
}
SLEEP = ["python3", "-c", "import time; time.sleep(100)", "chores"]


@pytest.fixture(scope="module")
def here(_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Faults]]:
    """Yield a cluster in which no CronJob runs, and its faults. Afterwards, a run succeeds, and nothing is left."""
    before = machine()
    with lab(1, tmp_path_factory.mktemp("soak") / "journal", [*SCHEDULES]) as (made, programs):
        made.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        first = Jobs(made.api, made.kubectl)
        first.create("first")
        assert first.end("first", FIRST_SECONDS) == "Complete"
        faults = Faults(made, programs)
        try:
            yield made, faults
            made.kubectl(DELETE_JOBS)
            first.create("after")
            assert first.end("after") == "Complete", "the cluster works after all faults"
        finally:
            faults.end()
    wait_for(lambda: machine() <= before, "nothing to be left", seconds=10, detail=lambda: machine() - before)


@pytest.fixture(autouse=True)
def shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each fault be as short as it can be, and choose the first of several values."""
    monkeypatch.setattr(random.Random, "uniform", lambda _self, least, _most: least)
    monkeypatch.setattr(random.Random, "choice", lambda _self, choices: choices[0])


@pytest.fixture
def kinds(here: tuple[Lab, Faults]) -> dict[str, Action]:
    """Return the faults by kind."""
    return {kind: fault for kind, (_, fault) in here[1].kinds().items()}


@pytest.fixture
def jobs(here: tuple[Lab, Faults]) -> Iterator[Jobs]:
    """Yield Jobs of a test. Afterwards, all faults ended."""
    made = here[0]
    made.kubectl(DELETE_JOBS)
    yield Jobs(made.api, made.kubectl)
    assert not [each for each in made.journal.faults if not each.ended]


class Client:
    """A pod with the account of a job that sends a request again and again."""

    def __init__(self, jobs: Jobs, path: str, body: Object | None = None, *, of: str = "sync-copies") -> None:
        method = "POST" if body else "GET"
        jobs.create("client", of=of, command=["python3", "-c", CLIENT, method, path, json.dumps(body) if body else ""])
        self._jobs = jobs
        self._log = f"/api/v1/namespaces/kube-chores/pods/{jobs.running('client')['metadata']['name']}/log"

    def results(self) -> list[str]:
        """Return the results that differ from the one before: a status, or the exception of a failed request."""
        status, _, log = self._jobs.api.request("GET", self._log)
        return log.decode().split() if status == 200 else []

    def succeed(self) -> int:
        """Wait until the last result is 200. Return the number of results so far."""
        results: list[str] = []

        def succeeds() -> bool:
            results[:] = self.results()
            return results[-1:] == ["200"]

        self.wait(succeeds)
        return len(results)

    def fail_with(self, error: str, since: int) -> None:
        """Wait until a request failed with this error, not before the result number `since`."""
        self.wait(lambda: error in self.results()[since:])

    def statuses(self) -> list[str]:
        """Return the statuses that differ from the one before: on a loaded machine, a response can come too late."""
        return [status for status, _ in groupby(filter(str.isdecimal, self.results()))]

    def wait(self, what: Callable[[], bool], seconds: float = GIVE_UP_SECONDS) -> None:
        """Wait for results."""
        wait_for(what, "results", seconds, detail=self.results)


def test_requests_fail_during_each_fault_and_succeed_afterwards(kinds: dict[str, Action], jobs: Jobs) -> None:
    client = Client(jobs, PODS, of="farm-pods")  # its binding is the first one
    for kind, error in ERRORS.items():
        since = client.succeed()
        kinds[kind]()
        client.fail_with(error, since)
    client.succeed()


def test_writes_of_jobs_are_refused_during_a_policy(kinds: dict[str, Action], jobs: Jobs) -> None:
    client = Client(jobs, f"/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All", CONFIG_MAP)
    client.wait(lambda: client.statuses() == ["201"])
    kinds["admission-policy"]()

    client.wait(lambda: client.statuses() == ["201", "422", "201"])


def test_a_continue_token_expires(kinds: dict[str, Action], jobs: Jobs) -> None:
    client = Client(jobs, f"{CONFIG_MAPS}&continue=CONTINUE")
    client.wait(lambda: client.statuses() == ["200"])
    kinds["etcd-compact"]()

    client.wait(lambda: client.statuses() == ["200", "410"], EXPIRES_SECONDS)


def test_the_process_of_a_run_is_killed(kinds: dict[str, Action], jobs: Jobs) -> None:
    jobs.create("killed", command=SLEEP)
    jobs.running("killed")
    kinds["kill-run-process"]()

    wait_for(lambda: jobs.exit_codes("killed")[0] == 137, "the exit code", detail=lambda: jobs.exit_codes("killed"))
