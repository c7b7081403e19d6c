"""SIGTERM and Ctrl-C: requests in flight are finished, the report is written, and the next run continues."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobs.core.mirror_audit.desired import CACHE_PORT, PORT
from kubesandbox import Fault, Sandbox
from tests import canary, terminal
from tests.apis import GIVE_UP_SECONDS, Api, Object, sandbox_api, wait_for
from tests.farm import farmed, listed, pod
from tests.mirrors import NAMESPACE, Mirrors, registry_mirror
from tests.rates import serve, silence
from tests.registries import serve as serve_registries
from tests.worlds import at, configmap, content, exchange_rate, namespace_object, rule

COPIES = "/api/v1/namespaces/*/configmaps"


@pytest.fixture
def api(sandbox: Sandbox, tmp_path: Path) -> Api:
    """An embedded cluster with one source and forty places for its copies."""
    api = sandbox_api(sandbox, tmp_path)
    home = api.namespace("home")
    api.create(configmap(home))
    for number in range(40):
        api.namespace(f"team-{number}")
    api.create(rule("settings", home, f"team-*-{api.token}"))
    api.mark()
    return api


def started(api: Api, job: str = "sync-copies", *options: str, **env: str) -> subprocess.Popen[str]:
    """Start a job with its own account, and with JSON as output."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", job)
    command = [sys.executable, "-m", "jobs", job, "-o", "json", "--kubeconfig", str(kubeconfig), *options]
    inherited = {**os.environ, **env}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=inherited)


