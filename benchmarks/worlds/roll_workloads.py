"""The world of roll-workloads: Deployments, StatefulSets and DaemonSets, of which a tenth opted in.

One namespace has a tenth of them, at the largest size as many Deployments as Kubernetes supports in one. A quarter of
these opted in and use the same ConfigMap. The other namespaces have 180 workloads each, of which 15 opted in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.bare.roll_workloads import OPT_IN
from benchmarks.cluster import BenchCluster, Clone
from benchmarks.compare import BARE, World
from benchmarks.measured import run_process
from benchmarks.worlds.sync_copies import bare, chores
from tests.apis import Object
from tests.canary import canary
from tests.workloads import KEY, KEY_FLAG
from tests.worlds import encoded, namespace_object

OWN = "roll-workloads"
LARGE = "large-00000"
KINDS = {"Deployment": (150, 11), "StatefulSet": (15, 2), "DaemonSet": (15, 2)}  # of a namespace, and opted in
SOURCES = 2  # ConfigMaps, and as many Secrets, of a namespace
BYTES = 400
MAX_ROLLS = 10  # the default
OBSERVED = {"observedGeneration": 1_000_000}  # no controllers run: each roll counts as observed
NOW = "2026-01-01T00:00:00Z"
STATUSES: dict[str, Object] = {
    "Deployment": {
        **OBSERVED,
        **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 3),
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "lastUpdateTime": NOW, "lastTransitionTime": NOW}
            for kind, reason in (("Progressing", "NewReplicaSetAvailable"), ("Available", "MinimumReplicasAvailable"))
        ],
    },
    "StatefulSet": {
        **OBSERVED,
        **dict.fromkeys(("replicas", "updatedReplicas", "currentReplicas", "readyReplicas", "availableReplicas"), 3),
        **dict.fromkeys(("currentRevision", "updateRevision"), "web-1"),
    },
    "DaemonSet": {
        **OBSERVED,
        **dict.fromkeys(("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"), 3),
        **dict.fromkeys(("numberReady", "numberAvailable"), 3),
        "numberMisscheduled": 0,
    },
}


def team(number: int) -> str:
    """Return the name of a namespace."""
    return f"team-{number:06}"


def source(number: int) -> str:
    """Return the name of a ConfigMap or Secret."""
    return f"source-{number:05}"


def due(size: int) -> int:
    """Return how many workloads use the ConfigMap that changes."""
    return size // 40


def sources_of_large(size: int) -> int:
    """Return how many ConfigMaps, and as many Secrets, the large namespace has."""
    return max(1, size // 400)


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create the namespaces, the sources and the workloads."""
    teams = [team(number) for number in range(max(1, size // 200))]
    cluster.put(namespace_object(name) for name in ("kube-chores", LARGE, teams[0]))
    cluster.clone(f"/api/v1/namespaces/{teams[0]}", (Clone("", name) for name in teams[1:]))
    cluster.put([{**KEY, "data": {"key": encoded(canary("-" * 20))}}])
    for number in range(SOURCES):
        for obj in (configmap(teams[0], number), _secret(teams[0], number)):
            cluster.api.put(obj)
            path = cluster.api.path(obj)
            cluster.clone(path, (Clone(name, obj["metadata"]["name"]) for name in teams[1:]))
    cluster.each(
        cluster.api.put, [each(LARGE, n) for each in (configmap, _secret) for n in range(sources_of_large(size))]
    )
    cluster.notes.update(opted_in=[], current=set(), max_rolls=MAX_ROLLS, version=0)
    for kind, (count, opted_in) in KINDS.items():
        for pair in range(SOURCES):
            _workloads(cluster, kind, pair, pair, [(name, n) for name in teams for n in range(pair, opted_in, SOURCES)])
        _workloads(cluster, kind, 0, 0, [(name, n) for name in teams for n in range(opted_in, count)], opted_in=False)
    secrets = sources_of_large(size)
    for number in range(min(secrets, due(size))):
        _workloads(cluster, "Deployment", 0, number, [(LARGE, n) for n in range(number, due(size), secrets)])
    _workloads(cluster, "Deployment", 0, 0, [(LARGE, n) for n in range(due(size), size // 10)], opted_in=False)


def _workloads(
    cluster: BenchCluster,
    kind: str,
    configmap: int,
    secret: int,
    places: Sequence[tuple[str, int]],
    *,
    opted_in: bool = True,
) -> None:
    """Create the first workload, given by namespace and number, and clone the others."""
    made = _workload(kind, f"web-{places[0][1]:05}", places[0][0], configmap, secret, opted_in)
    cluster.api.put(made)
    cluster.api.patch_status(made, STATUSES[kind])
    template = cluster.template(cluster.api.path(made))
    clones = [Clone(namespace, f"web-{number:05}") for namespace, number in places]
    if opted_in:
        cluster.notes["opted_in"].append((template, clones))
    cluster.clone(template, clones[1:])


def _workload(kind: str, name: str, namespace: str, configmap: int, secret: int, opted_in: bool) -> Object:
    """Return a workload of 9 KiB, with managedFields."""
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop"}
    container = {
        "name": "main",
        "image": "registry.example.com/shop/app:1.2.3",
        "args": ["--config=/config/app.yaml", "--port=8080"],
        "env": [
            *({"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(10)),
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": source(secret), "key": "key"}}},
        ],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
        "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    spec = {
        "containers": [container, {**container, "name": "sidecar"}],
        "volumes": [{"name": "config", "configMap": {"name": source(configmap)}}],
    }
    own: Object = {"serviceName": name} if kind == "StatefulSet" else {}
    own |= {} if kind == "DaemonSet" else {"replicas": 3}
    annotations = {OPT_IN: "true"} if opted_in else {"example.com/team": "shop"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            **own,
        },
    }


def configmap(namespace: str, number: int, version: int = 0) -> Object:
    """Return a ConfigMap that pods mount."""
    metadata = {"name": source(number), "namespace": namespace}
    data = {"app.yaml": f"version: {version}\n".ljust(BYTES, "x")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _secret(namespace: str, number: int) -> Object:
    metadata = {"name": source(number), "namespace": namespace}
    data = {"key": encoded(canary().ljust(BYTES, "x"))}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def first(cluster: BenchCluster, program: str, size: int) -> int:
    """Restore the workloads as they were created: the run must record all baselines."""
    stored: Iterator[tuple[str, bytes]] = (
        template.clone(each) for template, clones in cluster.notes["opted_in"] for each in clones
    )
    count = cluster.write(stored)
    for kind in KINDS:
        cluster.wait_until_served(f"/apis/apps/v1/{kind.lower()}s")
    cluster.notes["current"] = {program}
    return count


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Have all baselines as the program wrote them: nothing must be written."""
    if program not in cluster.notes["current"]:
        cluster.notes["max_rolls"] = due(size)
        done = run_process(PROGRAMS[program](cluster), {"KUBECONFIG": str(cluster.plane.kubeconfig)})
        assert done.exit_code == 0, done.stderr
        cluster.notes["current"].add(program)
    cluster.notes["max_rolls"] = MAX_ROLLS
    return 0


def changed(cluster: BenchCluster, program: str, size: int) -> int:
    """Change the ConfigMap that most workloads use: the run must roll as many as one run may."""
    converged(cluster, program, size)
    cluster.notes["version"] += 1
    cluster.api.put(configmap(LARGE, 0, cluster.notes["version"]))
    cluster.notes["current"] = set()
    return min(due(size), MAX_ROLLS)


def rolled(cluster: BenchCluster, program: str, size: int) -> int:
    """Change it, without that limit: the run must roll all workloads that use it."""
    changed(cluster, program, size)
    cluster.notes.update(max_rolls=due(size), current={program})
    return due(size)


PROGRAMS = {
    OWN: lambda cluster: chores(
        OWN, *KEY_FLAG, "--settle", "0", "--cool-down", "0", "--max-rolls", str(cluster.notes["max_rolls"])
    ),
    BARE: lambda cluster: bare("roll_workloads", cluster, str(cluster.notes["max_rolls"])),
}
WORLD = World(
    name="roll-workloads",
    unit="workloads",
    sizes=(200, 2_000, 20_000),
    prepare=prepare,
    scenarios={"first": first, "converged": converged, "changed": changed, "rolled": rolled},
    programs=PROGRAMS,
    touched=[
        f"/apis/apps/v1/namespaces/{team(0)}/{kind.lower()}s/web-{count - 1:05}" for kind, (count, _) in KINDS.items()
    ],
    at_most=lambda program, scenario, size: 2 if size > 2_000 and scenario in ("first", "rolled") else 9,
)
