"""A mirror's volume that fills breaks no pull, and an audit reports it."""

import time

import pytest

from tests.apis import wait_for
from tests.namespaces import ADDRESS
from tests.node.conftest import Figure, Start
from tests.node.mirrored import Mirrored
from tests.upstream import Upstream

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]
MIB = 1 << 20


def leave_free(lab: Mirrored, mib: int) -> None:
    """Fill the volume with a file until `mib` MiB are free."""
    ballast = lab.volume / "ballast"
    free = int(lab.on_node(f"rm -f {ballast}; stat -f -c '%a*%S' {lab.volume} | bc"))
    lab.on_node(f"fallocate -l {free - mib * MIB} {ballast}")


def test_a_volume_that_fills_breaks_no_pull(mirrored: Start, upstream: Upstream, figure: Figure) -> None:
    lab = mirrored(volume_mib=96)  # so that 48 MiB must be free
    larger, second, third = (upstream.push(name, more=mib * MIB) for name, mib in (("x", 60), ("y", 8), ("z", 1)))
    leave_free(lab, 56)
    began = time.monotonic()
    lab.run("larger-than-what-is-free", larger)
    figure(f"a layer of 60 MiB with 56 MiB free and 48 the least: the pod runs after {time.monotonic() - began:.0f} s")
    assert upstream.senders(larger) >= {ADDRESS}

    leave_free(lab, 1)
    wait_for(lambda: not lab.is_behind_its_service(), "the mirror to leave its Service")
    lab.pod("full", second)
    figure(f"fallback from a mirror whose volume has 1 MiB free: pulled in {lab.runs('full')}")
    assert upstream.senders(second) == {ADDRESS}
    assert lab.audit()["reason"] == "VolumeFilling"

    lab.on_node(f"rm {lab.volume}/ballast")
    began = time.monotonic()
    wait_for(lab.is_behind_its_service, "the mirror to be ready again", 180)
    figure(f"a mirror whose volume has enough space again: ready after {time.monotonic() - began:.0f} s")
    lab.run("room-again", third)
    assert ADDRESS not in upstream.senders(third)
    assert lab.audit()["reason"] == "Healthy"
