"""Registry mirrors as they are when all is well: made as they are asked for, and at work as nodes would have them.

The embedded API server runs no controllers of workloads, so statuses are written there. On the real one controllers
work them out from pods, whose statuses are written here as a kubelet would.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from jobs.kit.custom_resources import Head
from jobs.kit.model import ObjectKey
from jobs.mirrors.mirror import CACHE_PORT, MIRROR, NODE_IMAGE, PORT, Mirror
from jobs.mirrors.registry_mirrors import RegistryMirror, parse_registry_mirror
from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.worlds import encoded, secret

NAMESPACE, NODES = "kube-chores-mirrors", "kube-chores-nodes"
KINDS = {"StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "PersistentVolumeClaim": "v1", "Service": "v1"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
NOW = "2026-01-01T00:00:00Z"


def registry_mirror(name: str = "hub", upstream: str = "docker.io", **spec: Any) -> Object:
    """A RegistryMirror."""
    return {
        "apiVersion": "kubechores.dev/v1",
        "kind": "RegistryMirror",
        "metadata": {"name": name},
        "spec": {"upstreamUrl": upstream, **spec},
    }


def credentials(name: str, upstream: str = "docker.io", **fields: Any) -> Object:
    """A Secret with credentials for an upstream."""
    fields = fields or {"data": {"username": encoded(canary()), "password": encoded(canary())}}
    made = secret(NAMESPACE, name, labels={}, **fields)
    made["metadata"]["annotations"] = {"kubechores.dev/upstream": upstream}
    return made


def before_the_move(mirror: Mirror) -> Object:
    """The DaemonSet of a mirror where earlier versions made it."""
    document = mirror.daemon_set.document()
    return document | {"metadata": document["metadata"] | {"namespace": NAMESPACE}}


@dataclass
class Mirrors:
    """The mirrors of a test on one of the API servers."""

    api: Api
    nodes: list[str] = field(default_factory=list)

    def name(self, name: str = "hub") -> str:
        """A name that no other test has."""
        return f"{name}-{self.api.token}"

    def node(self, name: str = "node", *taints: Object, **labels: str) -> str:
        """Add a Linux node."""
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

    def ask(self, name: str = "hub", upstream: str = "docker.io", **spec: Any) -> Object:
        """Create a RegistryMirror."""
        return self.api.create(registry_mirror(self.name(name), upstream, **spec))

    def well(self, name: str = "hub", upstream: str = "docker.io", **spec: Any) -> Mirror:
        """Create a RegistryMirror and all that it asks for, at work."""
        asked = self.ask(name, upstream, **spec)
        return self.make(asked)

    def make(self, asked: Object) -> Mirror:
        """Make what a RegistryMirror asks for, and have it at work."""
        mirror = self.of(asked)
        self.volume(mirror)
        self.apply(mirror.service.document())
        mirror = self.of(asked)
        for child in mirror.resources[1:]:
            self.apply(child.document())
        self.settle(mirror)
        return mirror

    def of(self, asked: Object) -> Mirror:
        """What a RegistryMirror asks for, knowing what is there."""
        parsed = parse_registry_mirror(
            Head(ObjectKey("RegistryMirror", asked["metadata"]["name"])), json.dumps(asked["spec"]).encode()
        )
        assert isinstance(parsed, RegistryMirror)
        mirror = Mirror(parsed, NAMESPACE, NODE_IMAGE)
        service = self.api.get(mirror.service.document())
        held = self.api.get(credentials(mirror.spec.credentials_secret)) if mirror.spec.credentials_secret else None
        return Mirror(
            parsed,
            NAMESPACE,
            NODE_IMAGE,
            service["spec"]["clusterIP"] if service else "",
            held["metadata"]["resourceVersion"] if held else "",
        )

    def apply(self, document: Object, manager: str = "kube-chores") -> Object:
        """Server-side apply, as a repair would."""
        path = f"{self.api.path(document)}?fieldManager={manager}&force=true"
        made = self.api.call("PATCH", path, document, headers=APPLY)
        self.api.made(made)
        return made

    def edit(self, document: Object, patch: Object, manager: str = "kubectl-edit") -> Object:
        """Change an object by hand."""
        merge = {"Content-Type": "application/merge-patch+json"}
        return self.api.call("PATCH", f"{self.api.path(document)}?fieldManager={manager}", patch, headers=merge)

    def settle(self, mirror: Mirror) -> None:
        """Have the workloads and the volume of a mirror at work, as they are specified now."""
        if self.api.kind == "sandbox":
            self._write_statuses(mirror)
        else:
            self._act_as_kubelet(mirror)

    # the embedded server

    def status(self, document: Object, **status: Any) -> None:
        """Write a status, for the embedded server's want of controllers."""
        found = self.api.get(document)
        assert found
        generation = found["metadata"].get("generation")
        body = {"status": {**status, **({"observedGeneration": generation} if generation else {})}}
        merge = {"Content-Type": "application/merge-patch+json"}
        self.api.call("PATCH", f"{self.api.path(document)}/status", body, headers=merge)

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
        """Say which pods are behind a mirror's Services; the headless one has those that are not ready too."""
        endpoint = {"addresses": [address], "targetRef": registry_pod(mirror)}
        self._slice(mirror.name, {**endpoint, "conditions": {"ready": ready}}, {"registry": port})
        cache = CACHE_PORT if port == PORT else port
        headless = mirror.headless_service.metadata.name
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
        """Have a volume for the claim of a mirror, where somebody binds them."""
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
        """The pods of a workload; those on their way out are gone then."""
        selector = f"kubechores.dev/mirror={mirror.registry_mirror.name},app.kubernetes.io/component={component}"
        found = self.api.items("v1", "Pod", NODES if component == "node" else NAMESPACE, labelSelector=selector)
        for pod in found:
            if pod["metadata"].get("deletionTimestamp"):
                self._end(pod)
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def _end(self, pod: Object) -> None:
        """Remove a pod at once, as a kubelet does whose containers have ended."""
        path = self._path(pod)
        self.api.request("DELETE", f"{path}?gracePeriodSeconds=0")

    @staticmethod
    def _path(pod: Object) -> str:
        return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

    def _act_as_kubelet(self, mirror: Mirror) -> None:
        def at_work() -> bool:
            for component in ("registry", "node"):
                for pod in self.pods(mirror, component):
                    self.run_pod(pod)
            return self._is_settled(mirror)

        wait_for(at_work, f"mirror {mirror.registry_mirror.name} to be at work", 60)

    def _is_settled(self, mirror: Mirror) -> bool:
        """Whether all that is there of a mirror is at work."""
        claim = self.api.get(mirror.claim.document())
        registry = self.api.get(mirror.stateful_set.document())
        node = self.api.get(mirror.daemon_set.document())
        slices = self.api.items(
            "discovery.k8s.io/v1", "EndpointSlice", NAMESPACE, labelSelector=f"kubernetes.io/service-name={mirror.name}"
        )
        return (
            (claim is None or claim.get("status", {}).get("phase") == "Bound")
            and (registry is None or _has_caught_up(registry, 1, "readyReplicas", "updatedReplicas"))
            and (node is None or _has_caught_up(node, len(self.nodes), "numberReady", "updatedNumberScheduled"))
            and (registry is None or any(each.get("endpoints") for each in slices))
        )

    def run_pod(self, pod: Object, *, ready: bool = True, address: str = "10.1.0.1") -> None:
        """Bind a pod to a node, if it is to none yet, and say that it runs."""
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
        """Remove pods that no kubelet ends, and let go what a finalizer holds."""
        for service in self.api.items("v1", "Service", NAMESPACE):
            if service["metadata"].get("finalizers"):
                self.edit(service, {"metadata": {"finalizers": None}})
        if self.api.kind == "real":
            self._remove_what_was_made()
            for namespace in (NAMESPACE, NODES):
                for pod in self.api.items("v1", "Pod", namespace):
                    self._end(pod)

    def _remove_what_was_made(self) -> None:
        """Delete what a repair made for mirrors of this test."""
        for kind, version, namespace in places():
            for each in self.api.items(version, kind, namespace):
                if (each["metadata"].get("labels") or {}).get(MIRROR, "").endswith(self.api.token):
                    self.api.delete({"apiVersion": version, "kind": kind, **each})


def registry_pod(mirror: Mirror, number: int | str = 0) -> Object:
    """The reference of an endpoint to a pod of the registry."""
    return {"kind": "Pod", "namespace": NAMESPACE, "name": f"{mirror.name}-{number}"}


def places() -> list[tuple[str, str, str]]:
    """Kinds of what mirrors consist of, each with its API version and where it is."""
    return [*((kind, version, NAMESPACE) for kind, version in KINDS.items()), ("DaemonSet", "apps/v1", NODES)]


def _has_caught_up(workload: Object, wanted: int, *fields: str) -> bool:
    status = workload.get("status", {})
    observed = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    return bool(observed and all(status.get(field) == wanted for field in fields))


def _node_of(pod: Object) -> str:
    """The node that a DaemonSet's pod is for."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return next((str(f["values"][0]) for term in terms for f in term.get("matchFields", [])), "")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
