"""The files of a registry's cache on its volume: one folder for each upstream.

Below it the layout is that of distribution's file system driver:
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
import time
from collections.abc import Callable, Iterator, Set
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

# folders


def roots(volume: Path) -> Iterator[Path]:
    """Yield the folder of each upstream that is cached on the volume."""
    return (Path(each.path) for each in folders(volume))


def registry(root: Path) -> Path:
    """Return the folder of the registry's data, below the folder of an upstream."""
    return root / "docker" / "registry" / "v2"


def blob_folder(root: Path) -> Path:
    """Return the folder of the blobs."""
    return registry(root) / "blobs" / "sha256"


def blob_path(root: Path, digest: str) -> Path:
    """Return the path of the file that stores a blob."""
    return blob_folder(root) / digest[:2] / digest / "data"


def state_path(root: Path) -> Path:
    """Return the path of the registry's scheduler state, which lists the expiry times of blobs."""
    return root / "scheduler-state.json"


def is_used(root: Path) -> bool:
    """Whether an image was ever pulled through the mirror: the registry then created a folder for its repository."""
    return next(folders(registry(root) / "repositories"), None) is not None


def below_repositories(root: Path, name: str) -> Iterator[Path]:
    """Yield all folders of this name in repositories; a repository's name may have several parts."""
    left = [registry(root) / "repositories"]
    while left:
        for each in folders(left.pop()):
            if each.name == name:
                yield Path(each.path)
            elif not each.name.startswith("_"):
                left.append(Path(each.path))


