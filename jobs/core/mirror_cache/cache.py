"""Guard the volume of a registry: follow its free space, verify its blobs, and remove files that break pulls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from jobs.core.mirror_cache.blobs import Blob, all_blobs, expired, matches, named_blobs, remove_blob
from jobs.core.mirror_cache.broken_files import broken_links, broken_state
from jobs.core.mirror_cache.gate import MIB, SHORTAGES, Gate, Room, details, room
from jobs.core.mirror_cache.layout import is_used, roots, state_path
from jobs.core.mirror_cache.removals import DAY_SECONDS, last_removals, record_removal
from jobs.core.mirror_cache.uploads import Uploads, remove_upload, stopped_uploads
from jobs.core.mirror_cache.upstream import refusal
from jobs.kit.run.log import log

SAMPLE_SECONDS = 0.2  # 25 MB at 1 Gbit/s
UPLOADS_SECONDS = 0.2  # a shorter upload is found at another attempt
# A volume may have many repositories, so scans for uploads use a fiftieth of the time. A scan that reads a large upload
# may take long: the limit below prevents that layers are missed for minutes because of it.
_UPLOADS_SHARE = 50
MOST_UPLOADS_SECONDS = 5.0
WATCH_SECONDS = 30.0
# containerd cancels a pull without progress for 5 minutes (image_pull_progress_timeout).
UPLOAD_SECONDS = 600.0
UNFINISHED_SECONDS = 2.0  # a registry before version 3 writes small files in place
FIRST_SECONDS = 3600.0  # a power loss damages the newest files
_SAME_TICK = 2_000_000_000  # nanoseconds: the coarsest file times
# A new blob is still in the page cache: the read uses a tenth of a CPU, and takes 32 seconds for 1 GiB.
NEW_BYTES_PER_SECOND = 32 * MIB
# All blobs are read within a week, the default ttl, at a rate that is low for disks, and at most once a day.
LEAST_BYTES_PER_SECOND = MIB
ROUND_SECONDS = 7 * 86400.0
SWEEP_SECONDS = 3600.0
REGISTRY_PORT = 5000
# Some upstreams lock a user after many wrong logins. Each pull through the mirror sends the login, too.
REFUSAL_SECONDS = 600.0
NO_REGISTRY_SECONDS = 5.0
_REFUSALS = {
    "login": "the token server of the upstream rejects the login of the registry",
    "unauthorized": "the upstream answers the registry with 401 Unauthorized",
    "rate": "the upstream answers the registry with 429 Too Many Requests",
}
_MOST_VERIFIED = 10_000


class Cache:
    """The volume and the results of its checks. Each method that never returns runs in its own thread."""

    def __init__(self, volume: Path, upstream: str, ttl: float) -> None:
        self._volume, self._root, self._ttl = volume, volume / upstream, ttl
        self._gate = Gate()
        self._recording = threading.Lock()
        self._refusal = ""
        self._last_round = ""
        self._since = int((time.time() - FIRST_SECONDS) * 1e9)
        self._verified: dict[Path, tuple[int, ...]] = {}
        self._swept = float("-inf")

    def unready(self) -> str:
        """Return why nodes should not use the registry, or nothing."""
        observed = self._gate.observed()
        if observed is None:
            return "the volume does not answer"
        sample, shortage = observed
        return f"{SHORTAGES[shortage]}: {details(sample)}" if shortage else ""

    def state(self) -> dict[str, Any]:
        """Return the figures that mirror-audit reads; none contains the name of an image."""
        sample, shortage = self._gate.observed() or (Room(0, 0, 0, 0), "answer")
        return {
            "freeBytes": sample.free,
            "capacityBytes": sample.capacity,
            "leastFreeBytes": sample.least_free,
            "shortage": shortage,
            "used": is_used(self._root),
            "corruptBlobs": len(last_removals(self._root, time.time())),
            "refusal": self._refusal,
            "lastFullRound": self._last_round,
        }

    def follow_room(self) -> NoReturn:
        """Take samples of the free space and inodes."""
        while True:
            with contextlib.suppress(OSError):
                self._gate.sample(room(self._volume, self._root))
            time.sleep(SAMPLE_SECONDS)

    def follow_uploads(self) -> NoReturn:
        """Find layers that end before they are complete."""
        uploads = Uploads(self._root, UPLOAD_SECONDS)
        while True:
            began = time.monotonic()
            if uploads.interrupted():
                self._gate.interrupt()
            pause = max(UPLOADS_SECONDS, _UPLOADS_SHARE * (time.monotonic() - began))
            time.sleep(min(pause, MOST_UPLOADS_SECONDS))

    def follow_upstream(self) -> NoReturn:
        """Find out whether the upstream refuses the registry. A failure of another kind does not change the result."""
        while True:
            pause, found = REFUSAL_SECONDS, None
            try:
                found = refusal(REGISTRY_PORT)
            except ConnectionError:
                pause = NO_REGISTRY_SECONDS
            if found is not None and found != self._refusal:
                log.warning("%s", _REFUSALS.get(found, "the upstream accepts the requests of the registry again"))
                self._refusal = found
            time.sleep(pause)

    def watch(self) -> NoReturn:
        """Remove uploads that stopped, files that the registry cannot read, and changed blobs that are damaged."""
        while True:
            self._remove_broken_state()
            self._remove_stopped_uploads()
            if time.monotonic() - self._swept >= SWEEP_SECONDS:
                self._swept = time.monotonic()
                self._remove_broken_links()
                self._remove_expired()
            self._verify_changed()
            time.sleep(WATCH_SECONDS)

    def verify_all(self) -> NoReturn:
        """Read all blobs again and again: a disk can damage a blob without a write."""
        while True:
            began = time.monotonic()
            for blob in self._blobs():
                self._verify(blob, self._rate(), keep_cached=False)
            self._last_round = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            time.sleep(max(1.0, DAY_SECONDS - (time.monotonic() - began)))

    def _rate(self) -> float:
        observed = self._gate.observed()
        return max(LEAST_BYTES_PER_SECOND, observed[0].capacity / ROUND_SECONDS if observed else 0)

    def _blobs(self) -> Iterator[Blob]:
        for root in roots(self._volume):
            yield from all_blobs(root)

    def _remove_broken_state(self) -> None:
        found = broken_state(self._root)
        if found is None:
            return
        time.sleep(UNFINISHED_SECONDS)
        if broken_state(self._root) == found:
            path = state_path(self._root)
            _remove(path.unlink, path, "the registry cannot start with it")

    def _remove_stopped_uploads(self) -> None:
        before = time.time() - UPLOAD_SECONDS
        for root in roots(self._volume):
            for upload in stopped_uploads(root, before):
                _remove(partial(remove_upload, upload), upload, "the upload stopped")

    def _remove_broken_links(self) -> None:
        for link in broken_links(self._root, time.time() - UNFINISHED_SECONDS):
            _remove(link.unlink, link, "names no digest")

    def _remove_expired(self) -> None:
        """Remove blobs that the registry has no record of: of a lost state, another ttl or another upstream."""
        if not self._ttl:
            return
        before = time.time() - self._ttl - SWEEP_SECONDS
        for root in roots(self._volume):
            named = named_blobs(root) if root == self._root else frozenset()
            if named is not None:
                for blob in expired(root, before, named):
                    _remove(partial(remove_blob, blob), blob.path, "older than the ttl")

    def _verify_changed(self) -> None:
        began, newest = time.time_ns(), 0
        verified: dict[Path, tuple[int, ...]] = {}
        for blob in self._blobs():
            newest = max(newest, blob.changed)
            if blob.size and blob.changed < self._since:
                continue
            if self._verified.get(blob.path) != blob.signature:
                self._verify(blob, NEW_BYTES_PER_SECOND, keep_cached=True)
            # Only the latest changes are compared again: on a restored volume all blobs are new.
            if len(verified) >= _MOST_VERIFIED:
                verified = {
                    path: each for path, each in verified.items() if each[-1] >= min(began, newest) - _SAME_TICK
                }
            if len(verified) < _MOST_VERIFIED:
                verified[blob.path] = blob.signature
        # A blob that changes during this scan is newer than its start; the volume may have another clock.
        self._since, self._verified = min(began, newest) - _SAME_TICK, verified

    def _verify(self, blob: Blob, rate: float, *, keep_cached: bool) -> None:
        found = matches(blob, lambda size: time.sleep(size / rate), keep_cached=keep_cached)
        if found is False and _remove(partial(remove_blob, blob), blob.path, "does not match its digest"):
            with self._recording:
                record_removal(self._root, time.time())


def _remove(act: Callable[[], object], path: Path, why: str) -> bool:
    """Remove a file and log the reason. Return whether it existed: two threads may find the same file."""
    try:
        act()
        log.warning("%s: removed: %s", path, why)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("%s: %s, and cannot be removed: %s", path, why, error.strerror)
    return True
