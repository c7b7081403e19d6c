"""mirror-audit as users run it: the same on the embedded and the real API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.mirrors.mirror import Mirror
from tests.api.conftest import Ran, Run
from tests.apis import Api, Object, wait_for
from tests.mirrors import NAMESPACE, Mirrors, registry_mirror
from tests.registries import Registries

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


def codes(ran: Ran) -> list[str]:
    """The codes of a run's findings."""
    return [each["code"] for each in ran.results]


def condition(api: Api, mirror: Mirror) -> dict[str, Any]:
    """The Ready condition of a RegistryMirror."""
    found = api.get(registry_mirror(mirror.asked.name))
    assert found
    (ready,) = found["status"]["conditions"]
    assert ready["observedGeneration"] == found["status"]["observedGeneration"] == found["metadata"]["generation"]
    return dict(ready)


def test_nothing_is_found_when_all_is_well(api: Api, reach: Run, mirrors: Mirrors, registries: Registries) -> None:
    mirror = mirrors.well(upstream=registries.upstream)

    ran = reach()

    assert (ran.exit_code, codes(ran), ran.summary) == (0, [], {"unchanged": 5})
    assert condition(api, mirror)["reason"] == "Healthy"
    assert sorted(registries.requests) == [
        (registries.upstream, "/v2/"),
        (f"{mirror.name}.{NAMESPACE}.svc:5000", "/v2/"),
    ]
    assert (reach("--check").exit_code, reach("-v").summary) == (0, {"unchanged": 5})


