"""Guard the volume of a registry: follow its free space, verify its blobs, and remove files that break pulls."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from jobs.core.mirror_cache.files import (
    BLOBS,
    DAY_SECONDS,
    REPOSITORIES,
    STATE,
    Blob,
    Uploads,
    blobs,
    broken_links,
    broken_state,
    folders,
    last_removals,
    last_write,
    matches,
    named_blobs,
    record_removal,
    remove_blob,
    signature,
    uploads,
)
from jobs.kit.run.log import log

# whether nodes should pull from the registry: by the free space of its volume and by interrupted layers

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
        self._last: tuple[float, Room, str] | None = None  # replaced as a whole: other threads read it
        self._short = self._interrupted = float("-inf")
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
        self._shortage = shortage
        self._last = now, room, shortage

    def interrupt(self) -> None:
        """Record that a layer ended before it was complete: the next attempt may end in the same way."""
        if time.monotonic() - self._interrupted >= UNREADY_SECONDS:
            log.warning("%s: nodes pull from the upstream for %g seconds", SHORTAGES["layers"], UNREADY_SECONDS)
        self._interrupted = time.monotonic()

    def observed(self) -> tuple[Room, str] | None:
        """Return the last sample and what is missing, a key of SHORTAGES; None while the volume does not answer."""
        if self._last is None:
            return None
        (sampled, room, shortage), now = self._last, time.monotonic()
        interrupted = "layers" if now - self._interrupted < UNREADY_SECONDS else ""
        return None if now - sampled > LATE_SECONDS else (room, shortage or interrupted)


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
    # The registry writes to the volume's own folder only until the upstream has a folder.
    used = [root / each for each in (*reversed(Path(BLOBS).parents), Path(BLOBS), Path(REPOSITORIES))]
    for folder in filter(os.path.lexists, used if os.path.lexists(root) else [volume]):
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{folder} cannot be read and written"
    return ""


def details(room: Room) -> str:
    """Describe the free space and inodes of a volume, or why it cannot be used."""
    if room.unusable:
        return room.unusable
    bytes_free = f"{room.free // MIB} MiB of {room.capacity // MIB}, at least {room.least_free // MIB}"
    return f"{bytes_free}; {room.free_files} inodes of {room.files}"


# whether the upstream refuses the requests of the registry, by a request for a blob that does not exist

# The registry sends it to the upstream with its login, so no other process needs the login. Requests of clients do not
# change the answer. It is not a pull, which upstreams count: https://docs.docker.com/docker-hub/usage/pulls/

PROBE_PATH = f"/v2/kube-chores/probe/blobs/sha256:{'0' * 64}"
_ANSWER_SECONDS = 10.0
_MOST_RESPONSE_BYTES = 1 << 16
# With one of these, the upstream has accepted the login, if the registry sent one.
_ACCEPTED = frozenset({HTTPStatus.OK, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_OF_STATUS: Mapping[int, str] = {HTTPStatus.UNAUTHORIZED: "unauthorized", HTTPStatus.TOO_MANY_REQUESTS: "rate"}
# A registry answers with 500 if the token server of its upstream refuses it. A token server refuses only clients that
# it cannot authenticate: https://distribution.github.io/distribution/spec/auth/token/#requesting-a-token
_OF_TOKENS = {"unauthorized": "login", "denied": "login", "toomanyrequests": "rate"}
_DETAIL = re.compile(rf'Head "[^"]*": ({"|".join(_OF_TOKENS)}): ')


def refusal(port: int) -> str | None:
    """Return why the upstream refuses requests: "login", "unauthorized" or "rate".

    Return nothing if it refuses none, and None if the registry or its upstream failed in another way.

    Raises:
        ConnectionError: the registry does not respond yet.
    """
    connection = http.client.HTTPConnection("localhost", port, timeout=_ANSWER_SECONDS)
    with contextlib.closing(connection):
        try:
            connection.request("GET", PROBE_PATH, headers={"User-Agent": "mirror-cache"})
            response = connection.getresponse()
            if response.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                return _of_token_server(response.read(_MOST_RESPONSE_BYTES))
        except ConnectionError:
            raise
        except (OSError, http.client.HTTPException):
            return None
    return "" if response.status in _ACCEPTED else _OF_STATUS.get(response.status)


def _of_token_server(body: bytes) -> str | None:
    """Return the refusal in the body of an error, None if there is none.

    https://distribution.github.io/distribution/spec/api/#errors
    """
    try:
        found = _DETAIL.match(json.loads(body)["errors"][0]["detail"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return _OF_TOKENS[found[1]] if found else None


# all checks

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
            "used": next(folders(self._root / REPOSITORIES), None) is not None,
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
        followed = Uploads(self._root, UPLOAD_SECONDS)
        while True:
            began = time.monotonic()
            if followed.interrupted():
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
        swept = float("-inf")
        while True:
            self._remove_broken_state()
            self._remove_stopped_uploads()
            if time.monotonic() - swept >= SWEEP_SECONDS:
                swept = time.monotonic()
                for link in broken_links(self._root, time.time() - UNFINISHED_SECONDS):
                    _remove(Path.unlink, link, "names no digest")
                self._remove_expired()
            self._verify_changed()
            time.sleep(WATCH_SECONDS)

    def verify_all(self) -> NoReturn:
        """Read all blobs again and again: a disk can damage a blob without a write."""
        while True:
            began = time.monotonic()
            for blob in self._blobs():
                observed = self._gate.observed()
                rate = observed[0].capacity / ROUND_SECONDS if observed else 0
                self._verify(blob, max(LEAST_BYTES_PER_SECOND, rate), keep_cached=False)
            self._last_round = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            time.sleep(max(1.0, DAY_SECONDS - (time.monotonic() - began)))

    def _blobs(self) -> Iterator[Blob]:
        for root in folders(self._volume):
            yield from blobs(root)

    def _remove_broken_state(self) -> None:
        found = broken_state(self._root)
        if found is None:
            return
        time.sleep(UNFINISHED_SECONDS)
        if broken_state(self._root) == found:
            _remove(Path.unlink, self._root / STATE, "the registry cannot start with it")

    def _remove_stopped_uploads(self) -> None:
        before = time.time() - UPLOAD_SECONDS
        for root in folders(self._volume):
            for upload in uploads(root):
                if last_write(upload) < before:
                    _remove(shutil.rmtree, upload, "the upload stopped")

    def _remove_expired(self) -> None:
        """Remove blobs that the registry has no record of: of a lost state, another ttl or another upstream."""
        if not self._ttl:
            return
        before = time.time() - self._ttl - SWEEP_SECONDS
        for root in folders(self._volume):
            named = named_blobs(root) if root == self._root else frozenset()
            if named is None:
                continue
            for blob in blobs(root):
                if blob.file.st_mtime < before and bytes.fromhex(blob.digest) not in named:
                    _remove(remove_blob, blob.path, "older than the ttl")

    def _verify_changed(self) -> None:
        began, newest = time.time_ns(), 0
        verified: dict[Path, tuple[int, ...]] = {}
        for blob in self._blobs():
            changed, found = blob.file.st_ctime_ns, signature(blob.file)
            newest = max(newest, changed)
            if blob.file.st_size and changed < self._since:
                continue
            if self._verified.get(blob.path) != found:
                self._verify(blob, NEW_BYTES_PER_SECOND, keep_cached=True)
            # Only the latest changes are compared again: on a restored volume all blobs are new.
            if len(verified) >= _MOST_VERIFIED:
                verified = {
                    path: each for path, each in verified.items() if each[-1] >= min(began, newest) - _SAME_TICK
                }
            if len(verified) < _MOST_VERIFIED:
                verified[blob.path] = found
        # A blob that changes during this scan is newer than its start; the volume may have another clock.
        self._since, self._verified = min(began, newest) - _SAME_TICK, verified

    def _verify(self, blob: Blob, rate: float, *, keep_cached: bool) -> None:
        found = matches(blob, lambda size: time.sleep(size / rate), keep_cached=keep_cached)
        if found is False and _remove(remove_blob, blob.path, "does not match its digest"):
            with self._recording:
                record_removal(self._root, time.time())


def _remove(remove: Callable[[Path], object], path: Path, why: str) -> bool:
    """Remove a file and log the reason. Return whether it existed: two threads may find the same file."""
    try:
        remove(path)
        log.warning("%s: removed: %s", path, why)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("%s: %s, and cannot be removed: %s", path, why, error.strerror)
    return True
