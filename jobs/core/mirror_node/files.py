"""The hosts.toml files of a mirror on a node, and whether containerd reads them.

It runs on each node, with little memory: it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from jobs.core.mirror_node.hosts import BYPASSED, CERTS, FILE, FOLDER, compare, folders
from jobs.kit.run.log import log

# whether containerd reads hosts.toml

# Which setting applies depends on the version of containerd, which no file names. So a configuration that works with
# one version is not a problem. If the files do not decide it, the answer is unknown.
# https://github.com/containerd/containerd/blob/main/docs/cri/registry.md

_FILE = "config.toml"
_MOST_FILES = 32
_MOST_BYTES = 256 << 10
_IMAGES, _CRI, _CRI_OF_VERSION_1 = "io.containerd.cri.v1.images", "io.containerd.grpc.v1.cri", "cri"
# The tables with the registry's settings, by the configuration's version. containerd 2 migrates versions 1 and 2, and
# then reads the second table too.
_TABLES: Mapping[int, tuple[str, ...]] = {1: (_CRI_OF_VERSION_1, _CRI), 2: (_CRI, _IMAGES), 3: (_IMAGES,)}
_NEWEST = max(_TABLES)
# If one of these settings differs from its value here, containerd 2.1 and later pulls without its transfer service.
# https://github.com/containerd/containerd/blob/v2.2.0/internal/cri/config/config.go (CheckLocalImagePullConfigs)
_LOCAL: Mapping[str, Any] = {
    "use_local_image_pull": False,
    "disable_snapshot_annotations": True,
    "discard_unpacked_layers": False,
    "image_pull_with_sync_fs": False,
    "max_concurrent_downloads": 3,
}
Table = Mapping[str, Any]


class UnknownError(Exception):
    """The files do not decide what containerd reads."""


class Reading(NamedTuple):
    """Why pulls do not use the mirror, or why that is unknown; both are empty if pulls use it."""

    problem: str = ""
    unknown: str = ""


def read_containerd(folder: Path) -> Reading:
    """Evaluate the configuration in `folder`, where the node's /etc/containerd is mounted."""
    try:
        files = list(_files(folder))
        version = _version(files)
        # If an imported file has the same table, containerd 1 replaces the whole table, and containerd 2 merges both.
        readings = {_of_settings(version, _merged(files, whole)) for whole in {False, version < _NEWEST}}
    except (OSError, ValueError, RecursionError, UnknownError) as error:
        return Reading(unknown=str(error) or type(error).__name__)
    two_ways = "an imported file has the same table, which containerd 1 replaces and containerd 2 merges"
    return readings.pop() if len(readings) == 1 else Reading(unknown=two_ways)


# the files


def _files(folder: Path) -> Iterator[Table]:
    """Yield the settings of config.toml and its imports in containerd's order: later files override earlier ones.

    Raises:
        UnknownError, OSError, ValueError: a file cannot be read, or its content is not known.
    """
    pending, done = [folder / _FILE], set[Path]()
    while pending:
        path = pending.pop(0)
        if path in done:
            continue
        if len(done) == _MOST_FILES:
            raise UnknownError(f"the configuration has more than {_MOST_FILES} files")
        done.add(path)
        document = _document(path, folder)
        yield document
        imports = document.get("imports")
        for pattern in imports if isinstance(imports, list) else ():
            on_node = _clean(FOLDER / path.parent.relative_to(folder) / str(pattern))
            if not on_node.startswith(f"{FOLDER}/"):
                raise UnknownError(f"the configuration imports {on_node}, which is not in {FOLDER}")
            name = on_node.removeprefix(f"{FOLDER}/")
            pending += sorted(islice(folder.glob(name), _MOST_FILES + 1)) if "*" in name else [folder / name]


def _clean(path: str | Path) -> str:
    """Normalize a path; normpath keeps two leading slashes, as POSIX allows."""
    return os.path.normpath(path).replace("//", "/")


