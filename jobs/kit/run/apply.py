"""Apply the changes of a plan and report the result of each. No other module writes objects, statuses or Events."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from msgspec import structs

from jobs.kit.api.cluster import Cluster, Write
from jobs.kit.api.custom_resources import heads_of
from jobs.kit.api.responses import Response, error_of
from jobs.kit.api.transport import BYTES_IN_FLIGHT, IN_FLIGHT
from jobs.kit.run.brakes import in_turns
from jobs.kit.values import errors
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import (
    Action,
    Body,
    Change,
    DryRun,
    ExitCode,
    Finding,
    ObjectKey,
    Outcome,
    Recreation,
    Result,
    Severity,
)
from jobs.kit.values.reads import PartialObject, decode, decode_list
from jobs.kit.values.resources import Resource
from jobs.kit.values.text import cut

_TURN = 4 * IN_FLIGHT
_STATUS_ATTEMPTS = 3
_IMMUTABLE = ("field is immutable", "cannot change roleRef")  # parts of messages of the API server
_HAS_FINALIZER = "a finalizer keeps it; see its metadata.finalizers"


def apply(
    cluster: Cluster,
    findings: Iterable[Finding],
    resources: Mapping[str, Resource],
    dry_run: DryRun,
    progress: Callable[[int], None] = lambda writes: None,
) -> Iterator[Result]:
    """Apply the changes of `findings` and yield a result for each finding, in no order.

    `resources` maps each kind to where the API serves it. `progress` is called with 1 for each answered write.
    """
    findings = list(findings)
    yield from (
        Result(finding, Outcome.REPORTED, exit_code=finding.exit_code) for finding in findings if not finding.change
    )
    to_write = [finding for finding in findings if finding.change]
    if dry_run is DryRun.CLIENT:
        yield from (Result(finding, Outcome.PLANNED) for finding in to_write)
        return
    writer = _Writer(cluster, resources, dry_run is DryRun.SERVER)
    for result in writer.write(to_write):
        progress(1)
        yield result


def write_statuses(
    cluster: Cluster,
    status_updates: Iterable[StatusUpdate],
    resources: Mapping[str, Resource],
    dry_run: DryRun,
    conflicts: list[StatusUpdate] | None = None,
) -> Iterator[Result]:
    """Write statuses and the Events that go with them; yield a result for each that could not be written.

    Those that conflict with what another client wrote are added to `conflicts`.
    """
    if dry_run is not DryRun.NONE:
        return
    rest = iter(status_updates)
    # In batches: a run that is killed leaves few statuses without their Events.
    while batch := list(islice(rest, IN_FLIGHT)):
        written = [each for each in batch if each.status is None]
        with_status = [each for each in batch if each.status is not None]
        for status_update, error in _patch_statuses(cluster, with_status, resources):
            if error:
                yield from _failed_status(status_update, error)
                if error.status == 409 and conflicts is not None:
                    conflicts.append(status_update)
            else:
                written.append(status_update)
        for response in cluster.create_events((each.event, each) for each in written if each.event):
            if error := error_of(response):
                yield from _failed_status(response.request.tag[1], error, is_event=True)


def _patch_statuses(
    cluster: Cluster, status_updates: Sequence[StatusUpdate], resources: Mapping[str, Resource]
) -> Iterator[tuple[StatusUpdate, ApiError | None]]:
    """Send statuses, and yield each with its error. One that conflicts is sent again if only metadata changed."""
    for attempt in range(_STATUS_ATTEMPTS):
        refused: dict[ObjectKey, tuple[StatusUpdate, ApiError]] = {}
        patches = ((resources[each.key.kind], each.key, each.encode(), each) for each in status_updates)
        for response in cluster.patch_statuses(patches):
            _, status_update = response.request.tag
            error = error_of(response)
            if error and error.status == 409 and attempt + 1 < _STATUS_ATTEMPTS:
                refused[status_update.key] = (status_update, error)
            else:
                yield status_update, error
        requested = [(resources[key.kind], key) for key in refused]
        heads = {head.key: head for head in heads_of(cluster, requested)} if refused else {}
        status_updates = []
        for key, (status_update, error) in refused.items():
            before, now = status_update.head, heads.get(key)
            if now and now == structs.replace(before, version=now.version):
                status_updates.append(replace(status_update, head=now))
            else:
                yield status_update, error


def _failed_status(status_update: StatusUpdate, error: ApiError, *, is_event: bool = False) -> Iterator[Result]:
    """Yield the result of a status or Event that was refused.

    404 and 409 give no result. For a status, the resource was deleted or recreated, or another client wrote its spec or
    status: the next run writes its status. For an Event, an earlier attempt whose response was lost created it.
    """
    if error.status not in (404, 409) and not error.is_terminating_namespace:
        reason = "its Event cannot be created" if is_event else "its status cannot be written"
        finding = Finding("status-failed", Severity.CRITICAL, status_update.key, reason)
        yield Result(finding, Outcome.FAILED, error.message, error.exit_code, error.cause, error.refused_by, is_event)


def status_conflict(status_update: StatusUpdate) -> Result:
    """Return the result of a status that other clients wrote at each attempt."""
    finding = Finding("status-failed", Severity.CRITICAL, status_update.key, "its status cannot be written")
    return Result(finding, Outcome.FAILED, "other clients write it at the same time", ExitCode.FAILED)


class _Writer:
    def __init__(self, cluster: Cluster, resources: Mapping[str, Resource], dry_run: bool) -> None:
        self.cluster, self.resources, self.dry_run = cluster, resources, dry_run
        self.sources: dict[ObjectKey, bytes] = {}
        self.read_before: dict[ObjectKey, Response] = {}  # objects that are written next
        self.failed_webhooks: dict[str, str] = {}  # the response of the API server by namespace
        # The name of dry-run creates. Nobody can guess it: an object of that name would refuse each of them.
        self.trial_name = f"kube-chores-trial-{os.urandom(8).hex()}"

    def write(self, findings: Sequence[Finding]) -> Iterator[Result]:
        """Yield the result of each. A change with `after` comes last, if all of those were written."""
        late = [(f, f.change.after) for f in findings if f.change and f.change.after]
        written: set[ObjectKey] = set()
        for result in self._in_order([f for f in findings if f.change and not f.change.after]):
            if late and result.outcome is Outcome.DONE:
                written.add(result.finding.object)
            yield result
        yield from self._send([f for f, after in late if written.issuperset(after)])
        for finding in (f for f, after in late if not written.issuperset(after)):
            yield Result(structs.replace(finding, change=None), Outcome.REPORTED, exit_code=finding.exit_code)

    def _in_order(self, findings: Sequence[Finding]) -> Iterator[Result]:
        """Write updates and deletes, then creates, in turns since there may be any number of them.

        A delete waits for the creates of its rule in its namespace: an object that replaces another one under a new
        name is there before that one is deleted.
        """
        creates = in_turns([f for f in findings if f.action is Action.CREATE], _owner, _TURN)
        deletes = [f for f in findings if f.action is Action.DELETE]
        # The number of the last create, if any delete may have to wait.
        last = {part: number for number, f in enumerate(creates) for part in _rule_and_place(f)} if deletes else {}
        waiting: dict[int, list[Finding]] = {}  # by the number of creates to wait for, in turns
        for each in deletes:
            numbers = [last[part] // _TURN + 1 for part in _rule_and_place(each) if part in last]
            waiting.setdefault(max(numbers, default=0) * _TURN, []).append(each)
        updates = [f for f in findings if f.action not in (Action.CREATE, Action.DELETE)]
        yield from self._change(in_turns([*updates, *waiting.pop(0, [])], _owner, _TURN))
        begin = 0
        for end in sorted({*waiting, len(creates)}):
            yield from self._send(creates[begin:end])
            yield from self._send(waiting.get(end, []))
            begin = end

    def _change(self, findings: Sequence[Finding]) -> Iterator[Result]:
        """Update, delete and recreate, in this order for some at a time."""
        is_mixed = any(f.action is Action.RECREATE for f in findings)
        size = _TURN if is_mixed else max(len(findings), 1)
        for begin in range(0, len(findings), size):
            some = findings[begin : begin + size]
            yield from self._send([f for f in some if f.action is not Action.RECREATE])
            yield from self._recreate([f for f in some if f.action is Action.RECREATE])

    def _recreate(self, recreated: Sequence[Finding]) -> Iterator[Result]:
        """Delete and create again what the server accepts as a dry-run create."""
        tried = self._send(recreated, self._to_dry_run_create, dry_run=True)
        refused = [self._with_own_name(r) for r in tried if r.outcome is not Outcome.DONE]
        yield from refused
        accepted = _exclude(recreated, refused)
        if self.dry_run:
            yield from (Result(finding, Outcome.DONE) for finding in accepted)
            return
        # In batches: each object is missing for a moment only, and a run that is killed leaves few of them missing.
        rest = iter(accepted)
        while batch := list(islice(rest, IN_FLIGHT)):
            remaining = [r for r in self._send(batch, self._to_delete) if r.outcome is not Outcome.DONE]
            yield from remaining
            yield from self._send(_exclude(batch, remaining), self._to_create)

    def _with_own_name(self, result: Result) -> Result:
        """Return the result of a dry-run create with the object's name in the message, as in every other run."""
        return structs.replace(result, message=result.message.replace(self.trial_name, result.finding.object.name))

    def _send(
        self,
        findings: Sequence[Finding],
        request: Callable[[Finding], Write] | None = None,
        *,
        dry_run: bool | None = None,
    ) -> Iterator[Result]:
        rest = self._with_reads(findings) if request is None else iter(findings)
        unanswered: dict[int, Finding] = {}  # of those that were sent: a first run has 100,000 findings
        unsent: list[Result] = []

        def writes() -> Iterator[Write]:
            for finding in rest:
                try:
                    self._check_webhooks(finding, request)
                    write = (request or self._to_write)(finding)
                except ApiError as error:
                    unsent.append(_unsent_result(finding, error))
                    continue
                unanswered[id(finding)] = finding
                yield write

        for response in self.cluster.write(writes(), dry_run=self.dry_run if dry_run is None else dry_run):
            finding = unanswered.pop(id(response.request.tag.tag))
            result = _result_of(finding, response)
            if result.cause == errors.WEBHOOK_FAILED:
                self.failed_webhooks.setdefault(finding.object.namespace, result.message)
            yield result
        yield from unsent
        for finding in chain(unanswered.values(), rest):
            yield Result(finding, Outcome.STOPPED, "the run was stopped")

    def _check_webhooks(self, finding: Finding, request: Callable[[Finding], Write] | None) -> None:
        """Skip the other writes to a namespace whose webhook does not answer: each would take the webhook's timeout.

        But a deleted object is created again in any case.

        Raises:
            ApiError: a webhook did not answer for another object of the namespace.
        """
        failed = self.failed_webhooks.get(finding.object.namespace)
        if failed and request != self._to_create:
            raise ApiError(500, failed)

    def _to_write(self, finding: Finding) -> Write:
        assert finding.change
        return self._write(finding, finding.change.action, self._complete(finding, finding.change.body).encode())

    def _to_dry_run_create(self, finding: Finding) -> Write:
        """Return the create under another name, to check that the server accepts it while the old object exists."""
        trial = _recreation_of(finding).manifest.renamed(self.trial_name)
        return self._write(finding, Action.CREATE, self._complete(finding, trial).encode())

    def _to_delete(self, finding: Finding) -> Write:
        return self._write(finding, Action.DELETE, _recreation_of(finding).deletion.encode())

    def _to_create(self, finding: Finding) -> Write:
        manifest = _recreation_of(finding).manifest
        return self._write(finding, Action.CREATE, self._complete(finding, manifest).encode())

    def _complete(self, finding: Finding, body: Body) -> Body:
        """Return the body of a write with the values that were too large to keep; they are read again.

        Raises:
            ApiError: the values cannot be read, or changed since.
        """
        return body.completed({key: self._read_source(key, finding.object) for key in body.reads})

    def _with_reads(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings. Before, read the objects that are read before they are written, some at once.

        Bodies of more than what is in flight are not kept: `_read` reads these objects when they are written.
        """
        rest = iter(findings)
        while batch := list(islice(rest, IN_FLIGHT)):
            keys = [each.object for each in batch if each.change and each.object in each.change.body.reads]
            requested = [(self.resources[key.kind], key.namespace, key.name, True) for key in keys]
            self.read_before.clear()
            kept = 0
            for response in self.cluster.read(requested) if requested else ():
                resource, namespace, name, _ = response.request.tag
                self.read_before[ObjectKey(resource.kind, name, namespace)] = response
                kept += len(response.body)
                if kept > BYTES_IN_FLIGHT:
                    break
            yield from batch

    def _read_source(self, key: ObjectKey, written: ObjectKey) -> bytes:
        """Return an object; the last one stays in memory, unless it is the one that is written."""
        if key == written:
            return self._read_written(key)
        if key not in self.sources:
            self.sources.clear()  # copies of one source follow each other: one source at a time is enough
            self.sources[key] = self._read(key)
        return self.sources[key]

    def _read_written(self, key: ObjectKey) -> bytes:
        """Return the object that is written; if it was deleted, that is the conflict which its update would have."""
        try:
            return self._read(key)
        except ApiError as error:
            raise ApiError(409, error.message) if error.status == 404 else error from None

    def _read(self, key: ObjectKey) -> bytes:
        requested = (self.resources[key.kind], key.namespace, key.name, True)
        read = self.read_before.pop(key, None)
        for response in [read] if read else self.cluster.read([requested]):
            if error := error_of(response):
                raise error
            return response.body
        raise ApiError(0, f"{key} was not read: the run was stopped")

    def _write(self, finding: Finding, action: Action, body: bytes) -> Write:
        kind, name, namespace = finding.object
        return Write(action, self.resources[kind], namespace, name, body, finding)


def _rule_and_place(finding: Finding) -> Iterator[tuple[str, str, str]]:
    return ((finding.object.kind, finding.object.namespace, subject) for subject in finding.subjects)


def _owner(finding: Finding) -> tuple[str, str]:
    """Return whose write it is, for turns: a rule and source namespace, else a namespace."""
    origin = finding.change.origin if finding.change else ""
    return (finding.subjects[0], origin) if origin and finding.subjects else ("", finding.object.namespace)


def _recreation_of(finding: Finding) -> Recreation:
    assert finding.change
    assert isinstance(finding.change.body, Recreation)
    return finding.change.body


def _exclude(findings: Sequence[Finding], results: Sequence[Result]) -> list[Finding]:
    excluded = {id(result.finding) for result in results}
    return [finding for finding in findings if id(finding) not in excluded]


def _unsent_result(finding: Finding, error: ApiError) -> Result:
    """Return the result of a write whose body could not be completed, or whose namespace has a failed webhook."""
    if isinstance(error, InvalidObjectError):
        return Result(finding, Outcome.SKIPPED, f"{error.why}: the next run reads it again")
    if error.status == 409:
        return Result(finding, Outcome.CONFLICTED, error.message, ExitCode.FAILED, errors.WRITE_CONFLICT)
    return Result(finding, Outcome.FAILED, error.message, error.exit_code, error.cause, error.refused_by)


def _result_of(finding: Finding, response: Response) -> Result:
    error = error_of(response)
    if error is None:
        return _result_of_accepted(finding, response)
    if error.is_terminating_namespace:
        return Result(finding, Outcome.SKIPPED, f"namespace {finding.object.namespace} is terminating")
    if error.is_missing_namespace:
        return Result(finding, Outcome.SKIPPED, f"namespace {finding.object.namespace} does not exist")
    if response.request.method == "DELETE" and error.status == 404:
        return Result(finding, Outcome.DONE)
    if finding.action in (Action.ANNOTATE, Action.PATCH, Action.ROLL) and error.status == 404:
        return Result(finding, Outcome.SKIPPED, "does not exist")
    if finding.action is Action.DELETE and error.status == 409:
        # The reason for the delete may be obsolete: the object changed after it was read.
        return Result(finding, Outcome.SKIPPED, "changed meanwhile: the next run reads it again")
    message = cut(finding.change.body.redact(error.message) if finding.change else error.message)
    if _is_conflict(response, error):
        # If the response to an earlier attempt was lost, the conflict may be with the run's own write.
        others = error.status == 409 and (response.attempts == 1 or response.request.method == "POST")
        return Result(finding, Outcome.CONFLICTED, message, ExitCode.FAILED, errors.WRITE_CONFLICT if others else "")
    return _result_of_failure(finding, message, error)


def _result_of_accepted(finding: Finding, response: Response) -> Result:
    """Return the result of a write that the server accepted, also if it stored other values than were sent."""
    assert finding.change
    if response.request.method == "DELETE":
        if _has_finalizer(response):
            return Result(finding, Outcome.DONE, _HAS_FINALIZER, cause=errors.BLOCKED_BY_FINALIZER)
        return Result(finding, Outcome.DONE)
    try:
        changed = finding.change.body.changed_by_server(response.body)
    except InvalidObjectError as invalid:
        return Result(finding, Outcome.FAILED, f"the answer to the write: {invalid.message}", ExitCode.FAILED)
    finding = _with_action_taken(finding, finding.change, response)
    if not changed:
        return Result(finding, Outcome.DONE)
    note = f"admission changed {cut(', '.join(changed))}: the server stored other values than the run sent"
    # A roll that did not restart the pods has failed: else no later run would repeat it.
    lost = finding.action is Action.ROLL
    outcome, code = (Outcome.FAILED, ExitCode.FAILED) if lost else (Outcome.DONE, ExitCode.DONE)
    return Result(finding, outcome, note, code, errors.CHANGED_BY_ADMISSION)


def _with_action_taken(finding: Finding, change: Change, response: Response) -> Finding:
    """Return the finding of an apply with the action that the server took: it creates (201) or changes (200) an object.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/
    If the response to an earlier attempt was lost, that attempt may have created the object.
    """
    if change.action is not Action.APPLY_NEW or response.status == 201 or response.attempts > 1:
        return finding
    return structs.replace(finding, change=structs.replace(change, action=Action.APPLY))


def _has_finalizer(response: Response) -> bool:
    """Whether the deleted object remains until its finalizers are removed. Without any, the response is a Status."""
    try:
        found = decode(response.body, PartialObject).metadata
    except InvalidObjectError:
        return False
    return found.deletion_timestamp is not None and bool(decode_list(found.finalizers, str))


def _result_of_failure(finding: Finding, message: str, error: ApiError) -> Result:
    """Return the failure of a write, with its cause if the object's namespace may have caused it."""
    assert finding.change
    if error.is_too_large and finding.change.body.fits_without_others():
        full = f"{message}; labels and annotations of other clients leave no room; remove some of them"
        return Result(finding, Outcome.FAILED, full, error.exit_code, errors.TOO_LARGE_THERE)
    return Result(finding, Outcome.FAILED, message, error.exit_code, error.cause, error.refused_by)


def _is_conflict(response: Response, error: ApiError) -> bool:
    """Whether to read the object before the result is known.

    A create may have succeeded (no response, 5xx). Otherwise the object exists, changed, was deleted, or is immutable.
    """
    if response.is_unsent or error.is_failed_webhook:
        return False
    if response.request.method == "POST" and (response.status == 0 or response.status >= 500):
        return True
    deleted = response.status == 404 and response.request.method == "PUT"
    fixed = response.status == 422 and any(each in error.message for each in _IMMUTABLE)
    return response.status == 409 or deleted or fixed
