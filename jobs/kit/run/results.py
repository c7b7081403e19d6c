"""The results of writes: when their objects are read again, which fail a run, and which are reported. Pure.

A run that succeeds leaves lines of `CODE: text` in the status of its pod, as nobody reads its log. `chores status`
reads the codes. A client of the API server, such as a webhook, may have written parts of a text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence

from msgspec import structs

from jobs.kit.run.brakes import in_turns
from jobs.kit.values import errors
from jobs.kit.values.errors import WRITE_CONFLICT, ChoresError
from jobs.kit.values.model import Action, ExitCode, Finding, ObjectKey, Outcome, Result, RunOptions, Severity
from jobs.kit.values.text import listed, visible

UNCHANGED = "unchanged"  # the code of an object that is as desired
METRICS_NOT_SENT = "metrics-not-sent"
WRITES_FAILED = "writes-failed"
_MOST_NAMED = 3
# In bytes. Two lines about metrics and one about writes fit into the 2000 characters that `chores status` reads, and
# into the 4096 bytes that kubelet keeps.
_LONGEST_OBJECT, _LONGEST_REASON = 120, 280


def is_conflict(result: Result) -> bool:
    """Return whether the object must be read again: another client wrote first, or the response was lost."""
    return result.outcome is Outcome.CONFLICTED


def is_failed_roll(result: Result) -> bool:
    """Return whether the write was a roll that did not happen."""
    return result.finding.action is Action.ROLL and result.outcome in (Outcome.FAILED, Outcome.SKIPPED)


def as_failed(results: Iterable[Result]) -> list[Result]:
    """Return the results; write conflicts that are left at the end of a run have failed."""
    return [structs.replace(each, outcome=Outcome.FAILED) if is_conflict(each) else each for each in results]


def as_done(result: Result) -> Result:
    """Return the result of a conflict whose object is now as desired, as that of a write."""
    message = "already in its desired state: another run wrote it, or the answer to this write was lost"
    return structs.replace(result, outcome=Outcome.DONE, message=message, exit_code=ExitCode.DONE, cause="")


def as_resolved(result: Result) -> Result:
    """Return the result of a conflict whose object is now as desired; if another run wrote it, this one did not."""
    if result.cause != WRITE_CONFLICT:
        return as_done(result)
    finding = structs.replace(result.finding, code=UNCHANGED, severity=Severity.INFO, change=None, diff=())
    return Result(finding, Outcome.REPORTED, "another run wrote it meanwhile")


def not_attempted(findings: Sequence[Finding], written: Sequence[Result]) -> list[Finding]:
    """Return the findings that are left: without failed objects, and without the change of a write that had no effect.

    A write that was skipped does not count: the object changed, and may be planned again.
    """
    attempted = [r for r in written if r.outcome is not Outcome.SKIPPED]
    failed = {r.finding.object for r in attempted if r.outcome is not Outcome.DONE}
    done = {(r.finding.object, r.finding.code, r.finding.change.action) for r in attempted if r.finding.change}
    return [
        structs.replace(each, change=None)
        if each.change and (each.object, each.code, each.change.action) in done
        else each
        for each in findings
        if each.object not in failed
    ]


def observation_failed(job: str, error: ChoresError) -> Result:
    """Return the result of an observation that failed after writes."""
    reason = f"the cluster was not read again after the writes: {error}"
    finding = Finding("unreadable", Severity.CRITICAL, ObjectKey("Run", job), reason, exit_code=error.exit_code)
    return Result(finding, Outcome.REPORTED, exit_code=error.exit_code)


def is_counted(result: Result, options: RunOptions) -> bool:
    """Return whether `--check` counts the finding: never INFO, which needs nobody to act."""
    severity = result.finding.severity
    return severity is not Severity.INFO and severity.is_at_least(options.min_severity or Severity.WARNING)


def is_reported(result: Result, options: RunOptions) -> bool:
    """Return whether the report has the result. With any least severity it has what explains the run.

    That is what the run wrote or tried to write, and what decides its exit code.
    """
    severity = result.finding.severity
    if severity.is_at_least(options.min_severity or (Severity.INFO if options.verbose else Severity.WARNING)):
        return True
    explains = result.outcome not in (Outcome.REPORTED, Outcome.PLANNED) or result.exit_code is not ExitCode.DONE
    return explains and severity is not Severity.INFO


# The reason of a condition by the cause of its failed writes. If several apply, the first.
REASONS = (
    (errors.DENIED, "Denied"),
    (errors.WEBHOOK_FAILED, "WebhookFailed"),
    (errors.QUOTA_EXCEEDED, "QuotaExceeded"),
    (errors.TOO_LARGE_THERE, "TooLarge"),
    (errors.WRITE_CONFLICT, "WriteConflict"),
)
# The stable part of a message. The rest changes with each attempt: the use of a quota, how a webhook fails.
_STABLE_PART = {
    errors.QUOTA_EXCEEDED: re.compile(r".*?(exceeded quota|status unknown for quota): [^,]+"),
    errors.WEBHOOK_FAILED: re.compile(r'[^"]*"[^"]*"'),
}
# One text for both cases: the API server or the run itself may detect the conflict, by when the other client writes.
_CONFLICTING = "not in its desired state: another client changes it before each write of the run"
_OF_ADMISSION = frozenset({errors.DENIED, errors.WEBHOOK_FAILED, errors.CHANGED_BY_ADMISSION})


def without_wait(finding: Finding, written: Collection[ObjectKey]) -> Finding:
    """Return the finding without the objects after which it is written that this run has written already."""
    if not finding.change or not finding.change.after:
        return finding
    after = tuple(each for each in finding.change.after if each not in written)
    return structs.replace(finding, change=structs.replace(finding.change, after=after))


def with_causes(results: Sequence[Result], own: str, unchanged: int, written: int) -> list[Result]:
    """Return the results with the cause of each failed write as its code.

    Such a write fails the run in namespace `own` only; elsewhere it is a warning. But admission may also refuse what a
    job writes in every namespace, which only the operator can correct. So in a run that wrote nothing, refusals fail
    the run if one policy or webhook refused in several namespaces, or if no object is as desired. `unchanged` and
    `written` are numbers of objects.
    """
    refusals = [result for result in results if result.cause in _OF_ADMISSION and result.outcome is Outcome.FAILED]
    if written:
        refusals = []
    elif unchanged:
        several = _in_several_namespaces(refusals)
        refusals = [result for result in refusals if result.refused_by in several]
    of_operator = {id(result) for result in refusals}
    return [_with_cause(result, own, fails=id(result) in of_operator) for result in results]


def _in_several_namespaces(refusals: Sequence[Result]) -> set[str]:
    """Return the names of the policies and webhooks that refused writes in more than one namespace."""
    places = {(each.refused_by, each.finding.object.namespace) for each in refusals if each.refused_by}
    count = Counter(name for name, _ in places)
    return {name for name, namespaces in count.items() if namespaces > 1}


def _with_cause(result: Result, own: str, *, fails: bool) -> Result:
    if not result.cause or result.outcome is not Outcome.FAILED:
        return result
    if result.finding.object.namespace == own or fails:
        return structs.replace(result, finding=structs.replace(result.finding, code=result.cause))
    finding = structs.replace(result.finding, code=result.cause, severity=Severity.WARNING)
    return structs.replace(result, finding=finding, exit_code=ExitCode.DONE)


def kind_of(result: Result) -> str:
    """Return how a status counts a result: the code of its finding, or `failed` for a failed write without a cause."""
    return "failed" if result.outcome is Outcome.FAILED and not result.cause else result.finding.code


def stable_message(result: Result) -> str:
    """Return the message of a result without the parts that change with each run, for use in a status."""
    if result.cause == errors.WRITE_CONFLICT:
        return _CONFLICTING
    text = result.message or result.finding.reason
    found = _STABLE_PART[result.cause].match(text) if result.cause in _STABLE_PART else None
    return found[0] if found else text


def line_of_metrics(reason: str) -> str:
    """Return the line about metrics that were not sent."""
    return f"{METRICS_NOT_SENT}: {_cut(reason, _LONGEST_REASON)}"


def lines_of_writes(results: Sequence[Result], reported: Container[str]) -> list[str]:
    """Return the line about writes that failed without failing the run; none if there are none.

    Left out are writes for `reported`, the custom resources that exist: their statuses have the failure. And Events:
    they only repeat what a status or a finding has.
    """
    failed = [
        each
        for each in results
        if each.outcome is Outcome.FAILED and not each.is_event
        if not any(name in reported for name in each.finding.subjects)
    ]
    number = f"{len(failed)} write{'' if len(failed) == 1 else 's'}"
    named = listed(in_turns(failed, lambda each: each.finding.object.namespace), _MOST_NAMED, _failure, "; ")
    return [f"{WRITES_FAILED}: {number} failed: {named}"] if failed else []


def read_lines(message: str) -> list[tuple[str, str]]:
    """Return code and text of each line. A line without a known code is of another version, and left out."""
    lines = (line.partition(": ") for line in message.split("\n"))
    return [(code, text) for code, _, text in lines if text and code in (METRICS_NOT_SENT, WRITES_FAILED)]


def _failure(result: Result) -> str:
    return f"{_cut(str(result.finding.object), _LONGEST_OBJECT)}: {_cut(result.message, _LONGEST_REASON)}"


def _cut(text: str, longest: int) -> str:
    """Return the text escaped, so that it has one line, and cut to so many bytes."""
    whole = visible(text).encode()
    return whole[:longest].decode(errors="ignore") + "…" * (len(whole) > longest)
