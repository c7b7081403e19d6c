"""Complete mirrors that do not serve: because of fields that others set, and of foreign pods."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from jobs.core.mirror_audit.desired import Mirror
from tests.api.conftest import Ran, Run
from tests.api.test_mirror_audit import codes, condition, scaled, workload
from tests.apis import Api, Object, wait_for
from tests.mirrors import NAMESPACE, Mirrors, registry_pod
from tests.rates import status
from tests.registries import Registries, cache_state

# Fields of others that block requests of nodes, or rollouts: each resource with a patch and the field.
ON_DELETE: Object = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
BREAKING: Mapping[str, Sequence[tuple[str, Object, str]]] = {
    "requests, or updates of pods, are blocked": (
        ("service", {"spec": {"publishNotReadyAddresses": True}}, "spec.publishNotReadyAddresses"),
        ("service", {"spec": {"internalTrafficPolicy": "Local"}}, "spec.internalTrafficPolicy"),
        ("service", {"spec": {"selector": {"app": "other"}}}, "spec.selector.app"),
        ("headless_service", {"spec": {"selector": {"app": "other"}}}, "spec.selector.app"),
        ("stateful_set", ON_DELETE, "spec.updateStrategy.type"),
        ("daemon_set", ON_DELETE, "spec.updateStrategy.type"),
    ),
    "some pods are not updated, or one node blocks the others": (
        (
            "stateful_set",
            {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}},
            "spec.updateStrategy.rollingUpdate.partition",
        ),
        (
            "daemon_set",
            {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}},
            "spec.updateStrategy.rollingUpdate.maxUnavailable",
        ),
    ),
}
# Fields of others without effect on nodes.
HARMLESS: Sequence[tuple[str, Object]] = (
    ("service", {"spec": {"sessionAffinity": "ClientIP"}}),
    ("service", {"spec": {"externalIPs": ["192.0.2.1"]}}),
    ("service", {"spec": {"trafficDistribution": "PreferClose"}}),
    (
        "service",
        {"spec": {"ports": [{"name": "registry", "port": 5000, "targetPort": "registry"}, {"name": "b", "port": 1}]}},
    ),
    ("stateful_set", {"spec": {"minReadySeconds": 1}}),
)


@pytest.mark.parametrize("what", BREAKING)
def test_fields_of_others_that_break_a_mirror_are_found_and_repaired(
    audit: Run, repair: Run, mirrors: Mirrors, what: str, mirror: Mirror
) -> None:
    for resource, patch, _ in BREAKING[what]:
        mirrors.edit(getattr(mirror, resource).document(), patch)

    drifted = [each for each in audit("--diff").results if each["code"] == "drifted"]

    changed = {(each["object"]["name"], change["field"]) for each in drifted for change in each["changes"]}
    fields = {(getattr(mirror, resource).name, field) for resource, _, field in BREAKING[what]}
    assert fields <= changed
    assert {each["reason"].endswith(" changed by kubectl-edit") for each in drifted} == {True}
    assert repair().exit_code == 0
    mirrors.settle(mirror)
    assert codes(audit()) == []


def test_harmless_fields_of_others_are_not_drift(
    api: Api, audit: Run, repair: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    for resource, patch in HARMLESS:
        mirrors.edit(getattr(mirror, resource).document(), patch)
    mirrors.settle(mirror)
    changed = (mirror.service.document(), mirror.stateful_set.document())
    before = [api.read(each)["spec"] for each in changed]

    assert codes(audit()) == []
    repair()
    assert [api.read(each)["spec"] for each in changed] == before


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True)
def test_a_node_that_does_not_use_the_mirror_does_not_block_others(api: Api, mirrors: Mirrors, mirror: Mirror) -> None:
    mirrors.edit(mirror.daemon_set.document(), {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}})

    def all_have_it() -> bool:
        for pod in mirrors.pods(mirror, "node"):
            if not pod["status"].get("podIP"):  # the pod before is ready
                mirrors.run_pod(pod, ready=False)
        found = api.read(mirror.daemon_set.document())
        is_observed = found["status"]["observedGeneration"] == found["metadata"]["generation"]
        return bool(is_observed and found["status"].get("updatedNumberScheduled") == 2)

    wait_for(all_have_it, "the change on both nodes", 30)


# foreign pods


def second_endpoint(
    mirrors: Mirrors, mirror: Mirror, address: str = "10.1.0.9", service: str = "", family: str = "IPv4", **fields: Any
) -> None:
    """Create an EndpointSlice of a Service, by default the mirror's, with another ready address."""
    service = service or mirror.name
    labels = {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "tests"}
    metadata = {"name": f"{service}-2", "namespace": NAMESPACE, "labels": labels}
    document: Object = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
    document |= {"addressType": family, "ports": [{"name": "registry", "port": 5000, "protocol": "TCP"}]}
    mirrors.api.create(document | {"endpoints": [{"addresses": [address], "conditions": {"ready": True}, **fields}]})


