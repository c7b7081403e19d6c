"""Measure a run before its first request: each import, and the time from process start to that request."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from benchmarks.measured import environment
from benchmarks.worlds.sync_copies import WITH_SERVICE_ACCOUNT

# In the order of a run. A module that several of these import counts for the first of them.
IMPORTS = {
    "Python": "pass",
    "click": "import click",
    "msgspec": "import msgspec",
    "pycurl": "import pycurl",
    "sync-copies": "import jobs.__main__, jobs.sync_copies",
    "YAML, and kubeconfigs": "import yaml, kubernetes.config, jobs.kit.api.kubeconfig",
}
STEP = """
import time
began = time.perf_counter()
{statement}
seconds = time.perf_counter() - began
print(seconds, int(open("/proc/self/status").read().partition("VmRSS:")[2].split()[0]) / 1024)
"""


def imports(runs: int) -> list[tuple[str, float, float]]:
    """Return for each import its seconds and the MiB in use after it: medians over processes."""
    script = "".join(STEP.format(statement=statement) for statement in IMPORTS.values())
    found: list[list[tuple[float, float]]] = []
    for _ in range(runs):
        out = subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment({}), cwd="/"
        ).stdout
        found.append([(float(line.split()[0]), float(line.split()[1])) for line in out.splitlines()])
    began = [bare() for _ in range(runs)]
    steps = dict(zip(IMPORTS, zip(*found, strict=True), strict=True))
    rows = [(name, median(s for s, _ in step), median(mb for _, mb in step)) for name, step in steps.items()]
    return [("Python", median(began), rows[0][2]), *rows[1:]]


def bare() -> float:
    """Return the seconds of a Python process that does nothing."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment({}))
    return time.perf_counter() - began


def first_request(runs: int) -> dict[str, float]:
    """Return the median seconds from process start until the API server accepts a connection."""
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as server:
        folder, port = Path(name), server.getsockname()[1]
        for file in ("token", "ca.crt", "namespace"):
            (folder / file).write_text("bench")
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(port)))
        pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port), "HOME": name}
        ways = {
            "in a pod": ([sys.executable, "-c", WITH_SERVICE_ACCOUNT, name, "sync-copies"], pod),
            "with a kubeconfig": (
                [sys.executable, "-m", "jobs", "sync-copies"],
                {"KUBECONFIG": str(folder / "kubeconfig")},
            ),
        }
        return {way: median(until_connected(*how, server) for _ in range(runs)) for way, how in ways.items()}


def until_connected(command: list[str], environ: dict[str, str], server: socket.socket) -> float:
    """Return the seconds from the start of a program until it connects; then kill it."""
    began = time.perf_counter()
    program = subprocess.Popen(command, env=environment(environ), cwd="/", stderr=subprocess.DEVNULL)
    connection, _ = server.accept()
    seconds = time.perf_counter() - began
    program.kill()
    program.wait()
    connection.close()
    return seconds


def kubeconfig(port: int) -> dict[str, object]:
    """Return a kubeconfig for a server that accepts connections and never answers."""
    return {
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }


def measure(runs: int) -> Any:
    """Measure both."""
    return [imports(5 * runs), first_request(5 * runs)]


def tables(stored: Any) -> dict[str, list[str]]:
    """Return the table of the page."""
    steps, first = stored
    rows = ["| what | ms | MiB in use after it |", "|---|---|---|"]
    rows += [f"| {name} | {seconds * 1000:.0f} | {mb:.1f} |" for name, seconds, mb in steps]
    idle = steps[0][1]  # a process of Python that does nothing
    rows += [
        f"| **process start to first request, {way}** | **{seconds * 1000:.0f}**, {seconds / idle:.1f} times Python | |"
        for way, seconds in first.items()
    ]
    return {"startup": rows}
