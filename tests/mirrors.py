"""Create healthy mirrors: a RegistryMirror with all resources, its pods ready and its claim bound.

The embedded API server runs no workload controllers, so the statuses are written there. On the real one, controllers
compute them from pods, and the statuses of pods are written here, as a kubelet does.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from jobs.core.mirror_audit.desired import CACHE_PORT, MIRROR, NODE_IMAGE, PORT, Mirror
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, parse_registry_mirror
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.manifests import everything
from tests.worlds import encoded, secret

NAMESPACE, NODES = "kube-chores-mirrors", "kube-chores-nodes"
KINDS = {"StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "PersistentVolumeClaim": "v1", "Service": "v1"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
NOW = "2026-01-01T00:00:00Z"


def registry_mirror(name: str = "hub", upstream: str = "docker.io", **spec: Any) -> Object:
    return {
        "apiVersion": "kubechores.dev/v1",
        "kind": "RegistryMirror",
        "metadata": {"name": name},
        "spec": {"upstreamUrl": upstream, **spec},
    }


def credentials(name: str, upstream: str = "docker.io", **fields: Any) -> Object:
    """Return a Secret with credentials, annotated for an upstream."""
    fields = fields or {"data": {"username": encoded(canary()), "password": encoded(canary())}}
    result = secret(NAMESPACE, name, labels={}, **fields)
    result["metadata"]["annotations"] = {"kubechores.dev/upstream": upstream}
    return result


def before_the_move(mirror: Mirror) -> Object:
    """Return the DaemonSet of a mirror in the namespace of earlier versions."""
    document = mirror.daemon_set.document()
    return document | {"metadata": document["metadata"] | {"namespace": NAMESPACE}}


@dataclass
class Mirrors:
    """The mirrors of a test on one of the API servers."""

    api: Api
    nodes: list[str] = field(default_factory=list)

    def name(self, name: str = "hub") -> str:
        """Return a name that is unique to this test."""
        return f"{name}-{self.api.token}"

    def node(self, name: str = "node", *taints: Object, **labels: str) -> str:
        """Create a Linux node; return its name."""
        unique = self.name(name)
        ready = {"type": "Ready", "status": "True", "reason": "Tests", "message": "", "lastHeartbeatTime": _now()}
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": unique, "labels": {"kubernetes.io/os": "linux", **labels}},
                "spec": {"taints": list(taints)},
                "status": {"conditions": [{**ready, "lastTransitionTime": _now()}]},
            }
        )
        self.nodes.append(unique)
        return unique

    def create(self, name: str = "hub", upstream: str = "docker.io", **spec: Any) -> Object:
        """Create a RegistryMirror."""
        return self.api.create(registry_mirror(self.name(name), upstream, **spec))

    def healthy(self, name: str = "hub", upstream: str = "docker.io", **spec: Any) -> Mirror:
        """Create a RegistryMirror and its resources, all working."""
        return self.deploy(self.create(name, upstream, **spec))

    def deploy(self, document: Object) -> Mirror:
        """Create the resources of a RegistryMirror, all working."""
        mirror = self.of(document)
        self.volume(mirror)
        self.apply(mirror.service.document())
        mirror = self.of(document)
        for each in mirror.resources[1:]:
            self.apply(each.document())
        self.settle(mirror)
        return mirror

    def of(self, document: Object) -> Mirror:
        """Return the desired resources of a RegistryMirror, with the values that come from the cluster."""
        parsed = parse_registry_mirror(
            Head(ObjectKey("RegistryMirror", document["metadata"]["name"])), json.dumps(document["spec"]).encode()
        )
        assert isinstance(parsed, RegistryMirror)
        mirror = Mirror(parsed, NAMESPACE, NODE_IMAGE)
        service = self.api.get(mirror.service.document())
        login = self.api.get(credentials(mirror.spec.credentials_secret)) if mirror.spec.credentials_secret else None
        return Mirror(
            parsed,
            NAMESPACE,
            NODE_IMAGE,
            service["spec"]["clusterIP"] if service else "",
            login["metadata"]["resourceVersion"] if login else "",
        )

    def apply(self, document: Object, manager: str = "kube-chores") -> Object:
        """Apply an object server-side, as a repair does."""
        path = f"{self.api.path(document)}?fieldManager={manager}&force=true"
        applied = self.api.call("PATCH", path, document, headers=APPLY)
        self.api.made(applied)
        return applied

    def edit(self, document: Object, patch: Object, manager: str = "kubectl-edit") -> Object:
        """Change an object as a user with kubectl does."""
        merge = {"Content-Type": "application/merge-patch+json"}
        return self.api.call("PATCH", f"{self.api.path(document)}?fieldManager={manager}", patch, headers=merge)

    def specify(self, mirror: Mirror, **spec: Any) -> None:
        """Change the spec of a RegistryMirror as a user with kubectl does."""
        self.edit(registry_mirror(mirror.registry_mirror.name), {"spec": spec})

    def settle(self, mirror: Mirror) -> None:
        """Roll out the current specs of a mirror's workloads, and bind its claim."""
        if self.api.kind == "sandbox":
            self._write_statuses(mirror)
        else:
            self._act_as_kubelet(mirror)

    # the embedded server

    def status(self, document: Object, **status: Any) -> None:
        """Write a status: the embedded server has no controllers."""
        found = self.api.read(document)
        generation = found["metadata"].get("generation")
        self.api.patch_status(document, {**status, **({"observedGeneration": generation} if generation else {})})

    def _write_statuses(self, mirror: Mirror) -> None:
        nodes = len(self.nodes)
        claim, registry, node = (each.document() for each in (mirror.claim, mirror.stateful_set, mirror.daemon_set))
        if found := self.api.get(claim):
            self.status(claim, phase="Bound", capacity=found["spec"]["resources"]["requests"])
        if self.api.get(registry):
            self.status(registry, replicas=1, updatedReplicas=1, readyReplicas=1)
        if self.api.get(node):
            self.status(node, desiredNumberScheduled=nodes, updatedNumberScheduled=nodes, numberReady=nodes)
        self.slice(mirror, ready=self.api.get(registry) is not None)

    def slice(self, mirror: Mirror, *, ready: bool, address: str = "10.1.0.1", port: int = 5000) -> None:
        """Write the EndpointSlices of a mirror's Services; the headless one also has pods that are not ready."""
        endpoint = {"addresses": [address], "targetRef": registry_pod(mirror)}
        self._slice(mirror.name, {**endpoint, "conditions": {"ready": ready}}, {"registry": port})
        cache = CACHE_PORT if port == PORT else port
        headless = mirror.headless_service.name
        self._slice(headless, {**endpoint, "conditions": {"ready": True}}, {"registry": port, "cache": cache})

    def _slice(self, service: str, endpoint: Object, ports: dict[str, int]) -> None:
        self.api.put(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"{service}-1",
                    "namespace": NAMESPACE,
                    "labels": {"kubernetes.io/service-name": service},
                },
                "addressType": "IPv4",
                "endpoints": [endpoint],
                "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in ports.items()],
            }
        )

    # the real server

    def volume(self, mirror: Mirror) -> None:
        """Create a volume for the claim of a mirror, on the server that binds claims."""
        if self.api.kind == "sandbox":
            return
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": mirror.name},
                "spec": {
                    "capacity": {"storage": mirror.spec.storage.size},
                    "storageClassName": mirror.spec.storage.storage_class_name,
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/nowhere"},
                    "claimRef": {"namespace": NAMESPACE, "name": mirror.name},
                },
            }
        )

    def pods(self, mirror: Mirror, component: str) -> list[Object]:
        """Return the pods of a workload, and end those that are being deleted."""
        selector = f"kubechores.dev/mirror={mirror.registry_mirror.name},app.kubernetes.io/component={component}"
        found = self.api.items("v1", "Pod", NODES if component == "node" else NAMESPACE, labelSelector=selector)
        for pod in found:
            if pod["metadata"].get("deletionTimestamp"):
                self._end(pod)
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def _end(self, pod: Object) -> None:
        """Remove a pod at once, as a kubelet does when the containers have ended."""
        path = self._path(pod)
        self.api.request("DELETE", f"{path}?gracePeriodSeconds=0")

    @staticmethod
    def _path(pod: Object) -> str:
        return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

    def _act_as_kubelet(self, mirror: Mirror) -> None:
        def is_working() -> bool:
            for component in ("registry", "node"):
                for pod in self.pods(mirror, component):
                    self.run_pod(pod)
            return self._is_settled(mirror)

        wait_for(is_working, f"mirror {mirror.registry_mirror.name} to work", 60)

    def _is_settled(self, mirror: Mirror) -> bool:
        """Return whether all existing resources of a mirror work."""
        claim = self.api.get(mirror.claim.document())
        registry = self.api.get(mirror.stateful_set.document())
        node = self.api.get(mirror.daemon_set.document())
        slices = self.api.items(
            "discovery.k8s.io/v1", "EndpointSlice", NAMESPACE, labelSelector=f"kubernetes.io/service-name={mirror.name}"
        )
        return (
            (claim is None or claim.get("status", {}).get("phase") == "Bound")
            and (registry is None or _is_rolled_out(registry, 1, "readyReplicas", "updatedReplicas"))
            and (node is None or _is_rolled_out(node, len(self.nodes), "numberReady", "updatedNumberScheduled"))
            and (registry is None or any(each.get("endpoints") for each in slices))
        )

    def run_pod(self, pod: Object, *, ready: bool = True, address: str = "10.1.0.1") -> None:
        """Bind a pod to a node, if it is not bound yet, and write that it runs."""
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": _node_of(pod) or self.nodes[0]}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self.api.call("POST", f"{self._path(pod)}/binding", binding)
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": NOW}
        status: Object = {"phase": "Running", "conditions": [condition], "startTime": NOW}
        if address:
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        merge = {"Content-Type": "application/merge-patch+json"}
        self.api.call("PATCH", f"{self._path(pod)}/status", {"status": status}, headers=merge)

    def clean(self) -> None:
        """Remove pods, which no kubelet ends, and finalizers."""
        for service in self.api.items("v1", "Service", NAMESPACE):
            if service["metadata"].get("finalizers"):
                self.edit(service, {"metadata": {"finalizers": None}})
        if self.api.kind == "real":
            self._delete_resources()
            for namespace in (NAMESPACE, NODES):
                for pod in self.api.items("v1", "Pod", namespace):
                    self._end(pod)

    def _delete_resources(self) -> None:
        """Delete the resources that a repair created for mirrors of this test."""
        for kind, version, namespace in places():
            for each in self.api.items(version, kind, namespace):
                if (each["metadata"].get("labels") or {}).get(MIRROR, "").endswith(self.api.token):
                    self.api.delete({"apiVersion": version, "kind": kind, **each})