def foreign_pod(mirrors: Mirrors, mirror: Mirror) -> str:
    """Create a ready foreign pod with the labels of the registry's; return its name."""
    api = mirrors.api
    name = f"foreign-{api.token}"
    if api.kind == "sandbox":
        reference = {"kind": "Pod", "namespace": NAMESPACE, "name": name}
        for service in (mirror.service, mirror.headless_service):
            second_endpoint(mirrors, mirror, service=service.name, targetRef=reference)
        return name
    template = mirror.stateful_set.document()["spec"]["template"]
    metadata = {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    container = template["spec"]["containers"][0] | {"volumeMounts": []}
    spec = template["spec"] | {"containers": [container], "volumes": []}
    mirrors.run_pod(
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}), address="10.1.0.9"
    )

    def is_behind(service: str) -> bool:
        selector = f"kubernetes.io/service-name={service}"
        slices = api.items("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE, labelSelector=selector)
        endpoints = [endpoint for each in slices for endpoint in each.get("endpoints") or ()]
        return any(each.get("targetRef", {}).get("name") == name for each in endpoints)

    for each in (mirror.service, mirror.headless_service):
        wait_for(partial(is_behind, each.name), "the endpoint")
    return name


def of_code(ran: Ran, code: str) -> dict[str, str]:
    """Return the reasons of the findings of a code, by the name of the object."""
    return {each["object"]["name"]: each["reason"] for each in ran.results if each["code"] == code}


def test_a_foreign_endpoint_is_one_finding_whatever_the_response(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    second_endpoint(mirrors, mirror)

    (found,) = probe().results

    assert (found["code"], found["severity"]) == ("foreign-endpoints", "critical")
    which = "1 address is not part of the registry, but nodes send requests there"
    assert found["reason"] == f"has 2 endpoints for 1 replica: {which}"
    before = condition(api, mirror)
    assert before["reason"] == "ForeignEndpoints"
    registries.answers[f"{mirror.name}.{NAMESPACE}.svc:5000"] = status(404)  # as the other pod
    probe()
    assert condition(api, mirror) == before


def test_a_foreign_pod_with_the_labels_of_the_registry_is_named(audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    name = foreign_pod(mirrors, mirror)

    reasons = of_code(audit(), "foreign-endpoints")

    which = f"pod {name} is not part of the registry, but nodes send requests there"
    expected = f"has 2 endpoints for 1 replica: {which}"
    services = (mirror.service, mirror.headless_service)
    assert reasons == {each.name: expected for each in services}


def test_a_foreign_pod_does_not_count_as_the_registry(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    workload(mirrors, mirror, ready=False)
    name = foreign_pod(mirrors, mirror)
    registries.caches[mirror.name] = cache_state(used=False)  # as the other pod

    def is_unready() -> bool:
        return mirror.name in of_code(probe(), "no-endpoints")

    wait_for(is_unready, "the registry to be unready")
    ran = probe()

    which = f"pod {name} is not part of the registry, but nodes send requests there"
    reason = f"has 1 endpoint for 1 replica: {which}"
    assert of_code(ran, "foreign-endpoints")[mirror.name] == reason
    assert set(codes(ran)) == {"foreign-endpoints", "no-endpoints", "not-rolled-out"}, "the audit ignores the responses"


def test_the_cache_is_not_probed_while_its_service_has_foreign_endpoints(
    probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    headless = mirror.headless_service.name
    second_endpoint(mirrors, mirror, service=headless)
    registries.caches[mirror.name] = cache_state(used=False)

    assert list(of_code(ran := probe(), "foreign-endpoints")) == [headless]
    assert codes(ran) == ["foreign-endpoints"]


def test_additional_replicas_are_not_foreign_endpoints(audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    scaled(mirrors, mirror)
    if mirrors.api.kind == "sandbox":
        second_endpoint(mirrors, mirror, targetRef=registry_pod(mirror, 1))

    assert codes(audit()) == ["drifted"]


def test_a_registry_with_another_start_ordinal_counts_as_the_registry(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    mirrors.edit(mirror.stateful_set.document(), {"spec": {"ordinals": {"start": 1}}})
    mirrors.settle(mirror)
    if api.kind == "sandbox":
        for service in (mirror.service, mirror.headless_service):
            metadata = {"name": f"{service.name}-1", "namespace": NAMESPACE}
            found = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
            mirrors.edit(found, {"endpoints": [{"addresses": ["10.1.0.1"], "targetRef": registry_pod(mirror, 1)}]})

    def is_well() -> bool:
        if api.kind == "real":
            mirrors.settle(mirror)
        return codes(audit()) == []

    wait_for(is_well, "the pod with the number 1", 30)


# nodes without the DaemonSet

ON_DISKS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
NARROWED: Mapping[str, tuple[Object, str]] = {
    "nodeSelector": ({"nodeSelector": {"disk": "ssd"}}, "nodeSelector"),
    "affinity": (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ON_DISKS}}},
        "affinity",
    ),
}


@pytest.mark.parametrize("what", NARROWED)
def test_fields_that_restrict_a_daemon_set_to_some_nodes_are_named(
    api: Api, audit: Run, mirrors: Mirrors, what: str, mirror: Mirror
) -> None:
    pod, field = NARROWED[what]
    found = mirror.daemon_set.document()
    mirrors.edit(found, {"spec": {"template": {"spec": pod}}})
    if api.kind == "sandbox":
        mirrors.status(found, desiredNumberScheduled=0, updatedNumberScheduled=0, numberReady=0)
    else:

        def is_narrow() -> bool:
            mirrors.pods(mirror, "node")
            after = api.read(found)
            return bool(
                after["status"]["desiredNumberScheduled"] == 0
                and after["status"]["observedGeneration"] == after["metadata"]["generation"]
            )

        wait_for(is_narrow, "the controller to leave the nodes")

    (uncovered,) = [each for each in audit().results if each["code"] == "nodes-not-covered"]

    assert uncovered["reason"].startswith(f"runs on 0 of 2 Linux nodes, because of spec.template.spec.{field};")
