"""The invariants of mirrors, with constructed histories."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.core.mirror_audit.desired import NODE_IMAGE, Mirror
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, parse_registry_mirror
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from kubesandbox.schema.quantities import canonical
from soak.history import Key, Object, Version
from soak.invariants.mirrors import as_specified, healthy
from soak.invariants.pulls.files import Expected, ForeignFiles, HostsToml
from soak.invariants.pulls.read import CACHED
from soak.invariants.pulls.succeeded import Pulls
from soak.journal import Fault, Journal
from soak.observed import Observed
from soak.tenants.mirrors import CHANGES, VOLUME_MIB
from tests.mirrors import NAMESPACE, registry_mirror

HOST = "10.88.0.1:7001"
START = 1_800_000_000.0
MIRROR = Key("Pod", "kube-chores-mirrors", "registry-mirror-soak-0")
FAILED = f'Failed to pull image "{HOST}/app:1": connection refused'
HOSTS = f"""# Written by kube-chores for registrymirror soak: changes to this file are overwritten.
server = "https://{HOST}"

[host."http://10.0.0.7:5000"]
"""


class Past:
    """The versions that a test constructed."""

    def __init__(self) -> None:
        self._versions: dict[Key, list[Version]] = {}

    def add(self, kind: str, name: str, seconds: float, document: Object | None, namespace: str = "pulls-1") -> None:
        """Add a version at this time after the start."""
        key = Key(kind, namespace, name)
        versions = self._versions.setdefault(key, [])
        versions.append(Version(key, len(versions) + 1, START + seconds, document))

    def pod(self, seconds: float, *, runs: bool = False, name: str = "app", cached: bool = False) -> None:
        """Add a version of a pod that was created at the start."""
        state: Object = {"running": {}} if runs else {"waiting": {"reason": "ContainerCreating"}}
        document = {
            "metadata": {
                "name": name,
                "creationTimestamp": stamp(0),
                "annotations": {CACHED: "true"} if cached else {},
            },
            "spec": {"containers": [{"image": f"{HOST}/app:1"}]},
            "status": {"containerStatuses": [{"state": state}]},
        }
        self.add("Pod", name, seconds, document)

    def failure(self, seconds: float, count: int = 1, name: str = "app", message: str = FAILED) -> None:
        """Add the Event of an attempt that failed."""
        document = {
            "metadata": {"creationTimestamp": stamp(0)},
            "involvedObject": {"name": name},
            "reason": "Failed",
            "message": message,
            "count": count,
            "lastTimestamp": stamp(seconds),
        }
        self.add("Event", f"{name}.1", seconds, document)

    def mirror(self, seconds: float, *, ready: bool) -> None:
        """Add a version of the mirror's pod."""
        conditions = [{"type": "Ready", "status": str(ready)}]
        self.add("Pod", MIRROR.name, seconds, {"metadata": {}, "status": {"conditions": conditions}}, MIRROR.namespace)

    def versions(self, key: Key) -> list[Version]:
        return self._versions.get(key, [])

    def during(self, key: Key, start: float, revision: int) -> list[Version]:
        versions = self.versions(key)
        first = max([index for index, each in enumerate(versions) if each.seconds <= start], default=0)
        return [each for each in versions[first:] if each.revision <= revision]

    def keys(self, kind: str) -> list[Key]:
        return [key for key in self._versions if key.kind == kind]

    def now(self, kind: str) -> list[Version]:
        return [versions[-1] for key, versions in self._versions.items() if key.kind == kind]


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + seconds))


@pytest.fixture
def past() -> Past:
    return Past()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def fault(journal: Journal, kind: str, began: float, ended: float | None, host: str = HOST) -> None:
    """Add a fault from and until these times after the start."""
    journal.faults.append(Fault(kind, f"{host} soak", START + began, START + ended if ended is not None else 0.0))


def observed(past: Any, journal: Journal, until: float, *, settled: bool = False) -> Observed:
    return Observed(past, journal, (), (), (), START + until, settled)


def violations(past: Past, journal: Journal, until: float, fallback: str = "Upstream") -> list[str]:
    return list(Pulls({HOST: fallback})(observed(past, journal, until)))


