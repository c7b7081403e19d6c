"""Draw docs/performance-WORLD.svg: six figures over size, for all programs of a world."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.compare import World
from benchmarks.measured import Measured
from benchmarks.tables import CLIENT, MIB, RECEIVED, REQUESTS, SECONDS, SERVER, Figure
from tests.manifests import ROOT

PANELS = (SECONDS, MIB, REQUESTS, RECEIVED, CLIENT, SERVER)
STYLES = ("-", "--", ":", "-.")


def draw(world: World, results: Sequence[Measured]) -> None:
    """Draw a world: a colour for each program, a style of line for each scenario. Both axes are logarithmic."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kube-chores"
    mpl.rcParams["svg.fonttype"] = "none"  # text as text: a smaller file
    from matplotlib import pyplot
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):  # type: ignore[misc, unused-ignore]
        """Write 0.2 instead of 2e-01."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    programs = dict.fromkeys(program for pair in world.compared() for program in pair)
    figure, axes = pyplot.subplots(2, 3, figsize=(11, 7), layout="constrained")
    for axis, panel in zip(axes.flat, PANELS, strict=True):
        for number, program in enumerate(programs):
            for scenario, style in zip(world.scenarios, STYLES, strict=False):
                points = _points(results, program, scenario, panel)
                if points:
                    label = f"{program}, {scenario}"
                    axis.plot(*zip(*points, strict=True), style, color=f"C{number}", marker="o", ms=3, label=label)
        axis.set(xscale="log", yscale="log", title=panel.name, xlabel=world.unit)
        axis.yaxis.set_major_formatter(Plain(minor_thresholds=(2, 0.7)))
        axis.yaxis.set_minor_formatter(Plain(minor_thresholds=(2, 0.7)))
        axis.grid(alpha=0.3)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    figure.savefig(ROOT / "docs" / f"performance-{world.name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def _points(results: Sequence[Measured], program: str, scenario: str, figure: Figure) -> list[tuple[int, float]]:
    """Return sizes and medians. Zero has no logarithm."""
    found: dict[int, list[float]] = {}
    for each in results:
        if (each.program, each.scenario) == (program, scenario):
            found.setdefault(each.size, []).append(figure.of(each))
    return [(size, median(values)) for size, values in sorted(found.items()) if median(values) > 0]
