"""Objects that give each job something to write, in namespaces that no other test has."""

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.api.conftest import Ran, runs
from tests.apis import Api, Object, Request
from tests.farm import FARMED, farm_pod, pod
from tests.planes import Plane
from tests.rates import RatesServer
from tests.workloads import KEY_FLAG, roll_annotations, set_key, settle, workload
from tests.worlds import at, configmap, content, exchange_rate, namespace_object, rule, secret

WRITING = ("sync-copies", "fetch-rates", "roll-workloads", "farm-pods")
CURRENCIES = ("USD", "GBP", "JPY", "CHF", "PLN")
SOURCES = ("settings", "theme", "flags")
WORKLOADS = ("web", "worker")
FAST = {
    "CHORES_WRITES_PER_SECOND": "10000",
    "CHORES_SETTLE": "0",
    "CHORES_COOL_DOWN": "0",
    "CHORES_MAX_ROLLS": "1000",
}


@dataclass
class Town:
    """Some namespaces with sources, rules, rates, workloads and pods; the runs of jobs, and what these must write.

    Controllers do not run, so rollouts are completed here.
    """

    hub: Plane
    rates: RatesServer
    size: int = 16  # namespaces
    token: str = field(default_factory=lambda: secrets.token_hex(3))

    def __post_init__(self) -> None:
        self.teams = [f"team-{number}-{self.token}" for number in range(self.size)]
        self.home = f"home-{self.token}"
        self.sources = [*(configmap(self.home, name) for name in SOURCES), secret(self.home)]

    @property
    def api(self) -> Api:
        return self.hub.api

    def build(self) -> None:
        """Create the objects in which users have a part."""
        set_key(self.api)
        self.api.put(namespace_object(self.home))
        for each in self.sources:
            self.api.put(each)
        for team in self.teams:
            self.api.put(namespace_object(team, labels=FARMED))
            self.api.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(team, "default")})
            for each in (*self._rates(team), *self.workloads(team), *(pod(team, each) for each in WORKLOADS)):
                self.api.put(each)
            for each in self.workloads(team):
                self.settle(each)
        for each in self.rules():
            self.api.put(each)

    def rules(self) -> list[Object]:
        copied = {"configmap": "settings", "secret": "logins"}
        to = f"team-*-{self.token}"
        return [rule(f"{name}-{self.token}", self.home, to, ruleType=kind) for kind, name in copied.items()]

    @staticmethod
    def workloads(team: str) -> list[Object]:
        return [workload(team, name) for name in WORKLOADS]

    @staticmethod
    def _rates(team: str) -> list[Object]:
        return [exchange_rate(team, f"rate-{each.lower()}", each) for each in CURRENCIES]

    def settle(self, made: Object) -> None:
        """Complete the rollout of a workload, as its controller does."""
        self.api.patch_status(made, {"observedGeneration": self.api.read(made)["metadata"]["generation"]})

    def settle_all(self) -> None:
        """Complete the rollouts of all workloads."""
        for team in self.teams:
            for each in self.workloads(team):
                self.settle(each)

    def wait_for_rollouts(self, teams: Sequence[str]) -> None:
        """Wait until controllers, which run, have completed the rollouts."""
        for team in teams:
            for each in self.workloads(team):
                settle(self.api, each)

    def account(self, job: str) -> Path:
        """Return a new kubeconfig of the ServiceAccount of a job."""
        return self.api.service_account_kubeconfig("kube-chores", job)

    def run(self, job: str, url: str = "", account: Path | None = None) -> Ran:
        """Run a job with the rights of its account; at `url`, if kube-apiserver is to be reached at another one."""
        account = account or self.account(job)
        if url:
            account.write_text(account.read_text().replace(self.api.url, url))
        flags = KEY_FLAG if job == "roll-workloads" else ()
        return runs(job, account, {**FAST, **self.rates.env()})(*flags)

    def change(self) -> None:
        """Change each ConfigMap that is copied, so that copies are updated, and workloads roll."""
        for each in self.sources[: len(SOURCES)]:
            self.api.patch(each, {"data": {"a": secrets.token_hex(4)}})

    def prepare(self, job: str) -> None:
        """Have all that the next run of this job needs to write each of its objects once; roll-workloads then rolls."""
        if job == "roll-workloads":
            self.run("sync-copies")  # workloads use copies
            self.run(job)
            self.settle_all()
            self.change()
            self.run("sync-copies")

    # what must be there

    def objects(self, job: str) -> list[Object]:
        """Return the objects that the next run of a job writes, each once, after `build()` and `prepare()`."""
        return [each for team in self.teams for each in self._objects(job, team)]

    def _objects(self, job: str, team: str) -> list[Object]:
        match job:
            case "sync-copies":
                return [at(team, each) for each in self.sources]
            case "fetch-rates":
                return [configmap(team, each["metadata"]["name"]) for each in self._rates(team)]
            case "farm-pods":
                return [farm_pod(team, each) for each in WORKLOADS]
        return self.workloads(team)

    def paths(self, job: str) -> set[str]:
        """Return the paths of these objects."""
        return {*map(self.api.path, self.objects(job))}

    def done(self, job: str) -> set[str]:
        """Return the paths of those that exist; of workloads, those that were rolled."""
        found = {self.api.path(each): self.api.get(each) for each in self.objects(job)}
        rolls = job == "roll-workloads"
        return {path for path, each in found.items() if each and (not rolls or roll_annotations(each)[1])}

    def copies_that_differ(self) -> list[str]:
        """Return the places where no copy is, or one that its source does not have."""
        return [
            f"{team}/{each['metadata']['name']}"
            for each in map(self.api.read, self.sources)
            for team in self.teams
            if content(self.api.get(at(team, each))) != content(each)
        ]

    def written(self, job: str) -> Counter[str]:
        """Return how often a job wrote each object of the test since `Api.mark()`, without statuses and Events."""
        return Counter(
            f"{each.path}/{each.name}" if each.method == "POST" else each.path
            for each in self.api.writes()
            if each.user.endswith(f":{job}") and self.token in each.path and each.status < 300 and is_of_object(each)
        )

    def check_nothing_is_left(self, job: str, url: str = "") -> None:
        """Check that a run writes nothing."""
        self.api.mark()
        assert (self.run(job, url=url).exit_code, self.written(job)) == (0, {}), job

    def once(self, job: str) -> dict[str, int]:
        """Return what `written` must be if a job has written each of its objects once."""
        return dict.fromkeys(self.paths(job), 1)


def is_of_object(request: Request) -> bool:
    """Whether a request is neither of a status nor of an Event, and no dry run."""
    return not request.path.endswith(("/status", "/events")) and "dryRun" not in request.query


def _named(namespace: str, name: str) -> Object:
    return {"namespace": namespace, "name": name}
