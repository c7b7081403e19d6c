"""Faults of a mirror's cache or registry break no pull, and an audit reports them."""

import sys
import time
from pathlib import Path

import pytest

from tests.apis import wait_for
from tests.control_plane import ROOT
from tests.mirrors import NAMESPACE
from tests.namespaces import ADDRESS
from tests.node.conftest import Figure, Start
from tests.node.kubectl import Kubectl
from tests.node.mirrored import Mirrored, rolled_out
from tests.one_node import Node
from tests.processes import Processes, dying_with_parent
from tests.upstream import Upstream, new_layer
from tests.upstream import upstream as running

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]
MIB = 1 << 20


def blobs(lab: Mirrored) -> list[str]:
    """Return the paths of the cached blobs on the node, the largest first."""
    return lab.on_node(f"ls -S $(find {lab.volume} -path '*/blobs/*' -name data)").split()


def cache_log(lab: Mirrored, kubectl: Kubectl) -> str:
    """Return the log of the container `cache`."""
    return kubectl(f"logs {lab.mirror.name}-0 -c cache -n {NAMESPACE}")


def restarts(lab: Mirrored) -> dict[str, int]:
    """Return how often each container of the mirror's pod was restarted."""
    registry = lab.registry()
    assert registry
    return {each["name"]: each["restartCount"] for each in registry["status"]["containerStatuses"]}


def test_a_registry_that_does_not_respond_is_restarted_and_pulls_succeed(
    node: Node, mirrored: Start, upstream: Upstream, figure: Figure, tmp_path: Path
) -> None:
    lab = mirrored()
    with running(node, tmp_path / "unmirrored") as unmirrored:
        images = {"mirrored": upstream.push("one"), "unmirrored": unmirrored.push("two")}
        (process,) = lab.on_node("pgrep -f '^/bin/registry serve /etc/distribution/config.yml'").split()
        lab.on_node(f"kill -STOP {process}")
        began = time.monotonic()
        for name, image in images.items():
            lab.pod(name, image)
        for name in images:
            lab.runs(name)
            figure(f"a registry that does not respond: the {name} image runs after {time.monotonic() - began:.0f} s")
    wait_for(lambda: restarts(lab)["registry"], "the registry to be restarted", 60)
    assert restarts(lab) == {"registry": 1, "cache": 0}


def test_nodes_do_not_use_a_mirror_whose_cache_container_does_not_respond_until_its_restart(
    mirrored: Start, upstream: Upstream, figure: Figure
) -> None:
    lab = mirrored()
    (process,) = lab.on_node("pgrep -f 'chores mirror-cache --upstream'").split()
    lab.on_node(f"kill -STOP {process}")
    began = time.monotonic()
    wait_for(lambda: not lab.is_behind_its_service(), "the mirror to leave its Service")
    figure(f"a mirror whose cache container does not respond: unready after {time.monotonic() - began:.0f} s")
    image = upstream.push("app")
    lab.run("app", image)
    assert upstream.senders(image) == {ADDRESS}

    wait_for(lab.is_behind_its_service, "the mirror to be ready again", 120)
    assert restarts(lab) == {"registry": 0, "cache": 1}


def test_a_blob_that_is_corrupt_is_removed_and_fetched_again(
    mirrored: Start, upstream: Upstream, kubectl: Kubectl, figure: Figure
) -> None:
    image = upstream.push("app")
    lab = mirrored(fallback="None")
    assert lab.audit()["reason"] == "NeverUsed"
    lab.run("first", image)
    assert lab.audit()["reason"] == "Healthy"

    lab.forget("first", image)
    blob = blobs(lab)[0]
    lab.on_node(f"printf X | dd of={blob} bs=1 seek=5000 conv=notrunc")
    began = time.monotonic()
    wait_for(lambda: "does not match its digest" in cache_log(lab, kubectl), "the blob to be found", 90)
    figure(f"a corrupt blob: removed after {time.monotonic() - began:.0f} s")
    lab.run("again", image)
    ready = lab.audit()
    assert (ready["status"], ready["reason"]) == ("False", "CacheCorrupt")


def test_an_upstream_that_ends_each_connection_early_breaks_one_pull_at_most(
    node: Node, mirrored: Start, upstream: Upstream, tmp_path: Path, figure: Figure
) -> None:
    """The registry cannot resume in the middle of a layer, but containerd can: from the upstream the pull succeeds."""
    port = 7999
    image = upstream.push("app", more=40 * MIB).replace(upstream.host, f"{ADDRESS}:{port}")
    behind = upstream.host.partition(":")[2]
    cutter = Processes(tmp_path, (*node.enter, *dying_with_parent()))
    cutter(sys.executable, str(ROOT / "tests/node/cutter.py"), ADDRESS, str(port), behind, str(16 * MIB))
    try:
        lab = mirrored(upstreamUrl=f"{ADDRESS}:{port}")
        began = time.monotonic()
        lab.run("app", image, 120)
        figure(
            f"an upstream ends each connection after 16 of 40 MiB: the pod runs after {time.monotonic() - began:.0f} s"
        )
        assert lab.audit()["reason"] == "LayersInterrupted"
    finally:
        cutter.end()


def test_a_registry_starts_although_its_files_are_damaged(
    mirrored: Start, upstream: Upstream, kubectl: Kubectl, figure: Figure
) -> None:
    image = upstream.push("app")
    lab = mirrored(fallback="None")
    lab.run("first", image)
    lab.forget("first", image)
    lab.scale(0)
    lab.on_node(f"cd {lab.volume}/*_*; : >scheduler-state.json; find . -name link -exec truncate -s 0 {{}} +")

    lab.kubectl(f"scale statefulset {lab.mirror.name} -n {NAMESPACE} --replicas=1")
    began = time.monotonic()
    rolled_out(kubectl, "statefulset", lab.mirror.name)
    figure(f"a registry whose state is damaged: ready after {time.monotonic() - began:.0f} s")

    lab.run("again", image)
    assert "the registry cannot start with it" in cache_log(lab, kubectl)


def test_images_that_share_a_layer_are_pulled_again_when_it_has_expired(
    mirrored: Start, upstream: Upstream, kubectl: Kubectl
) -> None:
    layer = new_layer(MIB)
    images = {name: upstream.push(name, layer=layer) for name in ("one", "two")}
    lab = mirrored(fallback="None", ttl="20s")
    for name, image in images.items():  # removed in between, or the node would not fetch the layer for the second image
        lab.run(name, image)
        lab.forget(name, image)
    wait_for(lambda: "Deleting blob" in kubectl(f"logs {lab.mirror.name}-0 -n {NAMESPACE}"), "a blob to expire", 60)

    for name, image in images.items():
        lab.run(f"{name}-again", image)
        lab.forget(f"{name}-again", image)
