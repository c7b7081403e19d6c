"""Each alert fires on a real cluster when what it reports breaks, and resolves when it is repaired.

Jobs send their metrics to a real Pushgateway, and a real Prometheus evaluates the alerts. They have no `for`, and a
shorter limit for farm-pods. All faults are there at the same time, so that the test takes seconds, and each fires one
alert.
"""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.core.mirror_audit.desired import Mirror
from jobs.kit.run import gauges
from jobs.kit.values.registry import CLUSTERS
from tests.api import conftest as of_apis
from tests.api import test_clusters as of_clusters
from tests.api.conftest import runs
from tests.api.test_clusters import Spoke, enlist, fleet
from tests.apis import Api, Object, wait_for
from tests.control_plane import programs
from tests.mirrors import Mirrors
from tests.monitoring.parts import ALERTS, Monitoring, alerts, expressions, missing, rules, start, with_short_times
from tests.processes import processes
from tests.rates import RatesServer, ago
from tests.registries import Registries
from tests.workloads import KEY_FLAG, set_key, settle, workload
from tests.worlds import at, configmap, exchange_rate, namespace_object, rule

pytestmark = [pytest.mark.monitoring, pytest.mark.parametrize("api", ["real"], indirect=True)]
mirrors, no_pauses, rates, registries = of_apis.mirrors, of_apis.no_pauses, of_apis.rates, of_apis.registries
hub, uid, spokes = of_clusters.hub, of_clusters.uid, of_clusters.spokes

Job = Callable[[str], int]
Alert = tuple[str, str]  # its name, and what it is about
JOBS = ("fetch-rates", "mirror-audit", "roll-workloads", "farm-pods", "sync-copies", CLUSTERS)
SECONDS = 60.0  # until Prometheus shows it, on a busy machine
FARM_RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kube-chores-farm-pods"


