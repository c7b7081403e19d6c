"""Network, mount and process namespaces for a cluster, and separate cgroups; all are removed afterwards.

If the first process of a process namespace ends, the kernel ends all others, including containers. Their mounts,
interfaces and rules are removed with the last one. Only cgroups remain, and must be removed one by one.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.processes import dying_with_parent

ADDRESS = "10.88.0.1"
PODS = "10.88.0.0/24"
SERVICES = "10.0.0.0/16"
CONTAINERD = Path("/etc/containerd")
CGROUPS = Path("/sys/fs/cgroup")
GIVE_UP_SECONDS = 30.0
_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
# The first process becomes the parent of every orphan and must reap it: a shell that waits does.
_FIRST = ("sh", "-c", "echo; while :; do sleep 3600 & wait; done")


def refused() -> str | None:
    """Return why this machine cannot create namespaces or cgroups, or None."""
    if not _hierarchies():
        return f"no cgroups below {CGROUPS} that this user may add to"
    if absent := [name for name in ("unshare", "nsenter") if not shutil.which(name)]:
        return f"no {' and no '.join(absent)} to create namespaces with"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else None


@contextlib.contextmanager
def namespaces(folder: Path) -> Iterator[tuple[str, ...]]:
    """Create the namespaces, with a bridge for pods, and yield the command prefix that enters them."""
    command = [*dying_with_parent(), *_UNSHARE, *_FIRST]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as outer:
        try:
            assert outer.stdout
            outer.stdout.readline()  # the first process has started, and has its own /proc
            own = f"/proc/{outer.pid}/ns"
            # `unshare` itself stays outside the process namespace that it creates.
            enter = ("nsenter", f"--net={own}/net", f"--mount={own}/mnt", f"--pid={own}/pid_for_children", "--")
            subprocess.run([*enter, "sh", "-e", "-c", _network_and_mounts(folder)], check=True)
            yield enter
        finally:
            _kill_first_process(outer.pid)


def _kill_first_process(unshare: int) -> None:
    """End the first process of the namespace; the kernel ends all others before `unshare` gets the signal and ends."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(unshare)], capture_output=True, text=True, check=False)
    for pid in listed.stdout.split():
        os.kill(int(pid), signal.SIGKILL)


def _network_and_mounts(folder: Path) -> str:
    """Return a script that sets up the network, and separate folders where programs store files at fixed paths."""
    for name in ("lib", "log", CONTAINERD.name):
        (folder / name).mkdir()
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} node\n")
    here = shlex.quote(str(folder))
    return f"""
        mount -t tmpfs tmpfs /run
        mount --bind {here}/lib /var/lib
        mount --bind {here}/log /var/log
        mount --bind {here}/hosts /etc/hosts
        mount --bind {here}/{CONTAINERD.name} {CONTAINERD}
        ip link set lo up
        ip link add cni0 type bridge
        ip address add {ADDRESS}/24 dev cni0
        ip link set cni0 up
        ip route add {SERVICES} dev cni0
    """


def _hierarchies() -> list[Path]:
    """Return the folders for cgroups: one with version 2, one for each controller with version 1."""
    mounted = [CGROUPS] if (CGROUPS / "cgroup.procs").exists() else sorted(CGROUPS.glob("*/"))
    return [path for path in mounted if (path / "cgroup.procs").exists() and os.access(path, os.W_OK)]


@contextlib.contextmanager
def cgroups(name: str) -> Iterator[None]:
    """Create a cgroup of this name in each hierarchy; remove it and its children after their processes ended."""
    try:
        for hierarchy in _hierarchies():
            (hierarchy / name).mkdir(exist_ok=True)
        yield
    finally:
        remove_cgroups(name)


def remove_cgroups(name: str) -> None:
    """Remove the cgroups of this name, also those of a killed process."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            _remove_cgroup(Path(folder), deadline)


def _remove_cgroup(cgroup: Path, deadline: float) -> None:
    while True:
        try:
            return cgroup.rmdir()
        except OSError:  # the kernel still counts a process that has ended
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
