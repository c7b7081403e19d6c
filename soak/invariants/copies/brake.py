"""The brake limits what a run deletes, and a run that it stopped had a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from soak.history import LATE_SECONDS, History, Key, Object
from soak.invariants.copies.attached import may_be_removed, removed
from soak.invariants.copies.deleted import is_recreated
from soak.invariants.copies.mistakes import is_lifted, is_open, is_retained, may_be_mistaken
from soak.invariants.copies.repaired import is_held
from soak.invariants.copies.stamps import JOB, RULE, RULES, is_bundle, stamped_source
from soak.invariants.copies.window import Reads, Window
from soak.invariants.ours import COPIED
from soak.invariants.reads import MARGIN_SECONDS, is_known, is_managed, window_start
from soak.observed import Observed, Run, Write

BRAKE = 10


@dataclass
class Brake:
    """Count what each run deletes and removes, and look for the reason of each run that was stopped."""

    _deleted: dict[tuple[str, str, bool], list[Write]] = field(default_factory=dict)
    _stopped: list[Run] = field(default_factory=list)  # of which not all is known yet that they can have read

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each run that deleted too much, or that did not for no reason."""
        for write in observed.writes:
            if write.account == JOB and write.key.kind in COPIED:
                yield from self._count(observed, write)
        stopped = [*self._stopped, *(run for run in observed.runs if run.job.startswith(JOB) and run.exit_code == 4)]
        self._stopped = [run for run in stopped if not is_known(observed, run)]
        for run in stopped:
            if is_known(observed, run) and not _has_reason(observed, run):
                yield (
                    f"{run.pod} ended with 4, and there was no mistaken rule, no copy that would move to another "
                    f"namespace, and not {BRAKE + 1} copies to delete or ServiceAccounts to change"
                )

    def _count(self, observed: Observed, write: Write) -> Iterator[str]:
        group = write.pod, write.key.kind, write.verb == "delete"
        if write.verb == "create":  # a copy that was deleted to create it again
            group = write.pod, write.key.kind, True
            self._deleted[group] = [each for each in self._deleted.get(group, []) if each.key != write.key]
        elif _is_removal(observed, write):
            self._deleted.setdefault(group, []).append(write)
            managed = sum(1 for each in observed.history.now(write.key.kind) if is_managed(each.object, JOB))
            number = len(self._deleted[group])
            # Copies that the run deleted are not there any more.
            if number > max(BRAKE, (managed + number) / 10 + 1) and not is_lifted(observed, write.pod):
                what = f"deleted {number} copies" if write.verb == "delete" else f"removed names from {number} objects"
                yield f"{write.pod} {what} of kind {write.key.kind}"


def _is_removal(observed: Observed, write: Write) -> bool:
    """Whether the brake counts a write: no namespace that opted out, and no copy that a run can only change so.

    It counts the names of copies that stay.
    """
    reads = Reads(observed.history, window_start(observed, write), write.revision)
    if write.verb != "delete":
        windows = [reads.about(Key("Secret", write.key.namespace, name)) for name in removed(write)]
        return any(each.always(stamped_source(copy)) for each in windows for copy in each.copies if copy)
    window = reads.about(write.key)
    return all(map(is_open, window.namespaces)) and not is_recreated(window, write.before)


def _has_reason(observed: Observed, run: Run) -> bool:
    reads = Reads(observed.history, run.created - MARGIN_SECONDS, _revision_at(observed.history, run.ended))
    doubtful: Counter[str] = Counter()
    for key in (key for kind in COPIED for key in observed.history.keys(kind)):
        copies = [each for each in reads.states(key) if is_managed(each, JOB)]
        window = reads.about(key) if copies else None
        if window and any(is_held(reads, copy, each, key.kind) for copy in copies for each in window.allowed):
            return True
        doubtful[key.kind] += any(window and _may_be_orphan(reads, window, copy) for copy in copies)
    accounts = [key for key in observed.history.keys("ServiceAccount") if may_be_removed(reads, key)]
    if len(accounts) > BRAKE or any(number > BRAKE for number in doubtful.values()):
        return True
    return any(doubtful.values()) and any(may_be_mistaken(reads, key) for key in observed.history.keys(RULE))


def _may_be_orphan(reads: Reads, window: Window, copy: Object | None) -> bool:
    """Whether a run can have found no rule that requires a copy: a bundle also needs the namespaces of all sources."""
    required = window.always(stamped_source(copy))
    is_required = required and (not is_bundle(required) or not may_be_mistaken(reads, Key(RULE, RULES, required.rule)))
    return not is_required and not is_retained(reads, copy)


def _revision_at(history: History, seconds: float) -> int:
    """Return a revision that is not earlier than a time."""
    revisions = [each.revision for each in history.changes("Pod") if each.seconds <= seconds + LATE_SECONDS]
    return max(revisions, default=0)
