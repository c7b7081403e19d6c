"""All versions of all objects that a soak is about, from watches of the API server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Object = dict[str, Any]


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
    object before.
    """

    key: Key
    revision: int
    seconds: float
    object: Object | None
    last: Object | None = None


class History:
    """Versions by key. A thread for each kind watches it, and watches again after a failure of the API server."""

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """End the watches."""
        raise NotImplementedError

    def known_until(self) -> float:
        """Return a time (seconds since the epoch) before which all changes are known."""
        raise NotImplementedError

    def versions(self, key: Key) -> Sequence[Version]:
        """Return all versions of an object in their order."""
        raise NotImplementedError

    def during(self, key: Key, start: float, revision: int) -> list[Version]:
        """Return the version that existed at `start` and all later ones up to a revision, this one included.

        If no version existed at `start`, the result has only the later ones. An object that does not exist at `start`
        is a version with object None only if it was deleted before; so an empty list means: it never existed.
        """
        raise NotImplementedError

    def keys(self, kind: str) -> list[Key]:
        """Return the keys of all objects of a kind that exist now or existed."""
        raise NotImplementedError

    def now(self, kind: str) -> Iterator[Version]:
        """Yield the latest version of each object of a kind that exists now."""
        raise NotImplementedError

    def all_versions(self, kind: str) -> Iterator[Version]:
        """Yield all versions of all objects of a kind."""
        raise NotImplementedError
