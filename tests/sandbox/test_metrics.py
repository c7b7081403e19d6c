"""Metrics of runs: pushes to a gateway that works or fails, and files."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.kit.api.connect import Connection
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.run import session
from kubesandbox import Fault, Sandbox
from tests import canary, pushgateway
from tests.api.conftest import Ran, Run, runs
from tests.apis import GIVE_UP_SECONDS, Api, sandbox_api, wait_for
from tests.control_plane import free_port
from tests.pushgateway import Answer, Gateway, Handler, series, status
from tests.sandbox.conftest import Limit
from tests.worlds import configmap, namespace_object, rule

COPIES = "/api/v1/namespaces/*/configmaps"
LAST_RUN, LAST_SUCCESS = "kube_chores_last_run_timestamp_seconds", "kube_chores_last_success_timestamp_seconds"
LAST_WORKING = "kube_chores_last_working_timestamp_seconds"
PATH = "/metrics/job/sync-copies/installation/kube-chores"
PASSWORD = "swordfish"


@pytest.fixture
def api(sandbox: Sandbox, tmp_path: Path) -> Api:
    """An embedded cluster with one source and two places for its copy."""
    api = sandbox_api(sandbox, tmp_path)
    for name in ("home", "team-a", "team-b"):
        api.create(namespace_object(name))
    api.create(configmap("home"))
    api.create(rule("settings", "home", "team-*"))
    return api


@pytest.fixture
def sync(api: Api, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run sync-copies with its account and without a proxy."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies"))


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with pushgateway.serve() as gateway:
        yield gateway


def test_a_success_replaces_the_metrics_of_the_job(sync: Run, gateway: Gateway) -> None:
    first = sync("-n", "kube-chores", "--push-gateway", gateway.url + "/")
    sync("-n", "kube-chores", env={"CHORES_PUSH_GATEWAY": gateway.url})

    assert (first.exit_code, first.stderr.count("\n")) == (0, 1), first.stderr  # the target
    assert [(each.method, each.path) for each in gateway.pushes] == [("PUT", PATH)] * 2
    text = gateway.pushes[0].text
    assert series(text, "kube_chores_writes")["created", "done"] == 2
    assert series(gateway.last.text, "kube_chores_writes")["created", "done"] == 0
    assert series(gateway.last.text, "kube_chores_unchanged_objects") == {(): 2}
    assert series(text, LAST_RUN) == series(text, LAST_SUCCESS)
    requests = {(method,): number for method, number in first.report["traffic"]["requests"].items()}
    assert {**series(text, "kube_chores_requests"), **requests} == series(text, "kube_chores_requests")
    labels = 'kube_chores_rule_copies{chore="sync-copies",installation="kube-chores",rule="settings"} 2.0'
    assert labels in text.splitlines()


def test_a_failure_keeps_the_last_success(sandbox: Sandbox, sync: Run, gateway: Gateway) -> None:
    sandbox.inject(Fault("POST", COPIES, status=403, times=None))

    ran = sync("-n", "kube-chores", "--push-gateway", gateway.url)

    assert (ran.exit_code, gateway.last.method, gateway.last.path) == (1, "POST", PATH)
    assert series(gateway.last.text, LAST_SUCCESS) == series(gateway.last.text, LAST_WORKING) == {}
    assert series(gateway.last.text, "kube_chores_run_exit_code") == {(): 1}
    assert series(gateway.last.text, "kube_chores_rule_copies") == {("settings",): 0}
    assert series(gateway.last.text, "kube_chores_rule_ready") == {("settings",): 0}
    assert series(gateway.last.text, "kube_chores_writes")["created", "failed"] == 2


def test_a_run_that_only_a_mistaken_rule_fails_works_until_it_fails_early(
    api: Api, sandbox: Sandbox, sync: Run, gateway: Gateway, tmp_path: Path
) -> None:
    file = tmp_path / "sync.prom"
    flags = ("-n", "kube-chores", "--push-gateway", gateway.url, "--metrics-file", str(file))
    sync(*flags)
    api.patch(rule("settings", "home", "team-*"), {"spec": {"namespaces": ["platfrom"]}})

    braked = sync(*flags)
    worked = series(gateway.last.text, LAST_WORKING)
    sandbox.inject(Fault("GET", "/api/v1/namespaces", status=403, times=None))
    failed = sync(*flags)

    assert (braked.exit_code, failed.exit_code) == (4, 1)
    assert worked == series(gateway.pushes[1].text, LAST_RUN) != {}
    assert series(gateway.pushes[1].text, LAST_SUCCESS) == series(gateway.last.text, LAST_WORKING) == {}
    assert series(file.read_text(), LAST_WORKING) == worked


def test_a_run_that_reaches_no_cluster_sends_its_end(sync: Run, gateway: Gateway, tmp_path: Path, limit: Limit) -> None:
    limit(retry_seconds=0.1)
    nowhere = tmp_path / "nowhere"
    server = {"name": "a", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a", "namespace": "kube-chores"}}
    config = {"clusters": [server], "contexts": [context], "users": [{"name": "a", "user": {}}], "current-context": "a"}
    nowhere.write_text(json.dumps(config))

    ran = sync("--push-gateway", gateway.url, kubeconfig=nowhere)
    invalid = sync("--push-gateway", gateway.url, kubeconfig=Path("/nonexistent"))

    assert (ran.exit_code, invalid.exit_code) == (1, 2)
    (push,) = gateway.pushes
    assert (push.method, push.path) == ("POST", PATH)
    assert series(push.text, "kube_chores_run_exit_code") == {(): 1}
    assert series(push.text, "kube_chores_findings") == {}
    assert "metrics are not sent: the run found no cluster, so its namespace is not known" in invalid.stderr


def test_the_installation_is_the_namespace_of_the_pod(
    api: Api, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -n, the pods of one installation would send as if they were others."""
    endpoint = Endpoint(api.url, lambda: f"Bearer {api.admin_token}")
    connection = Connection(endpoint, "jobs", in_pod=True, pod_namespace="jobs")
    monkeypatch.setattr(session, "connect", lambda *_, **__: connection)

    runs("farm-pods", api.kubeconfig)("-n", "team-a", "--push-gateway", gateway.url)

    assert gateway.last.path == "/metrics/job/farm-pods/installation/jobs"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_pod_that_succeeds_without_its_metrics_has_a_message(
    api: Api, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int
) -> None:
    """After a failure, its message is the end of the log."""
    message, missing = tmp_path / "termination-log", tmp_path / "missing"
    message.touch()
    monkeypatch.setattr(session, "TERMINATION_LOG", message)
    endpoint = Endpoint(api.url, lambda: f"Bearer {api.admin_token}")
    connection = Connection(endpoint, "kube-chores", in_pod=True, pod_namespace="kube-chores")
    monkeypatch.setattr(session, "connect", lambda *_, **__: connection)
    if exit_code:
        sandbox.inject(Fault("POST", COPIES, status=403, times=None))
    flags = ("--push-gateway", f"http://ada:{PASSWORD}@127.0.0.1:{free_port()}")

    ran = runs("sync-copies", api.kubeconfig)(*flags)

    assert ran.exit_code == exit_code, ran.stderr
    assert "sync-copies: metrics are not pushed to" in ran.stderr
    text, code = message.read_text(), "metrics-not-sent: "
    assert text == "" if exit_code else text.startswith(f"{code}metrics are not pushed to http://127.0.0.1"), text
    assert PASSWORD not in text

    monkeypatch.setattr(session, "TERMINATION_LOG", missing)
    assert runs("sync-copies", api.kubeconfig)(*flags).exit_code == exit_code
    assert not missing.exists()


