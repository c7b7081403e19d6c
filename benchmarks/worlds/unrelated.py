"""The world of objects that kube-chores does not manage: 5,000 Secrets of 100 KiB next to the copies."""

from __future__ import annotations

from benchmarks.cluster import BenchCluster, Clone
from benchmarks.compare import World
from benchmarks.worlds import sync_copies
from tests.canary import canary
from tests.worlds import encoded, namespace_object, secret

NUMBER, BYTES = 5000, 100 * 1024
NAMESPACE = "bench-unrelated"
ALONE, NEXT_TO = "alone", "next to 5,000 large Secrets"


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create the copies."""
    sync_copies.prepare(cluster, size, [sync_copies.OWN])
    sync_copies.with_copies(cluster, sync_copies.OWN, size)
    cluster.put([namespace_object(NAMESPACE)])
    cluster.notes["others"] = False


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Create or delete the large Secrets."""
    if program == NEXT_TO and not cluster.notes["others"]:
        data = {"key": encoded(canary().ljust(BYTES, "x"))}
        cluster.put([secret(NAMESPACE, name(0), labels={"other": "yes"}, data=data)])
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{name(0)}"
        cluster.clone(path, (Clone(NAMESPACE, name(number)) for number in range(1, NUMBER)))
    if program == ALONE and cluster.notes["others"]:
        cluster.delete_prefix(f"/registry/secrets/{NAMESPACE}/", sync_copies.SECRETS)
    cluster.notes["others"] = program == NEXT_TO
    return 0


def name(number: int) -> str:
    """Return the name of a large Secret."""
    return f"unrelated-{number:04}"


WORLD = World(
    name="unrelated",
    unit="copies",
    sizes=(10_000,),
    prepare=prepare,
    scenarios={"converged": converged},
    programs=dict.fromkeys((ALONE, NEXT_TO), sync_copies.PROGRAMS[sync_copies.OWN]),
    at_most=lambda program, scenario, size: 3,  # each fills or empties the cluster
    touched=sync_copies.TOUCHED,
    pairs=((NEXT_TO, ALONE),),
)
