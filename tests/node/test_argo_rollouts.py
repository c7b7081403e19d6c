"""Rollouts restart once when their config changed, with the controller of Argo Rollouts."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apis import Api, Object, wait_for
from tests.manifests import ROOT
from tests.node.kubectl import Jobs, Kubectl
from tests.node.test_rolls import AT_ONCE, pods
from tests.one_node import Node
from tests.processes import Processes
from tests.workloads import FROM_A_VOLUME, workload
from tests.worlds import configmap

pytestmark = pytest.mark.node
IMAGE = "localhost/pause:1"
WITH_ROLLOUTS = {**AT_ONCE, "CHORES_ARGO_ROLLOUTS": "1"}


@pytest.fixture(scope="module")
def argo(node: Node, kubectl: Kubectl, with_copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the CRDs and the permissions of roll-workloads, and run the controller on this machine."""
    build = ROOT / "tools" / "argo-rollouts" / "build"
    folder = Path(subprocess.run([build], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    objects = [*sorted(folder.glob("*.yaml")), ROOT / "cronjobs" / "components" / "argo-rollouts" / "rbac.yaml"]
    files = " ".join(f"-f {each}" for each in objects)
    kubectl(f"create {files}")
    kubectl("wait --for=condition=Established crd --all --timeout=60s")
    processes = Processes(tmp_path_factory.mktemp("argo"))
    processes(folder / "rollouts-controller", f"--kubeconfig={node.plane.kubeconfig}", "--leader-elect=false")
    try:
        yield
    finally:
        processes.end()
        kubectl(f"delete {files}")


def rollout(space: str, name: str = "web", **spec: Any) -> Object:
    """Return a Rollout with two idle pods."""
    made = workload(space, name, pod=FROM_A_VOLUME, replicas=2, **spec)
    pod = made["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = IMAGE
    pod["terminationGracePeriodSeconds"] = 0
    made["spec"].setdefault("strategy", {"canary": {}})
    return {**made, "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}


def healthy(api: Api, made: Object, phase: str = "Healthy") -> None:
    def has_phase() -> bool:
        found = api.read(made)
        status = found.get("status", {})
        is_observed = status.get("observedGeneration") == str(found["metadata"]["generation"])
        is_restarted = status.get("restartedAt") == found["spec"].get("restartAt")
        return bool(is_observed and is_restarted and status.get("phase") == phase)

    wait_for(has_phase, f"phase {phase}", detail=lambda: api.read(made).get("status"))


def ran(jobs: Jobs, name: str) -> str:
    """Run roll-workloads in a pod; return what it printed."""
    jobs.create(name, of="roll-workloads", env=WITH_ROLLOUTS)
    assert jobs.end(name) == "Complete", jobs.log(name)
    return jobs.log(name)


@pytest.mark.usefixtures("argo")
def test_pods_of_a_rollout_restart_once_and_those_of_a_paused_one_do_not(api: Api, jobs: Jobs) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    web = api.create(rollout(space))
    steps = {"strategy": {"canary": {"steps": [{"setWeight": 50}, {"pause": {}}]}}}
    paused = api.create(rollout(space, "paused", **steps))
    for each in (web, paused):
        healthy(api, each)
    ran(jobs, "argo-key")
    assert "2 annotated" in ran(jobs, "argo-record") or "2 unchanged" in ran(jobs, "argo-recorded")
    api.patch(paused, {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})
    healthy(api, paused, "Paused")
    before = pods(api, space)

    api.patch(source, {"data": {"a": "changed"}})
    printed = ran(jobs, "argo-roll")

    assert "1 deferred, 1 restarted" in printed or "1 restarted, 1 deferred" in printed, printed
    assert "kubectl argo rollouts promote paused" in printed
    healthy(api, web)
    wait_for(lambda: len(pods(api, space)["web"]) == 2 and not pods(api, space)["web"] & before["web"], "new pods")
    assert pods(api, space)["paused"] == before["paused"]
    assert "1 unchanged, 1 deferred" in ran(jobs, "argo-again")
