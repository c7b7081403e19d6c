"""`chores status` of CronJobs whose Jobs the real controllers manage. Without a node, the tests write pod statuses."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.kit.api import transport
from tests.admission import denied, webhook
from tests.api.conftest import runs, with_message
from tests.apis import Api, Object, wait_for
from tests.cluster.test_install import kubectl
from tests.manifests import everything
from tests.rights import create_account
from tests.workloads import KEY_FLAG, set_key, settle, workload
from tests.worlds import configmap

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("api", ["real"], indirect=True)]
CODES = ("job-", "metrics-", "writes-")
LOG = "sync-copies: the deletion brake blocks the deletion of 30 ConfigMaps"


def cronjob(namespace: str) -> Object:
    """Return the CronJob of the manifests in another namespace; it is due once a year."""
    (found,) = [each for each in everything() if (each["kind"], each["metadata"]["name"]) == ("CronJob", "sync-copies")]
    metadata = {"name": "sync-copies", "namespace": namespace, "labels": found["metadata"]["labels"]}
    return {**found, "metadata": metadata, "spec": {**found["spec"], "schedule": "0 0 1 1 *"}}


def shown(api: Api, namespace: str) -> Any:
    env = {"KUBECONFIG": str(api.kubeconfig)}
    done = CliRunner().invoke(chores, ["status", "-n", namespace, "-o", "json"], env=env)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    return found["jobs"][0], [each for each in found["problems"] if each["code"].startswith(CODES)]


def pod_of(api: Api, namespace: str, job: str) -> Object:
    def pods() -> list[Object]:
        return api.items("v1", "Pod", namespace, labelSelector=f"job-name={job}")

    wait_for(lambda: bool(pods()), f"a pod of {job}")
    return pods()[0]


def end(api: Api, pod: Object, exit_code: int, message: str) -> None:
    """Set the status that kubelet writes when the container ends."""
    ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "message": message}
    container = {"name": "chores", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    phase = "Failed" if exit_code else "Succeeded"
    api.patch_status(pod, {"phase": phase, "containerStatuses": [{**container, "state": {"terminated": ended}}]})


def test_a_run_that_takes_long_and_one_that_its_deadline_ended(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = api.namespace("ops")
    create_account(api, namespace, "sync-copies")
    made = api.create(cronjob(namespace))
    kubectl(api, "create", "job", "usual", "--from=cronjob/sync-copies", "-n", namespace)
    end(api, pod_of(api, namespace, "usual"), 0, "")
    wait_for(lambda: shown(api, namespace)[0]["state"] == "ok", "the Job to succeed")
    kubectl(api, "create", "job", "hung", "--from=cronjob/sync-copies", "-n", namespace)
    container = {
        "name": "chores",
        "image": "i",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {}},
    }
    api.patch_status(pod_of(api, namespace, "hung"), {"phase": "Running", "containerStatuses": [container]})
    assert shown(api, namespace)[1] == []

    with monkeypatch.context() as later:
        later.setattr(transport.ServerClock, "now", lambda _: datetime.now(timezone.utc) + timedelta(minutes=2))
        _, (slow,) = shown(api, namespace)
    assert (slow["severity"], slow["code"]) == ("warning", "job-slow")
    assert slow["reason"] == "run hung has not ended after 2 min, longer than usual"

    kubectl(api, "delete", "job", "hung", "-n", namespace)
    api.patch(made, {"spec": {"jobTemplate": {"spec": {"activeDeadlineSeconds": 1}}}})
    kubectl(api, "create", "job", "ended", "--from=cronjob/sync-copies", "-n", namespace)
    wait_for(lambda: shown(api, namespace)[0]["state"] == "failing", "the deadline")
    job, (problem,) = shown(api, namespace)
    assert (job["runs"][0]["reason"], job["runs"][0]["exitCode"]) == ("DeadlineExceeded", None)
    assert problem["reason"].startswith("the last run failed (DeadlineExceeded): Job was active longer than")

    about = {"apiVersion": "v1", "kind": "Pod", "name": "ended-x7k2p", "namespace": namespace}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "no-node", "namespace": namespace}}
    why = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    api.create({**event, "involvedObject": about, "type": "Warning", "reason": "FailedScheduling", "message": why})
    _, (problem,) = shown(api, namespace)
    assert problem["reason"] == f"the last run failed (DeadlineExceeded): the last warning about pod ended-x7k2p: {why}"
    api.patch(made, {"spec": {"jobTemplate": {"spec": {"activeDeadlineSeconds": 300}}}})
    kubectl(api, "create", "job", "next", "--from=cronjob/sync-copies", "-n", namespace)
    end(api, pod_of(api, namespace, "next"), 0, "")
    wait_for(lambda: shown(api, namespace)[0]["state"] == "ok", "the next Job to succeed")
    _, (problem,) = shown(api, namespace)
    assert problem["reason"].endswith(f"the last warning about pod ended-x7k2p: {why}")


def test_a_cronjob_that_is_never_due_or_whose_jobs_are_refused_has_the_reason(api: Api) -> None:
    namespace = api.namespace("ops")
    create_account(api, namespace, "sync-copies")
    made = cronjob(namespace)
    made = api.create({**made, "spec": {**made["spec"], "schedule": "0 0 31 2 *"}})
    wait_for(lambda: shown(api, namespace)[0]["state"] == "late", "the Event of the controller")

    _, (problem,) = shown(api, namespace)

    assert problem["reason"].startswith("no run starts: invalid schedule: 0 0 31 2 *")

    api.patch(made, {"spec": {"schedule": "0 0 1 1 *"}})
    job, problems = shown(api, namespace)
    assert (job["state"], problems) == ("never", []), "the Event is about an earlier schedule"

    kubectl(api, "create", "job", "failed", "--from=cronjob/sync-copies", "-n", namespace)
    end(api, pod_of(api, namespace, "failed"), 2, "not valid")
    api.patch(made, {"spec": {"schedule": "0 0 30 2 *"}})
    wait_for(lambda: len(shown(api, namespace)[1]) == 2, "the failed run and the Event of the controller")
    _, (failing, late) = shown(api, namespace)
    assert failing["reason"] == "the last run failed (exit code 2): not valid"
    assert late["reason"].startswith("no run starts: invalid schedule: 0 0 30 2 *")

    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": namespace}}
    api.create({**quota, "spec": {"hard": {"count/jobs.batch": "0"}}})
    api.patch(made, {"spec": {"schedule": "* * * * *"}})

    def is_refused() -> bool:
        return any("exceeded quota: small" in each["reason"] for each in shown(api, namespace)[1])

    wait_for(is_refused, "a refused Job", 90)


def test_a_run_that_no_node_takes_names_the_taints(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = api.namespace("ops")
    create_account(api, namespace, "sync-copies")
    api.create(cronjob(namespace))
    for name in ("one", "two"):
        taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{name}-{api.token}"}}
        api.create({**node, "spec": {"taints": [taint, {"key": "slow", "effect": "PreferNoSchedule"}]}})
    kubectl(api, "create", "job", "tainted", "--from=cronjob/sync-copies", "-n", namespace)
    pod_of(api, namespace, "tainted")
    with monkeypatch.context() as later:
        later.setattr(transport.ServerClock, "now", lambda _: datetime.now(timezone.utc) + timedelta(seconds=90))
        _, (problem,) = shown(api, namespace)
    assert (problem["code"], "it has no node after a minute" in problem["reason"]) == ("job-stuck", True)

    preemption = "preemption: 0/9 nodes are available: 9 Preemption is not helpful for scheduling."
    why = "7 node(s) didn't match Pod's node affinity/selector, 2 node(s) had untolerated taint(s)."
    message = f"0/9 nodes are available: {why} no new claims to deallocate, {preemption}"  # of kube-scheduler 1.36
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    api.patch_status(pod_of(api, namespace, "tainted"), {"phase": "Pending", "conditions": [condition]})

    monkeypatch.setattr(transport.ServerClock, "now", lambda _: datetime.now(timezone.utc) + timedelta(minutes=2))
    _, (problem,) = shown(api, namespace)

    assert problem["code"] == "job-stuck"
    assert message in problem["reason"]
    assert "dedicated=gpu:NoSchedule (nodes: " in problem["reason"]
    assert "PreferNoSchedule" not in problem["reason"]
    text = CliRunner().invoke(chores, ["status", "-n", namespace], env={"KUBECONFIG": str(api.kubeconfig)}).stdout
    assert "dedicated=gpu:NoSchedule (nodes: " in " ".join(text.split()), "the text is cut"


def test_a_roll_that_a_webhook_refuses_is_a_problem_of_the_run_that_succeeded(
    api: Api, installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The text of the webhook looks like other lines of the message."""
    namespace, team, other = (api.namespace(name) for name in ("ops", "team", "other"))
    create_account(api, namespace, "sync-copies")
    api.create(cronjob(namespace))
    set_key(api)
    for each in (team, other):
        api.create(configmap(each))
        settle(api, api.create(workload(each)))
    text = "no\nmetrics-not-sent: forged\r\x1b[2J" + 100_000 * "x"
    roll = runs("roll-workloads", api.service_account_kubeconfig("kube-chores", "roll-workloads"))

    with monkeypatch.context() as context, webhook(api, lambda _: {**denied({}), "status": {"message": text}}, team):
        message = with_message(context, tmp_path)
        ran = roll(*KEY_FLAG, "--settle", "0", "--cool-down", "0")

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 1, "failed": 1})
    kubectl(api, "create", "job", "refused", "--from=cronjob/sync-copies", "-n", namespace)
    end(api, pod_of(api, namespace, "refused"), 0, message.read_text())
    wait_for(lambda: shown(api, namespace)[0]["state"] == "ok", "the Job to succeed")
    _, (problem,) = shown(api, namespace)
    assert problem["code"] == "writes-failed"
    what = f"1 write failed: deployment/web in namespace {team}: admission webhook"
    assert problem["reason"].startswith(f"run refused succeeded, but {what}")
    assert "denied the request: no\\nmetrics-not-sent: forged\\r\\x1b[2Jxxx" in problem["reason"]
    assert problem["reason"].endswith("x…")