def _document(path: Path, folder: Path) -> Table:
    # A link on the node would resolve to a file of this container, or to none.
    if path.resolve() != folder.resolve() / path.relative_to(folder):
        raise UnknownError(f"{path} is a link")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnknownError(f"{path} is not a plain file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UnknownError(f"{path} has more than {_MOST_BYTES >> 10} KiB")
    if sys.version_info >= (3, 11):  # as in images
        import tomllib

        return tomllib.loads(content.decode())
    raise UnknownError("Python before 3.11 cannot read TOML")


# the settings


def _version(files: Sequence[Table]) -> int:
    found = {each["version"] for each in files if each.get("version")} or {1}
    if len(found) > 1 or not all(isinstance(each, int) for each in found):
        raise UnknownError("the configuration's files have different versions")
    return int(found.pop())


def _merged(files: Iterable[Table], whole: bool) -> Table:
    plugins: dict[str, Any] = {}
    for each in files:
        for name, table in _table(each, "plugins").items():
            plugins[name] = table if whole else _overruled(plugins.get(name), table)
    return plugins


def _overruled(before: Any, after: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {**before, **{name: _overruled(before.get(name), value) for name, value in after.items()}}


def _of_settings(version: int, plugins: Table) -> Reading:
    first, *others = (_table(plugins, name) for name in _TABLES[max(1, min(version, _NEWEST))])
    registry = _table(first, "registry")
    path = str(registry.get("config_path") or "")
    if registry.get("mirrors"):
        return _bypassed("registry.mirrors is set, and containerd then ignores hosts.toml; remove registry.mirrors")
    if path:
        return _of_path(path, version, locally=_pulls_locally(first))
    if any(_table(each, "registry").get("config_path") for each in others):
        return Reading(unknown="config_path is in a table that only some versions of containerd read")
    if version >= _NEWEST or _pulls_locally(first):
        return Reading(unknown="config_path is not set, and its default depends on the version of containerd")
    return _bypassed("config_path is not set")


def _of_path(path: str, version: int, *, locally: bool) -> Reading:
    """Evaluate a config_path: containerd 2.1 and later reads a list as one folder if it uses its transfer service.

    https://github.com/containerd/containerd/issues/12415
    """
    if CERTS not in [_clean(each) for each in path.split(":") if each]:
        return _bypassed(f"config_path is {path}")
    if ":" not in path or locally:
        return Reading()
    why = f"config_path is {path}, which containerd 2.1 and later reads as one folder"
    return _bypassed(why) if version >= _NEWEST else Reading(unknown=why)


def _pulls_locally(images: Table) -> bool:
    """Whether containerd 2.1 and later pulls without its transfer service."""
    settings = {**images, **_table(images, "containerd")}
    registry = _table(images, "registry")
    is_set = any(settings.get(name, default) != default for name, default in _LOCAL.items())
    return is_set or bool(registry.get("configs") or registry.get("auths"))


def _bypassed(what: str) -> Reading:
    why = f"pulls do not use the mirror: containerd does not read {CERTS}: {what}"
    return Reading(f'{BYPASSED}: {why}; set config_path = "{CERTS}", then restart containerd')


def _table(table: Table, name: str) -> Table:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


# compare the files with their desired content, and write or remove them

_TEMPORARY = f".{FILE}."
_MOST_CHARACTERS = 65536


class BlockedError(Exception):
    """Something blocks the write: a folder that containerd reads today, or a path that is not a plain file."""


class DeletedError(Exception):
    """The mounted folder was deleted on the node: only a new container mounts the folder that is there then."""


class HostsFile(NamedTuple):
    """The hosts.toml that the command line requests for a host.

    `desired` is its content, None to remove the file. `containerd` is the folder of containerd's configuration, None
    not to check it.
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


def reconcile(file: HostsFile, *, change: bool = True) -> str:
    """Bring the mirror's files to their desired state; without `change`, only compare them.

    Files of the mirror's earlier hosts are removed: those would send pulls to the wrong cache. Return the problems that
    are left, or why the files have no effect; empty if there are none.

    Raises:
        DeletedError: a mounted folder was deleted on the node.
    """
    problems = [_of_host(each, change) for each in (file, *_of_other_hosts(file))]
    return "; ".join(filter(None, [*problems, configuration(file).problem]))


def configuration(file: HostsFile) -> Reading:
    """Read each time whether containerd uses the file: its configuration may be corrected at any time."""
    return read_containerd(file.containerd) if file.containerd and file.desired is not None else Reading()


def _of_other_hosts(file: HostsFile) -> Iterator[HostsFile]:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(each.name for each in file.certs.iterdir()):
            if name != file.folder.name and ":" not in name:  # mirror-node never writes to a folder with a colon
                yield file._replace(host=name, desired=None)


def _of_host(file: HostsFile, change: bool) -> str:
    try:
        problem, is_correctable = compare(_content(file), file.desired, file.name)
        if change and is_correctable:
            if file.desired is None:
                _remove(file.folder)
            else:
                _write(file.folder, file.desired)
            log.info("%s %s: %s", file.path, problem, "removed" if file.desired is None else "written")
            return ""
    except BlockedError as error:
        # mirror-node writes plain files only, so there is nothing to remove.
        return str(error) if file.desired is not None else ""
    except OSError as error:
        return f"{file.path}: {error.strerror}"
    return f"{file.path} {problem}" if problem else ""


# the file


def _content(file: HostsFile) -> str | None:
    """Return the file's content, None if there is no file."""
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
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o644)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, FILE, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)


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
