"""The world of farm-pods: 30 pods in each of 50, 500 and 5,000 namespaces."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from benchmarks.cluster import BenchCluster, Clone
from benchmarks.compare import BARE, World
from benchmarks.measured import run_process
from benchmarks.worlds.sync_copies import bare, chores
from tests.apis import Object
from tests.canary import canary
from tests.farm import FARMED, farm_pod
from tests.manifests import ROOT, load
from tests.worlds import namespace_object

PODS_PER_NAMESPACE = 30
CHANGED = 300  # pods that were replaced, in namespaces of their own
AT_ITS_RATE = 400  # pods without FarmPods: 20 seconds at the default rate
OPTED_IN = 20  # in scenario "few opted in", one of so many namespaces
OWN, IN_FULL = "farm-pods", "bare, whole pods"
PODS, FARM_PODS = "/api/v1/pods", "/apis/kubechores.dev/v1/farmpods"
STORED_FARM_PODS = "/registry/kubechores.dev/farmpods/"
NAMES = "web-7c9f8d6b5c"
PLAIN = "plain-00000"  # a namespace without the label, as long as the others
TOUCHED = {"/api/v1": f"pods/{NAMES}-000000", "/apis/kubechores.dev/v1": f"farmpods/farm-{NAMES}-000000"}
TIME = "2026-01-01T00:00:00Z"


def namespace(number: int) -> str:
    """Return the name of a namespace."""
    return f"bench-{number:05}"


def pod_name(number: int) -> str:
    """Return the name of a pod; the numbers go through all namespaces."""
    return f"{NAMES}-{number:06}"


def pod_uid(number: int) -> str:
    """Return the uid of a pod: FarmPods refer to it."""
    return f"{number:08x}-0000-4000-8000-000000000000"


def _container(number: int) -> Object:
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "initialDelaySeconds": 5}
    return {
        "name": f"app-{number}",
        "image": f"registry.example.com/team/app-{number}:1.27.3",
        "env": [{"name": f"SETTING_{each}", "value": canary()} for each in range(4)],
        "ports": [{"name": "http", "containerPort": 8080 + number}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}],
    }


CONTAINERS = [_container(0), _container(1)]
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": pod_name(0),
        "namespace": namespace(0),
        "labels": {"app": "web", "pod-template-hash": "7c9f8d6b5c"},
        "annotations": {"checksum/config": "ab" * 32},
    },
    "spec": {"containers": CONTAINERS, "volumes": [{"name": "config", "configMap": {"name": "app"}}]},
}
STATUS: Object = {
    "phase": "Running",
    "hostIP": "10.0.0.1",
    "podIP": "10.1.2.3",
    "podIPs": [{"ip": "10.1.2.3"}],
    "startTime": TIME,
    "conditions": [
        {"type": each, "status": "True", "lastTransitionTime": TIME}
        for each in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ],
    "containerStatuses": [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": f"registry.example.com/team/{each['name']}@sha256:{'ab' * 32}",
            "containerID": f"containerd://{'cd' * 32}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": TIME}},
        }
        for each in CONTAINERS
    ],
}


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create a pod and, by a run, its FarmPod; clone namespaces, pods and FarmPods."""
    cluster.put(load(ROOT / "cronjobs" / "crds"))
    cluster.put([namespace_object(namespace(0), labels=FARMED), namespace_object(PLAIN)])
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}  # without controllers, nobody else creates it
    cluster.put([{**account, "metadata": {"name": "default", "namespace": namespace(0)}}, POD])
    cluster.api.patch_status(POD, STATUS)
    done = run_process(chores("farm-pods"), {"KUBECONFIG": str(cluster.plane.kubeconfig)})
    assert done.exit_code == 0, done.stderr
    for name, path in {
        "farmed": f"/api/v1/namespaces/{namespace(0)}",
        "plain": f"/api/v1/namespaces/{PLAIN}",
        "farm pod": cluster.api.path(farm_pod(namespace(0), pod_name(0))),
    }.items():
        cluster.notes[name] = cluster.template(path)
    pods = cluster.template(cluster.api.path(POD))
    cluster.notes["uid"] = pods.uid
    with cluster.without_api_server():
        cluster.write(cluster.notes["farmed"].clone(Clone("", name)) for name in _namespaces(size))
        cluster.write(pods.clone(Clone(_home(each), pod_name(each), pod_uid(each))) for each in range(size))
        cluster.write(_farm_pods(cluster, range(size)))
    cluster.wait_until_served(PODS)
    cluster.wait_until_served(FARM_PODS)
    cluster.notes["opted in"] = "all"


