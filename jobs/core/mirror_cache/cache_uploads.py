"""Follow the layers that a registry fetches for nodes, and find those that ended before they were complete.

A registry writes an upload while it sends it to a node. At the end it renames the file to a blob. It deletes the file
if the upload failed, or if another repository has the same blob.
https://github.com/distribution/distribution/blob/main/registry/storage/blobwriter.go
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from jobs.core.mirror_cache.cache_files import MIB, blob_path, uploads

_MOST = 64  # open files


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
        for path in sorted(paths)[: _MOST - len(self._open)]:
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
            while part := file.read(MIB):
                content.update(part)
        return not blob_path(self._root, content.hexdigest()).exists()
