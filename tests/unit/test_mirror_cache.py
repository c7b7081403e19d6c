"""mirror-cache, which runs next to a registry: in its own process, with the registry's folder layout, over HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.core.mirror_cache.cache import MIB, Room, refusal
from jobs.core.mirror_cache.files import (
    Uploads,
    blobs,
    broken_state,
    last_removals,
    matches,
    named_blobs,
    record_removal,
)
from tests.apis import wait_for
from tests.serving import QuietHandler, serving

GIB = 1 << 30
DAY = 86400
# The command with short times. One file contains the volume's figures, two others name what cannot be removed or read.
SHORT = """
import json, os, pathlib, sys
from jobs import __main__
from jobs.core.mirror_cache import cache, server
settings = json.loads(sys.argv.pop(1))
for name, value in settings.pop("constants").items():
    module = next(each for each in (cache, server) if hasattr(each, name))
    setattr(module, name, value)
statvfs, figures = os.statvfs, pathlib.Path(settings["figures"])
samples = figures.with_name("samples").open("ab", buffering=0)
def of_file(path):
    samples.write(b".")
    found = statvfs(path)
    values = json.loads(figures.read_text()) if figures.exists() else {}
    return type(found)([values.get(f"f_{name}", getattr(found, f"f_{name}")) for name in
        "bsize frsize blocks bfree bavail files ffree favail flag namemax".split()])
os.statvfs = of_file
unlink, stuck = pathlib.Path.unlink, figures.with_name("stuck")
def not_permitted(path, **how):
    if stuck.exists() and path.parent.name == stuck.read_text():
        raise PermissionError(1, "Operation not permitted")
    unlink(path, **how)
pathlib.Path.unlink = not_permitted
opened, unreadable = os.open, figures.with_name("unreadable")
def of_another_user(path, *flags, **how):
    if unreadable.exists() and unreadable.read_text() in str(path):
        raise PermissionError(13, "Permission denied")
    return opened(path, *flags, **how)
