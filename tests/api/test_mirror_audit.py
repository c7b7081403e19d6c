"""mirror-audit as users run it, on the embedded and the real API server."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.core.mirror_audit.desired import Mirror
from jobs.kit import web
from tests.api.conftest import Ran, Run
from tests.apis import Api, ApiError, Object, ready_of, wait_for
from tests.canary import canary
from tests.mirrors import NAMESPACE, NODES, Mirrors, allow_any_name, credentials, registry_mirror
from tests.rates import Answer, document, flood, redirect, status
from tests.registries import Registries, cache_state
from tests.worlds import encoded

NO_REGISTRY = "does not respond as a registry; the reason is in the log of the run"
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


def codes(ran: Ran) -> list[str]:
    """Return the codes of a run's findings."""
    return [each["code"] for each in ran.results]


def condition(api: Api, mirror: Mirror) -> dict[str, Any]:
    """Return the Ready condition of a RegistryMirror, which must be of its current generation."""
    found = api.read(registry_mirror(mirror.registry_mirror.name))
    ready = ready_of(found["status"]["conditions"])
    assert ready["observedGeneration"] == found["status"]["observedGeneration"] == found["metadata"]["generation"]
    return dict(ready)


def test_a_healthy_mirror_has_no_findings(api: Api, probe: Run, mirrors: Mirrors, registries: Registries) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)

    ran = probe()

    assert (ran.exit_code, codes(ran), ran.summary) == (0, [], {"unchanged": 5})
    assert condition(api, mirror)["reason"] == "Healthy"
    assert sorted(registries.requests) == [
        (registries.upstream, "/v2/"),
        (f"{mirror.name}-headless.{NAMESPACE}.svc:5001", "/"),
        (f"{mirror.name}.{NAMESPACE}.svc:5000", "/v2/"),
    ]
    assert (probe("--check").exit_code, probe("-v").summary) == (0, {"unchanged": 5})


