"""All measurements by name: `python -m benchmarks --only NAME` repeats one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from benchmarks import latency, server_cost, startup, tables
from benchmarks.compare import World, compare
from benchmarks.measured import Measured
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
from jobs.kit.values.registry import JOBS

# In the order of the page.
WORLDS = (
    sync_copies.WORLD,
    many_rules.WORLD,
    unrelated.WORLD,
    contents.WORLD,
    kinds.WORLD,
    policies.WORLD,
    farm_pods.WORLD,
    roll_workloads.WORLD,
    mirror_audit.WORLD,
    fetch_rates.WORLD,
)


class Measurement(NamedTuple):
    """A measurement: what it stores for a number of runs, as JSON, and the tables of that by their names.

    `measure` returns an empty list if this machine cannot measure it.
    """

    measure: Callable[[int], Any]
    tables: Callable[[Any], Mapping[str, list[str]]]


def measured(stored: Any) -> list[Measured]:
    """Return stored results of a world."""
    return [Measured(**each) for each in stored]


def _measure(world: World, runs: int) -> Any:
    return [asdict(each) for each in compare(world, runs)]


def _tables(world: World, stored: Any) -> Mapping[str, list[str]]:
    return tables.of_world(world, measured(stored))


def _server_cost(runs: int) -> Any:
    return server_cost.measure([world for world in WORLDS if world.name in JOBS], min(runs, 3))  # each repeats 10 runs


def _latency(runs: int) -> Any:
    return latency.measure(min(runs, 2))  # each takes two minutes


MEASUREMENTS = {
    "startup": Measurement(startup.measure, startup.tables),
    **{world.name: Measurement(partial(_measure, world), partial(_tables, world)) for world in WORLDS},
    "server-cost": Measurement(_server_cost, server_cost.tables),
    "latency": Measurement(_latency, latency.tables),
}
