"""What of a machine a cluster could leave something in, to compare before and after."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.keeper import PLAYGROUND, PREFIX

# Where the programs of a node keep things by default.
_FOLDERS = ("/run", "/run/netns", "/run/containerd", "/var/lib", "/var/log", "/opt", "/usr/libexec", "/etc/cni")


def machine() -> set[str]:
    """Processes, namespaces, mounts, cgroups, interfaces, packet rules and files, as lines that say what they are."""
    return {f"{what}: {line}" for what, lines in _now().items() for line in lines}


def _now() -> dict[str, list[str]]:
    return {
        "process": _processes(),
        "namespace": _said("lsns", "--noheadings", "--output", "NS,TYPE"),
        "mount": Path("/proc/self/mounts").read_text().splitlines(),
        # Whoever else works on this machine has cgroups that come and go, below its own.
        "cgroup": [str(path) for pattern in ("*/", "*/*/") for path in Path("/sys/fs/cgroup").glob(pattern)],
        "interface": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "packet rule": [line for line in _said("iptables-save") if line.startswith(("-", "*"))],
        "file": [str(path) for path in _files()],
    }


def _processes() -> list[str]:
    """Those of other process namespaces than ours, and keepers."""
    ours = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
    listed = [line.split(maxsplit=2) for line in _said("ps", "-ww", "-eo", "pid=,pidns=,args=")]
    return [f"{pid} {args}" for pid, pidns, args in listed if pidns not in (ours, "-") or " tests.keeper keep " in args]


def _files() -> list[Path]:
    found = [*Path("/tmp").glob(f"{PREFIX}*"), PLAYGROUND]
    for folder in _FOLDERS:
        found += Path(folder).glob("*")
    return [path for path in found if path.exists()]


def _said(*command: str) -> list[str]:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    return done.stdout.splitlines()
