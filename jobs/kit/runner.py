"""One run of a job, the same for all of them: observe -> plan -> apply -> look again where contested -> report."""

from __future__ import annotations

import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec import structs

from jobs import __version__
from jobs.kit import log, report
from jobs.kit.apply import DryRun, apply, write_statuses
from jobs.kit.brakes import block_deletes
from jobs.kit.cluster import Cluster, error_of
from jobs.kit.conditions import StatusUpdate
from jobs.kit.connect import Connection, connect
from jobs.kit.errors import (
    WRITE_CONFLICT,
    ApiError,
    ChoresError,
    ConfigurationError,
    InvalidObjectError,
    UnreachableError,
    UnwrittenError,
)
from jobs.kit.model import Action, Brake, ExitCode, Finding, Need, ObjectKey, Outcome, Plan, Result, Severity
from jobs.kit.objects import MANAGER, NAMESPACES, Resource
from jobs.kit.options import RunOptions, variable
from jobs.kit.refusals import coded
from jobs.kit.text import Lines, visible
from jobs.kit.transport import RETRY_SECONDS, Transport

if TYPE_CHECKING:
    from jobs.kit.web import Fetcher, Page

# Whoever looks after a lost race may lose the next one; after three the next run looks.
_ATTEMPTS = 3
_POLL_SECONDS = 3.0  # between looks at what is waited for
_SOON_SECONDS = 3.0  # for pages; what a run knows without those that take longer it does and reports first
_PROBES_SECONDS = 120.0  # for all probes; with `wait_seconds` and time to write less than a CronJob's 600 for a run
_UNREACHED_SECONDS = 2.0  # how long a person waits for an API server that accepts no connection
_BATCH, _BATCH_BYTES = 64, 4 << 20  # objects that are read before they are reduced
UNCHANGED = "unchanged"  # the code of what is as it should be
# If several apply, the run ends with the first of these; one that is stopped ends with the signal's.
_PRECEDENCE = (ExitCode.FAILED, ExitCode.BRAKE, ExitCode.REFUSED, ExitCode.FINDINGS)


@dataclass(frozen=True)
class ReadResult:
    """What reading a needed object gave: its JSON, or why there is none. An error with status 404 is an absence."""

    body: bytes = b""
    error: ApiError | None = None

    def reduced(self, reduce: Callable[[bytes], Reduced]) -> Reduced | ApiError:
        """Return what `reduce` keeps of the object, or why there is nothing to keep."""
        if self.error:
            return self.error
        try:
            return reduce(self.body)
        except InvalidObjectError as error:
            return error.without_traceback()


class Observation(Protocol):
    """What a job saw."""

    def with_documents(self: Observed, documents: Mapping[Need, ReadResult], pages: Mapping[str, Page]) -> Observed:
        """Return the same, knowing these `documents` and `pages` of the web too."""
        ...


Observed = TypeVar("Observed", bound=Observation)
Settings = TypeVar("Settings")
Reduced = TypeVar("Reduced")


@dataclass(frozen=True)
class Job(Generic[Settings, Observed]):
    """A job: its name, where the API serves each kind that it names in findings, and its functions.

    `observe` only reads; `plan` and `conditions` are pure: no cluster, no clock, no environment. `max_deletes` is what
    the deletion brake allows; None is its default. With `steps` what was written is followed by another look and plan,
    since what comes next hangs on what is there; `wait_seconds` is how long the run may look for what it waits for.
    Each fetches a document of the web again if `refetches` is true for its URL. A URL for which `is_probe` is true is
    not redirected, and only the log has why it failed. `cronjob` is that of the manifests, where its name is not the
    job's.
    `writes_per_second` is how many writes may be begun in a second; None is as many as the server takes.
    `needs_namespace` is whether a namespace that is given must exist: not where custom resources come from files.
    """

    name: str
    resources: Mapping[str, Resource]
    settings: Callable[[Connection], Settings]
    observe: Callable[[Cluster, Settings], Observed]
    plan: Callable[[Observed, Settings, datetime], Plan]
    conditions: Callable[[Observed, Settings, Plan, Sequence[Result], datetime], Sequence[StatusUpdate]] | None = None
    max_deletes: int | None = None
    refetches: Callable[[str], bool] = lambda url: False
    is_probe: Callable[[str], bool] = lambda url: False
    cronjob: str = ""
    steps: bool = False
    wait_seconds: float = 0.0
    writes_per_second: float | None = None
    needs_namespace: bool = True