@pytest.mark.parametrize("flag", ["--dry-run", "--check"])
def test_a_dry_run_sends_no_metrics(sync: Run, gateway: Gateway, tmp_path: Path, flag: str) -> None:
    file = tmp_path / "sync.prom"

    ran = sync("-n", "kube-chores", flag, "--push-gateway", gateway.url, "--metrics-file", str(file))

    assert (gateway.pushes, file.exists()) == ([], False)
    assert "sync-copies: a dry run sends no metrics\n" in ran.stderr


def silence(handler: Handler) -> None:
    handler.connection.recv(1)
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """Send a byte every 50 ms for 10 seconds, so that no read of the socket times out."""
    for _ in range(200):
        handler.wfile.write(b"H")
        threading.Event().wait(0.05)


def close(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65536)


FAILURES: dict[str, tuple[Answer, str]] = {
    "a server error": (status(500), "HTTP 500 Internal Server Error"),
    "metrics that it refuses": (status(400), "HTTP 400 Bad Request"),
    "a redirect": (status(302, Location="/elsewhere"), "HTTP 302 Found"),
    "a redirect to a file": (status(307, Location="file:///etc/passwd"), "HTTP 307 Temporary Redirect"),
    "no answer": (silence, "no complete answer within 5 seconds"),
    "a byte at a time": (drip, "no complete answer within 5 seconds"),
    "a closed connection": (close, "the connection was closed without an answer"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_gateway_that_fails_is_a_warning(sync: Run, gateway: Gateway, failure: str) -> None:
    gateway.answer, reason = FAILURES[failure]
    with_password = gateway.url.replace("://", f"://user:{PASSWORD}@")

    ran = sync("-n", "kube-chores", "--push-gateway", with_password)

    warning = f"warning: sync-copies: metrics are not pushed to {gateway.url}: {reason}"
    assert (ran.exit_code, ran.stderr.splitlines()[1:]) == (0, [warning])
    assert ran.summary == {"created": 2}
    wait_for(lambda: gateway.pushes, "the gateway's thread to read a request whose sender has already given up")
    assert gateway.pushes[0].headers["Authorization"].startswith("Basic ")
    assert len(gateway.pushes) == 1
    assert PASSWORD not in ran.stdout + ran.stderr


def test_an_answer_without_an_end_is_not_read(sync: Run, gateway: Gateway) -> None:
    gateway.answer = endless

    assert sync("-n", "kube-chores", "--push-gateway", gateway.url).stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:{port}", "connection refused"),
        ("https://{gateway}", "the TLS connection failed; check that the server serves HTTPS, and the value of "),
        ("http://x" + 300 * "x", "the request failed; check the URL"),
    ],
)
def test_a_gateway_that_cannot_be_reached_is_a_warning(sync: Run, gateway: Gateway, url: str, reason: str) -> None:
    at = url.format(port=free_port(), gateway=gateway.url.removeprefix("http://"))

    ran = sync("-n", "kube-chores", "--push-gateway", at)

    assert ran.exit_code == 0
    assert f"metrics are not pushed to {at}: {reason}" in ran.stderr


