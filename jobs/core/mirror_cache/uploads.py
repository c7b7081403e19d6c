"""The uploads of a registry: find layers that ended before they were complete, and uploads that stopped.

A registry writes an upload while it sends it to a node. At the end it renames the file to a blob. It deletes the file
if the upload failed, or if another repository has the same blob.
https://github.com/distribution/distribution/blob/main/registry/storage/blobwriter.go
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from jobs.core.mirror_cache.layout import below_repositories, blob_path, folders

_MOST_OPEN = 64  # open files
_CHUNK = 1 << 20


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
