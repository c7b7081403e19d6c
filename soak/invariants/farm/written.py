"""Each write of farm-pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from soak.history import History, Key, Object
from soak.invariants.farm.pods import JOB, is_farmed, problem
from soak.invariants.reads import annotations_of, is_managed, is_terminating, labels_of, possible, shown, window_start
from soak.observed import Observed, Write

OUR_LABELS = ("app.kubernetes.io/managed-by", "kubechores.dev/job", "kubechores.dev/rule-hash")
OUR_ANNOTATIONS = "kubechores.dev/"


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
