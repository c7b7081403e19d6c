"""Faults of the cluster: its programs, its network, its nodes, the rights and the pods of our jobs."""

from __future__ import annotations

import base64
import contextlib
import itertools
import signal
import time
from collections.abc import Iterator, Mapping
from functools import partial

from soak import inside
from soak.cluster import SCHEDULES, resume, suspend
from soak.lab import Action, Lab
from soak.network import Network
from soak.programs import Programs, kill_run
from soak.retries import until_done
from tests.admission import GROUP, refusing, webhook
from tests.apis import ApiError, Object
from tests.node.kubectl import Jobs

Context = contextlib.AbstractContextManager[None]
NAMESPACE = "kube-chores"
ETCD = "http://127.0.0.1:2379/v3"
WAIT_SECONDS = 65.0  # for a pod of a run: each minute has some
POLICY_NAMESPACES = 4
OVERLAPPING = ("sync-copies", "roll-workloads", "farm-pods", "fetch-rates")  # each also has a run each minute
ADMISSION = ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingWebhookConfiguration")
_JOB_LABEL = "batch.kubernetes.io/job-name"
_RUNNING = "status.phase=Running"


class Faults:
    """Inject faults, one at a time. Each lasts as long as its call, and the cluster works again when it returns.

    `previous` is an image of another version, for upgrades and rollbacks.
    """

    def __init__(self, lab: Lab, programs: Programs, previous: str = "") -> None:
        self._lab, self._programs, self._previous = lab, programs, previous
        self._random = lab.random("faults")
        self._numbers = itertools.count(1)
        folder = lab.folder / "network"
        folder.mkdir()
        self._network = Network(lab.node, folder)

    def end(self) -> None:
        """End the programs of faults."""
        self._network.end()

    def kinds(self) -> Mapping[str, tuple[int, Action]]:
        """Return the faults by kind, each with its weight."""
        kinds: dict[str, tuple[int, Action]] = {
            "api-restart": (1, partial(self._restart, "api-restart", "kube-apiserver", signal.SIGTERM)),
            "api-kill": (2, partial(self._restart, "api-kill", "kube-apiserver", signal.SIGKILL)),
            "api-pause": (2, partial(self._pause, "api-pause", "kube-apiserver", 20)),
            "etcd-restart": (1, partial(self._restart, "etcd-restart", "etcd", signal.SIGTERM)),
            "etcd-kill": (1, partial(self._restart, "etcd-kill", "etcd", signal.SIGKILL)),
            "etcd-pause": (2, partial(self._pause, "etcd-pause", "etcd", 12)),
            "etcd-compact": (3, self._compact),
            "controller-restart": (1, partial(self._restart, "controller-restart", "kube-controller-manager")),
            "scheduler-restart": (1, partial(self._restart, "scheduler-restart", "kube-scheduler")),
            "kubelet-restart": (1, partial(self._restart, "kubelet-restart", "kubelet")),
            "containerd-restart": (1, partial(self._restart, "containerd-restart", "containerd")),
            "network-delay": (3, self._delay),
            "network-slow": (2, self._slow),
            "network-reset": (2, self._reset),
            "network-cut": (2, self._cut),
            "network-drop": (3, self._drop),
            "network-refuse": (2, self._refuse),
            "network-down": (2, self._down),
            "node-cordon": (2, self._cordon),
            "node-evict": (2, self._evict),
            "kill-run": (4, partial(self._delete_run, "kill-run", None)),
            "kill-run-now": (4, partial(self._delete_run, "kill-run-now", 0)),
            "kill-run-process": (3, self._kill_process),
            "credentials-account": (2, self._renew_account),
            "credentials-binding": (2, self._remove_binding),
            "admission-policy": (3, self._policy),
            "admission-webhook": (2, self._webhook),
            "overlap-jobs": (4, self._overlap),
            "suspend-jobs": (1, self._suspend),
        }
        return {**kinds, "upgrade": (2, self._upgrade)} if self._previous else kinds

    # programs

    def _restart(self, kind: str, program: str, how: signal.Signals = signal.SIGTERM) -> None:
        # After 0 seconds, most connections only wait: kube-apiserver listens before it serves requests.
        seconds = self._random.choice((1.0, 0.0, 5.0, 15.0))
        with self._lab.journal.fault(kind, f"for {seconds:g} s"):
            self._programs.restart(program, how, seconds)

    def _pause(self, kind: str, program: str, most: float) -> None:
        seconds = round(self._random.uniform(2, most), 1)
        with self._lab.journal.fault(kind, f"for {seconds:g} s"):
            self._programs.pause(program, seconds)

    def _compact(self) -> None:
        """Let etcd forget all revisions before the present one, and tell kube-apiserver, as another one would.

        Since 1.34 it serves the pages of a list from snapshots in its cache, until it reads this key: every 15 seconds.
        https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/storage/etcd3/compact.go
        """
        with self._lab.journal.fault("etcd-compact"):
            newer = self._put_compact_revision("1")  # than each list so far
            self._put_compact_revision(newer)
            body = {"revision": newer, "physical": True}
            inside.request(self._lab.node, "POST", f"{ETCD}/kv/compaction", body)

    def _put_compact_revision(self, revision: str) -> str:
        """Return the revision of this write."""
        body = {"key": _coded("compact_rev_key"), "value": _coded(revision)}
        return str(inside.request(self._lab.node, "POST", f"{ETCD}/kv/put", body)["header"]["revision"])

    # network

    def _for(
        self, kind: str, least: float, most: float, fault: contextlib.AbstractContextManager[None], detail: str
    ) -> None:
        seconds = round(self._random.uniform(least, most), 1)
        with self._lab.journal.fault(kind, f"{detail} for {seconds:g} s"), fault:
            time.sleep(seconds)

    def _delay(self) -> None:
        latency = self._random.choice((50, 300, 1500))
        toxic = self._network.toxic("latency", latency=latency, jitter=latency // 2)
        self._for("network-delay", 15, 45, toxic, f"{latency} ms")

    def _slow(self) -> None:
        rate = self._random.choice((4, 20, 100))
        self._for("network-slow", 15, 45, self._network.toxic("bandwidth", rate=rate), f"{rate} kB/s")

    def _reset(self) -> None:
        after = self._random.choice((0, 100, 1000))
        self._for("network-reset", 10, 30, self._network.toxic("reset_peer", timeout=after), f"after {after} ms")

    def _cut(self) -> None:
        count = self._random.choice((3000, 20_000, 100_000))
        self._for("network-cut", 15, 45, self._network.toxic("limit_data", bytes=count), f"after {count} bytes")

    def _drop(self) -> None:
        probability = self._random.choice((0.05, 0.2, 0.5))
        self._for("network-drop", 15, 40, self._network.lost_packets(probability), f"{probability:.0%} of packets")

    def _refuse(self) -> None:
        probability = self._random.choice((0.02, 0.1, 0.5))
        self._for("network-refuse", 15, 40, self._network.refused(probability), f"{probability:.0%} of packets")

    def _down(self) -> None:
        self._for("network-down", 5, 40, self._network.lost_packets(1.0), "no packet arrives")

    # nodes and pods

    def _cordon(self) -> None:
        with self._lab.journal.fault("node-cordon"):
            try:
                self._lab.kubectl("cordon node")
                time.sleep(self._random.uniform(15, 60))
            finally:
                until_done(lambda: self._lab.kubectl("uncordon node"))

    def _evict(self) -> None:
        """Evict a pod, of a tenant or of a run, as a drain does."""
        pods = self._lab.api.call("GET", f"/api/v1/pods?fieldSelector={_RUNNING}")["items"]
        if not pods:
            return
        metadata = self._random.choice(pods)["metadata"]
        place = {"name": metadata["name"], "namespace": metadata["namespace"]}
        with self._lab.journal.fault("node-evict", f"{place['namespace']}/{place['name']}"):
            path = f"/api/v1/namespaces/{place['namespace']}/pods/{place['name']}/eviction"
            self._lab.api.call("POST", path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": place})
            time.sleep(2)

    def _running(self) -> Object | None:
        """Wait for the pod of a run that is not terminating, and then some moments."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector={_RUNNING}&labelSelector={_JOB_LABEL}"
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            listed = self._lab.api.call("GET", path)["items"]
            if pods := [each for each in listed if "deletionTimestamp" not in each["metadata"]]:
                time.sleep(self._random.choice((0.0, 0.1, 0.3, 0.6, 1.0, 2.0)))
                return dict(self._random.choice(pods))
            time.sleep(0.1)
        return None

    def _delete_run(self, kind: str, grace: int | None) -> None:
        if pod := self._running():
            name = pod["metadata"]["name"]
            with self._lab.journal.fault(kind, name):
                body = {"gracePeriodSeconds": grace} if grace is not None else {}
                self._lab.api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", body)
                time.sleep(3)

    def _kill_process(self) -> None:
        """Kill the first process of a container, as the kernel does when memory is short."""
        if pod := self._running():
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            with self._lab.journal.fault("kill-run-process", name):
                kill_run(uid)
                time.sleep(3)

    # rights

    def _renew_account(self) -> None:
        """Delete the account of a job and create it again: its tokens become invalid."""
        job = self._random.choice([each for each in SCHEDULES if each != "sync-copies-verify"])
        account = self._lab.api.read(_object("v1", "ServiceAccount", job, NAMESPACE))
        with self._lab.journal.fault("credentials-account", job):
            try:
                self._lab.api.delete(account)
                time.sleep(self._random.uniform(0, 5))
            finally:
                until_done(lambda: self._lab.api.put(_without_identity(account)))
            time.sleep(12)  # the API server caches the result of a token for 10 seconds

    def _remove_binding(self) -> None:
        """Remove the rights of a job for a time."""
        version, kind = "rbac.authorization.k8s.io/v1", "ClusterRoleBinding"
        bindings = [each for each in self._lab.api.items(version, kind) if _is_of_a_job(each)]
        binding = self._random.choice(sorted(bindings, key=lambda each: str(each["metadata"]["name"])))
        with self._lab.journal.fault("credentials-binding", binding["metadata"]["name"]):
            try:
                self._lab.api.delete(binding)
                time.sleep(self._random.uniform(10, 45))
            finally:
                until_done(lambda: self._lab.api.put(_without_identity(binding)))
                time.sleep(2)

    # admission

    def _namespaces(self) -> list[str]:
        names = sorted(each["metadata"]["name"] for each in self._lab.api.items("v1", "Namespace"))
        own = [name for name in names if not name.startswith(("kube-", "default"))]
        return self._random.sample(own, min(POLICY_NAMESPACES, len(own)))

    def _policy(self) -> None:
        """Refuse what the jobs write in some namespaces."""
        names = self._namespaces()
        fault = self._admission(refusing(self._lab.api, *names))
        self._for("admission-policy", 20, 60, fault, f"in {', '.join(names)}")

    def _webhook(self) -> None:
        """Let a webhook not answer that reviews what the jobs write in some namespaces."""
        names = self._namespaces()
        fault = self._admission(webhook(self._lab.api, None, *names))
        self._for("admission-webhook", 20, 60, fault, f"in {', '.join(names)}")

    @contextlib.contextmanager
    def _admission(self, context: contextlib.AbstractContextManager[object]) -> Iterator[None]:
        """Delete what refuses writes, also if a request of the context fails or a tenant deleted a namespace."""
        try:
            with context:
                yield
        finally:
            until_done(self._delete_admission)

    def _delete_admission(self) -> None:
        for kind in ADMISSION:
            path = self._lab.api.path(_object(GROUP, kind, f"tests-{self._lab.api.token}"))
            status, _, body = self._lab.api.request("DELETE", path)
            if status not in (200, 404):
                raise ApiError("DELETE", path, status, body)

    # Jobs and versions

    def _overlap(self) -> None:
        """Run two more Jobs next to that of the schedule."""
        job = self._random.choice(OVERLAPPING)
        names = [f"{job}-manual-{next(self._numbers)}" for _ in range(2)]
        with self._lab.journal.fault("overlap-jobs", job):
            jobs = Jobs(self._lab.api, self._lab.kubectl)
            for name in names:
                jobs.start(jobs.template(name, job))
                time.sleep(self._random.choice((0.0, 0.5, 2.0)))
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not all(jobs.ended(name) for name in names):
                time.sleep(1)

    def _suspend(self) -> None:
        with self._lab.journal.fault("suspend-jobs"):
            try:
                suspend(self._lab.kubectl, [*SCHEDULES])
                time.sleep(self._random.uniform(60, 100))
            finally:
                until_done(lambda: resume(self._lab.kubectl, self._lab.jobs))

    def _upgrade(self) -> None:
        """Run another version for some minutes, and then this one again."""
        with self._lab.journal.fault("upgrade", self._previous):
            try:
                self._set_image(self._previous)
                time.sleep(self._random.uniform(60, 130))
            finally:
                until_done(lambda: self._set_image(self._lab.image))

    def _set_image(self, image: str) -> None:
        names = " ".join(f"cronjob/{name}" for name in SCHEDULES)
        self._lab.kubectl(f"set image {names} chores={image} -n {NAMESPACE}")


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _object(version: str, kind: str, name: str, namespace: str = "") -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def _without_identity(obj: Object) -> Object:
    """Return an object as it was applied: a server sets the other metadata."""
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {key: value for key, value in obj["metadata"].items() if key in kept}
    return {**obj, "metadata": metadata}


def _is_of_a_job(binding: Object) -> bool:
    subjects = binding.get("subjects") or []
    return any(each.get("namespace") == NAMESPACE and each["name"] in SCHEDULES for each in subjects)