def registry_pod(mirror: Mirror, number: int | str = 0) -> Object:
    """Return the targetRef of an endpoint to a pod of the registry."""
    return {"kind": "Pod", "namespace": NAMESPACE, "name": f"{mirror.name}-{number}"}


def places() -> list[tuple[str, str, str]]:
    """Return the kinds of a mirror's resources, each with its API version and its namespace."""
    return [*((kind, version, NAMESPACE) for kind, version in KINDS.items()), ("DaemonSet", "apps/v1", NODES)]


def _is_rolled_out(workload: Object, replicas: int, *fields: str) -> bool:
    status = workload.get("status", {})
    observed = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    return bool(observed and all(status.get(field) == replicas for field in fields))


def _node_of(pod: Object) -> str:
    """Return the node of a DaemonSet's pod, from its affinity."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return next((str(f["values"][0]) for term in terms for f in term.get("matchFields", [])), "")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def allow_any_name(api: Api) -> None:
    """Change the CRD of RegistryMirrors to that of an older release, which accepted names that cannot work."""
    crd = next(each for each in everything() if each["metadata"]["name"] == "registrymirrors.kubechores.dev")
    (version,) = crd["spec"]["versions"]
    schema = {**version["schema"]["openAPIV3Schema"]}
    del schema["x-kubernetes-validations"]
    api.patch(crd, {"spec": {"versions": [{**version, "schema": {"openAPIV3Schema": schema}}]}})
    trial = f"{api.path(registry_mirror('a.b'), named=False)}?dryRun=All"

    def create() -> tuple[int, bytes]:
        status, _, body = api.request("POST", trial, registry_mirror("a.b"))
        return status, body

    wait_for(lambda: create()[0] == 201, "the CRD to accept any name", detail=create)
