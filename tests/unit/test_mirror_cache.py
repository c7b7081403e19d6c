"""What runs next to a registry: in a process of its own, on a folder with the registry's layout, asked over HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
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
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jobs.__main__ import chores
from jobs.mirrors.cache_files import MIB, Room, blobs, matches
from jobs.mirrors.cache_uploads import Uploads
from tests.apis import wait_for

GIB = 1 << 30
DAY = 86400
# The command with short times. A file says how much room the volume has, others what cannot be
# removed or read.
SHORT = """
import json, os, pathlib, sys
from jobs import __main__, mirror_cache
settings = json.loads(sys.argv.pop(1))
for name, value in settings.pop("constants").items():
    assert hasattr(mirror_cache, name)
    setattr(mirror_cache, name, value)
statvfs, figures = os.statvfs, pathlib.Path(settings["figures"])
def of_file(path):
    found = statvfs(path)
    values = json.loads(figures.read_text()) if figures.exists() else {}
    return type(found)([values.get(f"f_{name}", getattr(found, f"f_{name}")) for name in
        "bsize frsize blocks bfree bavail files ffree favail flag namemax".split()])
os.statvfs = of_file
unlink, stuck = pathlib.Path.unlink, figures.with_name("stuck")
def of_another(path, **how):
    if stuck.exists() and path.parent.name == stuck.read_text():
        raise PermissionError(1, "Operation not permitted")
    unlink(path, **how)
pathlib.Path.unlink = of_another
opened, unreadable = os.open, figures.with_name("unreadable")
def of_another_user(path, *flags, **how):
    if unreadable.exists() and unreadable.read_text() in str(path):
        raise PermissionError(13, "Permission denied")
    return opened(path, *flags, **how)
os.open = of_another_user
__main__.main()
"""
# Modes of files limit root too, as they limit the user of the pod.
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
TIMES = {"WATCH_SECONDS": 0.05, "SAMPLE_SECONDS": 0.02, "UNFINISHED_SECONDS": 0.05, "HOLD_SECONDS": 0.2}


class Running:
    """The command in a process of its own, which listens."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, figures: Path) -> None:
        self._process, self._log, self._figures = process, log, figures
        wait_for(lambda: self._port, "a port", detail=log.read_text)

    @property
    def _port(self) -> int:
        found = re.search(r"^port (\d+)$", self._log.read_text(), re.M)
        return int(found[1]) if found else 0

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def get(self, path: str) -> tuple[int, str]:
        """GET a path."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self._port), timeout=20)

    def state(self) -> dict[str, Any]:
        """What an audit is told."""
        status, body = self.get("/")
        assert status == 200
        return dict(json.loads(body))

    def ready(self) -> bool:
        """Whether nodes are to use the registry."""
        return self.get("/ready") == (200, "ready\n")

    def room(self, **figures: int) -> None:
        """Have the volume have this much room."""
        new = self._figures.with_suffix(".new")
        new.write_text(json.dumps(figures))
        new.replace(self._figures)

    def said(self) -> list[str]:
        """Its lines so far, but for the port."""
        return [line for line in self._log.read_text().splitlines() if not line.startswith("port ")]

    def waits_for(self, path: Path) -> None:
        """Wait until a file is gone."""
        wait_for(lambda: not os.path.lexists(path), f"{path.name} to be gone", detail=self._log.read_text)

    def looks_again(self, of: Cached) -> None:
        """Wait until a corrupt blob that comes now is gone: all that was there before has been looked at."""
        self.waits_for(of.blob(b"marker", stored=b"spoilt"))

    def end(self) -> int:
        """End it, which must be at once; gives its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(5)


