"""A RegistryMirror at work on the node, and pods that pull through it."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from jobs.mirrors.hosts import folders
from tests.apis import Api, Object, wait_for
from tests.mirrors import NAMESPACE, NODES, Mirrors
from tests.namespaces import CONTAINERD
from tests.node.kubectl import Jobs, Kubectl
from tests.one_node import UPSTREAM, Node
from tests.upstream import Access, Upstream, accesses

_numbers = itertools.count()
FAILED_TO_PULL = {"ErrImagePull", "ImagePullBackOff"}


def rolled_out(kubectl: Kubectl, kind: str, name: str) -> None:
    """Wait until all pods are up to date and ready."""
    kubectl(f"rollout status {kind}/{name} -n {NODES if kind == 'daemonset' else NAMESPACE} --timeout=100s")


class Mirrored:
    """A mirror of an upstream, at work."""

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
        self.asked = mirrors.ask("mirror", upstream.host, **spec)
        self.mirror = mirrors.of(self.asked)
        self.add_volume(volume_mib)
        self.repair(lambda: meanwhile(self))
        self.mirror = mirrors.of(self.asked)
        rolled_out(self.kubectl, "daemonset", self.mirror.daemon_set.metadata.name)
        self._namespace = api.namespace("apps")

    def repair(self, meanwhile: Callable[[], object] = lambda: None) -> str:
        """Have the CronJob mirror-repair run now, to its end; gives what it said."""
        name = f"repair-{next(_numbers)}"
        self.jobs.create(name, of="mirror-repair")
        while not self.jobs.ended(name):
            meanwhile()
        assert self.jobs.end(name) == "Complete", self.jobs.log(name)
        return self.jobs.log(name)

    def repair_once_the_upstream_answers(self) -> None:
        """Have the CronJob mirror-repair run now, trusting the upstream: else it replaces no registry that serves."""
        name = f"repair-{next(_numbers)}"
        self._run_trusting(name, "mirror-repair")
        assert self.jobs.end(name) == "Complete", self.jobs.log(name)

    def audit(self) -> Object:
        """Have the CronJob mirror-audit run now, trusting the upstream; gives the Ready condition that it wrote."""
        name = f"audit-{next(_numbers)}"
        self._run_trusting(name, "mirror-audit")
        assert self.jobs.end(name) == "Complete", self.jobs.log(name)
        return self.ready

    def _run_trusting(self, name: str, of: str) -> None:
        metadata = {"name": "upstream", "namespace": "kube-chores"}
        trusted = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"ca.crt": UPSTREAM.read_text()},
        }
        self.api.put(trusted)
        job = self.jobs.template(name, of)
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        container.setdefault("env", []).append({"name": "REQUESTS_CA_BUNDLE", "value": "/upstream/ca.crt"})
        container.setdefault("volumeMounts", []).append({"name": "upstream", "mountPath": "/upstream"})
        pod.setdefault("volumes", []).append({"name": "upstream", "configMap": {"name": "upstream"}})
        self.jobs.start(job)

    def add_volume(self, mib: int = 0, name: str = "") -> None:
        """Have a volume that is a folder of the node. Unlike that of a hostPath, kubelet gives it the pod's group.

        With a size the folder is a file system of its own, which only the node sees.
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
        """Run a script where the node's files and processes are."""
        command = [*self.node.enter, "bash", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    @property
    def volume(self) -> Path:
        """The volume, as the node sees it."""
        return self.node.plane.folder / "volumes" / self.mirror.name

    # the mirror

    @property
    def hosts_toml(self) -> Path:
        """The file on the node, as the machine sees it."""
        return self.node.plane.folder / CONTAINERD.name / "certs.d" / folders(self.upstream.host)[0] / "hosts.toml"

    @property
    def url(self) -> str:
        """Where nodes find the mirror."""
        return f"http://{self.mirror.cluster_ip}:5000"

    @property
    def refused(self) -> str:
        """What containerd says when there is no pod behind the Service, or its address is nobody's any more."""
        return f"dial tcp {self.mirror.cluster_ip}:5000: "

    def registry(self) -> Object | None:
        """The mirror's pod."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.mirror.name}-0"
        status, _, body = self.api.request("GET", path)
        return json.loads(body) if status == 200 else None

    def accesses(self) -> list[Access]:
        """The requests that the mirror's pod answered."""
        return accesses(self.kubectl(f"logs {self.mirror.name}-0 -n {NAMESPACE}"))

    def node_memory(self) -> int:
        """KiB in memory of what tells the node of the mirror."""
        listed = subprocess.run(
            [*self.node.enter, "ps", "-eo", "rss=,args="], capture_output=True, text=True, check=True
        )
        lines = [line for line in listed.stdout.splitlines() if f"mirror-node --name={self.mirror.asked.name}" in line]
        return max(int(line.split()[0]) for line in lines)

    @property
    def ready(self) -> Object:
        """The Ready condition of the RegistryMirror."""
        found = self.api.get(self.asked)
        assert found
        (condition,) = found["status"]["conditions"]
        return dict(condition)

    def nodes_ready(self) -> int:
        """On how many nodes the mirror's pod is ready."""
        found = self.api.get(self.mirror.daemon_set.document())
        assert found
        return int(found["status"].get("numberReady", 0))

    def scale(self, replicas: int) -> None:
        """Have the mirror's pod, or have it gone."""
        self.kubectl(f"scale statefulset {self.mirror.name} -n {NAMESPACE} --replicas={replicas}")
        if replicas:
            rolled_out(self.kubectl, "statefulset", self.mirror.name)
        else:
            wait_for(lambda: not self.registry(), "the mirror's pod to be gone", 60)
        wait_for(lambda: self.is_behind_its_service() == bool(replicas), "the Service to follow")

    def is_behind_its_service(self) -> bool:
        """Whether nodes get to the mirror."""
        slices = self.api.items(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            NAMESPACE,
            labelSelector=f"kubernetes.io/service-name={self.mirror.name}",
        )
        return any(each["conditions"].get("ready") for one in slices for each in one.get("endpoints") or ())

    # pods that pull

    def pod(self, name: str, image: str) -> None:
        """Create a pod of an image."""
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self._namespace},
                "spec": {
                    "containers": [{"name": "app", "image": image}],
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 0,
                },
            }
        )

    def runs(self, name: str, seconds: float = 90) -> str:
        """Wait until a pod runs; gives what kubelet says of its pull."""
        wait_for(lambda: self._status(name)["phase"] == "Running", f"pod {name}", seconds, lambda: self._events(name))
        wait_for(lambda: self._pulled(name), f"the Event of pod {name}")
        return self._pulled(name)

    def waits(self, name: str) -> str:
        """Wait until a pod has failed to pull; gives why."""

        def reasons() -> set[str]:
            statuses = self._status(name).get("containerStatuses", [])
            return {one["state"].get("waiting", {}).get("reason", "") for one in statuses}

        wait_for(lambda: reasons() & FAILED_TO_PULL, f"pod {name} to fail", 120, lambda: self._events(name))
        said = next(each for each in self._events(name) if each.startswith("Failed to pull"))
        return said.rpartition('": ')[2]

    def forget(self, name: str, image: str) -> None:
        """Remove a pod and its image from the node, with all that only this image consists of."""
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
        said = (re.search(r"^Successfully pulled .* in ([\d.a-z]+) ", each) for each in self._events(name))
        return next((found[1] for found in said if found), "")
