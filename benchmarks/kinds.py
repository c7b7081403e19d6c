"""Measure sweeps of each kind that sync-copies copies, as its own account, next to sweeps of Secrets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.sweep import HOME, SCENARIOS, Bench, Measured, print_measured, rotated, value
from jobs.core.sync_copies.kinds import KINDS
from tests.apis import Object, wait_for
from tests.control_plane import control_plane
from tests.manifests import everything
from tests.worlds import encoded, rule

NAMESPACES = 1000
ROUNDS = 2  # more would take over five minutes
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
PERMISSIONS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
LABELS = {"bench": "yes"}
RBAC = "rbac.authorization.k8s.io"
_changes = count(1)


def measure() -> Iterator[tuple[str, Measured]]:
    """Measure all sweeps in each round, in a different order; yield each measurement with the name of its sweep."""
    with tempfile.TemporaryDirectory() as folder, control_plane() as plane:
        bench = Bench(plane, Path(folder), Path(), NAMESPACES)
        bench.prepare_namespaces()
        for obj in everything():
            if obj["kind"] in PERMISSIONS and "sync-copies" in obj["metadata"]["name"]:
                bench.api.put(obj)
        # The API server checks RoleBindings of an account, but not those of an administrator.
        bench.plane = replace(plane, kubeconfig=bench.api.service_account_kubeconfig("kube-chores", "sync-copies"))
        list(sweeps(bench, BASE))  # a server is slower right after its start
        for number in range(ROUNDS):
            for name in rotated(list(SWEEPS), number):
                for measured in sweeps(bench, name):
                    print_measured(measured)
                    yield name, measured


def sweeps(bench: Bench, name: str) -> Iterator[Measured]:
    """Run sync-copies without copies, after a change of all sources, and a third time; then delete rules and copies."""
    rules = [bench_rule(rule_type, name) for rule_type in SWEEPS[name]]
    change(bench, name)
    for each in rules:
        bench.api.put(each)
    copies = bench.namespaces * len(rules)
    for scenario, expected in zip(SCENARIOS, (copies, copies, 0), strict=True):
        if scenario == "changed":
            change(bench, name)
        measured, written = bench.run("sync-copies", scenario)
        assert written == expected, f"a {scenario} sweep of {name} wrote {written}, not {expected}"
        yield measured
        settle(bench, name)
    for each in rules:
        bench.api.delete(each)
    bench.run("sync-copies", "deleted", f"--max-deletes={copies}")


def change(bench: Bench, name: str) -> None:
    """Create the sources of a sweep, or change their content."""
    for rule_type in SWEEPS[name]:
        resource = KINDS[rule_type].resource
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        bench.api.put(
            {**head, "metadata": {"name": "source", "namespace": HOME, "labels": LABELS}, **content(rule_type)}
        )


def settle(bench: Bench, name: str) -> None:
    """Wait until kube-controller-manager wrote the statuses of quotas, so that no write meets one of the next sweep."""
    if "resourcequota" in SWEEPS[name]:
        wait_for(lambda: not unsettled(bench), "the statuses of quotas", seconds=120)


def unsettled(bench: Bench) -> list[Object]:
    """Return the quotas whose status is not that of their spec."""
    quotas = bench.api.call("GET", "/api/v1/resourcequotas")["items"]
    return [each for each in quotas if each["spec"]["hard"] != each["status"].get("hard")]


def bench_rule(rule_type: str, name: str) -> Object:
    """Return the rule of a type in a sweep."""
    spec: dict[str, Any] = {"subjectNamespace": "target"} if name == MOVED else {}
    selector = {"matchLabels": LABELS}
    return rule(f"bench-{rule_type}", HOME, "bench-team-*", ruleType=rule_type, selector=selector, **spec)


def content(rule_type: str) -> Object:
    """Return a new content of a source: 1 KiB in a ConfigMap or Secret, a usual one in other kinds."""
    number = next(_changes)
    limits = [{"type": "Container", "default": {"cpu": f"{number}m"}, "defaultRequest": {"cpu": "1m"}}]
    contents: Mapping[str, Object] = {
        "configmap": {"data": {"key": value()}},
        "secret": {"data": {"key": encoded(value())}},
        "networkpolicy": {
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": f"team-{number}"}}}]}],
            }
        },
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
