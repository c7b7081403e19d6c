"""The exit code of a run decides what its Job does: fail at once, retry, or resume a stopped run."""

import base64
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from tests import canary
from tests.apis import Api, Object, wait_for
from tests.control_plane import audit_events
from tests.namespaces import ADDRESS
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs, Kubectl
from tests.one_node import Node
from tests.worlds import at, configmap, content, rule, secret

pytestmark = pytest.mark.node
SILENT_PORT = 9
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
USER = "system:serviceaccount:kube-chores:sync-copies"


@pytest.fixture
def slow(node: Node, api: Api) -> Iterator[Callable[[int], Object]]:
    """Delay each new ConfigMap in namespaces labelled `slow` by some seconds, with a webhook that never answers."""
    drop = [*node.enter, "iptables", "-I", "INPUT", "-p", "tcp", "--dport", str(SILENT_PORT), "-j", "DROP"]
    subprocess.run(drop, check=True)
    webhook = {
        "name": "slow.kubechores.dev",
        "clientConfig": {"url": f"https://{ADDRESS}:{SILENT_PORT}/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"slow": api.token}},
        "objectSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "kube-chores"}},
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}

    def after(seconds: int) -> Object:
        named = {"metadata": {"name": f"slow-{api.token}"}, "webhooks": [webhook | {"timeoutSeconds": seconds}]}
        return api.create({**kind, **named})

    yield after
    subprocess.run([word if word != "-I" else "-D" for word in drop], check=True)


def many(api: Api, number: int) -> tuple[Object, list[str]]:
    """Create one source, a rule and a number of target namespaces."""
    home = api.namespace("home")
    source = api.create(configmap(home))
    with ThreadPoolExecutor(8) as pool:
        teams = list(pool.map(lambda n: api.namespace(f"team-{n}", labels={"slow": api.token}), range(number)))
    api.create(rule("settings", home, f"team-*-{api.token}"))
    return source, teams


def test_a_configuration_error_fails_the_job_at_once(api: Api, jobs: Jobs) -> None:
    api.create(rule("settings", "default", "team-*"))
    jobs.create("wrong", env={"RULE_NAME": "none-such"})

    assert jobs.end("wrong") == "PodFailurePolicy"
    assert jobs.exit_codes("wrong") == [2]
    assert "no CopyratorRule 'none-such' in namespace kube-chores; its rules are: settings" in jobs.log("wrong")
    run = run_in_status(api, "wrong")
    assert (run["outcome"], run["exitCode"]) == ("failed", 2)
    assert "no CopyratorRule 'none-such' in namespace kube-chores" in run["message"]


def test_a_success_without_its_metrics_has_the_reason_in_the_status_of_its_pod(api: Api, jobs: Jobs) -> None:
    api.create(rule("settings", "default", "team-*"))
    jobs.create("unmeasured", env={"CHORES_PUSH_GATEWAY": "http://127.0.0.1:9"})

    assert jobs.end("unmeasured") == "Complete"
    run = run_in_status(api, "unmeasured")
    assert (run["outcome"], run["message"].partition(": ")[0]) == ("succeeded", "metrics-not-sent")


def run_in_status(api: Api, job: str) -> Object:
    """Return the run of a Job in `chores status`, whose message is from the status of its pod."""
    words = ["status", "-n", "kube-chores", "-o", "json"]
    found = json.loads(CliRunner().invoke(chores, words, env={"KUBECONFIG": str(api.kubeconfig)}).stdout)
    sync_copies = next(each for each in found["jobs"] if each["name"] == "sync-copies")
    run: Object = next(each for each in sync_copies["runs"] if job in each["name"])
    return run


def problems_of_runs(api: Api) -> dict[str, Object]:
    """Return the problems of runs of sync-copies in `chores status`, by code."""
    words = ["status", "-n", "kube-chores", "-o", "json"]
    found = json.loads(CliRunner().invoke(chores, words, env={"KUBECONFIG": str(api.kubeconfig)}).stdout)["problems"]
    return {each["code"]: each for each in found if each["job"] == "sync-copies" and each["code"].startswith("job-")}


def stop_process(node: Node, pod: Object) -> None:
    """Send SIGSTOP to the process of a pod."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    ctr = [*node.enter, "ctr", "-n", "k8s.io", "tasks", "ls"]
    tasks = subprocess.run(ctr, capture_output=True, text=True, check=True).stdout
    pids = dict(line.split()[:2] for line in tasks.splitlines())
    subprocess.run([*node.enter, "kill", "-STOP", pids[container]], check=True)


def test_a_run_that_hangs_is_reported_before_and_after_its_deadline(
    node: Node, api: Api, jobs: Jobs, slow: Callable[[int], Object]
) -> None:
    many(api, 2)
    jobs.create("usual")
    assert jobs.end("usual") == "Complete"
    slow(10)
    api.namespace("team-more", labels={"slow": api.token})
    template = jobs.template("hung")
    jobs.start({**template, "spec": {**template["spec"], "activeDeadlineSeconds": 60}})
    pod = jobs.running("hung")
    stop_process(node, pod)
    assert "job-slow" not in problems_of_runs(api)

    wait_for(lambda: "job-slow" in problems_of_runs(api), "the hung run in the status", 60)
    found = problems_of_runs(api)["job-slow"]
    assert found["reason"].startswith("run hung on node node has not ended after ")
    assert found["todo"].endswith("kubectl delete job hung -n kube-chores")

    assert jobs.end("hung", 90) == "DeadlineExceeded"
    wait_for(lambda: not jobs.pods("hung"), "the end of the pod")
    jobs.create("after")
    assert jobs.end("after") == "Complete"
    assert "run hung was ended by its deadline after " in problems_of_runs(api)["job-failing"]["reason"]
    assert run_in_status(api, "hung")["reason"] == "DeadlineExceeded"


def unreachable_webhook(namespaces: list[str]) -> Object:
    """Return a webhook without a server, so that no copy can be created in the namespaces."""
    created = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    there = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}
    webhook = {
        "name": "closed.tests.kubechores.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchExpressions": [there]},
        "objectSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "kube-chores"}},
        "rules": [created],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": namespaces[0]}, "webhooks": [webhook]}


def test_a_failure_of_the_cluster_is_retried_and_that_of_one_namespace_is_not(api: Api, jobs: Jobs) -> None:
    home, team, *closed = (api.namespace(name) for name in ("home", "team", "closed", "closed-too"))
    source = api.create(configmap(home))
    webhook = api.create(unreachable_webhook(closed))
    api.create(rule("settings", home, [team, closed[0]]))
    jobs.create("of-one-namespace")
    assert jobs.end("of-one-namespace") == "Complete"
    assert jobs.exit_codes("of-one-namespace") == [0]
    assert content(api.get(at(team, source))) == content(source)

    api.create(rule("more-settings", home, [closed[1]]))
    jobs.create("of-the-cluster")
    wait_for(lambda: jobs.exit_codes("of-the-cluster")[:1] == [1], "the first pod to fail", 60)
    api.delete(webhook)

    assert jobs.end("of-the-cluster") == "Complete"
    assert jobs.exit_codes("of-the-cluster") == [1, 0]
    assert [content(api.get(at(each, source))) for each in closed] == [content(source)] * 2
    assert "failed calling webhook" in jobs.log("of-the-cluster")


def test_the_brake_fails_the_job_and_the_line_that_it_prints_lifts_it(api: Api, jobs: Jobs, kubectl: Kubectl) -> None:
    source, teams = many(api, 12)
    jobs.create("first")
    assert jobs.end("first") == "Complete"
    api.delete(source)

    jobs.create("braked")
    assert jobs.end("braked") == "PodFailurePolicy"
    assert jobs.exit_codes("braked") == [4]
    (line,) = [line.strip() for line in jobs.log("braked").splitlines() if line.strip().startswith("kubectl ")]
    assert all(api.get(at(team, source)) for team in teams)

    lift = kubectl.shell(line).split()[0].removeprefix("job.batch/")
    assert jobs.end(lift) == "Complete"
    assert not any(api.get(at(team, source)) for team in teams)


def test_a_deleted_pod_reports_ends_with_143_and_the_next_pod_resumes(
    node: Node, api: Api, jobs: Jobs, kubectl: Kubectl, slow: Callable[[int], Object], figure: Figure
) -> None:
    source, teams = many(api, 64)
    slow(2)
    jobs.create("stopped")
    pod = jobs.running("stopped")["metadata"]
    code = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}:"
    watch = ["kubectl", "get", "pod", pod["name"], "-n", "kube-chores", "-w", "-o", code]
    watched = subprocess.Popen(watch, env=kubectl.env, stdout=subprocess.PIPE, text=True)
    # The file behind `kubectl logs`: kubelet removes it with the pod, but an open file can still be read.
    with (node.plane.folder / f"log/pods/kube-chores_{pod['name']}_{pod['uid']}/chores/0.log").open() as file:
        wait_for(lambda: any(api.get(at(team, source)) for team in teams), "the first copies")
        began = time.monotonic()
        kubectl(f"delete pod {pod['name']} -n kube-chores")
        seconds = time.monotonic() - began
        log = file.read()
    watched.terminate()
    ended = [each for each in watched.communicate()[0].split(":") if each]
    canary.observed("the log of a deleted pod", log)

    assert set(ended) == {"143"}
    summary = log.splitlines()[-1].partition(" stdout F ")[2]
    assert re.match(r"sync-copies: \d+ created, \d+ stopped ", summary)
    assert jobs.end("stopped") == "Complete"
    assert jobs.exit_codes("stopped")[-1] == 0
    assert all(content(api.get(at(team, source))) == content(source) for team in teams)
    figure(f"a deleted pod ended after {seconds:.1f} s and had printed: {summary}")


def test_a_token_that_is_rotated_during_a_run_does_not_break_it(
    node: Node, api: Api, jobs: Jobs, slow: Callable[[int], Object], figure: Figure
) -> None:
    """kubelet replaces the token in the volume, and some time later the API server rejects the old one."""
    source, teams = many(api, 16 * 9)
    webhook = slow(10)
    binding = api.create(secret("kube-chores", f"binding-{api.token}"))
    first = bound_token(api, binding)
    volume = api.create(token_files(api, first))
    jobs.start(with_token_from(volume, jobs.template("rotated")))
    start = node.plane.audit_log.stat().st_size
    jobs.running("rotated")
    began = time.monotonic()

    second = api.service_account_token("kube-chores", "sync-copies")
    api.replace(token_files(api, second))
    wait_for(lambda: credential(second) in credentials(node, start), "a request with the second token", 80)
    api.delete(binding)
    wait_for(lambda: api.request("GET", "/api", token=first)[0] == 401, "the first token to be refused")
    refused = time.monotonic() - began
    missing = sum(not api.get(at(team, source)) for team in teams)
    api.delete(webhook)
    assert jobs.end("rotated", 90) == "Complete"
    took = time.monotonic() - began

    assert jobs.exit_codes("rotated") == [0]
    assert missing > 0
    assert all(content(api.get(at(team, source))) == content(source) for team in teams)
    figure(
        f"first token rejected {refused:.0f} s into a run of {took:.0f} s: {missing} of {len(teams)} copies came later"
    )


def credentials(node: Node, start: int) -> set[str]:
    """Return the IDs of the tokens that the job's account used, from a position of the audit log on."""
    events = [event for event in audit_events(node.plane.audit_log, start) if event["user"]["username"] == USER]
    return {event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0] for event in events}


