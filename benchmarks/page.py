"""Write the tables of docs/performance.md and its plots from the results in benchmarks/results/performance.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks import clusters, latency, plots, server_cost, tables
from benchmarks.measured import Measured
from benchmarks.measurements import JOBS
from tests.generated import with_rows
from tests.manifests import ROOT

RESULTS, PAGE = ROOT / "benchmarks" / "results" / "performance.json", ROOT / "docs" / "performance.md"


def written(text: str, found: Mapping[str, Any]) -> str:
    """Return the page with its tables from these results."""
    for name, rows in all_tables(found).items():
        text = with_rows(text, f"<!-- {name}: written by `make benchmark` -->", rows)
    return text


def all_tables(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return all tables by their names."""
    results = {world.name: measured(found[world.name]) for worlds in JOBS for world in worlds}
    return {
        "conditions": [f"- {name}: {value}" for name, value in found["conditions"].items()],
        **{worlds[0].name: tables.of_job(worlds, results) for worlds in JOBS},
        "clusters": clusters.rows(found["clusters"]),
        "server-cost": server_cost.rows(found["server-cost"]),
        "latency": latency.rows(found["latency"]),
    }


def measured(stored: Any) -> list[Measured]:
    """Return stored results of a world."""
    return [Measured(**each) for each in stored]


def stored(found: Mapping[str, Any]) -> str:
    """Return results as JSON with a line for each run."""
    return _lines(_rounded(found)) + "\n"


def _lines(value: Any, indent: str = "\n") -> str:
    """Return JSON with a line for each item of the outermost lists."""
    deeper = f"{indent} "
    if isinstance(value, dict) and any(isinstance(each, (dict, list)) for each in value.values()):
        items = [f"{deeper}{json.dumps(name)}: {_lines(each, deeper)}" for name, each in value.items()]
        return "{" + ",".join(items) + indent + "}"
    if isinstance(value, list):
        return "[" + ",".join(f"{deeper}{json.dumps(each)}" for each in value) + indent + "]"
    return json.dumps(value)


def _rounded(value: Any) -> Any:
    """Return JSON with at most four digits after the point."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value


def main() -> None:
    """Write the plots, and the tables between the marks of the page."""
    found = json.loads(RESULTS.read_text())
    for world, *_ in JOBS:
        plots.draw(world, measured(found[world.name]))
    PAGE.write_text(written(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
