"""The world of kinds: each kind that sync-copies copies, as its own account, next to Secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from benchmarks.cluster import BenchCluster
from benchmarks.compare import World
from benchmarks.measured import run_process
from benchmarks.worlds.policies import command
from benchmarks.worlds.sync_copies import HOME, prepare_cluster, value
from jobs.core.sync_copies.kinds import KINDS
from tests.apis import Object, wait_for
from tests.worlds import encoded, rule

BASE = "secret"
MOVED = "rolebinding, subjectNamespace: target"
TOGETHER = "all but secret"
# What is copied in one sweep: rule types by the name of the sweep. A rule for each type has one source.
SWEEPS: Mapping[str, tuple[str, ...]] = {
    BASE: (BASE,),
    **{rule_type: (rule_type,) for rule_type in KINDS if rule_type != BASE},
    MOVED: ("rolebinding",),
    TOGETHER: tuple(rule_type for rule_type in KINDS if rule_type != BASE),
}
LABELS = {"bench": "yes"}
RBAC = "rbac.authorization.k8s.io"
_changes = count(1)


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create the namespaces, and wait until the controllers wrote to each."""
    prepare_cluster(cluster, size)
    cluster.notes["sweep"] = None
    listed = ("/api/v1/serviceaccounts", "/api/v1/configmaps")
    wait_for(lambda: min(map(cluster.count, listed)) >= size, "the objects of each namespace", seconds=600)


def first(cluster: BenchCluster, sweep: str, size: int) -> int:
    """Delete rules and copies of the sweep before, and create the rules of this one."""
    if before := cluster.notes["sweep"]:
        for each in SWEEPS[before]:
            cluster.api.delete(bench_rule(each, before))
        env = {"KUBECONFIG": str(cluster.plane.kubeconfig)}
        done = run_process([*command(cluster), f"--max-deletes={size * len(SWEEPS[before])}"], env)
        assert done.exit_code == 0, done.stderr
    cluster.notes["sweep"] = sweep
    change(cluster, sweep)
    cluster.put(bench_rule(rule_type, sweep) for rule_type in SWEEPS[sweep])
    return size * len(SWEEPS[sweep])


def changed(cluster: BenchCluster, sweep: str, size: int) -> int:
    """Change all sources."""
    settle(cluster, sweep)
    change(cluster, sweep)
    return size * len(SWEEPS[sweep])


def converged(cluster: BenchCluster, sweep: str, size: int) -> int:
    """Wait for the controllers."""
    settle(cluster, sweep)
    return 0


def change(cluster: BenchCluster, sweep: str) -> None:
    """Create the sources of a sweep, or change their content."""
    for rule_type in SWEEPS[sweep]:
        resource = KINDS[rule_type].resource
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        metadata = {"name": "source", "namespace": HOME, "labels": LABELS}
        cluster.api.put({**head, "metadata": metadata, **content(rule_type)})


def settle(cluster: BenchCluster, sweep: str) -> None:
    """Wait until kube-controller-manager wrote the statuses of quotas, so that no write meets one of the next sweep."""
    if "resourcequota" in SWEEPS[sweep]:
        wait_for(lambda: not unsettled(cluster), "the statuses of quotas", seconds=120)


def unsettled(cluster: BenchCluster) -> list[Object]:
    """Return the quotas whose status is not that of their spec."""
    quotas = cluster.api.call("GET", "/api/v1/resourcequotas")["items"]
    return [each for each in quotas if each["spec"]["hard"] != each["status"].get("hard")]


def bench_rule(rule_type: str, sweep: str) -> Object:
    """Return the rule of a type in a sweep."""
    spec: dict[str, Any] = {"subjectNamespace": "target"} if sweep == MOVED else {}
    selector = {"matchLabels": LABELS}
    return rule(f"bench-{rule_type}", HOME, "bench-team-*", ruleType=rule_type, selector=selector, **spec)


def content(rule_type: str) -> Object:
    """Return a new content of a source: 1 KiB in a ConfigMap or Secret, a usual one in other kinds."""
    number = next(_changes)
    limits = [{"type": "Container", "default": {"cpu": f"{number}m"}, "defaultRequest": {"cpu": "1m"}}]
    peers = [{"namespaceSelector": {"matchLabels": {"team": f"team-{number}"}}}]
    contents: Mapping[str, Object] = {
        "configmap": {"data": {"key": value()}},
        "secret": {"data": {"key": encoded(value())}},
        "networkpolicy": {"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}},
        "limitrange": {"spec": {"limits": limits}},
        "resourcequota": {"spec": {"hard": {"requests.cpu": "10", "requests.memory": "20Gi", "pods": str(number)}}},
        "rolebinding": {
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
            "subjects": [
                {"apiGroup": RBAC, "kind": "Group", "name": f"team-{number}"},
                {"kind": "ServiceAccount", "name": "default", "namespace": HOME},
            ],
        },
        "serviceaccount": {
            "imagePullSecrets": [{"name": f"registry-{number}"}],
            "automountServiceAccountToken": False,
        },
    }
    return contents[rule_type]


PAIRS: Sequence[tuple[str, str]] = [(name, BASE) for name in SWEEPS if name != BASE]
WORLD = World(
    name="kinds",
    unit="namespaces",
    sizes=(500,),
    prepare=prepare,
    scenarios={"first": first, "changed": changed, "converged": converged},
    programs=dict.fromkeys(SWEEPS, command),
    at_most=lambda program, scenario, size: 2,
    controllers=True,
    pairs=PAIRS,
)