def test_a_pull_in_time(past: Past, journal: Journal) -> None:
    past.pod(0)
    past.pod(40, runs=True)
    assert violations(past, journal, 1000) == []


def test_a_pod_that_does_not_run_is_reported_once(past: Past, journal: Journal) -> None:
    past.pod(0)
    check = Pulls({HOST: "Upstream"})
    assert list(check(observed(past, journal, 70))) == []
    (found,) = check(observed(past, journal, 90))
    assert "pod app" in found
    assert "has not run" in found
    assert list(check(observed(past, journal, 200))) == []


def test_a_pod_that_ran_too_late_is_reported(past: Past, journal: Journal) -> None:
    past.pod(0)
    past.pod(120, runs=True)
    (found,) = violations(past, journal, 121)
    assert "ran 120 s after" in found


def test_other_pulls_extend_the_time(past: Past, journal: Journal) -> None:
    past.pod(0)
    past.pod(0, name="other")
    past.pod(95, runs=True)
    past.pod(95, name="other", runs=True)
    assert violations(past, journal, 100) == []


def test_a_failed_attempt_without_a_fault_is_reported(past: Past, journal: Journal) -> None:
    past.pod(0)
    past.failure(20)
    past.pod(40, runs=True)
    (found,) = violations(past, journal, 50)
    assert FAILED in found


@pytest.mark.parametrize("kind", ["tenant-upstream-down", "tenant-upstream-hangs", "tenant-mirror-blob"])
def test_attempts_may_fail_while_the_upstream_is_down_and_kubelet_then_waits(
    past: Past, journal: Journal, kind: str
) -> None:
    fault(journal, kind, -10, 50)
    past.pod(0)
    past.failure(10)
    past.failure(30, count=2)
    past.pod(170, runs=True)
    assert violations(past, journal, 200) == []


def test_a_pull_waits_as_long_as_the_upstream_is_down(past: Past, journal: Journal) -> None:
    fault(journal, "tenant-upstream-hangs", -10, None)
    past.pod(0)
    assert violations(past, journal, 5000) == []


def test_another_upstream_that_is_down_excuses_nothing(past: Past, journal: Journal) -> None:
    fault(journal, "tenant-upstream-down", -10, 50, host="10.88.0.1:7002")
    past.pod(0)
    past.failure(10)
    assert len(violations(past, journal, 20)) == 1


def test_attempts_that_fail_long_after_the_fault_are_reported(past: Past, journal: Journal) -> None:
    fault(journal, "tenant-upstream-down", -10, 50)
    past.pod(0)
    past.failure(10)
    past.failure(170, count=2)
    (found,) = violations(past, journal, 175)
    assert stamp(170)[11:19] in found


@pytest.mark.parametrize(("fallback", "number"), [("Upstream", 1), ("None", 0)])
def test_a_mirror_without_a_pod_is_a_reason_only_without_fallback(
    past: Past, journal: Journal, fallback: str, number: int
) -> None:
    fault(journal, "tenant-mirror-scaled", -10, 60)
    past.pod(0)
    past.failure(10)
    past.pod(100, runs=True)
    assert len(violations(past, journal, 110, fallback)) == number


@pytest.mark.parametrize("kind", ["containerd-restart", "kubelet-restart", "api-down"])
def test_a_node_in_trouble_is_a_reason(past: Past, journal: Journal, kind: str) -> None:
    fault(journal, kind, 5, 20, host="")
    past.pod(0)
    past.failure(10)
    past.pod(140, runs=True)
    assert violations(past, journal, 150) == []


def test_containerd_pulls_without_the_api_server(past: Past, journal: Journal) -> None:
    fault(journal, "api-kill", 5, 20, host="")
    past.mirror(-500, ready=True)
    past.pod(0)
    past.failure(10)
    check = Pulls({HOST: "None"}, {HOST: MIRROR})
    assert list(check(observed(past, journal, 10))) == []  # other watches may know less than that of Events
    (found,) = check(observed(past, journal, 20))
    assert "without a reason outside of mirrors" in found