@contextlib.contextmanager
def running(volume: Path, *more: str, **constants: float) -> Iterator[Running]:
    """The command with a root's name `up`."""
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
    """The folder of a registry."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = root / "docker/registry/v2"

    def blob(self, content: bytes, *, stored: bytes | None = None, age: float = 0) -> Path:
        """Store a blob in one step, as a registry does; gives the file."""
        digest = hashlib.sha256(content).hexdigest()
        path = self.registry / "blobs/sha256" / digest[:2] / digest / "data"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"data.{os.urandom(4).hex()}.tmp")
        new.write_bytes(content if stored is None else stored)
        _age(new, age)
        new.replace(path)
        return path

    def upload(self, name: str, age: float) -> Path:
        """Have an upload that something was written to so long ago; gives its folder."""
        folder = self.registry / "repositories" / name / "_uploads" / os.urandom(4).hex()
        states = folder / "hashstates/sha256"
        states.mkdir(parents=True)
        for path in (folder / "data", folder / "startedat", states / "0"):
            path.write_bytes(b"1")
        for path in (folder / "data", folder / "startedat", states / "0", states, states.parent, folder):
            _age(path, age)
        return folder

    def link(self, name: str, content: str, age: float = 60) -> Path:
        """Have a link of a layer."""
        path = self.registry / "repositories" / name / "_layers/sha256" / os.urandom(32).hex() / "link"
        path.parent.mkdir(parents=True)
        path.write_text(content)
        _age(path, age)
        return path

    @property
    def state(self) -> Path:
        """The file of the registry's scheduler."""
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
    """What the registry's scheduler keeps of a blob."""
    key = f"library/app@sha256:{blob.parent.name}"
    return {key: {"Key": key, "ExpiryData": "2026-01-01T00:00:00.123456789Z", "EntryType": 0, **differing}}


# room


@pytest.mark.parametrize(
    ("capacity", "least"),
    [(100 * GIB, 10 * GIB), (20 * GIB, 2 * GIB), (5 * GIB, 2 * GIB), (2 * GIB, GIB), (96 * MIB, 48 * MIB), (0, 0)],
)
def test_a_tenth_is_free_of_large_volumes_and_room_for_three_layers_of_others(capacity: int, least: int) -> None:
    assert Room(0, capacity, 0, 0).least_free == least


SCARCE = {"f_frsize": 1, "f_blocks": 20 * GIB, "f_bavail": 2 * GIB - 1}
FEW_INODES = {"f_files": 100_000, "f_favail": 999}


@pytest.mark.parametrize(
    ("figures", "says", "shortage"),
    [
        (SCARCE, "too little free space: 2047 MiB of 20480, at least 2048; ", "space"),
        (FEW_INODES, "too few free inodes: ", "inodes"),
    ],
)
def test_a_volume_without_room_makes_the_registry_unready_until_there_is_half_as_much_again(
    volume: Path, figures: dict[str, int], says: str, shortage: str
) -> None:
    with running(volume) as process:
        process.room()
        wait_for(process.ready, "it to be ready")
        process.room(**figures)
        wait_for(lambda: not process.ready(), "it to be unready")
        status, why = process.get("/ready")
        assert (status, why.startswith(says), why.count("\n")) == (503, True, 1)
        assert process.state()["shortage"] == shortage

        process.room(**{key: value if key != "f_bavail" else 3 * GIB - 1 for key, value in figures.items()})
        process.room(f_frsize=1, f_blocks=20 * GIB, f_bavail=3 * GIB, f_files=100_000, f_favail=1_500)
        wait_for(process.ready, "it to be ready again")
        state = process.state()
        assert (state["freeBytes"], state["capacityBytes"], state["leastFreeBytes"]) == (3 * GIB, 20 * GIB, 2 * GIB)
        wait_for(lambda: len(process.said()) == 2, "one line for each change")


def test_a_volume_that_was_full_for_a_moment_stays_unready_while_nodes_try_again(volume: Path) -> None:
    with running(volume, HOLD_SECONDS=3600) as process:
        process.room(f_frsize=1, f_blocks=20 * GIB, f_bavail=20 * GIB)
        wait_for(process.ready, "it to be ready")
        process.room(**SCARCE)
        wait_for(lambda: not process.ready(), "it to be unready")
        process.room(f_frsize=1, f_blocks=20 * GIB, f_bavail=20 * GIB)
        wait_for(lambda: process.state()["freeBytes"] == 20 * GIB, "room")

        assert process.get("/ready")[0] == 503
        assert process.state()["shortage"] == "space"


def test_between_the_least_and_enough_nothing_changes(volume: Path) -> None:
    between = {"f_frsize": 1, "f_blocks": 20 * GIB, "f_bavail": 3 * GIB - 1}
    with running(volume, HOLD_SECONDS=0) as process:
        process.room(**between)
        wait_for(lambda: process.state()["freeBytes"] == 3 * GIB - 1, "a sample")
        assert process.ready()
        process.room(**SCARCE)
        wait_for(lambda: not process.ready(), "it to be unready")
        process.room(**between)
        wait_for(lambda: process.state()["freeBytes"] == 3 * GIB - 1, "a sample")
        assert not process.ready()


