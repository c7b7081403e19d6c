"""The desired resources of a mirror."""

import json
import os
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.core.mirror_audit.desired import NAME, Manifest, Mirror, is_pinned
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.plan import plan
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, parse_registry_mirror
from jobs.core.mirror_audit.repair import Context, expand
from jobs.core.mirror_node.hosts import CERTS
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, Invalid

STORAGE = "ephemeral-storage"
PINNED = f"registry@sha256:{64 * 'a'}"


def mirror(upstream: str = "quay.io", name: str = "m", *, version: str = "", **spec: Any) -> Mirror:
    head = Head(ObjectKey("RegistryMirror", name))
    registry_mirror = parse_registry_mirror(head, json.dumps({"upstreamUrl": upstream, **spec}).encode())
    assert isinstance(registry_mirror, RegistryMirror)
    return Mirror(registry_mirror, "mirrors", "kube-chores:1", "10.0.0.7", version)


def pod(of: Manifest) -> Any:
    """Return the pod of a workload."""
    return of.body["spec"]["template"]["spec"]


def env(of: Mirror) -> dict[str, str | None]:
    registry, _ = pod(of.stateful_set)["containers"]
    return {each["name"]: each.get("value") for each in registry["env"]}


@pytest.mark.parametrize(
    ("given", "registry_host", "upstream", "host"),
    [
        ("docker.io", "", "registry-1.docker.io", "docker.io"),
        ("https://registry-1.docker.io", "", "registry-1.docker.io", "docker.io"),
        ("index.docker.io", "", "registry-1.docker.io", "docker.io"),
        ("docker.io:443", "", "registry-1.docker.io", "docker.io"),
        ("https://gcr.io", "", "gcr.io", "gcr.io"),
        ("registry.example.com:5000", "", "registry.example.com:5000", "registry.example.com:5000"),
        # containerd searches for the host in the names of images, with its port.
        ("r9.example.com:443", "", "r9.example.com", "r9.example.com:443"),
        ("r9.example.com:443", "r9.example.com", "r9.example.com", "r9.example.com"),
        ("r9.example.com", "r9.example.com:443", "r9.example.com", "r9.example.com:443"),
        # It reads images of index.docker.io as those of docker.io.
        ("r9.example.com", "index.docker.io", "r9.example.com", "docker.io"),
    ],
)
def test_a_spec_defines_the_upstream_and_the_host_in_the_names_of_images(
    given: str, registry_host: str, upstream: str, host: str
) -> None:
    desired = mirror(given, registryHost=registry_host)

    assert env(desired)["REGISTRY_PROXY_REMOTEURL"] == f"https://{upstream}"
    args = pod(desired.daemon_set)["containers"][0]["args"]
    mirror_args = (f"--host={host}", "--mirror=http://10.0.0.7:5000", f"--upstream=https://{upstream}")
    state = "--state=/run/kube-chores/problems"
    assert args == ["mirror-node", "--name=m", *mirror_args, "--containerd-dir=/node/etc/containerd", state]


def test_without_a_fallback_nodes_do_not_get_the_upstream() -> None:
    args = pod(mirror(fallback="None").daemon_set)["containers"][0]["args"]

    assert [each for each in args if each.startswith("--upstream")] == []


def test_a_registry_serves_no_profiles_whatever_its_image_configures() -> None:
    env = mirror().stateful_set.document()["spec"]["template"]["spec"]["containers"][0]["env"]

    # The server omits an empty value.
    assert [each for each in env if "DEBUG" in each["name"]] == [{"name": "REGISTRY_HTTP_DEBUG_ADDR"}]


def test_an_ipv6_address_is_in_brackets() -> None:
    desired = replace(mirror(), cluster_ip="fd00::7")

    assert "--mirror=http://[fd00::7]:5000" in pod(desired.daemon_set)["containers"][0]["args"]


