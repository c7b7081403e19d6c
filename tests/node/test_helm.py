"""A Helm release on a node: its test runs the image with the account of a job."""

from pathlib import Path

import pytest

from jobs.kit.values.registry import ACCOUNTS
from tests.apis import Api
from tests.helm import CHART, Helm, missing
from tests.one_node import Node
from tests.pages import command

pytestmark = pytest.mark.node
# The other jobs, and what exists once per cluster, are those of the session's installation.
VALUES = {
    "crds": False,
    "policies": False,
    "jobs": {
        "sync-copies": {"suspend": True, "settings": {"OUTPUT": "json"}},
        **{name: {"enabled": False} for name in ACCOUNTS if name != "sync-copies"},
    },
}


@pytest.mark.usefixtures("jobs")
def test_the_test_of_a_release_runs_its_job_without_writes(node: Node, api: Api, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    namespace = api.namespace("helm", labels={"pod-security.kubernetes.io/enforce": "restricted"})
    helm = Helm(tmp_path, node.plane.kubeconfig, namespace)
    helm("install", "kube-chores", str(CHART), values=VALUES)

    shown = helm.shell(command("helm test kube-chores").replace("-n kube-chores", f"-n {namespace}"))

    assert "Phase:          Succeeded" in shown
    assert '"dryRun": ' in shown
    assert [pod for pod in api.items("v1", "Pod", namespace) if "deletionTimestamp" not in pod["metadata"]] == []