def test_a_volume_that_does_not_answer_makes_the_registry_unready(volume: Path) -> None:
    with running(volume, LATE_SECONDS=0.3) as process:
        wait_for(process.ready, "it to be ready")
        shutil.rmtree(volume)
        wait_for(lambda: process.get("/ready") == (503, "the volume does not answer\n"), "it to be unready")
        assert process.state()["shortage"] == "answer"


# a volume that the registry cannot use


def refuses(process: Running, why: str) -> None:
    """Wait until nodes are to pass over the registry because it cannot use the volume."""
    answer = (503, f"the registry cannot use the volume: {why}\n")
    wait_for(lambda: process.get("/ready") == answer, "it to be unready")
    assert process.state()["shortage"] == "access"


def test_a_read_only_volume_makes_the_registry_unready_until_it_is_writable(volume: Path) -> None:
    room = {"f_frsize": 1, "f_blocks": 20 * GIB, "f_bavail": 20 * GIB}
    with running(volume, HOLD_SECONDS=3600) as process:
        process.room(**room)
        wait_for(process.ready, "it to be ready")
        process.room(**room, f_flag=os.ST_RDONLY)
        refuses(process, "it is mounted read-only")
        process.room(**room)
        wait_for(process.ready, "it to be ready again")
        assert process.said()[-1].startswith("warning: the volume can be used again: ")

        process.room(**SCARCE, f_flag=os.ST_RDONLY)
        refuses(process, "it is mounted read-only")
        process.room(**SCARCE)
        wait_for(lambda: process.state()["shortage"] == "space", "the other reason")


@pytest.mark.parametrize("mode", [0o300, 0o500, 0o600])
def test_a_folder_of_another_user_makes_the_registry_unready(volume: Path, cached: Cached, mode: int) -> None:
    cached.blob(b"content")
    cached.link("library/app", f"sha256:{64 * 'a'}")
    with running(volume) as process:
        for folder in ("", "..", "../..", "../../..", "blobs", "blobs/sha256", "repositories"):
            changed = (cached.registry / folder).resolve()
            wait_for(process.ready, "it to be ready")
            changed.chmod(mode)
            refuses(process, f"{changed} cannot be read and written")
            changed.chmod(0o700)


def test_an_empty_volume_is_ready_if_the_registry_can_create_its_folder(volume: Path) -> None:
    (volume / "up").rmdir()
    (volume / "lost+found").mkdir(mode=0)
    with running(volume) as process:
        wait_for(process.ready, "it to be ready")
        volume.chmod(0o500)
        refuses(process, f"{volume} cannot be read and written")


def test_a_volume_that_only_others_write_is_ready_if_the_upstreams_folder_is_the_registrys(volume: Path) -> None:
    volume.chmod(0o500)
    with running(volume) as process:
        wait_for(process.ready, "it to be ready")


def test_a_volume_whose_folder_was_deleted_makes_the_registry_unready(volume: Path) -> None:
    """The mount still answers then, as a working directory does."""
    with running(volume, "--volume=.") as process:
        wait_for(process.ready, "it to be ready")
        shutil.rmtree(volume)
        refuses(process, "its folder was deleted")


# blobs


@pytest.mark.parametrize("stored", [b"", b"con", b"c0ntent", b"content and more"])
def test_a_blob_that_does_not_match_its_digest_is_removed_and_counted(
    volume: Path, cached: Cached, stored: bytes
) -> None:
    whole, broken = cached.blob(b"whole"), cached.blob(b"content", stored=stored)
    with running(volume) as process:
        process.waits_for(broken)
        wait_for(lambda: process.state()["corruptBlobs"] == 1, "it to be counted")
        assert process.said() == [f"warning: {broken}: removed it: does not match its digest"]
        process.looks_again(cached)

    assert whole.exists()
    assert not broken.parent.exists()


def test_a_blob_that_is_damaged_later_is_removed(volume: Path, cached: Cached) -> None:
    blob = cached.blob(b"content")
    with running(volume) as process:
        process.looks_again(cached)
        assert blob.exists()
        with blob.open("r+b") as file:
            file.write(b"C")
        process.waits_for(blob)


