"""One run of a job, with the same phases for every job: observe, plan, apply, resolve write conflicts, report.

`run()` is the entry point. `_Run.execute()` has the phases in their order.
"""

from __future__ import annotations

import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from time import monotonic, sleep
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import structs

from jobs import __version__
from jobs.kit.api.answers import error_of
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection, connect
from jobs.kit.api.transport import RETRY_SECONDS, Transport
from jobs.kit.run import log, report
from jobs.kit.run.apply import apply, write_statuses
from jobs.kit.run.brakes import block_deletes
from jobs.kit.run.flags import RunOptions, variable
from jobs.kit.run.refusals import with_causes
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.errors import (
    WRITE_CONFLICT,
    ApiError,
    ChoresError,
    ConfigurationError,
    UnreachableError,
    UnwrittenError,
)
from jobs.kit.values.model import (
    Action,
    Brake,
    DryRun,
    ExitCode,
    Fetch,
    Finding,
    Need,
    ObjectKey,
    Outcome,
    Plan,
    Result,
    Severity,
)
from jobs.kit.values.reads import ReadResult
from jobs.kit.values.resources import NAMESPACES, Resource
from jobs.kit.values.stamps import MANAGER
from jobs.kit.values.text import Lines, listed, visible

if TYPE_CHECKING:
    from jobs.kit.values.reads import Page
    from jobs.kit.web import Fetcher

_ATTEMPTS = 3  # to resolve a write conflict: each attempt may conflict again; then the next run resolves it
_POLL_SECONDS = 3.0  # between two observations while the next step is not possible yet
_FAST_PAGES_SECONDS = 3.0  # for pages; before it waits for slower ones, the run reports what it knows without them
_PROBES_SECONDS = 120.0  # for all probes; with `wait_seconds` and the writes, less than the 600 of a CronJob's run
_UNREACHED_SECONDS = 2.0  # with a user at a terminal: how long to retry an API server that accepts no connection
_BATCH, _BATCH_BYTES = 64, 4 << 20  # objects that are read before they are reduced
UNCHANGED = "unchanged"  # the code of an object that is as desired
# If several apply, the run ends with the first of these. A run that is stopped ends with the signal's exit code.
_PRECEDENCE = (ExitCode.FAILED, ExitCode.BRAKE, ExitCode.REFUSED, ExitCode.FINDINGS)


class Observation(Protocol):
    """The state of the cluster, as a job observed it."""

    def with_documents(self: Observed, documents: Mapping[Need, ReadResult], pages: Mapping[str, Page]) -> Observed:
        """Return a copy that also contains these `documents` of the API and `pages` of the web."""
        ...


class Options(Protocol):
    """The options of a job: its own fields, and those of all jobs."""

    @property
    def run(self) -> RunOptions:
        """The options that all jobs have."""


OptionsOfJob = TypeVar("OptionsOfJob", bound=Options)
Observed = TypeVar("Observed", bound=Observation)
Settings = TypeVar("Settings")
StatusUpdates = Callable[[Observed, Settings, Plan, Sequence[Result], datetime], Sequence[StatusUpdate]]


@dataclass(frozen=True)
class Limits:
    """What limits the writes of a run.

    - `max_deletes`: the limit of the deletion brake; None: the default of the brake.
    - `brake`: whether to count the deletions of the plan. False: the plan counts what it removes, in another unit.
    - `writes_per_second`: how many writes may start in a second; None: no limit.
    """

    max_deletes: int | None = None
    brake: bool = True
    writes_per_second: float | None = None


@dataclass(frozen=True)
class Steps:
    """A run in steps: after its writes it observes and plans again, since the next writes depend on their effect.

    - `cronjob`: the CronJob in the manifests that runs the job like this.
    - `wait_seconds`: how long the run may observe again until its next step is possible.
    """

    cronjob: str
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class Job(Generic[OptionsOfJob, Settings, Observed]):
    """A job: its name, its functions, and how the runner has to run it.

    - `resources`: where the API serves each kind that findings name.
    - `observe` only reads. `plan` and `status_updates` are pure: they use no cluster, no clock and no environment.
    - `status_updates`: the statuses and Events of a run. None: the job writes none.
    - `steps`: how the run continues after its writes. None: each object is written once.
    """

    name: str
    resources: Mapping[str, Resource]
    settings: Callable[[Connection, OptionsOfJob], Settings]
    observe: Callable[[Cluster, Settings], Observed]
    plan: Callable[[Observed, Settings, datetime], Plan]
    status_updates: Callable[[Observed, Settings, Plan, Sequence[Result], datetime], Sequence[StatusUpdate]] | None = (
        None
    )
    limits: Limits = Limits()
    steps: Steps | None = None

    @property
    def cronjob(self) -> str:
        """The name of its CronJob in the manifests."""
        return self.steps.cronjob if self.steps else self.name


