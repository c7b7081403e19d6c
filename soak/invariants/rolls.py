"""Each change of config rolls each workload that opted in exactly once."""

from __future__ import annotations

import copy
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from soak.history import History, Key, Object
from soak.invariants.reads import (
    annotations_of,
    changed_at,
    each_write,
    has_settled,
    is_terminating,
    latest,
    possible,
    seconds,
    shown,
    window_start,
)
from soak.invariants.uses import Content, Use, uses
from soak.observed import Invariant, Observed, Write

JOB = "roll-workloads"
KINDS = ("Deployment", "StatefulSet", "DaemonSet")
OPT_IN = "kubechores.dev/roll-on-config-change"
GENERATION = "deprecated.daemonset.template.generation"  # the API server increments it with each roll
BASELINE = "kubechores.dev/config-baseline"
ROLL_ID = "kubechores.dev/config"
MOST_DOUBLINGS = 6
_STATUS_FIELDS = ("resourceVersion", "generation", "managedFields")


@dataclass(frozen=True)
class Settings:
    """The flags of the installation's roll-workloads: seconds, and rolls in one run."""

    settle: float = 2.0
    cool_down: float = 15.0
    max_rolls: int = 10


@dataclass(frozen=True)
class Baseline:
    """The content of the annotation: fingerprints by use, the id of the key, and the last roll."""

    uid: str
    sources: dict[str, str]
    key: str
    rolled_at: float
    early: int

    @staticmethod
    def of(workload: Object | None) -> Baseline | None:
        """Return the baseline of a workload, None if there is none for its uid."""
        try:
            found = json.loads(annotations_of(workload).get(BASELINE, ""))
            rolled_at = seconds(found["rolledAt"]) if found.get("rolledAt") else 0.0
            baseline = Baseline(found["uid"], found["sources"], found.get("key", ""), rolled_at, found.get("early", 0))
        except (ValueError, KeyError, TypeError):
            return None
        return baseline if workload and baseline.uid == workload["metadata"]["uid"] else None

    def is_comparable(self, other: Baseline) -> bool:
        """Whether the fingerprints of both are of the same uses and computed with the same key."""
        return self.sources.keys() == other.sources.keys() and self.key == other.key


def roll_id(workload: Object | None) -> str:
    """Return the annotation of the pod template that a roll changes."""
    if not workload:
        return ""
    template = workload["spec"]["template"].get("metadata", {})
    return str((template.get("annotations") or {}).get(ROLL_ID, ""))


def deferral(workload: Object) -> str:
    """Return which field of a workload prevents a rolling restart, or an empty string."""
    spec = workload["spec"]
    strategy = spec.get("updateStrategy") or {}
    partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
    if spec.get("paused"):
        return "paused"
    if strategy.get("type") == "OnDelete":
        return "OnDelete"
    return "partition" if partition and partition >= spec.get("replicas", 1) else ""


def is_rolled_out(workload: Object) -> bool:
    """Whether the rollout of a workload is complete, and all of its pods are available."""
    status, spec = workload.get("status", {}), workload["spec"]
    if status.get("observedGeneration") != workload["metadata"]["generation"]:
        return False
    if workload["kind"] == "DaemonSet":
        desired = status.get("desiredNumberScheduled", 0)
        pods = (status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0))
        return pods == (desired, desired)
    desired = spec.get("replicas", 1)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    if workload["kind"] == "StatefulSet" and status.get("currentRevision") == status.get("updateRevision"):
        counts[1] = desired  # the controller may count no updated pods then
    return counts == [desired] * 3


def opted_in(workload: Object | None, namespace: Object | None) -> bool:
    """Whether a workload opted in, itself or by its namespace."""
    if not workload:
        return False
    own = annotations_of(workload).get(OPT_IN)
    return own == "true" or (own is None and annotations_of(namespace).get(OPT_IN) == "true")


