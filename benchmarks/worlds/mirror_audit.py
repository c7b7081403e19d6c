"""The world of mirror-audit: healthy mirrors on 5,000 nodes, next to Services with 5,000 endpoints.

Mirrors and upstreams are not probed: no registry runs.
"""

from __future__ import annotations

import json

from benchmarks.cluster import BenchCluster, Clone
from benchmarks.compare import BARE, World
from benchmarks.measured import run_process
from benchmarks.worlds.sync_copies import bare, chores
from jobs.core.mirror_audit.desired import CACHE_PORT, NODE_IMAGE, PORT, Mirror
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, parse_registry_mirror
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from tests.apis import Object
from tests.manifests import ROOT, load
from tests.mirrors import APPLY, NAMESPACE, NODES, registry_mirror
from tests.worlds import namespace_object

OWN = "mirror-audit"
NUMBER_OF_NODES = 5_000
ENDPOINTS_OF_SLICE = 100  # the default of Kubernetes
OTHERS = ("web-00000", "web-00001")  # Services of others, each with an endpoint on each node
OBSERVED = {"observedGeneration": 1_000_000}  # no controllers run
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
MERGE = {"Content-Type": "application/merge-patch+json"}


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create the nodes, the mirrors with all their resources, and the slices of other Services."""
    cluster.put(load(ROOT / "cronjobs" / "crds"))
    cluster.put(namespace_object(name) for name in ("kube-chores", NAMESPACE, NODES))
    cluster.put([_node()])
    cluster.clone(
        f"/api/v1/nodes/{_node_name(0)}", (Clone("", _node_name(number)) for number in range(1, NUMBER_OF_NODES))
    )
    for service in OTHERS:
        first = _slice(service, f"{service}-00000", {"http": 8080}, [_endpoint(n) for n in range(ENDPOINTS_OF_SLICE)])
        cluster.put([first])
        others = (f"{service}-{number:05}" for number in range(1, NUMBER_OF_NODES // ENDPOINTS_OF_SLICE))
        cluster.clone(cluster.api.path(first), (Clone(NAMESPACE, name) for name in others))
    cluster.each(lambda number: _mirror(cluster, f"hub-{number:05}"), range(size))
    cluster.notes["size"] = size


def _node_name(number: int) -> str:
    return f"node-{number:05}"


def _node() -> Object:
    """Return a Linux node with the images that a kubelet reports."""
    name = _node_name(0)
    labels = {"os": "linux", "arch": "amd64", "hostname": name}
    images = [
        {"names": [f"registry.example.com/app-{number}:1.2.3@sha256:{'0' * 64}"], "sizeBytes": 123_456_789}
        for number in range(50)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {f"kubernetes.io/{key}": value for key, value in labels.items()}},
        "status": {"images": images},
    }


def _endpoint(number: int) -> Object:
    pod = {"kind": "Pod", "namespace": NAMESPACE, "name": f"web-5d4f8b9c7d-{number:05}"}
    return {
        "addresses": [f"10.2.{number // 250}.{number % 250}"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "nodeName": _node_name(number),
        "targetRef": pod,
    }


def _slice(service: str, name: str, ports: dict[str, int], endpoints: list[Object]) -> Object:
    labels = {"kubernetes.io/service-name": service}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()],
    }


def _mirror(cluster: BenchCluster, name: str) -> None:
    """Create a mirror and its resources as a repair does, with the statuses that controllers write."""
    api = cluster.api
    document = registry_mirror(name, f"{name}.example.com")
    api.put(document)
    parsed = parse_registry_mirror(Head(ObjectKey("RegistryMirror", name)), json.dumps(document["spec"]).encode())
    assert isinstance(parsed, RegistryMirror)

    def applied(obj: Object, **status: object) -> Object:
        made = api.call("PATCH", f"{api.path(obj)}?fieldManager=kube-chores&force=true", obj, headers=APPLY)
        if status:
            api.call("PATCH", f"{api.path(obj)}/status", {"status": status}, headers=MERGE)
        return made

    service = applied(Mirror(parsed, NAMESPACE, NODE_IMAGE).service.document())
    mirror = Mirror(parsed, NAMESPACE, NODE_IMAGE, service["spec"]["clusterIP"])
    claim = mirror.claim.document()
    applied(mirror.headless_service.document())
    applied(claim, phase="Bound", capacity=claim["spec"]["resources"]["requests"])
    applied(mirror.stateful_set.document(), **OBSERVED, replicas=1, updatedReplicas=1, readyReplicas=1)
    scheduled = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady")
    on_nodes = dict.fromkeys(scheduled, NUMBER_OF_NODES)
    applied(mirror.daemon_set.document(), **OBSERVED, **on_nodes, numberMisscheduled=0)
    pod = {"kind": "Pod", "namespace": NAMESPACE, "name": f"{mirror.name}-0"}
    endpoint = {"addresses": ["10.1.0.1"], "conditions": {"ready": True}, "targetRef": pod}
    headless = mirror.headless_service.name
    api.put(_slice(mirror.name, f"{mirror.name}-1", {"registry": PORT}, [endpoint]))
    api.put(_slice(headless, f"{headless}-1", {"registry": PORT, "cache": CACHE_PORT}, [endpoint]))


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Have mirrors with current statuses: nothing must be written."""
    if not cluster.notes.get("audited"):
        cluster.notes["audited"] = True
        run(cluster)
    return 0


def run(cluster: BenchCluster) -> None:
    """Run the job once, which writes the statuses of new mirrors."""
    done = run_process(PROGRAMS[OWN](cluster), {"KUBECONFIG": str(cluster.plane.kubeconfig)})
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["summary"] == {"unchanged": 5 * cluster.notes["size"]}, done.stdout


PROGRAMS = {
    OWN: lambda cluster: chores(OWN),
    BARE: lambda cluster: bare("mirror_audit", cluster),
}
WORLD = World(
    name="mirror-audit",
    unit="mirrors",
    sizes=(2, 20, 200),
    prepare=prepare,
    scenarios={"converged": converged},
    programs=PROGRAMS,
    touched=[f"/api/v1/nodes/{_node_name(0)}", f"{SLICES}/{OTHERS[0]}-00000"],
)
