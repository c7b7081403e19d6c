"""Compare pods with their FarmPods while the pods are read: a run keeps only those that differ. Pure.

A run with 150,000 pods would otherwise need twice the memory. Most pods have a FarmPod as desired: of these it keeps
the number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from jobs.core.farm_pods.farm_pod import FarmPod, Pod, place
from jobs.kit.values.model import ObjectKey

# A pod that was compared: the key of its FarmPod if that is as desired, or the pod.
Compared = ObjectKey | Pod


def compare(pod: Pod, farm_pods: Mapping[ObjectKey, FarmPod]) -> Compared:
    """Return the key of the pod's FarmPod if it is as desired; otherwise the pod, which `plan()` evaluates.

    The key is the one in `farm_pods`: it needs no further memory.
    """
    found = farm_pods.get(place(pod.namespace, pod.name))
    is_desired = found and found.managed and not found.terminating and not pod.terminating and found.is_desired(pod)
    return found.key if found and is_desired else pod


class Different(NamedTuple):
    """The pods and FarmPods to evaluate one by one, and the number of the others by namespace."""

    pods: Sequence[Pod]
    farm_pods: Mapping[ObjectKey, FarmPod]
    unchanged: Mapping[str, int]


def different(compared: Iterable[Compared], farm_pods: Mapping[ObjectKey, FarmPod]) -> Different:
    """Return what is left to evaluate after all pods were read and compared.

    A pod stays, although its FarmPod is as desired, if another pod requires a FarmPod of the same name: none of them
    is written then.
    """
    pods: list[Pod] = []
    desired: list[ObjectKey] = []
    for each in dict.fromkeys(compared):  # a server may list a pod twice
        if isinstance(each, Pod):
            pods.append(each)
        else:
            desired.append(each)
    required = {each.place for each in pods if not each.terminating}
    collisions = required.intersection(desired)
    pods += (_pod_of(farm_pods[key]) for key in sorted(collisions))
    left = dict(farm_pods)
    unchanged: Counter[str] = Counter()
    for key in desired:
        if key not in collisions:
            del left[key]
            unchanged[key.namespace] += 1
    return Different(pods, left, unchanged)


def _pod_of(farm_pod: FarmPod) -> Pod:
    """Return the pod of a FarmPod that is as desired."""
    return Pod(farm_pod.key.namespace, farm_pod.pod, farm_pod.owner, farm_pod.containers)


def to_read_in_full(
    compared: Mapping[str, Collection[Compared]], farm_pods: Mapping[ObjectKey, FarmPod], max_objects: int
) -> Iterator[str]:
    """Yield the namespaces in which the containers of more than half of the pods must be read.

    One list is then less work than single reads. `compared` are pods by namespace, of which only metadata were read.
    """
    sizes, suspects, missing = Counter[str](), Counter[str](), Counter[str]()
    for namespace, pods in compared.items():
        sizes[namespace] = len(pods)
        for each in pods:
            if not isinstance(each, Pod) or each.terminating:
                continue
            if each.place not in farm_pods:
                missing[namespace] += 1
            elif isinstance(compare(each, farm_pods), Pod):  # else it is in the report of -v
                suspects[namespace] += 1
    managed = sum(each.managed for each in farm_pods.values())
    suspects.update({each: missing[each] for each in admitted(missing, managed, sizes, max_objects)})
    yield from (each for each, number in sorted(suspects.items()) if 2 * number > sizes[each])


def admitted(creates: Mapping[str, int], existing: int, pods: Mapping[str, int], max_objects: int) -> set[str]:
    """Return the namespaces whose creates fit, smallest first; one that does not fit does not stop later ones.

    `creates` are the missing FarmPods by namespace, `existing` the number of all FarmPods, `pods` the sizes of the
    namespaces.
    """
    found = set()
    for namespace in sorted(creates, key=lambda each: (pods[each], each)):
        if existing + creates[namespace] <= max_objects:
            existing += creates[namespace]
            found.add(namespace)
    return found