@dataclass
class Fingerprints:
    """The contents that each fingerprint may be of, by what it is computed from.

    Two equal fingerprints are of the same content, and two different ones of different contents. Each write of a
    baseline excludes the contents that no run could have read then.
    """

    _known: dict[tuple[str, str, str], dict[str, set[Content]]] = field(default_factory=dict)

    def may_be(self, scope: tuple[str, str, str], fingerprint: str, content: Content) -> bool:
        """Whether a fingerprint may be of this content; True if it is not known."""
        known = self._known.get(scope, {}).get(fingerprint)
        return known is None or content in known

    def learn(self, scope: tuple[str, str, str], fingerprint: str, contents: set[Content]) -> bool:
        """Record that a fingerprint was computed of one of these contents. Return False if that cannot be."""
        known = self._known.setdefault(scope, {})
        of_others = {next(iter(each)) for name, each in known.items() if name != fingerprint and len(each) == 1}
        left = (known.get(fingerprint, contents) & contents) - of_others
        known[fingerprint] = left or contents
        if len(left) == 1:
            for name, each in known.items():
                if name != fingerprint and len(each) > 1:
                    each -= left
        return bool(left)


@dataclass
class Rolls:
    """Check each write of roll-workloads to a workload."""

    settings: Settings
    fingerprints: Fingerprints
    _rolls: Counter[str] = field(default_factory=Counter)

    def __call__(self, observed: Observed, write: Write) -> Iterator[str]:
        """Yield a sentence for each rule that the write violates."""
        about = f"{shown(write.key)} by {write.pod}"
        before, after = write.before, write.after
        if not before or not after or write.subresource:
            yield f"{about}: {write.verb} {write.subresource} of a workload, and only patches are allowed"
            return
        start = window_start(observed, write)
        is_roll = roll_id(before) != roll_id(after)
        problems = [
            *self._fields(before, after),
            *self._opt_in(observed.history, write, start),
            *self._baseline(before, after, is_roll=is_roll),
            *self._sources(observed.history, write, start),
            *(self._roll(write.pod, before, after) if is_roll else ()),
        ]
        yield from (f"{about} {'rolled' if is_roll else 'recorded'}: {each}" for each in problems)

    def _fields(self, before: Object, after: Object) -> Iterator[str]:
        if _without_ours(before) != _without_ours(after):
            yield "the write changed other fields than the two annotations"

    def _opt_in(self, history: History, write: Write, start: float) -> Iterator[str]:
        workloads = possible(history, write.key, start, write.revision)
        spaces = possible(history, Key("Namespace", "", write.key.namespace), start, write.revision)
        if not any(opted_in(workload, space) for workload in [*workloads, write.before] for space in spaces):
            yield "it was not opted in at any time of the run"

    def _baseline(self, before: Object, after: Object, *, is_roll: bool) -> Iterator[str]:
        old, new = Baseline.of(before), Baseline.of(after)
        if not new:
            yield "the new baseline is not valid"
            return
        names = {each.text for each in uses(after["spec"]["template"]["spec"])}
        if new.sources.keys() != names:
            yield f"the baseline has {sorted(new.sources)}, and the pod template uses {sorted(names)}"
        if is_roll and not (old and old.is_comparable(new)):
            yield "there was no baseline to compare with"
        elif is_roll and old and old.sources == new.sources:
            yield "no fingerprint changed"
        elif not is_roll and old and old.is_comparable(new) and old.sources != new.sources:
            yield "the change became part of the baseline without a roll"

    def _sources(self, history: History, write: Write, start: float) -> Iterator[str]:
        """Compare fingerprints with all contents that the run may have read."""
        assert write.after
        new = Baseline.of(write.after)
        for use in uses(write.after["spec"]["template"]["spec"]):
            states = possible(history, use.key(write.key.namespace), start, write.revision)
            contents = {use.content(each) for each in states if use.is_satisfied(each)}
            if not contents:
                yield f"new pods do not start: {use.text} was missing all the time"
            elif new and use.text in new.sources:
                scope = _scope(write.key.namespace, use, new)
                if not self.fingerprints.learn(scope, new.sources[use.text], contents):
                    yield f"the content of {use.text} does not correspond to its fingerprint {new.sources[use.text]}"

    def _roll(self, pod: str, before: Object, after: Object) -> Iterator[str]:
        self._rolls[pod] += 1
        if self._rolls[pod] == self.settings.max_rolls + 1:
            yield f"more than {self.settings.max_rolls} rolls in one run"
        if why := deferral(before):
            yield f"{why} prevents a rolling restart"
        if before.get("status", {}).get("observedGeneration") != before["metadata"]["generation"]:
            yield "its controller had not observed the last change"
        old, new = Baseline.of(before), Baseline.of(after)
        if old and new and old.rolled_at and is_rolled_out(before):
            passed = new.rolled_at - old.rolled_at
            if 0 <= passed < self.settings.cool_down - 1:
                yield f"{passed:g} s after the last roll, and --cool-down is {self.settings.cool_down:g}"


