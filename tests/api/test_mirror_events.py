"""The Events that an audit quotes if a workload or a claim of a mirror does not work."""

import itertools
import re
from datetime import datetime, timedelta
from typing import Any

from jobs.core.mirror_audit.desired import Mirror
from tests.api.conftest import Run
from tests.api.test_mirror_audit import codes, condition, deleted, node_pod_not_ready, pending, workload
from tests.api.test_rights import Right, drop
from tests.apis import Api, Object, wait_for
from tests.mirrors import KINDS, NAMESPACE, NODES, Mirrors

_numbers = itertools.count()
REJECTED = 'violates PodSecurity "restricted:latest"'
BYPASSED = (
    "Readiness probe failed: error: mirror-bypassed: containerd does not read /etc/containerd/certs.d; "
    "its config_path is not set. Set it\n"
)
RESTRICTED: Object = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "app",
            "image": "example.com/app:1",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


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
    """Return the uid of a mirror's resource, or of a pod, which is created if it does not exist."""
    about = {name: involved[name] for name in ("namespace", "name")}
    wanted = {"apiVersion": KINDS.get(involved["kind"], "v1"), "kind": involved["kind"], "metadata": about}
    found = api.get(wanted) or api.create(wanted | {"spec": RESTRICTED})
    return str(found["metadata"]["uid"])


def node_pods(mirror: Mirror, *suffixes: str) -> list[str]:
    return [f"{mirror.daemon_set.name}-{each}" for each in suffixes]


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
        "1 of 2 pods are ready; Unhealthy: Readiness probe failed: error: mirror-bypassed: "
    )
    ready = condition(api, mirror)
    assert (ready["status"], ready["reason"]) == ("False", "MirrorBypassed")
    assert "config_path is not set" in ready["message"]


