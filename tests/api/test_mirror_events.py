"""The Events that an audit quotes if a workload or a claim of a mirror does not work."""

import itertools
import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from jobs.core.mirror_audit.desired.mirror import Mirror
from tests.api.conftest import Run
from tests.api.test_mirror_audit import codes, condition, deleted, node_pod_not_ready, pending, workload
from tests.api.test_rights import Right, drop
from tests.apis import Api, Object, wait_for
from tests.mirrors import KINDS, NAMESPACE, NODES, Mirrors

_numbers = itertools.count()
REJECTED = 'violates PodSecurity "restricted:latest"'
BYPASSED = (
    "Readiness probe failed: error: pulls do not use the mirror: containerd does not read /etc/containerd/certs.d; "
    "its config_path is not set. Set it\n"
)


def create_event(
    api: Api, kind: str, name: str, reason: str, message: str, namespace: str = NAMESPACE, **fields: Any
) -> None:
    """Create an Event, as a component of the cluster does. Each is later than the one before."""
    number = next(_numbers)
    involved = {"kind": kind, "namespace": namespace, "name": name}
    event: Object = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"e{number}-{api.token}", "namespace": namespace},
        "involvedObject": {**involved, "uid": uid_of(api, involved)},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": after(seconds=number),
    }
    api.create(event | fields)


def after(**duration: float) -> str:
    """Return a time after the creation of all objects."""
    return f"{datetime(2100, 1, 1) + timedelta(**duration):%Y-%m-%dT%H:%M:%SZ}"


def uid_of(api: Api, involved: Object) -> str:
    """Return the uid of a mirror's resource, or any uid for a pod."""
    if involved["kind"] not in KINDS:
        return "1-2-3"
    about = {name: involved[name] for name in ("namespace", "name")}
    found = api.read({"apiVersion": KINDS[involved["kind"]], "kind": involved["kind"], "metadata": about})
    return str(found["metadata"]["uid"])


def node_pods(mirror: Mirror, *suffixes: str) -> list[str]:
    return [f"{mirror.daemon_set.metadata.name}-{each}" for each in suffixes]


def rejected(mirrors: Mirrors, mirror: Mirror) -> None:
    """Have Pod Security reject the pod of the registry."""
    api = mirrors.api
    if api.kind == "sandbox":
        mirrors.status(mirror.stateful_set.document(), replicas=0, updatedReplicas=0, readyReplicas=0)
        mirrors.slice(mirror, ready=False)
        message = (
            f'Create Pod {mirror.name}-0 in StatefulSet {mirror.name} failed error: pods "{mirror.name}-0" is forbidden'
        )
        return create_event(
            api, "StatefulSet", mirror.name, "FailedCreate", f"{message}: {REJECTED}: hostNetwork (pod must not set)"
        )
    mirrors.edit(mirror.stateful_set.document(), {"spec": {"template": {"spec": {"hostNetwork": True}}}})

    def has_event() -> bool:
        mirrors.pods(mirror, "registry")  # ends the one that is being replaced
        events = api.items("v1", "Event", NAMESPACE, fieldSelector=f"involvedObject.name={mirror.name}")
        return any(REJECTED in each["message"] for each in events)

    return wait_for(has_event, "the rejection", 30)