def run(job: Job[Settings, Observed], options: RunOptions) -> ExitCode:
    """Run `job` once and return the exit code. The report goes to stdout, everything else to stderr."""
    log.configure(options.log_format)
    with _stopped_by_signals() as stopping:
        try:
            connection = connect(
                options.kubeconfig, options.context, as_user=options.as_user, as_groups=options.as_group
            )
            namespace = options.namespace or connection.namespace
            settings = job.settings(replace(connection, namespace=namespace))
            transport = _transport(job.name, connection, stopping)
            cluster = Cluster(transport, MANAGER, job.writes_per_second)
            if job.needs_namespace:
                _check_namespace(cluster, connection, options)
            _announce(job.name, connection, options)
            plan, results = _Run(job, cluster, settings, options, stopping, namespace).go()
        except UnreachableError as error:
            log.log.error("%s", _not_connected(connection, error))
            return stopping.exit_code or error.exit_code
        except ChoresError as error:
            log.log.error(error.lines())
            return stopping.exit_code or error.exit_code
        code = stopping.exit_code or _exit_code(results, options)
        report.write(report.Report(job.name, options, plan, results, transport.traffic, code))
        for brake in plan.brakes:  # last, or it would be lost above a long report
            log.log.error(_lift(job.name, job.cronjob or job.name, brake, connection, options))
        return code


def _transport(job: str, connection: Connection, stopping: Callable[[], bool]) -> Transport:
    """Return the connection to the API server; whoever waits at a terminal for one that is not there waits less."""

    def announce(error: str) -> None:
        log.log.warning("%s: the run tries again for %g seconds", error, RETRY_SECONDS)

    if sys.stderr.isatty():
        return Transport(connection.endpoint, user_agent(job), stopping=stopping, unreached_seconds=_UNREACHED_SECONDS)
    return Transport(connection.endpoint, user_agent(job), stopping=stopping, on_unreached=announce)


def _check_namespace(cluster: Cluster, connection: Connection, options: RunOptions) -> None:
    """Check that the namespace that was given exists; a run without the right to get it goes on.

    Raises:
        ConfigurationError: it does not exist.
    """
    own = connection.namespace if connection.in_pod else None
    if options.namespace in (None, own):
        return
    for answer in cluster.read([(NAMESPACES, "", options.namespace, False)]):
        error = error_of(answer)
        if error and error.is_missing_namespace:
            raise ConfigurationError(f'namespace "{options.namespace}" not found')


def _not_connected(connection: Connection, error: UnreachableError) -> str:
    if connection.in_pod:
        return f"no connection to the cluster: {error}; check that network policies let this pod reach the API server"
    check = "check that it runs, that the context is the right one, and the VPN or proxy"
    return f"no connection to the cluster of context {connection.context}: {error}; {check}"


def user_agent(job: str) -> str:
    """Return what requests of a job call themselves."""
    return f"kube-chores/{__version__} ({job})"


