"""Measure sync-copies on any cluster: `python -m benchmarks --context NAME`. Needs only what the jobs need."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from subprocess import CalledProcessError
from typing import TypeVar

from benchmarks.measured import run_process
from benchmarks.signals import SignalError, Signals
from benchmarks.worlds.own_cluster import RULE, SCENARIOS, Run, World, figures
from jobs.kit.api.cluster import Cluster, Write, complete
from jobs.kit.api.connect import connect
from jobs.kit.api.custom_resources import not_installed
from jobs.kit.api.responses import Response, error_of
from jobs.kit.run import log
from jobs.kit.run.session import create_transport, unreachable_message
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError, ChoresError, UnreachableError
from jobs.kit.values.model import Action
from jobs.kit.values.reads import PartialObject
from jobs.kit.values.resources import NAMESPACES, RULES

Sent = TypeVar("Sent")


def measure(context: str, namespaces: int, runs: int, signals: Signals) -> int:
    """Measure on the cluster of a context, delete everything, print a table, and return the exit code."""
    log.configure("text")
    for name in [each for each in os.environ if each.startswith(("CHORES_", "KUBE_CHORES_"))]:
        del os.environ[name]  # the settings of another job, such as where to send metrics
    try:
        connection = connect(None, context)
    except ChoresError as error:
        log.log.error(error.lines())
        return error.exit_code
    cluster = Cluster(create_transport("benchmarks", connection, lambda: False), stamps.MANAGER)
    measurement = _Measurement(cluster, World(secrets.token_hex(8), namespaces), context, signals)
    rows: list[str] = []
    is_clean = False
    try:
        rows = measurement.run(runs)
    except UnreachableError as error:
        log.log.error("%s", unreachable_message(connection, error))
    except ChoresError as error:
        log.log.error(error.lines())
    except SignalError:
        pass
    finally:
        is_clean = measurement.clean()
    if signals.number:
        return signals.exit_code
    return 0 if _print(rows) and rows and is_clean else 1


def _print(rows: Iterable[str]) -> bool:
    try:
        sys.stdout.writelines(f"{each}\n" for each in rows)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at its end
        log.log.error("the table cannot be written: %s", error.strerror)
        return False
    return True


@dataclass(frozen=True)
class _Measurement:
    cluster: Cluster
    world: World
    context: str
    signals: Signals

    def run(self, runs: int) -> list[str]:
        """Create everything, and return the table of so many runs of each scenario.

        Raises:
            ChoresError: with the reason.
            SignalError: a signal ended it.
        """
        self._check_rights()
        self._check_crd()
        kubectl = f"kubectl --context {shlex.quote(self.context)}"
        # By name: admission may have removed labels.
        command = f"{kubectl} get namespaces -o name | grep {self.world.home} | xargs {kubectl} delete"
        self.signals.left = f"error: namespaces are left; delete them: {command}\n"
        self._progress(f"creating {self.world.size} namespaces")
        for writes in (self.world.namespaces(), [self.world.rule()], self.world.sources(Action.CREATE)):
            self._write(writes)
        return self.world.table([self._run(scenario, number) for number in range(runs) for scenario in SCENARIOS])

    def clean(self) -> bool:
        """Delete the namespaces, also those whose create had no response; their content follows. Return the success."""
        if not self.signals.left:
            return True  # nothing was created
        self._progress("deleting the namespaces")
        listed = partial(self.cluster.objects, metadata_only=True)  # admission may have removed labels
        try:
            found, _ = complete(listed, NAMESPACES, PartialObject, lambda each: (each.metadata.name, each.metadata.uid))
            responses = list(self.cluster.write(self.world.deletions(found), dry_run=False))
            errors = [error for each in responses if (error := error_of(each)) and error.status not in (404, 409)]
            if errors:
                raise errors[0]
        except ChoresError as error:
            log.log.error(error.lines())
            sys.stderr.write(self.signals.left)
            return False
        self.signals.left = ""
        return True

    def _check_rights(self) -> None:
        rights = self.cluster.can_i((verb, NAMESPACES, "") for verb in ("list", "delete"))
        if missing := [verb for (verb, _, _), is_allowed in rights.items() if not is_allowed]:
            raise ChoresError(
                f"nothing was created, as it could not be deleted: grant {' and '.join(missing)} on namespaces"
            )

    def _check_crd(self) -> None:
        listed = partial(self.cluster.objects, namespace=self.world.home, metadata_only=True)
        try:
            complete(listed, RULES, PartialObject, lambda each: each.metadata.name)
        except ApiError as error:
            raise not_installed(RULES) if error.status == 404 else error from None

    def _progress(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{text}\n")

    def _write(self, writes: Iterable[Write]) -> None:
        self._send(partial(self.cluster.write, dry_run=False), writes)

    def _send(self, send: Callable[[Iterable[Sent]], Iterator[Response]], requests: Iterable[Sent]) -> None:
        """Send requests until a signal or an error, and wait for those in flight: they may create something."""
        errors: list[ApiError] = []
        for response in send(takewhile(lambda _: not (self.signals.number or errors), requests)):
            if error := error_of(response):
                errors.append(error)
        self.signals.check()
        if errors:
            raise errors[0]

    def _run(self, scenario: str, number: int) -> Run:
        """Change what the scenario requires, and run the job."""
        if scenario == "first" and number:
            self._send(self.cluster.transport.stream, self.world.deletions_of_copies())
        if scenario == "changed":
            self._write(self.world.sources(Action.REPLACE))
        options = ["-n", self.world.home, "--rule-name", RULE, "--context", self.context, "-o", "json"]
        try:
            used = run_process(
                [sys.executable, "-m", "jobs", "sync-copies", *options], {}, Path.cwd(), self.signals.started
            )
        except CalledProcessError as error:
            self.signals.check()  # it ended what starts the job
            raise ChoresError(f"run {scenario!r} of sync-copies was not measured: {error}") from None
        self.signals.check()
        self._progress(f"{scenario} {number + 1}: {used.seconds:.2f} s")
        found = figures(scenario, used, self.world.copies)
        if isinstance(found, str):
            sys.stderr.write(used.stderr)
            raise ChoresError(found)
        return found
