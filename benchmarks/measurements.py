"""All measurements by name: `python -m benchmarks --only NAME` repeats one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from benchmarks import clusters, latency, server_cost
from benchmarks.compare import World, compare
from benchmarks.worlds import (
    contents,
    farm_pods,
    fetch_rates,
    kinds,
    many_rules,
    mirror_audit,
    policies,
    roll_workloads,
    sync_copies,
    unrelated,
)

# The worlds of each job, in the order of the page. The first one has the name of the job, and its own plot.
JOBS = (
    (
        sync_copies.WORLD,
        many_rules.WORLD,
        unrelated.WORLD,
        contents.WORLD,
        kinds.WORLD,
        policies.WORLD,
    ),
    (farm_pods.WORLD,),
    (roll_workloads.WORLD,),
    (mirror_audit.WORLD,),
    (fetch_rates.WORLD,),
)


def _measure(world: World, runs: int) -> Any:
    return [asdict(each) for each in compare(world, runs)]


def _clusters(runs: int) -> Any:
    return clusters.measure(runs)


def _server_cost(runs: int) -> Any:
    return server_cost.measure([worlds[0] for worlds in JOBS], min(runs, 3))  # each repeats 10 runs


def _latency(runs: int) -> Any:
    return latency.measure(min(runs, 2))  # each takes two minutes


# What each stores for a number of runs, as JSON; an empty list if this machine cannot measure it.
MEASUREMENTS: Mapping[str, Callable[[int], Any]] = {
    **{world.name: partial(_measure, world) for worlds in JOBS for world in worlds},
    "clusters": _clusters,
    "server-cost": _server_cost,
    "latency": _latency,
}
