"""The process that owns a one-node cluster: it starts the cluster, waits for SIGTERM, and removes everything.

Tests and `make cluster-up` use it in the same way. The kernel sends SIGTERM when the test run ends for any reason;
`make cluster-down` sends it to the other one.
"""

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


# the process itself


def run(folder: Path, archives: Sequence[str]) -> None:
    """Run a cluster in this new folder until SIGTERM; `archives` are the images for its node."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit)
    os.environ["PATH"] = one_node.path()
    began = time.monotonic()
    try:
        folder.mkdir()
        (folder / "cluster.pid").write_text(str(os.getpid()))
        with cgroups(cgroup_of(folder)), namespaces(folder) as enter, socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            plane = one_node.start(Processes(folder, enter), listening, archives, cgroup_of(folder))
            _write_node(folder, Node(plane, enter, time.monotonic() - began))
            while True:
                signal.pause()
    finally:
        shutil.rmtree(folder)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # no signal may interrupt the cleanup
    sys.exit(0)


def cgroup_of(folder: Path) -> str:
    """Return the name of the cgroups of the cluster in this folder."""
    return f"kube-chores-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _write_node(folder: Path, node: Node) -> None:
    (folder / "node.part").write_bytes(pickle.dumps(node))
    (folder / "node.part").rename(folder / "node")


# for tests


@contextlib.contextmanager
def cluster() -> Iterator[Node]:
    """Run a cluster until the context ends, or this process.

    Raises:
        RuntimeError: the cluster did not start; its output is in the message.
    """
    folder = Path(tempfile.gettempdir()) / f"{PREFIX}{secrets.token_hex(4)}"
    with tempfile.TemporaryFile("w+") as output:
        process = _start(folder, output.fileno(), dying_with_parent("TERM"))
        try:
            yield _when_ready(process, folder, output.fileno())
        finally:
            process.terminate()
            process.wait(END_SECONDS)


def _start(folder: Path, output: int, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    command = [*prefix, sys.executable, "-m", "tests.cluster_process", "run", str(folder), *one_node.images()]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )


def _when_ready(process: subprocess.Popen[bytes], folder: Path, output: int) -> Node:
    while not (folder / "node").exists():
        if process.poll() is not None:
            os.lseek(output, 0, os.SEEK_SET)
            raise RuntimeError(f"no cluster:\n{os.read(output, 100_000).decode(errors='replace')}")
        time.sleep(0.1)
    return _read_node(folder)


def _read_node(folder: Path) -> Node:
    node: Node = pickle.loads((folder / "node").read_bytes())
    return node


# make cluster-up, make cluster-down


def up() -> None:
    """Start the cluster for `make cluster-up`, unless it runs, and print how to use it."""
    if not _process_of(PLAYGROUND):
        down()
        with tempfile.TemporaryFile("w+") as output:
            process = _start(PLAYGROUND, output.fileno())
            try:
                _when_ready(process, PLAYGROUND, output.fileno())
            except BaseException:
                process.terminate()
                process.wait(END_SECONDS)
                raise
    node = _read_node(PLAYGROUND)
    click.echo(f"A node is ready and has the image of this version. {programs()}/kubectl has the cluster's version.")
    click.echo(f"export KUBECONFIG={node.plane.kubeconfig}")


def down() -> None:
    """End that cluster and remove its files and cgroups, also if its process was killed."""
    if pid := _process_of(PLAYGROUND):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        while _runs(pid, PLAYGROUND):
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {pid} did not end the cluster in {PLAYGROUND} within {END_SECONDS:g} s")
            time.sleep(0.1)
    if PLAYGROUND.exists():
        remove_cgroups(cgroup_of(PLAYGROUND))
        shutil.rmtree(PLAYGROUND)


def _process_of(folder: Path) -> int | None:
    """Return the process that runs a cluster in this folder."""
    try:
        pid = int((folder / "cluster.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if _runs(pid, folder) else None


def _runs(pid: int, folder: Path) -> bool:
    """Whether the process runs a cluster in this folder or removes it, with files that may be deleted already."""
    try:
        return str(folder) in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False


def main(command: str, *arguments: str) -> None:
    """Run a command of the Makefile or of .ci/run: run, why-not, down or up."""
    if command == "run":
        run(Path(arguments[0]), arguments[1:])
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