def test_an_event_of_a_claim_without_a_volume_is_quoted(api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    pending(mirrors, mirror)
    create_event(api, "PersistentVolumeClaim", mirror.name, "ProvisioningFailed", 'storageclass "fast" not found')

    found = next(each for each in audit().results if each["code"] == "volume-pending")

    assert found["reason"] == 'is Pending, not Bound; ProvisioningFailed: storageclass "fast" not found'


def test_parts_that_change_between_attempts_write_no_status(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    node_pod_not_ready(mirrors, mirror)
    owner = mirror.daemon_set.name
    audit()

    def again(suffix: str, port: int, number: int) -> None:
        (pod,) = node_pods(mirror, suffix)
        create_event(api, "Pod", pod, "Failed", f"Failed to pull: read tcp 10.0.0.1:{port}->10.0.0.2:443: reset", NODES)
        create_event(api, "Pod", pod, "Failed", "Error: ErrImagePull", NODES, count=number)
        uid = f"6cd5a1ee-6d4f-4b6c-a2f9-{number:012x}"
        create_event(api, "Pod", pod, "BackOff", f"Back-off in pod {pod}_{NODES}({uid})", NODES, count=number)
        failed = f'Failed to create sandbox "{f"{number:064x}"}" of "{pod}": no network'
        create_event(api, "Pod", pod, "FailedCreatePodSandBox", failed, NODES, count=number)

    again("x7k2p", 40001, 1)
    audit()
    reason = condition(api, mirror)["message"]
    assert reason.endswith(f'FailedCreatePodSandBox: Failed to create sandbox "" of "{owner}-…": no network')
    api.mark()

    again("b2b2b", 40002, 2)
    audit()

    assert api.writes() == []


def test_only_warnings_about_exactly_this_object_are_quoted(
    api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    workload(mirrors, mirror, ready=False)
    pod, created = f"{mirror.name}-0", api.read(mirror.stateful_set.document())["metadata"]["creationTimestamp"]
    before = f"{datetime.fromisoformat(created.removesuffix('Z')) - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    involved = {"kind": "StatefulSet", "namespace": NAMESPACE, "name": mirror.name}
    earlier = {**involved, "uid": "6cd5a1ee-6d4f-4b6c-a2f9-000000000000"}
    create_event(api, "Pod", pod, "Pulled", "all is well", type="Normal")
    create_event(api, "Pod", f"{mirror.name}-other-0", "Failed", "of another")
    create_event(api, "Service", mirror.name, "Failed", "of the Service")
    create_event(api, "Pod", mirror.name, "Failed", "of a pod by hand")
    create_event(api, "Pod", pod, "Unhealthy", "of a pod of the one before", lastTimestamp=before)
    create_event(api, "StatefulSet", mirror.name, "FailedCreate", "of the one before", involvedObject=earlier)

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


def not_ready(mirrors: Mirrors, mirror: Mirror) -> str:
    """Make the pod of the registry not ready, after it was ready; return its name."""
    workload(mirrors, mirror, ready=False)
    return f"{mirror.name}-0"


def explanation(audit: Run) -> str:
    """Return the Event that an audit quotes for the registry, empty if there is none."""
    (found,) = [each["reason"] for each in audit().results if each["code"] == "not-rolled-out"]
    return str(found).partition("; ")[2]


LONG = f"the pod has no network: {'details ' * 20}"


def test_the_newest_event_is_quoted_and_not_the_longest(api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    pod = not_ready(mirrors, mirror)
    create_event(api, "Pod", pod, "FailedCreatePodSandBox", LONG, lastTimestamp=after(minutes=1))
    create_event(api, "Pod", pod, "Unhealthy", "Readiness probe failed: 503", lastTimestamp=after(minutes=12))

    assert explanation(audit) == "Unhealthy: Readiness probe failed: 503"


def test_the_reason_of_a_failed_pull_is_quoted_and_not_that_of_the_one_before(
    api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    pod = not_ready(mirrors, mirror)
    create_event(api, "Pod", pod, "Failed", f"Failed to pull image: {LONG}", lastTimestamp=after(minutes=1))
    create_event(api, "Pod", pod, "Failed", "Failed to pull image: not found", lastTimestamp=after(minutes=6))
    create_event(api, "Pod", pod, "Failed", "Error: ErrImagePull", lastTimestamp=after(minutes=7))

    assert explanation(audit) == "Failed: Failed to pull image: not found"


def test_the_last_observation_of_a_series_is_the_time_of_an_event(
    api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    pod = not_ready(mirrors, mirror)
    times = [f"2100-01-01T00:0{minute}:00.000000Z" for minute in (1, 9)]
    series: dict[str, Any] = {
        "lastTimestamp": None,
        "eventTime": times[0],
        "series": {"count": 9, "lastObservedTime": times[1]},
        "reportingComponent": "kubelet",
        "reportingInstance": "node",
        "action": "Probing",
    }
    create_event(api, "Pod", pod, "FailedMount", "still now", **series)
    create_event(api, "Pod", pod, "FailedCreatePodSandBox", LONG, lastTimestamp=after(minutes=5), count=99)

    assert explanation(audit) == "FailedMount: still now"


def test_a_rejection_of_a_pod_that_exists_now_is_not_quoted(
    api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    not_ready(mirrors, mirror)
    create_event(api, "StatefulSet", mirror.name, "FailedCreate", f"{REJECTED}: {LONG}")

    assert explanation(audit) == ""


def test_an_event_of_a_pod_that_no_longer_exists_is_not_quoted(
    api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    pod = not_ready(mirrors, mirror)
    earlier = {"kind": "Pod", "namespace": NAMESPACE, "name": pod, "uid": "6cd5a1ee-6d4f-4b6c-a2f9-000000000000"}
    create_event(api, "Pod", pod, "Unhealthy", "of the pod of this name")
    create_event(api, "Pod", pod, "FailedMount", LONG, involvedObject=earlier)

    assert explanation(audit) == "Unhealthy: of the pod of this name"


def test_an_event_from_before_the_pod_was_ready_is_not_quoted(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    node_pod_not_ready(mirrors, mirror)
    ready, broken = node_pods(mirror, "x7k2p", "b2b2b")
    create_event(api, "Pod", broken, "FailedMount", "present", NODES)
    create_event(api, "Pod", ready, "Unhealthy", BYPASSED, NODES)
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": after(minutes=60)}
    metadata = {"name": ready, "namespace": NODES}
    api.patch_status({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, {"conditions": [condition]})

    (found,) = audit().results

    assert found["reason"] == "1 of 2 pods are ready; FailedMount: present"


def test_without_permission_to_read_pods_events_are_quoted(
    api: Api, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    create_event(api, "Pod", not_ready(mirrors, mirror), "Unhealthy", "Readiness probe failed: 503")
    drop(api, Right("mirror-audit", "Role", "mirror-audit", "pods", "get", NAMESPACE))

    ran = audit()

    assert (ran.exit_code, sorted(codes(ran))) == (2, ["no-endpoints", "not-rolled-out", "unreadable"])
    assert any(each["reason"].endswith("Readiness probe failed: 503") for each in ran.results)
