"""Measure sweeps of sync-copies and of two minimal clients on the same real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apis import Api, real_api
from tests.canary import canary
from tests.control_plane import ControlPlane, control_plane
from tests.manifests import ROOT, load
from tests.worlds import encoded, secret

HOME = "bench-home"
SOURCES, SIZE = 10, 1024
SCENARIOS = ("first", "changed", "converged")
LABELS = {  # by which each program finds its copies
    "sync-copies": "app.kubernetes.io/managed-by=kube-chores",
    "bare Python": "app.kubernetes.io/managed-by=bare-python",
    "bare Go": "app.kubernetes.io/managed-by=bare-go",
}
TICKS = os.sysconf("SC_CLK_TCK")
# The peak that the kernel reports for a process starts with that of its parent, so the parent must be small.
STARTER = """
import os, sys, time
quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
began = time.monotonic()
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet), 0)
seconds = time.monotonic() - began
print(os.waitstatus_to_exitcode(status), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, file=sys.stderr)
"""


@dataclass(frozen=True)
class Measured:
    """One run of one program."""

    program: str
    scenario: str
    namespaces: int
    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    peak_mib: float
    requests: int
    received: int
    sent: int


def measure(namespaces: Sequence[int], runs: int) -> list[Measured]:
    """Measure all programs at each number of namespaces, each in its own cluster."""
    with tempfile.TemporaryDirectory() as folder:
        go = build_go(Path(folder))
        found: list[Measured] = []
        for number in sorted(namespaces):
            with control_plane() as plane:
                bench = Bench(plane, Path(folder), go, number)
                bench.prepare()
                bench.run("bare Go", "warm-up")  # a server is slower right after its start
                bench.empty("bare Go")
                for run in range(runs):
                    for program in rotated(list(LABELS), run):
                        found += bench.sweeps(program)
        return found


def team(number: int) -> str:
    """Return the name of a namespace that receives copies."""
    return f"bench-team-{number:05}"


def value() -> str:
    """Return a new value of SIZE bytes."""
    return canary().ljust(SIZE, "x")


def rotated(programs: list[str], by: int) -> list[str]:
    """Return the programs in a different order for each run: the first program finds the server in another state."""
    by %= len(programs)
    return programs[by:] + programs[:by]


def build_go(folder: Path) -> Path:
    """Build the Go program and return its path."""
    program = folder / "bare-go"
    source = ROOT / "benchmarks" / "bare_go"
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    subprocess.run(["go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "."], cwd=source, env=env, check=True)
    return program


class Bench:
    """A cluster with sources and namespaces, and the programs that copy the sources to the namespaces."""

    def __init__(self, plane: ControlPlane, folder: Path, go: Path, namespaces: int) -> None:
        self.plane, self.go, self.namespaces = plane, go, namespaces
        self.api: Api = real_api(plane, folder)

    def prepare(self) -> None:
        """Create the CRDs, the rule, the namespaces and the sources."""
        self.prepare_namespaces()
        self.change()
        self.api.put(RULE)

    def prepare_namespaces(self) -> None:
        """Create the CRDs and the namespaces."""
        for obj in load(ROOT / "cronjobs" / "crds"):
            self.api.put(obj)
        for name in ("kube-chores", HOME):
            self.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.each(self._namespace, range(self.namespaces))

    def _namespace(self, number: int) -> None:
        self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": team(number)}})

    def change(self) -> None:
        """Change the content of all sources."""
        for number in range(SOURCES):
            self.api.put(secret(HOME, f"source-{number}", labels={"bench": "yes"}, data={"key": encoded(value())}))

    def sweeps(self, program: str) -> Iterator[Measured]:
        """Run a program without copies, after a change, and a third time; then delete its copies."""
        copies = self.namespaces * SOURCES
        for scenario, written in zip(SCENARIOS, (copies, copies, 0), strict=True):
            if scenario == "changed":
                self.change()
            measured, done = self.run(program, scenario)
            assert done == written, f"{program} wrote {done} in the {scenario} sweep, not {written}"
            print_measured(measured)
            yield measured
        self.empty(program)

    def empty(self, program: str) -> None:
        """Delete the copies of a program."""
        self.each(lambda number: self._empty(program, number), range(self.namespaces))

    def _empty(self, program: str, number: int) -> None:
        path = f"/api/v1/namespaces/{team(number)}/secrets?labelSelector={LABELS[program].replace('=', '%3D')}"
        self.api.call("DELETE", path)

    def each(self, call: Callable[[int], object], numbers: Sequence[int]) -> None:
        """Call a function with each number, with 8 threads."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(call, numbers))

    def run(self, program: str, scenario: str, *options: str) -> tuple[Measured, int]:
        """Run a program once; return the measurement, and how many copies it wrote. sync-copies has options."""
        command = {
            "sync-copies": [sys.executable, "-m", "jobs", "sync-copies", "-n", "kube-chores", "-o", "json", *options],
            "bare Python": [sys.executable, "-m", "benchmarks.bare.sync_copies", str(self.plane.kubeconfig)],
            "bare Go": [str(self.go), str(self.plane.kubeconfig)],
        }[program]
        env = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig), "PYTHONPATH": str(ROOT)}
        server = server_cpu()
        with tempfile.TemporaryFile() as out:
            starter = [sys.executable, "-S", "-c", STARTER, *command]
            usage = subprocess.run(starter, stdout=out, stderr=subprocess.PIPE, env=env, cwd="/", check=True).stderr
            code, seconds, cpu, peak = (float(word) for word in usage.split())
            out.seek(0)
            report = json.loads(out.read())
        assert code == 0, report
        traffic, written = figures_of(report) if program == "sync-copies" else (report, report["written"])
        measured = Measured(
            program,
            scenario,
            self.namespaces,
            seconds,
            cpu,
            server_cpu() - server,
            peak / 1024,
            traffic["requests"],
            traffic["received"],
            traffic["sent"],
        )
        return measured, written


def figures_of(report: dict[str, Any]) -> tuple[dict[str, int], int]:
    """Return traffic and number of written copies from a report of sync-copies, as the other programs print them."""
    traffic, summary = report["traffic"], report["summary"]
    figures = {
        "requests": sum(traffic["requests"].values()),
        "received": traffic["bytesReceived"],
        "sent": traffic["bytesSent"],
    }
    return figures, summary.get("created", 0) + summary.get("configured", 0)


def server_cpu() -> float:
    """Return the CPU seconds so far of etcd, kube-apiserver and the controllers: the children of this process."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has exited
        if int(fields[1]) == os.getpid():
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def print_measured(measured: Measured) -> None:
    """Print a measurement to stderr, as progress."""
    figures = (
        f"{measured.seconds:6.2f} s",
        f"{measured.cpu_seconds:5.2f} + {measured.server_cpu_seconds:4.1f} s CPU",
        f"{measured.peak_mib:3.0f} MiB",
        f"{measured.requests:5} requests",
    )
    head = f"{measured.namespaces:6} namespaces  {measured.scenario:9}  {measured.program:11}"
    print(head, *figures, sep="  ", file=sys.stderr, flush=True)


RULE = {
    "apiVersion": "kubechores.dev/v1",
    "kind": "CopyratorRule",
    "metadata": {"name": "bench", "namespace": "kube-chores"},
    "spec": {
        "ruleType": "secret",
        "namespaces": [HOME],
        "selector": {"matchLabels": {"bench": "yes"}},
        "targets": {"include": ["bench-team-*"]},
    },
}
