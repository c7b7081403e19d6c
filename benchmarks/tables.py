"""Tables of measurements, as rows of Markdown: one for each job. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measured import Measured

if TYPE_CHECKING:
    from benchmarks.compare import World


class Figure(NamedTuple):
    """A figure of a run: its name, its value, and its digits in tables."""

    name: str
    of: Callable[[Measured], float]
    digits: int = 0


SECONDS = Figure("seconds", lambda run: run.seconds, 2)
MIB = Figure("peak MiB", lambda run: run.peak_mib)
REQUESTS = Figure("requests", lambda run: run.requests)
RECEIVED = Figure("MB in", lambda run: run.received / 1e6, 1)
CLIENT = Figure("client CPU", lambda run: run.cpu_seconds)
SERVER = Figure("server CPU", lambda run: run.apiserver_cpu_seconds + run.etcd_cpu_seconds)
SHOWN = (SECONDS, MIB, REQUESTS)


def of_job(worlds: Sequence[World], results: Mapping[str, Sequence[Measured]]) -> list[str]:
    """Return the table of a job: each scenario of its first world, and the first scenario of its other worlds.

    Each at the largest size that was measured. `results` are those of each world by its name.
    """
    rows = table("run", "size", *(each.name for each in SHOWN), "time ratio")
    for world in worlds:
        is_first = world is worlds[0]
        program, base = world.compared()[0 if is_first else -1]
        for scenario in world.scenarios if is_first else list(world.scenarios)[:1]:
            runs = [each for each in results[world.name] if each.scenario == scenario]
            size = max(each.size for each in runs if each.program == program)
            own, others = ([each for each in runs if (each.program, each.size) == (it, size)] for it in (program, base))
            figures = (f"{median(map(each.of, own)):,.{each.digits}f}" for each in SHOWN)
            pairs = zip(own, others, strict=False)  # a program that ran less often has fewer
            ratios = [one.seconds / other.seconds for one, other in pairs]
            name = scenario if is_first else f"{scenario}: {program} / {base}"
            rows.append(row(name, f"{size:,} {world.unit}", *figures, spread(ratios, 2) if ratios else "-"))
    return rows


def spread(values: Sequence[float], digits: int) -> str:
    """Return median and range, as `1.2 (1.1-1.4)`."""
    low, mid, high = (f"{value:,.{digits}f}" for value in (min(values), median(values), max(values)))
    return mid if low == high else f"{mid} ({low}-{high})"


def table(*names: str) -> list[str]:
    """Return the first rows of a table: its head."""
    return [row(*names), "|---" * len(names) + "|"]


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"
