"""Each pull succeeds that would succeed without mirrors, in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from soak.history import Key
from soak.invariants.pulls.excuses import ATTEMPT_SECONDS, MIRROR_FAULT, MIRROR_SECONDS, Excuses, is_of_node
from soak.invariants.pulls.read import Failure, Pull, Seen
from soak.invariants.reads import clock
from soak.observed import Observed

BASE_SECONDS = 60.0
EACH_PULL_SECONDS = 20.0
NODE_SECONDS = 30.0
BACK_OFF_SECONDS = 300.0  # the longest delay of kubelet between two attempts


class Pulls:
    """Every pull succeeds that would succeed without us.

    `fallbacks` has `spec.fallback` of the mirror by the host of its upstream, and `pods` the key of its pod.
    """

    def __init__(self, fallbacks: Mapping[str, str], pods: Mapping[str, Key] | None = None) -> None:
        self._excuses, self._seen = Excuses(fallbacks, pods or {}), Seen()
        self._undecided: list[Failure] = []  # failures whose causes may not be known yet

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield the pulls that failed or last too long."""
        failures = [*self._undecided, *self._seen.read(observed)]
        self._undecided = [each for each in failures if each.at + 1 > observed.until]  # a timestamp is in seconds
        for failure in failures:
            if failure.at + 1 <= observed.until:
                yield from self._failure(observed, failure)
        for pull in list(self._seen.pulls.values()):
            yield from self._late(observed, pull)

    def _failure(self, observed: Observed, failure: Failure) -> Iterator[str]:
        """Yield why a pull must not have failed, when all is known that happened before."""
        about = f"pod {failure.pull.name}: at {clock(failure.at)}"
        excuses = self._excuses.during(observed, failure.pull, failure.at - ATTEMPT_SECONDS, failure.at + 1)
        if not any(self._excuses.explains(observed, each, failure) for each in excuses):
            yield f"{about}, without a reason outside of mirrors: {failure.message}"
        elif self._excuses.needs_no_upstream(observed, failure.pull, failure.at):
            yield f"{about}, although the mirror had the image and worked: {failure.message}"

    def _late(self, observed: Observed, pull: Pull) -> Iterator[str]:
        if pull.reported:
            return
        end = pull.ended or observed.until
        excuses = self._excuses.during(observed, pull, pull.created - 1, end)
        if any(not each.ended for each in excuses):
            return
        possible = max([pull.created, *(each.ended for each in excuses)])
        allowed = self._allowance(observed, pull, possible, end)
        if end - possible > allowed:
            pull.reported = True
            state = "ran" if pull.ended else "has not run"
            yield (
                f"pod {pull.name}: created at {clock(pull.created)}, its pull was possible since {clock(possible)}, "
                f"and it {state} {end - possible:.0f} s after that; allowed are {allowed:.0f} s"
            )

    def _allowance(self, observed: Observed, pull: Pull, possible: float, end: float) -> float:
        """Return how long the pull may take from when it is possible."""
        others = [each for each in self._seen.pulls.values() if each.created <= end and (each.ended or end) >= possible]
        allowed = BASE_SECONDS + EACH_PULL_SECONDS * len(others)
        node = [each for each in observed.journal.faults_between(pull.created, end) if is_of_node(each)]
        allowed += sum((each.ended or end) - each.began + NODE_SECONDS for each in node)
        # kubelet pulls one image at a time: trouble of one registry delays the pulls from all.
        if any(each.kind.startswith(MIRROR_FAULT) for each in observed.journal.faults_between(possible - 60, end)):
            allowed += MIRROR_SECONDS
        elsewhere = (each for each in observed.journal.faults_between(possible, end, "tenant-upstream-hangs"))
        allowed += sum((each.ended or end) - each.began + NODE_SECONDS for each in elsewhere)
        if pull.failed:  # each delay is at most as long as all before it, and an attempt more
            allowed += min(BACK_OFF_SECONDS, 2 * (possible - pull.created) + NODE_SECONDS)
        if self._excuses.fallbacks.get(pull.host) == "None" and possible > pull.created:
            allowed += BACK_OFF_SECONDS  # kubelet also waits before it restarts a registry whose upstream was down
        return allowed