def test_a_blob_that_rots_without_a_write_is_found_by_the_round(volume: Path, cached: Cached) -> None:
    """Nothing says that it changed: its times are older than what is looked at first."""
    whole, broken = cached.blob(b"whole"), cached.blob(b"content", stored=b"c0ntent")
    with running(volume, FIRST_SECONDS=-3600, WATCH_SECONDS=3600) as process:
        process.waits_for(broken)
        wait_for(lambda: process.state()["lastFullRound"], "the round to end")
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", process.state()["lastFullRound"])
    assert whole.exists()


def test_a_blob_that_is_replaced_or_written_while_it_is_read_is_not_judged(cached: Cached) -> None:
    """A disk that is restored, or a registry before version 3, changes files in place."""
    path = cached.blob(b"content", stored=b"c0ntent")
    (blob,) = blobs(path.parent.parent)

    def replace(_read: int) -> None:
        cached.blob(b"content")

    def shorten(_read: int) -> None:
        os.truncate(path, 1)

    assert matches(blob, lambda _read: None, keep_cached=True) is False
    assert [matches(blob, change, keep_cached=True) for change in (shorten, replace)] == [None, None]


def test_a_blob_that_grows_while_it_is_read_is_read_to_the_size_that_it_had(cached: Cached) -> None:
    path = cached.blob(b"content")
    (blob,) = blobs(path.parent.parent)
    read: list[int] = []

    def grow(size: int) -> None:
        read.append(size)
        if len(read) < 10:
            with path.open("ab") as file:
                file.write(b"more")

    assert (matches(blob, grow, keep_cached=True), read) == (None, [len(b"content")])


def test_of_many_new_blobs_each_is_compared(volume: Path, cached: Cached) -> None:
    whole = [cached.blob(f"whole {number}".encode()) for number in range(50)]
    broken = [cached.blob(f"broken {number}".encode(), stored=b"x") for number in range(50)]
    with running(volume, _MOST_VERIFIED=5) as process:
        for path in broken:
            process.waits_for(path)
        process.looks_again(cached)
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
        process.looks_again(cached)
        process.looks_again(cached)
        assert process.state()["corruptBlobs"] == 2, "the two markers"

    assert [path.exists() for path in kept] == [True] * len(kept)


def test_a_blob_that_cannot_be_removed_is_reported_and_the_others_are_checked(volume: Path, cached: Cached) -> None:
    stuck = cached.blob(b"content", stored=b"x")
    (volume.parent / "stuck").write_text(stuck.parent.name)
    with running(volume) as process:
        process.looks_again(cached)
        why = "does not match its digest, and it cannot be removed: Operation not permitted"
        assert f"warning: {stuck}: {why}" in process.said()
    assert stuck.exists()


def test_a_blob_that_the_registry_cannot_read_is_removed(volume: Path, cached: Cached) -> None:
    """A backup may bring it back as that of another user; the registry answers with 200 and no content then."""
    unreadable = cached.blob(b"content")
    (volume.parent / "unreadable").write_text(unreadable.parent.name)
    with running(volume) as process:
        process.waits_for(unreadable)
        wait_for(lambda: process.state()["corruptBlobs"] == 1, "it to be counted")


# uploads


def test_a_layer_that_ends_before_it_is_whole_makes_the_registry_unready_for_a_while(
    volume: Path, cached: Cached
) -> None:
    """What a registry does of an upload that failed: it deletes the file, then the folder."""
    with running(volume, HOLD_SECONDS=1) as process:
        wait_for(process.ready, "it to be ready")
        upload = cached.upload("library/app", 0)
        wait_for(lambda: "library/app" in open_files(process), "the upload to be followed")
        (upload / "data").unlink()
        shutil.rmtree(upload)
        wait_for(lambda: not process.ready(), "it to be unready")
        assert process.get("/ready")[1].startswith("a layer ended before it was whole: ")
        assert process.state()["shortage"] == "layers"
        wait_for(process.ready, "it to be ready again")
        assert process.said() == [
            "warning: a layer ended before it was whole: nodes pull from the upstream for 1 seconds"
        ]


def test_a_look_at_uploads_that_takes_long_delays_the_next_by_seconds_at_most(volume: Path, cached: Cached) -> None:
    with running(volume, _UPLOADS_SHARE=1e9, MOST_UPLOADS_SECONDS=0.05) as process:
        for _ in range(2):
            upload = cached.upload("library/app", 0)
            wait_for(lambda: "library/app" in open_files(process), "the upload to be followed")
            shutil.rmtree(upload)
            wait_for(lambda: "library/app" not in open_files(process), "its end to be seen")
        wait_for(lambda: process.state()["shortage"] == "layers", "it to be told")


