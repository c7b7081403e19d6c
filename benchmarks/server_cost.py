"""Measure what runs that write nothing cost the server, and what other ways to list would cost.

CPU is that of kube-apiserver and of etcd, without what they use while they are idle.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from statistics import median
from typing import Any

from cronsim import CronSim

from benchmarks.cluster import BenchCluster, bench_cluster
from benchmarks.compare import BARE, World, rotated
from benchmarks.list_client import TODAY, WAYS
from benchmarks.measured import run_process, server_cpu
from benchmarks.tables import spread
from benchmarks.worlds import sync_copies
from tests.manifests import ROOT, everything

CONVERGED = "converged"
SIZE = 10_000
IN_A_ROW, LISTS_IN_A_ROW = 10, 5
IDLE_SECONDS = 10
# Kubernetes 1.34 is the first version that reads pages from its cache. The same server can behave as 1.33 did.
SERVERS = {"1.36": (), "1.33": ("--emulated-version=1.33",)}
PROGRAMS = ("kube-apiserver", "etcd")
Figures = dict[str, float]


def measure(worlds: Sequence[World], repeats: int) -> dict[str, Any]:
    """Return the figures of runs of the jobs of these worlds, and of each way to list."""
    runs = [each for world in worlds for each in runs_of(world, repeats)]
    lists = [each for server in SERVERS for each in lists_of(server, repeats)]
    return {"runs": runs, "lists": lists}


# runs that write nothing


def runs_of(world: World, repeats: int) -> list[dict[str, Any]]:
    """Measure converged runs of a job and of the least client, in turn."""
    found: list[dict[str, Any]] = []
    size = max((each for each in world.sizes if each <= SIZE), default=min(world.sizes))
    programs = [next(iter(world.programs)), BARE]
    with bench_cluster(controllers=world.controllers) as cluster:
        world.prepare(cluster, size)
        for repeat in range(repeats):
            for program in rotated(programs, repeat):
                assert world.scenarios[CONVERGED](cluster, program, size) == 0
                command, env = world.programs[program](cluster), {"KUBECONFIG": str(cluster.plane.kubeconfig)}
                run_process(command, env)  # the first may write a status
                idle = idle_cpu()
                began, before = time.monotonic(), server_cpu()
                for _ in range(IN_A_ROW):
                    done = run_process(command, env)
                    assert done.exit_code == 0, done.stderr
                figures = used_since(before, time.monotonic() - began, idle, IN_A_ROW)
                found.append({"job": world.name, "program": program, "unit": world.unit, "size": size, **figures})
                print(found[-1], file=sys.stderr, flush=True)
    return found


def idle_cpu() -> Figures:
    """Return the CPU seconds that each program of the server uses in a second without clients."""
    before = server_cpu()
    time.sleep(IDLE_SECONDS)
    after = server_cpu()
    return {name: (after[name] - before[name]) / IDLE_SECONDS for name in PROGRAMS}


def used_since(before: Figures, seconds: float, idle: Figures, times: int) -> Figures:
    """Return the CPU seconds of one of `times` equal pieces of work, without those of an idle server."""
    after = server_cpu()
    return {name: (after[name] - before[name] - idle[name] * seconds) / times for name in PROGRAMS}


# ways to list


def lists_of(server: str, repeats: int) -> list[dict[str, Any]]:
    """Measure lists of the copies of sync-copies in each way, in turn."""
    world, found = sync_copies.WORLD, []
    with bench_cluster(apiserver_flags=SERVERS[server]) as cluster:
        world.prepare(cluster, SIZE)
        world.scenarios[CONVERGED](cluster, world.name, SIZE)
        for repeat in range(repeats):
            idle = idle_cpu()
            for way in rotated([name for name, way in WAYS.items() if way.since <= server], repeat):
                found.append({"server": server, "way": way, **lists_in(cluster, way, idle)})
                print(found[-1], file=sys.stderr, flush=True)
    return found


def lists_in(cluster: BenchCluster, way: str, idle: Figures) -> Figures:
    """Measure lists in one way: of client and server, for one list."""
    path, selector = "/api/v1/secrets", "app.kubernetes.io/managed-by=kube-chores"
    words = [str(cluster.plane.kubeconfig), way, str(LISTS_IN_A_ROW), path, selector]
    command = [sys.executable, "-m", "benchmarks.list_client", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as client:
        assert client.stdin
        assert client.stdout
        client.stdout.readline()  # it is ready
        reads, before = etcd_reads(cluster), server_cpu()
        client.stdin.write("\n")
        client.stdin.flush()
        report: Figures = json.loads(client.stdout.readline())
        used = used_since(before, report["seconds"], idle, LISTS_IN_A_ROW)
        report["etcd reads"] = etcd_reads(cluster) - reads
    return {**used, **{name: value / LISTS_IN_A_ROW for name, value in report.items()}}


def etcd_reads(cluster: BenchCluster) -> int:
    """Return how many pages of Secrets kube-apiserver has read from etcd so far."""
    _, _, metrics = cluster.api.request("GET", "/metrics")
    line = r'^etcd_request_duration_seconds_count\{.*operation="list",resource="secrets"\} (\S+)$'
    return int(sum(map(float, re.findall(line, metrics.decode(), re.M))))


# tables


def tables(stored: dict[str, Any]) -> dict[str, list[str]]:
    """Return the rows of each table of docs/performance.md by the name of its mark."""
    return {"server-runs": rows_of_runs(stored["runs"]), "server-lists": rows_of_lists(stored["lists"])}


def rows_of_runs(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row for each job."""
    found = [
        "| job | kube-apiserver, ms | etcd, ms | of one core, on schedule | divided by bare Python |",
        "|---|---|---|---|---|",
    ]
    for job in dict.fromkeys(each["job"] for each in runs):
        own = [each for each in runs if each["job"] == job and each["program"] != BARE]
        bare = [each for each in runs if each["job"] == job and each["program"] == BARE]
        total = [sum(each[name] for name in PROGRAMS) for each in own]
        ratios = [mine / sum(other[name] for name in PROGRAMS) for mine, other in zip(total, bare, strict=True)]
        share = median(total) * runs_per_hour(job) / 3600
        cells = [
            f"{job}, {own[0]['size']:,} {own[0]['unit']}",
            *(spread([max(0.0, each[name] * 1000) for each in own], 0) for name in PROGRAMS),
            f"{share:.2%}",
            spread(ratios, 2),
        ]
        found.append(f"| {' | '.join(cells)} |")
    return found


