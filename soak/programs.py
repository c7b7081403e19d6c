"""End, pause and start the programs of a cluster that runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from soak.journal import Journal
from tests.apis import wait_for
from tests.control_plane import wait_for_200
from tests.one_node import Node, containerd_answers
from tests.processes import Processes

END_SECONDS = 40.0
START_SECONDS = 120.0
EXECUTES_SECONDS = 5.0
STABLE_SECONDS = 2.0
_PROC = Path("/proc")
NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "containerd",
    "kubelet",
)
# Faults whose names are not those of the programs.
KINDS = {
    "kube-apiserver": "api-restart",
    "kube-controller-manager": "controller-restart",
    "kube-scheduler": "scheduler-restart",
}


@dataclass(frozen=True)
class Program:
    """A program that runs: its process, its arguments, and its environment."""

    pid: int
    arguments: tuple[str, ...]
    env: dict[str, str]


class Programs:
    """The programs of a node by the name of their files, as `etcd`."""

    def __init__(self, node: Node, folder: Path) -> None:
        self._node = node
        self._namespace = pid_namespace(node)
        self._folder = folder / "programs"
        self._folder.mkdir()
        self._processes = Processes(self._folder, node.enter)
        # The kernel ends a program together with the thread that started it.
        self._thread = ThreadPoolExecutor(1)
        self._known = {name: self.find(name) for name in NAMES}
        self._ended: set[str] = set()  # on purpose
        self._lock = threading.Lock()  # of the decision which thread starts a program again

    def find(self, name: str) -> Program:
        """Return a program that runs.

        Raises:
            ProcessLookupError: it does not run.
        """
        if found := self._running(name):
            return found
        raise ProcessLookupError(f"{name} does not run")

    def _running(self, name: str) -> Program | None:
        found = (self._program(each, name) for each in _PROC.iterdir() if each.name.isdecimal())
        return next((each for each in found if each), None)

    def _program(self, folder: Path, name: str) -> Program | None:
        try:
            arguments = tuple((folder / "cmdline").read_text(errors="replace").split("\0")[:-1])
            if not arguments or Path(arguments[0]).name != name or self._namespace != (folder / "ns/pid").readlink():
                return None
            pairs = (folder / "environ").read_text().split("\0")[:-1]
        except OSError:  # it ended
            return None
        return Program(int(folder.name), arguments, dict(each.split("=", 1) for each in pairs))

    def kill(self, name: str, how: signal.Signals) -> None:
        """End a program, and wait until it ended. It may have ended by itself."""
        with self._lock:
            self._ended.add(name)
        if not (program := self._running(name)):
            return
        _send(program.pid, how)
        deadline = time.monotonic() + END_SECONDS
        while self._program(_PROC / str(program.pid), name):
            if time.monotonic() > deadline:
                _send(program.pid, signal.SIGKILL)
            time.sleep(0.05)

    def start(self, name: str) -> None:
        """Start a program again that was ended, and wait until all programs are ready for work.

        A service manager would start it again if it ends at once, as a kubelet does that does not find containerd.
        """
        program = self._known[name]
        deadline = time.monotonic() + START_SECONDS
        while not self._running(name):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{name} ends again and again:\n{(self._folder / f'{name}.log').read_text()[-2000:]}"
                )
            self._thread.submit(
                lambda: self._processes(program.arguments[0], *program.arguments[1:], name=name, env=program.env)
            ).result()
            time.sleep(STABLE_SECONDS)
        self._ended.discard(name)
        self.wait_until_ready()

    def revive(self, journal: Journal) -> None:
        """Start the programs again that ended by themselves, as a kube-scheduler does whose cache is corrupted."""
        for name in NAMES:
            with self._lock:
                if name in self._ended or self._running(name):
                    continue
                self._ended.add(name)
            with journal.fault(KINDS.get(name, f"{name}-restart"), "it ended by itself"):
                self.start(name)

    def restart(self, name: str, how: signal.Signals = signal.SIGTERM, seconds: float = 0.0) -> None:
        """End a program, and start it again after a time."""
        self.kill(name, how)
        time.sleep(seconds)
        self.start(name)

    def pause(self, name: str, seconds: float) -> None:
        """Let a program do nothing for a time."""
        pid = self.find(name).pid
        parent = _parent(pid)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            _send(pid, signal.SIGCONT)
            # nsenter stops together with the program that it started, and cannot reap it before it goes on.
            _send(parent, signal.SIGCONT)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the API server and containerd serve requests."""
        wait_for_200(self._node.plane, Processes(self._folder), "/readyz", "kube-apiserver")
        wait_for(lambda: containerd_answers(self._node.enter), "containerd", START_SECONDS)

    def end(self) -> None:
        """End the programs that were started again."""
        self._thread.submit(self._processes.end).result()
        self._thread.shutdown()


def pid_namespace(node: Node) -> Path:
    """Return the PID namespace of a node, as `ns/pid` of its processes: another soak has programs of the same names."""
    return Path(next(each[6:] for each in node.enter if each.startswith("--pid="))).readlink()


def kill_run(uid: str) -> None:
    """Kill the processes of chores in the pod with this UID, if it has one.

    A container is running for runc before it executes its program, so that the first look can be too early.
    """
    deadline = time.monotonic() + EXECUTES_SECONDS
    while not _kill_chores(uid) and time.monotonic() < deadline:
        time.sleep(0.05)


def _kill_chores(uid: str) -> bool:
    """Kill the processes of chores in a pod. Return whether there was one."""
    killed = False
    for folder in _PROC.iterdir():
        with contextlib.suppress(OSError):  # it ended
            is_in_pod = folder.name.isdecimal() and uid in (folder / "cgroup").read_text()
            if is_in_pod and "chores" in (folder / "cmdline").read_text():
                os.kill(int(folder.name), signal.SIGKILL)
                killed = True
    return killed


def _parent(pid: int) -> int:
    """Return the parent of a process; the second field of its stat, a name, can contain spaces."""
    return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


def _send(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended
        os.kill(pid, how)
