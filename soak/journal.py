"""What a soak did to the cluster: actions of tenants and injected faults, each with its time."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Fault:
    """An injected fault, from `began` until `ended` (seconds since the epoch; 0 while it lasts)."""

    kind: str
    detail: str
    began: float
    ended: float = 0.0

    def overlaps(self, start: float, end: float) -> bool:
        """Whether the fault was active at any time from start to end."""
        return self.began <= end and (not self.ended or self.ended >= start)


@dataclass
class Journal:
    """The actions and the faults of a soak in order. `file` gets a line of JSON for each when it begins or ends."""

    file: Path
    faults: list[Fault] = field(default_factory=list)
    actions: Counter[str] = field(default_factory=Counter)
    failed_actions: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def action(self, name: str, detail: str = "", error: str = "") -> None:
        """Record an action of a tenant or an administrator; `error` if the API server refused it or did not respond."""
        with self._lock:
            (self.failed_actions if error else self.actions)[name] += 1
        self._write(action=name, detail=detail, error=error)

    @contextlib.contextmanager
    def fault(self, kind: str, detail: str = "") -> Iterator[Fault]:
        """Record a fault that lasts as long as the context."""
        fault = self.begin(kind, detail)
        try:
            yield fault
        finally:
            self.end(fault)

    def begin(self, kind: str, detail: str = "") -> Fault:
        """Record the beginning of a fault."""
        fault = Fault(kind, detail, time.time())
        with self._lock:
            self.faults.append(fault)
        self._write(fault=kind, detail=detail, state="began")
        return fault

    def end(self, fault: Fault) -> None:
        """Record the end of a fault."""
        fault.ended = time.time()
        self._write(fault=fault.kind, detail=fault.detail, state="ended")

    def faults_between(self, start: float, end: float, *kinds: str) -> list[Fault]:
        """Return the faults, of these kinds if there are any, that were active at any time from start to end."""
        with self._lock:
            return [each for each in self.faults if each.overlaps(start, end) and (not kinds or each.kind in kinds)]

    def _write(self, **entry: str) -> None:
        line = json.dumps({"time": round(time.time(), 3), **{key: value for key, value in entry.items() if value}})
        with self._lock, self.file.open("a") as file:
            file.write(line + "\n")