@pytest.mark.parametrize(
    ("upstream", "mount"),
    [
        ("quay.io", {"mountPath": f"{CERTS}/quay.io", "subPath": "quay.io"}),
        ("docker.io", {"mountPath": f"{CERTS}/docker.io", "subPath": "docker.io"}),
        # containerd reads HOST_PORT_ or HOST:PORT: the pod must read both before it writes one.
        ("quay.io:443", {"mountPath": CERTS}),
    ],
)
def test_a_pod_on_a_node_mounts_only_the_folders_that_it_writes(upstream: str, mount: dict[str, str]) -> None:
    pod = mirror(upstream).daemon_set.document()["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["volumes"] == [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in (("certs", CERTS), ("containerd", "/etc/containerd"))
    ] + [{"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    configuration = {"name": "containerd", "mountPath": "/node/etc/containerd", "readOnly": True}
    state = {"name": "state", "mountPath": "/run/kube-chores"}
    assert container["volumeMounts"] == [{"name": "certs", **mount}, configuration, state]
    assert "--containerd-dir=/node/etc/containerd" in container["args"]
    limits = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == limits
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("problems", "age", "passed"),
    [
        (None, 0, {"startup": False, "readiness": False, "liveness": False}),
        ("", 0, {"startup": True, "readiness": True, "liveness": True}),
        ("", 110, {"startup": True, "readiness": True, "liveness": True}),
        ("", 130, {"startup": True, "readiness": True, "liveness": False}),
        ("pulls do not\nuse it", 0, {"startup": True, "readiness": False, "liveness": True}),
        ("pulls do not\nuse it", 130, {"startup": True, "readiness": False, "liveness": False}),
    ],
)
def test_the_probes_of_a_node_pod_start_no_python(
    problems: str | None, age: float, passed: dict[str, bool], tmp_path: Path
) -> None:
    (container,) = mirror().daemon_set.document()["spec"]["template"]["spec"]["containers"]
    if problems is not None:
        (tmp_path / "problems").write_text(problems)
        then = time.time() - age
        os.utime(tmp_path / "problems", (then, then))

    for name, is_passed in passed.items():
        command = container[f"{name}Probe"]["exec"]["command"]
        assert command[:-1] == ["sh", "-c"]
        script = command[-1].replace("/run/kube-chores", str(tmp_path))
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert (name, done.returncode == 0) == (name, is_passed)
        if name == "readiness":
            assert done.stdout == (problems or "")


def test_a_registry_has_a_cache_container_with_the_same_volume_and_rights() -> None:
    pod = mirror("registry.example.com:5000", ttl="24h").stateful_set.document()["spec"]["template"]["spec"]
    registry, cache = pod["containers"]

    assert (cache["name"], cache["image"]) == ("cache", "kube-chores:1")
    assert cache["args"] == ["mirror-cache", "--upstream=registry.example.com_5000", "--ttl=24h"]
    assert cache["volumeMounts"] == registry["volumeMounts"]
    assert cache["securityContext"] == registry["securityContext"]
    root = "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY"
    assert {"name": root, "value": "/var/lib/registry/registry.example.com_5000"} in registry["env"]


def test_only_a_mirror_with_a_fallback_is_unready_without_free_space() -> None:
    def probe(**spec: str) -> object:
        return pod(mirror(**spec).stateful_set)["containers"][1].get("readinessProbe")

    assert probe(fallback="Upstream") is not None
    assert probe(fallback="None") is None


def test_a_registry_that_hangs_is_ended_within_30_seconds() -> None:
    probe = pod(mirror().stateful_set)["containers"][0]["livenessProbe"]

    # The first attempt starts within a period; each attempt takes its whole timeout.
    period = probe["periodSeconds"]
    detected = period + probe["failureThreshold"] * max(probe["timeoutSeconds"], period)
    assert detected + probe["terminationGracePeriodSeconds"] <= 30


def test_the_headless_service_publishes_the_cache_of_a_registry_that_is_not_ready() -> None:
    service, headless = (each.body["spec"] for each in (mirror().service, mirror().headless_service))

    assert [(each["name"], each["port"]) for each in headless["ports"]] == [("registry", 5000), ("cache", 5001)]
    assert headless["publishNotReadyAddresses"] is True
    assert [each["name"] for each in service["ports"]] == ["registry"]
    assert service["publishNotReadyAddresses"] is False


def test_a_registry_has_no_descriptor_cache_and_a_ttl_of_a_week() -> None:
    assert env(mirror())["REGISTRY_STORAGE_CACHE_BLOBDESCRIPTOR"] == "none"
    assert env(mirror())["REGISTRY_PROXY_TTL"] == "168h"


def test_selectors_select_only_the_pods_of_their_own_workload() -> None:
    desired = mirror()
    workloads = [each.body["spec"] for each in (desired.stateful_set, desired.daemon_set)]
    registry, node = selectors = [each["selector"]["matchLabels"] for each in workloads]
    labels = [each["template"]["metadata"]["labels"] for each in workloads]

    for selector, its in zip(selectors, labels, strict=True):
        assert selector.items() <= its.items()
    assert not registry.items() <= labels[1].items()
    assert not node.items() <= labels[0].items()
    services = (desired.service, desired.headless_service)
    assert [each.body["spec"]["selector"] for each in services] == [registry, registry]


def test_the_resources_refer_to_each_other() -> None:
    desired = mirror()
    registry = pod(desired.stateful_set)

    assert desired.stateful_set.body["spec"]["serviceName"] == desired.headless_service.name
    assert desired.headless_service.body["spec"]["clusterIP"] == "None"
    assert registry["volumes"][0]["persistentVolumeClaim"]["claimName"] == desired.claim.name
    port = desired.service.body["spec"]["ports"][0]
    assert port["targetPort"] == registry["containers"][0]["ports"][0]["name"]
    assert len({each.key for each in desired.resources}) == len(desired.resources) == 5


def test_every_resource_is_stamped() -> None:
    metadata = [each.body["metadata"] for each in mirror().resources]

    assert all(stamps.is_managed(each["labels"], NAME, "") for each in metadata)
    assert {each["annotations"][stamps.RULE] for each in metadata} == {"m"}
    assert mirror().claim.body["metadata"]["annotations"][stamps.ORPHANS] == "Retain"


def test_a_changed_configuration_or_login_rolls_the_registry() -> None:
    def annotations(of: Mirror) -> Any:
        return of.stateful_set.body["spec"]["template"]["metadata"]["annotations"]

    usual = mirror(credentialsSecret="login", version="1")

    assert annotations(usual) != annotations(mirror(credentialsSecret="login", version="1", ttl="1h"))
    assert annotations(usual) != annotations(mirror(credentialsSecret="login", version="2"))
    assert annotations(usual) == annotations(mirror(credentialsSecret="login", version="1", storage={"size": "9Gi"}))
    assert usual.daemon_set == mirror(credentialsSecret="login", version="2").daemon_set


def test_credentials_are_references_and_never_values() -> None:
    env = pod(mirror(credentialsSecret="login").stateful_set)["containers"][0]["env"]
    found = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in env if "valueFrom" in each}

    assert found == {
        "REGISTRY_PROXY_USERNAME": {"name": "login", "key": "username"},
        "REGISTRY_PROXY_PASSWORD": {"name": "login", "key": "password"},
    }