@pytest.fixture
def monitoring(tmp_path: Path) -> Iterator[Monitoring]:
    """A Pushgateway, and a Prometheus with the alerts of the component."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path / "monitoring"
    folder.mkdir()
    with processes(folder) as run:
        yield start(run, with_short_times(rules(ALERTS)))


@pytest.fixture
def job(
    api: Api, installed: Path, rates: RatesServer, registries: Registries, no_pauses: None, monitoring: Monitoring
) -> Job:
    """Run a job with the account of its CronJob and --push-gateway; return its exit code."""
    images = {"CHORES_IMAGES": "1", "HTTPS_PROXY": "http://127.0.0.1:1"}  # no registry is reached
    more = {"fetch-rates": rates.env(), "mirror-audit": {**registries.env, **images}}
    flags = {
        "roll-workloads": [*KEY_FLAG, "--settle", "0", "--cool-down", "0"],
        CLUSTERS: ["--clusters", f"*-{api.token}"],
    }

    def run(name: str) -> int:
        command = "sync-copies" if name == CLUSTERS else name
        account = runs(command, api.service_account_kubeconfig("kube-chores", name), more.get(name))
        ran = account(*flags.get(name, ()), "--push-gateway", monitoring.gateway)
        assert "metrics are not" not in ran.stderr, ran.stderr
        return ran.exit_code

    return run


def volume(name: str) -> Object:
    return {"volumes": [{"name": "config", "configMap": {"name": name}}]}


class World:
    """Objects of each job that are as desired, except for rates that are six days old, and a job without a right."""

    def __init__(self, api: Api, mirrors: Mirrors, rates: RatesServer, registries: Registries, spoke: Spoke) -> None:
        self.api, self.mirrors, self.rates, self.spoke = api, mirrors, rates, spoke
        home, self.team = api.namespace("home"), api.namespace("team")
        self.source = api.create(configmap(home))
        self.other = configmap(home, "logins", labels={"app": "logins"})
        api.create(self.other)
        api.create(rule("settings", home, self.team))
        self.rule = api.create(rule("logins", home, self.team, selector={"matchLabels": {"app": "logins"}}))
        enlist(api, spoke)
        spoke.api.create(namespace_object("team"))
        api.create(fleet("fleet", home, "team"))
        self.unknown = exchange_rate(self.team, "xts", "XTS")
        rates.publish(day=ago(6))
        api.create(exchange_rate(self.team))
        self.mirror: Mirror = mirrors.healthy("hub", registries.upstream)
        self.config = api.create(configmap(home, "app", labels={}))
        self.home = home
        settle(api, api.create(workload(home, pod=volume("app"))))
        self.slow = api.create(workload(home, "slow", replicas=1, pod=volume("slow")))
        self.slow_config = api.create(configmap(home, "slow", labels={}))
        set_key(api)
        self.rights = api.call("GET", FARM_RIGHTS)
        api.call("DELETE", FARM_RIGHTS)

    def causes(self) -> dict[Alert, str]:
        """Return the alerts that fire after `damage()`, each with what its command prints about its cause."""
        return {
            ("ChoreNotSucceeding", "farm-pods"): "farm-pods",
            ("RuleNotReady", "settings"): "Conflict",
            ("RuleNotReady", "logins"): "SourceNamespaceMissing",
            ("ClusterNotReady", self.spoke.name): f"{self.spoke.name} (Conflict)",
            ("MirrorNotReady", self.mirror.registry_mirror.name): "statefulset",
            ("RateNotUpdated", f"{self.team}/xts"): "Unavailable",
            ("RateNotUpdated", f"{self.team}/usd"): str(ago(6)),
            ("RollsDeferred", "missing-source"): "configmap/app does not exist; create it",
            ("RollsIncomplete", ""): "old pods that still exist: 1",
        }

    def damage(self) -> None:
        """Break something for each job."""
        foreign = configmap(self.team, labels={})
        self.api.delete(foreign)
        self.api.create(foreign)
        self.spoke.api.delete(at("team", self.source))
        self.spoke.api.create(configmap("team", labels={}))
        self.api.patch(self.rule, {"spec": {"namespaces": ["platfrom"]}})
        self.api.create(self.unknown)
        self.api.delete(self.mirror.stateful_set.document())
        self.api.delete(self.config)
        self.api.patch(self.slow_config, {"data": {"a": "bad"}})

    def repair(self) -> None:
        """Repair it, as a person on call does."""
        self.api.delete(at(self.team, self.source))
        self.spoke.api.delete(at("team", self.source))
        self.api.patch(self.rule, {"spec": {"namespaces": [self.home]}})
        self.api.patch(self.unknown, {"spec": {"currency": "GBP"}})
        self.rates.publish()
        self.mirrors.apply(self.mirror.stateful_set.document())
        self.mirrors.settle(self.mirror)
        self.api.create(configmap(self.home, "app", labels={}, data={"a": "2"}))
        self.api.patch(self.slow, {"spec": {"replicas": 0}})
        kept = {key: self.rights[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
        self.api.put({**kept, "metadata": {key: self.rights["metadata"][key] for key in ("name", "labels")}})


def printed(api: Api, command: str) -> str:
    """Run the command of an alert as an administrator; return what it prints."""
    program, *words = shlex.split(command)
    if program == "chores":
        env = {"KUBECONFIG": str(api.kubeconfig), "CHORES_SETTLE": "0"}  # the alerts fire at once
        output = CliRunner().invoke(chores, words, env=env).output
        return " ".join(output.split())
    where = [str(programs() / program), "--kubeconfig", str(api.kubeconfig), f"--cache-dir={api.folder}"]
    return subprocess.run([*where, *words], capture_output=True, text=True, timeout=300, check=True).stdout


def test_each_alert_fires_when_something_breaks_and_resolves_when_it_is_repaired(
    api: Api,
    monitoring: Monitoring,
    job: Job,
    mirrors: Mirrors,
    rates: RatesServer,
    registries: Registries,
    spokes: list[Spoke],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fires() -> dict[Alert, Object]:
        subjects = ("chore", "rule", "cluster", "mirror", "rate", "reason")
        found = ((each["labels"], each) for each in monitoring.firing())
        return {(of["alertname"], next((of[key] for key in subjects if key in of), "")): each for of, each in found}

    def wait_until_fire(*expected: Alert) -> dict[Alert, Object]:
        wait_for(lambda: fires().keys() == {*expected}, f"{expected} to fire, and no others", SECONDS, fires)
        return fires()

    wait_until_fire(("ChoresNotReporting", ""))
    world = World(api, mirrors, rates, registries, spokes[0])
    assert job("farm-pods") == 2
    wait_until_fire(("NoChoreSucceeding", ""))
    assert {name: job(name) for name in JOBS} == {**dict.fromkeys(JOBS, 0), "farm-pods": 2}
    wait_until_fire(("ChoreNotSucceeding", "farm-pods"), ("RateNotUpdated", f"{world.team}/usd"))

    world.damage()
    job("roll-workloads")
    assert {name: job(name) for name in JOBS} == {**dict.fromkeys(JOBS, 0), "farm-pods": 2, "sync-copies": 4}
    causes = world.causes()
    for each, alert in wait_until_fire(*causes).items():
        assert causes[each] in printed(api, alert["annotations"]["command"]), alert
    assert {panel: monitoring.query(each) for panel, each in expressions().items() if not monitoring.query(each)} == {}
    used = {label for labels, _ in monitoring.query('{__name__=~"kube_chores_.+"}') for label in labels}
    assert "namespace" not in used

    world.repair()
    wait_for(lambda: job("farm-pods") == 0, "the right to be effective")
    assert {name: job(name) for name in JOBS} == dict.fromkeys(JOBS, 0)
    wait_until_fire()

    monkeypatch.setattr(gauges, "MOST_RESOURCES", 1)
    job("fetch-rates")
    wait_until_fire(("MetricsOmitted", "fetch-rates"))
    monkeypatch.setattr("jobs.kit.run.metrics.time", lambda: time.time() + 3600)
    job("farm-pods")
    wait_until_fire(("MetricsOmitted", "fetch-rates"), ("ChoreTimeInFuture", ""))
    monkeypatch.undo()
    assert [job("fetch-rates"), job("farm-pods")] == [0, 0]
    wait_until_fire()

    monitoring.delete("farm-pods", "kube-chores")
    lost = ("ChoreNotSucceeding", "farm-pods")
    wait_for(lambda: job("fetch-rates") == 0 and fires().keys() == {lost}, f"{lost} to fire", SECONDS, fires)
    job("farm-pods")
    wait_until_fire()
    others = {"ChoresNotReporting", "NoChoreSucceeding", "MetricsOmitted", "ChoreTimeInFuture"}
    assert {*(name for name, _ in causes), *others} == {each["alert"] for each in alerts(ALERTS)}
