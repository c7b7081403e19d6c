"""What a run of farm-pods is told, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from jobs.farm.farm_pod import FARM_PODS, FarmPod, FarmPodObject, Pod, PodObject, place
from jobs.kit.errors import ApiError
from jobs.kit.model import Finding, Need, ObjectKey
from jobs.kit.runner import Document
from jobs.kit.web import Page

MAX_OBJECTS = 10_000  # about 11 MB in etcd, and one first run of the CronJob
WRITES_PER_SECOND = 20


@dataclass(frozen=True)
class Settings:
    """What one run is told. `namespace` empty is all that are labelled."""

    namespace: str = ""
    max_objects: int = MAX_OBJECTS
    diff: bool = False
    verbose: bool = False


class Look(NamedTuple):
    """A FarmPod that was read by itself, and its JSON: a run may hold one for each pod."""

    farm_pod: FarmPod
    document: bytes


@dataclass(frozen=True)
class Seen:
    """What was read: the FarmPods first, then the pods.

    `looks` are FarmPods that were read by themselves since, and `asked` by place the pods that were read after those;
    None is one that is gone.
    """

    namespaces: Sequence[str]
    pods: Sequence[Pod] = ()
    farm_pods: Mapping[ObjectKey, FarmPod] = field(default_factory=dict)
    failures: tuple[Finding, ...] = ()
    looks: Mapping[ObjectKey, Look | ApiError | None] = field(default_factory=dict)
    asked: Mapping[ObjectKey, Pod | ApiError | None] = field(default_factory=dict)

    def looked_up(self, documents: Mapping[Need, Document], _pages: Mapping[str, Page]) -> Seen:
        """Return the same, knowing these `documents` too.

        A pod that was read before its FarmPod may be of the past by then: whoever wrote that may have seen a later one.
        """
        farm_pods, looks, asked = dict(self.farm_pods), dict(self.looks), dict(self.asked)
        for need, document in documents.items():
            if need.key.kind != FARM_PODS.kind:
                asked[place(need.key.namespace, need.key.name)] = _pod(document)
                continue
            looks.pop(need.key, None)
            asked.pop(need.key, None)
            if need.full or _is_unreadable(document):
                looks[need.key] = _look(document)
            elif document.error:
                farm_pods.pop(need.key, None)
            else:  # its metadata alone
                farm_pods[need.key] = msgspec.json.decode(document.body, type=FarmPodObject).reduced
        return replace(self, farm_pods=farm_pods, looks=looks, asked=asked)


def _is_unreadable(document: Document) -> bool:
    return document.error is not None and document.error.status != 404


def _look(document: Document) -> Look | ApiError | None:
    if document.error:
        return document.error if _is_unreadable(document) else None
    read = msgspec.json.decode(document.body, type=FarmPodObject)
    whole = msgspec.json.decode(document.body)
    whole["metadata"].pop("managedFields", None)  # left out, they stay as they are
    return Look(read.reduced, msgspec.json.encode(whole))


def _pod(document: Document) -> Pod | ApiError | None:
    if document.error:
        return document.error if _is_unreadable(document) else None
    return msgspec.json.decode(document.body, type=PodObject).reduced