def test_no_field_is_set_that_only_the_server_sets() -> None:
    for each in mirror().resources:
        text = json.dumps(each.document())
        assert "null" not in text
        assert "{}" not in text
        assert "[]" not in text


def test_every_field_of_the_spec_is_set() -> None:
    desired = mirror(
        storage={"size": "5Gi", "storageClassName": "fast"},
        image=PINNED,
        resources={"limits": {"memory": "1Gi", "cpu": 2}},
        tolerations=[{"key": "a", "operator": "Exists"}],
        registryTolerations=[{"key": "b", "operator": "Exists"}],
        priorityClassName="infra",
    )
    pods = [pod(each) for each in (desired.daemon_set, desired.stateful_set)]
    container, _ = pods[1]["containers"]

    claim = desired.claim.body["spec"]
    assert (claim["resources"]["requests"], claim["storageClassName"]) == ({"storage": "5Gi"}, "fast")
    assert container["image"] == PINNED
    assert container["resources"] == {
        "limits": {"memory": "1Gi", "cpu": 2, "ephemeral-storage": "512Mi"},
        "requests": {"cpu": "50m", "memory": "128Mi", "ephemeral-storage": "64Mi"},
    }
    assert [each["key"] for found in pods for each in found["tolerations"]] == ["a", "b"]
    assert [each["priorityClassName"] for each in pods] == ["infra", "infra"]
    assert "tolerations" not in pod(mirror(tolerations=[]).daemon_set)


