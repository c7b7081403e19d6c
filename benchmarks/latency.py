"""Measure on a real node how long users wait: from the change of a Secret to its last copy, and each phase between.

The Jobs are those of the shipped CronJob, with the shipped image, account and limits. Every round changes one Secret,
of which 100 namespaces have a copy. The moments come from watches, containerd's events and the audit log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from benchmarks.tables import row, spread, table
from tests.apis import Api, Object, real_api, wait_for
from tests.canary import canary
from tests.cluster_process import cluster
from tests.control_plane import ControlPlane, audit_events
from tests.node.kubectl import Jobs, Kubectl, install
from tests.one_node import Node, missing
from tests.worlds import encoded, rule, secret

NAMESPACES = 100
CRONJOB = "sync-copies"
HOME = "latency-home"
# The phases in their order, each with the moment at which it ends. The first begins at the full minute, or with the
# request that creates the Job.
PHASES = {
    "Job is created": "job",
    "pod is created": "pod",
    "pod is assigned to the node": "bound",
    "volumes are mounted, sandbox starts": "sandbox",
    "container starts": "container",
    "Python starts; first request": "first request",
    "reads; first write": "first write",
    "writes; last copy": "last write",
    "the run ends": "exit",
    "Job is complete": "complete",
}
SHOWN = (
    "pod is assigned to the node",
    "container starts",
    "Python starts; first request",
    "writes; last copy",
)


def measure(runs: int) -> list[dict[str, Any]]:
    """Return the seconds of each phase of each round, or nothing if no node can be started here.

    Two rounds by hand for each of `runs`, and one on schedule, which takes a minute.
    """
    if reason := missing():
        print(f"latency: skipped: {reason}", file=sys.stderr)
        return []
    with cluster() as node, tempfile.TemporaryDirectory() as folder:
        api, kubectl = real_api(node.plane, Path(folder)), Kubectl(node.plane.kubeconfig)
        install(kubectl)
        prepare(api)
        jobs = Jobs(api, kubectl)
        with Observer(node, api) as observer:
            by_hand_round(jobs, observer, "first")  # creates the copies
            rounds = [by_hand_round(jobs, observer, f"by-hand-{number}") for number in range(2 * runs)]
            rounds += scheduled_rounds(jobs, observer, runs)
        return rounds


def prepare(api: Api) -> None:
    """Create the namespaces, the Secret and its rule."""
    names = [HOME, *(f"latency-{number:03}" for number in range(NAMESPACES))]
    for name in names:
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    change(api)
    api.put(rule("latency", HOME, "latency-0*", ruleType="secret"))


def change(api: Api) -> float:
    """Change the Secret; return the time after it."""
    api.put(secret(HOME, data={"password": encoded(canary())}))
    return time.time()


def by_hand_round(jobs: Jobs, observer: Observer, name: str, **changes: Any) -> dict[str, Any]:
    """Change the Secret and create a Job; `changes` are fields of its container."""
    job = jobs.template(name, CRONJOB)
    job["spec"]["template"]["spec"]["containers"][0] |= changes
    change(jobs.api)
    began = time.time()
    jobs.start(job)
    return {"start": "by hand", **observer.phases(name, began)}


def scheduled_rounds(jobs: Jobs, observer: Observer, count: int) -> Iterator[dict[str, Any]]:
    """Change the Secret once a minute, and observe the Job that the CronJob controller creates at the next minute."""
    patch = f"""patch cronjob {CRONJOB} -n kube-chores -p '{{"spec": {{"suspend": %s}}}}'"""
    jobs.kubectl(patch % "false")  # the Job of the last minute may begin now
    try:
        for _ in range(count):
            time.sleep((40 - time.time()) % 60)
            change(jobs.api)
            minute = time.time() // 60 * 60 + 60
            yield {"start": "scheduled", **observer.phases(f"{CRONJOB}-{int(minute // 60)}", minute)}
    finally:
        jobs.kubectl(patch % "true")


class Observer:
    """Notes when Jobs, pods and containers change."""

    def __init__(self, node: Node, api: Api) -> None:
        self.node, self.api = node, api
        self.observed: list[tuple[float, Object]] = []
        self.tasks: list[tuple[float, str, Object]] = []

    def __enter__(self) -> Observer:
        """Start to watch."""
        self._ending = contextlib.ExitStack()
        for path in ("/apis/batch/v1/namespaces/kube-chores/jobs", "/api/v1/namespaces/kube-chores/pods"):
            threading.Thread(target=self._watch, args=(path,), daemon=True).start()
        events = self._ending.enter_context(containerd_events(self.node))
        threading.Thread(target=self._read_tasks, args=(events,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End containerd's events; the watches end with the server."""
        self._ending.close()

    def _watch(self, path: str) -> None:
        for event in watch(self.node.plane, path):
            self.observed.append((time.time(), event["object"]))

    def _read_tasks(self, events: IO[str]) -> None:
        for line in events:
            day, clock, _, _, _, topic, content = line.split(" ", 6)
            if topic in ("/tasks/start", "/tasks/exit"):
                moment = datetime.fromisoformat(f"{day}T{clock[:15].ljust(15, '0')}+00:00").timestamp()
                self.tasks.append((moment, topic, json.loads(content)))

    def phases(self, job: str, began: float) -> dict[str, float]:
        """Wait for the end of a Job; return the seconds of each phase."""
        wait_for(lambda: self._first_complete(job), f"the end of Job {job}", 120)
        time.sleep(0.5)  # for the last lines of the audit log
        moments = self._moments(job)
        found, before = {}, began
        for phase, moment in PHASES.items():
            found[phase], before = moments[moment] - before, moments[moment]
        return found

    def _first_complete(self, job: str) -> float | None:
        done = (
            at
            for at, each in self.observed
            if each["metadata"]["name"] == job
            and any(one["type"] == "Complete" for one in each.get("status", {}).get("conditions", []))
        )
        return next(done, None)

    def _moments(self, job: str) -> dict[str, float]:
        pods = [
            (at, each)
            for at, each in self.observed
            if each["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == job
            and "containers" in each["spec"]
        ]
        (container,) = pods[-1][1]["status"]["containerStatuses"]
        own = container["containerID"].removeprefix("containerd://")
        starts = [(at, each["container_id"]) for at, topic, each in self.tasks if topic == "/tasks/start"]
        started = next(at for at, name in starts if name == own)
        exits = [at for at, topic, each in self.tasks if topic == "/tasks/exit" and each["container_id"] == own]
        requests = [
            each
            for each in audit_events(self.node.plane.audit_log)
            if each.get("userAgent", "").startswith("kube-chores")
            and seconds(each["requestReceivedTimestamp"]) >= started
        ]
        writes = [
            each for each in requests if each["verb"] in ("create", "update") and "/secrets" in each["requestURI"]
        ]
        complete = self._first_complete(job)
        assert complete
        return {
            "job": next(at for at, each in self.observed if each["metadata"]["name"] == job),
            "pod": pods[0][0],
            "bound": next(at for at, each in pods if each["spec"].get("nodeName")),
            "sandbox": max(at for at, _ in starts if at < started),
            "container": started,
            "first request": min(seconds(each["requestReceivedTimestamp"]) for each in requests),
            "first write": min(seconds(each["requestReceivedTimestamp"]) for each in writes),
            "last write": max(seconds(each["stageTimestamp"]) for each in writes),
            "exit": exits[0],
            "complete": complete,
        }


def seconds(text: str) -> float:
    """Return a time of the API as seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def watch(plane: ControlPlane, path: str) -> Iterator[Object]:
    """Yield the events of a watch until the server ends."""
    command = [
        "curl",
        "--silent",
        "--no-buffer",
        "--cacert",
        str(plane.ca_file),
        "--config",
        "-",
        f"{plane.url}{path}?watch=1",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f'header = "Authorization: Bearer {plane.admin_token}"\n')
        process.stdin.close()
        yield from map(json.loads, process.stdout)


@contextlib.contextmanager
def containerd_events(node: Node) -> Iterator[IO[str]]:
    """Run `ctr events` on the node."""
    command = [*node.enter, "ctr", "--namespace=k8s.io", "events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout
        try:
            yield process.stdout
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def rows(rounds: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table: milliseconds until the end of the phases that are shown, median and range."""
    starts = list(dict.fromkeys(each["start"] for each in rounds))
    found = table("until", *(f"{start}, ms" for start in starts))
    names = list(PHASES)
    for name in SHOWN:
        phases = names[: names.index(name) + 1]
        until = [(each["start"], 1000 * sum(each[phase] for phase in phases)) for each in rounds]
        found.append(row(name, *(spread([ms for start, ms in until if start == each], 0) for each in starts)))
    return found


if __name__ == "__main__":
    print("\n".join(rows(measure(int(sys.argv[1])))))
