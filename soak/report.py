"""What a soak found: violations, and figures of what happened meanwhile."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from soak.journal import Journal
from soak.observed import Run, Write


@dataclass(frozen=True)
class Violation:
    """A violated invariant, `seconds` after the start."""

    seconds: float
    invariant: str
    sentence: str


@dataclass
class Report:
    """The figures of a soak; `minutes` is its time so far. `bug` is the deliberate bug of its image, if any.

    `without_log` are the runs, by job, in whose output no check could search for tracebacks and values of Secrets.
    """

    seed: int
    bug: str | None
    began: float = field(default_factory=time.time)
    minutes: float = 0.0
    epochs: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    without_log: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def violated(self, invariant: str, sentences: Iterable[str]) -> list[Violation]:
        """Add violations that are not known yet, and return these."""
        known = {(each.invariant, each.sentence) for each in self.violations}
        new = []
        for sentence in sentences:
            if (invariant, sentence) not in known:
                known.add((invariant, sentence))
                new.append(Violation(round(time.time() - self.began, 1), invariant, sentence))
        self.violations += new
        return new

    def count(self, writes: Iterable[Write], runs: Iterable[Run]) -> None:
        """Count what our accounts wrote, and how runs ended."""
        for write in writes:
            kind = write.key.kind.lower() + (f"/{write.subresource}" if write.subresource else "")
            self.writes[f"{write.account} {write.verb} {kind}"] += 1
        for run in runs:
            self.runs[f"{run.job} {'deleted' if run.exit_code is None else run.exit_code}"] += 1
            self.without_log[run.job] += not run.log
        self.minutes = round((time.time() - self.began) / 60, 1)

    def write(self, file: Path, journal: Journal) -> None:
        """Write all figures as JSON."""
        faults = Counter(each.kind for each in journal.faults)
        found = [asdict(each) for each in self.violations]
        counted = {"faults": faults, "actions": journal.actions, "failedActions": journal.failed_actions}
        file.write_text(json.dumps({**vars(self), "violations": found, **counted}, indent=2, sort_keys=True) + "\n")

    def text(self, journal: Journal) -> str:
        """Return the figures and the violations for a person, in lines of at most 80 columns except for sentences."""
        failed = sum(count for name, count in self.runs.items() if not name.endswith(" 0"))
        tenants = Counter(each.kind for each in journal.faults if each.kind.startswith("tenant-"))
        faults = Counter(each.kind for each in journal.faults if each.kind not in tenants)
        lines = [
            f"soak: seed {self.seed}, {self.minutes:g} minutes, {_several(self.epochs, 'epoch')}",
            f"  {_several(self.runs.total(), 'run')}, of which {failed} did not end with 0",
            f"  {_several(self.without_log.total(), 'run')} without a log: it was empty, or could not be read",
            f"  {_several(self.writes.total(), 'write')} by the jobs",
            f"  {_several(journal.actions.total(), 'action')} by tenants, and {journal.failed_actions.total()} refused",
            f"  {_several(tenants.total(), 'fault')} by tenants, providers and registries",
            f"  {_several(faults.total(), 'fault')} of the cluster" + _listed(faults),
            f"  {_several(len(self.violations), 'violation')}",
        ]
        return "\n".join([*lines, *(f"    {self.shown(each)}" for each in self.violations)])

    def line(self, journal: Journal, phase: str) -> str:
        """Return the state of the soak in one line."""
        minutes, seconds = divmod(int(time.time() - self.began), 60)
        lasting = next((each.kind for each in reversed(journal.faults) if not each.ended), "")
        numbers = f"{self.runs.total()} runs, {self.writes.total()} writes, {len(journal.faults)} faults"
        return f"{minutes:3}:{seconds:02} {phase:8} {numbers}, {_several(len(self.violations), 'violation')}  {lasting}"

    def shown(self, violation: Violation) -> str:
        """Return a violation for a person, with the seed of its soak."""
        minutes, seconds = divmod(int(violation.seconds), 60)
        return f"{minutes}:{seconds:02} {violation.invariant}: {violation.sentence} (seed {self.seed})"


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _listed(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return "".join(f"\n    {count:4} {kind}" for kind, count in ordered)
