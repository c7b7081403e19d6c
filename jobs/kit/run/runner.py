"""One run of a job, with the same phases for every job: observe, plan, apply, read again what is left, report.

`run()` is the entry point, and `evaluate()` that of commands that only read. `Run.execute()` has the phases in their
order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Generic

from msgspec.structs import replace

from jobs.kit.api.cluster import Cluster
from jobs.kit.api.responses import error_of
from jobs.kit.run import log, report
from jobs.kit.run.apply import apply, write_statuses
from jobs.kit.run.brakes import block_deletes
from jobs.kit.run.job import Job, Observed, OptionsOfJob, Settings
from jobs.kit.run.results import (
    UNCHANGED,
    as_done,
    as_failed,
    as_resolved,
    is_conflict,
    is_counted,
    is_failed_roll,
    lines_of_writes,
    not_attempted,
    observation_failed,
    with_causes,
    without_wait,
)
from jobs.kit.run.session import (
    Measured,
    Session,
    brake_message,
    check_namespace,
    clock_message,
    in_session,
    log_target,
    stopped_by_signals,
    user_agent,
)
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.errors import ApiError, ChoresError
from jobs.kit.values.model import (
    Action,
    Dependency,
    DryRun,
    ExitCode,
    Fetch,
    Finding,
    ManifestRequest,
    ObjectKey,
    Outcome,
    Plan,
    Result,
    RunOptions,
)
from jobs.kit.values.reads import Download, ReadResult

if TYPE_CHECKING:
    from jobs.kit.run.gauges import Sample

_ATTEMPTS = 3  # to resolve a write conflict: each attempt may conflict again; then the next run resolves it
_POLL_SECONDS = 3.0  # between two observations while the next step is not possible yet
_PROBES_SECONDS = 120.0  # for all probes; with `wait_seconds` and the writes, 120 less than the deadlines of CronJobs
_MANIFESTS_SECONDS = 30.0  # for the manifests of one plan: a later one needs time too
_BATCH, _BATCH_BYTES = 64, 4 << 20  # objects that are read before they are reduced
# If several apply, the run ends with the first of these. A run that is stopped ends with the signal's exit code.
_PRECEDENCE = (ExitCode.FAILED, ExitCode.BRAKE, ExitCode.REFUSED, ExitCode.FINDINGS)


def run(job: Job[OptionsOfJob, Settings, Observed], job_options: OptionsOfJob) -> ExitCode:
    """Run `job` once and return the exit code. Write the report to stdout, and everything else to stderr."""
    measured, options = Measured(), job_options.run

    def run_in_session() -> ExitCode:
        return in_session(job.name, options, lambda session: _run(job, session, job_options, measured))

    if options.push_gateway or options.metrics_file:
        with stopped_by_signals() as stopping:  # a signal after the run does not change its exit code
            code = run_in_session()
            from jobs.kit.run import metrics

            metrics.send(job.cronjob, options, measured, code, stopping)
    else:
        code = run_in_session()
    if code is ExitCode.DONE:  # after a failure, the status of the pod has the end of the log instead
        measured.report_to_pod()
    return code


def evaluate(
    job: Job[OptionsOfJob, Settings, Observed], session: Session, job_options: OptionsOfJob
) -> tuple[Plan, Observed]:
    """Return the plan that a dry run of `job` would report, and what it read. Writes nothing.

    Raises:
        ChoresError: the options are not valid, or a list failed that the job cannot work without.
    """
    evaluated = _create(job, session, job_options)
    evaluated.observe()
    return evaluated.plan, evaluated.observed


def _run(
    job: Job[OptionsOfJob, Settings, Observed], session: Session, job_options: OptionsOfJob, measured: Measured
) -> ExitCode:
    options, connection = session.options, session.connection
    measured.session = session
    created = job.execution(job, session, job_options) if job.execution else _create(job, session, job_options)
    if not job.observe_from:  # else it is a namespace of another cluster
        check_namespace(created.cluster, connection, options)
    log_target(job.name, connection, options)
    plan, results = created.execute()
    code = session.stopping.exit_code or _exit_code(results, options)
    if session.transport.clock.ahead:
        log.log.warning("%s", clock_message(session.transport.clock.ahead))
    report.write(report.Report(job.name, options, plan, results, session.transport.traffic, code))
    for brake in plan.brakes:  # last: a long report would scroll it off the terminal
        log.log.error(brake_message(job.name, job.cronjob, brake, connection, options))
    if not session.stopping():
        measured.gauges, measured.results = (lambda: created.gauges(results)), results
    if created.writes:
        measured.message += lines_of_writes(results, plan.desired.by_subject)
    return code


def _create(
    job: Job[OptionsOfJob, Settings, Observed], session: Session, job_options: OptionsOfJob
) -> Run[Settings, Observed]:
    cluster, settings = session.cluster(job.limits.writes_per_second), settings_of(job, session, job_options)
    if job.observe_from:
        job = replace(job, observe=job.observe_from(session))
    return Run(job, cluster, settings, job_options.run, session.stopping, session.namespace)


def settings_of(job: Job[OptionsOfJob, Settings, Observed], session: Session, job_options: OptionsOfJob) -> Settings:
    """Return the settings of a job in the namespace of the session."""
    return job.settings(replace(session.connection, namespace=session.namespace), job_options)


def _exit_code(results: Sequence[Result], options: RunOptions) -> ExitCode:
    codes = {result.exit_code for result in results}
    if options.check and any(is_counted(result, options) for result in results):
        codes.add(ExitCode.FINDINGS)
    return next((code for code in _PRECEDENCE if code in codes), ExitCode.DONE)


class Run(Generic[Settings, Observed]):
    """One run; `observed` is what it read last, and `plan` its plan."""

    observed: Observed
    plan: Plan

    def __init__(
        self,
        job: Job[Any, Settings, Observed],
        cluster: Cluster,
        settings: Settings,
        options: RunOptions,
        stopping: Callable[[], bool],
        namespace: str,
        *,
        is_quiet: bool = False,
    ) -> None:
        self.is_quiet = is_quiet  # without a progress bar
        self.job, self.cluster, self.settings, self.options, self.stopping = job, cluster, settings, options, stopping
        self.namespace = namespace  # the operator's own; other namespaces may belong to tenants
        self.writes = options.dry_run is DryRun.NONE
        self.attempts = _ATTEMPTS
        self.needed: set[Dependency] = set()  # objects, by plans of this run
        self.wait_seconds = job.steps.wait_seconds if job.steps else 0.0
        self.wait_end = 0.0
        self.has_waited = False
        self.downloads: dict[str, Download] = {}  # by URL
        self.probes_end = monotonic() + self.wait_seconds + _PROBES_SECONDS  # a run also probes while it waits
        self.early: set[ObjectKey] = set()  # custom resources whose statuses were written before a wait

    @cached_property
    def now(self) -> datetime:
        """The time of the run, on the clock of the API server: first needed after a response of it."""
        return self.cluster.transport.clock.now()

    def execute(self) -> tuple[Plan, Sequence[Result]]:
        """Run the phases; return the plan and the result of each of its findings, sorted by object and code."""
        self.observe()
        results = self._write_until_done()
        written = sum(result.outcome is Outcome.DONE for result in results)
        results = self._with_causes(results, written)
        # By object and code. A sort by both needs a tuple for each result: 8 MB for 100,000.
        results.sort(key=lambda result: result.finding.code)
        results.sort(key=lambda result: result.finding.object)
        failed = self._write_statuses(self._status_updates(results))
        return self.plan, [*results, *self._with_causes(failed, written)]

    def gauges(self, results: Sequence[Result]) -> Iterator[Sample]:
        """Yield the metrics of the run after `execute()`."""
        from jobs.kit.run import gauges

        yield from gauges.of_results(self.plan, results)
        if self.job.metrics:
            yield from self.job.metrics(self.observed, self.settings, self.plan, results, self.now)

    def _with_causes(self, results: list[Result], written: int) -> list[Result]:
        """Return the results with the cause of each failed write as its code.

        Not for a job with steps: it writes to the operator's own namespaces, where every failure fails the run.
        """
        return results if self.job.steps else with_causes(results, self.namespace, self.plan.unchanged, written)

    def observe(self) -> None:
        """Read the cluster, and plan; the deletion brake is applied.

        A later step reads the objects that plans of earlier steps needed before it plans: it probably needs the same.
        """
        observed = self.job.observe(self.cluster, self.settings)
        observed = self._read_documents(observed, sorted(self.needed)) if self.needed else observed
        plan, self.observed = self._plan_until_complete(observed)
        if self.job.renew and any(each.action is Action.DELETE for each in plan.findings):
            plan, self.observed = self._plan_until_complete(self.job.renew(self.cluster, self.settings))
        limits = self.job.limits
        self.plan = block_deletes(plan, limits.max_deletes) if limits.brake else plan

    def _write_until_done(self) -> list[Result]:
        """Apply the plan; then read again and apply what is left, until no further write is possible.

        In steps, a failure to read again is a result: the report has the writes before it. Write conflicts that are
        left have failed.
        """
        earlier: list[Result] = []
        latest = self._apply_with_substitutes()
        self.wait_end = monotonic() + self.wait_seconds
        while self._may_write_more(earlier, latest):
            try:
                final, left = self._read_again(earlier, latest)
                earlier, latest = final, self._apply(left)
            except ChoresError as error:
                if not self.job.steps:
                    raise
                latest.append(observation_failed(self.job.name, error))
                break
        return as_failed([*earlier, *latest])

    def _may_write_more(self, earlier: Sequence[Result], latest: Sequence[Result]) -> bool:
        """Return whether to read again: after write conflicts; in steps, also after a write or a wait.

        `earlier` are the final results before the `latest` ones.
        """
        has_conflicts = self.attempts > 0 and any(map(is_conflict, latest))
        if not self.job.steps:
            return has_conflicts
        if not self.writes:
            return False
        has_written = any(result.outcome is Outcome.DONE for result in latest)
        return (not self.stopping() and (has_written or has_conflicts)) or self._wait_for_next_step([*earlier, *latest])

    def _apply_with_substitutes(self) -> list[Result]:
        """Apply the plan; for each roll that fails, apply the next of the plan's substitutes while there are any."""
        attempted = results = self._apply(self.plan.findings)
        substitutes = list(self.plan.order.substitutes)
        while batch := substitutes[: sum(map(is_failed_roll, attempted))]:
            del substitutes[: len(batch)]
            attempted = self._apply(batch)
            objects = {finding.object for finding in batch}
            results = [*(result for result in results if result.finding.object not in objects), *attempted]
        return results

    def _read_again(
        self, earlier: Sequence[Result], latest: Sequence[Result]
    ) -> tuple[list[Result], Sequence[Finding]]:
        """Return the results that are final now, and the findings to apply next."""
        conflicted = [result for result in latest if is_conflict(result)]
        self.attempts -= bool(conflicted)
        written = [*earlier, *(result for result in latest if not is_conflict(result))]
        return (self._observe_next_step if self.job.steps else self._read_conflicts)(written, conflicted)

    def _read_conflicts(
        self, written: Sequence[Result], conflicted: Sequence[Result]
    ) -> tuple[list[Result], Sequence[Finding]]:
        """Read the objects of write conflicts and of lost responses again; those that still differ are left."""
        keys = {result.finding.object: result for result in conflicted}
        # Metadata is enough for an object that conflicts with a create; an update needs the whole object.
        dependencies = [Dependency(key, full=keys[key].finding.action is not Action.CREATE) for key in sorted(keys)]
        again, self.observed = self._plan_until_complete(self._read_documents(self.observed, dependencies))
        # An object that is in the way may also have other findings, for example as a source: these are final.
        reported = {(result.finding.object, result.finding.code) for result in written}
        found = (each for each in again.findings if each.object in keys and each.code != UNCHANGED)
        created = {result.finding.object for result in written if result.outcome is Outcome.DONE}
        left = [without_wait(each, created) for each in found if (each.object, each.code) not in reported]
        resolved = [as_resolved(keys[key]) for key in keys.keys() - {finding.object for finding in left}]
        unchanged = sum(result.finding.code == UNCHANGED for result in resolved)
        self.plan = replace(self.plan, unchanged=self.plan.unchanged + unchanged)
        return [*written, *resolved], left

    def _observe_next_step(
        self, written: Sequence[Result], conflicted: Sequence[Result]
    ) -> tuple[list[Result], Sequence[Finding]]:
        """Observe again. A write that failed, or that had no effect, is not repeated."""
        self.observe()
        written = [result for result in written if result.finding.change]  # the new plan has the other findings again
        done = [result.finding for result in written if result.outcome is Outcome.DONE]
        if self.job.steps:
            self.plan = self.job.steps.with_progress(self.plan, self.observed, done, self.now)
        found = {finding.object for finding in self.plan.findings}
        resolved = [as_done(result) for result in conflicted if result.finding.object not in found]
        return [*written, *resolved], not_attempted(self.plan.findings, written)

    def _wait_for_next_step(self, results: Sequence[Result]) -> bool:
        """Write statuses and pause, if a later observation may change the plan; return whether to observe again."""
        moment = monotonic() + _POLL_SECONDS
        if not self.plan.may_progress or moment > self.wait_end:
            return False
        self._write_statuses_before_wait(as_failed(results))
        if not self.has_waited:
            self.has_waited = True
            message = "%s: not everything is ready yet: the run reads again for up to %g seconds"
            log.log.info(message, self.job.name, self.wait_seconds)
        while not self.stopping() and monotonic() < moment:
            sleep(0.1)
        return not self.stopping()

    def _write_statuses_before_wait(self, results: Sequence[Result]) -> None:
        """Write statuses before a wait: for each custom resource one, and one more when it becomes ready.

        Any status in between would create an Event for each pod that starts.
        """
        updates = [
            each
            for each in self._status_updates(results)
            if each.key not in self.early or (each.event and each.event["type"] == "Normal")
        ]
        failed = {each.finding.object for each in self._write_statuses(updates)}
        for each in updates:
            if each.key in failed:
                continue
            self.early.add(each.key)
            if each.event:
                log.log.info("%s: %s: %s: %s", self.job.name, each.key, each.event["reason"], each.event["message"])

    def _write_statuses(self, updates: Sequence[StatusUpdate]) -> list[Result]:
        """Write the statuses; return the result of each that failed, sorted by object."""
        failed = write_statuses(self.cluster, updates, self.job.resources, self.options.dry_run)
        return sorted(failed, key=lambda result: result.finding.object)

    def _status_updates(self, results: Sequence[Result]) -> Sequence[StatusUpdate]:
        """Return the statuses to write: none if the run was stopped, because some results are missing."""
        if self.job.status_updates is None or self.stopping():
            return []
        now = self.cluster.transport.clock.now() if self.early else self.now  # Events of one moment have one name
        return self.job.status_updates(self.observed, self.settings, self.plan, results, now)

    def _plan_until_complete(self, observed: Observed) -> tuple[Plan, Observed]:
        """Plan, read what the plan needs and plan again, until it needs nothing."""
        plan = self.job.plan(observed, self.settings, self.now)
        while plan.dependencies or plan.fetches or plan.manifests:
            if self.job.steps:
                self._remember_objects(plan.dependencies)
            observed = self._read_documents(observed, plan.dependencies)
            if plan.fetches:
                observed = observed.with_documents({}, self._fetch(plan.fetches))
            if plan.manifests:
                observed = observed.with_documents({}, self._request_manifests(plan.manifests))
            plan = self.job.plan(observed, self.settings, self.now)
        return plan, observed

    def _remember_objects(self, dependencies: Collection[Dependency]) -> None:
        """Remember the objects that a later step reads before it plans.

        Not answers of Services: a Service may have lost its pods since, and the transport retries such a request for
        long. A plan needs the response again if the Service still has pods.
        """
        self.needed.update(each for each in dependencies if self.job.resources[each.key.kind].is_object)

    def _read_documents(self, observed: Observed, dependencies: Collection[Dependency]) -> Observed:
        """Read the needed objects in batches: `with_documents` reduces each batch before the next one is in memory."""
        requested = {(self.job.resources[n.key.kind], n.key.namespace, n.key.name, n.full): n for n in dependencies}
        read: dict[Dependency, ReadResult] = {}
        for response in self.cluster.read(list(requested)):
            read[requested.pop(response.request.tag)] = ReadResult(response.body, error_of(response))
            if len(read) == _BATCH or sum(len(each.body) for each in read.values()) > _BATCH_BYTES:
                observed, read = observed.with_documents(read, {}), {}
        stopped = ReadResult(error=ApiError(0, "not read: the run was stopped"))
        return observed.with_documents({**read, **dict.fromkeys(requested.values(), stopped)}, {})

    def _fetch(self, fetches: Sequence[Fetch]) -> Mapping[str, Download]:
        """Return the documents of the web by URL; those of earlier plans of the run, unless a Fetch has `again`."""
        from jobs.kit.web import fetch_all

        # In their order, each once.
        new = dict.fromkeys(each.url for each in fetches if each.again or each.url not in self.downloads)
        probes = {each.url for each in fetches if each.is_probe}
        downloads = fetch_all(new, user_agent(self.job.name), self.stopping, probes, self.probes_end)
        # Only once all are there: otherwise, the time of its result distinguishes a closed port from a silent one.
        for url in sorted(probes & downloads.keys()):
            if downloads[url].error:
                log.log.info("%s: %s: %s", self.job.name, url, downloads[url].error)
        self.downloads |= downloads
        return {each.url: self.downloads[each.url] for each in fetches}

    def _request_manifests(self, manifests: Sequence[ManifestRequest]) -> Mapping[str, Download]:
        """Return the results of the requests by their keys. Requests of later plans have the rest of the time."""
        from jobs.kit.image_manifests import request_all

        end = min(self.probes_end, monotonic() + _MANIFESTS_SECONDS)
        return request_all(manifests, user_agent(self.job.name), self.stopping, end)

    def _apply(self, findings: Sequence[Finding]) -> list[Result]:
        writes = sum(1 for finding in findings if finding.change)
        with report.progress(self.job.name, 0 if self.is_quiet else writes, self.options) as progress:
            return list(apply(self.cluster, findings, self.job.resources, self.options.dry_run, progress))