def open_files(process: Running) -> str:
    """The files that it has open."""
    return " ".join(str(each.readlink()) for each in Path(f"/proc/{process.pid}/fd").iterdir() if each.is_symlink())


def test_what_becomes_of_uploads(cached: Cached) -> None:
    def end(name: str, *, age: float = 0, content: bytes = b"content", blob: bytes = b"", rename: bool = False) -> bool:
        """Have an upload end."""
        uploads = Uploads(cached.root, 600)
        upload = cached.upload(name, 0)
        (upload / "data").write_bytes(content)
        os.utime(upload / "data", (time.time() - age, time.time() - age))
        assert not uploads.interrupted(), "it is under way"
        if blob:
            cached.blob(blob)
        if rename:
            (upload / "data").rename(cached.root / "moved")
        shutil.rmtree(upload)
        interrupted = uploads.interrupted()
        assert not uploads.interrupted(), "it is told once"
        return interrupted

    assert end("failed")
    assert end("deep/er/failed", content=b"part of a blob", blob=b"part of a blob and more")
    assert not end("stored", rename=True)
    assert not end("stored-by-another-repository", content=b"same", blob=b"same")
    assert not end("refused-by-the-upstream", content=b"")
    assert not end("left-by-a-registry-that-ended", age=601)


def test_of_very_many_uploads_some_are_followed(cached: Cached) -> None:
    uploads = Uploads(cached.root, 600)
    made = [cached.upload("library/app", 0) for _ in range(100)]
    assert not uploads.interrupted()
    for upload in made:
        shutil.rmtree(upload)
    assert uploads.interrupted()
    assert len(list(Path("/proc/self/fd").iterdir())) < 64


# what else is on the volume


def test_an_upload_to_which_nothing_is_written_is_removed(volume: Path, cached: Cached) -> None:
    stopped, going = cached.upload("library/app", 601), cached.upload("library/app", 300)
    elsewhere = Cached(volume / "before").upload("a/b/c", 601)
    with running(volume) as process:
        process.waits_for(stopped)
        process.waits_for(elsewhere)
        process.looks_again(cached)
    assert going.exists()