def test_proxies_come_from_the_environment(sync: Run, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", gateway.url)
    through_proxy = sync("-n", "kube-chores", "--push-gateway", "http://pushgateway.invalid")
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    failed = sync("-n", "kube-chores", "--push-gateway", gateway.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    direct = sync("-n", "kube-chores", "--push-gateway", gateway.url)

    assert [each.path for each in gateway.pushes] == [f"http://pushgateway.invalid{PATH}", PATH]
    assert "the proxy of HTTPS_PROXY or HTTP_PROXY failed: connection refused" in failed.stderr
    assert [each.stderr.count("\n") for each in (through_proxy, failed, direct)] == [1, 2, 1]


def test_the_command_that_lifts_a_brake_has_no_url_of_the_gateway(api: Api, sync: Run, gateway: Gateway) -> None:
    sync("-n", "kube-chores")
    api.delete(rule("settings", "home", "team-*"))
    with_password = gateway.url.replace("://", f"://user:{PASSWORD}@")

    ran = sync("-n", "kube-chores", "--max-deletes", "1", "--push-gateway", with_password)

    assert ran.exit_code == 4
    assert "--max-deletes 2" in ran.stderr
    assert PASSWORD not in ran.stderr
    assert series(gateway.last.text, "kube_chores_brake_engaged") == {(): 1}


def started(api: Api, *options: str) -> subprocess.Popen[str]:
    """Start sync-copies as a process."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "sync-copies")
    command = [sys.executable, "-m", "jobs", "sync-copies", "-n", "kube-chores", "--kubeconfig", str(kubeconfig)]
    env = {**os.environ, "NO_PROXY": "127.0.0.1"}
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def ended(run: subprocess.Popen[str]) -> Ran:
    stdout, stderr = run.communicate(timeout=GIVE_UP_SECONDS)
    canary.observed("stdout", stdout + stderr)
    return Ran(run.returncode, stdout, stderr)


def test_a_stopped_run_sends_its_end(sandbox: Sandbox, api: Api, gateway: Gateway) -> None:
    arrived, release = threading.Event(), threading.Event()

    def keep() -> None:
        arrived.set()
        release.wait(GIVE_UP_SECONDS)

    sandbox.inject(Fault("POST", COPIES, kind="call-before", call=keep, times=None))
    run = started(api, "--push-gateway", gateway.url)
    assert arrived.wait(GIVE_UP_SECONDS)
    run.send_signal(signal.SIGTERM)
    release.set()

    assert ended(run).exit_code == 143
    assert gateway.last.method == "POST"
    assert series(gateway.last.text, "kube_chores_run_exit_code") == {(): 143}
    assert series(gateway.last.text, "kube_chores_rule_copies") == {}


@pytest.mark.parametrize(("by", "warns"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_signal_during_a_push_does_not_change_the_exit_code(
    api: Api, gateway: Gateway, by: signal.Signals, warns: bool
) -> None:
    arrived, release = threading.Event(), threading.Event()

    def keep(handler: Handler) -> None:
        arrived.set()
        release.wait(GIVE_UP_SECONDS)
        handler.send(200, {}, b"")

    gateway.answer = keep
    run = started(api, "--push-gateway", gateway.url)
    assert arrived.wait(GIVE_UP_SECONDS)
    run.send_signal(by)
    if warns:
        ran = ended(run)
        release.set()
    else:
        release.set()
        ran = ended(run)

    assert ran.exit_code == 0
    assert (f"metrics are not pushed to {gateway.url}: interrupted" in ran.stderr) is warns


# files


def test_a_file_has_the_metrics_and_everybody_can_read_it(sync: Run, tmp_path: Path) -> None:
    file = tmp_path / "sync.prom"
    before = os.umask(0o077)
    try:
        sync("-n", "kube-chores", "--metrics-file", str(file))
    finally:
        os.umask(before)

    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert series(file.read_text(), "kube_chores_rule_copies") == {("settings",): 2}
    assert [each.name for each in tmp_path.glob("*sync.prom*")] == ["sync.prom"]


def test_a_file_keeps_the_last_success(sandbox: Sandbox, sync: Run, tmp_path: Path) -> None:
    file = tmp_path / "sync.prom"
    sync("-n", "kube-chores", "--metrics-file", str(file))
    success = series(file.read_text(), LAST_SUCCESS)
    sandbox.inject(Fault("GET", "/api/v1/namespaces", status=403, times=None))

    ran = sync("-n", "kube-chores", "--metrics-file", str(file))

    assert ran.exit_code == 1
    assert series(file.read_text(), LAST_SUCCESS) == success
    assert series(file.read_text(), LAST_RUN)[()] > success[()]
    assert series(file.read_text(), "kube_chores_run_exit_code") == {(): 1}


OTHERS = "has other metrics; use a file for sync-copies of kube-chores only"


@pytest.mark.parametrize(
    "content",
    [
        'kube_chores_run_exit_code{chore="farm-pods",installation="kube-chores"} 0\n',
        'kube_chores_run_exit_code{chore="sync-copies",installation="other"} 0\n',
        "disk_healthy 1\n",
        "not metrics at all\n",
        'x{a="\n',
        "\x00\xff",
        "{}{}{}=1 1 1",
    ],
)
def test_a_file_with_other_metrics_stays(sync: Run, tmp_path: Path, content: str) -> None:
    file = tmp_path / "node.prom"
    file.write_text(content, "latin-1")

    ran = sync("-n", "kube-chores", "--metrics-file", str(file))

    assert (ran.exit_code, file.read_text("latin-1")) == (0, content)
    assert f"warning: sync-copies: metrics are not written: {file} {OTHERS}\n" in ran.stderr


def test_a_file_that_cannot_be_written_is_a_warning(sync: Run, tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe.prom", tmp_path / "folder.prom"
    os.mkfifo(pipe)
    folder.mkdir()
    reasons = {
        tmp_path / "absent" / "a.prom": "No such file or directory",
        pipe: "it is not a file",
        folder: "it is not a file",
        Path("/proc/x.prom"): "No such file or directory",
    }

    for path, reason in reasons.items():
        ran = sync("-n", "kube-chores", "--metrics-file", str(path))
        assert ran.exit_code == 0
        assert f"warning: sync-copies: metrics are not written to {path}: {reason}; check that " in ran.stderr
