"""Write the statuses and Events of a run: at its end, and before it waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic

from jobs.kit.api.cluster import Cluster
from jobs.kit.run import log
from jobs.kit.run.apply import write_statuses
from jobs.kit.run.job import Job, Observed, Settings
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.model import DryRun, ObjectKey, Plan, Result


class Statuses(Generic[Settings, Observed]):
    """Writes the statuses of one run. A run that was stopped writes none: some results are missing."""

    def __init__(
        self,
        job: Job[Any, Settings, Observed],
        cluster: Cluster,
        settings: Settings,
        dry_run: DryRun,
        stopping: Callable[[], bool],
        now: Callable[[], datetime],
    ) -> None:
        self.job, self.cluster, self.settings, self.dry_run = job, cluster, settings, dry_run
        self.stopping, self.now = stopping, now
        self.written: set[ObjectKey] = set()  # written early, since the last observation
        self.early: set[ObjectKey] = set()  # written early, in this run

    def observed_again(self) -> None:
        """Note that the observation has the statuses that were written early."""
        self.written.clear()

    def write(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> list[Result]:
        """Write the statuses that are not written yet; return the result of each that failed, sorted by object."""
        return self._write(self._updates(observed, plan, results))

    def write_early(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> None:
        """Write statuses before a wait: for each custom resource one, and one more when it becomes ready.

        Any status in between would create an Event for each pod that starts.
        """
        if self.dry_run is not DryRun.NONE:
            return
        updates = [
            each
            for each in self._updates(observed, plan, results)
            if each.key not in self.early or (each.event and each.event["type"] == "Normal")
        ]
        failed = {each.finding.object for each in self._write(updates)}
        for each in updates:
            if each.key in failed:
                continue
            self.written.add(each.key)
            self.early.add(each.key)
            if each.event:
                log.log.info("%s: %s: %s: %s", self.job.name, each.key, each.event["reason"], each.event["message"])

    def _write(self, updates: Sequence[StatusUpdate]) -> list[Result]:
        failed = write_statuses(self.cluster, updates, self.job.resources, self.dry_run)
        return sorted(failed, key=lambda result: result.finding.object)

    def _updates(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> list[StatusUpdate]:
        if self.job.status_updates is None or self.stopping():
            return []
        now = self.cluster.transport.clock.now() if self.early else self.now()  # Events of one moment have one name
        found = self.job.status_updates(observed, self.settings, plan, results, now)
        return [each for each in found if each.key not in self.written]
