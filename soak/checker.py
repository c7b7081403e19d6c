"""Check all invariants of what happened since the last check."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soak.audit import Audit
from soak.lab import Lab
from soak.observed import Invariant, Observed, Run, Write
from soak.report import Report, Violation
from soak.runs import Runs

SLOW_SECONDS = 2.0


@dataclass
class Checker:
    """Check invariants, and write what happened into files of a folder. `show` is called with each new violation."""

    lab: Lab
    invariants: Sequence[Invariant]
    report: Report
    folder: Path
    show: Callable[[Violation], None]
    ended: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._audit = Audit(self.lab.node.plane.audit_log, self.lab.history)
        self._runs = Runs(self.lab.api)

    def check(self, *, settled: bool = False) -> None:
        """Check all invariants once."""
        until = self.lab.history.known_until()
        writes = self._audit.writes(until)
        runs = self._runs.new(self.lab.history)
        self.ended += runs
        self._record(writes, runs)
        observed = Observed(self.lab.history, self.lab.journal, writes, runs, self.ended, until, settled)
        for invariant in self.invariants:
            began = time.monotonic()
            self.violated(invariant.name, list(invariant.check(observed)))
            if (seconds := time.monotonic() - began) > SLOW_SECONDS:
                self.lab.journal.action("slow-check", f"{invariant.name}: {seconds:.1f} s")

    def violated(self, invariant: str, sentences: Sequence[str]) -> None:
        """Report violations."""
        for each in self.report.violated(invariant, sentences):
            self.show(each)

    def _record(self, writes: Sequence[Write], runs: Sequence[Run]) -> None:
        self.report.count(writes, runs)
        with (self.folder / "runs.jsonl").open("a") as file:
            file.writelines(json.dumps(vars(run)) + "\n" for run in runs)
        with (self.folder / "writes.jsonl").open("a") as file:
            file.writelines(json.dumps(_without_content(write)) + "\n" for write in writes)


def _without_content(write: Write) -> dict[str, object]:
    return {**vars(write), "before": write.before is not None, "after": write.after is not None}
