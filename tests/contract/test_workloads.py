"""Services, claims and workloads: the fields that mirror-audit reads, and how drift is visible in them."""

from typing import Any

import pytest

from tests.apis import wait_for
from tests.contract.conftest import APPLY, MERGE, METADATA_LIST, Answer, Place

MANAGER = "kube-chores Apply"
LABELS = {"app": "a"}
POD: dict[str, Any] = {
    "metadata": {"labels": LABELS, "annotations": {"hash": "1"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry:3",
                "env": [{"name": "A", "value": "1"}],
                "ports": [{"name": "http", "containerPort": 5000, "protocol": "TCP"}],
                "resources": {"requests": {"memory": "1024Mi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
            }
        ],
        "volumes": [{"name": "data", "hostPath": {"path": "/data", "type": "Directory"}}],
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"os": "linux"},
    },
}
POD_FIELDS = (
    '"f:template":{"f:metadata":{"f:annotations":{"f:hash":{}},"f:labels":{"f:app":{}}},"f:spec":{"f:containers":'
    '{"k:{\\"name\\":\\"main\\"}":{".":{},"f:env":{"k:{\\"name\\":\\"A\\"}":{".":{},"f:name":{},"f:value":{}}},'
    '"f:image":{},"f:name":{},"f:ports":{"k:{\\"containerPort\\":5000,\\"protocol\\":\\"TCP\\"}":{".":{},'
    '"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:readinessProbe":{"f:httpGet":{"f:path":{},"f:port":{}}},'
    '"f:resources":{"f:requests":{"f:memory":{}}},"f:volumeMounts":{"k:{\\"mountPath\\":\\"/data\\"}":{".":{},'
    '"f:mountPath":{},"f:name":{}}}}},"f:nodeSelector":{},"f:tolerations":{},"f:volumes":{"k:{\\"name\\":\\"data\\"}":'
    '{".":{},"f:hostPath":{"f:path":{},"f:type":{}},"f:name":{}}}}}'
)
PORT = {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
SELECTOR = {"selector": {"matchLabels": LABELS}, "template": POD}
# kind: (API version, plural, spec, the fields that kube-chores owns after that)
KINDS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "Service": (
        "v1",
        "services",
        {"type": "ClusterIP", "selector": LABELS, "ports": [PORT]},
        '{"f:spec":{"f:ports":{"k:{\\"port\\":80,\\"protocol\\":\\"TCP\\"}":{".":{},"f:name":{},"f:port":{},'
        '"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:type":{}}}',
    ),
    "PersistentVolumeClaim": (
        "v1",
        "persistentvolumeclaims",
        {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        '{"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{"f:storage":{}}}}}',
    ),
    "StatefulSet": (
        "apps/v1",
        "statefulsets",
        {"replicas": 1, "serviceName": "a", **SELECTOR},
        '{"f:spec":{"f:replicas":{},"f:selector":{},"f:serviceName":{},' + POD_FIELDS + "}}",
    ),
    "Deployment": (
        "apps/v1",
        "deployments",
        {"replicas": 1, **SELECTOR},
        '{"f:spec":{"f:replicas":{},"f:selector":{},' + POD_FIELDS + "}}",
    ),
    "DaemonSet": ("apps/v1", "daemonsets", SELECTOR, '{"f:spec":{"f:selector":{},' + POD_FIELDS + "}}"),
}
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")
FILLED_IN = {
    "Service": ("clusterIP", "clusterIPs", "internalTrafficPolicy", "sessionAffinity"),
    "PersistentVolumeClaim": ("volumeMode",),
    "StatefulSet": ("podManagementPolicy", "revisionHistoryLimit", "updateStrategy"),
    "Deployment": ("progressDeadlineSeconds", "revisionHistoryLimit", "strategy"),
    "DaemonSet": ("revisionHistoryLimit", "updateStrategy"),
}


def at(place: Place, kind: str, subresource: str = "") -> str:
    version, plural, _, _ = KINDS[kind]
    path = place.path(plural, "a", version if "/" in version else "")
    return f"{path}/{subresource}" if subresource else path


def applied(place: Place, kind: str, **changes: Any) -> Answer:
    version, _, spec, _ = KINDS[kind]
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": {**spec, **changes}}
    return place.send("PATCH", f"{at(place, kind)}?fieldManager=kube-chores&force=true", body, APPLY)


@pytest.mark.parametrize("kind", KINDS)
def test_an_apply_owns_each_field_that_it_sends(place: Place, kind: str) -> None:
    answer = applied(place, kind)

    assert answer.status == 201
    assert answer.owners()[MANAGER] == KINDS[kind][3]


@pytest.mark.parametrize("kind", KINDS)
def test_fields_with_server_defaults_have_no_owner(place: Place, kind: str) -> None:
    answer = applied(place, kind)

    assert set(FILLED_IN[kind]) <= answer.body["spec"].keys()
    assert not any(f'"f:{name}"' in answer.owners()[MANAGER] for name in FILLED_IN[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_applying_again_changes_nothing(place: Place, kind: str) -> None:
    first, again = applied(place, kind), applied(place, kind)

    assert (again.body["spec"], again.owners()[MANAGER]) == (first.body["spec"], first.owners()[MANAGER])
    # Controllers write the statuses and finalizers of the other kinds meanwhile.
    assert kind != "Service" or again.version == first.version


def test_an_apply_without_a_structure_removes_it_with_what_the_server_filled_in(place: Place) -> None:
    applied(place, "StatefulSet")
    (container,) = POD["spec"]["containers"]
    without = {key: value for key, value in container.items() if key not in ("readinessProbe", "resources")}
    pod = {**POD, "spec": {**POD["spec"], "containers": [without]}}

    answer = applied(place, "StatefulSet", template=pod)

    (found,) = answer.body["spec"]["template"]["spec"]["containers"]
    assert (found.get("readinessProbe"), found.get("resources") or None) == (None, None)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_the_generation_counts_changes_of_the_spec_alone(place: Place, kind: str) -> None:
    applied(place, kind)
    place.send("PATCH", at(place, kind), {"metadata": {"annotations": {"a": "b"}}}, MERGE)
    status = {"status": {"observedGeneration": 1}}
    assert place.send("PATCH", at(place, kind, "status"), status, MERGE).status == 200
    assert place.send("GET", at(place, kind)).body["metadata"]["generation"] == 1

    applied(place, kind, minReadySeconds=3)

    assert place.send("GET", at(place, kind)).body["metadata"]["generation"] == 2


@pytest.mark.parametrize("kind", ["Service", "PersistentVolumeClaim"])
def test_services_and_claims_have_no_generation(place: Place, kind: str) -> None:
    assert "generation" not in applied(place, kind).body["metadata"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_is_written_through_its_own_path_alone(place: Place, kind: str) -> None:
    applied(place, kind)
    condition = {"type": "Tested", "status": "True", "reason": "Tests", "message": "", "lastTransitionTime": None}
    body = {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}

    place.send("PATCH", at(place, kind), body, MERGE)
    before = place.send("GET", at(place, kind)).body["status"].get("conditions", [])
    assert "Tested" not in [each["type"] for each in before]

    answer = place.send("PATCH", at(place, kind, "status"), {**body, "spec": {"x": 1}}, MERGE)
    assert answer.status == 200
    assert [each["type"] for each in answer.body["status"]["conditions"]] == ["Tested"]
    assert "x" not in answer.body["spec"]


def test_the_address_of_a_service_stays_and_a_headless_one_has_none(place: Place) -> None:
    address = applied(place, "Service").body["spec"]["clusterIP"]
    assert applied(place, "Service", sessionAffinity="ClientIP").body["spec"]["clusterIP"] == address

    spec = {**KINDS["Service"][2], "clusterIP": "None"}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": spec}
    path = f"{place.path('services', 'b')}?fieldManager=kube-chores"
    assert place.send("PATCH", path, body, APPLY).body["spec"]["clusterIP"] == "None"


def test_a_manual_edit_owns_the_fields_that_it_changes(place: Place) -> None:
    applied(place, "StatefulSet")
    patch = {"spec": {"replicas": 0}}

    answer = place.send("PATCH", f"{at(place, 'StatefulSet')}?fieldManager=kubectl-edit", patch, MERGE)

    assert answer.owners()["kubectl-edit Update"] == '{"f:spec":{"f:replicas":{}}}'
    assert '"f:replicas"' not in answer.owners()[MANAGER]


def test_a_claim_is_pending_at_first(place: Place) -> None:
    assert applied(place, "PersistentVolumeClaim").body["status"] == {"phase": "Pending"}


def test_an_endpoint_slice_keeps_what_it_is_given(place: Place) -> None:
    endpoints = [{"addresses": ["10.1.0.1"], "conditions": {"ready": False}}]
    body = {
        "metadata": {"name": "a", "labels": {"kubernetes.io/service-name": "a"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    }
    path = place.path("endpointslices", "", "discovery.k8s.io/v1")

    made = place.send("POST", path, body)

    assert (made.status, made.body["endpoints"], made.body["ports"]) == (201, endpoints, body["ports"])
    (listed,) = place.send("GET", f"{path}?labelSelector=kubernetes.io/service-name=a").body["items"]
    assert listed["endpoints"] == endpoints


def test_nodes_are_counted_by_their_metadata(place: Place) -> None:
    name = f"node-{place.api.token}"
    metadata = {"name": name, "labels": {"kubernetes.io/os": "linux"}}
    place.api.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata})

    answer = place.send("GET", "/api/v1/nodes?labelSelector=kubernetes.io/os=linux", accept=METADATA_LIST)

    assert name in [each["metadata"]["name"] for each in answer.body["items"]]
    assert "spec" not in answer.body["items"][0]


# kind: (a change that the API refuses to every user, the field that it names, the one that it names since 1.37)
FROZEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "Service": ({"clusterIP": "None"}, "spec.clusterIPs[0]", "spec.clusterIPs[0]"),
    "PersistentVolumeClaim": ({"accessModes": ["ReadWriteMany"]}, "spec", "spec"),
    "StatefulSet": ({"serviceName": "other"}, "spec", "spec.serviceName"),
    "Deployment": ({"selector": {"matchLabels": {"app": "a", "b": "c"}}}, "spec.selector", "spec.selector"),
    "DaemonSet": ({"selector": {"matchLabels": {"app": "a", "b": "c"}}}, "spec.selector", "spec.selector"),
}


@pytest.mark.parametrize("kind", FROZEN)
def test_some_fields_are_immutable(place: Place, kind: str) -> None:
    change, *fields = FROZEN[kind]
    applied(place, kind)
    if "selector" in change:
        change = {**change, "template": {**POD, "metadata": {"labels": {"app": "a", "b": "c"}}}}

    refused = applied(place, kind, **change)

    assert refused.status == 422
    assert {cause[0] for cause in refused.causes} & set(fields)


@pytest.mark.parametrize("kind", KINDS)
def test_an_apply_with_a_uid_creates_nothing_and_changes_no_other_object(place: Place, kind: str) -> None:
    version, _, spec, _ = KINDS[kind]
    path = f"{at(place, kind)}?fieldManager=kube-chores&force=true"
    uid = "11111111-1111-1111-1111-111111111111"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "uid": uid}, "spec": spec}

    assert place.send("PATCH", path, body, APPLY).status == 409

    made = applied(place, kind).body["metadata"]["uid"]
    refused = place.send("PATCH", path, body, APPLY)
    assert (refused.status, "metadata.uid" in {cause[0] for cause in refused.causes}) == (422, True)
    assert place.send("PATCH", path, {**body, "metadata": {"name": "a", "uid": made}}, APPLY).status == 200


@pytest.mark.parametrize("kind", KINDS)
def test_an_apply_without_force_takes_no_field_of_others(place: Place, kind: str) -> None:
    version, plural, spec, _ = KINDS[kind]
    unmanaged = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    path = place.path(plural, "", version if "/" in version else "")
    assert place.send("POST", path, unmanaged).status == 201
    owned: dict[str, dict[str, Any]] = {
        "Service": {"selector": {"app": "b"}},
        "PersistentVolumeClaim": {"accessModes": ["ReadWriteMany"]},
        "StatefulSet": {"serviceName": "b"},
        "Deployment": {"selector": {"matchLabels": {"app": "b"}}},
        "DaemonSet": {"selector": {"matchLabels": {"app": "b"}}},
    }
    body = {**unmanaged, "spec": {**spec, **owned[kind]}}

    refused = place.send("PATCH", f"{at(place, kind)}?fieldManager=kube-chores", body, APPLY)

    assert (refused.status, refused.body["reason"]) == (409, "Conflict")


@pytest.mark.parametrize("phase", ["Pending", "Bound"])
@pytest.mark.parametrize("expands", [True, False])
def test_a_claim_grows_once_it_is_bound_and_where_its_class_allows(place: Place, phase: str, expands: bool) -> None:
    name = f"class-{place.api.token}"
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    place.api.create({**storage_class, "provisioner": "example.com/none", "allowVolumeExpansion": expands})
    applied(place, "PersistentVolumeClaim", storageClassName=name)
    status = {"status": {"phase": phase, "capacity": {"storage": "1Gi"}}}
    assert place.send("PATCH", at(place, "PersistentVolumeClaim", "status"), status, MERGE).status == 200

    grown = {"resources": {"requests": {"storage": "2Gi"}}}
    answer = applied(place, "PersistentVolumeClaim", storageClassName=name, **grown)

    assert answer.status == (422 if phase == "Pending" else 200 if expands else 403)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_merge_patch_of_another_version_changes_nothing(place: Place, kind: str) -> None:
    """Controllers write statuses at any time, so the version that was read is often outdated."""
    before = applied(place, kind).body["metadata"]
    place.send("PATCH", at(place, kind), {"metadata": {"annotations": {"unmanaged": "1"}}}, MERGE)
    owned = {"template": {"metadata": {"annotations": {"owned": "1"}}}}

    old = {"metadata": {"resourceVersion": before["resourceVersion"], "uid": before["uid"]}, "spec": owned}
    assert place.send("PATCH", at(place, kind), old, MERGE).status == 409

    other = {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}, "spec": owned}
    assert place.send("PATCH", at(place, kind), other, MERGE).status in (409, 422)

    right = {"metadata": {"uid": before["uid"]}, "spec": owned}
    patched = place.send("PATCH", at(place, kind), right, MERGE)
    assert patched.body["spec"]["template"]["metadata"]["annotations"]["owned"] == "1"


def test_the_generation_of_a_deployment_counts_its_annotations_too(place: Place) -> None:
    applied(place, "Deployment")
    if place.api.kind == "real":  # its controller adds an annotation
        wait_for(lambda: REVISION in annotated(place.send("GET", at(place, "Deployment")).body), "the revision")
    before = place.send("GET", at(place, "Deployment")).body["metadata"]["generation"]

    for key, counts in (("labels", 0), ("annotations", 1)):
        after = place.send("PATCH", at(place, "Deployment"), {"metadata": {key: {"a": "b"}}}, MERGE).body["metadata"]
        assert after["generation"] == before + counts


REVISION = "deployment.kubernetes.io/revision"


def annotated(obj: dict[str, Any]) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}
