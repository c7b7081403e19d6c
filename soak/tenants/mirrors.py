"""Pods that pull through mirrors, and what happens to the mirrors, their upstreams and their files on the node."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import itertools
import os
import random
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from soak.invariants import pulls
from soak.invariants.pulls.files import Expected
from soak.invariants.pulls.read import CACHED, PULLS_NAMESPACE
from soak.journal import Fault
from soak.lab import Action, Lab
from soak.observed import Invariant
from soak.programs import pid_namespace
from tests.apis import ApiError, Object
from tests.mirrors import NAMESPACE, NODES, registry_mirror
from tests.namespaces import CONTAINERD
from tests.one_node import UPSTREAM, Node
from tests.upstream import Upstream, new_layer
from tests.walk.mirrors import OTHER, TOLERATION, found, shown

PODS = 4
BLOBS = 3  # of an image: the manifest, its configuration and a layer
MOST_IMAGES = 30  # that can be pulled again
REPAIRED_SECONDS = 420.0  # a run each minute or two, which waits, and a rollout after it
RUNNING_SECONDS = 15.0  # a pod runs at least this long before it is deleted
START_ATTEMPTS = 10
VOLUME_MIB = 1000  # the API server would store 1024Mi as 1Gi
FOREIGN = {
    "foreign.example.com": 'server = "https://foreign.example.com"\n',
    "10.88.0.1_7999_": '# by the administrator\nserver = "https://10.88.0.1:7999"\n',
}
_ERRORS = (ApiError, OSError, http.client.HTTPException, subprocess.SubprocessError, RuntimeError, AssertionError)
# What other clients change by hand. A repair corrects each.
EDITS: tuple[tuple[str, Object], ...] = (
    ("Service", {"spec": {"publishNotReadyAddresses": True}}),
    ("Service", {"spec": {"internalTrafficPolicy": "Local"}}),
    ("Service", {"spec": {"selector": {"example.com/none": "none"}}}),
    ("StatefulSet", {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}),
    ("StatefulSet", {"spec": {"template": {"spec": {"automountServiceAccountToken": True}}}}),
    ("DaemonSet", {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}),
    ("DaemonSet", {"spec": {"template": {"spec": {"automountServiceAccountToken": True}}}}),
)
# What users change, each with a new rollout. The other fields decide whether pulls succeed: tests/node/test_walk.py.
PRIORITY = "soak-mirrors"
CHANGES: tuple[Object, ...] = (
    *({"ttl": each} for each in ("10m", "20m", "30m")),
    *({"resources": each} for each in ({"requests": {"cpu": "20m"}, "limits": {"memory": "400Mi"}}, None)),
    *({"priorityClassName": each} for each in (PRIORITY, None)),
    *({"tolerations": each} for each in ([TOLERATION], [OTHER, TOLERATION], None)),
    *({"registryTolerations": each} for each in ([TOLERATION], [OTHER, TOLERATION], None)),
)


@dataclass
class Registry:
    """An upstream and the RegistryMirror of it. Each has a thread, which does one thing after another.

    A thread starts the processes of the upstream, and they end with it.
    """

    name: str
    fallback: str
    upstream: Upstream
    unpulled: list[str] = field(default_factory=list)
    pulled: list[str] = field(default_factory=list)
    is_up: bool = True
    keeper: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    breaker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    works: dict[str, Future[None]] = field(default_factory=dict)

    @property
    def resource(self) -> str:
        """The name of the mirror's resources."""
        return f"registry-mirror-{self.name}"

    def rule(self, **spec: object) -> Object:
        """Return the RegistryMirror."""
        fixed = {"fallback": self.fallback, "storage": {"size": f"{VOLUME_MIB}Mi"}, "ttl": "30m"}
        return registry_mirror(self.name, self.upstream.host, **{**fixed, **spec})

    def is_free(self, thread: str) -> bool:
        """Whether a thread does nothing."""
        work = self.works.get(thread)
        return not work or work.done()

    def do(self, thread: str, work: Callable[[], None]) -> None:
        """Let a thread do something."""
        self.works[thread] = (self.keeper if thread == "upstream" else self.breaker).submit(work)