class _Run(Generic[Settings, Observed]):
    def __init__(
        self,
        job: Job[Settings, Observed],
        cluster: Cluster,
        settings: Settings,
        options: RunOptions,
        stopping: Callable[[], bool],
        namespace: str,
    ) -> None:
        self.job, self.cluster, self.settings, self.options = job, cluster, settings, options
        self.namespace = namespace  # whoever runs the job is in charge of it
        self.stopping = stopping
        self.user_agent = user_agent(job.name)
        self.now = datetime.now(timezone.utc)
        self.pages: dict[str, Page] = {}
        self.probes_end = monotonic() + job.wait_seconds + _PROBES_SECONDS
        self.late: frozenset[str] = frozenset()
        self.written_statuses: set[ObjectKey] = set()  # early, since the custom resources were read
        self.early_statuses: set[ObjectKey] = set()  # early, in this run
        self.has_waited = False

    def go(self) -> tuple[Plan, Sequence[Result]]:
        """Return the plan and what became of each of its findings, in the plan's order."""
        plan, observed = self._observe()
        first, plan, observed = self._write_prerequisites(plan, observed)
        steps = self.job.steps and self.options.dry_run is DryRun.NONE
        if not steps:
            plan, observed = self._complete(plan, observed)
        results, contested = self._apply_with_substitutes(plan)
        if steps:
            plan, observed, results = self._run_steps(plan, observed, [*results, *contested])
        elif self.job.steps:
            results += _failed(contested)
        else:
            settled, observed = self._resolve_conflicts(contested, observed)
            results += settled
            found = sum(result.finding.code == UNCHANGED for result in settled)
            plan = replace(plan, unchanged=plan.unchanged + found)
        written = sum(result.outcome is Outcome.DONE for result in results)
        results = self._coded(results, plan.unchanged, written) + first
        results.sort(key=lambda result: (result.finding.object, result.finding.code))
        return plan, [*results, *self._coded(self._write_statuses(observed, plan, results), plan.unchanged, written)]

    def _coded(self, results: list[Result], unchanged: int, written: int) -> list[Result]:
        """Return the results of writes to namespaces of others; what takes steps is the operator's own."""
        return results if self.job.steps else coded(results, self.namespace, unchanged, written)

    def _observe(self) -> tuple[Plan, Observed]:
        self.written_statuses.clear()
        plan, observed = self._plan_until_complete(self.job.observe(self.cluster, self.settings))
        return block_deletes(plan, self.job.max_deletes), observed

    def _complete(self, plan: Plan, observed: Observed) -> tuple[Plan, Observed]:
        """Return the plan with what pages say that take long; what is known without them is reported first."""
        while plan.pending:
            self._write_statuses_early(observed, plan, [Result(finding, Outcome.REPORTED) for finding in plan.findings])
            self._wait_for_pages()
            plan, observed = self._plan_until_complete(observed)
        return plan, observed

    def _apply_with_substitutes(self, plan: Plan) -> tuple[list[Result], list[Result]]:
        """Return what `_apply` does, after a spare was tried in place of each roll that failed, while there are any."""
        results, contested = self._apply(plan.findings)
        tried, substitutes = results, list(plan.substitutes)
        while batch := substitutes[: sum(map(_is_lost_roll, tried))]:
            del substitutes[: len(batch)]
            tried, disputed = self._apply(batch)
            objects = {finding.object for finding in batch}
            results = [*(result for result in results if result.finding.object not in objects), *tried]
            contested += disputed
        return results, contested

    def _write_prerequisites(self, plan: Plan, observed: Observed) -> tuple[list[Result], Plan, Observed]:
        """Write what the other findings depend on, read it again, and plan again.

        What is still to be written then is not tried again, and counts as unreadable.
        """
        results, contested = self._apply(plan.prerequisites)
        if not plan.prerequisites or self.options.dry_run is not DryRun.NONE:
            return [*results, *_failed(contested)], plan, observed
        plan, observed = self._plan_until_complete(
            self._read_documents(observed, [Need(finding.object) for finding in plan.prerequisites])
        )
        unwritten = {finding.object for finding in plan.prerequisites}
        if unwritten:
            documents = {Need(key): ReadResult(error=UnwrittenError(key)) for key in unwritten}
            plan, observed = self._plan_until_complete(observed.with_documents(documents, {}))
        results += [_found_done(result) for result in contested if result.finding.object not in unwritten]
        results += _failed([result for result in contested if result.finding.object in unwritten])
        return [_lost(r) if r.finding.object in unwritten else r for r in results], plan, observed

    def _resolve_conflicts(self, contested: list[Result], observed: Observed) -> tuple[list[Result], Observed]:
        """Read what somebody else wrote first, or whose answer was lost, and write what is still to be written."""
        results: list[Result] = []
        for _ in range(_ATTEMPTS):
            if not contested:
                break
            keys = {result.finding.object: result for result in contested}
            # Of what is in the way of a create its metadata is enough; what could not be changed is read in full.
            needs = [Need(key, full=not _is_create(keys[key])) for key in sorted(keys)]
            again, observed = self._plan_until_complete(self._read_documents(observed, needs))
            findings = [each for each in again.findings if each.object in keys and each.code != UNCHANGED]
            results += [_found(keys[key]) for key in keys.keys() - {finding.object for finding in findings}]
            done, contested = self._apply(findings)
            results += done
        return [*results, *_failed(contested)], observed

    def _run_steps(self, plan: Plan, observed: Observed, results: list[Result]) -> tuple[Plan, Observed, list[Result]]:
        """Look at everything anew and write what is next, until nothing is, or nothing that a look could bring.

        What failed is not tried again, nor what was written in vain.
        """
        deadline, looks = monotonic() + self.job.wait_seconds, _ATTEMPTS
        written: list[Result] = []
        fresh = [result for result in results if result.finding.fix]

        def so_far() -> list[Result]:
            return [*written, *_failed(fresh), *(result for result in results if not result.finding.fix)]

        while self._has_next_step(fresh, looks) or self._wait_for_next_step(plan, observed, so_far, deadline):
            written += [result for result in fresh if result.outcome is not Outcome.CONFLICTED]
            contested = [result for result in fresh if result.outcome is Outcome.CONFLICTED]
            looks -= bool(contested)
            try:
                plan, observed = self._observe()
                done, disputed = self._apply(_untried(plan.findings, written))
            except ChoresError as error:
                results = [*results, _not_observed(self.job.name, error)]
                fresh = contested
                break
            found = {finding.object for finding in plan.findings}
            written += [_found_done(result) for result in contested if result.finding.object not in found]
            results = [*done, *disputed]
            fresh = [result for result in results if result.finding.fix]
        return plan, observed, so_far()

    def _has_next_step(self, fresh: Sequence[Result], looks: int) -> bool:
        outcomes = {result.outcome for result in fresh}
        return not self.stopping() and (Outcome.DONE in outcomes or (Outcome.CONFLICTED in outcomes and looks > 0))

    def _wait_for_next_step(
        self, plan: Plan, observed: Observed, so_far: Callable[[], Sequence[Result]], deadline: float
    ) -> bool:
        """Report what is known and wait a moment, if there is anything to wait for; return whether to look again."""
        moment = monotonic() + _POLL_SECONDS
        if not plan.pending and (not plan.may_progress or moment > deadline):
            return False
        self._write_statuses_early(observed, plan, so_far())
        if plan.pending:
            self._wait_for_pages()
            return not self.stopping()
        if not self.has_waited:
            self.has_waited = True
            message = "%s: some steps are not possible yet: the run reads again for up to %g seconds"
            log.log.info(message, self.job.name, self.job.wait_seconds)
        while not self.stopping() and monotonic() < moment:
            sleep(0.1)
        return not self.stopping()

    def _write_statuses(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> list[Result]:
        """Write what the custom resources' statuses should say; a run that was stopped knows too little for that."""
        if self.job.conditions is None or self.stopping():
            return []
        status_updates = self._status_updates(observed, plan, results)
        return sorted(
            write_statuses(self.cluster, status_updates, self.job.resources, self.options.dry_run),
            key=lambda result: result.finding.object,
        )

    def _status_updates(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> list[StatusUpdate]:
        """Return what is still to be written."""
        assert self.job.conditions
        now = datetime.now(timezone.utc) if self.early_statuses else self.now  # Events of one moment have one name
        found = self.job.conditions(observed, self.settings, plan, results, now)
        return [each for each in found if each.key not in self.written_statuses]

    def _write_statuses_early(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> None:
        """Write what is known before a wait: of each custom resource one status, and one when it is ready.

        All in between would be an Event for each pod that starts.
        """
        if self.job.conditions is None or self.options.dry_run is not DryRun.NONE or self.stopping():
            return
        status_updates = [
            each
            for each in self._status_updates(observed, plan, results)
            if each.key not in self.early_statuses or (each.event and each.event["type"] == "Normal")
        ]
        failed = {
            each.finding.object
            for each in write_statuses(self.cluster, status_updates, self.job.resources, DryRun.NONE)
        }
        for each in status_updates:
            if each.key in failed:
                continue
            self.written_statuses.add(each.key)
            self.early_statuses.add(each.key)
            if each.event:
                log.log.info("%s: %s: %s: %s", self.job.name, each.key, each.event["reason"], each.event["message"])

    def _plan_until_complete(self, observed: Observed) -> tuple[Plan, Observed]:
        """Plan, read what the plan needs, plan again, until it needs nothing, or nothing but pages that take long.

        What is not final without these is not part of the plan.
        """
        plan = self.job.plan(observed, self.settings, self.now)
        while plan.needs or (plan.urls and not (plan.pending and self.late.issuperset(plan.urls))):
            observed = self._read_documents(observed, plan.needs)
            if plan.urls:
                observed = observed.with_documents(
                    {}, self._fetched(plan.urls, _SOON_SECONDS if plan.pending else None)
                )
            plan = self.job.plan(observed, self.settings, self.now)
        if not plan.urls:
            return replace(plan, pending=frozenset()), observed
        final = [each for each in plan.findings if not each.subjects or not plan.pending.issuperset(each.subjects)]
        return replace(plan, findings=tuple(final)), observed

    @cached_property
    def _fetcher(self) -> Fetcher:
        from jobs.kit.web import Fetcher

        return Fetcher(self.user_agent, self.stopping, self.job.is_probe, self.probes_end)

    def _fetched(self, urls: Sequence[str], seconds: float | None) -> dict[str, Page]:
        """Return documents of the web that come within `seconds`; most are fetched once in a run."""
        new = [url for url in urls if url not in self.pages or self.job.refetches(url)]
        if not new:
            return {url: self.pages[url] for url in urls}
        self._fetcher.begin(new)
        self._fetcher.wait(new if seconds is None else set(new) - self.late, seconds)
        pages = self._fetcher.take()
        for url in sorted(filter(self.job.is_probe, pages)):
            if pages[url].error:
                log.log.info("%s: %s: %s", self.job.name, url, pages[url].error)
        self.pages |= pages
        self.late = self._fetcher.pending()
        return {url: self.pages[url] for url in urls if url in pages or url not in new}

    def _wait_for_pages(self) -> None:
        first, *others = sorted(self.late)
        more = f" and {len(others)} more" if others else ""
        log.log.info("%s: no answer yet from %s%s: the run reports the others first", self.job.name, first, more)
        self._fetcher.wait(self.late)
        self.late = frozenset()

    def _read_documents(self, observed: Observed, needs: Sequence[Need]) -> Observed:
        """Read what is needed, some at a time: a job keeps less of an object than came over the wire."""
        requested = {(self.job.resources[n.key.kind], n.key.namespace, n.key.name, n.full): n for n in needs}
        read: dict[Need, ReadResult] = {}
        for answer in self.cluster.read(list(requested)):
            read[requested.pop(answer.request.tag)] = ReadResult(answer.body, error_of(answer))
            if len(read) == _BATCH or sum(len(each.body) for each in read.values()) > _BATCH_BYTES:
                observed, read = observed.with_documents(read, {}), {}
        stopped = ReadResult(error=ApiError(0, "not read: the run was stopped"))
        return observed.with_documents({**read, **dict.fromkeys(requested.values(), stopped)}, {})

    def _apply(self, findings: Sequence[Finding]) -> tuple[list[Result], list[Result]]:
        """Return the results, and apart those that nobody can be sure of before looking."""
        writes = sum(1 for finding in findings if finding.fix)
        with report.progress(self.job.name, writes, self.options) as progress:
            results = list(apply(self.cluster, findings, self.job.resources, self.options.dry_run, progress))
        contested = [result for result in results if result.outcome is Outcome.CONFLICTED]
        return [result for result in results if result.outcome is not Outcome.CONFLICTED], contested


def _untried(findings: Sequence[Finding], written: Sequence[Result]) -> list[Finding]:
    """Return the findings without what failed before; what was written in vain is told, and not written again.

    What was skipped was not: it changed meanwhile, and may be planned anew.
    """
    tried = [r for r in written if r.outcome is not Outcome.SKIPPED]
    failed = {r.finding.object for r in tried if r.outcome is not Outcome.DONE}
    done = {(r.finding.object, r.finding.code, r.finding.fix.action) for r in tried if r.finding.fix}
    return [
        structs.replace(each, fix=None) if each.fix and (each.object, each.code, each.fix.action) in done else each
        for each in findings
        if each.object not in failed
    ]


def _not_observed(job: str, error: ChoresError) -> Result:
    """Return what to say of a look that failed after something was written."""
    reason = f"what was written was not looked at again: {error}"
    finding = Finding("unreadable", Severity.ERROR, ObjectKey("Run", job), reason, exit_code=error.exit_code)
    return Result(finding, Outcome.REPORTED, exit_code=error.exit_code)


def _failed(results: Sequence[Result]) -> list[Result]:
    """Return the results; what is contested to the end failed."""
    return [r._replace(outcome=Outcome.FAILED) if r.outcome is Outcome.CONFLICTED else r for r in results]


def _lost(result: Result) -> Result:
    """Return the result of a write that is still to be made, though the server may have accepted it."""
    if result.outcome is not Outcome.DONE:
        return result
    return result._replace(outcome=Outcome.FAILED, exit_code=ExitCode.FAILED)


def _is_lost_roll(result: Result) -> bool:
    fix = result.finding.fix
    return fix is not None and fix.action is Action.ROLL and result.outcome in (Outcome.FAILED, Outcome.SKIPPED)


def _is_create(result: Result) -> bool:
    return result.finding.fix is not None and result.finding.fix.action is Action.CREATE


def _found(result: Result) -> Result:
    """Return what to say of a write that is not to be made: who lost the race wrote nothing."""
    if result.cause != WRITE_CONFLICT:
        return _found_done(result)
    finding = structs.replace(result.finding, code=UNCHANGED, severity=Severity.INFO, fix=None, changes=())
    return Result(finding, Outcome.REPORTED, "another run wrote it meanwhile")


def _found_done(result: Result) -> Result:
    message = "found as wanted: another run wrote it, or the answer to this write was lost"
    return result._replace(outcome=Outcome.DONE, message=message, exit_code=ExitCode.DONE, cause="")


def _lift(job: str, cronjob: str, brake: Brake, connection: Connection, options: RunOptions) -> Lines:
    """Return the message that tells what a brake held, and the command that lifts it once."""
    if connection.in_pod:
        name = f"{cronjob}-lift-{secrets.token_hex(3)}"
        command = (
            f"kubectl create job {name} --from=cronjob/{cronjob} -n {connection.namespace}"
            f" --dry-run=client -o yaml | kubectl set env --local -f - {variable(brake.option)}={brake.value} -o yaml"
            " | kubectl create -f -"
        )
    else:
        # The current context may be another one by then.
        context = ["--context", connection.context] if connection.context and not options.context else []
        given = [part for words in options.given if words[0] != brake.option for part in words]
        command = shlex.join(["chores", job, *given, *context, brake.option, brake.value])
    return Lines(f"{visible(brake.message)}. If that is meant, run once:\n  {visible(command)}")


def _exit_code(results: Sequence[Result], options: RunOptions) -> ExitCode:
    codes = {result.exit_code for result in results}
    if options.check and any(result.finding.severity is not Severity.INFO for result in results):
        codes.add(ExitCode.FINDINGS)
    return next((code for code in _PRECEDENCE if code in codes), ExitCode.DONE)


def _announce(name: str, connection: Connection, options: RunOptions) -> None:
    if options.dry_run is DryRun.NONE and not connection.in_pod:
        acting = f", as user {connection.as_user}" if connection.as_user else ""
        log.log.info("%s: writing to context %s, %s%s", name, connection.context, connection.endpoint.server, acting)


class _Stop:
    """Whether the run is to stop, which the transport asks before each request, and what the run ends with then."""

    exit_code: ExitCode | None = None
    _is_announced = True

    def __call__(self) -> bool:
        if not self._is_announced:
            self._is_announced = True
            if sys.stderr.isatty():
                sys.stderr.write("\n")  # ends the line on which the terminal shows ^C
            log.log.info("stopping: the run waits for answers to what it sent; Ctrl-C again ends it at once")
        return self.exit_code is not None

    def terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self.exit_code = ExitCode.STOPPED

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if self.exit_code is ExitCode.INTERRUPTED:
            raise SystemExit(ExitCode.INTERRUPTED)
        self.exit_code = ExitCode.INTERRUPTED
        self._is_announced = False  # not announced here: the signal may have come while a message is written


@contextmanager
def _stopped_by_signals() -> Iterator[_Stop]:
    stop = _Stop()
    before = [signal.signal(signal.SIGTERM, stop.terminate), signal.signal(signal.SIGINT, stop.interrupt)]
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
