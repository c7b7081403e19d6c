"""Write the tables of docs/performance.md and its plot from the results in docs/performance.json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.kinds import BASE
from benchmarks.surroundings import NAMESPACES_PER_RULE
from benchmarks.sweep import LABELS, SCENARIOS, SOURCES, Measured
from tests.manifests import ROOT

RESULTS = ROOT / "docs" / "performance.json"
PAGE, PLOT = ROOT / "docs" / "performance.md", ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- written by `make benchmark` -->\n", "<!-- end -->\n"
TITLES = {"first": "first sweep", "changed": "all sources changed", "converged": "converged"}
MEASURABLE_SECONDS = 0.2  # of CPU of the server, which the kernel counts in hundredths
Figure = Callable[[Measured], float]


def of(results: Iterable[Measured], program: str, scenario: str, namespaces: int) -> list[Measured]:
    """Return the runs of one program in one scenario."""
    return [
        each for each in results if (each.program, each.scenario, each.namespaces) == (program, scenario, namespaces)
    ]


def spread(runs: Sequence[Measured], figure: Figure, digits: int) -> str:
    """Return median and range, as `1.2 (1.1-1.4)`."""
    values = [figure(each) for each in runs]
    low, mid, high = (f"{value:.{digits}f}" for value in (min(values), median(values), max(values)))
    return mid if low == high else f"{mid} ({low}-{high})"


def ratios(results: Sequence[Measured], other: str, scenario: str, namespaces: int) -> str:
    """Return the time of sync-copies divided by that of the other program: of the medians, and the range of pairs."""
    own = [each.seconds for each in of(results, "sync-copies", scenario, namespaces)]
    others = [each.seconds for each in of(results, other, scenario, namespaces)]
    pairs = [one / two for one, two in zip(own, others, strict=True)]
    return f"{median(own) / median(others):.2f} ({min(pairs):.2f}-{max(pairs):.2f})"


def exponent(results: Sequence[Measured], scenario: str, figure: Figure) -> float:
    """Return b of figure = a * copies^b for sync-copies: the slope of the line through the logarithms."""
    points = {
        number: median(figure(each) for each in of(results, "sync-copies", scenario, number))
        for number in sorted({each.namespaces for each in results})
    }
    xs, ys = [math.log(number) for number in points], [math.log(value) for value in points.values()]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
    return slope / sum((x - middle_x) ** 2 for x in xs)


def table(results: Sequence[Measured]) -> list[str]:
    """Return the table of all figures."""
    head = "| sweep | copies | client | seconds | client CPU | server CPU | peak MiB | requests | MB in | MB out |"
    rows = [head, "|---|---|---|---|---|---|---|---|---|---|"]
    for scenario in SCENARIOS:
        for number in sorted({each.namespaces for each in results}):
            for program in LABELS:
                runs = of(results, program, scenario, number)
                cells = [
                    TITLES[scenario],
                    f"{number * SOURCES:,}",
                    program,
                    spread(runs, lambda each: each.seconds, 2),
                    spread(runs, lambda each: each.cpu_seconds, 2),
                    spread(runs, lambda each: each.server_cpu_seconds, 1),
                    spread(runs, lambda each: each.peak_mib, 0),
                    spread(runs, lambda each: each.requests, 0),
                    spread(runs, lambda each: each.received / 1e6, 1),
                    spread(runs, lambda each: each.sent / 1e6, 1),
                ]
                rows.append(f"| {' | '.join(cells)} |")
    return rows


def comparison(results: Sequence[Measured]) -> list[str]:
    """Return the rows of ratios of time."""
    rows = ["| sweep | copies | compared with bare Python | compared with bare Go |", "|---|---|---|---|"]
    for scenario in SCENARIOS:
        for number in sorted({each.namespaces for each in results}):
            against = [ratios(results, other, scenario, number) for other in ("bare Python", "bare Go")]
            rows.append(f"| {TITLES[scenario]} | {number * SOURCES:,} | {' | '.join(against)} |")
    return rows


def growth(results: Sequence[Measured]) -> list[str]:
    """Return the rows of exponents."""
    rows = ["| sweep | seconds | requests | peak MiB |", "|---|---|---|---|"]
    figures: list[Figure] = [lambda each: each.seconds, lambda each: each.requests, lambda each: each.peak_mib]
    for scenario in SCENARIOS:
        cells = [f"{exponent(results, scenario, figure):.2f}" for figure in figures]
        rows.append(f"| {TITLES[scenario]} | {' | '.join(cells)} |")
    return rows


def plot(results: Sequence[Measured]) -> None:
    """Draw seconds over copies, a panel for each scenario."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kube-chores"
    from matplotlib import pyplot

    numbers = sorted({each.namespaces for each in results})
    figure, axes = pyplot.subplots(1, len(SCENARIOS), figsize=(11, 3.6), layout="constrained")
    for axis, scenario in zip(axes, SCENARIOS, strict=True):
        for program in LABELS:
            values = [[each.seconds for each in of(results, program, scenario, number)] for number in numbers]
            middle = [median(each) for each in values]
            bars = [
                [m - min(v) for m, v in zip(middle, values, strict=True)],
                [max(v) - m for m, v in zip(middle, values, strict=True)],
            ]
            axis.errorbar([n * SOURCES for n in numbers], middle, yerr=bars, marker="o", capsize=3, label=program)
        axis.set(xscale="log", yscale="log", title=TITLES[scenario], xlabel="copies")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds, process start to exit")
    axes[0].legend()
    figure.savefig(PLOT, metadata={"Date": None})


