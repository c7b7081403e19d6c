"""mirror-node: tells this node's containerd of a mirror, and goes on seeing that it is told.

Each node runs it in a pod with little memory, and as the probe of that pod twice a minute: it imports nothing beyond
click and the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

import click

from jobs.kit.log import configure, log
from jobs.mirrors import containerd
from jobs.mirrors.containerd import CERTS
from jobs.mirrors.hosts import FILE, Todo, Verdict, compare, folders, hosts_toml, is_host, is_name, is_server

NAME = "mirror-node"
INTERVAL_SECONDS = 30.0
_TEMPORARY = f".{FILE}."
_MOST_CHARACTERS = 65536


class BlockedError(Exception):
    """Something is there that containerd reads, or that we do not write to."""


class GoneError(Exception):
    """The folder that is mounted was deleted on the node: another container gets the one that is there then."""


class Asked(NamedTuple):
    """What the command line asks for; nothing is `desired` in the file when it is to go.

    `containerd` is the folder with its configuration, if that is to be checked.
    """

    name: str
    host: str
    certs: Path
    desired: str | None
    containerd: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder that containerd tries first."""
        return self.certs / folders(self.host)[0]

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / FILE


def look(asked: Asked) -> str:
    """Return what is wrong with the mirror's files on the node, or why they have no effect, or nothing."""
    return _everywhere(asked, _say)


def settle(asked: Asked) -> str:
    """Make the files as they should be. Return what is wrong with them nevertheless, or nothing."""
    return _everywhere(asked, _do)


def _everywhere(asked: Asked, act: Callable[[Asked, Verdict], str]) -> str:
    """See to the file, and to those of hosts that the mirror was for before: they would send pulls to a wrong cache."""
    problems = [_attempt(each, act) for each in (asked, *_of_other_hosts(asked))]
    return "; ".join(filter(None, [*problems, _configuration(asked).problem]))


def _configuration(asked: Asked) -> containerd.Reading:
    """Read whether containerd uses what is written, with each look: a person may correct it at any time."""
    return containerd.read(asked.containerd) if asked.containerd and asked.desired is not None else containerd.Reading()


def _of_other_hosts(asked: Asked) -> Iterator[Asked]:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(each.name for each in asked.certs.iterdir()):
            if name != asked.folder.name and ":" not in name:  # we never wrote a folder with a colon
                yield asked._replace(host=name, desired=None)


def _attempt(asked: Asked, act: Callable[[Asked, Verdict], str]) -> str:
    try:
        return act(asked, compare(_found(asked), asked.desired, asked.name))
    except BlockedError as error:
        return str(error) if asked.desired is not None else ""  # what we wrote is a plain file, so this is not ours
    except OSError as error:
        return f"{asked.path}: {error.strerror}"


def _say(asked: Asked, verdict: Verdict) -> str:
    return f"{asked.path} {verdict.problem}" if verdict.problem else ""


def _do(asked: Asked, verdict: Verdict) -> str:
    if verdict.todo is Todo.NOTHING:
        return _say(asked, verdict)
    if verdict.todo is Todo.WRITE:
        assert asked.desired is not None
        _write(asked.folder, asked.desired)
        log.info("%s %s: wrote it", asked.path, verdict.problem)
    else:
        _remove(asked.folder)
        log.info("%s %s: removed it", asked.path, verdict.problem)
    return ""


# the file


def _found(asked: Asked) -> str | None:
    """Return what is in the file.

    Raises:
        GoneError: its folder was deleted, and is there only as a mount.
        BlockedError: it is no plain file, or its folder no folder, or containerd would not read a folder any more.
    """
    for other in (asked.certs / name for name in folders(asked.host)[1:]):
        if asked.desired is not None and os.path.lexists(other):
            raise BlockedError(f"{other} would not be read any more: move it away if the node is to use the mirror")
    try:
        with _opened(asked.folder) as folder:
            return _read(folder, asked.path)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open the folder itself: what it is called may be something else a moment later."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError:
        raise BlockedError(f"{path} is a link or no folder, and stays as it is") from None
    try:
        if not os.fstat(folder).st_nlink:
            raise GoneError(f"{path} was deleted on the node")
        yield folder
    finally:
        os.close(folder)


