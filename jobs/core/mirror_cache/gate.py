"""Whether nodes should pull from a registry: by the free space of its volume and by interrupted layers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jobs.core.mirror_cache.layout import registry
from jobs.kit.run.log import log

MIB = 1 << 20
# Space for the layers in progress when space runs short. A node fetches three layers at once (containerd's
# max_concurrent_downloads) of one image (kubelet pulls serially): 1.5 GiB for layers of 500 MiB. Nodes use the mirror
# for about 4 more seconds: 0.5 GiB at 1 Gbit/s. Larger volumes serve more nodes at once.
_LEAST_FREE_BYTES = 2048 * MIB
# A layer needs about ten inodes: folders, the upload, the blob and its link.
_LEAST_FREE_FILES = 1000
# A layer that fills the volume is removed when its pull fails, and there is space again. kubelet tries again after 10,
# 20 and 40 seconds. In that time nodes must pull from the upstream, or each attempt fails in the same way.
UNREADY_SECONDS = 120.0
ENOUGH = 1.5  # times the least free space: a volume near the threshold would otherwise switch between ready and unready
LATE_SECONDS = 5.0
SHORTAGES = {
    "access": "the registry cannot use the volume",
    "space": "too little free space",
    "inodes": "too few free inodes",
    "layers": "a layer was interrupted",
}


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


class Gate:
    """Whether the registry has space for layers. One thread takes samples, other threads read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._room: Room | None = None
        self._sampled = self._short = self._interrupted = float("-inf")
        self._shortage = ""

    def sample(self, room: Room) -> None:
        """Record the free space and inodes."""
        now = time.monotonic()
        shortage = room.shortage()
        if shortage:
            self._short = now
        elif self._shortage in ("space", "inodes") and (now - self._short < UNREADY_SECONDS or room.shortage(ENOUGH)):
            shortage = self._shortage
        if shortage != self._shortage:
            recovered = "can be used" if self._shortage == "access" else "has enough space"
            log.warning("%s: %s", SHORTAGES.get(shortage, f"the volume {recovered} again"), details(room))
        with self._lock:
            self._room, self._sampled, self._shortage = room, now, shortage

    def interrupt(self) -> None:
        """Record that a layer ended before it was complete: the next attempt may end in the same way."""
        if time.monotonic() - self._interrupted >= UNREADY_SECONDS:
            log.warning("%s: nodes pull from the upstream for %g seconds", SHORTAGES["layers"], UNREADY_SECONDS)
        self._interrupted = time.monotonic()

    def observed(self) -> tuple[Room, str] | None:
        """Return the last sample and what is missing, a key of SHORTAGES; None while the volume does not answer."""
        with self._lock:
            late = time.monotonic() - self._sampled > LATE_SECONDS
            if not self._room or late:
                return None
            interrupted = time.monotonic() - self._interrupted < UNREADY_SECONDS
            return self._room, self._shortage or ("layers" if interrupted else "")


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


def details(room: Room) -> str:
    """Describe the free space and inodes of a volume, or why it cannot be used."""
    if room.unusable:
        return room.unusable
    bytes_free = f"{room.free // MIB} MiB of {room.capacity // MIB}, at least {room.least_free // MIB}"
    return f"{bytes_free}; {room.free_files} inodes of {room.files}"