class Held:
    """Requests that the server handles once they are released."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.arrived, self.released = threading.Event(), threading.Event()
        sandbox.inject(Fault("POST", COPIES, kind="call-before", call=self._hold, times=None))

    def _hold(self) -> None:
        self.arrived.set()
        self.released.wait(GIVE_UP_SECONDS)


@pytest.fixture
def held(sandbox: Sandbox) -> Iterator[Held]:
    """All creates of copies."""
    made = Held(sandbox)
    yield made
    made.released.set()


def stopped(
    run: subprocess.Popen[str], by: signal.Signals = signal.SIGTERM, held: Held | None = None
) -> tuple[int, str, str]:
    """Stop a run, once requests are held; then release them."""
    if held:
        assert held.arrived.wait(GIVE_UP_SECONDS)
    run.send_signal(by)
    if held:
        held.released.set()
    stdout, stderr = run.communicate(timeout=GIVE_UP_SECONDS)
    canary.observed("stdout", stdout + stderr)
    return run.returncode, stdout, stderr


@pytest.mark.parametrize(("by", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_run_finishes_requests_in_flight_and_reports(
    sandbox: Sandbox, api: Api, held: Held, by: signal.Signals, exit_code: int
) -> None:
    code, stdout, _ = stopped(started(api), by, held)

    assert (code, json.loads(stdout)["exitCode"]) == (exit_code, exit_code)
    summary = json.loads(stdout)["summary"]
    assert summary["created"] == len(api.copy_writes())
    assert summary["created"] + summary["stopped"] == 40
    assert [write for write in api.writes() if write.path.endswith("/status")] == []

    sandbox.clear_faults()
    done = started(api)
    stdout, _ = done.communicate(timeout=GIVE_UP_SECONDS)
    assert json.loads(stdout)["summary"] == {"created": summary["stopped"], "unchanged": summary["created"]}


def test_a_run_that_is_stopped_in_a_large_namespace_has_completed_the_small_ones(api: Api) -> None:
    large = farmed(api, "a-large")
    small = [farmed(api, f"small-{number}") for number in range(4)]
    for namespace, pods in ((large, 60), *((each, 3) for each in small)):
        for number in range(pods):
            api.create(pod(namespace, f"web-{number}"))
    run = started(api, "farm-pods", "--writes-per-second", "5")
    wait_for(lambda: listed(api, large), "the first FarmPods of the large namespace")

    code, stdout, _ = stopped(run)

    assert code == 143
    created = json.loads(stdout)["summary"]["created"]
    assert [len(listed(api, each)) for each in small] == [3, 3, 3, 3]
    assert 0 < len(listed(api, large)) == created - 12 < 60


def test_a_server_that_does_not_answer_delays_a_stop_only_by_seconds(api: Api, held: Held) -> None:
    run = started(api)
    assert held.arrived.wait(GIVE_UP_SECONDS)

    code, stdout, _ = stopped(run)

    assert code == 143
    assert json.loads(stdout)["exitCode"] == 143


@pytest.mark.parametrize(("by", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_stopped_while_it_observes_reports_that(
    sandbox: Sandbox, api: Api, by: signal.Signals, exit_code: int
) -> None:
    arrived = threading.Event()

    def stop() -> None:
        arrived.wait(GIVE_UP_SECONDS)
        run.send_signal(by)

    sandbox.inject(Fault("GET", "/api/v1/namespaces", kind="call-before", call=stop))
    run = started(api)
    arrived.set()
    stdout, stderr = run.communicate(timeout=GIVE_UP_SECONDS)
    code = run.returncode

    assert (code, stdout) == (exit_code, "")
    assert stderr.endswith("error: stopped before anything was decided; nothing was written\n")


def test_a_second_ctrl_c_ends_the_run_without_a_report(api: Api, held: Held) -> None:
    run = started(api)
    assert run.stderr
    assert held.arrived.wait(GIVE_UP_SECONDS)
    run.send_signal(signal.SIGINT)
    announced = next(line for line in run.stderr if "Ctrl-C" in line)

    code, stdout, stderr = stopped(run, signal.SIGINT)

    assert announced == "stopping: waiting for answers to requests in flight; press Ctrl-C again to stop at once\n"
    assert (code, stdout, stderr) == (130, "", "")


def test_ctrl_c_on_a_terminal_is_answered_on_a_line_of_its_own(sandbox: Sandbox, api: Api) -> None:
    arrived = threading.Event()
    sandbox.inject(Fault("POST", COPIES, kind="call-before", call=arrived.set))
    sandbox.inject(Fault("POST", COPIES, kind="delay", seconds=1, times=None))
    kubeconfig = api.service_account_kubeconfig("kube-chores", "sync-copies")
    with terminal.started("sync-copies", env={"KUBECONFIG": str(kubeconfig)}) as run:
        assert arrived.wait(GIVE_UP_SECONDS)
        run.process.send_signal(signal.SIGINT)

        code, shown = run.ended()

    assert code == 130
    assert "\n\nstopping: waiting for" in shown


@pytest.mark.parametrize("state", ["is terminating", "does not exist"])
def test_a_namespace_that_is_deleted_during_a_run_is_skipped(sandbox: Sandbox, api: Api, state: str) -> None:
    team = f"team-0-{api.token}"
    place = namespace_object(team)
    if state == "is terminating":
        metadata = {"name": "protected", "namespace": team, "finalizers": ["example.com/protect"]}
        api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    def delete() -> None:
        api.delete(place)
        if state == "does not exist":
            wait_for(lambda: api.get(place) is None, "the deletion of the namespace")

    sandbox.inject(Fault("POST", f"/api/v1/namespaces/{team}/configmaps", kind="call-before", call=delete))
    run = started(api)
    stdout, _ = run.communicate(timeout=GIVE_UP_SECONDS)

    report = json.loads(stdout)
    assert (run.returncode, report["summary"]) == (0, {"created": 39, "skipped": 1})
    (skipped,) = [result for result in report["results"] if result["outcome"] == "skipped"]
    assert skipped["message"] == f"namespace {team} {state}"
    source = configmap(f"home-{api.token}")
    assert content(api.get(at(f"team-1-{api.token}", source))) == content(source)


@pytest.mark.parametrize("silent", ["the upstream", "the registry", "the cache"])
def test_mirrors_that_hang_do_not_delay_a_stop(api: Api, tmp_path: Path, silent: str) -> None:
    mirrors = Mirrors(api)
    mirrors.node()
    with serve_registries(tmp_path) as registries:
        mirror = mirrors.healthy(upstream=registries.upstream)
        urls = {
            "the upstream": f"https://{registries.upstream}/v2/",
            "the registry": f"http://{mirror.name}.{NAMESPACE}.svc:{PORT}/v2/",
            "the cache": f"http://{mirror.headless_service.name}.{NAMESPACE}.svc:{CACHE_PORT}/",
        }
        host = urlsplit(urls[silent]).netloc
        registries.answers[host] = silence
        run = started(api, "mirror-audit", **registries.env)
        wait_for(lambda: host in [asked for asked, _ in registries.requests], f"{silent} to be asked")

        code, stdout, _ = stopped(run)

    assert code == 143
    found = {(each["code"], each["reason"]) for each in json.loads(stdout)["results"]}
    of_stop = {name: ("unreadable", f"{url}: not fetched: the run was stopped") for name, url in urls.items()}
    # On a busy machine, those that answer did not respond yet either, and a registry's finding is also its cache's.
    assert found <= {*of_stop.values()}
    assert of_stop[silent] in found or (silent == "the cache" and of_stop["the registry"] in found)
    unobserved = api.read(registry_mirror(mirror.registry_mirror.name))
    assert not has_status_of_a_run(unobserved), "a mirror that was not observed has none"


def test_a_provider_that_hangs_does_not_delay_a_stop(api: Api) -> None:
    shop = api.namespace("shop")
    rate = api.create(exchange_rate(shop))
    with serve() as rates:
        rates.serve("ecb", silence)
        run = started(api, "fetch-rates", **rates.env())
        wait_for(lambda: rates.requests, "the provider to be asked")

        code, stdout, _ = stopped(run)

        assert code == 143
        assert "not fetched: the run was stopped" in stdout
        assert rates.fetched() == ["ecb"]
    assert not has_status_of_a_run(api.read(rate)), "a stopped run writes none"


def has_status_of_a_run(obj: Object) -> bool:
    return "observedGeneration" in obj["status"]
