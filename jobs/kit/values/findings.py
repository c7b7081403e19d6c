"""Findings that all jobs report in the same words. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import ExitCode, Finding, ObjectKey, Result, Severity
from jobs.kit.values.reads import Invalid


def unreadable(key: ObjectKey, error: ApiError, reason: str = "", subjects: tuple[str, ...] = ()) -> Finding:
    """Return the finding of an object that cannot be read; never treat this as a missing object.

    Without a `reason`, it is the message of the error.
    """
    reason = reason or error.message
    return Finding("unreadable", error.severity, key, reason, subjects=subjects, exit_code=error.exit_code)


def read_failure(error: ApiError, what: str = "", remedy: str = "") -> str:
    """Return the reason of a finding about `what`, such as a list, with the remedy if rights are missing."""
    remedy = remedy or "the manifests in cronjobs/ grant the permissions that this job needs"
    return f"{what} cannot be read: {error.message}{f'; {remedy}' * error.is_permission}".lstrip()


def invalid(custom_resource: Invalid, subject: str = "") -> Finding:
    """Return the finding of a custom resource with all its problems; its name is the subject if that is empty."""
    key, reason = custom_resource.head.key, "; ".join(custom_resource.problems)
    subjects = (subject or key.name,)
    return Finding("invalid", Severity.CRITICAL, key, reason, subjects=subjects, exit_code=ExitCode.REFUSED)


def terminating(key: ObjectKey, subject: str, severity: Severity = Severity.INFO) -> Finding:
    """Return the finding of an object that is skipped because it is being deleted."""
    return Finding("skipped", severity, key, "is being deleted", subjects=(subject,))


def by_subject(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Return the results by the names of the custom resources that they are about."""
    found: dict[str, list[Result]] = {}
    for result in results:
        for name in result.finding.subjects:
            found.setdefault(name, []).append(result)
    return found
