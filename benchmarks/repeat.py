"""Repeat all measurements of docs/performance.md on control planes of this machine, and write the page."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from typing import Any

import pycurl

from benchmarks import page
from benchmarks.measurements import MEASUREMENTS
from tests.control_plane import programs


def conditions() -> dict[str, str]:
    """Return the machine and the versions that the figures depend on."""
    go = subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout.strip()
    version = programs().name.rpartition("-v")[2]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, shared by server and client",
        "server": f"kube-apiserver {version} with audit log, etcd without fsync; loopback",
        "client": f"Python {platform.python_version()}, {pycurl.version.split()[1]}, {go}",
    }


def repeat(names: list[str], runs: int) -> None:
    """Measure, and write the results after each measurement."""
    results: dict[str, Any] = json.loads(page.RESULTS.read_text())
    began = time.monotonic()
    for name in names:
        started = time.monotonic()
        found = MEASUREMENTS[name](runs)
        if not found:
            continue  # it printed why this machine cannot measure it; the other results stay
        results[name] = found
        results["conditions"] = conditions()
        page.RESULTS.write_text(page.stored(results))
        now = time.monotonic()
        sys.stderr.write(f"{name}: {(now - started) / 60:.1f} minutes, {(now - began) / 60:.1f} in all\n")
    page.main()