BROKEN = {
    "nothing": b"",
    "zeros": bytes(64),
    "half": b'{"library/app@sha256:',
    "null": b"null",
    "a list": b"[]",
    "an entry that is null": b'{"a": null}',
    "an entry that is a list": b'{"a": []}',
    "an entry without a time": b'{"a": {"Key": "a", "EntryType": 0}}',
    "a time that is none": b'{"a": {"Key": "a", "EntryType": 0, "ExpiryData": "2026-13-01T00:00:00Z"}}',
    "a type that is none": b'{"a": {"Key": "a", "EntryType": "0", "ExpiryData": "2026-01-01T00:00:00Z"}}',
    "a constant that is not JSON": b'{"a": {"Key": "a", "EntryType": NaN, "ExpiryData": "2026-01-01T00:00:00Z"}}',
    "a type that no integer holds": b'{"a": {"Key": "a", "EntryType": 1e99, "ExpiryData": "2026-01-01T00:00:00Z"}}',
    "deep": b"[" * 100_000,
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a": {"Key": "a", "EntryType": 0, "ExpiryData": "2026-01-01T00:00:00Z"}}'.encode("utf-16-le"),
    "UTF-32": "{}".encode("utf-32-le"),
    "many zeros": bytes(17 * MIB),
    "much that begins elsewhere": bytes(17 * MIB) + b"}",
    "much that does not end": b"{" + bytes(17 * MIB),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_state_that_the_registry_cannot_start_with_is_removed(volume: Path, cached: Cached, what: str) -> None:
    cached.state.write_bytes(BROKEN[what])
    with running(volume) as process:
        process.waits_for(cached.state)
        wait_for(process.said, "a line")
        assert process.said() == [f"warning: {cached.state}: removed it: the registry cannot start with it"]


@pytest.mark.parametrize("many", [0, 1, 10_000])
def test_a_state_that_the_registry_can_read_stays(volume: Path, cached: Cached, many: int) -> None:
    blob = cached.blob(b"content")
    entries: dict[str, object] = {
        f"{number}/{key}": value for number in range(many) for key, value in entry(blob).items()
    }
    cached.state.write_text(json.dumps(entries))
    with running(volume) as process:
        process.looks_again(cached)
    assert cached.state.exists()


@pytest.mark.parametrize("around", [b"", b" \t\r\n"])
def test_a_state_that_is_too_large_to_decode_stays_if_it_begins_and_ends_as_one(
    volume: Path, cached: Cached, around: bytes
) -> None:
    cached.state.write_bytes(around + b"{" + b" " * 17 * MIB + b"}" + around)
    with running(volume) as process:
        process.looks_again(cached)
    assert cached.state.exists()


def test_a_link_without_a_digest_is_removed(volume: Path, cached: Cached) -> None:
    broken = [cached.link("library/app", each) for each in ("", "\0" * 71, "sha256:", "x")]
    kept = [
        cached.link("a/b", f"sha256:{64 * 'a'}"),
        cached.link("a/b", f"sha512:{128 * 'a'}"),
        cached.link("b", "", -60),
    ]
    with running(volume) as process:
        for each in broken:
            process.waits_for(each)
        process.looks_again(cached)
    assert [each.exists() for each in kept] == [True, True, True]


def test_blobs_that_the_registry_has_forgotten_go_when_they_are_older_than_the_ttl(
    volume: Path, cached: Cached
) -> None:
    old, young, named = (cached.blob(each, age=age) for each, age in ((b"o", 9 * DAY), (b"y", DAY), (b"n", 9 * DAY)))
    other = Cached(volume / "before").blob(b"other", age=9 * DAY)
    cached.state.write_text(json.dumps(entry(named)))
    (volume / "before/scheduler-state.json").write_text(json.dumps(entry(other)))
    with running(volume, "--ttl=168h") as process:
        process.waits_for(old)
        process.waits_for(other)
        process.looks_again(cached)
    assert (young.exists(), named.exists()) == (True, True)


def test_nothing_is_too_old_without_a_ttl(volume: Path, cached: Cached) -> None:
    old = cached.blob(b"old", age=900 * DAY)
    with running(volume, "--ttl=0s") as process:
        process.looks_again(cached)
    assert old.exists()


# HTTP and the command


def test_an_audit_learns_whether_anybody_pulled_and_no_names(volume: Path, cached: Cached) -> None:
    with running(volume) as process:
        assert process.state()["used"] is False
        cached.link("secret-project/app", f"sha256:{64 * 'a'}")
        state = process.state()
        assert state["used"] is True
        assert "secret" not in json.dumps(state)
        assert set(state) == {
            *("freeBytes", "capacityBytes", "leastFreeBytes", "shortage", "used", "corruptBlobs", "lastFullRound")
        }
        assert process.get("/other")[0] == process.get("/ready/")[0] == 404


def test_silent_and_slow_clients_keep_nobody_waiting_for_long(volume: Path) -> None:
    with running(volume, _CONNECTION_SECONDS=0.5) as process, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(process.connect()) for _ in range(40)]
        slow = stack.enter_context(process.connect())
        wait_for(lambda: _answers(process), "an answer", 20)
        assert [each.recv(1) for each in silent] == [b""] * 40, "all were hung up on"
        with contextlib.suppress(OSError):
            slow.recv(1)
        assert process.end() == 0


def _answers(process: Running) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return process.get("/")[0] == 200
    return False


@pytest.mark.parametrize(
    "sent", [b"\xff\x00\n\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 99_999]
)
def test_an_invalid_request_is_refused_and_the_next_one_answered(volume: Path, sent: bytes) -> None:
    with running(volume) as process:
        with process.connect() as connection, contextlib.suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert not connection.recv(4096).startswith(b"HTTP/1.0 200")
        wait_for(process.ready, "it to be ready")
        assert process.said() == []
        assert process.end() == 0


def run(*words: str) -> Result:
    return CliRunner().invoke(chores, ["mirror-cache", *words])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Missing option '--upstream'"),
        (("--upstream=../x",), "'../x' is not the name of a folder"),
        (("--upstream=..",), "'..' is not the name of a folder"),
        (("--upstream=up", "--ttl=1week"), "'1week' is not a duration, such as 168h"),
        (("--upstream=up", "--ttl="), "'' is not a duration"),
    ],
)
def test_a_mistaken_command_line_is_refused(words: tuple[str, ...], says: str) -> None:
    result = run(*words)

    assert (result.exit_code, says in result.output) == (2, True), result.output
