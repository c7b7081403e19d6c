"""Measure runs in a full cluster: with large Secrets that kube-chores does not manage, and with a thousand rules."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.sweep import HOME, Bench, Measured, print_measured, team
from tests.apis import Api
from tests.canary import canary
from tests.control_plane import control_plane
from tests.worlds import encoded, rule, secret

NAMESPACES = 1000
UNRELATED, UNRELATED_SIZE = 5000, 100 * 1024
RULES = (1, 10, 100, 1000)
NAMESPACES_PER_RULE = 10


def unrelated(runs: int) -> Iterator[Measured]:
    """Measure converged runs before and after the cluster is filled with Secrets that no rule selects."""
    with tempfile.TemporaryDirectory() as folder, control_plane() as plane:
        bench = Bench(plane, Path(folder), Path(), NAMESPACES)
        bench.prepare()
        bench.run("sync-copies", "first")
        yield from converged(bench, "alone", runs)
        bench.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench-unrelated"}})
        data = {"key": encoded(canary().ljust(UNRELATED_SIZE, "x"))}
        body = secret("bench-unrelated", labels={"other": "yes"}, data=data)
        path = "/api/v1/namespaces/bench-unrelated/secrets"

        def fill(number: int) -> None:
            bench.api.call("POST", path, {**body, "metadata": {**body["metadata"], "name": f"unrelated-{number}"}})

        bench.each(fill, range(UNRELATED))
        yield from converged(bench, "with 5,000 large Secrets", runs)


def many_rules(runs: int) -> Iterator[tuple[int, Measured]]:
    """Measure runs with increasing numbers of rules, each with its own source namespace and ten targets."""
    with tempfile.TemporaryDirectory() as folder, control_plane() as plane:
        bench = Bench(plane, Path(folder), Path(), NAMESPACES)
        bench.prepare()
        bench.api.delete(rule("bench", HOME, ""))
        existing = 0
        for count in RULES:
            bench.each(lambda number: add_rule(bench.api, number), range(existing, count))
            existing = count
            measured, _ = bench.run("sync-copies", "first")
            print_measured(measured)
            yield count, measured
            for measured in converged(bench, "converged", runs):
                yield count, measured


def add_rule(api: Api, number: int) -> None:
    """Create a Secret in one of the namespaces, and a rule that copies it to ten others."""
    source = secret(team(number), f"source-{number}", labels={"bench": "yes"}, data={"key": encoded(canary())})
    api.put(source)
    targets = [team((number + 1 + each) % NAMESPACES) for each in range(NAMESPACES_PER_RULE)]
    selector: dict[str, Any] = {"matchLabels": {"bench": "yes"}}
    api.put(rule(f"rule-{number}", team(number), targets, ruleType="secret", selector=selector))


def converged(bench: Bench, name: str, runs: int) -> Iterator[Measured]:
    """Measure runs, which must have nothing to write."""
    for _ in range(runs):
        measured, written = bench.run("sync-copies", name)
        assert written == 0, f"a converged run wrote {written}"
        print_measured(measured)
        yield measured