def test_runs_of_real_jobs(api: Api) -> None:
    namespace = api.namespace("ops")
    create_account(api, namespace, "sync-copies")
    api.create(cronjob(namespace))

    def start(name: str) -> None:
        kubectl(api, "create", "job", name, "--from=cronjob/sync-copies", "-n", namespace)

    job, problems = shown(api, namespace)
    assert (job["state"], problems) == ("never", [])

    start("braked")
    end(api, pod_of(api, namespace, "braked"), 4, LOG)
    wait_for(lambda: shown(api, namespace)[0]["state"] == "failing", "the Job to fail")
    job, (problem,) = shown(api, namespace)
    assert (job["runs"][0]["exitCode"], job["runs"][0]["message"]) == (4, LOG)
    assert problem["reason"] == f"the last run failed (exit code 4): {LOG}"
    assert f"kubectl logs -n {namespace} job/braked" in problem["todo"]

    start("repaired")
    end(api, pod_of(api, namespace, "repaired"), 0, "")
    wait_for(lambda: shown(api, namespace)[0]["state"] == "ok", "the Job to succeed")
    job, problems = shown(api, namespace)
    assert problems == []
    assert job["lastSuccess"] == job["runs"][0]["end"]

    start("unmeasured")
    end(api, pod_of(api, namespace, "unmeasured"), 0, "metrics-not-sent: no answer")
    wait_for(lambda: bool(shown(api, namespace)[0]["runs"][0]["end"]), "the Job to succeed")
    job, (problem,) = shown(api, namespace)
    assert (job["state"], problem["code"]) == ("ok", "metrics-not-sent")

    start("unpulled")
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    container = {"name": "chores", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Pending", "containerStatuses": [{**container, "state": {"waiting": waiting}}]}
    api.patch_status(pod_of(api, namespace, "unpulled"), status)
    assert "does not start: ImagePullBackOff: Back-off pulling image" in shown(api, namespace)[0]["runs"][0]["message"]

    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace}}
    api.create({**quota, "spec": {"hard": {"pods": "0"}}})
    wait_for(lambda: "hard" in (api.read(quota).get("status") or {}), "the quota to be in effect")
    start("refused")
    wait_for(lambda: "exceeded quota" in shown(api, namespace)[0]["runs"][0]["message"], "the Event of the quota")