@pytest.mark.parametrize(
    ("kind", "began", "ended"),
    [("tenant-mirror-pod", -30, -20), ("node-evict", -70, -68), ("kubelet-restart", -70, -60), ("upgrade", -400, -100)],
)
def test_trouble_of_the_mirror_lasts_longer_without_the_api_server(
    past: Past, journal: Journal, kind: str, began: float, ended: float
) -> None:
    fault(journal, kind, began, ended)
    fault(journal, "api-kill", -10, 20, host="")
    past.mirror(-500, ready=True)
    past.pod(0)
    past.failure(10)
    assert list(Pulls({HOST: "Upstream"}, {HOST: MIRROR})(observed(past, journal, 20))) == []


def test_a_registry_that_is_not_ready_is_a_reason_without_the_api_server(past: Past, journal: Journal) -> None:
    fault(journal, "etcd-pause", 5, 20, host="")
    past.mirror(-500, ready=True)
    past.mirror(-50, ready=False)
    past.mirror(-5, ready=True)
    past.pod(0)
    past.failure(10)
    assert list(Pulls({HOST: "None"}, {HOST: MIRROR})(observed(past, journal, 20))) == []


def test_a_busy_machine_is_a_reason_while_the_api_server_starts(past: Past, journal: Journal) -> None:
    fault(journal, "api-kill", 5, 20, host="")
    past.mirror(-500, ready=True)
    past.pod(0)
    past.failure(10, message="Failed to pull image: net/http: TLS handshake timeout")
    assert list(Pulls({HOST: "None"}, {HOST: MIRROR})(observed(past, journal, 20))) == []


def test_a_pod_that_was_deleted_need_not_run(past: Past, journal: Journal) -> None:
    past.pod(0)
    past.add("Pod", "app", 30, None)
    assert violations(past, journal, 1000) == []


def test_a_cached_image_that_cannot_be_pulled_while_the_upstream_is_down(past: Past, journal: Journal) -> None:
    fault(journal, "tenant-upstream-down", -10, 50)
    past.mirror(-500, ready=True)
    past.pod(0, cached=True)
    past.failure(10)
    (found,) = Pulls({HOST: "None"}, {HOST: MIRROR})(observed(past, journal, 20))
    assert "although the mirror had the image" in found


@pytest.mark.parametrize("kind", ["tenant-upstream-hangs", "tenant-mirror-pod", "containerd-restart"])
def test_a_cached_image_needs_a_mirror_that_works(past: Past, journal: Journal, kind: str) -> None:
    fault(journal, "tenant-upstream-down", -10, 50)
    fault(journal, kind, -10, -5)
    past.mirror(-500, ready=True)
    past.pod(0, cached=True)
    past.failure(10)
    assert list(Pulls({HOST: "None"}, {HOST: MIRROR})(observed(past, journal, 20))) == []


def test_a_cached_image_needs_a_mirror_that_is_ready(past: Past, journal: Journal) -> None:
    fault(journal, "tenant-upstream-down", -10, 50)
    past.mirror(-500, ready=True)
    past.mirror(5, ready=False)
    past.pod(0, cached=True)
    past.failure(10)
    assert list(Pulls({HOST: "None"}, {HOST: MIRROR})(observed(past, journal, 20))) == []


def test_files_of_others(past: Past, journal: Journal, tmp_path: Path) -> None:
    kept, changed, deleted = (tmp_path / name / "hosts.toml" for name in ("kept", "changed", "deleted"))
    for each in (kept, changed, deleted):
        each.parent.mkdir()
        each.write_text("server")
    check = ForeignFiles(dict.fromkeys((kept, changed, deleted), "server"))
    assert list(check(observed(past, journal, 0))) == []
    changed.write_text("other")
    deleted.unlink()
    assert list(check(observed(past, journal, 0))) == [
        "changed/hosts.toml, which others wrote, was changed",
        "deleted/hosts.toml, which others wrote, was deleted",
    ]
    assert list(check(observed(past, journal, 0))) == []


def hosts(file: Path, fallback: str = "Upstream") -> HostsToml:
    return HostsToml(lambda: [Expected("soak", HOST, fallback, file, lambda: "10.0.0.7")])