def _home(pod: int) -> str:
    return namespace(pod // PODS_PER_NAMESPACE)


def _namespaces(size: int) -> Iterator[str]:
    return (namespace(each) for each in range(size // PODS_PER_NAMESPACE))


def _farm_pods(cluster: BenchCluster, pods: Iterable[int]) -> Iterator[tuple[str, bytes]]:
    template, uid = cluster.notes["farm pod"], cluster.notes["uid"]
    for each in pods:
        names = {pod_name(0): pod_name(each), uid: pod_uid(each)}
        yield template.clone(Clone(_home(each), f"farm-{pod_name(each)}", replaced=names))


def put_farm_pods(cluster: BenchCluster, pods: Iterable[int]) -> None:
    """Write the FarmPods of these pods."""
    cluster.write(_farm_pods(cluster, pods))
    cluster.wait_until_served(FARM_PODS)


def with_all(cluster: BenchCluster, size: int) -> None:
    """Have all namespaces labelled, and all FarmPods."""
    if cluster.notes.get("opted in") != "all":
        cluster.clone(cluster.notes["farmed"], (Clone("", name) for name in _namespaces(size)))
        put_farm_pods(cluster, range(size))
        cluster.notes["opted in"] = "all"


def without(cluster: BenchCluster, pods: Iterable[int]) -> int:
    """Delete the FarmPods of these pods; return their number."""
    prefixes = [f"{STORED_FARM_PODS}{_home(each)}/farm-{pod_name(each)}" for each in pods]
    cluster.each(lambda prefix: cluster.delete_prefix(prefix, FARM_PODS), prefixes)
    return len(prefixes)


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Have all FarmPods."""
    with_all(cluster, size)
    cluster.notes["how"] = "in-full" if program == IN_FULL else "metadata"
    cluster.notes["options"] = []
    return 0


def changed(cluster: BenchCluster, program: str, size: int) -> int:
    """Have pods without FarmPods, one in a namespace: the run must create theirs. The rate is not limited."""
    converged(cluster, program, size)
    cluster.notes["options"] = ["--writes-per-second", "100000", "--max-objects", "1000000"]
    pods = range(1, min(size, CHANGED * PODS_PER_NAMESPACE), PODS_PER_NAMESPACE)
    put_farm_pods(cluster, pods)
    return without(cluster, pods)


def few(cluster: BenchCluster, program: str, size: int) -> int:
    """Have FarmPods and labels in one of 20 namespaces."""
    if cluster.notes["opted in"] != "few":
        numbers = range(size // PODS_PER_NAMESPACE)
        cluster.delete_prefix(STORED_FARM_PODS, FARM_PODS)
        cluster.clone(cluster.notes["plain"], (Clone("", namespace(each)) for each in numbers if each % OPTED_IN))
        pods = (each for each in range(size) if each // PODS_PER_NAMESPACE % OPTED_IN == 0)
        put_farm_pods(cluster, pods)
        cluster.notes["opted in"] = "few"
    cluster.notes["how"], cluster.notes["options"] = "by-namespace", []
    return 0


def at_its_rate(cluster: BenchCluster, program: str, size: int) -> int:
    """Have pods without FarmPods: the run must create theirs at the default rate."""
    changed(cluster, program, size)
    put_farm_pods(cluster, range(size))
    cluster.notes["options"] = []
    return without(cluster, range(1, 1 + AT_ITS_RATE))


def at_most(program: str, scenario: str, size: int) -> int:
    """Return how often to run a program at most. With 150,000 pods, other states than this take minutes."""
    if scenario == "at its rate":
        return 3 if (program, size) == (OWN, 1_500) else 0
    if program == IN_FULL and scenario != "converged":
        return 0
    if size < 150_000:
        return sys.maxsize
    return {"converged": 1 if program == IN_FULL else 3, "changed": 0, "few opted in": 0}[scenario]


WORLD = World(
    name="farm-pods",
    unit="pods",
    sizes=(1_500, 15_000, 150_000),
    prepare=prepare,
    scenarios={"converged": converged, "changed": changed, "at its rate": at_its_rate, "few opted in": few},
    programs={
        OWN: lambda cluster: chores("farm-pods", *cluster.notes["options"]),
        BARE: lambda cluster: bare("farm_pods", cluster, cluster.notes["how"]),
        IN_FULL: lambda cluster: bare("farm_pods", cluster, cluster.notes["how"]),
    },
    at_most=at_most,
    touched=[f"{base}/namespaces/{namespace(0)}/{path}" for base, path in TOUCHED.items()],
    pairs=((OWN, BARE), (OWN, IN_FULL)),
)
