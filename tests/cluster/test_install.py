"""The shipped manifests on a real API server."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jobs.core.mirror_audit.desired import NODE_IMAGE, Mirror
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, parse_registry_mirror
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from tests.api.conftest import runs
from tests.apis import Api, Object, wait_for
from tests.control_plane import programs
from tests.manifests import ROOT, everything, load
from tests.pages import command
from tests.workloads import KEY, KEY_FLAG, set_key, workload
from tests.worlds import configmap, rule, secret

CRONJOBS = ROOT / "cronjobs"
DEFAULTS = CRONJOBS / "samples" / "namespace-defaults"
# The alerts need the Prometheus operator, whose CRD is not part of the installation.
SAMPLES = sorted(
    path for path in (CRONJOBS / "samples").rglob("*.yaml") if path.parent.name not in ("monitoring", DEFAULTS.name)
)
MONITORING = [
    CRONJOBS / "components/monitoring/dashboard/dashboard.yaml",
    CRONJOBS / "components/monitoring/network-policies/policy/policy.yaml",
]

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("api", ["real"], indirect=True)]


def kubectl(api: Api, *words: str) -> str:
    command = [str(programs() / "kubectl"), "--kubeconfig", str(api.kubeconfig), f"--cache-dir={api.folder}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_server_fields(obj: Object) -> Object:
    kept = {"name", "namespace", "labels"}
    metadata = {key: value for key, value in obj["metadata"].items() if key in kept}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}


def test_the_fixture_reads_what_kustomize_builds(api: Api) -> None:
    def key(obj: Object) -> tuple[str, str, str]:
        return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

    for folder in (CRONJOBS, CRONJOBS / "mirror-audit", CRONJOBS / "mirror-repair", CRONJOBS / "without-secrets"):
        built = [each for each in yaml.safe_load_all(kubectl(api, "kustomize", str(folder))) if each]
        assert sorted(built, key=key) == sorted(load(folder), key=key)


def test_kubectl_prints_the_state_of_rules_in_80_columns(api: Api) -> None:
    home, team, other = (api.namespace(name) for name in ("home", "team", "other"))
    for name in ("settings", "theme"):
        api.create(configmap(home, name))
    api.create(configmap(team, "theme", labels={}))
    api.create(rule("main-rule", home, [team, other]))
    lost = rule("lost", home, team)
    api.create({**lost, "metadata": {**lost["metadata"], "namespace": team}})
    sync = runs("sync-copies", api.kubeconfig)
    assert sync("-n", "kube-chores").exit_code == 0
    api.mark()
    assert sync("-n", "kube-chores").exit_code == 0
    assert api.writes() == [], "the time of the last run is recent"

    head, row = kubectl(api, "get", "copyratorrules", "-n", "kube-chores").splitlines()
    assert head.split() == ["NAME", "TYPE", "SOURCES", "COPIES", "CONFLICTS", "READY", "LAST", "RUN", "AGE"]
    assert row.split()[:6] == ["main-rule", "configmap", "2", "3", "1", "False"]
    assert max(map(len, (head, row))) <= 80
    wide = kubectl(api, "get", "copyr", "-A", "-o", "wide").splitlines()
    assert [line.split()[3:5] for line in wide if line.startswith(team)] == [[f'["{home}"]', "Unknown"]]
    assert ["Conflict" in line.split() for line in wide if line.startswith("kube-chores")] == [True]


def test_kubectl_apply_creates_the_objects_of_the_fixture(api: Api) -> None:
    objects = load(CRONJOBS)
    assert len(kubectl(api, "apply", "-k", str(CRONJOBS)).splitlines()) == len(objects)
    applied = [without_server_fields(api.get(obj) or {}) for obj in objects]
    for obj in objects:
        api.put(obj)
    assert [without_server_fields(api.get(obj) or {}) for obj in objects] == applied


def suspended(api: Api, name: str) -> bool:
    found = api.call("GET", f"/apis/batch/v1/namespaces/kube-chores/cronjobs/{name}")
    return bool(found["spec"].get("suspend"))


@pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts")], ids=["client", "server"])
def test_an_install_that_is_applied_again_keeps_the_key_and_cron_jobs_that_the_docs_suspend(
    api: Api, installed: Path, how: tuple[str, ...]
) -> None:
    roll = runs("roll-workloads", api.service_account_kubeconfig("kube-chores", "roll-workloads"))
    set_key(api, None)
    folders = (str(CRONJOBS), str(CRONJOBS / "mirror-repair"))
    for folder in folders:
        kubectl(api, "apply", *how, "-k", folder)
    space = api.namespace("shop")
    api.create(secret(space))
    api.create(workload(space, pod={"volumes": [{"name": "login", "secret": {"secretName": "login"}}]}))
    assert roll(*KEY_FLAG).summary == {"configured": 1, "skipped": 1}
    before = api.get(KEY)
    assert before and before["data"]["key"]
    kubectl(api, *shlex.split(command("kubectl patch cronjob farm-pods"), comments=True)[1:])

    for folder in folders:
        kubectl(api, "apply", *how, "-k", folder)

    assert api.read(KEY)["data"] == before["data"]
    assert roll(*KEY_FLAG).summary == {"annotated": 1}
    assert {name: suspended(api, name) for name in ("farm-pods", "mirror-repair", "sync-copies")} == {
        "farm-pods": True,
        "mirror-repair": False,
        "sync-copies": False,
    }
    kubectl(api, "patch", "cronjob", "farm-pods", "-n", "kube-chores", "-p", '{"spec": {"suspend": false}}')


def test_the_network_policies_can_be_added_and_applied_again(api: Api, tmp_path: Path, installed: Path) -> None:
    where = os.path.relpath(CRONJOBS, tmp_path)
    own = {"resources": [where], "components": [f"{where}/components/network-policies"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    built = [each for each in yaml.safe_load_all(kubectl(api, "kustomize", str(tmp_path))) if each]
    policies = load(CRONJOBS / "components" / "network-policies")
    try:
        kubectl(api, "apply", "-k", str(tmp_path))
        again = kubectl(api, "apply", "-k", str(tmp_path)).splitlines()

        assert [line for line in again if not line.endswith(" unchanged")] == []
        assert len(built) == len(load(CRONJOBS)) + len(policies)
        for policy in policies:
            assert api.read(policy)["spec"] == policy["spec"]
    finally:
        for policy in policies:
            api.delete(policy)


@pytest.mark.parametrize("sample", [*SAMPLES, *MONITORING], ids=lambda path: path.stem)
def test_the_server_accepts_every_sample(api: Api, installed: Path, sample: Path) -> None:
    for obj in load(sample):
        answer = api.call("POST", api.path(obj, named=False) + "?dryRun=All&fieldValidation=Strict", obj)
        assert answer["metadata"]["name"] == obj["metadata"]["name"]


def test_all_samples_can_be_applied_at_once_and_none_is_a_mirror(api: Api, installed: Path) -> None:
    samples = ("-f", str(CRONJOBS / "samples"))
    try:
        applied = kubectl(api, "apply", "-o", "name", *samples).splitlines()
    finally:
        kubectl(api, "delete", "--ignore-not-found", "--wait=false", *samples)

    assert {name.partition("/")[0] for name in applied} == {
        "configmap",
        "copyratorrule.kubechores.dev",
        "exchangerate.kubechores.dev",
        "llama.kubechores.dev",
        "pod",
        "rolebinding.rbac.authorization.k8s.io",
        "secret",
    }


def test_the_samples_of_namespace_defaults_are_applied_with_their_namespace(api: Api, installed: Path) -> None:
    try:
        applied = kubectl(api, "apply", "-o", "name", "-k", str(DEFAULTS)).splitlines()
    finally:
        kubectl(api, "delete", "--ignore-not-found", "--wait=false", "-k", str(DEFAULTS))

    kinds = ["limitrange", "networkpolicy.networking.k8s.io", "resourcequota", "rolebinding.rbac.authorization.k8s.io"]
    kinds += ["secret", "serviceaccount"]
    applied_kinds = [name.partition("/")[0] for name in applied]
    assert set(applied_kinds) == {"namespace", "copyratorrule.kubechores.dev", *kinds}
    assert applied_kinds.count("copyratorrule.kubechores.dev") == len(kinds)


def test_no_manifest_has_a_field_the_server_does_not_know(api: Api, installed: Path) -> None:
    for obj in load(CRONJOBS):
        obj["metadata"]["name"] += ".try" if obj["kind"] != "Namespace" else "-try"
        if obj["kind"] == "CustomResourceDefinition":
            continue  # its name is fixed, and the fixture has created it already
        api.call("POST", api.path(obj, named=False) + "?dryRun=All&fieldValidation=Strict", obj)


@pytest.fixture
def limited(api: Api) -> str:
    """A namespace whose pods must set requests and limits of ephemeral storage."""
    name = api.namespace("limited")
    ratio = {"type": "Container", "maxLimitRequestRatio": {"ephemeral-storage": "10"}}
    kind = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "storage", "namespace": name}}
    api.create({**kind, "spec": {"limits": [ratio]}})
    for account in {"default", *(obj["metadata"]["name"] for obj in everything() if obj["kind"] == "ServiceAccount")}:
        api.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": name}})
    return name


def templates() -> dict[str, Object]:
    """Return the templates of all pods of an installation."""
    cron = {obj["metadata"]["name"]: obj for obj in everything() if obj["kind"] == "CronJob"}
    head = Head(ObjectKey("RegistryMirror", "try"))
    asked = parse_registry_mirror(head, b'{"upstreamUrl": "quay.io"}')
    assert isinstance(asked, RegistryMirror)
    mirror = Mirror(asked, "kube-chores-mirrors", NODE_IMAGE)
    return {
        **{name: obj["spec"]["jobTemplate"]["spec"]["template"] for name, obj in cron.items()},
        "registry": mirror.stateful_set.document()["spec"]["template"],
        "node": mirror.daemon_set.document()["spec"]["template"],
    }


def test_every_pod_limits_the_storage_of_its_node(api: Api, installed: Path, limited: str) -> None:
    answers = {}
    for name, template in templates().items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": limited}}
        spec = template["spec"] | {"priorityClassName": ""}  # only namespaces of mirrors can have theirs
        status, _, body = api.request("POST", api.path(pod, named=False) + "?dryRun=All", pod | {"spec": spec})
        answers[name] = status if status == 201 else json.loads(body)["message"]

    assert set(answers.values()) == {201}, answers


@pytest.fixture
def job(api: Api, installed: Path) -> Iterator[Object]:
    """A Job that is created by hand from the CronJob."""
    name = f"try-{api.token}"
    words = ["create", "job", name, "--from=cronjob/sync-copies", "-n", "kube-chores", "-o", "json"]
    made: Object = json.loads(kubectl(api, *words))
    yield made
    api.call("DELETE", api.path(made), {"propagationPolicy": "Background", "apiVersion": "v1", "kind": "DeleteOptions"})


def pods_of(api: Api, job: Object) -> list[Object]:
    selector = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
    return api.items("v1", "Pod", "kube-chores", labelSelector=selector)


def test_a_job_by_hand_gets_a_pod_in_the_restricted_namespace(api: Api, job: Object) -> None:
    wait_for(lambda: pods_of(api, job), "the Job's pod")
    (pod,) = pods_of(api, job)
    assert pod["spec"]["serviceAccountName"] == "sync-copies"
    assert "kube-api-access" in json.dumps(pod["spec"]["volumes"])


def test_a_pod_that_is_not_restricted_is_refused(api: Api, job: Object) -> None:
    template = job["spec"]["template"]["spec"]
    del template["containers"][0]["securityContext"]["allowPrivilegeEscalation"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "namespace": "kube-chores"}, "spec": template}
    status, _, body = api.request("POST", api.path(pod, named=False), pod)
    assert status == 403
    assert b"violates PodSecurity" in body


@pytest.mark.parametrize(("code", "retried"), [(1, True), (2, False), (4, False), (143, True)])
def test_a_failed_pod_is_retried_only_where_it_helps(api: Api, job: Object, code: int, retried: bool) -> None:
    wait_for(lambda: pods_of(api, job), "the Job's pod")
    (pod,) = pods_of(api, job)
    state = {"terminated": {"exitCode": code, "reason": "Error"}}
    container = {"name": "chores", "image": "x", "imageID": "x", "ready": False, "restartCount": 0, "state": state}
    status = {"phase": "Failed", "containerStatuses": [container]}
    api.call("PUT", api.path(pod) + "/status", pod | {"status": status})

    def settled() -> bool:
        now = (api.get(job) or {}).get("status", {})
        failed = any(one["type"] == "Failed" for one in now.get("conditions", []))
        return failed or len(pods_of(api, job)) > 1

    wait_for(settled, "the Job to fail or to retry", seconds=30)
    assert (len(pods_of(api, job)) > 1) is retried
