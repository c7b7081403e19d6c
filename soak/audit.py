"""What our accounts wrote, from the audit log of the API server.

https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
"""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soak.history import KINDS, History, Key, Object, Version
from soak.observed import Write

Event = dict[str, Any]
OURS = "system:serviceaccount:kube-chores"
VERBS = ("create", "update", "patch", "delete")
_KIND_OF = {path.rpartition("/")[2]: kind for kind, path in KINDS.items()}
_BEGIN = b'{"kind":"Event","apiVersion":"audit.k8s.io/'  # quotes are escaped inside of strings
_POD = "authentication.kubernetes.io/pod-name"


class Audit:
    """Read writes of our accounts from an audit log with whole objects, and pair them with versions of the history."""

    def __init__(self, log: Path, history: History) -> None:
        self._log, self._history = log, history
        self._position = 0
        self._waiting: list[Event] = []
        self._used: set[int] = set()

    def writes(self, until: float) -> list[Write]:
        """Return the writes since the last call whose changes the history knows, those of after a time excepted."""
        self._waiting += [each for each in self._new_events() if _is_write(each)]
        known, waiting = [], []
        for event in self._waiting:
            if _end(event) > until:
                waiting.append(event)
            elif write := self._write(event):
                known.append(write)
        self._waiting = waiting
        return sorted(known, key=lambda each: each.revision)

    def _new_events(self) -> list[Event]:
        with self._log.open("rb") as file:
            file.seek(self._position)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._position += len(whole) + len(newline)
        # An API server that is killed can leave a part of a line. The next line of the log then continues it.
        lines = [line[max(0, line.rfind(_BEGIN)) :] for line in whole.splitlines() if OURS.encode() in line]
        return [json.loads(line) for line in lines]

    def _write(self, event: Event) -> Write | None:
        """Return the write of a request, None if it changed nothing."""
        key, obj = _key(event), event.get("responseObject") or {}
        versions = self._history.versions(key)
        deletes = event["verb"] == "delete"
        index = _deleted(obj, versions) if deletes else _written(obj, versions)
        if index is None:
            # The history lost it: the watch failed, and the object was changed again before the list that followed.
            before, version = _lost_deletion(key, event, versions) if deletes else _lost(key, event, versions)
        else:
            before, version = (versions[index - 1].object if index else None), versions[index]
            is_older = version.seconds < _received(event) or version.revision == _sent_revision(event)
            if is_older or version.revision in self._used:
                return None
            self._used.add(version.revision)
        extra = event["user"].get("extra") or {}
        return Write(
            account=event["user"]["username"].rpartition(":")[2],
            pod=(extra.get(_POD) or [""])[0],
            verb=event["verb"],
            key=key,
            subresource=event["objectRef"].get("subresource", ""),
            seconds=_end(event),
            revision=version.revision,
            before=before,
            after=version.object,
        )


def _is_write(event: Event) -> bool:
    return (
        event["stage"] == "ResponseComplete"
        and event["user"]["username"].startswith(OURS)
        and event["verb"] in VERBS
        and event["responseStatus"].get("code", 500) < 300
        and "dryRun=" not in event["requestURI"]
        and not (event.get("requestObject") or {}).get("dryRun")
        and not event["objectRef"]["resource"].endswith("reviews")  # questions about rights, which are not stored
    )


def _key(event: Event) -> Key:
    """Return the place of the object; a kind without a history is the name of the resource."""
    about = event["objectRef"]
    name = about.get("name") or event["responseObject"]["metadata"]["name"]
    return Key(_KIND_OF.get(about["resource"], about["resource"]), about.get("namespace", ""), name)


def _written(obj: Object, versions: Sequence[Version]) -> int | None:
    return next((n for n, each in enumerate(versions) if each.revision == _revision(obj)), None)


def _deleted(obj: Object, versions: Sequence[Version]) -> int | None:
    """Return the version that a response to a DELETE is about: a Status, or the object, which a finalizer may keep."""
    is_kept = obj.get("kind") != "Status" and "deletionTimestamp" in obj["metadata"]
    if is_kept and (index := _written(obj, versions)) is not None:
        return index
    uid = _uid(obj)
    return next((n for n, each in enumerate(versions) if each.last and _uid(each.last) == uid), None)


def _lost(key: Key, event: Event, versions: Sequence[Version]) -> tuple[Object | None, Version]:
    """Return the last known object before a write, and the version that the response has."""
    obj = event["responseObject"]
    earlier = [each for each in versions if each.revision < _revision(obj)]
    return (earlier[-1].object if earlier else None), Version(key, _revision(obj), _end(event), obj)


def _lost_deletion(key: Key, event: Event, versions: Sequence[Version]) -> tuple[Object | None, Version]:
    """Return the last known object that a request deleted, and a version just before the next object was created."""
    uid = _uid(event["responseObject"])
    earlier = [each for each in versions if each.object and _uid(each.object) == uid]
    before, revision = (earlier[-1].object, earlier[-1].revision + 1) if earlier else (None, 0)
    revision = min((each.revision - 1 for each in versions if each.revision > revision), default=revision)
    return before, Version(key, revision, _end(event), None, before)


def _uid(obj: Object) -> str | None:
    """Return the UID of an object, or of the one that a Status is about."""
    about = obj.get("details") if obj.get("kind") == "Status" else obj.get("metadata")
    return (about or {}).get("uid")


def _sent_revision(event: Event) -> int | None:
    """Return the resourceVersion that a request required; the response to one that changed nothing has the same."""
    sent = event.get("requestObject")
    metadata = sent.get("metadata") if isinstance(sent, dict) else None
    return int((metadata or {}).get("resourceVersion") or 0) or None


def _revision(obj: Object) -> int:
    return int((obj.get("metadata") or {}).get("resourceVersion") or 0)


def _received(event: Event) -> float:
    return _seconds(event["requestReceivedTimestamp"])


def _end(event: Event) -> float:
    return _seconds(event["stageTimestamp"])


def _seconds(stamp: str) -> float:
    """Return the seconds since the epoch of a timestamp with microseconds, as 2026-11-23T10:00:00.123456Z."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")
