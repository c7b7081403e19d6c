"""The world of the admission policies: sync-copies as its own account, with and without them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cluster import BenchCluster
from benchmarks.compare import World
from benchmarks.worlds import sync_copies
from tests.manifests import everything
from tests.policies import is_policy, wait_until_policies_act

WITHOUT, WITH = "without policies", "with policies"
POLICIES = [obj for obj in everything() if is_policy(obj)]


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create the rule and its sources, and no copy."""
    sync_copies.prepare(cluster, size, ())
    cluster.notes["policies"] = WITHOUT


def first(cluster: BenchCluster, program: str, size: int) -> int:
    """Delete all copies, and create or delete the policies."""
    sync_copies.delete_copies(cluster)
    if program != cluster.notes["policies"]:
        for obj in POLICIES:
            cluster.api.put(obj) if program == WITH else cluster.api.delete(obj)
        wait_until_policies_act(cluster.api)
        cluster.notes["policies"] = program
    return size


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Change nothing after the first run."""
    return 0


def command(cluster: BenchCluster) -> Sequence[str]:
    """Return the command of sync-copies with its own account: policies do not apply to an administrator."""
    if "account" not in cluster.notes:
        cluster.notes["account"] = cluster.api.service_account_kubeconfig("kube-chores", "sync-copies")
    return ["/usr/bin/env", f"KUBECONFIG={cluster.notes['account']}", *sync_copies.chores("sync-copies")]


WORLD = World(
    name="policies",
    unit="copies",
    sizes=(5_000,),
    prepare=prepare,
    scenarios={"first": first, "converged": converged},
    programs=dict.fromkeys((WITHOUT, WITH), command),
    at_most=lambda program, scenario, size: 3,
    touched=sync_copies.TOUCHED,
    pairs=((WITH, WITHOUT),),
)
