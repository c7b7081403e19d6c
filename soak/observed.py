"""What an invariant is checked with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from soak.history import History, Key, Object
from soak.journal import Journal


@dataclass(frozen=True)
class Write:
    """A request of one of our accounts that changed an object; dry runs and refused requests are not writes.

    `account` is the ServiceAccount, as `sync-copies`; `pod` the name of the run's pod. `seconds` is the time of the
    response. `revision` is the resourceVersion of the change. `before` and `after` are the object next to the change,
    None if it did not exist before or does not exist after it.
    """

    account: str
    pod: str
    verb: str  # create | update | patch | delete
    key: Key
    subresource: str
    seconds: float
    revision: int
    before: Object | None
    after: Object | None


@dataclass(frozen=True)
class Run:
    """A pod of a run that has ended.

    `job` is the CronJob's name, as `sync-copies`, and `job_name` that of the Job. `began` and `ended` are those of the
    container, `created` that of the pod, in seconds since the epoch with a resolution of one second. `exit_code` is
    None if the pod was deleted before the container ended or started. `reason` is that of the container's state, as
    `OOMKilled` or `Error`. `log` is its whole output. `deadline` is activeDeadlineSeconds of the Job, which was
    created at `job_created`.
    """

    job: str
    job_name: str
    pod: str
    created: float
    began: float
    ended: float
    exit_code: int | None
    reason: str
    log: str
    deadline: float
    job_created: float


@dataclass(frozen=True)
class Observed:
    """What happened. `writes` and `runs` are those since the previous check, in their order, and `ended_runs` all.

    All changes before `until` are in the history. `settled` is whether the tenants and the faults stopped, and each job
    had two complete runs since.
    """

    history: History
    journal: Journal
    writes: Sequence[Write]
    runs: Sequence[Run]
    ended_runs: Sequence[Run]
    until: float
    settled: bool

    def run_of(self, write: Write) -> Run | None:
        """Return the ended run of a write, None if it has not ended."""
        return next((run for run in reversed(self.ended_runs) if run.pod == write.pod), None)


# Yields a sentence for each violation. It is called every few seconds, from one thread, and may keep what it needs.
Check = Callable[[Observed], Iterable[str]]


@dataclass(frozen=True)
class Invariant:
    """A property of all jobs that must never be violated."""

    name: str
    check: Check
