"""Which failed writes fail a run: not those that only the namespace of the object can cause. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from jobs.kit.errors import (
    CHANGED_BY_ADMISSION,
    DENIED,
    QUOTA_EXCEEDED,
    TOO_LARGE_THERE,
    WEBHOOK_FAILED,
    WRITE_CONFLICT,
)
from jobs.kit.model import ExitCode, Outcome, Result, Severity

# The reasons that conditions have for the causes, the first that applies first.
REASONS = (
    (DENIED, "Denied"),
    (WEBHOOK_FAILED, "WebhookFailed"),
    (QUOTA_EXCEEDED, "QuotaExceeded"),
    (TOO_LARGE_THERE, "TooLarge"),
    (WRITE_CONFLICT, "WriteConflict"),
)
# What follows changes with each try: the use of a quota, the way in which a webhook fails.
_LASTING = {
    QUOTA_EXCEEDED: re.compile(r".*?(exceeded quota|status unknown for quota): [^,]+"),
    WEBHOOK_FAILED: re.compile(r'[^"]*"[^"]*"'),
}
# Who notices depends on when the other writes: the API server, or the run itself.
_CONTESTED = "not as it should be: somebody else changes it before each write of the run"
_OF_ADMISSION = frozenset({DENIED, WEBHOOK_FAILED, CHANGED_BY_ADMISSION})


def coded(results: Sequence[Result], own: str, unchanged: int, written: int) -> list[Result]:
    """Return the results; the code of a failed write is its cause, and in other namespaces than `own` it fails no run.

    Admission may also refuse what a job writes in all namespaces, which only the operator can change. So in a run that
    wrote nothing, refusals fail the run if one policy or webhook refused in several namespaces, or if nothing is as it
    should be. `unchanged` and `written` are how many objects are.
    """
    refusals = [result for result in results if result.cause in _OF_ADMISSION and result.outcome is Outcome.FAILED]
    if written:
        refusals = []
    elif unchanged:
        several = _in_several_namespaces(refusals)
        refusals = [result for result in refusals if result.refused_by in several]
    of_operator = {id(result) for result in refusals}
    return [_coded(result, own, fails=id(result) in of_operator) for result in results]


def _in_several_namespaces(refusals: Sequence[Result]) -> set[str]:
    """Return the names of the policies and webhooks that refused writes in more than one namespace."""
    places = {(each.refused_by, each.finding.object.namespace) for each in refusals if each.refused_by}
    count = Counter(name for name, _ in places)
    return {name for name, namespaces in count.items() if namespaces > 1}


def _coded(result: Result, own: str, *, fails: bool) -> Result:
    if not result.cause or result.outcome is not Outcome.FAILED:
        return result
    if result.finding.object.namespace == own or fails:
        return result._replace(finding=structs.replace(result.finding, code=result.cause))
    finding = structs.replace(result.finding, code=result.cause, severity=Severity.WARNING)
    return result._replace(finding=finding, exit_code=ExitCode.DONE)


def kind_of(result: Result) -> str:
    """Return what a status says of a result: the code of the finding, or that the write failed without a cause."""
    return "failed" if result.outcome is Outcome.FAILED and not result.cause else result.finding.code


def lasting_message(result: Result) -> str:
    """Return why a result is as it is, without what would have a status change with each run."""
    if result.cause == WRITE_CONFLICT:
        return _CONTESTED
    text = result.message or result.finding.reason
    found = _LASTING[result.cause].match(text) if result.cause in _LASTING else None
    return found[0] if found else text