def run(job: Job[OptionsOfJob, Settings, Observed], job_options: OptionsOfJob) -> ExitCode:
    """Run `job` once and return the exit code. Write the report to stdout, and everything else to stderr."""
    options = job_options.run
    log.configure(options.log_format)
    with _stopped_by_signals() as stopping:
        try:
            connection = connect(
                options.kubeconfig, options.context, as_user=options.as_user, as_groups=options.as_group
            )
            namespace = options.namespace or connection.namespace
            settings = job.settings(replace(connection, namespace=namespace), job_options)
            transport = _create_transport(job.name, connection, stopping)
            cluster = Cluster(transport, MANAGER, job.limits.writes_per_second)
            if not options.filenames:  # without custom resources of the cluster, the namespace may not exist yet
                _check_namespace(cluster, connection, options)
            _log_target(job.name, connection, options)
            plan, results = _Run(job, cluster, settings, options, stopping, namespace).execute()
        except UnreachableError as error:
            log.log.error("%s", _connection_message(connection, error))
            return stopping.exit_code or error.exit_code
        except ChoresError as error:
            log.log.error(error.lines())
            return stopping.exit_code or error.exit_code
        code = stopping.exit_code or _exit_code(results, options)
        report.write(report.Report(job.name, options, plan, results, transport.traffic, code))
        for brake in plan.brakes:  # last: a long report would scroll it off the terminal
            log.log.error(_brake_message(job.name, job.cronjob, brake, connection, options))
        return code


def _create_transport(job: str, connection: Connection, stopping: Callable[[], bool]) -> Transport:
    """Return the transport to the API server. At a terminal, it gives up on an unreachable server sooner."""

    def announce(error: str) -> None:
        log.log.warning("%s: the run tries again for %g seconds", error, RETRY_SECONDS)

    if sys.stderr.isatty():
        return Transport(connection.endpoint, user_agent(job), stopping=stopping, unreached_seconds=_UNREACHED_SECONDS)
    return Transport(connection.endpoint, user_agent(job), stopping=stopping, on_unreached=announce)


def _check_namespace(cluster: Cluster, connection: Connection, options: RunOptions) -> None:
    """Check that the namespace that was given exists. A run without the right to get it continues.

    Raises:
        ConfigurationError: the namespace does not exist.
    """
    own = connection.namespace if connection.in_pod else None
    if options.namespace in (None, own):
        return
    for answer in cluster.read([(NAMESPACES, "", options.namespace, False)]):
        error = error_of(answer)
        if error and error.is_missing_namespace:
            raise ConfigurationError(f"namespace {options.namespace} does not exist; check --namespace")


def _connection_message(connection: Connection, error: UnreachableError) -> str:
    if connection.in_pod:
        return f"no connection to the cluster: {error}; check that network policies let this pod reach the API server"
    check = "check that the cluster is running, that the context is correct, and check the VPN or proxy"
    return f"no connection to the cluster of context {connection.context}: {error}; {check}"


def user_agent(job: str) -> str:
    """Return the User-Agent header of a job's requests."""
    return f"kube-chores/{__version__} ({job})"


