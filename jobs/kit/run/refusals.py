"""Which failed writes fail a run: not those that only the object's own namespace can cause. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from jobs.kit.values import errors
from jobs.kit.values.model import ExitCode, Outcome, Result, Severity

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
