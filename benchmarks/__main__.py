"""Repeat all measurements (`make benchmark`): write docs/performance.json, and the tables and plot of its page.

Takes about 50 minutes on two cores, which should have no other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pycurl

from benchmarks import kinds, page, startup, surroundings, sweep
from tests.control_plane import programs


def conditions() -> dict[str, str]:
    """Return the machine and the versions that the figures depend on."""
    go = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout.strip()
    version = programs().name.rpartition("-v")[2]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, shared by server and client",
        "server": f"kube-apiserver {version} with audit log, etcd without fsync, kube-controller-manager; loopback",
        "client": f"Python {platform.python_version()}, {pycurl.version.split()[1]}, {go}",
    }


def main() -> None:
    """Measure, and write the results after each measurement."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--namespaces", default="100,1000,3000", help="of the sweeps, with commas; others are kept")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--only", choices=["sweeps", "unrelated", "rules", "kinds", "startup"], help="keep the other results"
    )
    given = parser.parse_args()
    measurements: dict[str, Callable[[], Any]] = {
        "startup": lambda: [startup.imports(5 * given.runs), startup.first_request(5 * given.runs)],
        "sweeps": lambda: sweeps(numbers(given.namespaces), given.runs, results.get("sweeps", [])),
        "unrelated": lambda: [asdict(each) for each in surroundings.unrelated(given.runs)],
        "rules": lambda: [[rules, asdict(each)] for rules, each in surroundings.many_rules(given.runs)],
        "kinds": lambda: [[name, asdict(each)] for name, each in kinds.measure()],
    }
    results: dict[str, Any] = json.loads(page.RESULTS.read_text()) if page.RESULTS.exists() else {}
    for name, measure in measurements.items():
        if given.only in (None, name):
            sys.stderr.write(f"{name}\n")
            results[name] = measure()
            page.RESULTS.write_text(json.dumps({**results, "conditions": conditions()}, indent=1) + "\n")
    page.main()


def sweeps(namespaces: list[int], runs: int, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measure sweeps over these numbers of namespaces, and keep the earlier results of other numbers."""
    kept = [each for each in before if each["namespaces"] not in namespaces]
    return [*kept, *(asdict(each) for each in sweep.measure(namespaces, runs))]


def numbers(text: str) -> list[int]:
    """Parse a list of numbers, separated by commas."""
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    main()
