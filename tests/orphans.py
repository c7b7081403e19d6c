"""What a cluster can leave behind on a machine, to compare before and after."""

import os
import secrets
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests import cgroups
from tests.cluster_process import PLAYGROUND, PREFIX, cgroup_of
from tests.control_plane import ROOT
from tests.namespaces import CGROUPS

# In the environment of this process and of all that it starts, so that their clusters are known as its own.
MARK = "KUBE_CHORES_TEST_RUN"

# Where the programs of a node store files by default.
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
    """Return processes, mounts, cgroups, interfaces, packet rules and files, one line each, as `KIND: DETAILS`.

    A namespace exists as long as one of its processes or mounts. Only the clusters of a process that called `mark` are
    its own. Others, as those of another worker, of a soak or of another checkout, can start and end at any time: they
    are left out.
    """
    processes = _processes()
    others = {pid: folder for pid, folder in _clusters(processes).items() if not _is_own(pid)}
    found = {
        "process": _of_clusters(processes, set(others)),
        "mount": [line for line in Path("/proc/self/mounts").read_text().splitlines() if not _is_elsewhere(line)],
        "cgroup": _cgroups({cgroup_of(folder) for folder in others.values()}),
        "interface": [path.name for path in Path("/sys/class/net").iterdir()],
        "packet rule": [line for line in _output("iptables-save") if line.startswith(("-", "*"))],
        "file": [str(path) for path in _files() if path not in others.values()],
    }
    return {f"{what}: {line}" for what, lines in found.items() for line in lines}


def mark() -> None:
    """Let all clusters that this process starts from now on be its own."""
    os.environ[MARK] = secrets.token_hex(8)


def _processes() -> dict[str, _Process]:
    listed = (line.split(maxsplit=3) for line in _output("ps", "-ww", "-eo", "pid=,ppid=,pidns=,args="))
    return {pid: _Process(*rest) for pid, *rest in listed}


def _clusters(processes: dict[str, _Process]) -> dict[str, Path]:
    """Return the folder of each cluster by its process."""
    words = {
        pid: process.command.partition(" tests.cluster_process run ")[2].split() for pid, process in processes.items()
    }
    return {pid: Path(folder[0]) for pid, folder in words.items() if folder}


def _is_own(pid: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:  # the process has just ended
        return False
    return MARK in os.environ and f"{MARK}={os.environ[MARK]}" in environ


def _is_elsewhere(mount: str) -> bool:
    """Whether the mount belongs to another checkout, which mounts folders while it builds an image."""
    point = mount.split()[1]
    return "/.tools/" in point and not point.startswith(f"{ROOT}/")


def _of_clusters(processes: dict[str, _Process], others: set[str]) -> list[str]:
    """Return cluster processes, and processes in another process namespace than this one.

    A fault of a soak starts a program of its cluster again: then it is a child of the soak, but still in a namespace
    that a child of the cluster process has created.
    """
    own = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    here = (own, "-")
    clusters = _clusters(processes)
    theirs = {pid for pid in processes if not others.isdisjoint(_ancestry(pid, processes))}
    namespaces = {processes[pid].namespace for pid in theirs}.difference(here)
    return [
        f"{pid} {process.command}"
        for pid, process in processes.items()
        if (process.namespace not in here or pid in clusters)
        and not any(each in theirs or processes[each].namespace in namespaces for each in _ancestry(pid, processes))
    ]


def _ancestry(pid: str, processes: dict[str, _Process]) -> list[str]:
    """Return a process and its ancestors."""
    ancestry = []
    while pid in processes:
        ancestry.append(pid)
        pid = processes[pid].parent
    return ancestry


def _cgroups(others: set[str]) -> list[str]:
    """Return the two upper levels: other programs, and tests of memory limits, create and remove cgroups below."""
    found = [path for pattern in ("*/", "*/*/") for path in CGROUPS.glob(pattern)]
    return [str(path) for path in found if path.name not in others and not path.name.startswith(cgroups.PREFIX)]


def _files() -> list[Path]:
    found = [*Path(tempfile.gettempdir()).glob(f"{PREFIX}*"), PLAYGROUND]
    for folder in _FOLDERS:
        found += Path(folder).glob("*")
    return [path for path in found if path.exists()]


def _output(*command: str) -> list[str]:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    return done.stdout.splitlines()
