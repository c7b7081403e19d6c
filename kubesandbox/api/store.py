"""The objects: one dict per resource, kept with their encoded form, and a log of changes for watches."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import msgspec

from ..schema.resources import Resource

Obj = dict[str, Any]
LOG_LENGTH = 5000
SNAPSHOTS = 64


class Stored:
    """An object that never changes, with its JSON."""

    __slots__ = ("_metadata_only", "heading", "name", "namespace", "obj", "raw", "version")

    def __init__(self, obj: Obj) -> None:
        self.obj = obj
        self.raw = msgspec.json.encode(obj)
        self.heading = f'{{"kind":"{obj["kind"]}","apiVersion":"{obj["apiVersion"]}",'.encode()
        meta = obj["metadata"]
        self.name: str = meta["name"]
        self.namespace: str = meta.get("namespace", "")
        self.version = int(meta.get("resourceVersion", 0))
        self._metadata_only: bytes | None = None

    @property
    def metadata_only(self) -> bytes:
        """The object as PartialObjectMetadata."""
        if self._metadata_only is None:
            self._metadata_only = msgspec.json.encode(
                {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": self.obj["metadata"],
                }
            )
        return self._metadata_only


def key_of(namespace: str, name: str) -> str:
    """The key that decides the order of lists, as in etcd."""
    return f"{namespace}/{name}" if namespace else name


@dataclass(frozen=True)
class Change:
    """One entry of the log."""

    version: int
    type: str
    resource: tuple[str, str]
    item: Stored
    previous: Stored | None = None


@dataclass
class _Shelf:
    objects: dict[str, Stored] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    revision: int = 0


@dataclass
class Store:
    """All objects of the cluster. Callers take `lock` while they read, decide and write."""

    version: int = 1
    lock: threading.RLock = field(default_factory=threading.RLock)
    log: deque[Change] = field(default_factory=lambda: deque(maxlen=LOG_LENGTH))
    _shelves: dict[tuple[str, str], _Shelf] = field(default_factory=dict)
    _snapshots: OrderedDict[tuple[Any, ...], list[Stored]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.changed = threading.Condition(self.lock)

    def copy(self) -> Store:
        """Another store with the same objects under the same versions; without the past, so without watches."""
        shelves = {
            key: _Shelf(dict(shelf.objects), list(shelf.keys), shelf.revision) for key, shelf in self._shelves.items()
        }
        return Store(version=self.version, _shelves=shelves)

    def restore(self, backup: Store) -> None:
        """Become as another store, as after the restore of a backup; without the past."""
        with self.lock:
            self.version, self._shelves = backup.version, backup.copy()._shelves
            self.log.clear()
            self._snapshots.clear()
            self.changed.notify_all()

    def _shelf(self, resource: Resource) -> _Shelf:
        return self._shelves.setdefault(resource.key, _Shelf())

    def revision(self, resource: Resource) -> int:
        """The version of the last change to any object of a resource."""
        return self._shelf(resource).revision

    def get(self, resource: Resource, namespace: str, name: str) -> Stored | None:
        """The object, if there is one."""
        return self._shelf(resource).objects.get(key_of(namespace, name))

    def put(self, resource: Resource, obj: Obj) -> Stored:
        """Write an object under a new resourceVersion."""
        self.version += 1
        meta = {**obj["metadata"], "resourceVersion": str(self.version)}
        item = Stored({**obj, "metadata": meta})
        shelf = self._shelf(resource)
        key = key_of(item.namespace, item.name)
        previous = shelf.objects.get(key)
        if previous is None:
            insort(shelf.keys, key)
        shelf.objects[key] = item
        shelf.revision = self.version
        self.log.append(Change(self.version, "MODIFIED" if previous else "ADDED", resource.key, item, previous))
        self.changed.notify_all()
        return item

    def use_schema(self, resource: Resource) -> None:
        """Drop the fields that a new schema does not know, and set its defaults. The server does so at each read."""
        objects = self._shelf(resource).objects
        for key, item in objects.items():
            obj = resource.schema.defaulted(resource.schema.prune(item.obj)[0]) if resource.schema else item.obj
            if obj != item.obj:
                objects[key] = Stored(obj)

    def remove(self, resource: Resource, item: Stored) -> Stored:
        """Delete an object; the answer is its last state under the version of the deletion."""
        shelf = self._shelf(resource)
        key = key_of(item.namespace, item.name)
        del shelf.objects[key]
        del shelf.keys[bisect_left(shelf.keys, key)]
        self.version += 1
        shelf.revision = self.version
        deleted = Stored({**item.obj, "metadata": {**item.obj["metadata"], "resourceVersion": str(self.version)}})
        self.log.append(Change(self.version, "DELETED", resource.key, deleted, item))
        self.changed.notify_all()
        return deleted

    def since(self, version: int) -> list[Change]:
        """The changes after a version, of those that the log still has."""
        return [*takewhile(lambda change: change.version > version, reversed(self.log))][::-1]

    def items(self, resource: Resource, namespace: str = "") -> list[Stored]:
        """The objects of a resource in the order of lists."""
        shelf = self._shelf(resource)
        if not namespace:
            return [shelf.objects[key] for key in shelf.keys]
        start = bisect_left(shelf.keys, namespace + "/")
        end = bisect_left(shelf.keys, namespace + "0")
        return [shelf.objects[key] for key in shelf.keys[start:end]]

    def keep_snapshot(self, resource: Resource, namespace: str, version: int, items: list[Stored]) -> None:
        """Remember a list for the pages that follow."""
        self._snapshots[(resource.key, namespace, version)] = items
        while len(self._snapshots) > SNAPSHOTS:
            self._snapshots.popitem(last=False)

    def snapshot(self, resource: Resource, namespace: str, version: int) -> list[Stored] | None:
        """A remembered list; None when it is too old."""
        if version == self.version:
            return self.items(resource, namespace)
        return self._snapshots.get((resource.key, namespace, version))

    def forget_snapshots(self) -> None:
        """Make every continue token expire, as a compaction of etcd does."""
        self._snapshots.clear()
        self.version += 1
