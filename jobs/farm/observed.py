"""What a run of farm-pods is told, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import msgspec

from jobs.farm.farm_pod import FARM_PODS, FarmPod, FarmPodObject, Pod, PodObject, place
from jobs.kit.decoding import decode, decode_plain
from jobs.kit.errors import ApiError, InvalidObjectError
from jobs.kit.model import Finding, Need, ObjectKey
from jobs.kit.runner import ReadResult
from jobs.kit.web import Page

MAX_OBJECTS = 10_000  # about 11 MB in etcd, and one first run of the CronJob
WRITES_PER_SECOND = 20
# A run has 256 MiB of memory (cronjobs/) and keeps those that it is to repair. One as this job makes it has 1 KiB.
_MOST_FARM_POD_BYTES = 64 << 10

Reduced = TypeVar("Reduced")


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
class Observed:
    """What was read: the FarmPods first, then the pods.

    `failures` are of namespaces that could not be read, `invalid` of objects that cannot be decoded. `looks` are
    FarmPods that were read by themselves since, and `asked` by place the pods that were read after those;
    None is one that is gone.
    """

    namespaces: Sequence[str]
    pods: Sequence[Pod] = ()
    farm_pods: Mapping[ObjectKey, FarmPod] = field(default_factory=dict)
    failures: tuple[Finding, ...] = ()
    invalid: tuple[Finding, ...] = ()
    looks: Mapping[ObjectKey, Look | ApiError | None] = field(default_factory=dict)
    asked: Mapping[ObjectKey, Pod | ApiError | None] = field(default_factory=dict)

    def with_documents(self, documents: Mapping[Need, ReadResult], _pages: Mapping[str, Page]) -> Observed:
        """Return the same, knowing these `documents` too.

        A pod that was read before its FarmPod may be of the past by then: whoever wrote that may have seen a later one.
        """
        farm_pods, looks, asked = dict(self.farm_pods), dict(self.looks), dict(self.asked)
        for need, document in documents.items():
            if need.key.kind != FARM_PODS.kind:
                asked[place(need.key.namespace, need.key.name)] = _or_absent(document.reduced(_pod))
                continue
            looks.pop(need.key, None)
            asked.pop(need.key, None)
            found = document.reduced(_look if need.full else _farm_pod)
            if isinstance(found, FarmPod):  # its metadata alone
                farm_pods[need.key] = found
            elif need.full or isinstance(_or_absent(found), ApiError):
                looks[need.key] = _or_absent(found)
            else:
                farm_pods.pop(need.key, None)
        return replace(self, farm_pods=farm_pods, looks=looks, asked=asked)


def _or_absent(found: Reduced | ApiError) -> Reduced | ApiError | None:
    """Return None in place of the error that there is no such object."""
    return None if isinstance(found, ApiError) and found.status == 404 else found


def _farm_pod(body: bytes) -> FarmPod | Look:
    return decode(body, FarmPodObject).reduced


def _look(body: bytes) -> FarmPod | Look:
    read, whole = decode(body, FarmPodObject), decode_plain(body)
    whole["metadata"].pop("managedFields", None)  # left out, they stay as they are
    document = msgspec.json.encode(whole)
    if len(document) > _MOST_FARM_POD_BYTES:
        raise InvalidObjectError(f"it has {len(document) >> 10} KiB, more than {_MOST_FARM_POD_BYTES >> 10}")
    return Look(read.reduced, document)


def _pod(body: bytes) -> Pod:
    return decode(body, PodObject).reduced
