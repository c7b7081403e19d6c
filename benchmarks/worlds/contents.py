"""The world of --verify=content: 10 Secrets of 100 kB, copied to 100 and 1,000 namespaces, and read in full."""

from __future__ import annotations

from benchmarks.cluster import BenchCluster
from benchmarks.compare import World
from benchmarks.worlds import sync_copies

BYTES = 100_000
CONTENT, METADATA = "--verify=content", "--verify=metadata"


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create the copies."""
    sync_copies.prepare(cluster, size, [sync_copies.OWN], BYTES)
    sync_copies.with_copies(cluster, sync_copies.OWN, size)


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Change nothing."""
    return 0


WORLD = World(
    name="contents",
    unit="copies",
    sizes=(1_000, 10_000),
    prepare=prepare,
    scenarios={"converged": converged},
    programs={
        CONTENT: lambda cluster: sync_copies.chores("sync-copies", "-n", "kube-chores", CONTENT),
        METADATA: lambda cluster: sync_copies.chores("sync-copies", "-n", "kube-chores"),
    },
    at_most=lambda program, scenario, size: 3,
    touched=sync_copies.TOUCHED,
    pairs=((CONTENT, METADATA),),
)