def trust(lab: Lab) -> None:
    """Let mirror-audit and mirror-repair trust the certificate of upstreams, as docs/metrics.md describes it."""
    metadata = {"name": "upstream", "namespace": "kube-chores"}
    data = {"ca.crt": UPSTREAM.read_text()}
    lab.api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    patch = """{"spec": {"jobTemplate": {"spec": {"template": {"spec": {
        "volumes": [{"name": "upstream", "configMap": {"name": "upstream"}}],
        "containers": [{"name": "chores",
            "env": [{"name": "REQUESTS_CA_BUNDLE", "value": "/upstream/ca.crt"}],
            "volumeMounts": [{"name": "upstream", "mountPath": "/upstream"}]}]}}}}}}"""
    for job in ("mirror-audit", "mirror-repair"):
        lab.kubectl(f"patch cronjob {job} -n kube-chores -p {shlex.quote(patch)}")


Damage = Callable[[Registry, random.Random], Callable[[], bool]]  # returns whether it is repaired


class Mirrors:
    """Pods that pull from two upstreams: one mirror has a fallback, the other one has none."""

    def __init__(self, lab: Lab, fallbacks: Mapping[str, str] | None = None) -> None:
        self._lab, self._api, self._random = lab, lab.api, lab.random("mirrors")
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._running: dict[str, tuple[str, float]] = {}  # image and time of each pod
        fallbacks = fallbacks or {"soak": "Upstream", "alone": "None"}
        self._registries = [self._start(name, fallback) for name, fallback in fallbacks.items()]
        self._foreign = self._write_foreign()
        trust(lab)
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": PRIORITY}}
        self._api.put({**priority, "value": 1000})
        self._api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PULLS_NAMESPACE}})
        for each in self._registries:
            self._add_volume(each)
            self._api.put(each.rule())

    def _start(self, name: str, fallback: str) -> Registry:
        folder = self._lab.folder / f"upstream-{name}"
        folder.mkdir()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        self._sockets.append(listening)
        keeper = ThreadPoolExecutor(1)

        def begin() -> Upstream:
            upstream = Upstream(self._lab.node, folder, listening)
            upstream.start()
            return upstream

        return Registry(name, fallback, keeper.submit(begin).result(), keeper=keeper)

    def _write_foreign(self) -> dict[Path, str]:
        files = {}
        for name, content in FOREIGN.items():
            file = self._certs / name / "hosts.toml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            files[file] = content
        return files

    def _add_volume(self, registry: Registry) -> None:
        """Create a volume of a size of its own, so that the free space of this machine does not matter."""
        folder = self._volume(registry)
        folder.mkdir(parents=True)
        self._on_node(f"mount -t tmpfs -o size={VOLUME_MIB}m,mode=2770 tmpfs {folder}")
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]}
        spec = {
            "capacity": {"storage": f"{VOLUME_MIB}Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            "claimRef": {"namespace": NAMESPACE, "name": registry.resource},
        }
        metadata = {"name": registry.resource}
        self._api.put({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})

    @property
    def _certs(self) -> Path:
        return self._lab.node.plane.folder / CONTAINERD.name / "certs.d"

    def _hosts_toml(self, registry: Registry) -> Path:
        address, _, port = registry.upstream.host.partition(":")
        return self._certs / f"{address}_{port}_" / "hosts.toml"

    def _volume(self, registry: Registry) -> Path:
        return self._lab.node.plane.folder / "volumes" / registry.resource

    def _on_node(self, script: str) -> str:
        command = [*self._lab.node.enter, "bash", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise OSError(f"{script}: {done.stderr}")  # as while containerd restarts
        return done.stdout

    # the part

    def actions(self) -> Mapping[str, tuple[int, Action]]:
        """Return the actions by name, each with its weight."""
        return {
            "pull-new": (10, self._pull_new),
            "pull-again": (8, self._pull_again),
            "pull-shared": (3, self._pull_shared),
            "forget": (6, self._forget_one),
            "stop-upstream": (2, self._stop_upstream),
            "hang-upstream": (1, self._hang_upstream),
            "delete-mirror-pod": (2, self._broken("pod", self._delete_pod)),
            "stop-registry": (1, self._broken("stopped", self._stop_registry)),
            "kill-registry": (1, self._broken("killed", self._kill_registry)),
            "delete-mirror-resource": (2, self._broken("deleted", self._delete_resource)),
            "edit-mirror-resource": (3, self._broken("edited", self._edit_resource)),
            "scale-mirror": (1, self._broken("scaled", self._scale)),
            "delete-hosts-toml": (1, self._broken("hosts-deleted", self._delete_hosts)),
            "edit-hosts-toml": (2, self._broken("hosts-edited", self._edit_hosts)),
            "break-hosts-toml": (1, self._broken("hosts-broken", self._break_hosts)),
            "edit-mirror": (2, self._broken("spec", self._edit_mirror)),
            "request-storage": (1, self._request_storage),
            "recreate-mirror": (1, self._broken("recreated", self._recreate)),
            "truncate-blob": (2, self._broken("blob", self._truncate)),
        }

    def invariants(self) -> Sequence[Invariant]:
        """Return the invariants of mirrors."""
        return pulls.invariants(self._expected, self._foreign)

    def _expected(self) -> list[Expected]:
        return [
            Expected(
                name=each.name,
                host=each.upstream.host,
                fallback=each.fallback,
                hosts_toml=self._hosts_toml(each),
                address=partial(self._address, each),
            )
            for each in self._registries
        ]

    def resolve(self) -> None:
        """Start the upstreams, wait for what threads do, and undo what only a person may undo."""
        self._over.set()
        for each in self._registries:
            for work in each.works.values():
                with contextlib.suppress(*_ERRORS, concurrent.futures.TimeoutError):
                    work.result(timeout=5)
            with contextlib.suppress(*_ERRORS):
                self._undo(each)

    def _undo(self, registry: Registry) -> None:
        found = self._api.get(registry.rule())
        if not found:
            self._api.put(registry.rule())
        elif found["spec"]["storage"]["size"] != f"{VOLUME_MIB}Mi":
            self._api.patch(registry.rule(), {"spec": {"storage": {"size": f"{VOLUME_MIB}Mi"}}})
        if registry.is_free("upstream") and not registry.is_up:
            registry.do("upstream", lambda: self._up(registry))

    def end(self) -> None:
        """End the upstreams; no action may follow."""
        self._over.set()
        for each in self._registries:
            each.breaker.shutdown()
            with contextlib.suppress(*_ERRORS):
                each.keeper.submit(each.upstream.end).result(60)
            each.keeper.shutdown()
        for one in self._sockets:
            one.close()

    # pods

    def _pull_new(self) -> None:
        registry = self._any()
        if registry.is_free("upstream") and registry.is_up and len(registry.unpulled) < 3:
            for _ in range(2):
                registry.unpulled.append(self._push(registry))
        if registry.unpulled:
            self._pull(registry, registry.unpulled.pop(0))

    def _push(self, registry: Registry, layer: bytes = b"") -> str:
        number = next(self._numbers)
        return registry.upstream.push(
            f"image-{number}", more=self._random.choice((32, 100_000, 2_000_000)), layer=layer
        )

    def _pull_again(self) -> None:
        registry = self._any()
        used = {image for image, _ in self._running.values()}
        if images := [each for each in registry.pulled if each not in used]:
            self._pull(registry, self._random.choice(images))

    def _pull_shared(self) -> None:
        registry = self._any()
        if registry.is_free("upstream") and registry.is_up:
            layer = new_layer(self._random.choice((32, 1_000_000)))
            for _ in range(2):
                self._pull(registry, self._push(registry, layer))

    def _pull(self, registry: Registry, image: str) -> None:
        if len(self._running) >= PODS:
            self._forget_one()
        if len(self._running) >= PODS:
            if image not in registry.pulled:
                registry.unpulled.append(image)
            return
        name = f"pull-{next(self._numbers)}"
        spec = {
            "containers": [{"name": "app", "image": image, "imagePullPolicy": "IfNotPresent"}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        }
        cached = {CACHED: "true"} if self._is_cached(registry, image) else {}
        metadata = {"name": name, "namespace": PULLS_NAMESPACE, "annotations": cached}
        self._running[name] = (image, time.time())
        self._api.call(
            "POST",
            f"/api/v1/namespaces/{PULLS_NAMESPACE}/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
        )
        if image not in registry.pulled:
            registry.pulled = [*registry.pulled, image][-MOST_IMAGES:]

    def _is_cached(self, registry: Registry, image: str) -> bool:
        """Whether the mirror fetched the image in the last minutes, so that it does not expire during the pull."""
        if image not in registry.pulled:
            return False
        name = image.partition("/")[2].partition(":")[0]
        script = f"""
            shopt -s globstar nullglob
            cd {self._volume(registry)}
            for link in **/repositories/{name}/**/link; do
                digest=$(sed s/sha256:// $link)
                find . -path "*/blobs/sha256/*/$digest/data" -newermt '-4 min' | grep -q . && echo $digest
            done
            true"""
        try:
            return len(set(self._on_node(script).split())) >= BLOBS
        except _ERRORS:
            return False

    def _forget_one(self) -> None:
        """Delete the oldest pod that ran, and its image on the node."""
        found = {each["metadata"]["name"]: each for each in self._api.items("v1", "Pod", PULLS_NAMESPACE)}
        for name, (image, since) in list(self._running.items()):
            if name not in found and time.time() - since > RUNNING_SECONDS:
                del self._running[name]
            elif name in found and _is_running(found[name]) and time.time() - since > RUNNING_SECONDS:
                self._api.call("DELETE", f"/api/v1/namespaces/{PULLS_NAMESPACE}/pods/{name}")
                del self._running[name]
                self._remove_image(image)
                return

    def _remove_image(self, image: str) -> None:
        listed = [line.split() for line in self._on_node("ctr -n k8s.io images ls").splitlines()]
        digests = {words[2] for words in listed if words[0] == image}
        names = [words[0] for words in listed if words[2] in digests]
        if names:
            self._on_node(f"ctr -n k8s.io images rm --sync {shlex.join(names)}")

    def _any(self) -> Registry:
        return self._random.choice(self._registries)

    # upstreams

    def _stop_upstream(self) -> None:
        registry, seconds = self._any(), self._random.uniform(5, 60)

        def work() -> None:
            with self._fault("tenant-upstream-down", registry):
                registry.is_up = False
                registry.upstream.stop()
                self._over.wait(seconds)
                self._up(registry)

        self._if_free(registry, "upstream", work)

    def _up(self, registry: Registry) -> None:
        """Start an upstream. The fault must not end before it is up, so try again if a start fails."""
        for _ in range(START_ATTEMPTS):
            try:
                registry.upstream.start()
            except _ERRORS:
                with contextlib.suppress(*_ERRORS):
                    registry.upstream.stop()
            else:
                registry.is_up = True
                return

    def _hang_upstream(self) -> None:
        registry, seconds = self._any(), self._random.uniform(5, 60)

        def work() -> None:
            processes = _upstream_processes(self._lab.node, registry.upstream.host)
            with self._fault("tenant-upstream-hangs", registry):
                registry.is_up = False
                try:
                    _send(processes, signal.SIGSTOP)
                    self._over.wait(seconds)
                finally:
                    _continue(processes)
                    registry.is_up = True

        self._if_free(registry, "upstream", work)

    def _if_free(self, registry: Registry, thread: str, work: Callable[[], None]) -> None:
        if registry.is_free(thread):
            self._over.clear()
            registry.do(thread, work)

    @contextlib.contextmanager
    def _fault(self, kind: str, registry: Registry) -> Iterator[Fault]:
        with self._lab.journal.fault(kind, f"{registry.upstream.host} {registry.name}") as fault:
            yield fault

    # mirrors

    def _broken(self, kind: str, damage: Damage) -> Action:
        """Return an action that damages a mirror, a fault until the mirror works again."""

        def action() -> None:
            registry, chosen = self._any(), random.Random(self._random.random())

            def work() -> None:
                with contextlib.suppress(*_ERRORS), self._fault(f"tenant-mirror-{kind}", registry):
                    is_repaired = damage(registry, chosen)
                    self._until(lambda: is_repaired() and self._works(registry))

            if self._works(registry):
                self._if_free(registry, "mirror", work)

        return action

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + REPAIRED_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(*_ERRORS):
                if condition():
                    return
            time.sleep(1)

    def _works(self, registry: Registry) -> bool:
        """Whether the mirror serves, and the node has the file with its address."""
        slices = self._api.items(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            NAMESPACE,
            labelSelector=f"kubernetes.io/service-name={registry.resource}",
        )
        ready = [one for each in slices for one in each.get("endpoints") or () if one["conditions"].get("ready")]
        address = self._address(registry)
        return bool(ready and address and f"http://{address}:5000" in _text(self._hosts_toml(registry)))

    def _address(self, registry: Registry) -> str:
        found = self._get(registry, "Service")
        return str(found["spec"].get("clusterIP", "")) if found else ""

    def _object(self, registry: Registry, kind: str) -> Object:
        name, namespace = registry.resource, NAMESPACE
        if kind == "DaemonSet":
            name, namespace = f"{name}-node", NODES
        if kind == "Pod":
            name = f"{name}-0"
        version = "apps/v1" if kind in ("StatefulSet", "DaemonSet") else "v1"
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}

    def _get(self, registry: Registry, kind: str) -> Object | None:
        return self._api.get(self._object(registry, kind))

    def _delete_pod(self, registry: Registry, _chosen: random.Random) -> Callable[[], bool]:
        uid = self._uid(registry, "Pod")
        self._api.delete(self._object(registry, "Pod"))
        return lambda: self._uid(registry, "Pod") not in ("", uid)

    def _uid(self, registry: Registry, kind: str) -> str:
        found = self._get(registry, kind)
        return str(found["metadata"]["uid"]) if found else ""

    def _signal_registry(self, registry: Registry, what: signal.Signals) -> Callable[[], bool]:
        uid = self._uid(registry, "Pod")
        processes = _processes(lambda folder: bool(uid) and f"pod{uid}" in (folder / "cgroup").read_text())
        _send(processes, what)
        return lambda: not any(Path(f"/proc/{each}").exists() for each in processes)

    def _stop_registry(self, registry: Registry, _chosen: random.Random) -> Callable[[], bool]:
        return self._signal_registry(registry, signal.SIGSTOP)

    def _kill_registry(self, registry: Registry, _chosen: random.Random) -> Callable[[], bool]:
        return self._signal_registry(registry, signal.SIGKILL)

    def _delete_resource(self, registry: Registry, chosen: random.Random) -> Callable[[], bool]:
        kind = chosen.choice(("Service", "StatefulSet", "DaemonSet"))
        uid = self._uid(registry, kind)
        self._api.delete(self._object(registry, kind))
        return lambda: self._uid(registry, kind) not in ("", uid)

    def _edit_resource(self, registry: Registry, chosen: random.Random) -> Callable[[], bool]:
        kind, patch = chosen.choice(EDITS)
        before = self._api.read(self._object(registry, kind))["spec"]
        self._api.patch(self._object(registry, kind), patch)
        after = self._api.read(self._object(registry, kind))["spec"]
        return lambda: after == before or self._api.read(self._object(registry, kind))["spec"] != after

    def _scale(self, registry: Registry, _chosen: random.Random) -> Callable[[], bool]:
        stateful_set = self._object(registry, "StatefulSet")
        self._api.patch(stateful_set, {"spec": {"replicas": 0}})
        return lambda: bool(self._api.read(stateful_set)["spec"]["replicas"])

    def _edit_mirror(self, registry: Registry, chosen: random.Random) -> Callable[[], bool]:
        before = self._api.read(registry.rule())["spec"]
        other = [each for each in CHANGES if any(before.get(name) != value for name, value in each.items())]
        spec = self._api.patch(registry.rule(), {"spec": chosen.choice(other)})["spec"]
        resources = [self._object(registry, kind) for kind in ("PersistentVolumeClaim", "StatefulSet", "DaemonSet")]

        def has_followed() -> bool:
            actual = found({each["kind"]: self._api.read(each) for each in resources})
            return all(actual[name] == value for name, value in shown(spec).items() if name != "size")  # never granted

        return has_followed

    def _request_storage(self) -> None:
        """Request more storage, which this volume cannot provide: `volume-too-small` until resolve.

        A claim that is not bound yet would wait for a volume of that size.
        """
        registry = self._any()
        claim = self._api.get(self._object(registry, "PersistentVolumeClaim"))
        if claim and claim.get("status", {}).get("phase") == "Bound":
            self._api.patch(registry.rule(), {"spec": {"storage": {"size": f"{2 * VOLUME_MIB}Mi"}}})

    def _recreate(self, registry: Registry, chosen: random.Random) -> Callable[[], bool]:
        rule = self._api.read(registry.rule())
        self._api.delete(registry.rule())
        time.sleep(chosen.uniform(1, 150))
        self._until_done(lambda: self._api.put({**registry.rule(), "spec": rule["spec"]}))
        return lambda: True

    def _until_done(self, action: Action) -> None:
        def done() -> bool:
            action()
            return True

        self._until(done)

    # files of the node

    def _delete_hosts(self, registry: Registry, _chosen: random.Random) -> Callable[[], bool]:
        self._hosts_toml(registry).unlink()
        return lambda: True

    def _edit_hosts(self, registry: Registry, _chosen: random.Random) -> Callable[[], bool]:
        """Name a server that refuses connections instead of the mirror: with a fallback, pulls still work."""
        file = self._hosts_toml(registry)
        file.write_text(file.read_text().replace(":5000", ":5999"))
        return lambda: True

    def _break_hosts(self, registry: Registry, _chosen: random.Random) -> Callable[[], bool]:
        file = self._hosts_toml(registry)
        file.write_text(file.read_text().replace("https://", "https://no-").replace(":5000", ":5999"))
        return lambda: True

    def _truncate(self, registry: Registry, chosen: random.Random) -> Callable[[], bool]:
        """Truncate a blob of the cache to half of its size."""
        found = self._on_node(f"find {self._volume(registry)} -path '*/blobs/*' -name data -size +64c | sort").split()
        if not found:
            return lambda: True
        blob = chosen.choice(found)
        before = self._on_node(f"stat -c %s {blob}").strip()
        self._on_node(f"truncate -s {int(before) // 2} {blob}")
        return lambda: self._on_node(f"stat -c %s {blob} 2>/dev/null || echo {before}").strip() == before


def _is_running(pod: Object) -> bool:
    return any("running" in each.get("state", {}) for each in pod["status"].get("containerStatuses") or ())


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _upstream_processes(node: Node, host: str) -> list[int]:
    """Return the process of an upstream."""
    namespace, address = pid_namespace(node), f"REGISTRY_HTTP_ADDR={host}\0"
    return _processes(
        lambda folder: (
            (folder / "ns/pid").readlink() == namespace and address in (folder / "environ").read_text(errors="replace")
        )
    )


def _processes(condition: Callable[[Path], bool]) -> list[int]:
    """Return the processes of registries that meet a condition."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text() == "registry\n" and condition(folder):
                found.append(int(folder.name))
    return found


def _send(processes: Sequence[int], what: signal.Signals) -> None:
    for each in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, what)


def _continue(processes: Sequence[int]) -> None:
    """Continue processes and nsenter, which stopped itself when its child was stopped."""
    for each in processes:
        with contextlib.suppress(OSError):
            _send([int(Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[1])], signal.SIGCONT)
    _send(processes, signal.SIGCONT)
