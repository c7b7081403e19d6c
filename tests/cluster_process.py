"""Whom a one-node cluster belongs to: a process that starts it, waits for SIGTERM, and leaves nothing behind.

It works alike for tests and for `make cluster-up`. The keeper of a test run gets that signal from the kernel when the
run dies, whatever it dies of; the other one from `make cluster-down`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from tests import one_node
from tests.control_plane import ROOT, programs
from tests.namespaces import cgroups, namespaces, remove_cgroups
from tests.one_node import Node
from tests.processes import Processes, dying_with_parent

PLAYGROUND = ROOT / ".tools" / "cluster"
PREFIX = "kube-chores-node-"
END_SECONDS = 60.0


# the keeper itself


def keep(folder: Path, archives: Sequence[str]) -> None:
    """Have a cluster in this folder until SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit)
    os.environ["PATH"] = one_node.path()
    began = time.monotonic()
    try:
        folder.mkdir()
        (folder / "keeper.pid").write_text(str(os.getpid()))
        with cgroups(cgroup_of(folder)), namespaces(folder) as enter, socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            plane = one_node.start(Processes(folder, enter), listening, archives, cgroup_of(folder))
            _tell(folder, Node(plane, enter, time.monotonic() - began))
            while True:
                signal.pause()
    finally:
        shutil.rmtree(folder)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing may interrupt the cleaning up
    sys.exit(0)


def cgroup_of(folder: Path) -> str:
    """The name of the cgroups of the cluster that lives there."""
    return f"kube-chores-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _tell(folder: Path, node: Node) -> None:
    (folder / "node.part").write_bytes(pickle.dumps(node))
    (folder / "node.part").rename(folder / "node")


# those who want a cluster


@contextlib.contextmanager
def cluster() -> Iterator[Node]:
    """A cluster for as long as the context lasts, or the process."""
    folder = Path(tempfile.gettempdir()) / f"{PREFIX}{secrets.token_hex(4)}"
    with tempfile.TemporaryFile("w+") as said:
        keeper = _start_keeper(folder, said.fileno(), dying_with_parent("TERM"))
        try:
            yield _when_ready(keeper, folder, said.fileno())
        finally:
            keeper.terminate()
            keeper.wait(END_SECONDS)


def _start_keeper(folder: Path, output: int, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    command = [*prefix, sys.executable, "-m", "tests.cluster_process", "keep", str(folder), *one_node.images()]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )


def _when_ready(keeper: subprocess.Popen[bytes], folder: Path, output: int) -> Node:
    while not (folder / "node").exists():
        if keeper.poll() is not None:
            os.lseek(output, 0, os.SEEK_SET)
            raise RuntimeError(f"no cluster:\n{os.read(output, 100_000).decode(errors='replace')}")
        time.sleep(0.1)
    return _told(folder)


def _told(folder: Path) -> Node:
    node: Node = pickle.loads((folder / "node").read_bytes())
    return node


# make cluster-up, make cluster-down


def up() -> None:
    """Start the cluster to play with, unless it runs, and say how to use it."""
    if not _keeper_of(PLAYGROUND):
        down()
        with tempfile.TemporaryFile("w+") as said:
            keeper = _start_keeper(PLAYGROUND, said.fileno())
            try:
                _when_ready(keeper, PLAYGROUND, said.fileno())
            except BaseException:
                keeper.terminate()
                keeper.wait(END_SECONDS)
                raise
    node = _told(PLAYGROUND)
    click.echo(f"A node is ready and has the image of this version. {programs()}/kubectl is of its version.")
    click.echo(f"export KUBECONFIG={node.plane.kubeconfig}")


def down() -> None:
    """End that cluster and remove what is left of it, also of one whose keeper was killed."""
    if pid := _keeper_of(PLAYGROUND):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while _keeps(pid, PLAYGROUND):
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {pid} has not ended {PLAYGROUND}")
            time.sleep(0.1)
    if PLAYGROUND.exists():
        remove_cgroups(cgroup_of(PLAYGROUND))
        shutil.rmtree(PLAYGROUND)


def _keeper_of(folder: Path) -> int | None:
    """The process that keeps a cluster there."""
    try:
        pid = int((folder / "keeper.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if _keeps(pid, folder) else None


def _keeps(pid: int, folder: Path) -> bool:
    """Whether that process keeps a cluster there, or is removing it: what it wrote may be gone by then."""
    try:
        return str(folder) in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False


def main(command: str, *arguments: str) -> None:
    """Do as the Makefile and .ci/run say."""
    if command == "keep":
        keep(Path(arguments[0]), arguments[1:])
    elif command == "why-not":
        click.echo(one_node.impossible() or "")
    elif command == "down":
        down()
    elif reason := one_node.missing():
        sys.exit(reason)
    else:
        up()


if __name__ == "__main__":
    main(*sys.argv[1:])
