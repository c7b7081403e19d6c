"""The files of a registry's cache on its volume: the free space, and the files that break pulls or are left over.

The layout is that of distribution's file system driver, one folder below the volume for each upstream:
https://github.com/distribution/distribution/blob/main/registry/storage/paths.go
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Set
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

MIB = 1 << 20
# Space for the layers in progress when space runs short. A node fetches three layers at once (containerd's
# max_concurrent_downloads) of one image (kubelet pulls serially): 1.5 GiB for layers of 500 MiB. Nodes use the mirror
# for about 4 more seconds: 0.5 GiB at 1 Gbit/s. Larger volumes serve more nodes at once.
_LEAST_FREE_BYTES = 2048 * MIB
# A layer needs about ten inodes: folders, the upload, the blob and its link.
_LEAST_FREE_FILES = 1000
_MOST_STATE_BYTES = 16 * MIB  # some 70,000 entries; of a larger one only the ends are read, since memory is limited
_END_BYTES = 1024
_HEX = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{2}")
_LINK = re.compile(rb"[a-z0-9]+:[0-9a-f]{32,128}")
_LONGEST_LINK = 256
_JSON_SPACE = b" \t\r\n"
_NAMED = re.compile(rb"@sha256:([0-9a-f]{64})")
_CHUNK = MIB
# The disk lost the file, or a backup restored it with another owner. The registry cannot read it either, and answers
# with 200 and no content.
_UNREADABLE = frozenset({errno.EIO, errno.EACCES, errno.EPERM})
_MOST_TYPE = 1 << 31
_SECOND = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)")

Pause = Callable[[int], object]


class Room(NamedTuple):
    """Bytes and inodes of a volume, and why the registry cannot use it; `files` is 0 if inodes are not limited."""

    free: int
    capacity: int
    free_files: int
    files: int
    unusable: str = ""

    @property
    def least_free(self) -> int:
        """The number of bytes that must be free for the registry to store layers."""
        return min(max(self.capacity // 10, _LEAST_FREE_BYTES), self.capacity // 2)

    def shortage(self, factor: float = 1.0) -> str:
        """Return what is missing: "access", "space", "inodes" or nothing. `factor` multiplies the required amounts."""
        if self.unusable:
            return "access"
        if self.free < self.least_free * factor:
            return "space"
        least_files = min(_LEAST_FREE_FILES, self.files // 20)
        return "inodes" if self.files and self.free_files < least_files * factor else ""


def room(volume: Path, root: Path) -> Room:
    """Return the bytes and inodes that users other than root can use, and whether the volume is usable.

    Raises:
        OSError: the volume does not answer.
    """
    found = os.statvfs(volume)
    sizes = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail, found.f_files
    return Room(*sizes, unusable=_unusable(volume, root, found.f_flag))


def _unusable(volume: Path, root: Path, flags: int) -> str:
    """Return why the registry cannot use the volume, or nothing. The registry runs as the same user as this process."""
    if not volume.stat().st_nlink:  # the mount keeps a deleted folder
        return "its folder was deleted"
    if flags & os.ST_RDONLY:
        return "it is mounted read-only"
    for folder in _used_folders(volume, root):
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{folder} cannot be read and written"
    return ""


def _used_folders(volume: Path, root: Path) -> Iterator[Path]:
    """Yield the folders that the registry writes to; the volume's own folder only until the upstream has a folder."""
    if not os.path.lexists(root):
        yield volume
    registry = _registry(root)
    folders = root, registry.parent.parent, registry.parent, registry
    for folder in (*folders, registry / "blobs", registry / "blobs" / "sha256", registry / "repositories"):
        if os.path.lexists(folder):
            yield folder


def roots(volume: Path) -> Iterator[Path]:
    """Yield the folder of each upstream that is cached on the volume."""
    return (Path(each.path) for each in _folders(volume))


def is_used(root: Path) -> bool:
    """Whether an image was ever pulled through the mirror: the registry then created a folder for its repository."""
    return next(_folders(_registry(root) / "repositories"), None) is not None


