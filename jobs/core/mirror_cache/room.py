"""The free space and inodes of a volume, and whether the registry can use it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jobs.core.mirror_cache.layout import registry

MIB = 1 << 20
# Space for the layers in progress when space runs short. A node fetches three layers at once (containerd's
# max_concurrent_downloads) of one image (kubelet pulls serially): 1.5 GiB for layers of 500 MiB. Nodes use the mirror
# for about 4 more seconds: 0.5 GiB at 1 Gbit/s. Larger volumes serve more nodes at once.
_LEAST_FREE_BYTES = 2048 * MIB
# A layer needs about ten inodes: folders, the upload, the blob and its link.
_LEAST_FREE_FILES = 1000


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
    data = registry(root)
    folders = root, data.parent.parent, data.parent, data
    for folder in (*folders, data / "blobs", data / "blobs" / "sha256", data / "repositories"):
        if os.path.lexists(folder):
            yield folder
