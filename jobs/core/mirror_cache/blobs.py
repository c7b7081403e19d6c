"""The blobs of a registry's cache: list, verify and remove them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import NamedTuple

from jobs.core.mirror_cache.layout import blob_folder, folders, signature, state_path

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
