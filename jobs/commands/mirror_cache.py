"""mirror-cache: guards the volume of a mirror's registry, so that a full volume or a damaged file breaks no pull.

It runs in each registry's pod with little memory, so it imports only click and the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from jobs.core.mirror_cache import cache_files
from jobs.core.mirror_cache.cache_files import MIB, Blob, Room
from jobs.core.mirror_cache.cache_uploads import Uploads
from jobs.kit.run.log import configure, log

NAME = "mirror-cache"
VOLUME = "/var/lib/registry"
PORT = 5001
# A layer that fills the volume is removed when its pull fails, and there is space again. kubelet tries again after 10,
# 20 and 40 seconds. In that time nodes must pull from the upstream, or each attempt fails in the same way.
UNREADY_SECONDS = 120.0
ENOUGH = 1.5  # times the least free space: a volume near the threshold would otherwise switch between ready and unready
SAMPLE_SECONDS = 0.2  # 25 MB at 1 Gbit/s
UPLOADS_SECONDS = 0.2  # a shorter upload is found at another attempt
# A volume may have many repositories, so scans for uploads use a fiftieth of the time. A scan that reads a large upload
# may take long: the limit below prevents that layers are missed for minutes because of it.
_UPLOADS_SHARE = 50
MOST_UPLOADS_SECONDS = 5.0
LATE_SECONDS = 5.0
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
DAY_SECONDS = 86400.0
SWEEP_SECONDS = 3600.0
SHORTAGES = {
    "access": "the registry cannot use the volume",
    "space": "too little free space",
    "inodes": "too few free inodes",
    "layers": "a layer was interrupted",
}
_MOST_COUNTED = 10_000
_MOST_VERIFIED = 10_000
_MOST_CONNECTIONS = 16
_CONNECTION_SECONDS = 5.0
_DURATION = re.compile(r"(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?|(0)")


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
            log.warning("%s: %s", SHORTAGES.get(shortage, f"the volume {recovered} again"), _details(room))
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


def _details(room: Room) -> str:
    if room.unusable:
        return room.unusable
    bytes_free = f"{room.free // MIB} MiB of {room.capacity // MIB}, at least {room.least_free // MIB}"
    return f"{bytes_free}; {room.free_files} inodes of {room.files}"


class Cache:
    """The volume and the results of its checks. Each method that never returns runs in its own thread."""

    def __init__(self, volume: Path, upstream: str, ttl: float) -> None:
        self._volume, self._root, self._ttl = volume, volume / upstream, ttl
        self._gate = Gate()
        self._corrupt: deque[float] = deque(maxlen=_MOST_COUNTED)
        self._last_round = ""
        self._since = int((time.time() - FIRST_SECONDS) * 1e9)
        self._verified: dict[Path, tuple[int, ...]] = {}
        self._swept = float("-inf")

    def unready(self) -> str:
        """Return why nodes should not use the registry, or nothing."""
        observed = self._gate.observed()
        if observed is None:
            return "the volume does not answer"
        room, shortage = observed
        return f"{SHORTAGES[shortage]}: {_details(room)}" if shortage else ""

    def state(self) -> dict[str, Any]:
        """Return the figures that mirror-audit reads; none contains the name of an image."""
        room, shortage = self._gate.observed() or (Room(0, 0, 0, 0), "answer")
        return {
            "freeBytes": room.free,
            "capacityBytes": room.capacity,
            "leastFreeBytes": room.least_free,
            "shortage": shortage,
            "used": cache_files.is_used(self._root),
            "corruptBlobs": sum(each > time.time() - DAY_SECONDS for each in tuple(self._corrupt)),
            "lastFullRound": self._last_round,
        }

    def follow_room(self) -> NoReturn:
        """Take samples of the free space and inodes."""
        while True:
            with contextlib.suppress(OSError):
                self._gate.sample(cache_files.room(self._volume, self._root))
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
        for root in cache_files.roots(self._volume):
            for prefix in cache_files.prefixes(root):
                yield from cache_files.blobs(prefix)

    def _remove_broken_state(self) -> None:
        found = cache_files.broken_state(self._root)
        if found is None:
            return
        time.sleep(UNFINISHED_SECONDS)
        if cache_files.broken_state(self._root) == found:
            path = cache_files.state_path(self._root)
            _remove(path.unlink, path, "the registry cannot start with it")

    def _remove_stopped_uploads(self) -> None:
        before = time.time() - UPLOAD_SECONDS
        for root in cache_files.roots(self._volume):
            for upload in cache_files.stopped_uploads(root, before):
                _remove(partial(cache_files.remove_upload, upload), upload, "the upload stopped")

    def _remove_broken_links(self) -> None:
        for link in cache_files.broken_links(self._root, time.time() - UNFINISHED_SECONDS):
            _remove(link.unlink, link, "names no digest")

    def _remove_expired(self) -> None:
        """Remove blobs that the registry has no record of: of a lost state, another ttl or another upstream."""
        if not self._ttl:
            return
        before = time.time() - self._ttl - SWEEP_SECONDS
        for root in cache_files.roots(self._volume):
            named = cache_files.named_blobs(root) if root == self._root else frozenset()
            if named is not None:
                for blob in cache_files.expired(root, before, named):
                    _remove(partial(cache_files.remove, blob), blob.path, "older than the ttl")

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
        found = cache_files.matches(blob, lambda size: time.sleep(size / rate), keep_cached=keep_cached)
        if found is False and _remove(partial(cache_files.remove, blob), blob.path, "does not match its digest"):
            self._corrupt.append(time.time())


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


# HTTP


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    cache: Cache

    def __init__(self, address: tuple[str, int], cache: Cache) -> None:
        self.cache = cache
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A socket's timeout does not limit a client that sends a byte from time to time.
        limit = threading.Timer(_CONNECTION_SECONDS, _hang_up, [request])
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about clients that disconnect."""


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = NAME, ""
    timeout = _CONNECTION_SECONDS

    def do_GET(self) -> None:
        if self.path == "/ready":
            why = self.server.cache.unready()
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK, "text/plain", f"{why or 'ready'}\n")
        elif self.path == "/":
            self._answer(HTTPStatus.OK, "application/json", json.dumps(self.server.cache.state()))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")

    def _answer(self, status: HTTPStatus, media: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_about: Any) -> None:
        """Log no requests: kubelet sends one each second."""


