"""A real control plane with as many objects as a large cluster has: clones in etcd of objects that the API created."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.apis import Api, Object, real_api
from tests.control_plane import ControlPlane, control_plane

THREADS = 8
OBJECTS_PER_TRANSACTION, BYTES_PER_TRANSACTION = 100, 1 << 20  # the limits of etcd are 128 and 1.5 MiB
ETCD_FLAGS = ("--quota-backend-bytes=17179869184",)
# Where kube-apiserver stores a kind under another name than its plural.
STORED_AS = {"nodes": "minions", "services": "services/specs", "endpoints": "services/endpoints"}
GIVE_UP_SECONDS = 300.0
T = TypeVar("T")


class Clone(NamedTuple):
    """A clone: its place, its uid (by default a random one), and by what to replace other texts of the template.

    Each text must be as long as that of the template.
    """

    namespace: str
    name: str
    uid: str = ""
    replaced: Mapping[str, str] = {}


@dataclass(frozen=True)
class Template:
    """An object as etcd stores it. `key` ends with its namespace, if it has one, and its name."""

    key: str
    listed_at: str
    stored: bytes = field(repr=False)
    namespace: str
    name: str
    uid: str

    def clone(self, place: Clone) -> tuple[str, bytes]:
        """Return key and content of a clone."""
        old = f"{self.namespace}/{self.name}" if self.namespace else self.name
        new = f"{place.namespace}/{place.name}" if self.namespace else place.name
        texts = {self.name: place.name, self.uid: place.uid or str(uuid.uuid4()), **place.replaced}
        if self.namespace:
            texts[self.namespace] = place.namespace
        return self.key.removesuffix(old) + new, replaced(self.stored, texts)


def replaced(stored: bytes, texts: Mapping[str, str]) -> bytes:
    """Replace texts by others of the same length, so that lengths within protobuf stay valid."""
    by = {old.encode(): new.encode() for old, new in texts.items() if old != new}
    wrong = [old.decode() for old, new in by.items() if len(old) != len(new)]
    if wrong:
        raise ValueError(f"another length than {', '.join(wrong)}: {', '.join(texts[old] for old in wrong)}")
    if not by:
        return stored
    longest_first = sorted(by, key=len, reverse=True)
    return re.sub(b"|".join(map(re.escape, longest_first)), lambda found: by[found[0]], stored)


def etcd_key(path: str) -> str:
    """Return the key in etcd of an object by its path in the API, as /api/v1/namespaces/default/pods/web."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace, rest = ([rest[1]], rest[2:]) if rest[0] == "namespaces" and len(rest) == 4 else ([], rest)
    plural, name = rest
    # Kubernetes stores its own groups without their names. Those of custom resources have another domain.
    folder = [STORED_AS.get(plural, plural)] if "." not in group or group.endswith(".k8s.io") else [group, plural]
    return "/".join(["/registry", *folder, *namespace, name])


def list_path(path: str) -> str:
    """Return the path of the list of all objects of the kind, in all namespaces."""
    parts = path.strip("/").split("/")
    before = 2 if parts[0] == "api" else 3
    rest = parts[before:]
    plural = rest[2] if rest[0] == "namespaces" and len(rest) == 4 else rest[0]
    return "/" + "/".join([*parts[:before], plural])


@contextlib.contextmanager
def bench_cluster(*, controllers: bool = False) -> Iterator[BenchCluster]:
    """Run a control plane for benchmarks until the context ends.

    With `controllers`, kube-controller-manager runs too. It writes two objects to each namespace, which takes minutes
    for 10,000 namespaces.
    """
    with tempfile.TemporaryDirectory() as folder, control_plane(ETCD_FLAGS, controllers=controllers) as plane:
        yield BenchCluster(plane, Path(folder))


