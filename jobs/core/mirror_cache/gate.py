"""Whether nodes should pull from a registry, by the free space of its volume and by interrupted layers."""

from __future__ import annotations

import threading
import time

from jobs.core.mirror_cache.room import MIB, Room
from jobs.kit.run.log import log

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


def details(room: Room) -> str:
    """Describe the free space and inodes of a volume, or why it cannot be used."""
    if room.unusable:
        return room.unusable
    bytes_free = f"{room.free // MIB} MiB of {room.capacity // MIB}, at least {room.least_free // MIB}"
    return f"{bytes_free}; {room.free_files} inodes of {room.files}"
