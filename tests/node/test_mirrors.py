"""Pods pull their images through a mirror, also when the mirror or its upstream is not available."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal

import pytest

from jobs.core.mirror_audit.registry_mirrors import quantity
from jobs.core.mirror_node.hosts import hosts_toml
from tests.apis import Api, wait_for
from tests.mirrors import NAMESPACE, NODES
from tests.namespaces import ADDRESS
from tests.node.conftest import Figure, Start
from tests.node.kubectl import Kubectl
from tests.node.mirrored import Mirrored, rolled_out
from tests.one_node import Node, path
from tests.upstream import Upstream

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]


def connects(node: Node, address: str, port: int) -> bool:
    """Whether a connection from the node to this address succeeds."""
    command = [*node.enter, "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_a_pod_whose_image_comes_through_the_mirror_starts(
    node: Node, mirrored: Start, upstream: Upstream, figure: Figure
) -> None:
    image = upstream.push("app")
    lab = mirrored()
    assert lab.hosts_toml.read_text() == hosts_toml(
        lab.mirror.registry_mirror.name, lab.url, f"https://{upstream.host}"
    )

    lab.pod("app", image)
    figure(f"an image of 2 MB that the mirror must fetch: pulled in {lab.runs('app')}")

    figure(f"mirror-node: {lab.node_memory() / 1024:.0f} MiB resident, with a limit of 96 MiB")
    registry = lab.registry()
    assert registry
    assert {each.sender for each in upstream.accesses()} == {registry["status"]["podIP"]}
    address = registry["status"]["podIP"]
    assert connects(node, address, 5000)
    assert '"used": true' in lab.on_node(
        f"exec 3<>/dev/tcp/{address}/5001; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    )
    pulled = [each for each in lab.accesses() if each.agent.startswith("containerd/")]
    assert {each.status for each in pulled} == {200}
    assert all(each.path.endswith(f"?ns={upstream.host.replace(':', '%3A')}") for each in pulled)
    assert [each.path.split("/")[3] for each in pulled if each.method == "GET"] == ["manifests", "blobs", "blobs"]


def test_cached_images_need_no_upstream_until_the_mirror_restarts(
    mirrored: Start, upstream: Upstream, kubectl: Kubectl, figure: Figure
) -> None:
    image = upstream.push("app")
    lab = mirrored(fallback="None")
    lab.run("first", image)

    lab.forget("first", image)
    upstream.delete(image)
    lab.pod("deleted-upstream", image)
    figure(f"a cached image that was deleted in the upstream: pulled in {lab.runs('deleted-upstream')}")

    lab.forget("deleted-upstream", image)
    upstream.stop()
    lab.pod("without-upstream", image)
    figure(f"a cached image while the upstream does not answer: pulled in {lab.runs('without-upstream')}")

    lab.forget("without-upstream", image)
    kubectl(f"delete pod {lab.mirror.name}-0 -n {NAMESPACE}")
    lab.pod("after-a-restart", image)
    assert lab.waits("after-a-restart").startswith(lab.refused)
    wait_for(lambda: "connection refused" in log(kubectl, lab), "the reason in the mirror's log")

    upstream.start()
    rolled_out(kubectl, "statefulset", lab.mirror.name)
    lab.runs("after-a-restart", 120)


def log(kubectl: Kubectl, lab: Mirrored) -> str:
    pod = lab.registry()
    ended = pod and any(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
    return kubectl(f"logs {lab.mirror.name}-0 -n {NAMESPACE} --previous") if ended else ""


def test_without_a_mirror_nodes_pull_from_the_upstream(
    node: Node, mirrored: Start, upstream: Upstream, figure: Figure
) -> None:
    lab = mirrored()
    with_mirror = lab.registry()
    assert with_mirror
    # The table that a packet passes before kube-proxy's rules replace the address of the Service.
    with silent(node, lab.mirror.cluster_ip, table="raw"):
        lab.pod("unreachable", upstream.push("zero"))
        figure(f"fallback from a Service whose packets are dropped: pulled in {lab.runs('unreachable', 240)}")
    with silent(node, with_mirror["status"]["podIP"]):
        lab.pod("silent", upstream.push("one"))
        figure(f"fallback from a mirror that does not respond: pulled in {lab.runs('silent')}")
    lab.scale(0)
    lab.pod("no-mirror-pod", upstream.push("two"))
    figure(f"fallback from a mirror without a pod: pulled in {lab.runs('no-mirror-pod')}")

    assert {(each.sender, each.agent.partition("/")[0]) for each in upstream.accesses()} == {(ADDRESS, "containerd")}


@contextlib.contextmanager
def silent(node: Node, address: str, table: str = "filter") -> Iterator[None]:
    """Drop all packets of the node to this address, without an answer."""

    def rule(how: str) -> None:
        command = [*node.enter, "iptables", "-t", table, how, "OUTPUT", "-d", address, "-j", "DROP"]
        subprocess.run(command, env={**os.environ, "PATH": path()}, check=True)

    rule("-I")
    try:
        yield
    finally:
        rule("-D")


def test_without_a_fallback_pods_wait_for_the_mirror(mirrored: Start, upstream: Upstream) -> None:
    lab = mirrored(fallback="None")
    assert lab.hosts_toml.read_text() == hosts_toml(lab.mirror.registry_mirror.name, lab.url)
    lab.scale(0)
    lab.pod("app", upstream.push("app"))
    assert lab.waits("app").startswith(lab.refused)
    assert upstream.accesses() == []

    lab.scale(1)
    lab.runs("app", 120)
    assert ADDRESS not in {each.sender for each in upstream.accesses()}


def test_a_pod_of_a_higher_priority_does_not_preempt_a_mirror(api: Api, mirrored: Start) -> None:
    lab = mirrored(fallback="None")
    before = lab.registry()
    assert before
    requests = [
        quantity(container["resources"].get("requests", {}).get("cpu", 0))
        for pod in api.items("v1", "Pod")
        if pod["status"]["phase"] in ("Pending", "Running")
        for container in pod["spec"]["containers"]
    ]
    (node,) = api.items("v1", "Node")
    # It fits only if the registry, which requests 60m, ends.
    cpu = quantity(node["status"]["allocatable"]["cpu"]) - sum(requests) + Decimal("0.03")
    namespace = api.namespace("important")
    api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": namespace},
            "value": 999_999_999,
        }
    )
    metadata = {"name": "important", "namespace": namespace}
    container = {"name": "app", "image": "registry.example.com/app", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {"priorityClassName": namespace, "containers": [container]}
    important = api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def scheduled() -> str:
        conditions = api.read(important)["status"].get("conditions", [])
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

    wait_for(lambda: "No preemption victims found" in scheduled(), "the scheduler", detail=scheduled)
    after = lab.registry()
    assert after and after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]


def test_a_mirror_that_never_worked_works_when_it_is_corrected_and_its_old_file_is_removed(
    api: Api, mirrored: Start, upstream: Upstream, kubectl: Kubectl
) -> None:
    def correct(lab: Mirrored) -> None:
        """Set the right upstream after the registry ended without one."""
        pod = lab.registry()
        if pod and any(one["restartCount"] for one in pod["status"].get("containerStatuses", ())):
            api.patch(lab.asked, {"spec": {"upstreamUrl": upstream.host}})

    image = upstream.push("app")
    lab = mirrored(meanwhile=correct, upstreamUrl="127.0.0.1:1", registryHost="old.example.com")
    rolled_out(kubectl, "daemonset", lab.mirror.daemon_set.name)
    old = lab.hosts_toml.parent.parent / "old.example.com"
    assert (old.exists(), lab.hosts_toml.exists()) == (True, False)

    api.patch(lab.asked, {"spec": {"registryHost": None}})
    lab.repair()
    rolled_out(kubectl, "daemonset", lab.mirror.daemon_set.name)

    assert (old.exists(), lab.hosts_toml.exists()) == (False, True)
    lab.run("app", image)
    assert ADDRESS not in {each.sender for each in upstream.accesses()}


def test_a_repair_that_rolls_the_registry_waits_for_it_and_ends_with_a_healthy_mirror(
    api: Api, mirrored: Start, upstream: Upstream
) -> None:
    lab = mirrored()
    lab.run("app", upstream.push("app"))
    assert lab.audit()["reason"] == "Healthy"
    before = len(reasons(api, lab))

    api.patch(lab.asked, {"spec": {"ttl": "24h"}})
    lab.repair_once_the_upstream_answers()

    assert lab.ready["reason"] == "Healthy", lab.ready["message"]
    assert reasons(api, lab)[before:] in (["InProgress", "Healthy"], ["Healthy"])  # ready before the first status


def reasons(api: Api, lab: Mirrored) -> list[str]:
    """Return the reasons of the Events of the RegistryMirror, in their order."""
    about = f"involvedObject.kind=RegistryMirror,involvedObject.name={lab.mirror.registry_mirror.name}"
    found = api.items("v1", "Event", "default", fieldSelector=about)
    return [each["reason"] for each in sorted(found, key=lambda each: str(each["metadata"]["name"]))]


def test_a_file_is_written_again_and_is_removed_before_the_mirror_is(
    api: Api, mirrored: Start, upstream: Upstream
) -> None:
    lab = mirrored(fallback="None")
    written = lab.hosts_toml.read_text()
    lab.hosts_toml.unlink()
    wait_for(lab.hosts_toml.exists, "the file to exist again", 40)
    assert lab.hosts_toml.read_text() == written

    api.delete(lab.asked)
    observed: list[tuple[bool, bool]] = []

    def observe() -> None:
        exists = api.get(lab.mirror.service.document()) is not None
        observed.append((exists, lab.hosts_toml.exists()))

    log = lab.repair(observe)
    assert "configured  daemonset" in log
    assert "deleted  service" in log
    assert (True, False) in observed, "the file is removed while the Service still exists"
    assert (False, True) not in observed, "nodes never use a Service that does not exist"
    assert not lab.hosts_toml.parent.exists()
    assert [api.get(each.document()) is None for each in lab.mirror.resources] == [True, True, False, True, True]
    lab.run("app", upstream.push("app"))
    assert {each.sender for each in upstream.accesses()} == {ADDRESS}


def test_a_hung_process_on_a_node_is_restarted(mirrored: Start, kubectl: Kubectl) -> None:
    lab = mirrored()
    name = lab.mirror.daemon_set.name
    path = "/spec/template/spec/containers/0/livenessProbe/periodSeconds"
    often = json.dumps([{"op": "replace", "path": path, "value": 2}])
    kubectl(f"patch daemonset {name} -n {NODES} --type=json -p '{often}'")
    rolled_out(kubectl, "daemonset", name)

    def restarts() -> str:
        return kubectl(f"get pods -n {NODES} -l kubechores.dev/mirror -o jsonpath={{..restartCount}}")

    assert restarts() == "0"
    lab.on_node(
        f"pkill --signal STOP --full '^/app/bin/python3 .* mirror-node --name={lab.mirror.registry_mirror.name} '"
    )
    kubectl(f"exec daemonset/{name} -n {NODES} -- touch -d @0 /run/kube-chores/problems")  # instead of minutes later
    wait_for(lambda: restarts() == "1", "the restart of the container", 60)
    rolled_out(kubectl, "daemonset", name)


def test_a_folder_that_is_mounted_alone_is_written_again_after_its_deletion_and_removed_with_the_mirror(
    api: Api, mirrored: Start
) -> None:
    """The upstream has a port, so its pod mounts all folders. For another host the pod mounts only one folder."""
    lab = mirrored(registryHost="alone.example.com")
    other = lab.hosts_toml.parent.parent / "other.example.com" / "hosts.toml"
    folder = lab.hosts_toml.parent.parent / "alone.example.com"
    written = (folder / "hosts.toml").read_text()
    other.parent.mkdir()
    other.write_text(hosts_toml(lab.mirror.registry_mirror.name, lab.url))

    shutil.rmtree(folder)
    wait_for((folder / "hosts.toml").exists, "the folder and the file to exist again", 150)
    assert (folder / "hosts.toml").read_text() == written
    assert other.exists(), "a pod that mounts one folder has no access to the others"

    api.delete(lab.asked)
    lab.repair()
    assert (folder.exists(), other.parent.exists()) == (False, False)
