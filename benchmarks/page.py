"""Write the tables of docs/performance.md and its plots from the results in docs/performance.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks import plots, tables
from benchmarks.measurements import MEASUREMENTS, WORLDS, measured
from tests.manifests import ROOT, everything

RESULTS, PAGE = ROOT / "docs" / "performance.json", ROOT / "docs" / "performance.md"
END = "<!-- end -->\n"


def written(text: str, found: Mapping[str, Any]) -> str:
    """Return the page with its tables from these results. A table without marks on the page is added at its end."""
    for name, rows in all_tables(found).items():
        text = with_table(text, name, rows)
    return text


def all_tables(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return all tables by their names."""
    of_worlds = {world.name: measured(found[world.name]) for world in WORLDS if world.name in found}
    rows = {
        "conditions": [f"- {name}: {value}" for name, value in found["conditions"].items()],
        "summary": tables.summary(WORLDS, of_worlds, memory_limits()),
    }
    for name, measurement in MEASUREMENTS.items():
        if name in found:
            rows |= measurement.tables(found[name])
    return rows


def with_table(text: str, name: str, rows: list[str]) -> str:
    """Return the page with one table between its marks."""
    begin = f"<!-- {name}: written by `make benchmark` -->\n"
    if begin not in text:
        text += f"\n## {name.capitalize()}\n\n{begin}{END}"
    before, _, rest = text.partition(begin)
    return before + begin + "\n".join(rows) + "\n" + END + rest.partition(END)[2]


def memory_limits() -> dict[str, str]:
    """Return the memory limit of each CronJob of the manifests, by its name."""
    return {
        obj["metadata"]["name"]: container["resources"]["limits"]["memory"].replace("Mi", " MiB")
        for obj in everything()
        if obj["kind"] == "CronJob"
        for container in obj["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    }


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
    for world in WORLDS:
        results = measured(found.get(world.name, []))
        if len(tables.sizes(results)) > 1:
            plots.draw(world, results)
    PAGE.write_text(written(PAGE.read_text(), found))


if __name__ == "__main__":
    main()