def test_a_second_audit_writes_nothing(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.well()
    mirrors.ask("missing", "gcr.io")
    audit()
    api.mark()

    ran = audit()

    assert ran.summary == {"unchanged": 5, "missing": 5}
    assert api.writes() == []


# What is broken, each with the findings that it makes and no others.


def workload(mirrors: Mirrors, mirror: Mirror, ready: bool) -> None:
    """Have the pod of the registry be ready or not."""
    if mirrors.api.kind == "sandbox":
        numbers = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": int(ready)}
        mirrors.status(mirror.stateful_set.document(), **numbers)
        mirrors.slice(mirror, ready=ready)
        return
    (pod,) = mirrors.pods(mirror, "registry")
    mirrors.run_pod(pod, ready=ready)
    found = mirror.stateful_set.document()
    wait_for(
        lambda: (mirrors.api.get(found) or {})["status"].get("readyReplicas", 0) == int(ready), "the pod to be seen"
    )


def no_address(mirrors: Mirrors, mirror: Mirror) -> None:
    """Have a pod that is ready, and an EndpointSlice that does not know it."""
    if mirrors.api.kind == "sandbox":
        return mirrors.slice(mirror, ready=False)
    selector = f"kubernetes.io/service-name={mirror.name}"
    for each in mirrors.api.items("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE, labelSelector=selector):
        unmanaged = {"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "tests"}}}
        mirrors.edit(each, {**unmanaged, "endpoints": []})
    (pod,) = mirrors.pods(mirror, "registry")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
    mirrors.api.call("DELETE", f"{path}?gracePeriodSeconds=0")

    def ready_without_address() -> bool:
        for each in mirrors.pods(mirror, "registry"):
            mirrors.run_pod(each, address="")
        return bool((mirrors.api.get(mirror.stateful_set.document()) or {})["status"].get("readyReplicas") == 1)

    wait_for(ready_without_address, "a pod that is ready and has no address")
    return None


def deleted(which: str) -> Callable[[Mirrors, Mirror], None]:
    def delete(mirrors: Mirrors, mirror: Mirror) -> None:
        document = getattr(mirror, which).document()
        path = mirrors.api.path(document)
        mirrors.api.call("DELETE", f"{path}?propagationPolicy=Orphan")
        if which == "claim":
            mirrors.edit(document, {"metadata": {"finalizers": None}}) if mirrors.api.get(document) else None
        wait_for(lambda: mirrors.api.get(document) is None, f"{which} to be gone")

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
        return bool((mirrors.api.get(mirror.stateful_set.document()) or {})["status"].get("readyReplicas") == 2)

    return wait_for(ready, "two pods")


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


def foreign(mirrors: Mirrors, mirror: Mirror) -> None:
    deleted("service")(mirrors, mirror)
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": mirror.name, "namespace": NAMESPACE}}
    mirrors.api.create({**theirs, "spec": {"ports": [{"port": 80}], "selector": {"theirs": "yes"}}})


def pending(mirrors: Mirrors, mirror: Mirror) -> None:
    deleted("claim")(mirrors, mirror)
    mirrors.apply(mirror.claim.document())


def resized(size: str) -> Callable[[Mirrors, Mirror], None]:
    def resize(mirrors: Mirrors, mirror: Mirror) -> None:
        mirrors.edit(registry_mirror(mirror.asked.name), {"spec": {"storage": {"size": size}}})

    return resize


def respelled(mirrors: Mirrors, mirror: Mirror) -> None:
    resources = {"limits": {"memory": "524288Ki"}, "requests": {"cpu": "0.05"}}
    patch = {"spec": {"storage": {"size": "20480Mi"}, "resources": resources}}
    mirrors.edit(registry_mirror(mirror.asked.name), patch)


def specified(**spec: Any) -> Callable[[Mirrors, Mirror], None]:
    def specify(mirrors: Mirrors, mirror: Mirror) -> None:
        mirrors.edit(registry_mirror(mirror.asked.name), {"spec": spec})

    return specify


def image_without_tag(mirrors: Mirrors, mirror: Mirror) -> None:
    mirrors.edit(registry_mirror(mirror.asked.name), {"spec": {"image": "registry"}})
    changed = mirrors.api.get(registry_mirror(mirror.asked.name))
    assert changed
    mirrors.apply(mirrors.of(changed).stateful_set.document())
    mirrors.settle(mirror)


def another_node(mirrors: Mirrors, mirror: Mirror) -> None:
    """Add a node that the DaemonSet, which somebody told to tolerate nothing, is not for."""
    mirrors.node("tainted", {"key": "for", "value": "others", "effect": "NoSchedule"})


def mirror_of_another(mirrors: Mirrors, mirror: Mirror) -> None:
    gone = mirrors.well("gone", "quay.io")
    mirrors.api.delete(registry_mirror(gone.asked.name))


BREAKS: dict[str, tuple[Callable[[Mirrors, Mirror], Any], list[str]]] = {
    "the Service is gone": (deleted("service"), ["missing"]),
    "the headless Service is gone": (deleted("headless_service"), ["missing"]),
    "the StatefulSet is gone, and its pod stays": (deleted("stateful_set"), ["missing"]),
    "the DaemonSet is gone": (deleted("daemon_set"), ["missing"]),
    "the Service has another selector": (
        edited("headless_service", {"spec": {"selector": {"kubechores.dev/mirror": "x"}}}),
        ["drifted"],
    ),
    "two replicas": (scaled, ["drifted"]),
    "another image": (another_image, ["drifted"]),
    "a label of ours is gone": (
        edited("service", {"metadata": {"labels": {"app.kubernetes.io/name": None}}}),
        ["drifted"],
    ),
    "a field that we set once": (no_longer_set, ["drifted"]),
    "an annotation of others": (edited("service", {"metadata": {"annotations": {"mine": "yes"}}}), []),
    "a field that others set": (edited("daemon_set", {"spec": {"minReadySeconds": 0, "revisionHistoryLimit": 3}}), []),
    "quantities written in another way": (respelled, []),
    "an object in the way": (foreign, ["conflict"]),
    "the pod is not ready": (
        lambda mirrors, mirror: workload(mirrors, mirror, ready=False),
        ["no-endpoints", "not-rolled-out"],
    ),
    "no endpoint": (no_address, ["no-endpoints"]),
    "a larger volume is asked for": (resized("30Gi"), ["volume-too-small"]),
    "a smaller volume is asked for": (resized("10Gi"), ["volume-shrink"]),
    "an image without a tag": (image_without_tag, ["image-unpinned"]),
    "the mirror is gone": (mirror_of_another, 5 * ["orphan"]),
    "another mirror has the same upstream": (
        lambda mirrors, mirror: mirrors.well("second"),
        2 * ["duplicate-upstream"],
    ),
    "another mirror is for the same host": (
        lambda mirrors, mirror: mirrors.well("second", "quay.io", registryHost="docker.io"),
        2 * ["duplicate-upstream"],
    ),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_what_is_broken_is_found_and_nothing_else(api: Api, audit: Run, mirrors: Mirrors, broken: str) -> None:
    mirror = mirrors.well()
    assert codes(audit()) == []
    breaking, expected = BREAKS[broken]
    breaking(mirrors, mirror)
    api.mark()

    ran = audit()

    assert (ran.exit_code, sorted(codes(ran))) == (0, expected), ran.results
    assert {each.path.rpartition("/")[2] for each in api.writes()} <= {"status", "events"}
    assert audit("--check").exit_code == (3 if expected else 0)
