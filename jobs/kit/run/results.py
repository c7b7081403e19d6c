"""What becomes of the results of writes when their objects are read again, and which results a run reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from jobs.kit.values.errors import WRITE_CONFLICT, ChoresError
from jobs.kit.values.model import Action, ExitCode, Finding, ObjectKey, Outcome, Result, RunOptions, Severity

UNCHANGED = "unchanged"  # the code of an object that is as desired


def is_conflict(result: Result) -> bool:
    """Return whether the object must be read again: another client wrote first, or the answer was lost."""
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
    finding = structs.replace(result.finding, code=UNCHANGED, severity=Severity.INFO, fix=None, changes=())
    return Result(finding, Outcome.REPORTED, "another run wrote it meanwhile")


def not_attempted(findings: Sequence[Finding], written: Sequence[Result]) -> list[Finding]:
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
