"""Run a program once, and measure it: time, CPU of client and server, memory, requests and bytes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, CalledProcessError, Popen
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
MAXRSS_PER_MIB = 1 << (20 if sys.platform == "darwin" else 10)
# The peak that the kernel reports for a process starts with that of its parent, so the parent must be small.
# A signal that ends it ends the program.
STARTER = """
import os, signal, sys, time
ends = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, ends)
quiet = [(os.POSIX_SPAWN_OPEN, 2, sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)]
began = time.monotonic()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=quiet, setsigmask=())
for each in ends:
    signal.signal(each, lambda *_: os.kill(pid, signal.SIGTERM))
signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
_, status, usage = os.wait4(pid, 0)
seconds = time.monotonic() - began
print(os.waitstatus_to_exitcode(status), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, file=sys.stderr)
"""


@dataclass(frozen=True)
class Measured:
    """One run of one program. Bytes are those of bodies."""

    benchmark: str
    program: str
    scenario: str
    size: int
    seconds: float
    cpu_seconds: float
    apiserver_cpu_seconds: float
    etcd_cpu_seconds: float
    peak_mib: float
    requests: int
    received: int
    sent: int
    written: int


class Usage(NamedTuple):
    """What one process used, and what it printed."""

    exit_code: int
    seconds: float
    cpu_seconds: float
    peak_mib: float
    stdout: bytes
    stderr: str


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a measured program, with more variables."""
    # Without its compiled modules, each run of Python would compile them again.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT), **env}


def run_process(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path = Path("/"),
    started: Callable[[Popen[bytes]], None] = lambda _process: None,
) -> Usage:
    """Run a program to its end, with more environment variables.

    `started` is called with a process that ends the program if a signal ends that process.
    """
    with tempfile.TemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        starter = [sys.executable, "-S", "-c", STARTER, err.name, *command]
        with Popen(starter, stdout=out, stderr=PIPE, env=environment(env), cwd=cwd) as process:
            started(process)
            _, done = process.communicate()
        if process.returncode:
            raise CalledProcessError(process.returncode, starter)
        code, seconds, cpu, peak = done.split()
        out.seek(0)
        peak_mib = float(peak) / MAXRSS_PER_MIB
        return Usage(int(code), float(seconds), float(cpu), peak_mib, out.read(), err.read().decode(errors="replace"))


def run_once(
    command: Sequence[str], env: Mapping[str, str], benchmark: str, program: str, scenario: str, size: int
) -> Measured:
    """Run a program that prints its requests and bytes, as a job with `-o json` does; it must exit with 0."""
    before = server_cpu()
    usage = run_process(command, env)
    after = server_cpu()
    assert usage.exit_code == 0, (
        f"{program} exited with {usage.exit_code}: {usage.stderr}{usage.stdout.decode()[-2000:]}"
    )
    return Measured(
        benchmark,
        program,
        scenario,
        size,
        usage.seconds,
        usage.cpu_seconds,
        after["kube-apiserver"] - before["kube-apiserver"],
        after["etcd"] - before["etcd"],
        usage.peak_mib,
        **figures_of(json.loads(usage.stdout)),
    )


def figures_of(report: Mapping[str, Any]) -> dict[str, int]:
    """Return requests, bytes and number of writes of a report: that of a job, or that of a bare client."""
    if "traffic" not in report:
        return {name: report[name] for name in ("requests", "received", "sent", "written")}
    traffic, summary = report["traffic"], report["summary"]
    return {
        "requests": sum(traffic["requests"].values()),
        "received": traffic["bytesReceived"],
        "sent": traffic["bytesSent"],
        "written": sum(
            summary.get(outcome, 0) for outcome in ("created", "configured", "deleted", "annotated", "restarted")
        ),
    }


def server_cpu() -> dict[str, float]:
    """Return the CPU seconds so far of each program that this process started, by the name of the program.

    The kernel cuts names after 15 characters.
    """
    found = {"etcd": 0.0, "kube-apiserver": 0.0}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # the process has exited
        fields = rest.split()
        if int(fields[1]) == os.getpid():
            name = head.partition("(")[2]
            found[name] = found.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS
    return found
