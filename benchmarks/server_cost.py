"""Measure what runs that write nothing cost the server.

CPU is that of kube-apiserver and of etcd, without what they use while they are idle.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from statistics import median
from typing import Any

from cronsim import CronSim

from benchmarks.cluster import bench_cluster
from benchmarks.compare import World
from benchmarks.measured import run_process, server_cpu
from benchmarks.tables import row, spread, table
from tests.manifests import everything

CONVERGED = "converged"
SIZE = 10_000
IN_A_ROW = 10
IDLE_SECONDS = 10
PROGRAMS = ("kube-apiserver", "etcd")
Figures = dict[str, float]


def measure(worlds: Sequence[World], repeats: int) -> list[dict[str, Any]]:
    """Return the figures of runs of the jobs of these worlds."""
    return [each for world in worlds for each in runs_of(world, repeats)]


def runs_of(world: World, repeats: int) -> list[dict[str, Any]]:
    """Measure converged runs of a job."""
    found: list[dict[str, Any]] = []
    size = max((each for each in world.sizes if each <= SIZE), default=min(world.sizes))
    program = next(iter(world.programs))
    with bench_cluster(controllers=world.controllers) as cluster:
        world.prepare(cluster, size)
        assert world.scenarios[CONVERGED](cluster, program, size) == 0
        command, env = world.programs[program](cluster), {"KUBECONFIG": str(cluster.plane.kubeconfig)}
        run_process(command, env)  # the first may write a status
        for _ in range(repeats):
            idle = idle_cpu()
            began, before = time.monotonic(), server_cpu()
            for _ in range(IN_A_ROW):
                done = run_process(command, env)
                assert done.exit_code == 0, done.stderr
            figures = used_since(before, time.monotonic() - began, idle, IN_A_ROW)
            found.append({"job": world.name, "unit": world.unit, "size": size, **figures})
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


def rows(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row for each job."""
    found = table("job", "CPU of kube-apiserver and etcd, ms", "of one core, on schedule")
    for job, unit, size in dict.fromkeys((each["job"], each["unit"], each["size"]) for each in runs):
        used = [sum(each[name] for name in PROGRAMS) for each in runs if each["job"] == job]
        share = median(used) * runs_per_hour(job) / 3600
        found.append(row(f"{job}, {size:,} {unit}", spread([each * 1000 for each in used], 0), f"{share:.2%}"))
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
