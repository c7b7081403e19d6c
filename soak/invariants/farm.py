"""Each pod of a namespace that opted in has one FarmPod, which describes it and is owned by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from soak.history import History, Key, Object
from soak.invariants.reads import (
    annotations_of,
    changed_at,
    each_write,
    has_settled,
    is_managed,
    is_terminating,
    labels_of,
    latest,
    possible,
    shown,
    window_start,
)
from soak.observed import Invariant, Observed, Write

JOB = "farm-pods"
OPT_IN = "kubechores.dev/farm"
OUR_LABELS = ("app.kubernetes.io/managed-by", "kubechores.dev/job", "kubechores.dev/rule-hash")
OUR_ANNOTATIONS = "kubechores.dev/"


def farm_pod_key(namespace: str, pod: str) -> Key:
    """Return the place of the FarmPod of a pod with a short name."""
    return Key("FarmPod", namespace, f"farm-{pod}")


def is_farmed(namespace: Object | None) -> bool:
    """Whether a namespace opted in."""
    return labels_of(namespace).get(OPT_IN) == "true" and not is_terminating(namespace)


def problem(farm_pod: Object, pod: Object) -> str:
    """Return why a FarmPod does not describe a pod, or an empty string."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    if farm_pod["metadata"].get("ownerReferences") != [owner]:
        return f"its owner is not only pod {metadata['name']} with uid {metadata['uid']}"
    spec, containers = farm_pod["spec"], len(pod["spec"]["containers"])
    if (spec["pod"], spec["containers"]) != (metadata["name"], containers):
        return f"it describes {spec}, and pod {metadata['name']} has {containers} containers"
    return ""


@dataclass(frozen=True)
class FarmPods:
    """Check each write of farm-pods."""

    max_objects: int

    def __call__(self, observed: Observed, write: Write) -> Iterator[str]:
        """Yield a sentence for each rule that the write violates."""
        about = f"{write.verb} of {shown(write.key)} by {write.pod}"
        if not write.after or write.verb not in ("create", "update") or write.subresource:
            yield f"{about}: only creates and updates are allowed"
            return
        start = window_start(observed, write)
        problems = [
            *self._namespace(observed.history, write, start),
            *self._pod(observed.history, write, start),
            *(_changes(write.before, write.after) if write.before else self._limit(observed, write, start)),
        ]
        yield from (f"{about}: {each}" for each in problems)

    def _namespace(self, history: History, write: Write, start: float) -> Iterator[str]:
        spaces = possible(history, Key("Namespace", "", write.key.namespace), start, write.revision)
        if not any(is_farmed(each) for each in spaces):
            yield "its namespace was not opted in at any time of the run"

    def _pod(self, history: History, write: Write, start: float) -> Iterator[str]:
        assert write.after
        name = write.key.name.removeprefix("farm-")
        pods = possible(history, Key("Pod", write.key.namespace, name), start, write.revision)
        alive = [each for each in pods if each and not is_terminating(each)]
        reasons = [problem(write.after, each) for each in alive]
        if not reasons:
            yield f"pod {name} did not exist at any time of the run"
        elif all(reasons):
            yield reasons[-1]
        if not is_managed(write.after, JOB):
            yield "it has no labels of kube-chores"

    def _limit(self, observed: Observed, write: Write, start: float) -> Iterator[str]:
        """Compare the number of FarmPods with the limit; runs at the same time may each create up to it."""
        history = observed.history
        others = {each.pod for each in observed.writes if each.account == JOB and each.seconds >= start}
        if len(others | {write.pod}) > 1:
            return
        at_the_write = (history.during(key, write.seconds, write.revision) for key in history.keys("FarmPod"))
        number = sum(1 for versions in at_the_write if versions and is_managed(versions[-1].object, JOB))
        if number > self.max_objects:
            yield f"there are {number} FarmPods, and the limit is {self.max_objects}"


def _changes(before: Object, after: Object) -> Iterator[str]:
    """Yield what an update must not do."""
    if not is_managed(before, JOB):
        yield "it was not managed by kube-chores"
    if _of_others(before) != _of_others(after):
        yield "labels or annotations of others were changed"
    fields = ("labels", "annotations", "ownerReferences")
    same = all(before["metadata"].get(name) == after["metadata"].get(name) for name in fields)
    if same and before["spec"] == after["spec"]:
        yield "nothing was changed"


def _of_others(obj: Object) -> tuple[dict[str, str], dict[str, str]]:
    of_labels = {name: value for name, value in labels_of(obj).items() if not _is_reserved(name)}
    return of_labels, {name: value for name, value in annotations_of(obj).items() if not _is_reserved(name)}


def _is_reserved(name: str) -> bool:
    return name in OUR_LABELS or name.startswith(OUR_ANNOTATIONS)


@dataclass
class Farmed:
    """Check that each pod has its FarmPod in time."""

    prefix: str
    _reported: set[tuple[Key, float]] = field(default_factory=set)

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each pod and FarmPod that several complete runs did not bring into its desired state."""
        for version in observed.history.now("Pod"):
            if version.object and version.key.namespace.startswith(self.prefix):
                yield from self._pod(observed, version.key, version.object)
        if observed.settled:
            yield from self._others(observed)

    def _pod(self, observed: Observed, key: Key, pod: Object) -> Iterator[str]:
        history = observed.history
        space, place = Key("Namespace", "", key.namespace), farm_pod_key(key.namespace, key.name)
        found = latest(history, place)
        if is_terminating(pod) or not is_farmed(latest(history, space)):
            return
        if found and (not is_managed(found, JOB) or is_terminating(found)):
            return
        why = problem(found, pod) if found else "it has no FarmPod"
        since = max(_began(history, key, pod), changed_at(history, space), changed_at(history, place))
        if why and (key, since) not in self._reported and has_settled(observed, JOB, since):
            self._reported.add((key, since))
            yield f"{shown(key)} is unchanged, and {why}"

    def _others(self, observed: Observed) -> Iterator[str]:
        """Yield the FarmPods of opted-in namespaces that describe no pod."""
        history = observed.history
        for version in history.now("FarmPod"):
            key, found = version.key, version.object
            if not key.namespace.startswith(self.prefix) or not is_managed(found, JOB) or is_terminating(found):
                continue
            pod = latest(history, Key("Pod", key.namespace, key.name.removeprefix("farm-")))
            if is_farmed(latest(history, Key("Namespace", "", key.namespace))) and pod is None:
                yield f"{shown(key)} describes no pod"


def _began(history: History, key: Key, pod: Object) -> float:
    """Return the time when the first version of a pod was observed."""
    uid = pod["metadata"]["uid"]
    versions = history.versions(key)
    return min(each.seconds for each in versions if each.object and each.object["metadata"]["uid"] == uid)


def invariants(max_objects: int = 10_000, prefix: str = "farm-") -> Sequence[Invariant]:
    """Return the invariants of FarmPods; `prefix` is that of the tenants' namespaces."""
    return (
        each_write("farm-pods", JOB, ("FarmPod",), FarmPods(max_objects)),
        Invariant("farmed", Farmed(prefix)),
    )
