"""Each workload is rolled in time after its config changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from soak.history import History, Key, Object
from soak.invariants.reads import changed_at, clock, has_settled, is_terminating, latest, shown
from soak.invariants.rolls.fingerprints import Fingerprints, scope_of
from soak.invariants.rolls.workloads import (
    JOB,
    KINDS,
    Baseline,
    Settings,
    deferral,
    is_available,
    is_rolled_out,
    opted_in,
)
from soak.invariants.uses import Use, uses
from soak.observed import Observed

MOST_DOUBLINGS = 6


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
            yield f"{shown(key)} is unchanged since {clock(since)}, and {problem}"

    def _problem(self, history: History, key: Key, workload: Object, used: Sequence[Use]) -> str:
        baseline = Baseline.of(workload)
        if not baseline:
            return "has no baseline"
        if baseline.sources.keys() != {each.text for each in used}:
            return f"has a baseline of other sources: {sorted(baseline.sources)}"
        for use in used:
            content = use.content(latest(history, use.key(key.namespace)))
            scope = scope_of(key.namespace, use, baseline)
            if not self.fingerprints.may_be(scope, baseline.sources[use.text], content):
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