# blobs


class Blob(NamedTuple):
    """A stored blob. `changed` is its ctime in ns, `modified` its mtime in s; a write changes the `signature`."""

    path: Path
    digest: str
    size: int
    changed: int
    signature: tuple[int, ...]
    modified: float


def blob_path(root: Path, digest: str) -> Path:
    """Return the path of the file that stores a blob."""
    return _blobs(root) / digest[:2] / digest / "data"


def prefixes(root: Path) -> list[Path]:
    """Return the folders that contain blobs, sorted, at most 256."""
    found = _folders(_blobs(root))
    return sorted(Path(each.path) for each in found if _PREFIX.fullmatch(each.name))


def blobs(prefix: Path) -> Iterator[Blob]:
    """Yield the blobs of one of these folders, which may be very many; skip a blob that is deleted meanwhile."""
    for each in _folders(prefix):
        path = Path(each.path, "data")
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and _HEX.fullmatch(each.name):
                yield Blob(path, each.name, found.st_size, found.st_ctime_ns, _signature(found), found.st_mtime)


def matches(blob: Blob, pause: Pause, *, keep_cached: bool) -> bool | None:
    """Return whether a blob can be read and matches its digest; None if it changed during the read.

    After each part `pause` is called with the part's number of bytes. Without `keep_cached` the kernel drops the file
    from its page cache: the node's memory is for images that are pulled.
    """
    try:
        descriptor = os.open(blob.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        return False if error.errno in _UNREADABLE else None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            return None
        content = hashlib.sha256()
        try:
            left = before.st_size  # a file that grows may have no end
            while part := file.read(min(_CHUNK, left)):
                content.update(part)
                left -= len(part)
                pause(len(part))
        except OSError as error:
            return False if error.errno in _UNREADABLE else None
        if not keep_cached:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        with contextlib.suppress(OSError):
            if _signature(before) == _signature(os.fstat(descriptor)) == _signature(blob.path.lstat()):
                return content.hexdigest() == blob.digest
    return None


def remove(blob: Blob) -> None:
    """Remove a blob. The registry fetches it again when it is needed; transfers in progress keep the open file.

    Raises:
        FileNotFoundError: the blob does not exist.
        OSError: the blob cannot be removed.
    """
    blob.path.unlink()
    with contextlib.suppress(OSError):
        blob.path.parent.rmdir()


def named_blobs(root: Path) -> Set[bytes] | None:
    """Return the digests that the registry removes itself when they expire, None if they cannot be read."""
    found: set[bytes] = set()
    rest = b""
    try:
        with state_path(root).open("rb") as file:
            while part := file.read(_CHUNK):
                rest += part
                found |= {bytes.fromhex(each.decode()) for each in _NAMED.findall(rest)}
                rest = rest[-80:]  # longer than one match
    except FileNotFoundError:
        return frozenset()
    except OSError:
        return None
    return found


def expired(root: Path, before: float, named: Set[bytes]) -> Iterator[Blob]:
    """Yield the blobs that were stored before that time and that are not `named`."""
    for prefix in prefixes(root):
        for blob in blobs(prefix):
            if blob.modified < before and bytes.fromhex(blob.digest) not in named:
                yield blob


# other files that break pulls or use space


def uploads(root: Path) -> Iterator[Path]:
    """Yield the folders of uploads, in progress or left over."""
    for folder in _below_repositories(root, "_uploads"):
        for each in _folders(folder):
            yield Path(each.path)


def stopped_uploads(root: Path, before: float) -> Iterator[Path]:
    """Yield the folders of uploads without a write since that time."""
    return (each for each in uploads(root) if _newest(each) < before)


def remove_upload(upload: Path) -> None:
    """Remove the folder of an upload.

    Raises:
        OSError: a part of it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(upload)


def broken_links(root: Path, before: float) -> Iterator[Path]:
    """Yield links without a digest, which a power loss leaves: the registry answers with 500 for each.

    A link that was written since `before` is left out: it may be incomplete.
    """
    for kind in ("_layers", "_manifests"):
        for folder in _below_repositories(root, kind):
            for where, _, names in os.walk(folder):
                path = Path(where) / "link"
                if "link" in names and _is_broken_link(path, before):
                    yield path


def _is_broken_link(path: Path, before: float) -> bool:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_mtime >= before:
            return False
        with path.open("rb") as file:
            return not _LINK.fullmatch(file.read(_LONGEST_LINK))
    except OSError:
        return False


def broken_state(root: Path) -> tuple[int, ...] | None:
    """Return the signature of the scheduler's state file if the registry cannot start with it, else None."""
    path = state_path(root)
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return None
        with path.open("rb") as file:
            if found.st_size > _MOST_STATE_BYTES:
                is_state = _is_object(file, found.st_size)
            else:
                is_state = _is_state(file.read(found.st_size))
        return None if is_state else _signature(found)
    except OSError:
        return None


def state_path(root: Path) -> Path:
    """Return the path of the registry's scheduler state, which lists the expiry times of blobs."""
    return root / "scheduler-state.json"


def _is_object(file: BinaryIO, size: int) -> bool:
    """Whether a file begins and ends as a JSON object; the registry writes less whitespace than the bytes read here."""
    begin = file.read(_END_BYTES)
    file.seek(size - _END_BYTES)
    return begin.lstrip(_JSON_SPACE).startswith(b"{") and file.read(_END_BYTES).rstrip(_JSON_SPACE).endswith(b"}")


def _is_state(content: bytes) -> bool:
    """Whether the registry can decode the content. It also panics at null.

    https://github.com/distribution/distribution/blob/main/registry/proxy/scheduler/scheduler.go
    """

    def entry(found: dict[str, Any]) -> bool | dict[str, Any]:
        # Each entry becomes a bool, so that many entries need little memory.
        kind = found.get("EntryType")
        is_entry = (
            isinstance(found.get("Key"), str) and type(kind) is int and abs(kind) < _MOST_TYPE and _is_time(found)
        )
        return is_entry or found

    try:
        # Python detects UTF-16 and UTF-32 in bytes; Go decodes only UTF-8, without a byte order mark.
        state = json.loads(content.decode(), object_hook=entry, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return False
    return isinstance(state, dict) and all(each is True for each in state.values())


def _not_json(text: str) -> NoReturn:
    raise ValueError(text)


def _is_time(found: dict[str, Any]) -> bool:
    expiry = found.get("ExpiryData")
    parts = _SECOND.fullmatch(expiry) if isinstance(expiry, str) else None
    if not parts:
        return False
    try:
        datetime.fromisoformat(parts[1])
    except ValueError:
        return False
    return True


def _registry(root: Path) -> Path:
    return root / "docker" / "registry" / "v2"


def _blobs(root: Path) -> Path:
    return _registry(root) / "blobs" / "sha256"


def _below_repositories(root: Path, name: str) -> Iterator[Path]:
    """Yield all folders of this name in repositories; a repository's name may have several parts."""
    left = [_registry(root) / "repositories"]
    while left:
        for each in _folders(left.pop()):
            if each.name == name:
                yield Path(each.path)
            elif not each.name.startswith("_"):
                left.append(Path(each.path))


def _folders(path: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the folders in a folder, without links to folders; none if the folder cannot be read."""
    with contextlib.suppress(OSError), os.scandir(path) as found:
        for each in found:
            if each.is_dir(follow_symlinks=False):
                yield each


def _newest(folder: Path) -> float:
    """Return the time of the last write below a folder."""
    newest = 0.0
    for where, _, names in os.walk(folder):
        for path in (Path(where), *(Path(where, name) for name in names)):
            with contextlib.suppress(OSError):
                newest = max(newest, path.lstat().st_mtime)
    return newest or float("inf")


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
