"""Pods pull their images through a mirror, and what becomes of that when the mirror or its upstream is away."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from jobs.mirrors.hosts import hosts_toml
from tests.apis import Api, wait_for
from tests.mirrors import NAMESPACE
from tests.namespaces import ADDRESS
from tests.node.kubectl import Kubectl
from tests.node.mirrored import Mirrored, rolled_out
from tests.one_node import Node, path
from tests.upstream import Upstream

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]
Figure = Callable[[str], None]
Start = Callable[..., Mirrored]


def connects(node: Node, address: str, port: int) -> bool:
    """Whether something on the node listens there."""
    command = [*node.enter, "bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_a_pod_starts_whose_image_comes_through_the_mirror(
    node: Node, mirrored: Start, upstream: Upstream, figure: Figure
) -> None:
    image = upstream.push("app")
    lab = mirrored()
    assert lab.hosts_toml.read_text() == hosts_toml(lab.mirror.asked.name, lab.url, f"https://{upstream.host}")

    lab.pod("app", image)
    figure(f"an image of 2 MB that the mirror has to fetch: pulled in {lab.runs('app')}")

    figure(f"what tells the node of the mirror: {lab.node_memory() / 1024:.0f} MiB resident of the 96 that it may have")
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


def test_what_the_mirror_has_needs_no_upstream_until_the_mirror_restarts(
    mirrored: Start, upstream: Upstream, kubectl: Kubectl, figure: Figure
) -> None:
    image = upstream.push("app")
    lab = mirrored(fallback="None")
    lab.pod("first", image)
    lab.runs("first")

    lab.forget("first", image)
    upstream.delete(image)
    lab.pod("deleted-upstream", image)
    figure(f"the same when it is in the cache, and upstream no more: pulled in {lab.runs('deleted-upstream')}")

    lab.forget("deleted-upstream", image)
    upstream.stop()
    lab.pod("without-upstream", image)
    figure(f"the same when the upstream does not answer: pulled in {lab.runs('without-upstream')}")

    lab.forget("without-upstream", image)
    kubectl(f"delete pod {lab.mirror.name}-0 -n {NAMESPACE}")
    lab.pod("after-a-restart", image)
    assert lab.waits("after-a-restart").startswith(lab.refused)
    wait_for(lambda: "connection refused" in log(kubectl, lab), "the mirror to say why")

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
    with silent(node, with_mirror["status"]["podIP"]):
        lab.pod("silent", upstream.push("one"))
        figure(f"fallback past a mirror that is silent: pulled in {lab.runs('silent')}")
    lab.scale(0)
    lab.pod("gone", upstream.push("two"))
    figure(f"fallback past a mirror that has no pod: pulled in {lab.runs('gone')}")

    assert {(each.sender, each.agent.partition("/")[0]) for each in upstream.accesses()} == {(ADDRESS, "containerd")}


@contextlib.contextmanager
def silent(node: Node, address: str) -> Iterator[None]:
    """Nothing that the node sends there arrives, and nobody says so."""

    def rule(how: str) -> None:
        command = [*node.enter, "iptables", how, "OUTPUT", "-d", address, "-j", "DROP"]
        subprocess.run(command, env={**os.environ, "PATH": path()}, check=True)

    rule("-I")
    try:
        yield
    finally:
        rule("-D")


def test_without_a_fallback_pods_wait_for_the_mirror(mirrored: Start, upstream: Upstream) -> None:
    lab = mirrored(fallback="None")
    assert lab.hosts_toml.read_text() == hosts_toml(lab.mirror.asked.name, lab.url)
    lab.scale(0)
    lab.pod("app", upstream.push("app"))
    assert lab.waits("app").startswith(lab.refused)
    assert upstream.accesses() == []

    lab.scale(1)
    lab.runs("app", 120)
    assert ADDRESS not in {each.sender for each in upstream.accesses()}


def test_a_mirror_that_never_worked_does_once_it_is_corrected_and_its_old_host_is_forgotten(
    api: Api, mirrored: Start, upstream: Upstream, kubectl: Kubectl
) -> None:
    def correct(lab: Mirrored) -> None:
        """Name the right upstream once the registry has ended for want of it."""
        pod = lab.registry()
        if pod and any(one["restartCount"] for one in pod["status"].get("containerStatuses", ())):
            api.patch(lab.asked, {"spec": {"upstreamUrl": upstream.host}})

    image = upstream.push("app")
    lab = mirrored(meanwhile=correct, upstreamUrl="127.0.0.1:1", registryHost="old.example.com")
    rolled_out(kubectl, "daemonset", lab.mirror.daemon_set.metadata.name)
    old = lab.hosts_toml.parent.parent / "old.example.com"
    assert (old.exists(), lab.hosts_toml.exists()) == (True, False)

    api.patch(lab.asked, {"spec": {"registryHost": None}})
    lab.repair()
    rolled_out(kubectl, "daemonset", lab.mirror.daemon_set.metadata.name)

    assert (old.exists(), lab.hosts_toml.exists()) == (False, True)
    lab.pod("app", image)
    lab.runs("app")
    assert ADDRESS not in {each.sender for each in upstream.accesses()}


def test_a_file_is_written_again_and_is_gone_before_the_mirror_is(
    api: Api, mirrored: Start, upstream: Upstream
) -> None:
    lab = mirrored(fallback="None")
    written = lab.hosts_toml.read_text()
    lab.hosts_toml.unlink()
    wait_for(lab.hosts_toml.exists, "the file to be there again", 40)
    assert lab.hosts_toml.read_text() == written

    api.delete(lab.asked)
    observed: list[tuple[bool, bool]] = []

    def look() -> None:
        there = api.get(lab.mirror.service.document()) is not None
        observed.append((there, lab.hosts_toml.exists()))

    said = lab.repair(look)
    assert "configured  daemonset" in said
    assert "deleted  service" in said
    assert (True, False) in observed, "the file is gone while the Service is still there"
    assert (False, True) not in observed, "nodes are never told of a Service that is not there"
    assert not lab.hosts_toml.parent.exists()
    assert [api.get(each.document()) is None for each in lab.mirror.children] == [True, True, False, True, True]
    lab.pod("app", upstream.push("app"))
    lab.runs("app")
    assert {each.sender for each in upstream.accesses()} == {ADDRESS}


def test_a_folder_that_is_mounted_alone_is_written_again_when_it_was_deleted_and_goes_with_the_mirror(
    api: Api, mirrored: Start
) -> None:
    """The upstream has a port, so only another host has a folder of its own in the pod."""
    lab = mirrored(registryHost="alone.example.com")
    other = lab.hosts_toml.parent.parent / "other.example.com" / "hosts.toml"
    folder = lab.hosts_toml.parent.parent / "alone.example.com"
    written = (folder / "hosts.toml").read_text()
    other.parent.mkdir()
    other.write_text(hosts_toml(lab.mirror.asked.name, lab.url))

    shutil.rmtree(folder)
    wait_for((folder / "hosts.toml").exists, "the folder to be there again, with the file", 150)
    assert (folder / "hosts.toml").read_text() == written
    assert other.exists(), "a pod that mounts one folder does not see the others"

    api.delete(lab.asked)
    lab.repair()
    assert (folder.exists(), other.parent.exists()) == (False, False)
