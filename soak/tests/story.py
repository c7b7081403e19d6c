"""A history that a test constructs, and what an invariant is checked with."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from soak.history import History, Key, Object, Version
from soak.journal import Journal
from soak.observed import Check, Observed, Run, Write

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


class Past:
    """The versions that a test constructed, with the methods of History."""

    def __init__(self) -> None:
        self.revision = 0
        self._versions: dict[Key, list[Version]] = {}

    def add(self, seconds: float, key: Key, obj: Object | None) -> Version:
        """Add a version of an object at this time after the start; None deletes it."""
        self.revision += 1
        obj = obj and {"kind": key.kind, **obj}
        versions = self._versions.setdefault(key, [])
        last = versions[-1].object if versions else None
        versions.append(Version(key, self.revision, START + seconds, obj, None if obj else last))
        return versions[-1]

    def known_until(self) -> float:
        return START + 1_000_000

    def versions(self, key: Key) -> Sequence[Version]:
        return self._versions.get(key, [])

    def during(self, key: Key, start: float, revision: int) -> list[Version]:
        versions = self.versions(key)
        first = max([index for index, each in enumerate(versions) if each.seconds <= start], default=0)
        return [each for each in versions[first:] if each.revision <= revision]

    def keys(self, kind: str) -> list[Key]:
        return [key for key in self._versions if key.kind == kind]

    def now(self, kind: str) -> Iterator[Version]:
        latest = (self._versions[key][-1] for key in self.keys(kind))
        return (each for each in latest if each.object)

    def changes(self, kind: str, since: int = 0) -> list[Version]:
        return sorted(self.all_versions(kind), key=lambda each: each.revision)[since:]

    def all_versions(self, kind: str) -> Iterator[Version]:
        return (each for key in self.keys(kind) for each in self._versions[key])


@dataclass
class Story:
    """A history, writes of an account to it, and runs of a job; times are seconds after the start."""

    account: str
    folder: Path
    past: Past = field(default_factory=Past)
    writes: list[Write] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder / "journal")

    def run(self, began: float, exit_code: int | None = 0, seconds: float = 5.0) -> Run:
        """Add a run."""
        name = f"{self.account}-{began:g}"
        at = START + began
        run = Run(self.account, name, name, at, at, at + seconds, exit_code, "", "", 240.0, at)
        self.runs.append(run)
        return run

    def write(self, run: Run, seconds: float, key: Key, after: Object | None, **options: Any) -> Write:
        """Let a run write an object; options are fields of Write that differ from the default."""
        versions = self.past.versions(key)
        before = versions[-1].object if versions else None
        version = self.past.add(seconds, key, after)
        after = version.object
        verb = "patch" if before and after else "create" if after else "delete"
        fields = {"verb": verb, "subresource": "", "before": before, "after": after, **options}
        write = Write(
            account=self.account,
            pod=run.pod,
            key=key,
            seconds=version.seconds,
            revision=version.revision,
            **fields,
        )
        self.writes.append(write)
        return write

    def observed(self, *, settled: bool = False) -> Observed:
        """Return what an invariant is checked with."""
        history = cast(History, self.past)
        until = self.past.known_until()
        return Observed(history, self.journal, self.writes, self.runs, self.runs, until, settled)

    def violations(self, checks: Iterable[Check], *, settled: bool = False) -> list[str]:
        """Check all that happened."""
        observed = self.observed(settled=settled)
        return [each for check in checks for each in check(observed)]
