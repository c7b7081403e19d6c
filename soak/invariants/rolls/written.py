"""Each write of roll-workloads."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from soak.history import History, Key, Object
from soak.invariants.reads import possible, shown, window_start
from soak.invariants.rolls.fingerprints import Fingerprints, scope_of
from soak.invariants.rolls.workloads import (
    BASELINE,
    ROLL_ID,
    Baseline,
    Settings,
    deferral,
    is_rolled_out,
    opted_in,
    roll_id,
)
from soak.invariants.uses import uses
from soak.observed import Observed, Write

GENERATION = "deprecated.daemonset.template.generation"  # the API server increments it with each roll
_STATUS_FIELDS = ("resourceVersion", "generation", "managedFields")


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
                scope = scope_of(write.key.namespace, use, new)
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
