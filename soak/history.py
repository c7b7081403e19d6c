"""All versions of all objects that a soak is about, from watches of the API server."""

from __future__ import annotations

import bisect
import contextlib
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Object = dict[str, Any]

LATE_SECONDS = 8.0  # of a loaded API server, between its response to a writer and the change in a watch

PROBE_SECONDS = 1.0
RETRY_SECONDS = 0.5
TIMEOUT_SECONDS = 20.0
WATCH_SECONDS = 240
KINDS = {
    **{kind: f"/api/v1/{kind.lower()}s" for kind in ("Namespace", "ConfigMap", "Secret", "ServiceAccount", "Pod")},
    **{kind: f"/api/v1/{kind.lower()}s" for kind in ("LimitRange", "ResourceQuota", "Event", "Service")},
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    **{kind: f"/apis/apps/v1/{kind.lower()}s" for kind in ("Deployment", "StatefulSet", "DaemonSet")},
    **{kind: f"/apis/batch/v1/{kind.lower()}s" for kind in ("Job", "CronJob")},
    "NetworkPolicy": "/apis/networking.k8s.io/v1/networkpolicies",
    "Role": "/apis/rbac.authorization.k8s.io/v1/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    **{
        kind: f"/apis/kubechores.dev/v1/{kind.lower()}s"
        for kind in ("CopyRator", "ExchangeRate", "FarmPod", "RegistryMirror")
    },
}


