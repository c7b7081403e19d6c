"""Runs push metrics to a real Pushgateway, and promtool accepts what they send."""

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from jobs.kit.run.metrics import Families
from kubesandbox import Fault, Sandbox
from tests import embedded
from tests.api.conftest import runs
from tests.apis import sandbox_api
from tests.processes import processes
from tests.pushgateway import Series, series
from tests.unit.test_metrics import METRICS
from tests.worlds import configmap, namespace_object, rule

pytestmark = pytest.mark.monitoring
PROGRAMS = ("prometheus-pushgateway", "promtool")
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
OF_GATEWAY = {"instance", "job"}  # labels that it adds


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    """The URL of a Pushgateway."""
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        pytest.skip(f"no {' and no '.join(absent)}: run `make monitoring-tools` as root")
    folder = tmp_path / "gateway"
    folder.mkdir()
    with processes(folder) as run:
        # Debian's gateway keeps metrics in a file of the machine by default, so they would be there in the next test.
        run(PROGRAMS[0], "--web.listen-address=127.0.0.1:0", "--persistence.file=")
        log = folder / f"{PROGRAMS[0]}.log"
        run.wait(lambda: bool(LISTENING.search(log.read_text())), "the gateway is not ready", PROGRAMS[0])
        found = LISTENING.search(log.read_text())
        assert found
        yield f"http://{found[1]}"


def stored(gateway: str, metric: str) -> Series:
    """Return the values of a metric that the gateway has, by the labels of the job's metric."""
    with _NO_PROXY.open(f"{gateway}/metrics", timeout=10) as answer:
        return series(answer.read().decode(), metric, OF_GATEWAY)


def problems(metrics: bytes) -> str:
    """Return what promtool reports about metrics."""
    checked = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, check=False)
    return (checked.stdout + checked.stderr).decode()


def test_the_gateway_keeps_the_last_success_and_forgets_deleted_rules(gateway: str, tmp_path: Path) -> None:
    file = tmp_path / "sync.prom"
    with Sandbox(of=embedded.installed()) as sandbox:
        api = sandbox_api(sandbox, tmp_path)
        for name in ("home", "team"):
            api.create(namespace_object(name))
        api.create(configmap("home"))
        for name in ("settings", "more"):
            api.create(rule(name, "home", "team"))
        sync = runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies"))

        first = sync("--push-gateway", gateway, "--metrics-file", str(file))
        success = stored(gateway, "kube_chores_last_success_timestamp_seconds")
        sandbox.inject(Fault("GET", "/api/v1/namespaces", status=400))
        failed = sync("--push-gateway", gateway)

        assert (first.exit_code, failed.exit_code) == (0, 1), (first, failed)
        assert stored(gateway, "kube_chores_run_exit_code") == {(): 1}
        assert stored(gateway, "kube_chores_last_success_timestamp_seconds") == success != {}
        assert stored(gateway, "kube_chores_rule_copies") == {("settings",): 1, ("more",): 1}
        assert problems(file.read_bytes()) == ""

        api.delete(rule("more", "home", "team"))
        sync("--push-gateway", gateway)
        assert stored(gateway, "kube_chores_rule_copies") == {("settings",): 1}


def test_promtool_accepts_all_metrics(gateway: str) -> None:
    samples = [each.sample(1, *each.labels) for each in sorted(METRICS, key=lambda each: each.name)]

    assert problems(generate_latest(Families(samples, "sync-copies", "kube-chores"))) == ""
    assert problems(b"kube_chores_requests_total 1\n") != ""