def test_the_file_of_a_mirror(past: Past, journal: Journal, tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    assert list(hosts(file)(observed(past, journal, 0))) == []
    file.write_text(HOSTS)
    assert list(hosts(file)(observed(past, journal, 0, settled=True))) == []


def test_a_file_without_fallback(past: Past, journal: Journal, tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(HOSTS.replace(f"https://{HOST}", "http://10.0.0.7:5000"))
    check = hosts(file)
    (found,) = check(observed(past, journal, 0))
    assert "has no fallback" in found
    assert list(check(observed(past, journal, 0))) == []
    assert list(hosts(file, "None")(observed(past, journal, 0))) == []


def test_a_file_with_another_address(past: Past, journal: Journal, tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(HOSTS.replace("10.0.0.7", "10.0.0.8"))
    assert list(hosts(file)(observed(past, journal, 0))) == []
    (found,) = hosts(file)(observed(past, journal, 0, settled=True))
    assert "does not name the mirror's Service" in found


@pytest.mark.parametrize(
    ("reason", "number"), [("Healthy", 0), ("NeverUsed", 0), ("MirrorDown", 1), ("CacheCorrupt", 1)]
)
def test_health_at_the_end(past: Past, journal: Journal, reason: str, number: int) -> None:
    conditions = [{"type": "Ready", "status": "False", "reason": reason, "message": "text"}]
    past.add("RegistryMirror", "soak", 0, {"status": {"conditions": conditions}}, namespace="")
    check = healthy(["soak"])
    assert list(check(observed(past, journal, 0))) == []
    assert len(list(check(observed(past, journal, 0, settled=True)))) == number


def test_a_blob_that_was_changed_is_reported_for_a_day(past: Past, journal: Journal) -> None:
    fault(journal, "tenant-mirror-blob", -300, -200)
    conditions = [{"type": "Ready", "status": "False", "reason": "CacheCorrupt", "message": "text"}]
    past.add("RegistryMirror", "soak", 0, {"status": {"conditions": conditions}}, namespace="")
    assert list(healthy(["soak"])(observed(past, journal, 0, settled=True))) == []


def test_a_mirror_that_does_not_exist(past: Past, journal: Journal) -> None:
    assert len(list(healthy(["soak"])(observed(past, journal, 0, settled=True)))) == 1


def resources_of(**spec: object) -> list[Object]:
    """The resources that the job makes of a RegistryMirror."""
    rule = registry_mirror("soak", HOST, **spec)
    parsed = parse_registry_mirror(Head(ObjectKey("RegistryMirror", "soak")), json.dumps(rule["spec"]).encode())
    assert isinstance(parsed, RegistryMirror)
    return [each.document() for each in Mirror(parsed, NAMESPACE, NODE_IMAGE, "10.0.0.7").resources]


@pytest.mark.parametrize("spec", [each for each in CHANGES if None not in each.values()], ids=json.dumps)
def test_a_mirror_that_is_as_it_was_specified_before(past: Past, journal: Journal, spec: Object) -> None:
    past.add("RegistryMirror", "soak", 0, registry_mirror("soak", HOST, **spec), namespace="")
    for each in resources_of(**spec):
        past.add(each["kind"], each["metadata"]["name"], 0, each, each["metadata"]["namespace"])
    assert list(as_specified(observed(past, journal, 0, settled=True))) == []

    other = {"ttl": "40m", "resources": {"requests": {"cpu": "30m"}}, "storage": {"size": "7Gi"}}
    past.add("RegistryMirror", "soak", 1, registry_mirror("soak", HOST, **other), namespace="")

    assert list(as_specified(observed(past, journal, 1))) == []
    (wrong,) = as_specified(observed(past, journal, 1, settled=True))
    assert {"ttl", "resources", "size"} <= {*wrong.rpartition(": ")[2].split(", ")}


def test_the_size_of_a_volume_is_as_the_api_server_stores_it() -> None:
    assert canonical(f"{VOLUME_MIB}Mi") == f"{VOLUME_MIB}Mi"


def test_a_mirror_without_resources(past: Past, journal: Journal) -> None:
    past.add("RegistryMirror", "soak", 0, registry_mirror("soak", HOST), namespace="")
    (wrong,) = as_specified(observed(past, journal, 0, settled=True))
    assert "has no DaemonSet, PersistentVolumeClaim, StatefulSet" in wrong
