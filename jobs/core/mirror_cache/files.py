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
import stat
import time
from collections.abc import Callable, Iterator, Set
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

# folders and files below the folder of an upstream

BLOBS = "docker/registry/v2/blobs/sha256"  # with PREFIX/DIGEST/data
# With NAME/_layers and NAME/_manifests, where links name digests, and NAME/_uploads/ID/data. A name may have several
# parts. The registry creates the folder of a repository when an image is pulled through the mirror.
REPOSITORIES = "docker/registry/v2/repositories"
STATE = "scheduler-state.json"  # the registry's expiry times of blobs
_REMOVALS = "corrupt-blobs"  # of mirror-cache


def below_repositories(root: Path, name: str) -> Iterator[Path]:
    """Yield all folders of this name in repositories."""
    left = [root / REPOSITORIES]
    while left:
        for each in folders(left.pop()):
            if each.name == name:
                yield each
            elif not each.name.startswith("_"):
                left.append(each)


def folders(path: Path) -> Iterator[Path]:
    """Yield the folders in a folder, without links to folders; none if the folder cannot be read."""
    with contextlib.suppress(OSError), os.scandir(path) as found:
        for each in found:
            if each.is_dir(follow_symlinks=False):
                yield Path(each.path)


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
    """A stored blob, and the status of its file when it was found."""

    path: Path
    digest: str
    file: os.stat_result


def blobs(root: Path) -> Iterator[Blob]:
    """Yield the blobs below the folder of an upstream; skip a blob that is deleted meanwhile."""
    for prefix in sorted(each for each in folders(root / BLOBS) if _PREFIX.fullmatch(each.name)):
        for each in folders(prefix):  # very many
            with contextlib.suppress(OSError):
                path = each / "data"
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and _HEX.fullmatch(each.name):
                    yield Blob(path, each.name, found)


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


def remove_blob(path: Path) -> None:
    """Remove a blob. The registry fetches it again when it is needed; transfers in progress keep the open file."""
    path.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def named_blobs(root: Path) -> Set[bytes] | None:
    """Return the digests that the registry removes itself when they expire, None if they cannot be read."""
    found: set[bytes] = set()
    rest = b""
    try:
        with (root / STATE).open("rb") as file:
            while part := file.read(_CHUNK):
                rest += part
                found |= {bytes.fromhex(each.decode()) for each in _NAMED.findall(rest)}
                rest = rest[-80:]  # longer than one match
    except FileNotFoundError:
        return frozenset()
    except OSError:
        return None
    return found


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
                path = Path(where, "link")
                if "link" in names and _is_broken_link(path, before):
                    yield path


def _is_broken_link(path: Path, before: float) -> bool:
    with contextlib.suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_mtime < before:
            with path.open("rb") as file:
                return not _LINK.fullmatch(file.read(_LONGEST_LINK))
    return False


def broken_state(root: Path) -> tuple[int, ...] | None:
    """Return the signature of the scheduler's state file if the registry cannot start with it, else None."""
    path = root / STATE
    with contextlib.suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            with path.open("rb") as file:
                is_large = found.st_size > _MOST_STATE_BYTES
                is_state = _is_object(file, found.st_size) if is_large else _is_state(file.read(found.st_size))
            return None if is_state else signature(found)
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
        yield from folders(folder)


def last_write(folder: Path) -> float:
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
        for path in sorted(found - self._open.keys())[: _MOST_OPEN - len(self._open)]:
            with contextlib.suppress(OSError):
                self._open[path] = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        return interrupted

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
        digest = content.hexdigest()
        return not (self._root / BLOBS / digest[:2] / digest / "data").exists()


# the times at which corrupt blobs were removed, in a file on the volume: it outlives the pod

DAY_SECONDS = 86400.0
_MOST_TIMES = 1000
_MOST_BYTES = 1 << 16


def record_removal(root: Path, now: float) -> None:
    """Add a removal to the file, and remove those that are older than a day."""
    path = root / _REMOVALS
    new = path.with_suffix(".new")
    times = [*last_removals(root, now), now][-_MOST_TIMES:]
    with contextlib.suppress(OSError):
        new.write_text("".join(f"{each}\n" for each in times))
        new.replace(path)


def last_removals(root: Path, now: float) -> list[float]:
    """Return the times of removals in the last 24 hours, at most 1000; none if the file cannot be read."""
    path = root / _REMOVALS
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(path.lstat().st_mode):
            with path.open("rb") as file:
                return [each for each in map(float, file.read(_MOST_BYTES).split()) if now - DAY_SECONDS < each <= now]
    return []