class Key(NamedTuple):
    """The place of an object; `namespace` is empty for a cluster-scoped one."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class Version:
    """An object after one change.

    `revision` is the resourceVersion of the change: the order of all changes of the cluster. `seconds` is the time when
    the change was observed, a little after it was made. `object` is None if the change deleted it; `last` is then the
    object before. `earliest` is an earlier revision that the change can have: of a deletion that a list showed, while
    the watch did not work.
    """

    key: Key
    revision: int
    seconds: float
    object: Object | None
    last: Object | None = None
    earliest: int = 0

    def can_be_of(self, revision: int) -> bool:
        """Whether the change can have been made up to a revision."""
        return (self.earliest or self.revision) <= revision


class _ExpiredError(OSError):
    """The API server has no changes from that revision on."""


class History:
    """Versions by key. A thread for each kind watches it, and watches again after a failure of the API server.

    After a watch failed for so long that its changes cannot be sent again, only the latest version is known.
    """

    def __init__(self, url: str, token: str, ca_file: Path, kinds: Mapping[str, str] = KINDS) -> None:
        self._host = url.removeprefix("https://")
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "soak"}
        self._versions: dict[str, dict[Key, list[Version]]] = {kind: {} for kind in kinds}
        self._changes: dict[str, list[Version]] = {kind: [] for kind in kinds}
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._failed_since: dict[str, float] = dict.fromkeys(kinds, time.time())  # of a watch that does not run
        self._probed = 0.0
        work = [(self._watch, kind, path) for kind, path in kinds.items()]
        self._threads = [threading.Thread(target=act, args=args, daemon=True) for act, *args in work]
        self._threads.append(threading.Thread(target=self._probe, daemon=True))
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End the watches."""
        self._over.set()

    def known_until(self) -> float:
        """Return a time (seconds since the epoch) before which all changes are known."""
        with self._lock:
            return min([self._probed, *self._failed_since.values()]) - LATE_SECONDS

    def failing(self) -> list[str]:
        """Return the kinds whose watches do not work."""
        with self._lock:
            return sorted(self._failed_since)

    def versions(self, key: Key) -> Sequence[Version]:
        """Return all versions of an object in their order."""
        with self._lock:
            return list(self._versions.get(key.kind, {}).get(key, ()))

    def during(self, key: Key, start: float, revision: int) -> list[Version]:
        """Return the version that existed at `start` and all later ones up to a revision, this one included.

        If no version existed at `start`, the result has only the later ones. An object that does not exist at `start`
        is a version with object None only if it was deleted before; so an empty list means: it never existed.
        """
        versions = self.versions(key)
        first = max(0, bisect.bisect_right([each.seconds for each in versions], start) - 1)
        return [each for each in versions[first:] if each.can_be_of(revision)]

    def keys(self, kind: str) -> list[Key]:
        """Return the keys of all objects of a kind that exist now or existed."""
        with self._lock:
            return list(self._versions[kind])

    def now(self, kind: str) -> Iterator[Version]:
        """Yield the latest version of each object of a kind that exists now."""
        with self._lock:
            latest = [versions[-1] for versions in self._versions[kind].values()]
        return (each for each in latest if each.object is not None)

    def all_versions(self, kind: str) -> Iterator[Version]:
        """Yield all versions of all objects of a kind."""
        with self._lock:
            return iter([each for versions in self._versions[kind].values() for each in versions])

    def changes(self, kind: str, since: int = 0) -> list[Version]:
        """Return the versions of all objects of a kind as they were observed, without the first ones."""
        with self._lock:
            return self._changes[kind][since:]

    # threads

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, timeout=TIMEOUT_SECONDS, context=self._tls)

    def _get(self, connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
        connection.request("GET", path, headers=self._headers)
        response = connection.getresponse()
        if response.status == 410:
            raise _ExpiredError(path)
        if response.status != 200:
            raise OSError(f"GET {path}: {response.status} {response.read(500).decode(errors='replace')}")
        return response

    def _probe(self) -> None:
        """While the API server does not respond, nothing is known."""
        while not self._over.wait(PROBE_SECONDS):
            began = time.time()
            try:
                connection = self._connect()
                self._get(connection, "/api/v1/namespaces/kube-system").read()
                connection.close()
            except (OSError, http.client.HTTPException):
                continue
            with self._lock:
                self._probed = began

    def _watch(self, kind: str, path: str) -> None:
        revision = ""
        while not self._over.is_set():
            try:
                connection = self._connect()
                revision = revision or self._list(kind, connection, path)
                revision = self._follow(kind, connection, path, revision)
                connection.close()
            except _ExpiredError:
                revision = ""  # at once: what changes twice before the list is lost
            # An API server that ends closes the connection with its response, which then has no socket: AttributeError.
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                self._over.wait(RETRY_SECONDS)

    def _list(self, kind: str, connection: http.client.HTTPSConnection, path: str) -> str:
        listed = json.loads(self._get(connection, path).read())
        revision = str(listed["metadata"]["resourceVersion"])
        seen = {self._add(kind, each, is_deleted=False) for each in listed["items"] or []}
        with self._lock:
            for key, versions in self._versions[kind].items():
                if key not in seen and (last := versions[-1].object) is not None:
                    earliest = versions[-1].revision + 1
                    versions.append(Version(key, int(revision), time.time(), None, last, earliest))
                    self._changes[kind].append(versions[-1])
        return revision

    def _follow(self, kind: str, connection: http.client.HTTPSConnection, path: str, revision: str) -> str:
        """Read a watch to its end, and return the revision from which to continue; empty if a list is necessary."""
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={revision}"
        response = self._get(connection, f"{path}?{query}")
        connection.sock.settimeout(WATCH_SECONDS + TIMEOUT_SECONDS)
        with self._running(kind):
            while not self._over.is_set() and (line := response.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return ""
                revision = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._add(kind, event["object"], is_deleted=event["type"] == "DELETED")
        return revision

    @contextlib.contextmanager
    def _running(self, kind: str) -> Iterator[None]:
        """Changes of a kind are known while the API server serves its watch: not yet when a request of one is sent."""
        with self._lock:
            self._failed_since.pop(kind, None)
        try:
            yield
        finally:
            with self._lock:
                self._failed_since[kind] = time.time()

    def _add(self, kind: str, obj: Object, *, is_deleted: bool) -> Key:
        metadata = obj["metadata"]
        obj["kind"] = kind  # items of a list have none
        key = Key(kind, metadata.get("namespace", ""), metadata["name"])
        revision = int(metadata["resourceVersion"])
        version = Version(key, revision, time.time(), None if is_deleted else obj, obj if is_deleted else None)
        with self._lock:
            versions = self._versions[kind].setdefault(key, [])
            if not versions or versions[-1].revision < revision:
                versions.append(version)
                self._changes[kind].append(version)
        return key
