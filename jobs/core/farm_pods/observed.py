"""The settings of a run of farm-pods, and what it observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct, field, structs

from jobs.core.farm_pods.farm_pod import FarmPod, Pod, PodObject, place, reduce_farm_pod, reduce_pod
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import Dependency, Finding, ObjectKey, RunOptions
from jobs.kit.values.reads import Download, ReadResult, decode, decode_plain
from jobs.kit.values.resources import FARM_PODS

OPT_IN = "kubechores.dev/farm"
MAX_OBJECTS = 10_000  # about 11 MB in etcd, and two first runs of the CronJob
WRITES_PER_SECOND = 20
# A run has 256 MiB of memory (cronjobs/) and keeps each FarmPod that it repairs. A FarmPod of this job has 1 KiB.
_MOST_FARM_POD_BYTES = 64 << 10


class Settings(Struct, frozen=True):
    """The settings of one run. An empty `namespace` means all namespaces that are labelled."""

    namespace: str = ""
    max_objects: int = MAX_OBJECTS
    run: RunOptions = field(default_factory=RunOptions)


class Observed(Struct, frozen=True):
    """What was read: the FarmPods first, then the pods.

    `failures` are of namespaces that could not be read, `invalid` of objects that cannot be decoded. `single_reads` are
    FarmPods that were read one by one after the lists. `pod_reads` are the pods that were read after these, by the key
    of their FarmPod. None: the object does not exist. `unchanged` is the number of pods by namespace that are not in
    `pods`, since their FarmPods are as desired; these are not in `farm_pods` (jobs/core/farm_pods/plan.py).
    """

    namespaces: Sequence[str]
    pods: Sequence[Pod] = ()
    farm_pods: Mapping[ObjectKey, FarmPod] = field(default_factory=dict)
    failures: tuple[Finding, ...] = ()
    invalid: tuple[Finding, ...] = ()
    single_reads: Mapping[ObjectKey, FarmPod | ApiError | None] = field(default_factory=dict)
    pod_reads: Mapping[ObjectKey, Pod | ApiError | None] = field(default_factory=dict)
    unchanged: Mapping[str, int] = field(default_factory=dict)

    def actual(self, place: ObjectKey) -> FarmPod | ApiError | None:
        """Return the FarmPod as it was read last, or the error of that read; None if it does not exist."""
        return self.single_reads[place] if place in self.single_reads else self.farm_pods.get(place)

    def with_documents(
        self, documents: Mapping[Dependency, ReadResult], _downloads: Mapping[str, Download]
    ) -> Observed:
        """Return a copy with these `documents` added.

        A pod that was read before its FarmPod is dropped: the FarmPod may have been written for a later pod.
        """
        farm_pods, single_reads, pod_reads = dict(self.farm_pods), dict(self.single_reads), dict(self.pod_reads)
        for dependency, document in documents.items():
            if dependency.key.kind != FARM_PODS.kind:
                pod_reads[place(dependency.key.namespace, dependency.key.name)] = document.reduced_if_exists(
                    lambda body: reduce_pod(decode(body, PodObject))
                )
                continue
            single_reads.pop(dependency.key, None)
            pod_reads.pop(dependency.key, None)
            found = document.reduced_if_exists(_farm_pod_read if dependency.full else reduce_farm_pod)
            if dependency.full or isinstance(found, ApiError):
                single_reads[dependency.key] = found
            elif found:
                farm_pods[dependency.key] = found
            else:
                farm_pods.pop(dependency.key, None)
        return structs.replace(self, farm_pods=farm_pods, single_reads=single_reads, pod_reads=pod_reads)


def _farm_pod_read(body: bytes) -> FarmPod:
    farm_pod, plain = reduce_farm_pod(body), decode_plain(body)
    plain["metadata"].pop("managedFields", None)  # a write without them does not change them
    document = msgspec.json.encode(plain)
    if len(document) > _MOST_FARM_POD_BYTES:
        raise InvalidObjectError(f"it has {len(document) >> 10} KiB, the limit is {_MOST_FARM_POD_BYTES >> 10} KiB")
    return structs.replace(farm_pod, document=document)