def test_a_rejection_by_pod_security_is_quoted(api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    rejected(mirrors, mirror)

    found = next(each for each in audit().results if each["code"] == "not-rolled-out")

    assert REJECTED in found["reason"]
    assert re.search(r"; FailedCreate: (Create|create) Pod", found["reason"])  # "create" before 1.36
    assert REJECTED in condition(api, mirror)["message"]


def test_a_mirror_that_a_node_does_not_use_is_not_healthy(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    node_pod_not_ready(mirrors, mirror)
    (pod,) = node_pods(mirror, "x7k2p")
    create_event(api, "Pod", pod, "Unhealthy", BYPASSED, NODES)

    (found,) = audit().results

    assert (found["code"], found["severity"]) == ("mirror-bypassed", "critical")
    assert found["reason"].startswith(
        "1 of 2 pods are ready; Unhealthy: Readiness probe failed: error: pulls do not use"
    )
    ready = condition(api, mirror)
    assert (ready["status"], ready["reason"]) == ("False", "MirrorBypassed")
    assert "config_path is not set" in ready["message"]


def test_a_bypass_is_found_next_to_a_longer_text_while_events_report_it(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    node_pod_not_ready(mirrors, mirror)
    (pod,) = node_pods(mirror, "x7k2p")
    long = f"Readiness probe errored: rpc error: code = Unavailable desc = connection error: {'a' * 200}"
    create_event(api, "Pod", pod, "Unhealthy", BYPASSED, NODES)
    create_event(api, "Pod", pod, "Unhealthy", long, NODES)
    assert codes(audit()) == ["mirror-bypassed"]

    create_event(api, "Pod", pod, "Unhealthy", long, NODES, lastTimestamp=after(days=1))
    assert codes(audit()) == ["not-rolled-out"]


def test_an_event_of_a_claim_without_a_volume_is_quoted(api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    pending(mirrors, mirror)
    create_event(api, "PersistentVolumeClaim", mirror.name, "ProvisioningFailed", 'storageclass "fast" not found')

    found = next(each for each in audit().results if each["code"] == "volume-pending")

    assert found["reason"] == 'is Pending, not Bound; ProvisioningFailed: storageclass "fast" not found'


def test_parts_that_change_between_attempts_write_no_status(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    node_pod_not_ready(mirrors, mirror)
    owner = mirror.daemon_set.metadata.name
    audit()

    def again(suffix: str, port: int, number: int) -> None:
        (pod,) = node_pods(mirror, suffix)
        create_event(api, "Pod", pod, "Failed", f"Failed to pull: read tcp 10.0.0.1:{port}->10.0.0.2:443: reset", NODES)
        create_event(api, "Pod", pod, "Failed", "Error: ErrImagePull", NODES, count=number)
        uid = f"6cd5a1ee-6d4f-4b6c-a2f9-{number:012x}"
        create_event(api, "Pod", pod, "BackOff", f"Back-off in pod {pod}_{NODES}({uid})", NODES, count=number)
        refused = f'Error creating: pods "{pod}" is forbidden: exceeded quota'
        create_event(api, "DaemonSet", owner, "FailedCreate", refused, NODES, count=number)

    again("x7k2p", 40001, 1)
    audit()
    reason = condition(api, mirror)["message"]
    assert reason.endswith(f'FailedCreate: Error creating: pods "{owner}-…" is forbidden: exceeded quota')
    api.mark()

    again("b2b2b", 40002, 2)
    audit()

    assert api.writes() == []


CHANGING = {
    "the uid of a pod": "in pod p_ns({uid})",
    "the end of a pod's name": "in pod {pod}",
    "the port of a node": "read tcp 10.0.0.1:{port}->10.0.0.2:443: reset",
}


@pytest.mark.parametrize("what", CHANGING)
def test_a_quote_omits_the_parts_that_change(api: Api, audit: Run, mirrors: Mirrors, what: str, mirror: Mirror) -> None:
    node_pod_not_ready(mirrors, mirror)

    for hours, suffix, port in ((0, "x7k2p", 40001), (1, "b2b2b", 5002)):
        (pod,) = node_pods(mirror, suffix)
        text = CHANGING[what].format(uid=f"6cd5a1ee-6d4f-4b6c-a2f9-{port:012x}", pod=pod, port=port)
        create_event(api, "Pod", pod, "Failed", f"failed {text}", NODES, lastTimestamp=after(hours=hours))
        audit()
        assert "Failed: failed " in condition(api, mirror)["message"]
        writes = api.writes()
        api.mark()

    assert writes == []


def test_two_alternating_texts_write_one_status(api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    workload(mirrors, mirror, ready=False)
    pod = f"{mirror.name}-0"
    create_event(api, "Pod", pod, "FailedMount", "MountVolume.SetUp failed: exit status 32", lastTimestamp=after())
    api.mark()

    for run, reason in enumerate(["BackOff", "FailedMount"] * 2, 1):
        text = "short" if reason == "BackOff" else "MountVolume.SetUp failed: exit status 32"
        create_event(api, "Pod", pod, reason, text, lastTimestamp=after(minutes=5 * run))
        audit()

    assert [each.path.rpartition("/")[2] for each in api.writes() if each.path.endswith("/status")] == ["status"]
    assert condition(api, mirror)["message"].endswith("; FailedMount: MountVolume.SetUp failed: exit status 32")


def test_of_the_texts_of_the_last_minutes_the_longest_is_quoted(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    workload(mirrors, mirror, ready=False)
    pod = f"{mirror.name}-0"
    long = "0/3 nodes are available: a very long text that is over"
    create_event(api, "Pod", pod, "FailedScheduling", long, lastTimestamp=after())
    create_event(api, "Pod", pod, "Failed", "Failed to pull image: not found", lastTimestamp=after(minutes=10))
    create_event(api, "Pod", pod, "BackOff", "Back-off", lastTimestamp=after(minutes=15, seconds=1))

    found = next(each for each in audit().results if each["code"] == "not-rolled-out")

    assert found["reason"] == "0 of 1 pods are ready; Failed: Failed to pull image: not found"


def test_of_failed_probes_the_newest_is_quoted(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    workload(mirrors, mirror, ready=False)
    pod = f"{mirror.name}-0"
    refused = (
        'Startup probe failed: Get "http://10.0.0.1:5000/v2/": dial tcp 10.0.0.1:5000: connect: connection refused'
    )
    full = "Readiness probe failed: HTTP probe failed with statuscode: 503"
    create_event(api, "Pod", pod, "Unhealthy", full, lastTimestamp=after(minutes=5))
    create_event(api, "Pod", pod, "Unhealthy", refused, lastTimestamp=after())

    found = next(each for each in audit().results if each["code"] == "not-rolled-out")

    assert found["reason"] == f"0 of 1 pods are ready; Unhealthy: {full}"


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "StatefulSet", "DaemonSet"])
def test_an_event_of_an_earlier_object_of_the_same_name_is_not_quoted(
    api: Api, audit: Run, mirrors: Mirrors, kind: str, mirror: Mirror
) -> None:
    name, namespace = mirror.name, NAMESPACE
    if kind == "PersistentVolumeClaim":
        pending(mirrors, mirror)
    elif kind == "StatefulSet":
        workload(mirrors, mirror, ready=False)
    else:
        node_pod_not_ready(mirrors, mirror)
        name, namespace = mirror.daemon_set.metadata.name, NODES
    involved = {"kind": kind, "namespace": namespace, "name": name, "uid": "6cd5a1ee-6d4f-4b6c-a2f9-000000000000"}
    create_event(api, kind, name, "ClaimLost", "of the one before", namespace, involvedObject=involved)

    ran = audit()

    assert {"volume-pending", "not-rolled-out"} & {*codes(ran)}
    assert "of the one before" not in str(ran.results)


def test_an_event_from_before_the_workload_was_created_is_not_quoted(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    workload(mirrors, mirror, ready=False)
    created = api.read(mirror.stateful_set.document())["metadata"]["creationTimestamp"]
    before = f"{datetime.fromisoformat(created.removesuffix('Z')) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    create_event(api, "Pod", f"{mirror.name}-0", "Unhealthy", "of the one before, and longer", lastTimestamp=before)
    create_event(api, "Pod", f"{mirror.name}-0", "Unhealthy", "of its own", lastTimestamp=created)

    found = next(each for each in audit().results if each["code"] == "not-rolled-out")

    assert found["reason"] == "0 of 1 pods are ready; Unhealthy: of its own"


def test_events_of_other_objects_and_normal_events_are_not_quoted(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    workload(mirrors, mirror, ready=False)
    create_event(api, "Pod", f"{mirror.name}-0", "Pulled", "all is well", type="Normal")
    create_event(api, "Pod", f"{mirror.name}-other-0", "Failed", "of another")
    create_event(api, "Service", mirror.name, "Failed", "of the Service")
    create_event(api, "Pod", mirror.name, "Failed", "of a pod by hand")

    assert [each["reason"] for each in audit().results if each["code"] == "not-rolled-out"] == ["0 of 1 pods are ready"]


def test_a_hostile_message_is_shortened_and_escaped(api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    workload(mirrors, mirror, ready=False)
    create_event(api, "Pod", f"{mirror.name}-0", "Failed", f"\x1b[31m\n\u202e{'a' * 900}")

    found = next(each for each in audit().results if each["code"] == "not-rolled-out")

    assert found["reason"].startswith("0 of 1 pods are ready; Failed: \\x1b[31m \\u202eaaa")
    assert len(found["reason"]) < 500


def test_without_permission_to_list_events_no_mirror_is_unknown(api: Api, audit: Run, mirrors: Mirrors) -> None:
    well, broken = mirrors.healthy(), mirrors.healthy("quay", "quay.io")
    deleted("claim")(mirrors, broken)
    mirrors.apply(broken.claim.document())
    drop(api, Right("mirror-audit", "Role", "mirror-audit", "events", "list", NAMESPACE))

    ran = audit()

    assert (ran.exit_code, sorted(codes(ran))) == (2, ["unreadable", "volume-pending"])
    assert condition(api, broken)["reason"] == "VolumePending"
    assert condition(api, well)["reason"] == "NotProbed"


def test_events_are_not_read_while_all_resources_work(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.healthy()
    api.mark()

    audit()

    assert [each.path for each in api.requests() if each.path.endswith("/events") and each.method == "GET"] == []


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_many_events_are_read_in_pages_and_few_are_kept(api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    workload(mirrors, mirror, ready=False)
    for number in range(1200):
        create_event(api, "Pod", f"{mirror.name}-0", f"Reason{number}", "a" * 1000)

    found = next(each for each in audit().results if each["code"] == "not-rolled-out")

    assert found["reason"].startswith("0 of 1 pods are ready; Reason")