os.open = of_another_user
__main__.main()
"""
# File modes limit root too, as they limit the user of the pod.
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
TIMES = {"WATCH_SECONDS": 0.05, "SAMPLE_SECONDS": 0.02, "UNFINISHED_SECONDS": 0.05, "UNREADY_SECONDS": 0.2}


class Running:
    """The command in a process of its own, which listens on a port."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, figures: Path) -> None:
        self._process, self._log, self._figures = process, log, figures
        wait_for(lambda: self._port, "the port", detail=log.read_text)

    @property
    def _port(self) -> int:
        found = re.search(r"^listening on port (\d+)$", self._log.read_text(), re.M)
        return int(found[1]) if found else 0

    def get(self, path: str) -> tuple[int, str]:
        """Send GET for a path. Return the status and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def connect(self) -> socket.socket:
        """Open a TCP connection to the command."""
        return socket.create_connection(("127.0.0.1", self._port), timeout=300)

    def state(self) -> dict[str, Any]:
        """Return the figures that mirror-audit reads."""
        status, body = self.get("/")
        assert status == 200
        return dict(json.loads(body))

    def ready(self) -> bool:
        """Whether nodes use the registry."""
        return self.get("/ready") == (200, "ready\n")

    def room(self, **figures: int) -> None:
        """Set fields of the volume's statvfs result, and wait until a sample has them."""
        new = self._figures.with_suffix(".new")
        new.write_text(json.dumps(figures))
        new.replace(self._figures)
        samples = self._figures.with_name("samples")
        before = samples.stat().st_size
        wait_for(lambda: samples.stat().st_size > before + 1, "a sample that began later", detail=self._log.read_text)

    def lines(self) -> list[str]:
        """Return the lines of its log so far, without the line of the port."""
        return [line for line in self._log.read_text().splitlines() if not line.startswith("listening on port ")]

    def waits_for_removal(self, path: Path) -> None:
        """Wait until a file is removed."""
        wait_for(lambda: not os.path.lexists(path), f"{path.name} to be removed", detail=self._log.read_text)

    def checks_again(self, of: Cached) -> None:
        """Wait until a new corrupt blob is removed: all older files were checked then."""
        self.waits_for_removal(of.blob(b"marker", stored=b"spoilt"))

    def open_files(self) -> str:
        """Return the paths of its open files."""
        found = []
        for each in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.append(str(each.readlink()))
        return " ".join(found)

    def interrupts(self, upload: Path) -> None:
        """Wait until an upload is followed, and delete it as a registry does if it fails: the file, then the folder."""
        # Only who follows it opens the file; the search for stopped uploads opens its folder.
        wait_for(lambda: str(upload / "data") in self.open_files(), "the upload to be followed")
        (upload / "data").unlink()
        shutil.rmtree(upload)

    def end(self) -> int:
        """End the process. Return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(20)


@contextlib.contextmanager
def running(volume: Path, *more: str, **constants: float) -> Iterator[Running]:
    """Run the command with `up` as the folder of the upstream."""
    log, figures = volume.parent / f"log-{os.urandom(4).hex()}", volume.parent / "figures"
    settings = json.dumps({"constants": TIMES | constants, "figures": str(figures)})
    words = [sys.executable, "-c", SHORT, settings, "mirror-cache", "--upstream=up", f"--volume={volume}", "--port=0"]
    limits = UNPRIVILEGED if os.geteuid() == 0 else []
    with log.open("wb") as stderr, subprocess.Popen([*limits, *words, *more], stderr=stderr, cwd=volume) as process:
        try:
            yield Running(process, log, figures)
        finally:
            process.kill()


class Cached:
    """The folder of a registry's cache."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = root / "docker/registry/v2"

    def blob(self, content: bytes, *, stored: bytes | None = None, age: float = 0) -> Path:
        """Store a blob in one step, as a registry does. Return its file."""
        digest = hashlib.sha256(content).hexdigest()
        path = self.registry / "blobs/sha256" / digest[:2] / digest / "data"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"data.{os.urandom(4).hex()}.tmp")
        new.write_bytes(content if stored is None else stored)
        _age(new, age)
        new.replace(path)
        return path

    def upload(self, name: str, age: float) -> Path:
        """Create an upload whose last write was `age` seconds ago. Return its folder."""
        folder = self.registry / "repositories" / name / "_uploads" / os.urandom(4).hex()
        states = folder / "hashstates/sha256"
        states.mkdir(parents=True)
        for path in (folder / "data", folder / "startedat", states / "0"):
            path.write_bytes(b"1")
        for path in (folder / "data", folder / "startedat", states / "0", states, states.parent, folder):
            _age(path, age)
        return folder

    def link(self, name: str, content: str, age: float = 60) -> Path:
        """Create the link of a layer."""
        path = self.registry / "repositories" / name / "_layers/sha256" / os.urandom(32).hex() / "link"
        path.parent.mkdir(parents=True)
        path.write_text(content)
        _age(path, age)
        return path

    @property
    def state(self) -> Path:
        """The state file of the registry's scheduler."""
        return self.root / "scheduler-state.json"


def _age(path: Path, seconds: float) -> None:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    volume = tmp_path / "volume"
    (volume / "up").mkdir(parents=True)
    return volume


@pytest.fixture
def cached(volume: Path) -> Cached:
    return Cached(volume / "up")


def entry(blob: Path, **differing: object) -> dict[str, object]:
    """Return the entry of a blob in the scheduler's state."""
    key = f"library/app@sha256:{blob.parent.name}"
    return {key: {"Key": key, "ExpiryData": "2026-01-01T00:00:00.123456789Z", "EntryType": 0, **differing}}


# free space and inodes


@pytest.mark.parametrize(
    ("capacity", "least"),
    [(100 * GIB, 10 * GIB), (20 * GIB, 2 * GIB), (5 * GIB, 2 * GIB), (2 * GIB, GIB), (96 * MIB, 48 * MIB), (0, 0)],
)
def test_the_least_free_space_is_a_tenth_of_large_volumes_and_three_layers_on_others(capacity: int, least: int) -> None:
    assert Room(0, capacity, 0, 0).least_free == least


PLENTY = {"f_frsize": 1, "f_blocks": 20 * GIB, "f_bavail": 20 * GIB, "f_files": 100_000, "f_favail": 1_500}
SCARCE = {**PLENTY, "f_bavail": 2 * GIB - 1}