@pytest.mark.parametrize(
    ("resources", "requests", "limits"),
    [
        ({}, {"cpu": "50m", "memory": "128Mi"}, {"memory": "512Mi"}),
        ({"requests": {"memory": "1Gi"}}, {"cpu": "50m", "memory": "1Gi"}, {"memory": "1Gi"}),
        ({"limits": {"memory": "64Mi"}}, {"cpu": "50m", "memory": "64Mi"}, {"memory": "64Mi"}),
        ({"limits": {STORAGE: "1Gi"}}, {"cpu": "50m", "memory": "128Mi"}, {"memory": "512Mi", STORAGE: "1Gi"}),
        ({"limits": {"cpu": "20m"}}, {"cpu": "20m", "memory": "128Mi"}, {"cpu": "20m", "memory": "512Mi"}),
    ],
)
def test_no_default_contradicts_the_spec(resources: Any, requests: Any, limits: Any) -> None:
    container = mirror(resources=resources).stateful_set.document()["spec"]["template"]["spec"]["containers"][0]
    resources = container["resources"]

    assert (resources["requests"], resources["limits"]) == ({STORAGE: "64Mi"} | requests, {STORAGE: "512Mi"} | limits)


@pytest.mark.parametrize(
    ("image", "pinned"),
    [
        ("registry:3", True),
        ("registry", False),
        ("registry:latest", False),
        ("registry.example.com:5000/registry", False),
        ("registry.example.com:5000/registry:3.1", True),
        ("registry@sha256:abc", True),
        ("registry:latest@sha256:abc", True),
    ],
)
def test_an_image_is_pinned_by_a_tag_or_a_digest(image: str, pinned: bool) -> None:
    assert is_pinned(image) is pinned


def test_a_spec_of_another_type_is_invalid_and_names_the_field() -> None:
    broken = parse_registry_mirror(Head(ObjectKey("RegistryMirror", "m")), b'{"upstreamUrl": 1}')

    assert isinstance(broken, Invalid)
    assert broken.problems == ("spec: Expected `str`, got `int` - at `$.upstreamUrl`",)


def test_a_run_reads_its_pod_only_if_a_mirror_uses_its_image() -> None:
    pod, of = ObjectKey("Pod", "audit-1", "kube-chores"), mirror()
    in_pod = Settings("mirrors", "", pod=pod)
    with_mirror = Observed((of.registry_mirror,))

    def reads(observed: Observed, settings: Settings) -> list[ObjectKey]:
        return [need.key for need in plan(observed, settings, datetime.now(timezone.utc)).dependencies]

    assert reads(with_mirror, in_pod) == [pod]
    assert reads(Observed(()), in_pod) == []
    assert reads(with_mirror, replace(in_pod, node_image="kube-chores:2")) == []
    assert reads(with_mirror, replace(in_pod, pod=None)) == []


def test_a_claim_that_requests_no_size_is_expanded_when_it_is_bound() -> None:
    of = mirror()
    claim = {**of.claim.document(), "status": {"phase": "Pending"}}
    claim["spec"] = {**claim["spec"], "resources": {"requests": {}}}
    context = Context(of, [], Observed((of.registry_mirror,), resources={of.claim.key: claim}), Settings("mirrors", ""))

    assert expand(context, of.claim).remedy == "a repair expands it when the claim is bound"


def test_a_mirror_is_absent_only_if_every_kind_was_read_and_no_object_has_its_names() -> None:
    new = mirror(name="new")
    nothing, claim = Observed((new.registry_mirror,)), new.claim.key
    error = ApiError(403, "denied")
    existing = replace(nothing, resources={claim: {"metadata": {}}})  # also one that is not managed by kube-chores
    undecoded, unread = replace(nothing, invalid={claim: error}), replace(nothing, list_errors={claim.kind: error})
    settings = Settings("mirrors", "kube-chores:1")

    def absent(observed: Observed) -> list[str]:
        return list(plan(observed, settings, datetime.now(timezone.utc)).summary.absent)

    assert [absent(each) for each in (nothing, existing, undecoded, unread)] == [["new"], [], [], []]


@pytest.mark.parametrize("unread", ["StatefulSet", "DaemonSet"])
def test_an_orphan_is_deleted_only_if_the_kinds_that_may_use_it_are_readable(unread: str) -> None:
    claim = mirror().claim
    identity = {"uid": "1", "resourceVersion": "1"}
    resources = {claim.key: {**claim.body, "metadata": {**claim.body["metadata"], **identity}}}
    settings = Settings("mirrors", "kube-chores:1", repair=True, allow_cache_loss=True)

    def writes(**errors: ApiError) -> list[object]:
        found = plan(Observed((), resources=resources, list_errors=errors), settings, datetime.now(timezone.utc))
        return [each.change for each in found.findings if each.change]

    assert len(writes()) == 1
    assert writes(**{unread: ApiError(500, "failed")}) == []