def memory(results: Sequence[Measured]) -> list[str]:
    """Return the rows of memory of a converged run."""
    numbers = sorted({each.namespaces for each in results})
    rows = [f"| client | {' | '.join(f'{number * SOURCES:,} copies' for number in numbers)} | last to middle |"]
    rows.append("|---|" + "---|" * (len(numbers) + 1))
    for program in LABELS:
        peaks = [median(each.peak_mib for each in of(results, program, "converged", number)) for number in numbers]
        cells = [*(f"{peak:.1f}" for peak in peaks), f"{peaks[-1] / peaks[-2]:.2f}" if len(peaks) > 1 else "-"]
        rows.append(f"| {program} | {' | '.join(cells)} |")
    return rows


def unrelated(results: Sequence[Measured]) -> list[str]:
    """Return the rows of converged runs next to objects that kube-chores does not manage."""
    rows = ["| cluster | seconds | peak MiB | requests | bytes in |", "|---|---|---|---|---|"]
    for scenario in dict.fromkeys(each.scenario for each in results):
        runs = [each for each in results if each.scenario == scenario]
        figures: list[tuple[Figure, int]] = [
            (lambda each: each.seconds, 2),
            (lambda each: each.peak_mib, 1),
            (lambda each: each.requests, 0),
            (lambda each: each.received, 0),
        ]
        cells = [spread(runs, figure, digits) for figure, digits in figures]
        rows.append(f"| {scenario} | {' | '.join(cells)} |")
    return rows


def rules(results: Sequence[tuple[int, Measured]]) -> list[str]:
    """Return the rows of runs with many rules."""
    rows = ["| rules | copies | run | seconds | peak MiB | requests |", "|---|---|---|---|---|---|"]
    for number, scenario in dict.fromkeys((number, each.scenario) for number, each in results):
        runs = [each for of_rules, each in results if (of_rules, each.scenario) == (number, scenario)]
        cells = [
            spread(runs, lambda each: each.seconds, 2),
            spread(runs, lambda each: each.peak_mib, 1),
            spread(runs, lambda each: each.requests, 0),
        ]
        what = "with the new rules" if scenario == "first" else scenario
        rows.append(f"| {number:,} | {number * NAMESPACES_PER_RULE:,} | {what} | {' | '.join(cells)} |")
    return rows


def kinds(results: Sequence[tuple[str, Measured]]) -> list[str]:
    """Return the rows of sweeps of each kind, compared with those of Secrets in the same round."""
    rows = [
        "| sweep | copied | time | client CPU | server CPU | peak MiB | requests | MB in | MB out |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for scenario in SCENARIOS:
        runs = [(name, each) for name, each in results if each.scenario == scenario]
        base = [each for name, each in runs if name == BASE]
        for name in dict.fromkeys(name for name, _ in results):
            own = [each for of_name, each in runs if of_name == name]
            cells = [
                TITLES[scenario],
                name,
                ratio(own, base, lambda each: each.seconds),
                ratio_of_medians(own, base, lambda each: each.cpu_seconds),
                ratio_of_medians(own, base, lambda each: each.server_cpu_seconds),
                spread(own, lambda each: each.peak_mib, 0),
                spread(own, lambda each: each.requests, 0),
                spread(own, lambda each: each.received / 1e6, 1),
                spread(own, lambda each: each.sent / 1e6, 1),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def ratio(own: Sequence[Measured], others: Sequence[Measured], figure: Figure) -> str:
    """Return the median and the range of the ratios of pairs of runs."""
    pairs = [figure(one) / figure(two) for one, two in zip(own, others, strict=True)]
    return f"{median(pairs):.2f} ({min(pairs):.2f}-{max(pairs):.2f})"


def ratio_of_medians(own: Sequence[Measured], others: Sequence[Measured], figure: Figure) -> str:
    """Return the ratio of the medians; `-` if the other is too short to be measured."""
    base = median(map(figure, others))
    return f"{median(map(figure, own)) / base:.2f}" if base >= MEASURABLE_SECONDS else "-"


def startup(imports: Sequence[tuple[str, float, float]], first: dict[str, float]) -> list[str]:
    """Return the rows of imports and of the time until the first request."""
    rows = ["| what | ms | MiB in use after it |", "|---|---|---|"]
    rows += [f"| {name} | {seconds * 1000:.0f} | {mb:.1f} |" for name, seconds, mb in imports]
    rows += [
        f"| **process start to first request, {way}** | **{seconds * 1000:.0f}** | |" for way, seconds in first.items()
    ]
    return rows


def written(text: str, found: dict[str, Any]) -> str:
    """Return the page with its tables from these results."""
    sweeps = [Measured(**each) for each in found["sweeps"]]
    tables = {
        "conditions": [f"- {name}: {value}" for name, value in found["conditions"].items()],
        "ratios": comparison(sweeps),
        "memory": memory(sweeps),
        "growth": growth(sweeps),
        "unrelated": unrelated([Measured(**each) for each in found["unrelated"]]),
        "rules": rules([(number, Measured(**each)) for number, each in found["rules"]]),
        "kinds": kinds([(name, Measured(**each)) for name, each in found["kinds"]]),
        "startup": startup(*found["startup"]),
        "all": table(sweeps),
    }
    for name, rows in tables.items():
        begin = BEGIN.replace("written", f"{name}: written")
        before, mark, rest = text.partition(begin)
        assert mark, f"docs/performance.md has no mark for {name}"
        text = before + begin + "\n".join(rows) + "\n" + END + rest.partition(END)[2]
    return text


def main() -> None:
    """Write the plot, and the tables between the marks of the page."""
    found = json.loads(RESULTS.read_text())
    plot([Measured(**each) for each in found["sweeps"]])
    PAGE.write_text(written(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
