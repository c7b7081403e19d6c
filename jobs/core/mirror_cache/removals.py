"""The times at which corrupt blobs were removed, in a file on the volume: it outlives the pod."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

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
