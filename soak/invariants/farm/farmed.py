"""Each pod has its FarmPod in time, and in the end no FarmPod describes no pod."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from soak.history import History, Key, Object
from soak.invariants.farm.pods import JOB, farm_pod_key, is_farmed, problem
from soak.invariants.reads import changed_at, has_settled, is_managed, is_terminating, latest, shown
from soak.observed import Observed


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