@pytest.mark.parametrize(
    ("field", "least", "message", "shortage"),
    [
        ("f_bavail", 2 * GIB, "too little free space: 2047 MiB of 20480, at least 2048; ", "space"),
        ("f_favail", 1000, "too few free inodes: ", "inodes"),
    ],
)
def test_a_full_volume_makes_the_registry_unready_until_one_and_a_half_times_the_least_is_free(
    volume: Path, field: str, least: int, message: str, shortage: str
) -> None:
    between = {**PLENTY, field: least * 3 // 2 - 1}
    with running(volume, UNREADY_SECONDS=0) as process:
        process.room(**between)
        assert process.ready()
        process.room(**{**PLENTY, field: least - 1})
        status, why = process.get("/ready")
        assert (status, why.startswith(message), why.count("\n")) == (503, True, 1)
        process.room(**between)
        assert process.state()["shortage"] == shortage
        assert not process.ready()

        process.room(**{**PLENTY, field: least * 3 // 2})
        assert process.ready()
        state = process.state()
        assert (state["capacityBytes"], state["leastFreeBytes"]) == (20 * GIB, 2 * GIB)
        assert len(process.lines()) == 2, "one line for each change"


def test_a_volume_that_was_full_for_a_short_time_stays_unready_while_nodes_retry(volume: Path) -> None:
    with running(volume, UNREADY_SECONDS=3600) as process:
        process.room(**PLENTY)
        assert process.ready()
        process.room(**SCARCE)
        process.room(**PLENTY)

        assert process.get("/ready")[0] == 503
        assert process.state()["shortage"] == "space"


def test_a_volume_that_does_not_answer_makes_the_registry_unready(volume: Path) -> None:
    with running(volume, LATE_SECONDS=0.3) as process:
        wait_for(process.ready, "the registry to be ready")
        shutil.rmtree(volume)
        wait_for(lambda: process.get("/ready") == (503, "the volume does not answer\n"), "the registry to be unready")
        assert process.state()["shortage"] == "answer"


# a volume that the registry cannot use


def unready_because(process: Running, why: str) -> None:
    """Wait until the registry is unready because it cannot use the volume."""
    answer = (503, f"the registry cannot use the volume: {why}\n")
    wait_for(lambda: process.get("/ready") == answer, "the registry to be unready")
    assert process.state()["shortage"] == "access"


def test_a_read_only_volume_makes_the_registry_unready_until_it_is_writable(volume: Path) -> None:
    with running(volume, UNREADY_SECONDS=3600) as process:
        process.room(**PLENTY)
        assert process.ready()
        process.room(**PLENTY, f_flag=os.ST_RDONLY)
        unready_because(process, "it is mounted read-only")
        process.room(**PLENTY)
        assert process.ready()
        assert process.lines()[-1].startswith("warning: the volume can be used again: ")

        process.room(**SCARCE, f_flag=os.ST_RDONLY)
        unready_because(process, "it is mounted read-only")
        process.room(**SCARCE)
        assert process.state()["shortage"] == "space"


def test_a_folder_of_another_user_makes_the_registry_unready(volume: Path, cached: Cached) -> None:
    cached.blob(b"content")
    cached.link("library/app", f"sha256:{64 * 'a'}")
    modes = itertools.cycle([0o300, 0o500, 0o600])
    with running(volume) as process:
        for folder in ("", "..", "../..", "../../..", "blobs", "blobs/sha256", "repositories"):
            changed = (cached.registry / folder).resolve()
            wait_for(process.ready, "the registry to be ready")
            changed.chmod(next(modes))
            unready_because(process, f"{changed} cannot be read and written")
            changed.chmod(0o700)


def test_a_volume_without_the_folder_of_the_upstream_must_be_writable(volume: Path) -> None:
    (volume / "lost+found").mkdir(mode=0)
    with running(volume) as process:
        wait_for(process.ready, "the registry to be ready")
        volume.chmod(0o500)
        process.room()
        assert process.ready(), "the registry owns the folder of the upstream"
        volume.chmod(0o700)
        (volume / "up").rmdir()
        process.room()
        assert process.ready()
        volume.chmod(0o500)
        unready_because(process, f"{volume} cannot be read and written")


def test_a_volume_whose_folder_was_deleted_makes_the_registry_unready(volume: Path) -> None:
    """A mount of a deleted folder still answers, as a working directory does."""
    with running(volume, "--volume=.") as process:
        wait_for(process.ready, "the registry to be ready")
        shutil.rmtree(volume)
        unready_because(process, "its folder was deleted")


# blobs


def test_a_blob_that_does_not_match_its_digest_is_removed_and_counted(volume: Path, cached: Cached) -> None:
    whole, later = cached.blob(b"whole"), cached.blob(b"later")
    stored = (b"", b"con", b"c0ntent 2", b"content 3 and more")
    broken = [cached.blob(f"content {number}".encode(), stored=each) for number, each in enumerate(stored)]
    with running(volume) as process:
        for each in broken:
            process.waits_for_removal(each)
        wait_for(lambda: process.state()["corruptBlobs"] == len(broken), "the blobs to be counted")
        assert sorted(process.lines()) == sorted(
            f"warning: {each}: removed: does not match its digest" for each in broken
        )
        process.checks_again(cached)
        assert [each.exists() for each in (whole, later)] == [True, True]
        with later.open("r+b") as file:
            file.write(b"L")
        process.waits_for_removal(later)

    assert whole.exists()
    assert not any(each.parent.exists() for each in broken)


def test_a_blob_that_is_damaged_without_a_write_is_found_by_the_full_round(volume: Path, cached: Cached) -> None:
    """Its file times do not show the change: they are older than the times that are compared first."""
    whole, broken = cached.blob(b"whole"), cached.blob(b"content", stored=b"c0ntent")
    with running(volume, FIRST_SECONDS=-3600, WATCH_SECONDS=3600) as process:
        process.waits_for_removal(broken)
        wait_for(lambda: process.state()["lastFullRound"], "the round to end")
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", process.state()["lastFullRound"])
    assert whole.exists()


def test_a_blob_that_changes_while_it_is_read_has_no_result(cached: Cached) -> None:
    """A restore, or a registry before version 3, changes files in place."""
    path = cached.blob(b"content", stored=b"c0ntent")
    (blob,) = blobs(cached.root)

    def replace(_read: int) -> None:
        cached.blob(b"content")

    def shorten(_read: int) -> None:
        os.truncate(path, 1)

    assert matches(blob, lambda _read: None, keep_cached=True) is False
    assert [matches(blob, change, keep_cached=True) for change in (shorten, replace)] == [None, None]


def test_a_blob_that_grows_while_it_is_read_is_read_to_its_first_size(cached: Cached) -> None:
    path = cached.blob(b"content")
    (blob,) = blobs(cached.root)
    read: list[int] = []

    def grow(size: int) -> None:
        read.append(size)
        if len(read) < 10:
            with path.open("ab") as file:
                file.write(b"more")

    assert (matches(blob, grow, keep_cached=True), read) == (None, [len(b"content")])


def test_each_of_many_new_blobs_is_compared(volume: Path, cached: Cached) -> None:
    whole = [cached.blob(f"whole {number}".encode()) for number in range(50)]
    broken = [cached.blob(f"broken {number}".encode(), stored=b"x") for number in range(50)]
    with running(volume, _MOST_VERIFIED=5) as process:
        for path in broken:
            process.waits_for_removal(path)
        process.checks_again(cached)
    assert all(path.exists() for path in whole)


def test_only_blobs_are_read_and_removed(volume: Path, cached: Cached, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"outside")
    elsewhere = Cached(tmp_path / "elsewhere")
    kept = [outside, elsewhere.blob(b"linked folder", stored=b"x")]
    real = cached.blob(b"real")
    prefix = real.parent.parent
    for name in ("data.tmp", "link"):
        kept.append(real.parent / name)
    odd = prefix / ("A" * 64)
    odd.mkdir()
    kept += [odd / "data", prefix / "data", cached.registry / "blobs/sha256/data"]
    for path in kept[2:]:
        path.write_bytes(b"odd")
    (prefix / ("b" * 64)).mkdir()
    (prefix / ("b" * 64) / "data").symlink_to(outside)
    (prefix / ("c" * 64)).symlink_to(kept[1].parent)
    (prefix / ("d" * 64)).mkdir()
    os.mkfifo(prefix / ("d" * 64) / "data")
    (prefix / ("e" * 64) / "data").mkdir(parents=True)
    (cached.registry / "blobs/sha256" / "zz").symlink_to(kept[1].parent.parent)
    Path(os.fsdecode(os.fsencode(prefix) + b"/\xff\n")).mkdir()
    with running(volume) as process:
        process.checks_again(cached)
        process.checks_again(cached)
        wait_for(lambda: process.state()["corruptBlobs"] == 2, "only the two markers to be counted")

    assert [path.exists() for path in kept] == [True] * len(kept)


def test_a_blob_that_cannot_be_removed_is_reported_and_the_others_are_checked(volume: Path, cached: Cached) -> None:
    stuck = cached.blob(b"content", stored=b"x")
    (volume.parent / "stuck").write_text(stuck.parent.name)
    with running(volume) as process:
        process.checks_again(cached)
        why = "does not match its digest, and cannot be removed: Operation not permitted"
        assert f"warning: {stuck}: {why}" in process.lines()
    assert stuck.exists()


def test_a_blob_that_the_registry_cannot_read_is_removed(volume: Path, cached: Cached) -> None:
    """A backup may restore it with another owner; the registry then answers with 200 and no content."""
    unreadable = cached.blob(b"content")
    (volume.parent / "unreadable").write_text(unreadable.parent.name)
    with running(volume) as process:
        process.waits_for_removal(unreadable)
        wait_for(lambda: process.state()["corruptBlobs"] == 1, "the blob to be counted")


def test_removed_blobs_are_counted_after_a_restart_for_a_day(volume: Path, cached: Cached) -> None:
    now = time.time()
    for age in (-DAY, DAY + 60, DAY - 60):  # a clock that was ahead, an old one
        record_removal(cached.root, now - age)
    with running(volume) as process:
        assert process.state()["corruptBlobs"] == 1
        process.checks_again(cached)
        wait_for(lambda: process.state()["corruptBlobs"] == 2, "the blob to be counted")
    with running(volume) as process:
        assert process.state()["corruptBlobs"] == 2


def test_removed_blobs_are_counted_up_to_1000_and_a_damaged_count_is_replaced(cached: Cached) -> None:
    now = time.time()
    for number in range(1001):
        record_removal(cached.root, now - 1 + number / 2000)
    assert len(last_removals(cached.root, now)) == 1000
    (path,) = cached.root.iterdir()
    path.write_bytes(b"\xff\n1\nnan\n")
    assert last_removals(cached.root, now) == []
    path.unlink()
    os.mkfifo(path)
    assert last_removals(cached.root, now) == []
    record_removal(cached.root, now)
    assert last_removals(cached.root, now) == [now]


# uploads


def test_a_layer_that_ends_early_makes_the_registry_unready_for_some_time(volume: Path, cached: Cached) -> None:
    with running(volume, UNREADY_SECONDS=3600) as process:
        wait_for(process.ready, "the registry to be ready")
        process.interrupts(cached.upload("library/app", 0))
        wait_for(lambda: not process.ready(), "the registry to be unready")
        assert process.get("/ready")[1].startswith("a layer was interrupted: ")
        assert process.state()["shortage"] == "layers"
    with running(volume) as process:
        process.interrupts(cached.upload("library/app", 0))
        line = "warning: a layer was interrupted: nodes pull from the upstream for 0.2 seconds"
        wait_for(lambda: process.lines() == [line], "the line")
        wait_for(process.ready, "the registry to be ready again")


def test_a_long_scan_for_uploads_delays_the_next_by_seconds_at_most(volume: Path, cached: Cached) -> None:
    with running(volume, _UPLOADS_SHARE=1e9, MOST_UPLOADS_SECONDS=0.05, UNREADY_SECONDS=3600) as process:
        for _ in range(2):
            process.interrupts(cached.upload("library/app", 0))
            wait_for(lambda: "library/app" not in process.open_files(), "its end to be found")
        assert process.state()["shortage"] == "layers"


def test_only_an_upload_without_its_complete_blob_is_interrupted(cached: Cached) -> None:
    def end(name: str, *, age: float = 0, content: bytes = b"content", blob: bytes = b"", rename: bool = False) -> bool:
        """Create and end an upload. Return whether it is found as interrupted."""
        uploads = Uploads(cached.root, 600)
        upload = cached.upload(name, 0)
        (upload / "data").write_bytes(content)
        os.utime(upload / "data", (time.time() - age, time.time() - age))
        assert not uploads.interrupted(), "it is in progress"
        if blob:
            cached.blob(blob)
        if rename:
            (upload / "data").rename(cached.root / "moved")
        shutil.rmtree(upload)
        interrupted = uploads.interrupted()
        assert not uploads.interrupted(), "it is reported once"
        return interrupted

    assert end("failed")
    assert end("deep/er/failed", content=b"part of a blob", blob=b"part of a blob and more")
    assert not end("stored", rename=True)
    assert not end("stored-by-another-repository", content=b"same", blob=b"same")
    assert not end("refused-by-the-upstream", content=b"")
    assert not end("left-by-a-registry-that-ended", age=601)


def test_only_some_of_very_many_uploads_are_followed(cached: Cached) -> None:
    uploads = Uploads(cached.root, 600)
    created = [cached.upload("library/app", 0) for _ in range(100)]
    assert not uploads.interrupted()
    for upload in created:
        shutil.rmtree(upload)
    assert uploads.interrupted()
    assert len(list(Path("/proc/self/fd").iterdir())) < 64


# other files on the volume


def test_an_upload_without_writes_is_removed(volume: Path, cached: Cached) -> None:
    stopped, active = cached.upload("library/app", 601), cached.upload("library/app", 300)
    elsewhere = Cached(volume / "before").upload("a/b/c", 601)
    with running(volume) as process:
        process.waits_for_removal(stopped)
        process.waits_for_removal(elsewhere)
        process.checks_again(cached)
    assert active.exists()


BROKEN = {
    "nothing": b"",
    "zeros": bytes(64),
    "half": b'{"library/app@sha256:',
    "null": b"null",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a": {"Key": "a"}}'.encode("utf-16-le"),
    "UTF-32": "{}".encode("utf-32-le"),
    "many zeros": bytes(17 * MIB),
    "large, without its begin": bytes(17 * MIB) + b"}",
    "large, without its end": b"{" + bytes(17 * MIB),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_state_that_the_registry_cannot_start_with_is_found(cached: Cached, what: str) -> None:
    cached.state.write_bytes(BROKEN[what])
    assert broken_state(cached.root)


def test_a_state_that_the_registry_cannot_start_with_is_removed(volume: Path, cached: Cached) -> None:
    cached.state.write_bytes(BROKEN["zeros"])
    with running(volume) as process:
        process.waits_for_removal(cached.state)
        wait_for(process.lines, "a line")
        assert process.lines() == [f"warning: {cached.state}: removed: the registry cannot start with it"]


def test_a_state_that_the_registry_can_read_is_kept(volume: Path, cached: Cached) -> None:
    blob = cached.blob(b"content")
    entries = [
        {f"{number}/{key}": value for number in range(many) for key, value in entry(blob).items()}
        for many in (0, 10_000)
    ]
    large = [around + b"{" + b" " * 17 * MIB + b"}" + around for around in (b"", b" \t\r\n")]
    for content in (*(json.dumps(each).encode() for each in entries), *large):
        cached.state.write_bytes(content)
        assert broken_state(cached.root) is None

    cached.state.write_text(json.dumps(entry(blob)))
    with running(volume) as process:
        process.checks_again(cached)
    assert cached.state.exists()


def test_a_link_without_a_digest_is_removed(volume: Path, cached: Cached) -> None:
    broken = [cached.link("library/app", each) for each in ("", "\0" * 71, "sha256:", "x")]
    named = [cached.link("a/b", f"sha256:{64 * 'a'}"), cached.link("a/b", f"sha512:{128 * 'a'}")]
    kept = [*named, cached.link("b", "", -60)]
    with running(volume) as process:
        for each in broken:
            process.waits_for_removal(each)
        process.checks_again(cached)
    assert [each.exists() for each in kept] == [True, True, True]


def test_blobs_that_the_registry_has_no_record_of_are_removed_after_the_ttl(volume: Path, cached: Cached) -> None:
    old, young, named = (cached.blob(each, age=age) for each, age in ((b"o", 9 * DAY), (b"y", DAY), (b"n", 9 * DAY)))
    other = Cached(volume / "before").blob(b"other", age=9 * DAY)
    cached.state.write_text(json.dumps(entry(named)))
    (volume / "before/scheduler-state.json").write_text(json.dumps(entry(other)))
    with running(volume, "--ttl=168h") as process:
        process.waits_for_removal(old)
        process.waits_for_removal(other)
        process.checks_again(cached)
    assert (young.exists(), named.exists()) == (True, True)


@pytest.mark.parametrize("ttl", ["0s", "168h"])
def test_old_blobs_are_kept_without_a_ttl_or_if_the_records_cannot_be_read(
    volume: Path, cached: Cached, ttl: str
) -> None:
    old = cached.blob(b"old", age=900 * DAY)
    if ttl != "0s":
        cached.state.mkdir()
    with running(volume, f"--ttl={ttl}") as process:
        process.checks_again(cached)
    assert old.exists()


def test_a_record_that_is_in_two_parts_of_a_large_state_is_found(cached: Cached) -> None:
    digest = 64 * "a"
    cached.state.write_bytes(bytes(MIB - 40) + f"library/app@sha256:{digest}".encode())
    assert named_blobs(cached.root) == {bytes.fromhex(digest)}


# refusals of the upstream


class Registry(QuietHandler):
    """A registry that gives the same answer to all requests."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer, and record the path."""
        served: AnsweringServer = self.server  # type: ignore[assignment]
        served.paths.append(self.path)
        status, body = served.answer
        self.send(status, {"Connection": "close"}, body)


class AnsweringServer(ThreadingHTTPServer):
    """`paths` are those of the requests."""

    def __init__(self, answer: tuple[int, bytes], *, listens: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), Registry, bind_and_activate=False)
        self.server_bind()
        if listens:
            self.server_activate()
        self.answer = answer
        self.paths: list[str] = []


def of_token_server(text: str) -> tuple[int, bytes]:
    """Return what a registry answers if the token server of its upstream refuses it."""
    detail = f'Head "https://registry.example/v2/x/blobs/sha256:0": {text}'
    return 500, json.dumps({"errors": [{"code": "UNKNOWN", "message": "unknown error", "detail": detail}]}).encode()


ANSWERS: dict[str, tuple[tuple[int, bytes], str | None]] = {
    "a blob that does not exist": ((404, b"{}"), ""),
    "a repository without access": ((403, b"{}"), ""),
    "401": ((401, b"{}"), "unauthorized"),
    "429": ((429, b"{}"), "rate"),
    "a wrong login": (of_token_server('unauthorized: {"details":"incorrect username or password"}'), "login"),
    "a denied login": (of_token_server("denied: denied"), "login"),
    "too many tokens": (of_token_server("toomanyrequests: slow down"), "rate"),
    "a failed token server": (of_token_server("received unexpected HTTP status: 503 denied: "), None),
    "a word elsewhere": (of_token_server('dial tcp: lookup "unauthorized: ": denied: '), None),
    "503": ((503, b"{}"), None),
    "an unknown status": ((599, b"{}"), None),
    "no JSON": ((500, b"denied: "), None),
    "another document": ((500, b'[{"errors": 1}]'), None),
    "no detail": ((500, b'{"errors": [{"detail": {"a": 1}}]}'), None),
    "deep JSON": ((500, b"[" * 60_000), None),
    "a large document": ((500, b" " * (1 << 17)), None),
    "not HTTP": ((0, b""), None),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_what_the_registry_answers_shows_whether_its_upstream_refuses_it(what: str) -> None:
    answer, expected = ANSWERS[what]
    server = AnsweringServer(answer)
    with serving(server):
        assert refusal(server.server_port) == expected


def test_a_refusal_is_reported_until_the_upstream_accepts_requests_again(volume: Path) -> None:
    server = AnsweringServer((401, b"{}"))
    times = {"REGISTRY_PORT": server.server_port, "REFUSAL_SECONDS": 0.02, "NO_REGISTRY_SECONDS": 0.02}
    with running(volume, **times) as process, serving(server):
        wait_for(lambda: process.state()["refusal"] == "unauthorized", "the refusal")
        server.answer = (503, b"{}")
        before = len(server.paths)
        wait_for(lambda: len(server.paths) > before + 2, "requests that fail in another way")
        assert process.state()["refusal"] == "unauthorized", "a client that overloads the registry hides nothing"
        server.answer = (404, b"{}")
        wait_for(lambda: process.state()["refusal"] == "", "the end of the refusal")
        assert process.lines() == [
            "warning: the upstream answers the registry with 401 Unauthorized",
            "warning: the upstream accepts the requests of the registry again",
        ]
        assert set(server.paths) == {f"/v2/kube-chores/probe/blobs/sha256:{64 * '0'}"}


def test_a_registry_that_starts_later_is_asked_soon(volume: Path) -> None:
    server = AnsweringServer((429, b"{}"), listens=False)
    times = {"REGISTRY_PORT": server.server_port, "REFUSAL_SECONDS": 3600, "NO_REGISTRY_SECONDS": 0.02}
    with running(volume, **times) as process:
        assert process.state()["refusal"] == ""
        server.server_activate()
        with serving(server):
            wait_for(lambda: process.state()["refusal"] == "rate", "the refusal")


# HTTP and the command


def test_the_figures_show_whether_an_image_was_pulled_and_contain_no_names(volume: Path, cached: Cached) -> None:
    with running(volume) as process:
        assert process.state()["used"] is False
        cached.link("secret-project/app", f"sha256:{64 * 'a'}")
        state = process.state()
        assert state["used"] is True
        assert "secret" not in json.dumps(state)
        names = "freeBytes capacityBytes leastFreeBytes shortage used corruptBlobs refusal lastFullRound"
        assert set(state) == set(names.split())
        assert process.get("/other")[0] == process.get("/ready/")[0] == 404


def test_silent_and_slow_clients_do_not_block_others_for_long(volume: Path) -> None:
    with running(volume, _CONNECTION_SECONDS=0.5) as process, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(process.connect()) for _ in range(20)]
        slow = stack.enter_context(process.connect())
        wait_for(lambda: _answers(process), "an answer", 20)
        assert [each.recv(1) for each in silent] == [b""] * 20, "all were disconnected"
        with contextlib.suppress(OSError):
            slow.recv(1)
        assert process.end() == 0


def _answers(process: Running) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return process.get("/")[0] == 200
    return False


def test_an_invalid_request_is_refused_and_the_next_one_answered(volume: Path) -> None:
    with running(volume) as process:
        for sent in (b"\xff\x00\n\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 99_999):
            with process.connect() as connection, contextlib.suppress(OSError):
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                assert not connection.recv(4096).startswith(b"HTTP/1.0 200")
            wait_for(process.ready, "the registry to be ready")
        assert process.lines() == []
        assert process.end() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing option '--upstream'"),
        (("--upstream=../x",), "'../x' is not the name of a folder"),
        (("--upstream=..",), "'..' is not the name of a folder"),
        (("--upstream=up", "--ttl=1week"), "'1week' is not a duration; write it as 168h"),
        (("--upstream=up", "--ttl="), "'' is not a duration"),
    ],
)
def test_a_wrong_command_line_is_refused(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(chores, ["mirror-cache", *words])

    assert (result.exit_code, message in result.output) == (2, True), result.output


def ended(volume: Path, port: int, **constants: float) -> list[str]:
    """Run the command until it ends by itself with 1; return what it logged."""
    settings = json.dumps({"constants": constants, "figures": str(volume / "figures")})
    words = [sys.executable, "-c", SHORT, settings, "mirror-cache", "--upstream=up", f"--volume={volume}"]
    done = subprocess.run([*words, f"--port={port}"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    return done.stderr.splitlines()


def test_an_error_that_ends_the_process_is_logged_with_its_cause_and_place(volume: Path) -> None:
    lines = ended(volume, 0, MOST_UPLOADS_SECONDS=-1.0)

    assert "error: mirror-cache" in lines
    assert lines[-1].startswith("ValueError: sleep length must be")
    assert any(line.endswith("in follow_uploads") for line in lines)


def test_a_port_in_use_is_one_line(volume: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        lines = ended(volume, port)

    assert lines == [
        f"error: mirror-cache: cannot listen on port {port}: Address already in use; set another one with --port"
    ]
