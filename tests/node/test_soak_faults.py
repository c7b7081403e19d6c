"""Faults of a soak on a node of their own: a pod sees their effect, and afterwards the cluster works again."""

import random
from collections.abc import Callable, Iterator

import pytest

from soak.cluster import SCHEDULES, lab
from soak.faults import Faults
from soak.lab import Action, Lab
from tests.apis import wait_for
from tests.node.kubectl import Jobs
from tests.orphans import machine

pytestmark = pytest.mark.node

# Prints a line when the result of a request changes. CONTINUE stands for the token of a list before the first request.
CLIENT = """
import http.client, json, ssl, sys, time
method, path, body = sys.argv[1:]
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
    except OSError as error:
        now = type(error).__name__
    if now != last:
        print(now, flush=True)
    last = now
    time.sleep(0.1)
"""
LIST = "/api/v1/configmaps?limit=1"
CONFIG_MAP = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trial"}}'
NAMESPACE = "team-1"
SLEEP = ["python3", "-c", "import time; time.sleep(100)", "chores"]


@pytest.fixture(scope="module")
def here(_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Faults]]:
    """Yield a cluster in which no CronJob runs, and its faults. It leaves nothing behind."""
    before = machine()
    with lab(1, tmp_path_factory.mktemp("soak") / "journal", [*SCHEDULES]) as (made, programs):
        made.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        faults = Faults(made, programs)
        try:
            yield made, faults
        finally:
            faults.end()
    wait_for(lambda: machine() <= before, "nothing to be left", seconds=10, detail=lambda: machine() - before)


@pytest.fixture(autouse=True)
def shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each fault be as short as it can be."""
    monkeypatch.setattr(random.Random, "uniform", lambda _self, least, _most: least)
    monkeypatch.setattr(random.Random, "choice", lambda _self, choices: choices[0])


@pytest.fixture
def kinds(here: tuple[Lab, Faults]) -> dict[str, Action]:
    """Return the faults by kind."""
    return {kind: fault for kind, (_, fault) in here[1].kinds().items()}


@pytest.fixture
def jobs(here: tuple[Lab, Faults]) -> Iterator[Jobs]:
    """Yield Jobs of a test. Afterwards, a run succeeds and nothing of a fault is left."""
    made = here[0]
    yield Jobs(made.api, made.kubectl)
    made.kubectl("delete jobs --all -n kube-chores")
    after = Jobs(made.api, made.kubectl)
    after.create("after")
    assert after.end("after") == "Complete"
    made.kubectl("delete jobs --all -n kube-chores")
    assert not [each for each in made.journal.faults if not each.ended]


class Client:
    """A pod with the account of sync-copies that sends a request again and again."""

    def __init__(self, jobs: Jobs, method: str, path: str, body: str = "") -> None:
        jobs.create("client", command=["python3", "-c", CLIENT, method, path, body])
        self._jobs = jobs
        self._log = f"/api/v1/namespaces/kube-chores/pods/{jobs.running('client')['metadata']['name']}/log"

    def results(self) -> list[str]:
        """Return the results that differ from the one before: a status, or the exception of a failed request."""
        return self._jobs.api.request("GET", self._log)[2].decode().split()

    def wait(self, what: Callable[[list[str]], bool]) -> None:
        """Wait for results."""
        wait_for(lambda: what(self.results()), "results", detail=self.results)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("api-kill", "ConnectionRefusedError"),
        ("network-down", "TimeoutError"),
        ("network-reset", "ConnectionResetError"),
        ("credentials-binding", "403"),
    ],
)
def test_requests_fail_during_the_fault(kinds: dict[str, Action], jobs: Jobs, kind: str, error: str) -> None:
    client = Client(jobs, "GET", LIST)
    client.wait(lambda results: results == ["200"])
    kinds[kind]()

    client.wait(lambda results: error in results and results[-1] == "200")


def test_writes_of_jobs_are_refused_during_a_policy(kinds: dict[str, Action], jobs: Jobs) -> None:
    client = Client(jobs, "POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps?dryRun=All", CONFIG_MAP)
    client.wait(lambda results: results == ["201"])
    kinds["admission-policy"]()

    client.wait(lambda results: results == ["201", "422", "201"])


def test_a_continue_token_expires(kinds: dict[str, Action], jobs: Jobs) -> None:
    client = Client(jobs, "GET", f"{LIST}&continue=CONTINUE")
    client.wait(lambda results: results == ["200"])
    kinds["etcd-compact"]()

    client.wait(lambda results: results == ["200", "410"])


def test_the_process_of_a_run_is_killed(kinds: dict[str, Action], jobs: Jobs) -> None:
    jobs.create("killed", command=SLEEP)
    jobs.running("killed")
    kinds["kill-run-process"]()

    wait_for(lambda: jobs.exit_codes("killed")[0] == 137, "the exit code", detail=lambda: jobs.exit_codes("killed"))
