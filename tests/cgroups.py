"""Run one program in a cgroup with a memory limit, as in a container."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PREFIX = "kube-chores-memory-"
_ROOT = Path("/sys/fs/cgroup")
# By the version of cgroups: the folder, and the files of the memory limit, the swap limit and the highest use.
_FILES = {
    1: (_ROOT / "memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max_usage_in_bytes"),
    2: (_ROOT, "memory.max", "memory.swap.max", "memory.peak"),
}
# The process enters the cgroup before it starts the program, so that all of its memory is counted there.
_ENTER = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"


def refused() -> str | None:
    """Return why this user cannot limit the memory of a program on this machine, or None."""
    try:
        with _cgroup(1 << 30):
            return None
    except OSError as error:
        return f"no cgroup with a memory limit: {error}"


@dataclass(frozen=True)
class Ended:
    """The result of a program, and its highest use of memory in bytes."""

    done: subprocess.CompletedProcess[str]
    peak: int


def run_limited(limit: int, command: Sequence[str], env: Mapping[str, str], timeout: float = 300.0) -> Ended:
    """Run a program with at most `limit` bytes of memory: the kernel kills it if it needs more."""
    with _cgroup(limit) as folder:
        done = subprocess.run(
            [sys.executable, "-c", _ENTER, str(folder / "cgroup.procs"), *command],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Ended(done, int((folder / _FILES[_version()][3]).read_text()))


def _version() -> int:
    return 2 if (_ROOT / "cgroup.controllers").exists() else 1


@contextmanager
def _cgroup(limit: int) -> Iterator[Path]:
    parent, file, swap, _ = _FILES[_version()]
    folder = parent / f"{PREFIX}{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        (folder / file).write_text(str(limit))
        if (folder / swap).exists():
            (folder / swap).write_text("0" if _version() == 2 else str(limit))
        yield folder
    finally:
        folder.rmdir()
