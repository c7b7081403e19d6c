"""A RegistryMirror that runs on the node, and pods that pull through it."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from jobs.core.mirror_node.hosts import folders
from tests.apis import Api, Object, ready_of, wait_for
from tests.mirrors import NAMESPACE, NODES, Mirrors
from tests.namespaces import CONTAINERD
from tests.node.kubectl import Jobs, Kubectl
from tests.one_node import UPSTREAM, Node
from tests.upstream import Access, Upstream, accesses

_numbers = itertools.count()
FAILED_TO_PULL = {"ErrImagePull", "ImagePullBackOff"}


def rolled_out(kubectl: Kubectl, kind: str, name: str) -> None:
    """Wait until the rollout of a workload is complete."""
    kubectl(f"rollout status {kind}/{name} -n {NODES if kind == 'daemonset' else NAMESPACE} --timeout=100s")


class Mirrored:
    """A mirror of an upstream. mirror-repair created it, and the node uses it."""

    def __init__(
        self,
        node: Node,
        api: Api,
        jobs: Jobs,
        upstream: Upstream,
        meanwhile: Callable[[Mirrored], object] = lambda lab: None,
        volume_mib: int = 0,
        **spec: object,
    ) -> None:
        self.node, self.api, self.jobs, self.kubectl, self.upstream = node, api, jobs, jobs.kubectl, upstream
        mirrors = Mirrors(api)
        self.asked = mirrors.create("mirror", upstream.host, **spec)
        self.mirror = mirrors.of(self.asked)
        self.add_volume(volume_mib)
        self.repair(lambda: meanwhile(self))
        self.mirror = mirrors.of(self.asked)
        rolled_out(self.kubectl, "daemonset", self.mirror.daemon_set.name)
        self._namespace = api.namespace("apps")

    def repair(self, meanwhile: Callable[[], object] = lambda: None) -> str:
        """Run mirror-repair now, to its end. Return its log."""
        name = f"repair-{next(_numbers)}"
        self.jobs.create(name, of="mirror-repair")
        while not self.jobs.ended(name):
            meanwhile()
        assert self.jobs.end(name) == "Complete", self.jobs.log(name)
        return self.jobs.log(name)

    def repair_once_the_upstream_answers(self) -> None:
        """Run mirror-repair with trust in the upstream's certificate: otherwise it replaces no registry that serves."""
        self._run_trusting("mirror-repair")

    def audit(self) -> Object:
        """Run mirror-audit with trust in the upstream's certificate. Return the Ready condition that it wrote."""
        self._run_trusting("mirror-audit")
        return self.ready

    def _run_trusting(self, of: str) -> None:
        name = f"trusting-{next(_numbers)}"
        metadata = {"name": "upstream", "namespace": "kube-chores"}
        trusted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        self.api.put({**trusted, "data": {"ca.crt": UPSTREAM.read_text()}})
        job = self.jobs.template(name, of)
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        container.setdefault("env", []).append({"name": "REQUESTS_CA_BUNDLE", "value": "/upstream/ca.crt"})
        container.setdefault("volumeMounts", []).append({"name": "upstream", "mountPath": "/upstream"})
        pod.setdefault("volumes", []).append({"name": "upstream", "configMap": {"name": "upstream"}})
        self.jobs.start(job)
        assert self.jobs.end(name) == "Complete", self.jobs.log(name)

    def add_volume(self, mib: int = 0, name: str = "") -> None:
        """Create a local volume, a folder of the node. kubelet sets the pod's group on it, but not on a hostPath.

        With a size the folder is a separate file system, which exists only in the node's mount namespace.
        """
        mirror = self.mirror
        name = name or mirror.name
        folder = self.node.plane.folder / "volumes" / name
        folder.mkdir(parents=True)
        if mib:
            self.on_node(f"mount -t tmpfs -o size={mib}m,mode=2770 tmpfs {folder}")
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]}
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": mirror.spec.storage.size},
                    "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "local": {"path": str(folder)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                    "claimRef": {"namespace": NAMESPACE, "name": mirror.name},
                },
            }
        )

    def on_node(self, script: str) -> str:
        """Run a script in the node's namespaces, which must succeed. Return its stdout."""
        command = [*self.node.enter, "bash", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    @property
    def volume(self) -> Path:
        """The folder of the volume on the node."""
        return self.node.plane.folder / "volumes" / self.mirror.name

    # the mirror

    @property
    def hosts_toml(self) -> Path:
        """The node's hosts.toml, as a path outside of the node's namespaces."""
        return self.node.plane.folder / CONTAINERD.name / "certs.d" / folders(self.upstream.host)[0] / "hosts.toml"

    @property
    def url(self) -> str:
        """The URL of the mirror for nodes."""
        return f"http://{self.mirror.cluster_ip}:5000"

    @property
    def refused(self) -> str:
        """containerd's error if no pod is behind the Service, or its address no longer exists."""
        return f"dial tcp {self.mirror.cluster_ip}:5000: "

    def registry(self) -> Object | None:
        """Return the mirror's pod, None if it does not exist."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.mirror.name}-0"
        status, _, body = self.api.request("GET", path)
        return json.loads(body) if status == 200 else None

    def accesses(self) -> list[Access]:
        """Return the requests that the mirror's pod answered."""
        return accesses(self.kubectl(f"logs {self.mirror.name}-0 -n {NAMESPACE}"))

    def node_memory(self) -> int:
        """Return the resident memory of the largest mirror-node process, in KiB."""
        listed = subprocess.run(
            [*self.node.enter, "ps", "-eo", "rss=,args="], capture_output=True, text=True, check=True
        )
        lines = [
            line
            for line in listed.stdout.splitlines()
            if f"mirror-node --name={self.mirror.registry_mirror.name}" in line
        ]
        return max(int(line.split()[0]) for line in lines)

    @property
    def ready(self) -> Object:
        """The Ready condition of the RegistryMirror."""
        found = self.api.read(self.asked)
        condition = ready_of(found["status"]["conditions"])
        return dict(condition)

    def nodes_ready(self) -> int:
        """Return the number of nodes on which the DaemonSet's pod is ready."""
        found = self.api.read(self.mirror.daemon_set.document())
        return int(found["status"].get("numberReady", 0))

    def scale(self, replicas: int) -> None:
        """Scale the registry, and wait until its pod and its Service follow."""
        self.kubectl(f"scale statefulset {self.mirror.name} -n {NAMESPACE} --replicas={replicas}")
        if replicas:
            rolled_out(self.kubectl, "statefulset", self.mirror.name)
        else:
            wait_for(lambda: not self.registry(), "the deletion of the mirror's pod", 60)
        wait_for(lambda: self.is_behind_its_service() == bool(replicas), "the Service to follow")

    def is_behind_its_service(self) -> bool:
        """Whether the mirror's Service has a ready endpoint."""
        slices = self.api.items(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            NAMESPACE,
            labelSelector=f"kubernetes.io/service-name={self.mirror.name}",
        )
        return any(each["conditions"].get("ready") for one in slices for each in one.get("endpoints") or ())

    # pods that pull

    def pod(self, name: str, image: str) -> None:
        """Create a pod that runs an image."""
        metadata = {"name": name, "namespace": self._namespace}
        spec = {"containers": [{"name": "app", "image": image}], "automountServiceAccountToken": False}
        spec["terminationGracePeriodSeconds"] = 0
        self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def run(self, name: str, image: str, seconds: float = 90) -> None:
        """Create a pod that runs an image, and wait until it runs."""
        self.pod(name, image)
        self.runs(name, seconds)

    def runs(self, name: str, seconds: float = 90) -> str:
        """Wait until a pod runs. Return how long kubelet reports that its pull took."""
        wait_for(lambda: self._status(name)["phase"] == "Running", f"pod {name}", seconds, lambda: self._events(name))
        wait_for(lambda: self._pulled(name), f"the Event of pod {name}")
        return self._pulled(name)

    def waits(self, name: str) -> str:
        """Wait until a pod has failed to pull. Return the reason."""

        def reasons() -> set[str]:
            statuses = self._status(name).get("containerStatuses", [])
            return {one["state"].get("waiting", {}).get("reason", "") for one in statuses}

        wait_for(lambda: reasons() & FAILED_TO_PULL, f"pod {name} to fail", 120, lambda: self._events(name))
        message = next(each for each in self._events(name) if each.startswith("Failed to pull"))
        return message.rpartition('": ')[2]

    def forget(self, name: str, image: str) -> None:
        """Remove a pod and its image from the node, with all blobs that only this image has."""
        self.kubectl(f"delete pod {name} -n {self._namespace}")
        listed = [line.split() for line in self._ctr("images", "ls").splitlines()]
        (digest,) = {words[2] for words in listed if words[0] == image}
        self._ctr("images", "rm", "--sync", *(words[0] for words in listed if words[2] == digest))
        assert digest not in self._ctr("content", "ls", "-q").split()

    def _ctr(self, *words: str) -> str:
        command = [*self.node.enter, "ctr", "--namespace=k8s.io", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _status(self, name: str) -> Object:
        status: Object = self.api.call("GET", f"/api/v1/namespaces/{self._namespace}/pods/{name}")["status"]
        return status

    def _events(self, name: str) -> list[str]:
        found = self.api.items("v1", "Event", self._namespace, fieldSelector=f"involvedObject.name={name}")
        return [each["message"] for each in found]

    def _pulled(self, name: str) -> str:
        pulls = (re.search(r"^Successfully pulled .* in ([\d.a-z]+) ", each) for each in self._events(name))
        return next((found[1] for found in pulls if found), "")
