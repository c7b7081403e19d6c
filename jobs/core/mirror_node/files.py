"""The hosts.toml files of a mirror on a node: compare them with their desired content, and write or remove them.

It runs on each node, with little memory: it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jobs.core.mirror_node.containerd import Reading, read_containerd
from jobs.core.mirror_node.hosts import FILE, Comparison, FileAction, compare, folders
from jobs.kit.run.log import log

_TEMPORARY = f".{FILE}."
_MOST_CHARACTERS = 65536


class BlockedError(Exception):
    """Something blocks the write: a folder that containerd reads today, or a path that is not a plain file."""


class DeletedError(Exception):
    """The mounted folder was deleted on the node: only a new container mounts the folder that is there then."""


class HostsFile(NamedTuple):
    """The hosts.toml that the command line requests for a host.

    `desired` is the file's content, None to remove the file. `containerd` is the folder with containerd's
    configuration, None not to check it.
    """

    name: str
    host: str
    certs: Path
    desired: str | None
    containerd: Path | None = None

    @property
    def folder(self) -> Path:
        """The folder that containerd tries first for the host."""
        return self.certs / folders(self.host)[0]

    @property
    def path(self) -> Path:
        """The hosts.toml in that folder."""
        return self.folder / FILE


def observe(file: HostsFile) -> str:
    """Return the problems with the mirror's files on the node, or why they have no effect; empty if there are none.

    Raises:
        DeletedError: a mounted folder was deleted on the node.
    """
    return _for_each_host(file, _problem)


def reconcile(file: HostsFile) -> str:
    """Bring the mirror's files to their desired state. Return the problems that are left; empty if there are none.

    Raises:
        DeletedError: a mounted folder was deleted on the node.
    """
    return _for_each_host(file, _correct)


def _for_each_host(file: HostsFile, act: Callable[[HostsFile, Comparison], str]) -> str:
    """Handle the file and the files of the mirror's earlier hosts: those would send pulls to the wrong cache."""
    problems = [_attempt(each, act) for each in (file, *_of_other_hosts(file))]
    return "; ".join(filter(None, [*problems, configuration(file).problem]))


def configuration(file: HostsFile) -> Reading:
    """Read each time whether containerd uses the file: its configuration may be corrected at any time."""
    return read_containerd(file.containerd) if file.containerd and file.desired is not None else Reading()


def _of_other_hosts(file: HostsFile) -> Iterator[HostsFile]:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(each.name for each in file.certs.iterdir()):
            if name != file.folder.name and ":" not in name:  # mirror-node never writes to a folder with a colon
                yield file._replace(host=name, desired=None)


def _attempt(file: HostsFile, act: Callable[[HostsFile, Comparison], str]) -> str:
    try:
        return act(file, compare(_content(file), file.desired, file.name))
    except BlockedError as error:
        # mirror-node writes plain files only, so there is nothing to remove.
        return str(error) if file.desired is not None else ""
    except OSError as error:
        return f"{file.path}: {error.strerror}"


def _problem(file: HostsFile, compared: Comparison) -> str:
    return f"{file.path} {compared.problem}" if compared.problem else ""


def _correct(file: HostsFile, compared: Comparison) -> str:
    if compared.action is FileAction.NOTHING:
        return _problem(file, compared)
    if compared.action is FileAction.WRITE:
        assert file.desired is not None
        _write(file.folder, file.desired)
        log.info("%s %s: written", file.path, compared.problem)
    else:
        _remove(file.folder)
        log.info("%s %s: removed", file.path, compared.problem)
    return ""


# the file


def _content(file: HostsFile) -> str | None:
    """Return the file's content, None if there is no file.

    Raises:
        DeletedError: its folder was deleted on the node, and exists only as a mount.
        BlockedError: the file is not a plain file, its folder is not a folder, or containerd would no longer read
            another folder.
    """
    for other in (file.certs / name for name in folders(file.host)[1:]):
        if file.desired is not None and os.path.lexists(other):
            raise BlockedError(
                f"containerd would no longer read {other}; move it away if the node should use the mirror"
            )
    try:
        with _opened(file.folder) as folder:
            return _read(folder, file.path)
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a folder by descriptor: another process may replace what the path names at any time."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError:
        raise BlockedError(f"{path} is a link or not a folder, and is not changed") from None
    try:
        if not os.fstat(folder).st_nlink:
            raise DeletedError(f"{path} was deleted on the node")
        yield folder
    finally:
        os.close(folder)


def _read(folder: int, path: Path) -> str:
    if not stat.S_ISREG(os.stat(FILE, dir_fd=folder, follow_symlinks=False).st_mode):
        raise BlockedError(f"{path} is not a plain file, and is not changed")
    descriptor = os.open(FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace", newline="") as file:
        return file.read(_MOST_CHARACTERS)


def _write(path: Path, text: str) -> None:
    """Write the file in one step: containerd reads it with each pull."""
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
    """Remove the file, and the folder if it is empty: an empty one would hide other folders from containerd."""
    with _opened(path) as folder:
        os.unlink(FILE, dir_fd=folder)
        _clear(folder)
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _clear(folder: int) -> None:
    """Remove temporary files of killed processes. If one belongs to a running process, its next attempt succeeds."""
    for name in os.listdir(folder):
        if name.startswith(_TEMPORARY):
            os.unlink(name, dir_fd=folder)
