"""What of a machine a cluster could leave something in, to compare before and after."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests import cgroups
from tests.cluster_process import PLAYGROUND, PREFIX, cgroup_of
from tests.control_plane import ROOT
from tests.namespaces import CGROUPS

# Where the programs of a node keep things by default.
_FOLDERS = (
    "/run",
    "/run/netns",
    "/run/containerd",
    "/var/lib",
    "/var/log",
    "/opt",
    "/usr/libexec",
    "/etc/cni",
    "/etc/containerd",
)


class _Process(NamedTuple):
    parent: str
    namespace: str
    command: str


def machine() -> set[str]:
    """Processes, mounts, cgroups, interfaces, packet rules and files, as lines that say what they are.

    A namespace is there as long as a process or a mount is. What belongs to the cluster of another checkout is left
    out: it comes and goes as it likes.
    """
    processes = _processes()
    others = {pid: folder for pid, folder in _keepers(processes).items() if not _is_ours(pid)}
    found = {
        "process": _of_clusters(processes, set(others)),
        "mount": [line for line in Path("/proc/self/mounts").read_text().splitlines() if not _is_elsewhere(line)],
        "cgroup": _cgroups({cgroup_of(folder) for folder in others.values()}),
        "interface": [path.name for path in Path("/sys/class/net").iterdir()],
        "packet rule": [line for line in _said("iptables-save") if line.startswith(("-", "*"))],
        "file": [str(path) for path in _files() if path not in others.values()],
    }
    return {f"{what}: {line}" for what, lines in found.items() for line in lines}


def _processes() -> dict[str, _Process]:
    listed = (line.split(maxsplit=3) for line in _said("ps", "-ww", "-eo", "pid=,ppid=,pidns=,args="))
    return {pid: _Process(*rest) for pid, *rest in listed}


def _keepers(processes: dict[str, _Process]) -> dict[str, Path]:
    """The folder that each keeper keeps."""
    words = {
        pid: process.command.partition(" tests.cluster_process keep ")[2].split() for pid, process in processes.items()
    }
    return {pid: Path(folder[0]) for pid, folder in words.items() if folder}


def _is_ours(keeper: str) -> bool:
    try:
        return Path(f"/proc/{keeper}/cwd").resolve(strict=True) == ROOT.resolve()
    except OSError:  # it has just ended
        return False


def _is_elsewhere(mount: str) -> bool:
    """Whether another checkout mounts something, as it does while it builds an image."""
    point = mount.split()[1]
    return "/.tools/" in point and not point.startswith(f"{ROOT}/")


def _of_clusters(processes: dict[str, _Process], others: set[str]) -> list[str]:
    """Keepers, and who lives in another process namespace than we do."""
    ours = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    keepers = _keepers(processes)
    return [
        f"{pid} {process.command}"
        for pid, process in processes.items()
        if (process.namespace not in (ours, "-") or pid in keepers) and others.isdisjoint(_line(pid, processes))
    ]


def _line(pid: str, processes: dict[str, _Process]) -> list[str]:
    """A process and its ancestors."""
    line = []
    while pid in processes:
        line.append(pid)
        pid = processes[pid].parent
    return line


def _cgroups(others: set[str]) -> list[str]:
    """The uppermost: whoever else works on this machine has some that come and go below, and so do tests of memory."""
    found = [path for pattern in ("*/", "*/*/") for path in CGROUPS.glob(pattern)]
    return [str(path) for path in found if path.name not in others and not path.name.startswith(cgroups.PREFIX)]


def _files() -> list[Path]:
    found = [*Path(tempfile.gettempdir()).glob(f"{PREFIX}*"), PLAYGROUND]
    for folder in _FOLDERS:
        found += Path(folder).glob("*")
    return [path for path in found if path.exists()]


def _said(*command: str) -> list[str]:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    return done.stdout.splitlines()