def rows_of_lists(lists: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row for each way to list: ratios to today's way on the same server."""
    found = [
        "| Kubernetes | way | kube-apiserver CPU | client CPU | time | MB | requests | read from etcd |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for server, way in dict.fromkeys((each["server"], each["way"]) for each in lists):
        own, today = (
            [each for each in lists if (each["server"], each["way"]) == (server, name)] for name in (way, TODAY)
        )
        cells = [
            server,
            way,
            *(
                spread([max(0.0, one[name] / other[name]) for one, other in zip(own, today, strict=True)], 2)
                for name in ("kube-apiserver", "cpu", "seconds")
            ),
            f"{own[0]['received'] / 1e6:.2f}",
            f"{own[0]['requests']:.0f}",
            f"{median(each['etcd reads'] for each in own):.0f}",
        ]
        found.append(f"| {' | '.join(cells)} |")
    return found


def runs_per_hour(job: str) -> int:
    """Return how often the shipped schedule starts a job in an hour."""
    (schedule,) = (
        each["spec"]["schedule"]
        for each in everything()
        if (each["kind"], each["metadata"]["name"]) == ("CronJob", job)
    )
    begin = datetime(2026, 1, 1)
    in_a_day = takewhile(lambda at: at <= begin + timedelta(days=1), CronSim(schedule, begin))
    return sum(1 for _ in in_a_day) // 24


if __name__ == "__main__":
    print(json.dumps(tables(measure([sync_copies.WORLD], int(sys.argv[1]))), indent=1))
