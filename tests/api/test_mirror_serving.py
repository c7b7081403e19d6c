"""What keeps a mirror from serving although nothing of it is missing: fields that others set, and pods of others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jobs.mirrors.mirror import Mirror
from tests.api.conftest import Run
from tests.api.test_mirror_audit import codes, condition, scaled
from tests.api.test_mirror_repair import actual
from tests.apis import Api, Object, wait_for
from tests.mirrors import NAMESPACE, Mirrors
from tests.rates import status
from tests.registries import Registries

# What others set that keeps nodes from the registry, or the registry from a change: the child, a patch, the field.
BREAKING: Mapping[str, tuple[str, Object, str]] = {
    "pods that are not ready get requests": (
        "service",
        {"spec": {"publishNotReadyAddresses": True}},
        "spec.publishNotReadyAddresses",
    ),
    "nodes reach only their own pod": (
        "service",
        {"spec": {"internalTrafficPolicy": "Local"}},
        "spec.internalTrafficPolicy",
    ),
    "the selector has more labels": ("service", {"spec": {"selector": {"app": "theirs"}}}, "spec.selector.app"),
    "the headless Service has more labels": (
        "headless_service",
        {"spec": {"selector": {"app": "theirs"}}},
        "spec.selector.app",
    ),
    "the registry is not replaced": (
        "stateful_set",
        {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}},
        "spec.updateStrategy.type",
    ),
    "the first pod is left out": (
        "stateful_set",
        {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}},
        "spec.updateStrategy.rollingUpdate.partition",
    ),
    "pods of nodes are not replaced": (
        "daemon_set",
        {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}},
        "spec.updateStrategy.type",
    ),
    "one node keeps the others from a change": (
        "daemon_set",
        {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}},
        "spec.updateStrategy.rollingUpdate.maxUnavailable",
    ),
}
# What others may set: nodes reach the registry all the same.
HARMLESS: Mapping[str, tuple[str, Object]] = {
    "clients stay with a pod": ("service", {"spec": {"sessionAffinity": "ClientIP"}}),
    "clients outside reach it": ("service", {"spec": {"externalIPs": ["192.0.2.1"]}}),
    "near pods are preferred": ("service", {"spec": {"trafficDistribution": "PreferClose"}}),
    "another port": (
        "service",
        {"spec": {"ports": [{"name": "registry", "port": 5000, "targetPort": "registry"}, {"name": "b", "port": 1}]}},
    ),
    "a finished rollout counts later": ("stateful_set", {"spec": {"minReadySeconds": 1}}),
}


@pytest.mark.parametrize("what", BREAKING)
def test_a_field_of_others_that_keeps_nodes_from_the_mirror_is_found_and_repaired(
    api: Api, audit: Run, repair: Run, mirrors: Mirrors, what: str
) -> None:
    mirror = mirrors.well()
    child, patch, field = BREAKING[what]
    mirrors.edit(getattr(mirror, child).document(), patch)

    drifted = [each for each in audit().results if each["code"] == "drifted"]

    (reason,) = [each["reason"] for each in drifted]
    assert field in reason and reason.endswith(" changed by kubectl-edit")
    assert repair().exit_code == 0
    mirrors.settle(mirror)
    assert codes(audit()) == []


@pytest.mark.parametrize("what", HARMLESS)
def test_a_field_of_others_that_changes_nothing_for_nodes_is_theirs(
    api: Api, audit: Run, repair: Run, mirrors: Mirrors, what: str
) -> None:
    mirror = mirrors.well()
    child, patch = HARMLESS[what]
    mirrors.edit(getattr(mirror, child).document(), patch)
    mirrors.settle(mirror)
    before = actual(api, getattr(mirror, child).document())["spec"]

    assert codes(audit()) == []
    repair()
    assert actual(api, getattr(mirror, child).document())["spec"] == before


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True)
def test_a_node_that_does_not_use_the_mirror_does_not_keep_others_from_a_change(api: Api, mirrors: Mirrors) -> None:
    mirror = mirrors.well()
    mirrors.edit(mirror.daemon_set.document(), {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}})

    def all_have_it() -> bool:
        for pod in mirrors.pods(mirror, "node"):
            if not pod["status"].get("podIP"):  # the pod before is ready
                mirrors.run_pod(pod, ready=False)
        found = actual(api, mirror.daemon_set.document())
        is_seen = found["status"]["observedGeneration"] == found["metadata"]["generation"]
        return bool(is_seen and found["status"].get("updatedNumberScheduled") == 2)

    wait_for(all_have_it, "the change on both nodes", 30)


# pods of others behind the Service


def second_endpoint(mirrors: Mirrors, mirror: Mirror, *more: str, family: str = "IPv4") -> None:
    """Have an EndpointSlice with more pods that are ready."""
    labels = {"kubernetes.io/service-name": mirror.name, "endpointslice.kubernetes.io/managed-by": "tests"}
    metadata = {"name": f"{mirror.name}-2", "namespace": NAMESPACE, "labels": labels}
    made: Object = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
    made |= {"addressType": family, "ports": [{"name": "registry", "port": 5000, "protocol": "TCP"}]}
    mirrors.api.create(made | {"endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in more]})


def test_a_pod_of_others_behind_the_service_is_one_finding_whatever_answers(
    api: Api, reach: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.well(upstream=registries.upstream)
    second_endpoint(mirrors, mirror, "10.1.0.9")

    (found,) = reach().results

    assert (found["code"], found["severity"]) == ("foreign-endpoints", "error")
    assert found["reason"].startswith("has 2 endpoints for 1 replica")
    before = condition(api, mirror)
    assert before["reason"] == "ForeignEndpoints"
    registries.answers[f"{mirror.name}.{NAMESPACE}.svc:5000"] = status(404)  # as the other pod
    reach()
    assert condition(api, mirror) == before


def test_a_pod_with_the_labels_of_the_registry_is_counted(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.well()
    if api.kind == "sandbox":
        second_endpoint(mirrors, mirror, "10.1.0.9")
    else:
        template = mirror.stateful_set.document()["spec"]["template"]
        metadata = {"name": f"foreign-{api.token}", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
        container = template["spec"]["containers"][0] | {"volumeMounts": []}
        spec = template["spec"] | {"containers": [container], "volumes": []}
        pod = api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        mirrors.run_pod(pod, address="10.1.0.9")
        wait_for(lambda: "foreign-endpoints" in codes(audit()), "the endpoint")

    (found,) = [each for each in audit().results if each["code"] == "foreign-endpoints"]
    assert found["reason"].startswith("has 2 endpoints for 1 replica")


def test_both_addresses_of_a_pod_are_one_endpoint(api: Api, audit: Run, mirrors: Mirrors) -> None:
    """A Service of two families has a slice for each."""
    mirror = mirrors.well()
    second_endpoint(mirrors, mirror, "fd00::1", family="IPv6")

    assert codes(audit()) == []


def test_replicas_that_somebody_added_are_no_pods_of_others(audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.well()
    scaled(mirrors, mirror)
    if mirrors.api.kind == "sandbox":
        second_endpoint(mirrors, mirror, "10.1.0.9")

    assert codes(audit()) == ["drifted"]


# nodes that the DaemonSet leaves out

ON_DISKS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
NARROWED: Mapping[str, tuple[Object, str]] = {
    "nodeSelector": ({"nodeSelector": {"disk": "ssd"}}, "spec.template.spec.nodeSelector lets it run on 0 of 2 Linux"),
    "affinity": (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ON_DISKS}}},
        "spec.template.spec.affinity lets it run on 0 of 2 Linux",
    ),
}


@pytest.mark.parametrize("what", NARROWED)
def test_what_lets_a_daemon_set_run_on_few_nodes_is_named(api: Api, audit: Run, mirrors: Mirrors, what: str) -> None:
    mirror = mirrors.well()
    pod, reason = NARROWED[what]
    found = mirror.daemon_set.document()
    mirrors.edit(found, {"spec": {"template": {"spec": pod}}})
    if api.kind == "sandbox":
        mirrors.status(found, desiredNumberScheduled=0, updatedNumberScheduled=0, numberReady=0)
    else:

        def is_narrow() -> bool:
            mirrors.pods(mirror, "node")
            after = actual(api, found)
            return bool(
                after["status"]["desiredNumberScheduled"] == 0
                and after["status"]["observedGeneration"] == after["metadata"]["generation"]
            )

        wait_for(is_narrow, "the controller to leave the nodes")

    (uncovered,) = [each for each in audit().results if each["code"] == "nodes-uncovered"]

    assert uncovered["reason"].startswith(reason)
