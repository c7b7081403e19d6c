"""The order of a soak: chaos, then peace until all jobs reached their desired states, then chaos again."""

from __future__ import annotations

import http.client
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from soak.checker import Checker
from soak.cluster import resume
from soak.fresh import differences
from soak.journal import Fault
from soak.lab import Action, Lab, Part
from tests.apis import ApiError

CHAOS_SECONDS = 15 * 60.0  # of an epoch
CHECK_SECONDS = 5.0
ACTION_SECONDS = (1.0, 8.0)  # between two actions of a part
FAULT_SECONDS = (5.0, 20.0)
RESOLVE_SECONDS = 75.0  # each job runs at least once, so that its reports are known
PEACE_SECONDS = 600.0  # until all faults ended, and again until each job ran twice
RUNS = 2
FRESH_CLUSTERS = 3  # until one starts, on a loaded machine
_ERRORS = (ApiError, OSError, http.client.HTTPException, subprocess.SubprocessError, AssertionError)


@dataclass
class Soak:
    """A soak of these parts. `faults` injects faults by name, each with its weight.

    `revive` starts programs of the cluster that ended by themselves. `progress` is called with the present phase.
    `stops_at_first` ends the soak with the first violation.
    """

    lab: Lab
    parts: Sequence[Part]
    faults: Mapping[str, tuple[int, Action]]
    checker: Checker
    revive: Action
    progress: Callable[[str], None]
    stops_at_first: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._actions = [each for part in self.parts for each in part.actions().items()]
        # The daily verification of all copies is not needed to reach the desired state.
        self._judged = [job for job in self.lab.jobs if job != "sync-copies-verify"]
        self._random_action, self._random_fault = self.lab.random("actions"), self.lab.random("faults in order")

    def run(self, minutes: float) -> None:
        """Run epochs for this time. The last one may end later."""
        resume(self.lab.kubectl, self.lab.jobs)
        end = time.time() + 60 * minutes
        while not self._is_over() and (left := end - time.time()) > 60:
            self.chaos(min(CHAOS_SECONDS, left))
            if not self._is_over():
                self.settle()
                self.checker.report.epochs += 1

    def _is_over(self) -> bool:
        return self.stops_at_first and bool(self.checker.report.violations)

    def _check(self, phase: str) -> None:
        began = time.monotonic()
        self.revive()
        self.checker.check()
        self.progress(phase)
        time.sleep(max(0.5, CHECK_SECONDS - (time.monotonic() - began)))

    # chaos

    def chaos(self, seconds: float) -> None:
        """Let tenants act and inject faults, and check meanwhile."""
        self._stop.clear()
        end = time.time() + seconds
        with ThreadPoolExecutor(2) as threads:
            works = [threads.submit(self._until_stop, each) for each in (self._act, self._inject)]
            try:
                while time.time() < end and not self._is_over() and not any(each.done() for each in works):
                    self._check("chaos")
            finally:
                self._stop.set()
            while not all(each.done() for each in works):  # the last fault takes its time
                self._check("chaos")
        for each in works:
            each.result()

    def _until_stop(self, act: Callable[[], None]) -> None:
        while not self._stop.is_set():
            act()

    def _act(self) -> None:
        ((name, (_, action)),) = self._random_action.choices(self._actions, [each[1][0] for each in self._actions])
        self._try(name, action)
        self._stop.wait(self._random_action.uniform(*ACTION_SECONDS) / len(self.parts))

    def _inject(self) -> None:
        self._stop.wait(self._random_fault.uniform(*FAULT_SECONDS))
        if self.faults and not self._stop.is_set():
            ((name, (_, fault)),) = self._random_fault.choices(
                list(self.faults.items()), [weight for weight, _ in self.faults.values()]
            )
            self._try(f"fault {name}", fault)

    def _try(self, name: str, action: Action) -> None:
        try:
            action()
        except _ERRORS as error:
            self.lab.journal.action(name, error=str(error)[:500] or type(error).__name__)
        else:
            self.lab.journal.action(name)

    # peace

    def settle(self) -> None:
        """Resolve what jobs report, let each job run twice, and compare the state with that of a fresh cluster."""
        began = time.time()
        while time.time() < began + RESOLVE_SECONDS or self._open_faults():
            for part in self.parts:
                part.resolve()
            self._check("resolve")
            if time.time() > began + PEACE_SECONDS:
                self._not_settled("faults that do not end", (f"{f.kind} {f.detail}" for f in self._open_faults()))
                return
        since = time.time()
        while waiting := [job for job in self._judged if self._complete_runs(job, since) < RUNS]:
            self._check("settle")
            if time.time() > since + PEACE_SECONDS:
                self._not_settled("jobs without two complete runs", waiting)
                return
        self._check("settle")
        self._compare(time.time())

    def _not_settled(self, what: str, names: Iterable[str]) -> None:
        seconds = f"{PEACE_SECONDS:g} s after the last action"
        self.checker.violated("the state settles", [f"{seconds}, {what}: {', '.join(sorted(names))}"])

    def _open_faults(self) -> list[Fault]:
        return [each for each in self.lab.journal.faults if not each.ended]

    def _complete_runs(self, job: str, since: float) -> int:
        return len([run for run in self.checker.ended if run.job == job and run.began > since and run.exit_code == 0])

    def _compare(self, since: float) -> None:
        while self.lab.history.known_until() < since:
            self._check("settle")
            if time.time() > since + PEACE_SECONDS:
                self._not_settled("watches that do not work", self.lab.history.failing())
                return
        self.checker.check(settled=True)
        self.checker.violated("the state is that of a fresh cluster", self._differences())

    def _differences(self) -> list[str]:
        """Compare the state with that of a fresh cluster.

        Raises:
            RuntimeError: no fresh cluster worked.
        """
        failures = []
        for _ in range(FRESH_CLUSTERS):
            with tempfile.TemporaryDirectory(prefix="kube-chores-fresh-") as folder:
                try:
                    return differences(self.lab.api, self.lab.manifests, Path(folder))
                except (RuntimeError, *_ERRORS) as error:
                    failures.append(str(error))
        raise RuntimeError("no fresh cluster works:\n" + "\n".join(failures))