def _read(folder: int, path: Path) -> str:
    if not stat.S_ISREG(os.stat(FILE, dir_fd=folder, follow_symlinks=False).st_mode):
        raise BlockedError(f"{path} is no plain file, and stays as it is")
    descriptor = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace", newline="") as file:
        return file.read(_MOST_CHARACTERS)


def _write(path: Path, text: str) -> None:
    """Put the file there in one step: containerd reads it whenever somebody pulls."""
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o755)
    with _opened(path) as folder:
        _clear(folder)
        temporary = _TEMPORARY + os.urandom(4).hex()
        try:
            _write_whole(temporary, text, folder)
            os.replace(temporary, FILE, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)


def _write_whole(name: str, text: str, folder: int) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o644)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _remove(path: Path) -> None:
    """Remove the file, and the folder unless there is more in it: an empty one would still hide others."""
    with _opened(path) as folder:
        os.unlink(FILE, dir_fd=folder)
        _clear(folder)
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _clear(folder: int) -> None:
    """Remove what a killed process left. If another one is at work, its next try succeeds."""
    for name in os.listdir(folder):
        if name.startswith(_TEMPORARY):
            os.unlink(name, dir_fd=folder)


# the command


def stay(asked: Asked) -> NoReturn:
    """See to the file until a signal comes. The file stays: the next pod of a rollout finds it in place."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    if unknown := _configuration(asked).unknown:
        log.info("not known whether pulls use the mirror: %s", unknown)
    said = ""
    while True:
        try:
            problem = settle(asked)
        except GoneError as error:
            log.warning("%s: starting again", error)
            sys.exit(1)
        if problem and problem != said:
            log.warning("%s; trying again every %g seconds", problem, INTERVAL_SECONDS)
        said = problem
        time.sleep(INTERVAL_SECONDS)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def _checked(is_right: Callable[[str], bool], what: str) -> Callable[..., str | None]:
    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and not is_right(value):
            raise click.BadParameter(f"{value!r} {what}.")
        return value

    return check


@click.command(NAME)
@click.option(
    "--name",
    required=True,
    metavar="NAME",
    callback=_checked(is_name, "cannot be the name of a mirror"),
    help="The RegistryMirror.",
)
@click.option(
    "--host",
    required=True,
    metavar="HOST",
    callback=_checked(is_host, "is no host of a registry"),
    help="The host in the names of images that are pulled through the mirror, with its port if there is one.",
)
@click.option(
    "--mirror",
    metavar="URL",
    callback=_checked(is_server, "is no URL of a server"),
    help="Where the mirror is.",
)
@click.option(
    "--upstream",
    metavar="URL",
    callback=_checked(is_server, "is no URL of a server"),
    help="Where containerd pulls if the mirror does not answer; default is nowhere.",
)
@click.option(
    "--certs-dir",
    default=CERTS,
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder that containerd's config_path names.",
)
@click.option(
    "--containerd-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the node's /etc/containerd is mounted: checks that containerd reads --certs-dir; default is no check.",
)
@click.option("--remove", is_flag=True, help="Remove what was written for this RegistryMirror.")
@click.option(
    "--check", is_flag=True, help="Change nothing: exit 1 if the file is not as it should be, or has no effect."
)
@click.pass_context
def command(
    context: click.Context,
    name: str,
    host: str,
    mirror: str | None,
    upstream: str | None,
    certs_dir: Path,
    containerd_dir: Path | None,
    remove: bool,
    check: bool,
) -> None:
    """Write a mirror into containerd's hosts.toml. The DaemonSets of mirrors run this command on nodes.

    Writes hosts.toml in the folder of the host, removes what it wrote for hosts that the mirror was for before, looks
    every 30 seconds whether all is still as it should be, and runs until SIGTERM. A hosts.toml that kube-chores did not
    write is never touched.

    \b
    Example:
      chores mirror-node --name hub --host docker.io --mirror http://10.0.0.7:5000 --check
    """
    if not mirror and not remove:
        raise click.UsageError("--mirror is needed, or --remove")
    configure("text")
    desired = None if remove or not mirror else hosts_toml(name, mirror, upstream or "")
    asked = Asked(name, host, certs_dir, desired, containerd_dir)
    if not check:
        stay(asked)
    try:
        problem = look(asked)
    except GoneError as error:
        problem = str(error)
    if problem:
        log.error("%s", problem)
        context.exit(1)
