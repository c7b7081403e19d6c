"""The farm on a real API server: what kubectl prints, and the cost of two thousand pods."""

import json
import re
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from datetime import datetime
from math import ceil
from pathlib import Path

import msgspec
import pytest

from jobs.kit.api.cluster import PAGE_SIZE
from jobs.kit.api.connect import connect
from jobs.kit.api.responses import Request
from jobs.kit.api.transport import Transport
from tests.api.conftest import Run, runs
from tests.apis import GIVE_UP_SECONDS, Api, Object, wait_for
from tests.cluster.test_install import kubectl
from tests.control_plane import ControlPlane, audit_events
from tests.farm import farmed, listed, pod
from tests.manifests import ROOT, load
from tests.worlds import namespace_object

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("api", ["real"], indirect=True)]
PAGES = [(ROOT / "docs" / name).read_text() for name in ("farm-pods.md", "farmpod.md")]
PODS = 2000
RATE = 400


@pytest.fixture
def farm(api: Api, installed: Path) -> Run:
    """Run farm-pods with the rights of the shipped ServiceAccount."""
    return runs("farm-pods", api.service_account_kubeconfig("kube-chores", "farm-pods"))


def test_kubectl_prints_the_farm_as_in_the_docs(api: Api, farm: Run) -> None:
    shop = farmed(api)
    for name, containers in (("web-0", 2), ("web-1", 2), ("rates-29384", 1)):
        api.create(pod(shop, name, containers))
    assert farm("-n", shop).exit_code == 0
    sample = next(each for each in load(ROOT / "cronjobs" / "samples" / "farm.yaml") if each["kind"] == "Llama")
    api.create({**sample, "metadata": {"name": "dolly", "namespace": shop}})
    for page in PAGES:
        command, _, rows = page.partition("$ kubectl get ")[2].partition("```")[0].partition("\n")

        printed = kubectl(api, "get", *command.replace(" shop", f" {shop}").split())

        assert re.sub(r"\d+s$", "5m", printed, flags=re.M) == rows, command


@pytest.fixture
def crowd(api: Api) -> Iterator[str]:
    """Yield a namespace with many pods, and delete it after the test."""
    shop = farmed(api)
    transport = Transport(connect(str(api.kubeconfig)).endpoint, "tests")
    path = f"/api/v1/namespaces/{shop}/pods"
    bodies = (msgspec.json.encode(pod(shop, f"web-{number:04}")) for number in range(PODS))
    statuses = {each.status for each in transport.stream(Request("POST", path, body) for body in bodies)}
    transport.close()
    assert statuses == {201}
    yield shop
    api.delete(namespace_object(shop))
    wait_for(lambda: not api.items("v1", "Pod", shop, limit="1"), "the pods to be deleted", 120)


def test_many_pods_in_runs_that_are_blocked_stopped_and_finished(
    api: Api, plane: ControlPlane, farm: Run, crowd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.mark()
    blocked = farm("-n", crowd, "--max-objects", str(PODS - 1))
    assert (blocked.exit_code, blocked.summary, api.writes()) == (4, {"over-limit": 1}, [])
    assert f"--max-objects {PODS + PODS // 10}" in blocked.stderr

    position = plane.audit_log.stat().st_size
    code, summary = cut(api, crowd)
    assert code == 143
    assert summary["created"] + summary["stopped"] == PODS
    assert summary["created"] == len(listed(api, crowd)) > 50
    rest = farm("-n", crowd, "--writes-per-second", str(RATE))
    assert rest.summary == {"created": summary["stopped"], "unchanged": summary["created"]}
    rates = [rate(times) for times in posts(plane, position, crowd)]
    assert max(rates) <= RATE * 1.05

    api.mark()
    again = farm()
    requests, traffic = api.requests(), again.report["traffic"]
    figures = listed_bytes(api, crowd)
    assert again.summary["unchanged"] == PODS
    assert api.writes() == []
    # FarmPods, namespaces, and pods of each namespace: the last full page may be followed by an empty one.
    most = 2 * (ceil(PODS / PAGE_SIZE) + 1) + 2 * again.report["facts"]["namespaces"]
    assert len(requests) <= most
    assert traffic["requests"] == {"GET": len(requests)}
    assert traffic["bytesReceived"] <= 1.02 * sum(figures) + 10_000, "each list is read once"
    with capsys.disabled():
        print(  # noqa: T201 - shown without -s
            f"\n{PODS} pods, all with their FarmPods: {len(requests)} requests, no write, {traffic['bytesReceived']} "
            f"bytes received ({figures[0]} of pods, {figures[1]} of FarmPods); cut after {summary['created']} writes; "
            f"{' and '.join(f'{each:.0f}' for each in rates)} writes a second of {RATE} allowed"
        )


def cut(api: Api, namespace: str) -> tuple[int, Object]:
    """Run the job in a process that gets SIGTERM while it writes, as from activeDeadlineSeconds."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "farm-pods")
    command = [sys.executable, "-m", "jobs", "farm-pods", "-o", "json", "-n", namespace, "--kubeconfig", kubeconfig]
    process = subprocess.Popen(
        [*map(str, command), "--writes-per-second", str(RATE)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: len(listed(api, namespace)) > 50, "the first FarmPods")
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=GIVE_UP_SECONDS)
    return process.returncode, json.loads(stdout)["summary"]


def posts(plane: ControlPlane, position: int, namespace: str) -> list[list[datetime]]:
    """Return the times of POST requests for FarmPods by run; runs differ by their connections."""
    found: dict[str, list[datetime]] = {}
    for event in audit_events(plane.audit_log, position):
        of = event.get("objectRef", {})
        if event["stage"] == "RequestReceived" and (event["verb"], of.get("namespace")) == ("create", namespace):
            run = event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]
            time = datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00"))
            found.setdefault(run, []).append(time)
    return list(found.values())


def rate(times: list[datetime]) -> float:
    return (len(times) - 1) / (max(times) - min(times)).total_seconds()


def listed_bytes(api: Api, namespace: str) -> list[int]:
    """Return the bytes of the lists of pods and of FarmPods, read page by page."""
    paths = (f"/api/v1/namespaces/{namespace}/pods", f"/apis/kubechores.dev/v1/namespaces/{namespace}/farmpods")
    return [pages(lambda query, path=path: api.request("GET", f"{path}?{query}")[2]) for path in paths]  # type: ignore[misc]


def pages(get: Callable[[str], bytes]) -> int:
    token, size = "", 0
    while True:
        body = get(urllib.parse.urlencode({"limit": PAGE_SIZE, **({"continue": token} if token else {})}))
        size += len(body)
        token = json.loads(body)["metadata"].get("continue", "")
        if not token:
            return size