class _Run(Generic[Settings, Observed]):
    def __init__(
        self,
        job: Job[Any, Settings, Observed],
        cluster: Cluster,
        settings: Settings,
        options: RunOptions,
        stopping: Callable[[], bool],
        namespace: str,
    ) -> None:
        self.job, self.cluster, self.settings, self.options = job, cluster, settings, options
        self.namespace = namespace  # the operator's own; other namespaces may belong to tenants
        self.stopping = stopping
        self.user_agent = user_agent(job.name)
        self.now = datetime.now(timezone.utc)
        self.pages: dict[str, Page] = {}
        self.wait_seconds = job.steps.wait_seconds if job.steps else 0.0
        self.probes_end = monotonic() + self.wait_seconds + _PROBES_SECONDS
        self.probes: set[str] = set()
        self.slow_urls: frozenset[str] = frozenset()
        self.written_statuses: set[ObjectKey] = set()  # written early, since the last observation
        self.early_statuses: set[ObjectKey] = set()  # written early, in this run
        self.has_waited = False

    def execute(self) -> tuple[Plan, Sequence[Result]]:
        """Run the phases; return the plan and the result of each of its findings, sorted by object and code."""
        plan, observed = self._observe()
        first, plan, observed = self._write_prerequisites(plan, observed)
        steps = self.job.steps and self.options.dry_run is DryRun.NONE
        if not steps:
            plan, observed = self._complete_plan(plan, observed)
        results, conflicted = self._apply_with_substitutes(plan)
        if steps:
            plan, observed, results = self._run_steps(plan, observed, [*results, *conflicted])
        elif self.job.steps:
            results += _conflicts_as_failed(conflicted)
        else:
            resolved, observed = self._resolve_conflicts(conflicted, observed)
            results += resolved
            unchanged = sum(result.finding.code == UNCHANGED for result in resolved)
            plan = replace(plan, unchanged=plan.unchanged + unchanged)
        written = sum(result.outcome is Outcome.DONE for result in results)
        results = self._with_causes(results, plan.unchanged, written) + first
        results.sort(key=lambda result: (result.finding.object, result.finding.code))
        statuses = self._with_causes(self._write_statuses(observed, plan, results), plan.unchanged, written)
        return plan, [*results, *statuses]

    def _with_causes(self, results: list[Result], unchanged: int, written: int) -> list[Result]:
        """Return the results with the cause of each failed write as its code.

        Not for a job with steps: it writes to the operator's own namespaces, where every failure fails the run.
        """
        return results if self.job.steps else with_causes(results, self.namespace, unchanged, written)

    def _observe(self) -> tuple[Plan, Observed]:
        self.written_statuses.clear()
        plan, observed = self._plan_until_complete(self.job.observe(self.cluster, self.settings))
        limits = self.job.limits
        return block_deletes(plan, limits.max_deletes) if limits.brake else plan, observed

    def _complete_plan(self, plan: Plan, observed: Observed) -> tuple[Plan, Observed]:
        """Wait for slow pages and plan again; write the statuses that do not depend on them first."""
        while plan.pending:
            self._write_statuses_early(observed, plan, [Result(finding, Outcome.REPORTED) for finding in plan.findings])
            self._wait_for_pages()
            plan, observed = self._plan_until_complete(observed)
        return plan, observed

    def _apply_with_substitutes(self, plan: Plan) -> tuple[list[Result], list[Result]]:
        """Apply the plan; for each roll that fails, apply the next of the plan's substitutes while there are any.

        Return the results, and separately those of write conflicts, as `_apply` does.
        """
        results, conflicted = self._apply(plan.findings)
        attempted, substitutes = results, list(plan.order.substitutes)
        while batch := substitutes[: sum(map(_is_failed_roll, attempted))]:
            del substitutes[: len(batch)]
            attempted, new_conflicts = self._apply(batch)
            objects = {finding.object for finding in batch}
            results = [*(result for result in results if result.finding.object not in objects), *attempted]
            conflicted += new_conflicts
        return results, conflicted

    def _write_prerequisites(self, plan: Plan, observed: Observed) -> tuple[list[Result], Plan, Observed]:
        """Write the objects that other findings depend on, read them again, and plan again.

        An object that still differs after its write is not written again. The plan treats it as unreadable.
        """
        results, conflicted = self._apply(plan.order.prerequisites)
        if not plan.order.prerequisites or self.options.dry_run is not DryRun.NONE:
            return [*results, *_conflicts_as_failed(conflicted)], plan, observed
        plan, observed = self._plan_until_complete(
            self._read_documents(observed, [Need(finding.object) for finding in plan.order.prerequisites])
        )
        unwritten = {finding.object for finding in plan.order.prerequisites}
        if unwritten:
            documents = {Need(key): ReadResult(error=UnwrittenError(key)) for key in unwritten}
            plan, observed = self._plan_until_complete(observed.with_documents(documents, {}))
        results += [_as_done(result) for result in conflicted if result.finding.object not in unwritten]
        results += _conflicts_as_failed([result for result in conflicted if result.finding.object in unwritten])
        return [_as_ineffective(r) if r.finding.object in unwritten else r for r in results], plan, observed

    def _resolve_conflicts(self, conflicted: list[Result], observed: Observed) -> tuple[list[Result], Observed]:
        """Read the objects of write conflicts and of lost answers again, and write those that still differ."""
        results: list[Result] = []
        for _ in range(_ATTEMPTS):
            if not conflicted:
                break
            keys = {result.finding.object: result for result in conflicted}
            # Metadata is enough for an object that conflicts with a create; an update needs the whole object.
            needs = [Need(key, full=not _is_create(keys[key])) for key in sorted(keys)]
            again, observed = self._plan_until_complete(self._read_documents(observed, needs))
            findings = [each for each in again.findings if each.object in keys and each.code != UNCHANGED]
            results += [_as_resolved(keys[key]) for key in keys.keys() - {finding.object for finding in findings}]
            done, conflicted = self._apply(findings)
            results += done
        return [*results, *_conflicts_as_failed(conflicted)], observed

    def _run_steps(self, plan: Plan, observed: Observed, results: list[Result]) -> tuple[Plan, Observed, list[Result]]:
        """Observe and apply again until no step is left, or until no further observation could make one possible.

        A write that failed, or that had no effect, is not repeated.
        """
        deadline, attempts = monotonic() + self.wait_seconds, _ATTEMPTS
        written: list[Result] = []
        fresh = [result for result in results if result.finding.fix]

        def so_far() -> list[Result]:
            return [
                *written,
                *_conflicts_as_failed(fresh),
                *(result for result in results if not result.finding.fix),
            ]

        while self._has_next_step(fresh, attempts) or self._wait_for_next_step(plan, observed, so_far, deadline):
            written += [result for result in fresh if result.outcome is not Outcome.CONFLICTED]
            conflicted = [result for result in fresh if result.outcome is Outcome.CONFLICTED]
            attempts -= bool(conflicted)
            try:
                plan, observed = self._observe()
                done, new_conflicts = self._apply(_not_attempted(plan.findings, written))
            except ChoresError as error:
                results = [*results, _observation_failed(self.job.name, error)]
                fresh = conflicted
                break
            found = {finding.object for finding in plan.findings}
            written += [_as_done(result) for result in conflicted if result.finding.object not in found]
            results = [*done, *new_conflicts]
            fresh = [result for result in results if result.finding.fix]
        return plan, observed, so_far()

    def _has_next_step(self, fresh: Sequence[Result], attempts: int) -> bool:
        outcomes = {result.outcome for result in fresh}
        return not self.stopping() and (Outcome.DONE in outcomes or (Outcome.CONFLICTED in outcomes and attempts > 0))

    def _wait_for_next_step(
        self, plan: Plan, observed: Observed, so_far: Callable[[], Sequence[Result]], deadline: float
    ) -> bool:
        """Write statuses and pause, if a later observation may change the plan; return whether to observe again."""
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
            log.log.info(message, self.job.name, self.wait_seconds)
        while not self.stopping() and monotonic() < moment:
            sleep(0.1)
        return not self.stopping()

    def _write_statuses(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> list[Result]:
        """Write the statuses of the custom resources. A run that was stopped writes none: some results are missing."""
        if self.job.status_updates is None or self.stopping():
            return []
        status_updates = self._status_updates(observed, plan, results)
        return sorted(
            write_statuses(self.cluster, status_updates, self.job.resources, self.options.dry_run),
            key=lambda result: result.finding.object,
        )

    def _status_updates(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> list[StatusUpdate]:
        """Return the status updates that are not written yet."""
        assert self.job.status_updates
        now = datetime.now(timezone.utc) if self.early_statuses else self.now  # Events of one moment have one name
        found = self.job.status_updates(observed, self.settings, plan, results, now)
        return [each for each in found if each.key not in self.written_statuses]

    def _write_statuses_early(self, observed: Observed, plan: Plan, results: Sequence[Result]) -> None:
        """Write statuses before a wait: for each custom resource one, and one more when it becomes ready.

        Any status in between would create an Event for each pod that starts.
        """
        if self.job.status_updates is None or self.options.dry_run is not DryRun.NONE or self.stopping():
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
        """Plan, read what the plan needs and plan again, until it needs nothing, or only slow pages.

        The plan is returned without findings that are not final until these pages arrive.
        """
        plan = self.job.plan(observed, self.settings, self.now)
        while plan.needs or not self._is_slow(plan.fetches):
            observed = self._read_documents(observed, plan.needs)
            if plan.fetches:
                pages = self._fetch_pages(plan.fetches, _FAST_PAGES_SECONDS if plan.pending else None)
                observed = observed.with_documents({}, pages)
            plan = self.job.plan(observed, self.settings, self.now)
        if not plan.fetches:
            return plan, observed
        pending = plan.pending
        final = [each for each in plan.findings if not each.subjects or not pending.issuperset(each.subjects)]
        return replace(plan, findings=final), observed

    def _is_slow(self, fetches: Sequence[Fetch]) -> bool:
        """Whether the run has to report what it knows without these pages."""
        return all(each.subject and each.url in self.slow_urls for each in fetches)

    @cached_property
    def _fetcher(self) -> Fetcher:
        from jobs.kit.web import Fetcher

        return Fetcher(self.user_agent, self.stopping, self.probes.__contains__, self.probes_end)

    def _fetch_pages(self, fetches: Sequence[Fetch], seconds: float | None) -> dict[str, Page]:
        """Return the pages that arrive within `seconds` (None: no limit)."""
        urls = list(dict.fromkeys(each.url for each in fetches))
        refetched = {each.url for each in fetches if each.again}
        self.probes.update(each.url for each in fetches if each.is_probe)
        new = [url for url in urls if url not in self.pages or url in refetched]
        if not new:
            return {url: self.pages[url] for url in urls}
        self._fetcher.start(new)
        self._fetcher.wait(new if seconds is None else set(new) - self.slow_urls, seconds)
        pages = self._fetcher.take()
        for url in sorted(self.probes & pages.keys()):
            if pages[url].error:
                log.log.info("%s: %s: %s", self.job.name, url, pages[url].error)
        self.pages |= pages
        self.slow_urls = self._fetcher.pending()
        return {url: self.pages[url] for url in urls if url in pages or url not in new}

    def _wait_for_pages(self) -> None:
        urls = listed(sorted(self.slow_urls), 1)
        log.log.info("%s: no answer yet from %s: the run reports the others first", self.job.name, urls)
        self._fetcher.wait(self.slow_urls)
        self.slow_urls = frozenset()

    def _read_documents(self, observed: Observed, needs: Collection[Need]) -> Observed:
        """Read the needed objects in batches: `with_documents` reduces each batch before the next one is in memory."""
        requested = {(self.job.resources[n.key.kind], n.key.namespace, n.key.name, n.full): n for n in needs}
        read: dict[Need, ReadResult] = {}
        for answer in self.cluster.read(list(requested)):
            read[requested.pop(answer.request.tag)] = ReadResult(answer.body, error_of(answer))
            if len(read) == _BATCH or sum(len(each.body) for each in read.values()) > _BATCH_BYTES:
                observed, read = observed.with_documents(read, {}), {}
        stopped = ReadResult(error=ApiError(0, "not read: the run was stopped"))
        return observed.with_documents({**read, **dict.fromkeys(requested.values(), stopped)}, {})

    def _apply(self, findings: Sequence[Finding]) -> tuple[list[Result], list[Result]]:
        """Write; return the results, and separately those of write conflicts, which need another read."""
        writes = sum(1 for finding in findings if finding.fix)
        with report.progress(self.job.name, writes, self.options) as progress:
            results = list(apply(self.cluster, findings, self.job.resources, self.options.dry_run, progress))
        conflicted = [result for result in results if result.outcome is Outcome.CONFLICTED]
        return [result for result in results if result.outcome is not Outcome.CONFLICTED], conflicted


def _not_attempted(findings: Sequence[Finding], written: Sequence[Result]) -> list[Finding]:
    """Return the findings that are left: without failed objects, and without the fix of a write that had no effect.

    A write that was skipped does not count: the object changed, and may be planned again.
    """
    attempted = [r for r in written if r.outcome is not Outcome.SKIPPED]
    failed = {r.finding.object for r in attempted if r.outcome is not Outcome.DONE}
    done = {(r.finding.object, r.finding.code, r.finding.fix.action) for r in attempted if r.finding.fix}
    return [
        structs.replace(each, fix=None) if each.fix and (each.object, each.code, each.fix.action) in done else each
        for each in findings
        if each.object not in failed
    ]


def _observation_failed(job: str, error: ChoresError) -> Result:
    reason = f"the cluster was not read again after the writes: {error}"
    finding = Finding("unreadable", Severity.ERROR, ObjectKey("Run", job), reason, exit_code=error.exit_code)
    return Result(finding, Outcome.REPORTED, exit_code=error.exit_code)


def _conflicts_as_failed(results: Sequence[Result]) -> list[Result]:
    """Return the results; write conflicts that are left at the end of a run have failed."""
    return [r._replace(outcome=Outcome.FAILED) if r.outcome is Outcome.CONFLICTED else r for r in results]


def _as_ineffective(result: Result) -> Result:
    """Return a write as failed, though the server accepted it: the object still differs."""
    if result.outcome is not Outcome.DONE:
        return result
    return result._replace(outcome=Outcome.FAILED, exit_code=ExitCode.FAILED)


def _is_failed_roll(result: Result) -> bool:
    fix = result.finding.fix
    return fix is not None and fix.action is Action.ROLL and result.outcome in (Outcome.FAILED, Outcome.SKIPPED)


def _is_create(result: Result) -> bool:
    return result.finding.fix is not None and result.finding.fix.action is Action.CREATE


def _as_resolved(result: Result) -> Result:
    """Return the result of a conflict whose object is now as desired; if another run wrote it, this one did not."""
    if result.cause != WRITE_CONFLICT:
        return _as_done(result)
    finding = structs.replace(result.finding, code=UNCHANGED, severity=Severity.INFO, fix=None, changes=())
    return Result(finding, Outcome.REPORTED, "another run wrote it meanwhile")


def _as_done(result: Result) -> Result:
    message = "already in its desired state: another run wrote it, or the answer to this write was lost"
    return result._replace(outcome=Outcome.DONE, message=message, exit_code=ExitCode.DONE, cause="")


def _brake_message(job: str, cronjob: str, brake: Brake, connection: Connection, options: RunOptions) -> Lines:
    """Return what a brake blocked, and the command that allows it in one run."""
    if connection.in_pod:
        name = f"{cronjob}-lift-{secrets.token_hex(3)}"
        command = (
            f"kubectl create job {name} --from=cronjob/{cronjob} -n {connection.namespace}"
            f" --dry-run=client -o yaml | kubectl set env --local -f - {variable(brake.option)}={brake.value} -o yaml"
            " | kubectl create -f -"
        )
    else:
        # The kubeconfig's current context may change before the command runs.
        context = ["--context", connection.context] if connection.context and not options.context else []
        given = [part for words in options.given if words[0] != brake.option for part in words]
        command = shlex.join(["chores", job, *given, *context, brake.option, brake.value])
    return Lines(f"{visible(brake.message)}; if the blocked change is intended, run once:\n  {visible(command)}")


def _exit_code(results: Sequence[Result], options: RunOptions) -> ExitCode:
    codes = {result.exit_code for result in results}
    if options.check and any(result.finding.severity is not Severity.INFO for result in results):
        codes.add(ExitCode.FINDINGS)
    return next((code for code in _PRECEDENCE if code in codes), ExitCode.DONE)


def _log_target(name: str, connection: Connection, options: RunOptions) -> None:
    if options.dry_run is DryRun.NONE and not connection.in_pod:
        acting = f", as user {connection.as_user}" if connection.as_user else ""
        log.log.info("%s: writing to context %s, %s%s", name, connection.context, connection.endpoint.server, acting)


class _Stop:
    """Whether a signal stopped the run, and its exit code. The transport calls it before each request."""

    exit_code: ExitCode | None = None
    _is_announced = True

    def __call__(self) -> bool:
        if not self._is_announced:
            self._is_announced = True
            if sys.stderr.isatty():
                sys.stderr.write("\n")  # ends the line on which the terminal shows ^C
            log.log.info("stopping: waiting for answers to requests in flight; press Ctrl-C again to stop at once")
        return self.exit_code is not None

    def terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self.exit_code = ExitCode.STOPPED

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if self.exit_code is ExitCode.INTERRUPTED:
            raise SystemExit(ExitCode.INTERRUPTED)
        self.exit_code = ExitCode.INTERRUPTED
        self._is_announced = False  # __call__ logs it: a signal handler may interrupt the writing of a message


@contextmanager
def _stopped_by_signals() -> Iterator[_Stop]:
    stop = _Stop()
    before = [signal.signal(signal.SIGTERM, stop.terminate), signal.signal(signal.SIGINT, stop.interrupt)]
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