def folders(path: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the folders in a folder, without links to folders; none if the folder cannot be read."""
    with contextlib.suppress(OSError), os.scandir(path) as found:
        for each in found:
            if each.is_dir(follow_symlinks=False):
                yield each


def signature(found: os.stat_result) -> tuple[int, ...]:
    """Return what a write to the file changes; the last part is the ctime in ns."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


# blobs: list, verify and remove them

_HEX = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{2}")
_NAMED = re.compile(rb"@sha256:([0-9a-f]{64})")
_CHUNK = 1 << 20
# The disk lost the file, or a backup restored it with another owner. The registry cannot read it either, and answers
# with 200 and no content.
_UNREADABLE = frozenset({errno.EIO, errno.EACCES, errno.EPERM})

Pause = Callable[[int], object]


class Blob(NamedTuple):
    """A stored blob. `changed` is its ctime in ns, `modified` its mtime in s; a write changes the `signature`."""

    path: Path
    digest: str
    size: int
    changed: int
    signature: tuple[int, ...]
    modified: float


def all_blobs(root: Path) -> Iterator[Blob]:
    """Yield the blobs below the folder of an upstream, in the order of at most 256 folders that contain them."""
    found = folders(blob_folder(root))
    for prefix in sorted(Path(each.path) for each in found if _PREFIX.fullmatch(each.name)):
        yield from blobs(prefix)


def blobs(prefix: Path) -> Iterator[Blob]:
    """Yield the blobs of one of these folders, which may be very many; skip a blob that is deleted meanwhile."""
    for each in folders(prefix):
        path = Path(each.path, "data")
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and _HEX.fullmatch(each.name):
                yield Blob(path, each.name, found.st_size, found.st_ctime_ns, signature(found), found.st_mtime)


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
            if signature(before) == signature(os.fstat(descriptor)) == signature(blob.path.lstat()):
                return content.hexdigest() == blob.digest
    return None


def remove_blob(blob: Blob) -> None:
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
    for blob in all_blobs(root):
        if blob.modified < before and bytes.fromhex(blob.digest) not in named:
            yield blob


# files that the registry cannot read: links without a digest, and a damaged state of the scheduler

_MOST_STATE_BYTES = 16 << 20  # some 70,000 entries; of a larger one only the ends are read, since memory is limited
_END_BYTES = 1024
_LINK = re.compile(rb"[a-z0-9]+:[0-9a-f]{32,128}")
_LONGEST_LINK = 256
_JSON_SPACE = b" \t\r\n"
_OBJECT = object()


def broken_links(root: Path, before: float) -> Iterator[Path]:
    """Yield links without a digest, which a power loss leaves: the registry answers with 500 for each.

    A link that was written since `before` is left out: it may be incomplete.
    """
    for kind in ("_layers", "_manifests"):
        for folder in below_repositories(root, kind):
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
        return None if is_state else signature(found)
    except OSError:
        return None


def _is_object(file: BinaryIO, size: int) -> bool:
    """Whether a file begins and ends as a JSON object; the registry writes less whitespace than the bytes read here."""
    begin = file.read(_END_BYTES)
    file.seek(size - _END_BYTES)
    return begin.lstrip(_JSON_SPACE).startswith(b"{") and file.read(_END_BYTES).rstrip(_JSON_SPACE).endswith(b"}")


def _is_state(content: bytes) -> bool:
    """Whether the content is a JSON object. A power loss leaves zeros, a part of it, or nothing.

    https://github.com/distribution/distribution/blob/main/registry/proxy/scheduler/scheduler.go
    """
    try:
        # Each object becomes the same one, so that many entries need little memory. Python detects UTF-16 and UTF-32 in
        # bytes; Go decodes only UTF-8, without a byte order mark.
        return json.loads(content.decode(), object_hook=lambda _: _OBJECT) is _OBJECT
    except (ValueError, RecursionError):
        return False


# uploads: layers that ended before they were complete, and uploads that stopped

# A registry writes an upload while it sends it to a node. At the end it renames the file to a blob. It deletes the file
# if the upload failed, or if another repository has the same blob.
# https://github.com/distribution/distribution/blob/main/registry/storage/blobwriter.go

_MOST_OPEN = 64  # open files


def uploads(root: Path) -> Iterator[Path]:
    """Yield the folders of uploads, in progress or left over."""
    for folder in below_repositories(root, "_uploads"):
        for each in folders(folder):
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


def _newest(folder: Path) -> float:
    """Return the time of the last write below a folder."""
    newest = 0.0
    for where, _, names in os.walk(folder):
        for path in (Path(where), *(Path(where, name) for name in names)):
            with contextlib.suppress(OSError):
                newest = max(newest, path.lstat().st_mtime)
    return newest or float("inf")


class Uploads:
    """The uploads below the folder of an upstream. Their files stay open, so that their end can be observed.

    An upload without a write for `stopped` seconds was left by a registry that ended, so it is not an interrupted one.
    """

    def __init__(self, root: Path, stopped: float) -> None:
        self._root, self._stopped = root, stopped
        self._open: dict[Path, int] = {}

    def interrupted(self) -> bool:
        """Return whether an upload ended since the last call without its complete blob."""
        found = {upload / "data" for upload in uploads(self._root)}
        ended = [self._open.pop(path) for path in self._open.keys() - found]
        interrupted = False
        for descriptor in ended:
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                interrupted |= self._is_interrupted(file)
        self._open |= dict(self._opened(found - self._open.keys()))
        return interrupted

    def _opened(self, paths: set[Path]) -> Iterator[tuple[Path, int]]:
        for path in sorted(paths)[: _MOST_OPEN - len(self._open)]:
            with contextlib.suppress(OSError):
                yield path, os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)

    def _is_interrupted(self, file: FileIO) -> bool:
        """Whether a node got only a part: of an empty file nothing was sent, and the blob may have existed before."""
        found = os.fstat(file.fileno())
        is_stopped = found.st_mtime < time.time() - self._stopped
        if found.st_nlink or not found.st_size or not stat.S_ISREG(found.st_mode) or is_stopped:
            return False
        content = hashlib.sha256()
        with contextlib.suppress(OSError):
            while part := file.read(_CHUNK):
                content.update(part)
        return not blob_path(self._root, content.hexdigest()).exists()


# the times at which corrupt blobs were removed, in a file on the volume: it outlives the pod

DAY_SECONDS = 86400.0
_MOST_TIMES = 1000
_MOST_BYTES = 1 << 16


def record_removal(root: Path, now: float) -> None:
    """Add a removal to the file, and remove those that are older than a day."""
    path = _removals_path(root)
    new = path.with_suffix(".new")
    times = [*last_removals(root, now), now][-_MOST_TIMES:]
    with contextlib.suppress(OSError):
        new.write_text("".join(f"{each}\n" for each in times))
        new.replace(path)


def last_removals(root: Path, now: float) -> list[float]:
    """Return the times of removals in the last 24 hours, at most 1000; none if the file cannot be read."""
    path = _removals_path(root)
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                return [each for each in map(float, file.read(_MOST_BYTES).split()) if now - DAY_SECONDS < each <= now]
    return []


def _removals_path(root: Path) -> Path:
    return root / "corrupt-blobs"
