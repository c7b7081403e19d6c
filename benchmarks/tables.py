"""Tables of measurements, as rows of Markdown: ratios of pairs, exponents of growth, all figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.compare import World
from benchmarks.measured import Measured


class Figure(NamedTuple):
    """A figure of a run: its name, its value, its digits in tables, and below which value it cannot be compared."""

    name: str
    of: Callable[[Measured], float]
    digits: int
    comparable: float = 0.0


def server_cpu(run: Measured) -> float:
    """Return the CPU seconds of kube-apiserver and etcd."""
    return run.apiserver_cpu_seconds + run.etcd_cpu_seconds


SECONDS = Figure("seconds", lambda run: run.seconds, 2)
CLIENT = Figure("client CPU", lambda run: run.cpu_seconds, 2, 0.05)
SERVER = Figure("server CPU", server_cpu, 2, 0.1)  # the kernel counts in hundredths
MIB = Figure("peak MiB", lambda run: run.peak_mib, 0)
REQUESTS = Figure("requests", lambda run: run.requests, 0)
RECEIVED = Figure("MB in", lambda run: run.received / 1e6, 1)
SENT = Figure("MB out", lambda run: run.sent / 1e6, 1)
BYTES = Figure("bytes", lambda run: run.received + run.sent, 0)
API_SERVER = Figure("kube-apiserver CPU", lambda run: run.apiserver_cpu_seconds, 2)
ETCD = Figure("etcd CPU", lambda run: run.etcd_cpu_seconds, 2)
COMPARED = (SECONDS, CLIENT, SERVER, MIB, REQUESTS, BYTES)


def of_world(world: World, results: Sequence[Measured]) -> Mapping[str, list[str]]:
    """Return the tables of a world by their names; with the exponents comes the plot."""
    found = {f"{world.name}: ratios": ratios(world, results)}
    if len(sizes(results)) > 1:
        plot = f"![six figures of {world.name} over the number of {world.unit}](performance-{world.name}.svg)"
        found[f"{world.name}: growth"] = [plot, "", *growth(world, results)]
    found[f"{world.name}: figures"] = figures(world, results)
    return found


def sizes(results: Sequence[Measured]) -> list[int]:
    """Return the sizes that were measured."""
    return sorted({each.size for each in results})


def runs_of(results: Sequence[Measured], program: str, scenario: str, size: int) -> list[Measured]:
    """Return the runs of one program in one scenario."""
    return [each for each in results if (each.program, each.scenario, each.size) == (program, scenario, size)]


def ratios(world: World, results: Sequence[Measured]) -> list[str]:
    """Return a row for each pair of programs in each scenario, with the median of the pairs of runs and their range."""
    rows = _head("run", world.unit, "compared", *(each.name for each in COMPARED))
    for scenario in world.scenarios:
        for size in sizes(results):
            for program, base in world.compared():
                own, others = (runs_of(results, name, scenario, size) for name in (program, base))
                if own and others:
                    cells = [ratio(figure, own, others) for figure in COMPARED]
                    rows.append(_row(scenario, f"{size:,}", f"{program} / {base}", *cells))
    return rows


def ratio(figure: Figure, own: Sequence[Measured], others: Sequence[Measured]) -> str:
    """Return the median and the range of the ratios of pairs; `-` if a figure is too small to be compared.

    A program that ran less often has fewer pairs.
    """
    pairs = [(figure.of(one), figure.of(two)) for one, two in zip(own, others, strict=False)]
    if min(two for _, two in pairs) <= figure.comparable:
        return "-"
    return spread([one / two for one, two in pairs], 2)


def spread(values: Sequence[float], digits: int) -> str:
    """Return median and range, as `1.2 (1.1-1.4)`."""
    low, mid, high = (f"{value:,.{digits}f}" for value in (min(values), median(values), max(values)))
    return mid if low == high else f"{mid} ({low}-{high})"


def growth(world: World, results: Sequence[Measured]) -> list[str]:
    """Return a row of exponents for each program of a pair in each scenario."""
    shown = (SECONDS, CLIENT, SERVER, MIB, REQUESTS, BYTES)
    rows = _head("run", "program", *(each.name for each in shown))
    programs = dict.fromkeys(program for pair in world.compared() for program in pair)
    for scenario in world.scenarios:
        for program in programs:
            points = {size: runs_of(results, program, scenario, size) for size in sizes(results)}
            points = {size: runs for size, runs in points.items() if runs}
            if len(points) > 1:
                rows.append(_row(scenario, program, *(exponent(figure, points) for figure in shown)))
    return rows


def exponent(figure: Figure, points: Mapping[int, Sequence[Measured]]) -> str:
    """Return b of figure = a * size^b, by the medians of runs by size; `-` if one is too small to be compared."""
    values = {size: median(map(figure.of, runs)) for size, runs in points.items()}
    if min(values.values()) <= figure.comparable:
        return "-"
    return f"{round(slope(values), 2) + 0.0:.2f}"  # never -0.00


def slope(values: Mapping[int, float]) -> float:
    """Return the slope of the line through the logarithms, by least squares."""
    xs, ys = [math.log(size) for size in values], [math.log(value) for value in values.values()]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    rise = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return rise / sum((x - middle_x) ** 2 for x in xs)


def figures(world: World, results: Sequence[Measured]) -> list[str]:
    """Return a row of all figures for each program in each scenario at each size."""
    shown = (SECONDS, CLIENT, API_SERVER, ETCD, MIB, REQUESTS, RECEIVED, SENT)
    rows = _head("run", world.unit, "program", "runs", *(each.name for each in shown))
    for scenario in world.scenarios:
        for size in sizes(results):
            for program in world.programs:
                runs = runs_of(results, program, scenario, size)
                if runs:
                    cells = [spread([figure.of(run) for run in runs], figure.digits) for figure in shown]
                    rows.append(_row(scenario, f"{size:,}", program, str(len(runs)), *cells))
    return rows


def summary(
    worlds: Sequence[World], stored: Mapping[str, Sequence[Measured]], memory_limits: Mapping[str, str]
) -> list[str]:
    """Return a row for each job: its run with nothing to write at the largest size."""
    rows = _head("job", "size", "seconds", "peak MiB", "memory limit", "requests", "time / least client", "exponent")
    for world in worlds:
        results = stored.get(world.name, [])
        if world.name not in memory_limits or not results:
            continue
        job, base = world.compared()[0]
        size = max(sizes(results))
        own, others = (runs_of(results, name, "converged", size) for name in (job, base))
        points = {each: runs_of(results, job, "converged", each) for each in sizes(results)}
        cells = [spread([figure.of(run) for run in own], figure.digits) for figure in (SECONDS, MIB)]
        requests = spread([run.requests for run in own], 0)
        last = [requests, ratio(SECONDS, own, others), exponent(SECONDS, points) if len(points) > 1 else "-"]
        rows.append(_row(world.name, f"{size:,} {world.unit}", *cells, memory_limits[world.name], *last))
    return rows


def _head(*names: str) -> list[str]:
    return [_row(*names), "|---" * len(names) + "|"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