def _scope(namespace: str, use: Use, baseline: Baseline) -> tuple[str, str, str]:
    return namespace, use.text, baseline.key if use.kind == "Secret" else ""


def _without_ours(workload: Object) -> Object:
    """Return a workload without the two annotations of kube-chores, its status, and what the server sets."""
    found = copy.deepcopy({name: value for name, value in workload.items() if name != "status"})
    for name in _STATUS_FIELDS:
        found["metadata"].pop(name, None)
    template = found["spec"]["template"].get("metadata") or {}
    for metadata, name in ((found["metadata"], BASELINE), (found["metadata"], GENERATION), (template, ROLL_ID)):
        of = metadata.get("annotations") or {}
        of.pop(name, None)
        if not of:
            metadata.pop("annotations", None)
    if "creationTimestamp" in template and template["creationTimestamp"] is None:
        del template["creationTimestamp"]
    found["spec"]["template"]["metadata"] = template
    return found


@dataclass
class Rolled:
    """Check that workloads are rolled in time after their config changed."""

    settings: Settings
    fingerprints: Fingerprints
    prefix: str
    _reported: set[tuple[Key, float]] = field(default_factory=set)

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each workload that several complete runs did not bring into its desired state."""
        for kind in KINDS:
            for version in observed.history.now(kind):
                if version.object and version.key.namespace.startswith(self.prefix):
                    yield from self._workload(observed, version.key, version.object)

    def _workload(self, observed: Observed, key: Key, workload: Object) -> Iterator[str]:
        history = observed.history
        space = Key("Namespace", "", key.namespace)
        if is_terminating(workload) or is_terminating(latest(history, space)):
            return
        if not opted_in(workload, latest(history, space)) or deferral(workload):
            return
        used = uses(workload["spec"]["template"]["spec"])
        sources = [each.key(key.namespace) for each in used]
        if not all(each.is_satisfied(latest(history, source)) for each, source in zip(used, sources, strict=True)):
            return
        problem = self._problem(history, key, workload, used)
        since = max(changed_at(history, each) for each in (key, space, *sources))
        if problem and (key, since) not in self._reported and self._is_late(observed, workload, since):
            self._reported.add((key, since))
            yield f"{shown(key)} is unchanged since {_clock(since)}, and {problem}"

    def _problem(self, history: History, key: Key, workload: Object, used: Sequence[Use]) -> str:
        baseline = Baseline.of(workload)
        if not baseline:
            return "has no baseline"
        if baseline.sources.keys() != {each.text for each in used}:
            return f"has a baseline of other sources: {sorted(baseline.sources)}"
        for use in used:
            content = use.content(latest(history, use.key(key.namespace)))
            if not self.fingerprints.may_be(_scope(key.namespace, use, baseline), baseline.sources[use.text], content):
                return f"was not rolled after {use.text} changed"
        return ""

    def _is_late(self, observed: Observed, workload: Object, since: float) -> bool:
        """Whether runs since the last change should have rolled it; a rollout that is stuck extends --cool-down."""
        if is_rolled_out(workload):
            return has_settled(observed, JOB, since + self.settings.settle + self.settings.cool_down)
        baseline = Baseline.of(workload)
        early = baseline.early if baseline else 0
        if is_available(workload) and not observed.settled:
            return False  # a rollout in progress defers the roll
        wait = self.settings.cool_down * 2 ** min(early, MOST_DOUBLINGS)
        rolled_at = baseline.rolled_at if baseline else 0.0
        return has_settled(
            replace(observed, settled=observed.settled and not early),
            JOB,
            max(since + self.settings.settle, rolled_at + wait) + self.settings.cool_down,
        )


def is_available(workload: Object) -> bool:
    """Whether a pod of the workload is available."""
    status = workload.get("status", {})
    return bool(status.get("availableReplicas") or status.get("numberAvailable"))


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))


def invariants(settings: Settings, prefix: str = "shop-") -> Sequence[Invariant]:
    """Return the invariants of rolls; `prefix` is that of the tenants' namespaces."""
    fingerprints = Fingerprints()
    return (
        each_write("rolls", JOB, KINDS, Rolls(settings, fingerprints)),
        Invariant("rolled", Rolled(settings, fingerprints, prefix)),
    )
