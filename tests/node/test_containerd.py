"""A mirror on a node whose containerd does not read hosts.toml."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests import one_node
from tests.apis import Api, wait_for
from tests.namespaces import ADDRESS
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs
from tests.node.mirrored import Mirrored
from tests.one_node import Node
from tests.processes import dying_with_parent
from tests.upstream import Upstream

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]
SETTING = 'config_path = "/etc/containerd/certs.d"'


def restart(node: Node, config: str) -> None:
    """Restart containerd with another configuration; containers keep running."""
    one_node.containerd_config(node.plane.folder).write_text(config)
    listed = subprocess.run([*node.enter, "pidof", "containerd"], capture_output=True, text=True, check=True)
    subprocess.run([*node.enter, "kill", *listed.stdout.split()], check=True)
    wait_for(lambda: not one_node.containerd_answers(node.enter), "containerd to end")
    with (node.plane.folder / "containerd-again.log").open("ab") as log:
        subprocess.Popen(
            [*node.enter, *dying_with_parent(), *one_node.CONTAINERD_COMMAND],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **one_node.CONTAINERD_ENV, "PATH": one_node.path()},
            start_new_session=True,
        )
    wait_for(lambda: one_node.containerd_answers(node.enter), "containerd to answer")


@contextlib.contextmanager
def without_config_path(node: Node) -> Iterator[None]:
    """Run containerd without config_path until the context ends."""
    before = one_node.containerd_config(node.plane.folder).read_text()
    assert SETTING in before
    restart(node, before.replace(SETTING, ""))
    try:
        yield
    finally:
        restart(node, before)


def test_a_mirror_that_containerd_does_not_read_is_bypassed_until_it_is_corrected(
    node: Node, api: Api, jobs: Jobs, upstream: Upstream, figure: Figure
) -> None:
    lab = Mirrored(node, api, jobs, upstream)
    with without_config_path(node):
        lab.pod("bypassing", upstream.push("one"))
        figure(f"a mirror that containerd does not read: pulled from the upstream in {lab.runs('bypassing')}")
        assert upstream.senders() == {ADDRESS}
        began = time.monotonic()
        wait_for(lambda: lab.nodes_ready() == 0, "the node's pod to be not ready", 150)
        figure(f"from containerd's change until the node's pod is not ready: {time.monotonic() - began:.0f} s")
        found = lab.audit()
        assert (found["status"], found["reason"]) == ("False", "MirrorBypassed"), found
        assert "pulls do not use the mirror" in found["message"]
        assert "config_path is not set" in found["message"]
        assert lab.hosts_toml.exists()

    wait_for(lambda: lab.nodes_ready() == 1, "the node's pod to be ready", 150)
    assert lab.audit()["reason"] != "MirrorBypassed"
    lab.run("mirrored", upstream.push("two"))
    assert upstream.senders() > {ADDRESS}