def test_a_second_audit_writes_nothing(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.healthy()
    mirrors.create("missing", "gcr.io")
    audit()
    api.mark()

    ran = audit()

    assert ran.summary == {"unchanged": 5, "missing": 5}
    assert api.writes() == []
    todo = "run mirror-audit --repair, which creates it"
    assert {each["remedy"] for each in ran.results} == {todo}
    assert f"to do: {todo}" in audit(output="text").stdout


# Ways to break a mirror, each with exactly the expected findings.


def workload(mirrors: Mirrors, mirror: Mirror, ready: bool) -> None:
    """Make the pod of the registry ready or not."""
    if mirrors.api.kind == "sandbox":
        numbers = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": int(ready)}
        mirrors.status(mirror.stateful_set.document(), **numbers)
        mirrors.slice(mirror, ready=ready)
        return
    (pod,) = mirrors.pods(mirror, "registry")
    mirrors.run_pod(pod, ready=ready)
    found = mirror.stateful_set.document()
    wait_for(lambda: mirrors.api.read(found)["status"].get("readyReplicas", 0) == int(ready), "the status of the pod")


def node_pod_not_ready(mirrors: Mirrors, mirror: Mirror) -> None:
    """Make the pod on one of the nodes not ready."""
    if mirrors.api.kind == "sandbox":
        numbers = {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 1}
        return mirrors.status(mirror.daemon_set.document(), **numbers)
    mirrors.run_pod(mirrors.pods(mirror, "node")[0], ready=False)
    found = mirror.daemon_set.document()
    return wait_for(lambda: mirrors.api.read(found)["status"]["numberReady"] == 1, "the status of the pod")


def no_endpoint(mirrors: Mirrors, mirror: Mirror) -> None:
    """Have a pod that is ready and not in an EndpointSlice."""
    if mirrors.api.kind == "sandbox":
        return mirrors.slice(mirror, ready=False)
    selector = f"kubernetes.io/service-name={mirror.name}"
    for each in mirrors.api.items("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE, labelSelector=selector):
        unmanaged = {"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "tests"}}}
        mirrors.edit(each, {**unmanaged, "endpoints": []})
    (pod,) = mirrors.pods(mirror, "registry")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
    mirrors.api.call("DELETE", f"{path}?gracePeriodSeconds=0")

    def ready() -> bool:
        return bool(mirrors.api.read(mirror.stateful_set.document())["status"].get("readyReplicas") == 1)

    def ready_without_address() -> bool:
        for each in mirrors.pods(mirror, "registry"):
            mirrors.run_pod(each, address="")
        return ready()

    wait_for(lambda: not ready(), "the controller to observe the deletion")
    wait_for(ready_without_address, "a pod that is ready and has no address")
    return None


def deleted(which: str) -> Callable[[Mirrors, Mirror], None]:
    def delete(mirrors: Mirrors, mirror: Mirror) -> None:
        document = getattr(mirror, which).document()
        path = mirrors.api.path(document)
        mirrors.api.call("DELETE", f"{path}?propagationPolicy=Orphan")
        if which == "claim":
            merge = {"Content-Type": "application/merge-patch+json"}
            # 404 if the server deleted the claim already.
            status, *_ = mirrors.api.request("PATCH", path, {"metadata": {"finalizers": None}}, headers=merge)
            assert status in (200, 404)
        wait_for(lambda: mirrors.api.get(document) is None, f"{which} to be deleted")

    return delete


def edited(which: str, patch: Object) -> Callable[[Mirrors, Mirror], None]:
    def edit(mirrors: Mirrors, mirror: Mirror) -> None:
        mirrors.edit(getattr(mirror, which).document(), patch)
        if which in ("stateful_set", "daemon_set"):
            mirrors.settle(mirror)

    return edit


def scaled(mirrors: Mirrors, mirror: Mirror) -> None:
    mirrors.edit(mirror.stateful_set.document(), {"spec": {"replicas": 2}})
    if mirrors.api.kind == "sandbox":
        return mirrors.status(mirror.stateful_set.document(), replicas=2, updatedReplicas=2, readyReplicas=2)

    def ready() -> bool:
        for pod in mirrors.pods(mirror, "registry"):
            mirrors.run_pod(pod)
        return bool(mirrors.api.read(mirror.stateful_set.document())["status"].get("readyReplicas") == 2)

    return wait_for(ready, "two pods")


def scaled_to_zero(mirrors: Mirrors, mirror: Mirror) -> None:
    """Scale the registry as `kubectl scale` does, on the server that has this subresource."""
    document, patch = mirror.stateful_set.document(), {"spec": {"replicas": 0}}
    if mirrors.api.kind == "sandbox":
        mirrors.edit(document, patch)
        mirrors.status(document, replicas=0, updatedReplicas=0, readyReplicas=0)
        return mirrors.slice(mirror, ready=False)
    path = f"{mirrors.api.path(document)}/scale?fieldManager=kubectl-edit"
    mirrors.api.call("PATCH", path, patch, headers={"Content-Type": "application/merge-patch+json"})

    def is_done() -> bool:
        found = mirrors.api.read(document)
        is_observed = found["status"]["observedGeneration"] == found["metadata"]["generation"]
        selector = f"kubernetes.io/service-name={mirror.name}"
        slices = mirrors.api.items("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE, labelSelector=selector)
        return is_observed and not mirrors.pods(mirror, "registry") and not any(each["endpoints"] for each in slices)

    return wait_for(is_done, "the end of the pod")


def another_image(mirrors: Mirrors, mirror: Mirror) -> None:
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry:2"}]
    json_patch = {"Content-Type": "application/json-patch+json"}
    path = f"{mirrors.api.path(mirror.stateful_set.document())}?fieldManager=kubectl-edit"
    mirrors.api.call("PATCH", path, patch, headers=json_patch)
    mirrors.settle(mirror)


def no_longer_set(mirrors: Mirrors, mirror: Mirror) -> None:
    document = mirror.service.document()
    document["spec"]["sessionAffinity"] = "ClientIP"
    mirrors.apply(document)


def headless(mirrors: Mirrors, mirror: Mirror) -> None:
    """Recreate the Service without an IP address, otherwise unchanged."""
    deleted("service")(mirrors, mirror)
    document = mirror.service.document()
    document["spec"]["clusterIP"] = "None"
    mirrors.api.create(document)
    if mirrors.api.kind == "real":
        mirrors.settle(mirror)


def not_managed(mirrors: Mirrors, mirror: Mirror) -> None:
    deleted("service")(mirrors, mirror)
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": mirror.name, "namespace": NAMESPACE}}
    mirrors.api.create({**other, "spec": {"ports": [{"port": 80}], "selector": {"other": "yes"}}})


def pending(mirrors: Mirrors, mirror: Mirror) -> None:
    deleted("claim")(mirrors, mirror)
    mirrors.apply(mirror.claim.document())


def lost(mirrors: Mirrors, mirror: Mirror) -> None:
    """Delete the volume of the claim."""
    if mirrors.api.kind == "sandbox":
        return mirrors.status(mirror.claim.document(), phase="Lost")
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": mirror.name}}
    mirrors.api.delete(volume)
    if mirrors.api.get(volume):
        mirrors.edit(volume, {"metadata": {"finalizers": None}})

    def is_lost() -> bool:
        return bool(mirrors.api.read(mirror.claim.document())["status"]["phase"] == "Lost")

    return wait_for(is_lost, "the claim to be lost", 60)


def other_suffixes(mirrors: Mirrors, mirror: Mirror) -> None:
    resources = {"limits": {"memory": "524288Ki"}, "requests": {"cpu": "0.05"}}
    mirrors.specify(mirror, storage={"size": "20480Mi"}, resources=resources)


def image_of_itself(mirrors: Mirrors, mirror: Mirror) -> None:
    mirrors.specify(mirror, fallback="None", image="registry:3.0")
    changed = mirrors.api.read(registry_mirror(mirror.registry_mirror.name))
    for each in mirrors.of(changed).resources[3:]:
        mirrors.apply(each.document())
    mirrors.settle(mirror)


def image_without_tag(mirrors: Mirrors, mirror: Mirror) -> None:
    mirrors.specify(mirror, image="registry")
    changed = mirrors.api.read(registry_mirror(mirror.registry_mirror.name))
    mirrors.apply(mirrors.of(changed).stateful_set.document())
    mirrors.settle(mirror)


def terminating(mirrors: Mirrors, mirror: Mirror) -> None:
    mirrors.edit(mirror.headless_service.document(), {"metadata": {"finalizers": ["example.com/keep"]}})
    mirrors.api.delete(mirror.headless_service.document())


def orphaned(mirrors: Mirrors, mirror: Mirror) -> None:
    removed = mirrors.healthy("removed", "quay.io")
    mirrors.api.delete(registry_mirror(removed.registry_mirror.name))


BREAKS: dict[str, tuple[Callable[[Mirrors, Mirror], Any], list[str]]] = {
    "the Service was deleted": (deleted("service"), ["missing"]),
    "the headless Service was deleted": (deleted("headless_service"), ["missing"]),
    "the StatefulSet was deleted, and its pod stays": (deleted("stateful_set"), ["missing"]),
    "the DaemonSet was deleted": (deleted("daemon_set"), ["missing"]),
    "the Service has another selector": (
        edited("headless_service", {"spec": {"selector": {"kubechores.dev/mirror": "x"}}}),
        ["drifted"],
    ),
    "two replicas": (scaled, ["drifted"]),
    "no replicas": (scaled_to_zero, ["no-endpoints", "scaled-to-zero"]),
    "another image": (another_image, ["drifted"]),
    "a label of kube-chores was removed": (
        edited("service", {"metadata": {"labels": {"app.kubernetes.io/name": None}}}),
        ["drifted"],
    ),
    "a field that kube-chores no longer sets": (no_longer_set, ["drifted"]),
    "an annotation of others": (edited("service", {"metadata": {"annotations": {"mine": "yes"}}}), []),
    "a field that others set": (edited("daemon_set", {"spec": {"minReadySeconds": 0, "revisionHistoryLimit": 3}}), []),
    "quantities written in another way": (other_suffixes, []),
    "the Service has no address": (headless, ["drifted"]),
    "an object that is not managed": (not_managed, ["conflict"]),
    "the pod is not ready": (
        lambda mirrors, mirror: workload(mirrors, mirror, ready=False),
        ["no-endpoints", "not-rolled-out"],
    ),
    "a node's pod is not ready": (node_pod_not_ready, ["not-rolled-out"]),
    "no endpoint": (no_endpoint, ["no-endpoints"]),
    "a larger volume is requested": (partial(Mirrors.specify, storage={"size": "30Gi"}), ["volume-too-small"]),
    "a smaller volume is requested": (partial(Mirrors.specify, storage={"size": "10Gi"}), ["volume-shrink"]),
    "an image without a tag": (image_without_tag, ["image-unpinned"]),
    "images that nodes pull only through the mirror": (image_of_itself, 2 * ["image-depends-on-mirror"]),
    "the mirror was deleted": (orphaned, 4 * ["orphan"]),
    "the claim is new and has no volume yet": (pending, ["volume-pending"]),
    "the volume of the claim was deleted": (lost, ["volume-lost"]),
    "a resource is being deleted": (terminating, ["terminating"]),
    "another mirror has the same upstream": (lambda mirrors, mirror: mirrors.healthy("second"), ["duplicate-upstream"]),
    "another mirror is for the same host": (
        lambda mirrors, mirror: mirrors.healthy("second", "quay.io", registryHost="docker.io"),
        ["duplicate-upstream"],
    ),
}


# A repair corrects them, in one run and whatever the state of pods.
REPAIRED = (
    "the Service was deleted",
    "the headless Service was deleted",
    "the StatefulSet was deleted, and its pod stays",
    "the DaemonSet was deleted",
    "the Service has another selector",
    "two replicas",
    "no replicas",
    "another image",
    "a label of kube-chores was removed",
    "a field that kube-chores no longer sets",
    "the Service has no address",
)
REPAIRED_IN_STEPS = ("the mirror was deleted", "the volume of the claim was deleted")  # tests of their own


def changes(api: Api) -> list[str]:
    """Return the writes since the mark, except statuses and Events."""
    writes = [(each.method, each.path) for each in api.writes()]
    return [f"{method} {path}" for method, path in writes if path.rpartition("/")[2] not in ("status", "events")]


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_mirror_has_exactly_the_expected_findings_and_each_is_repaired_or_has_a_remedy(
    api: Api, audit: Run, repair: Run, mirrors: Mirrors, broken: str
) -> None:
    mirror = mirrors.healthy()
    breaking, expected = BREAKS[broken]
    breaking(mirrors, mirror)
    api.mark()

    ran = audit()

    assert (ran.exit_code, sorted(codes(ran))) == (0, expected), ran.results
    assert audit("--check").exit_code == (3 if expected else 0)
    assert changes(api) == []

    ran = repair()

    assert ran.exit_code == 0
    if broken in REPAIRED:
        assert ran.summary.keys() & {"created", "serverside-applied"}, ran.results
        mirrors.settle(mirrors.of(api.read(registry_mirror(mirror.registry_mirror.name))))
        assert codes(audit()) == []
        repair()
        api.mark()
        assert (repair().exit_code, api.writes()) == (0, [])
    elif broken not in REPAIRED_IN_STEPS:
        assert (sorted(codes(ran)), changes(api)) == (expected, [])
        assert [each for each in ran.results if not each.get("remedy")] == []


def test_drift_names_field_and_manager_and_only_with_diff_values(audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    mirrors.edit(mirror.service.document(), {"spec": {"ports": [{"name": "registry", "port": 5001}]}})

    (found,) = audit().results
    assert found["reason"] == "spec.ports[5000] changed by kubectl-edit"
    assert "changes" not in found

    (found,) = audit("--diff").results
    assert [change["field"] for change in found["changes"]] == ["spec.ports[5000]"]


CONTAINER = "spec.template.spec.containers[registry]"
DRIFT: Mapping[str, tuple[Callable[[Object, Object], object], str]] = {
    "a number": (
        lambda document, _registry: document["spec"].update(replicas=2),
        "spec.replicas is 2, the mirror defines 1; changed by kubectl-edit",
    ),
    "a long text": (
        lambda _document, registry: registry.update(image=f"registry.example.com/{'a' * 40}"),
        f"{CONTAINER}.image changed by kubectl-edit",
    ),
    "a list": (
        lambda document, _registry: document["spec"]["template"]["spec"]["containers"][1].update(args=["x"]),
        "spec.template.spec.containers[cache].args changed by kubectl-edit",
    ),
    "an environment variable": (
        lambda _document, registry: registry["env"][-1].update(value="x"),
        f"{CONTAINER}.env[{{}}].value changed by kubectl-edit",
    ),
    "two fields": (
        lambda document, registry: (document["spec"].update(replicas=2), registry.update(image="registry:2")),
        f"spec.replicas, {CONTAINER}.image changed by kubectl-edit",
    ),
}


@pytest.mark.parametrize("what", DRIFT)
def test_the_reason_of_drift_has_the_values_of_one_field_if_they_are_short_and_not_of_the_environment(
    audit: Run, mirrors: Mirrors, mirror: Mirror, what: str
) -> None:
    change, expected = DRIFT[what]
    document = mirror.stateful_set.document()
    registry = document["spec"]["template"]["spec"]["containers"][0]
    change(document, registry)
    mirrors.apply(document, "kubectl-edit")

    (found,) = [each for each in audit().results if each["code"] == "drifted"]

    assert found["reason"] == expected.format(registry["env"][-1]["name"])


def test_the_cause_of_a_registry_without_replicas_comes_first(
    api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    scaled_to_zero(mirrors, mirror)

    audit()

    cause = "spec.replicas is 0, the mirror defines 1"
    ready = condition(api, mirror)
    assert ready["reason"] == "ScaledToZero"
    assert ready["message"].startswith(f"statefulset/{mirror.name} in namespace {NAMESPACE}: {cause}")
    environment = {"KUBECONFIG": str(api.kubeconfig)}
    done = CliRunner().invoke(chores, ["status", "-n", "kube-chores", "-o", "json"], env=environment)
    problems = [each for each in json.loads(done.stdout)["problems"] if mirror.registry_mirror.name in each["subjects"]]
    assert [each["code"] for each in problems] == ["scaled-to-zero", "no-endpoints"]
    assert problems[0]["reason"].startswith(cause)
    assert "it reverts this within 15 minutes" in problems[0]["todo"]


def test_a_change_of_the_mirror_has_another_reason_than_a_change_by_others(
    audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    mirrors.specify(mirror, ttl="24h")

    (found,) = audit("--diff").results

    assert found["reason"].endswith(
        "differ from what the mirror defines; the mirror, or something it depends on, changed after the last write"
    )
    assert {
        "field": "spec.template.spec.containers[registry].env[REGISTRY_PROXY_TTL].value",
        "actual": "168h",
        "desired": "24h",
    } in found["changes"]


def test_a_password_in_a_url_is_not_printed(audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    document = mirror.stateful_set.document()
    env = document["spec"]["template"]["spec"]["containers"][0]["env"]
    (url,) = [each for each in env if each["name"] == "REGISTRY_PROXY_REMOTEURL"]
    url["value"] = f"https://robot:{canary()}@registry.example.com"
    mirrors.apply(document, "kubectl-edit")
    mirrors.settle(mirror)

    (found,) = audit("--diff").results

    assert "https://***@registry.example.com" in [change["actual"] for change in found["changes"]]


def test_a_volume_smaller_than_its_claim_is_found(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy(storage={"size": "30Gi"})
    api.patch_status(mirror.claim.document(), {"capacity": {"storage": "20Gi"}})

    (found,) = audit().results

    assert (found["code"], found["reason"]) == ("volume-too-small", "requests 30Gi, but its capacity is still 20Gi")


def test_nodes_without_the_daemon_set_are_counted(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.healthy(tolerations=[])
    mirrors.node("tainted", {"key": "for", "value": "others", "effect": "NoSchedule"})

    (found,) = audit().results

    assert (found["code"], found["object"]["kind"]) == ("nodes-not-covered", "DaemonSet")
    assert found["reason"] == "runs on 2 of 3 Linux nodes; the others do not use the mirror"


@pytest.mark.parametrize("name", ["a.b", "b" * 37, "hub-headless"])
def test_a_name_that_cannot_work_is_refused(api: Api, installed: Path, name: str) -> None:
    with pytest.raises(ApiError, match="the name must have at most 36 characters and no dots, and must not end in"):
        api.create(registry_mirror(name))


def test_a_name_without_valid_resource_names_is_found(api: Api, audit: Run, mirrors: Mirrors) -> None:
    longest = f"{'a' * 29}-{api.token}"
    mirrors.deploy(api.create(registry_mirror(longest, "quay.io")))
    expected = {
        f"b{longest}": "its name has 37 characters; at most 36 fit in the names of its pods",
        f"docker.{api.token}": "its name contains dots, which are not valid in the name of a Service",
        f"hub-{api.token}-headless": (
            "its name ends in -headless, like the name of the second Service of another mirror"
        ),
    }
    allow_any_name(api)
    for name in expected:
        api.create(registry_mirror(name))

    found = audit().results

    assert {(each["code"], each["severity"]) for each in found} == {("invalid-name", "critical")}
    assert {each["object"]["name"]: each["reason"] for each in found} == expected


# Credentials

IMAGES = "kubechores.dev/images"
MINE = "registry.example.com/mine:3"


@pytest.mark.parametrize(
    ("upstream", "images", "code", "reason"),
    [
        ("docker.io", MINE, "", ""),
        ("docker.io", "", "credentials-image-not-allowed", f"does not list {MINE} in its annotation {IMAGES}"),
        (
            "quay.io",
            MINE,
            "credentials-upstream-not-allowed",
            "its annotation kubechores.dev/upstream is not registry-1.docker.io",
        ),
    ],
    ids=["allowed", "another image", "another upstream"],
)
def test_a_login_is_used_only_if_its_secret_allows_upstream_and_image(
    api: Api, audit: Run, repair: Run, mirrors: Mirrors, upstream: str, images: str, code: str, reason: str
) -> None:
    name = mirrors.name("login")
    login = credentials(name, upstream)
    login["metadata"]["annotations"][IMAGES] = images
    api.create(login)
    mirror = mirrors.of(mirrors.create(credentialsSecret=name, allowUnauthenticatedReaders=True, image=MINE))

    found = {each["code"]: each["reason"] for each in audit("--diff").results if each["code"] != "missing"}
    ran = repair()

    assert found == ({code: f"{reason}, so the mirror does not use the Secret"} if code else {})
    assert (api.get(mirror.stateful_set.document()) is None) == bool(code)
    if code:
        (missing,) = [each for each in ran.results if each["object"]["kind"] == "StatefulSet"]
        assert missing["remedy"] == f"a repair continues when secret/{name} in namespace {NAMESPACE} is usable"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "does not exist"),
        ({"username": encoded(canary())}, "has no value for password"),
        ({}, "has no value for username and password"),
    ],
)
def test_a_missing_login_is_found_and_no_registry_starts_without_it(
    api: Api, audit: Run, repair: Run, mirrors: Mirrors, data: dict[str, str] | None, reason: str
) -> None:
    name = mirrors.name("login")
    if data is not None:
        api.create({**credentials(name), "data": data})
    mirror = mirrors.of(mirrors.create(credentialsSecret=name, allowUnauthenticatedReaders=True))

    found = {each["code"]: each["reason"] for each in audit().results if each["code"] != "missing"}
    ran = repair()

    assert found == {"credentials-missing": reason}
    assert api.get(mirror.stateful_set.document()) is None
    (missing,) = [each for each in ran.results if each["object"]["kind"] == "StatefulSet"]
    assert missing["remedy"] == f"a repair continues when secret/{name} in namespace {NAMESPACE} is usable"


def test_new_credentials_are_drift_until_pods_use_them(api: Api, audit: Run, mirrors: Mirrors) -> None:
    login = api.create(credentials(mirrors.name("login")))
    document = mirrors.create(credentialsSecret=mirrors.name("login"), allowUnauthenticatedReaders=True)
    mirrors.deploy(document)
    api.patch(login, {"data": {"password": encoded(canary())}})

    (found,) = audit().results
    assert found["reason"].startswith("spec.template.metadata.annotations[kubechores.dev/credentials-version] ")

    mirrors.deploy(document) if api.kind == "sandbox" else mirrors.apply(mirrors.of(document).stateful_set.document())
    mirrors.settle(mirrors.of(document))
    assert codes(audit()) == []


def test_a_secret_of_another_namespace_is_never_read(api: Api, audit: Run, mirrors: Mirrors) -> None:
    other = api.namespace("other")
    login = credentials(mirrors.name("login"))
    login["metadata"]["namespace"] = other
    api.create(login)
    mirrors.create(credentialsSecret=mirrors.name("login"))
    api.mark()

    audit()

    paths = [each.path for each in api.requests() if "/secrets" in each.path]
    assert paths == [f"/api/v1/namespaces/{NAMESPACE}/secrets/{mirrors.name('login')}"]


# Probes


def test_a_mirror_that_does_not_respond_is_found(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, no_pauses: None
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    other = mirrors.healthy("other", "localhost:1")
    registries.answers[f"{mirror.name}.{NAMESPACE}.svc:5000"] = status(503)

    ran = probe()

    down, upstream = sorted(ran.results, key=lambda each: str(each["code"]))
    assert (down["code"], down["object"]["name"], down["subjects"]) == (
        "mirror-down",
        mirror.name,
        [mirror.registry_mirror.name],
    )
    url = f"http://{mirror.name}.{NAMESPACE}.svc:5000/v2/"
    assert down["reason"] == f"{url} {NO_REGISTRY}"
    assert (upstream["code"], upstream["subjects"]) == ("upstream-down", [other.registry_mirror.name])
    assert upstream["reason"] == f"https://localhost:1/v2/ {NO_REGISTRY}"
    for cause in (f"{url}: HTTP 503 Service Unavailable", "https://localhost:1/v2/: connection refused"):
        assert f"mirror-audit: {cause}\n" in ran.stderr


@contextlib.contextmanager
def listening(*, closed: bool) -> Iterator[str]:
    """Listen on an address that closes connections at once, or never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        if closed:
            threading.Thread(target=close, daemon=True).start()
        yield f"localhost:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


SERVERS: dict[str, Callable[[Registries], contextlib.AbstractContextManager[str]]] = {
    "refuses connections": lambda _: contextlib.nullcontext("localhost:1"),
    "has no name": lambda _: contextlib.nullcontext("no-such-name.invalid:5000"),
    "does not serve TLS": lambda registries: contextlib.nullcontext(registries.proxy.partition("//")[2]),
    "has another certificate": lambda registries: contextlib.nullcontext(registries.other_name),
    "closes connections": lambda _: listening(closed=True),
    "is silent": lambda _: listening(closed=False),
    "has no such path": lambda registries: contextlib.nullcontext(registries.answering(status(404))),
    "fails": lambda registries: contextlib.nullcontext(registries.answering(status(500))),
    "forbids it": lambda registries: contextlib.nullcontext(registries.answering(status(403))),
    "redirects": lambda registries: contextlib.nullcontext(registries.answering(redirect("/v2/"))),
    "has a long answer": lambda registries: contextlib.nullcontext(registries.answering(flood(2))),
}


def test_the_status_is_the_same_for_every_upstream_that_is_not_a_registry(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, no_pauses: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(web, "READ_SECONDS", 1.0)
    mirror = mirrors.healthy(upstream="localhost:2")
    observed: dict[str, tuple[str, ...]] = {}
    for place, at in SERVERS.items():
        with at(registries) as host:
            mirrors.specify(mirror, upstreamUrl=host)
            ran = probe()
            ready = condition(api, mirror)
            texts = (json.dumps(ran.results), ready["reason"], ready["message"])
            observed[place] = tuple(each.replace(host, "HOST") for each in texts)
        assert f"mirror-audit: https://{host}/v2/: " in ran.stderr

    assert set(observed.values()) == {observed["refuses connections"]}
    assert observed["redirects"][1] == "UpstreamDown"
    assert observed["redirects"][2].startswith(f"https://HOST/v2/ {NO_REGISTRY};")


def test_a_redirect_of_a_mirror_or_an_upstream_is_not_followed(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    hosts = [registries.upstream, f"{mirror.name}.{NAMESPACE}.svc:5000"]
    hosts += [f"{mirror.name}-headless.{NAMESPACE}.svc:5001"]
    registries.answers |= {host: redirect(f"https://{registries.upstream}/elsewhere") for host in hosts}

    ran = probe()

    assert sorted(codes(ran)) == ["mirror-down", "upstream-down"]
    assert sorted(registries.requests) == sorted(zip(hosts, ("/v2/", "/v2/", "/"), strict=True))


def test_an_upstream_responds_with_200_or_401(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, no_pauses: None
) -> None:
    mirrors.healthy(upstream=registries.upstream)
    found = {}
    for code in (200, 401, 404, 429):
        registries.answers[registries.upstream] = status(code)
        found[code] = codes(probe())

    assert found == {200: [], 401: [], 404: ["upstream-down"], 429: ["upstream-down"]}


def test_without_a_ready_pod_only_the_cache_is_probed(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    workload(mirrors, mirror, ready=False)

    probe()

    assert sorted(registries.requests) == [
        (registries.upstream, "/v2/"),
        (f"{mirror.name}-headless.{NAMESPACE}.svc:5001", "/"),
    ]


def test_outside_a_pod_nothing_is_probed_over_the_network(
    api: Api, audit: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)

    ran = audit()

    assert (codes(ran), registries.requests) == ([], [])
    assert "mirror-audit: mirrors and upstreams are not probed; see --probe\n" in ran.stderr
    assert (condition(api, mirror)["status"], condition(api, mirror)["reason"]) == ("Unknown", "NotProbed")


def test_the_service_proxy_requires_a_permission_that_the_job_does_not_have(audit: Run, mirror: Mirror) -> None:

    ran = audit("--probe", "service-proxy")

    (found,) = ran.results
    assert (ran.exit_code, found["code"], found["object"]["name"]) == (2, "unreadable", mirror.name)
    assert 'cannot get resource "services/proxy"' in found["reason"]


# Reports of a mirror's cache


CACHES: dict[str, tuple[Object, str, str]] = {
    "space": ({"shortage": "space"}, "volume-filling", "has too little free space; at least 2048 MiB must be free"),
    "inodes": ({"shortage": "inodes"}, "volume-filling", "has too few free inodes"),
    "layers": ({"shortage": "layers"}, "layers-interrupted", "sent an incomplete layer in the last minutes"),
    "access": (
        {"shortage": "access", "used": False},
        "volume-unusable",
        'cannot be used by the registry; the reason is in the log of its container "cache"',
    ),
    "corrupt": (
        {"corruptBlobs": 2},
        "cache-corrupt",
        "2 blobs removed in the last 24 hours, because of a digest mismatch",
    ),
    "unused": ({"used": False}, "never-used", "no image of {host} was pulled through the mirror yet"),
    "rate": ({"refusal": "rate"}, "rate-limited", "{host} answers requests of the registry with 429 Too Many Requests"),
}


def test_a_problem_of_the_cache_is_found_and_written_once(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    for reported, code, reason in CACHES.values():
        registries.caches[mirror.name] = cache_state(**reported)
        ran = probe()
        (found,) = ran.results
        api.mark()
        registries.caches[mirror.name] = cache_state(**reported, freeBytes=1)
        probe()

        assert (ran.exit_code, found["code"], found["reason"]) == (0, code, reason.format(host=mirror.spec.host))
        assert condition(api, mirror)["status"] == "False"
        assert api.writes() == [], "a figure that changes by itself writes no status"


BASIC, BEARER = 'Basic realm="r"', 'Bearer realm="https://r/token",service="r"'
# What the cache reports, the challenge of the upstream, and whether the registry's login was rejected.
REFUSALS = {
    "by the token server": ("login", BEARER, True),
    "by the upstream": ("unauthorized", BASIC, True),
    "of another repository, or of the login": ("unauthorized", BEARER, False),
    "by an upstream with both": ("unauthorized", f"{BASIC}, {BEARER}", False),
    "by an upstream without a challenge": ("unauthorized", "", False),
    "of too many requests": ("rate", BASIC, False),
    "not at all": ("", BASIC, False),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_login_that_the_upstream_rejects_is_found_and_another_refusal_is_not_one(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, what: str
) -> None:
    refusal, challenge, is_rejected = REFUSALS[what]
    host = registries.answering(status(401, **{"WWW-Authenticate": challenge}))
    login = api.create(credentials(mirrors.name("login"), host))["metadata"]["name"]
    mirror = mirrors.healthy(upstream=host, credentialsSecret=login, allowUnauthenticatedReaders=True)
    registries.caches[mirror.name] = cache_state(refusal=refusal, used=False)

    found = {each["code"]: each for each in probe().results}

    assert ("credentials-rejected" in found, "never-used" in found) == (is_rejected, True)
    if is_rejected:
        assert condition(api, mirror)["reason"] == "CredentialsRejected"
        assert found["credentials-rejected"]["severity"] == "critical"
        assert found["credentials-rejected"]["object"] == {"kind": "Secret", "name": login, "namespace": NAMESPACE}
        assert found["credentials-rejected"]["reason"] == f"{host} rejects its username or password"


def test_a_refusal_of_a_registry_without_the_login_is_not_about_credentials(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    registries.caches[mirror.name] = cache_state(refusal="login")
    assert codes(probe()) == []

    login = api.create(credentials(mirrors.name("login"), registries.upstream))["metadata"]["name"]
    mirrors.specify(mirror, credentialsSecret=login, allowUnauthenticatedReaders=True)
    assert codes(probe()) == ["drifted"]


def test_a_cache_of_an_earlier_version_reports_no_refusal(probe: Run, mirrors: Mirrors, registries: Registries) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    registries.caches[mirror.name] = cache_state()
    del registries.caches[mirror.name]["refusal"]  # type: ignore[attr-defined]

    assert codes(probe()) == []


def test_the_cache_of_a_mirror_that_is_not_ready_is_probed(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    workload(mirrors, mirror, ready=False)
    registries.caches[mirror.name] = cache_state(shortage="space")

    assert sorted(codes(probe())) == ["no-endpoints", "not-rolled-out", "volume-filling"]
    assert condition(api, mirror)["reason"] == "VolumeFilling"


INVALID_ANSWERS: dict[str, Answer] = {
    "503": status(503),
    "no JSON": document(b"no JSON"),
    "a list": document(b"[]"),
    "an unknown word": document(json.dumps(cache_state(shortage="of bread")).encode()),
    "an unknown refusal": document(json.dumps(cache_state(refusal="<b>")).encode()),
    "a negative number": document(json.dumps(cache_state(corruptBlobs=-1)).encode()),
    "a large number": document(json.dumps(cache_state(leastFreeBytes=1 << 70)).encode()),
    "a redirect": redirect("http://169.254.169.254/"),
    "a flood": flood(2),
}


def test_an_invalid_response_of_a_cache_makes_the_status_unknown(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    for what, answer in INVALID_ANSWERS.items():
        registries.answers.clear()
        assert codes(probe()) == []
        registries.answers[f"{mirror.name}-headless.{NAMESPACE}.svc:5001"] = answer

        (found,) = probe().results

        assert (found["code"], found["object"]["name"]) == ("unreadable", mirror.name), what
        assert found["reason"].startswith('its container "cache" does not respond'), what
        assert condition(api, mirror)["status"] == "Unknown", what


def test_a_registry_of_an_earlier_version_has_no_cache_to_probe(
    probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    earlier = mirror.stateful_set.document()
    earlier["spec"]["template"]["spec"]["containers"].pop()
    mirrors.apply(earlier)
    mirrors.settle(mirror)

    assert codes(probe()) == ["drifted"]
    assert "/" not in [path for _, path in registries.requests]


# Statuses, Events and reports


def test_the_status_names_the_worst_findings_and_each_change_has_one_event(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    probe()
    deleted("service")(mirrors, mirror)
    ports = [{"name": "registry", "port": 1}, {"name": "cache", "port": 5001, "targetPort": "cache"}]
    mirrors.edit(mirror.headless_service.document(), {"spec": {"ports": ports}})
    probe()
    probe()

    events = api.events()
    assert [(each["type"], each["reason"], each["metadata"]["namespace"]) for each in events] == [
        ("Normal", "Healthy", "default"),
        ("Warning", "Missing", "default"),
    ]
    assert events[1]["involvedObject"]["name"] == mirror.registry_mirror.name
    assert condition(api, mirror)["message"] == (
        f"service/{mirror.name} in namespace {NAMESPACE}: does not exist; service/{mirror.name}-headless in namespace "
        f"{NAMESPACE}: spec.ports[5000] changed by kubectl-edit"
    )
    table = api.call("GET", f"/apis/kubechores.dev/v1/registrymirrors/{mirror.registry_mirror.name}", headers=TABLE)
    names = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert names == ["Name", "Upstream", "State", "Findings", "Age"]
    assert table["rows"][0]["cells"][:4] == [mirror.registry_mirror.name, registries.upstream, "Missing", 2]


def test_a_dry_run_writes_no_status(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.create()
    api.mark()

    assert audit("--dry-run").summary == {"missing": 5}
    assert audit("--check").exit_code == 3
    assert api.writes() == []


def test_mirrors_in_a_file_are_audited_without_the_crd_and_no_others(
    api: Api, audit: Run, mirrors: Mirrors, tmp_path: Path, mirror: Mirror
) -> None:
    file = tmp_path / "mirrors.yaml"
    file.write_text(yaml.safe_dump(registry_mirror(mirrors.name("other"), "quay.io")))
    api.mark()

    ran = audit("-f", str(file))

    assert (ran.exit_code, ran.summary) == (0, {"missing": 5})
    assert [each for each in api.requests() if "registrymirrors" in each.path] == []
    file.write_text(yaml.safe_dump(registry_mirror(mirror.registry_mirror.name)))
    assert audit("-f", str(file)).summary == {"unchanged": 5}


def test_all_problems_of_mirrors_in_files_are_reported_at_once(api: Api, audit: Run, tmp_path: Path) -> None:
    file = tmp_path / "mirrors.yaml"
    bad = registry_mirror("bad", "https://Registry.example.com/path", ttl="soon", allowUnauthenticatedReaders=True)
    bad["metadata"]["namespace"] = "shop"
    effects = ([{"effect": "NoSchedule"}], [{"effect": "NoSchedule"}])  # one list would be a YAML alias
    keyless = registry_mirror(
        "keyless", allowUnauthenticatedReaders=True, tolerations=effects[0], registryTolerations=effects[1]
    )
    file.write_text(yaml.safe_dump_all([bad, keyless]))

    ran = audit("-f", str(file))

    assert ran.exit_code == 2
    for problem in (
        "bad: spec.ttl: 'soon' does not match",
        "bad: spec.upstreamUrl: 'https://Registry.example.com/path' does not match",
        "bad: metadata.namespace: registrymirrors are cluster-scoped; remove it",
        "keyless: spec.allowUnauthenticatedReaders: ",
        "keyless: spec.tolerations[0]: without a key the operator must be Exists",
        "keyless: spec.registryTolerations[0]: without a key the operator must be Exists",
    ):
        assert problem in ran.stderr


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"upstreamUrl": "https://robot:secret@registry.example.com"}, "spec.upstreamUrl"),
        ({"upstreamUrl": "quay.io", "ttl": "forever"}, "spec.ttl"),
        ({"upstreamUrl": "quay.io", "fallback": "Other"}, "spec.fallback"),
        ({"upstreamUrl": "quay.io", "allowUnauthenticatedReaders": True}, "spec.allowUnauthenticatedReaders"),
        ({"upstreamUrl": "quay.io", "tolerations": [{"effect": "NoSchedule"}]}, "spec.tolerations[0]"),
        ({"upstreamUrl": "quay.io", "registryTolerations": [{"effect": "NoSchedule"}]}, "spec.registryTolerations[0]"),
        (
            {"upstreamUrl": "quay.io", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "spec.resources.requests",
        ),
        ({"upstreamUrl": "quay.io", "tolerations": [{"key": "bad key!"}]}, "spec.tolerations[0].key"),
        (
            {"upstreamUrl": "quay.io", "tolerations": [{"operator": "Exists", "value": "a"}]},
            "spec.tolerations[0].value",
        ),
        (
            {"upstreamUrl": "quay.io", "tolerations": [{"key": "a", "tolerationSeconds": 1}]},
            "spec.tolerations[0].tolerationSeconds",
        ),
    ],
)
def test_the_server_rejects_an_invalid_mirror(api: Api, installed: Path, spec: Object, field: str) -> None:
    code, _, body = api.request(
        "POST", "/apis/kubechores.dev/v1/registrymirrors", {**registry_mirror("odd"), "spec": spec}
    )

    assert code == 422
    assert field in [cause["field"] for cause in json.loads(body)["details"]["causes"]]


def test_the_text_lists_the_worst_mirror_first_in_80_columns(api: Api, audit: Run, mirrors: Mirrors) -> None:
    fair, poor, good = (
        mirrors.healthy(*each) for each in (("fair", "gcr.io"), ("poor", "quay.io"), ("good", "ghcr.io"))
    )
    mirrors.edit(fair.service.document(), {"spec": {"ports": [{"name": "cache", "port": 5001, "targetPort": "cache"}]}})
    mirrors.edit(
        poor.headless_service.document(), {"spec": {"ports": [{"name": "cache", "port": 5001, "targetPort": "cache"}]}}
    )
    deleted("service")(mirrors, poor)

    lines = audit("--diff", output="text").stdout.splitlines()

    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == [
        f"{poor.registry_mirror.name}: 1 critical, 1 warning",
        f"{fair.registry_mirror.name}: 1 warning",
        "mirror-audit: 12 unchanged, 2 drifted, 1 missing (3 mirrors)",
    ]
    assert lines[1:3] == [f"  missing  service/{poor.name}", "    does not exist"]
    assert max(map(len, lines)) <= 80
    assert good.registry_mirror.name not in "\n".join(lines)


def test_the_text_has_one_row_for_a_mirror_that_does_not_exist_yet(api: Api, audit: Run, mirrors: Mirrors) -> None:
    name = mirrors.create("new", "gcr.io")["metadata"]["name"]
    mirrors.apply(mirrors.of(mirrors.create("begun", "quay.io")).claim.document())

    text = audit(output="text").stdout

    rows = [line for line in text.splitlines() if line.startswith("  missing") and name in line]
    assert rows == [f"  missing  registrymirror/{name}"]
    assert f"{name}: 1 critical\n" in text
    assert "    does not exist yet: 5 resources are missing; mirror-repair creates them\n" in text
    assert text.count("  missing  ") == 1 + 4
    # All else has each of the resources.
    assert audit("-v", output="text").stdout.count("  missing  ") == 5 + 4
    assert audit().summary["missing"] == 5 + 4
    assert api.read(registry_mirror(name))["status"]["findings"] == 5
    to_repair = audit("--repair", "--dry-run", output="text").stdout
    assert to_repair.count("  missing  ") + to_repair.count("  created (dry run)  service/") == 5 + 4


def test_min_severity_leaves_out_what_is_less_severe(api: Api, audit: Run, repair: Run, mirrors: Mirrors) -> None:
    drifted = mirrors.healthy("drifted", "gcr.io")
    missing = mirrors.healthy("missing", "quay.io")
    mirrors.edit(drifted.stateful_set.document(), {"spec": {"replicas": 2}})
    api.delete(missing.headless_service.document())
    least = ("--min-severity", "critical")

    ran = audit(*least)

    assert [(each["code"], each["severity"]) for each in ran.results] == [("missing", "critical")]
    assert "less severe" in audit(*least, output="text").stdout
    # Statuses and repairs are as without it.
    assert api.read(registry_mirror(drifted.registry_mirror.name))["status"]["findings"] > 0
    written = {each["object"]["name"]: each["code"] for each in repair(*least).results if each["outcome"] == "done"}
    assert written == {drifted.name: "drifted", f"{missing.name}-headless": "missing"}


def test_check_counts_findings_of_the_least_severity(audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    port = {"name": "cache", "port": 5001, "targetPort": "cache"}
    mirrors.edit(mirror.service.document(), {"spec": {"ports": [port]}})

    levels = ("info", "warning", "critical")
    assert [audit("--check", "--min-severity", least).exit_code for least in levels] == [3, 3, 0]


# Number of requests


def test_requests_do_not_grow_with_mirrors(api: Api, audit: Run, mirrors: Mirrors) -> None:
    number = 8
    for each in range(number):
        document = mirrors.create(f"m{each}", f"registry-{each}.example.com")
        for resource in mirrors.of(document).resources:
            mirrors.apply(resource.document())

    def is_quiet() -> bool:
        """Return whether all controllers have observed the resources, so that a run writes no status."""
        api.mark()
        audit()
        return api.writes() == []

    wait_for(is_quiet, "runs to write no statuses", 60)
    api.mark()

    ran = audit()

    assert ran.report["facts"] == {"mirrors": number}
    requests = [each.path for each in api.requests()]
    core, apps = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    together = [
        [f"{core}/services", f"{core}/persistentvolumeclaims", "/api/v1/nodes"],
        [f"{apps}/statefulsets"],
        [f"{apps}/daemonsets", f"/apis/apps/v1/namespaces/{NODES}/daemonsets", slices],
        [f"{core}/events"],  # because no resource works
        [f"/api/v1/namespaces/{NODES}/events"],
        ["/apis/kubechores.dev/v1/registrymirrors"],
    ]
    for paths in together:
        answered, requests = requests[: len(paths)], requests[len(paths) :]
        assert sorted(answered) == sorted(paths)
    assert requests == []
