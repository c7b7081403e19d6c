"""Which failed writes fail a run: not those that only the namespace of the object can cause. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from jobs.kit.errors import CHANGED_BY_ADMISSION, CONTESTED, DENIED, QUOTA_EXCEEDED, TOO_LARGE_THERE, WEBHOOK_FAILED
from jobs.kit.model import ExitCode, Outcome, Result, Severity

# The reasons that conditions have for the causes, the first that applies first.
REASONS = (
    (DENIED, "Denied"),
    (WEBHOOK_FAILED, "WebhookFailed"),
    (QUOTA_EXCEEDED, "QuotaExceeded"),
    (TOO_LARGE_THERE, "TooLarge"),
    (CONTESTED, "Contested"),
)
# What follows changes with each try: the use of a quota, the way in which a webhook fails.
_LASTING = {
    QUOTA_EXCEEDED: re.compile(r".*?(exceeded quota|status unknown for quota): [^,]+"),
    WEBHOOK_FAILED: re.compile(r'[^"]*"[^"]*"'),
}
# Who notices depends on when the other writes: the API server, or the run itself.
_CONTESTED = "not as it should be: somebody else changes it before each write of the run"
_OF_ADMISSION = frozenset({DENIED, WEBHOOK_FAILED, CHANGED_BY_ADMISSION})


def coded(results: Sequence[Result], right: int, own: str) -> list[Result]:
    """Return the results; the code of a failed write is its cause, and in other namespaces than `own` it fails no run.

    Admission may also refuse what a job writes in all namespaces. Only the operator can change that, so such failures
    fail a run that leaves nothing as it should be: `right` is how many objects are, unchanged or written.
    """
    return [_coded(result, own, serves=right > 0) for result in results]


def _coded(result: Result, own: str, *, serves: bool) -> Result:
    if not result.cause or result.outcome is not Outcome.FAILED:
        return result
    if result.finding.object.namespace == own or (result.cause in _OF_ADMISSION and not serves):
        return result._replace(finding=structs.replace(result.finding, code=result.cause))
    finding = structs.replace(result.finding, code=result.cause, severity=Severity.WARNING)
    return result._replace(finding=finding, exit_code=ExitCode.DONE)


def kind_of(result: Result) -> str:
    """Return what a status says of a result: the code of the finding, or that the write failed without a cause."""
    return "failed" if result.outcome is Outcome.FAILED and not result.cause else result.finding.code


def lasting_message(result: Result) -> str:
    """Return why a result is as it is, without what would have a status change with each run."""
    if result.cause == CONTESTED:
        return _CONTESTED
    text = result.message or result.finding.reason
    found = _LASTING[result.cause].match(text) if result.cause in _LASTING else None
    return found[0] if found else text