def serve(cache: Cache, port: int) -> NoReturn:
    """Guard the volume and answer requests until a signal comes."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    for work in (cache.follow_room, cache.follow_uploads, cache.watch, cache.verify_all):
        threading.Thread(target=_for_ever, args=(work,), daemon=True).start()
    with _listening(cache, port) as server:
        log.info("listening on port %s", server.server_address[1])
        server.serve_forever(poll_interval=0.5)
    raise AssertionError("unreachable")


def _listening(cache: Cache, port: int) -> _Server:
    """Listen on all IPv4 addresses, and on IPv6 where the pod has it."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return _Server(("::", port), cache)
    return _Server(("0.0.0.0", port), cache)  # noqa: S104 - kubelet and the audit come from elsewhere


def _for_ever(work: Callable[[], NoReturn]) -> None:
    """End the process at an unexpected error, so that kubelet restarts the container: each thread is needed."""
    try:
        work()
    except BaseException:
        log.exception("%s", NAME)
        os._exit(1)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


# the command


def _folder(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value in ("", ".", "..") or "/" in value:
        raise click.BadParameter(f"{value!r} is not the name of a folder.")
    return value


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    found = _DURATION.fullmatch(value)
    if not found:
        raise click.BadParameter(f"{value!r} is not a duration; write it as 168h.")
    hours, minutes, seconds, _ = (int(each or 0) for each in found.groups())
    return hours * 3600.0 + minutes * 60 + seconds


@click.command(NAME)
@click.option(
    "--upstream", required=True, metavar="NAME", callback=_folder, help="The folder of the registry on the volume."
)
@click.option(
    "--ttl",
    default="0s",
    show_default=True,
    metavar="DURATION",
    callback=_seconds,
    help="Remove blobs that are older than this and that the registry has no record of; 0s removes none.",
)
@click.option(
    "--volume",
    default=VOLUME,
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The mount path of the volume.",
)
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="The HTTP port.")
def command(upstream: str, ttl: float, volume: Path, port: int) -> None:
    """Guard the volume of a mirror's registry. It runs next to the registry, in the same pod.

    GET /ready returns 503 while the volume has too little free space or too few inodes for layers. It also returns 503
    for 2 minutes after a layer was interrupted. Nodes then pull from the upstream.

    Removes blobs that do not match their digests, uploads that stopped, links without a digest, blobs that are older
    than the ttl, and a scheduler state that the registry cannot start with. GET / returns figures as JSON for
    mirror-audit. Runs until SIGTERM.

    \b
    Example:
      chores mirror-cache --upstream registry-1.docker.io --ttl 168h
    """
    configure("text")
    serve(Cache(volume, upstream, ttl), port)
