"""Measure the cost of the admission policies for sync-copies: `python -m benchmarks.policies` prints a table.

Pairs of sweeps run on one control plane, with and without the policies in turn. Each writes 10 Secrets to 500
namespaces, and then has nothing to write. Takes about 3 minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.sweep import SOURCES, Bench, Measured
from tests.apis import Api, Object, real_api
from tests.control_plane import control_plane
from tests.manifests import everything
from tests.policies import is_policy, wait_until_policies_act, without_policies

NAMESPACES = 500
POLICIES = [obj for obj in everything() if is_policy(obj)]


def measure(pairs: int, variants: dict[str, list[Object]]) -> dict[tuple[str, str], list[Measured]]:
    """Return the sweeps by (variant, scenario); `variants` has the policies of each variant."""
    found: dict[tuple[str, str], list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder, control_plane() as plane:
        bench = Bench(plane, Path(folder), Path(), NAMESPACES)
        for obj in without_policies():
            bench.api.put(obj)
        bench.prepare()
        account = bench.api.service_account_kubeconfig("kube-chores", "sync-copies")
        bench.plane = replace(plane, kubeconfig=account)
        bench.run("sync-copies", "warm-up")  # a server is slower right after its start
        bench.empty("sync-copies")
        for pair in range(pairs):
            for variant in sorted(variants, reverse=bool(pair % 2)):
                # The server can close a connection that is idle during a sweep.
                with_policies(real_api(plane, Path(folder)), variants[variant])
                for scenario, written in (("first", NAMESPACES * SOURCES), ("converged", 0)):
                    measured, done = bench.run("sync-copies", scenario)
                    assert done == written
                    found.setdefault((variant, scenario), []).append(measured)
                bench.empty("sync-copies")
                without(real_api(plane, Path(folder)), variants[variant])
    return found


def with_policies(api: Api, policies: Iterable[Object]) -> None:
    """Create the policies and wait until the API server enforces them."""
    for obj in policies:
        api.put(obj)
    wait_until_policies_act(api)


def without(api: Api, policies: Iterable[Object]) -> None:
    """Delete the policies and wait until the API server no longer enforces them."""
    for obj in policies:
        api.delete(obj)
    wait_until_policies_act(api)


def main() -> None:
    """Measure, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    show(measure(given.pairs, {"without": [], "with": POLICIES}), "without")


def show(found: dict[tuple[str, str], list[Measured]], base: str) -> None:
    """Print a row for each scenario and variant, compared with the variant `base`."""
    print("| sweep | policies | seconds | CPU of the server, seconds | for each write |")
    print("|---|---|---|---|---|")
    for (variant, scenario), runs in sorted(found.items(), key=lambda item: item[0][::-1]):
        seconds, cpu = median(run.seconds for run in runs), median(run.server_cpu_seconds for run in runs)
        pairs = zip(runs, found[base, scenario], strict=True)
        more = median(run.server_cpu_seconds - other.server_cpu_seconds for run, other in pairs)
        each = f"+{more * 1000 / (NAMESPACES * SOURCES):.2f} ms" if variant != base and scenario == "first" else ""
        print(f"| {scenario} | {variant} | {seconds:.2f} | {cpu:.2f} | {each} |")


if __name__ == "__main__":
    main()