def credential(token: str) -> str:
    """Return the ID of a token as in the audit log: its claim jti."""
    claims = token.split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + '=' * (-len(claims) % 4)))['jti']}"


def bound_token(api: Api, binding: Object) -> str:
    """Return a token of the job's account that is valid while a Secret exists."""
    reference = {"kind": "Secret", "apiVersion": "v1", "name": binding["metadata"]["name"]}
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"boundObjectRef": reference}}
    path = "/api/v1/namespaces/kube-chores/serviceaccounts/sync-copies/token"
    return str(api.call("POST", path, request)["status"]["token"])


def token_files(api: Api, token: str) -> Object:
    """Return a ConfigMap with the files of a ServiceAccount volume."""
    files = {"token": token, "ca.crt": Path(api.ca_file or "").read_text(), "namespace": "kube-chores"}
    return configmap("kube-chores", f"token-{api.token}", labels={}, data=files)


def with_token_from(volume: Object, job: Object) -> Object:
    """Return the Job with this ConfigMap instead of its ServiceAccount volume."""
    pod = job["spec"]["template"]["spec"]
    pod["automountServiceAccountToken"] = False
    pod["volumes"] = [{"name": "token", "configMap": {"name": volume["metadata"]["name"]}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "token", "mountPath": SERVICE_ACCOUNT, "readOnly": True}]
    return job