class BenchCluster:
    """A control plane, helpers to fill it, and notes of the world about its state."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.api: Api = real_api(plane, folder)
        self.notes: dict[str, Any] = {}
        self._of_thread = threading.local()

    def put(self, objects: Iterable[Object]) -> None:
        """Create or replace objects, one after another."""
        for obj in objects:
            self.api.put(obj)

    def each(self, call: Callable[[T], object], values: Iterable[T]) -> None:
        """Call a function with each value, with THREADS threads."""
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(call, values):
                pass

    def touch(self, path: str) -> None:
        """Change an annotation of an object, by its path in the API."""
        self.notes["touched"] = number = self.notes.get("touched", 0) + 1
        patch = {"metadata": {"annotations": {"bench.example.com/touched": str(number)}}}
        self.api.call("PATCH", path, patch, headers={"Content-Type": "application/merge-patch+json"})

    @contextlib.contextmanager
    def without_api_server(self) -> Iterator[None]:
        """Stop kube-apiserver while many clones are written with `write()`.

        It then gets them with one list. With an event for each, it needs several times the memory until the next
        compaction: 6 to 14 GB for 150,000 pods and as many FarmPods.
        """
        with self.plane.without_api_server():
            yield
        self.api = real_api(self.plane, self.folder)

    # clones

    def template(self, path: str) -> Template:
        """Read an object, by its path in the API, as etcd stores it."""
        found = self.api.call("GET", path)["metadata"]
        key = etcd_key(path)
        (stored,) = self._etcd("range", {"key": _coded(key.encode())})["kvs"]
        return Template(
            key, list_path(path), _decoded(stored["value"]), found.get("namespace", ""), found["name"], found["uid"]
        )

    def clone(self, template: str | Template, clones: Iterable[Clone]) -> int:
        """Write clones of an object to etcd, in the place of others with their names; return how many.

        The object is a template, or the path of an object in the API. kube-apiserver serves all clones at the end.
        """
        source = self.template(template) if isinstance(template, str) else template
        written = self.write(map(source.clone, clones))
        self.wait_until_served(source.listed_at)
        return written

    def write(self, stored: Iterable[tuple[str, bytes]]) -> int:
        """Write contents of keys to etcd. Call `wait_until_served` after it."""
        count = 0

        def put(chunk: Sequence[tuple[str, bytes]]) -> None:
            puts = [{"requestPut": {"key": _coded(key.encode()), "value": _coded(value)}} for key, value in chunk]
            self._etcd("txn", {"success": puts})

        with ThreadPoolExecutor(2) as pool:
            chunks = _chunks(stored)
            while several := list(islice(chunks, 2)):  # not more in memory
                list(pool.map(put, several))
                count += sum(map(len, several))
        return count

    def delete_prefix(self, prefix: str, listed_at: str) -> int:
        """Delete all keys of etcd that start with a prefix; return how many. `listed_at` is a path of their list."""
        begin, end, count = prefix.encode(), prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1]), 0
        while True:
            query = {"key": _coded(begin), "range_end": _coded(end), "limit": "1000", "keys_only": True}
            found = self._etcd("range", query).get("kvs", [])
            if not found:
                break
            keys = [one["key"] for one in found]
            for chunk in (keys[at : at + 100] for at in range(0, len(keys), 100)):
                self._etcd("txn", {"success": [{"requestDeleteRange": {"key": key}} for key in chunk]})
            count += len(keys)
        self.wait_until_served(listed_at)
        return count

    def wait_until_served(self, listed_at: str) -> None:
        """Wait until the watch cache of the kind at this path has all that is in etcd now."""
        revision = self._etcd("range", {"key": _coded(b"/registry/none")})["header"]["revision"]
        # A list that matches nothing is cheap. It is served from the cache as soon as that is not older.
        query = f"labelSelector=none%3Dnone&resourceVersion={revision}&resourceVersionMatch=NotOlderThan"
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while (answer := self.api.request("GET", f"{listed_at}?{query}"))[0] != 200:
            assert time.monotonic() < deadline, f"{listed_at} is not up to date: {answer[2]!r}"
            time.sleep(0.1)

    def count(self, listed_at: str) -> int:
        """Return the number of objects in a list, which has no selector."""
        page = self.api.call("GET", f"{listed_at}?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    def _etcd(self, call: str, body: Object) -> Any:
        """Call the HTTP gateway of etcd; each thread has a connection."""
        if not hasattr(self._of_thread, "etcd"):
            host = self.plane.etcd_url.removeprefix("http://")
            self._of_thread.etcd = http.client.HTTPConnection(host, timeout=60)
        connection: http.client.HTTPConnection = self._of_thread.etcd
        connection.request("POST", f"/v3/kv/{call}", json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, f"etcd: {call}: {answer.status} {content[:1000]!r}"
        return json.loads(content)


def _chunks(stored: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """Split writes into transactions that etcd accepts."""
    chunk: list[tuple[str, bytes]] = []
    size = 0
    for key, value in stored:
        if chunk and (len(chunk) == OBJECTS_PER_TRANSACTION or size + len(value) > BYTES_PER_TRANSACTION):
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += len(value)
    if chunk:
        yield chunk


def _coded(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
