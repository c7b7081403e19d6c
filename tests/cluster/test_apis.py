"""The helpers that all other tests on an API server use."""

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.apis import MANY, Api, Object, wait_for
from tests.canary import canary
from tests.control_plane import missing, programs
from tests.rights import create_account
from tests.worlds import namespace_object

UA = {"User-Agent": "kube-chores/test"}


def config_map(namespace: str, name: str = "colours") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"sky": "blue"},
    }


def test_requests_are_counted_exactly_with_their_answers(api: Api) -> None:
    namespace = api.namespace("team-a")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(20):
        api.request("POST", path, config_map(namespace, f"c{number % 19}"), headers=UA)
    api.request("GET", f"{path}?limit=5", headers=UA)
    api.request("GET", f"{path}/none", headers=UA)
    observed = api.requests()
    assert [(one.method, one.status) for one in observed] == [("POST", 201)] * 19 + [
        ("POST", 409),
        ("GET", 200),
        ("GET", 404),
    ]
    assert observed[-2].query == {"limit": "5"}
    assert len(api.writes()) == 20
    api.mark()
    assert api.requests() == []


def test_objects_are_created_replaced_patched_and_deleted(api: Api) -> None:
    obj = config_map(api.namespace("team-a"))
    api.create(obj)
    api.replace(obj | {"data": {"sky": "grey"}})
    api.patch(obj, {"data": {"sea": "green"}})
    found = api.read(obj)
    assert found["data"] == {"sky": "grey", "sea": "green"}
    assert len(api.items("v1", "ConfigMap", obj["metadata"]["namespace"], fieldSelector="metadata.name=colours")) == 1
    api.delete(obj)
    assert api.get(obj) is None


@pytest.mark.cluster
@pytest.mark.parametrize("api", ["real"], indirect=True)
def test_a_connection_that_the_server_closed_is_replaced(api: Api) -> None:
    """The API server closes a connection that is idle for 90 seconds, such as during a long job."""
    namespace: Object = namespace_object("default")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here, there = listening.fileno(), api.url.removeprefix("https://").split(":")
        command = [sys.executable, "-m", "tests.forward", str(here), *there]
        with subprocess.Popen(command, pass_fds=[here]) as first:
            forwarded = replace(api, url=f"https://127.0.0.1:{listening.getsockname()[1]}")
            assert forwarded.get(namespace)
            first.kill()
        with subprocess.Popen(command, pass_fds=[here]) as second:
            try:
                assert forwarded.get(namespace)
            finally:
                second.kill()


def test_a_service_account_token_authenticates_its_account(api: Api) -> None:
    namespace = api.namespace("team-a")
    token = create_account(api, namespace, "worker")
    api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps", headers=UA, token=token)
    (observed,) = api.requests()
    assert (observed.user, observed.status) == (f"system:serviceaccount:{namespace}:worker", 403)


def test_a_secret_without_a_canary_is_refused(api: Api) -> None:
    namespace = api.namespace("team-a")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": namespace}}
    api.create(secret | {"stringData": {"password": canary()}})
    with pytest.raises(ValueError, match="use canary"):
        api.create(secret | {"stringData": {"password": "hunter2"}})


def test_an_event_that_shows_a_canary_is_found(api: Api) -> None:
    namespace = api.namespace("team-a")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "talk", "namespace": namespace},
        "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": "colours"},
        "message": (shown := canary()),
    }
    made = api.call("POST", f"/api/v1/namespaces/{namespace}/events", event, headers=UA)
    assert shown in api.public()["an Event"]
    api.delete(made)


@pytest.mark.cluster
@pytest.mark.parametrize("api", ["real"], indirect=True)  # an embedded server ends with its test
def test_objects_of_a_test_are_deleted_after_it(api: Api) -> None:
    obj = config_map("default", f"left-{api.token}")
    api.create(obj)
    copy = config_map("default", f"copy-{api.token}")
    copy["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "kube-chores"}
    api.call("POST", api.path(copy, named=False), copy)
    api.clean()
    assert api.get(obj) is None
    assert api.get(copy) is None


@pytest.mark.parametrize("number", [1, MANY + 1])
def test_a_finalizer_of_a_test_keeps_no_object(api: Api, number: int) -> None:
    namespace = api.namespace("team-a")
    kept = config_map(namespace, "kept")
    kept["metadata"]["finalizers"] = ["example.com/kept"]
    for each in (kept, *(config_map(namespace, f"c{other}") for other in range(number))):
        api.create(each)
    api.clean()
    assert api.get(kept) is None


@pytest.mark.cluster
@pytest.mark.parametrize("api", ["real"], indirect=True)
def test_manifests_that_a_test_changed_are_restored(api: Api) -> None:
    place = {"name": "farm-pods", "namespace": "kube-chores"}
    cron_job = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": place}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    role = {**kind, "metadata": {"name": "kube-chores-farm-pods"}}
    before = [api.read(cron_job)["spec"], api.read(role)["rules"]]
    api.patch(cron_job, {"spec": {"suspend": True}})
    api.delete(role)
    api.create({**role, "rules": []})

    api.clean()

    assert [api.read(cron_job)["spec"], api.read(role)["rules"]] == before


@pytest.mark.skipif(bool(missing()), reason="needs the built kubectl")
def test_the_kubeconfig_works_with_kubectl(api: Api, tmp_path: Path) -> None:
    obj = config_map(api.namespace("team-a"))
    api.create(obj)
    kubectl = [str(programs() / "kubectl"), "--kubeconfig", str(api.kubeconfig), "--cache-dir", str(tmp_path)]
    words = ["get", "configmap", "colours", "-n", obj["metadata"]["namespace"], "-o", "jsonpath={.data.sky}"]
    done = subprocess.run([*kubectl, *words], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("blue", "")


@pytest.mark.cluster
@pytest.mark.parametrize("api", ["real"], indirect=True)
def test_namespaces_are_deleted_soon(api: Api) -> None:
    name = api.namespace("team-a")
    obj = namespace_object(name)
    api.delete(obj)
    wait_for(lambda: api.get(obj) is None, f"the deletion of namespace {name}", seconds=30)
