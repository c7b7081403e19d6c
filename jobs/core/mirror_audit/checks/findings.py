"""Create the findings of an audit; codes.py has the severity of each code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobs.core.mirror_audit.checks.codes import CODES
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror
from jobs.kit.values import findings
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Change, ExitCode, Finding, Need, ObjectKey


class Problem(NamedTuple):
    """What is wrong with an object."""

    code: str
    reason: str


class CheckResult(NamedTuple):
    """The findings of a check, or what the run must read first: an object (`need`) or a URL."""

    findings: Sequence[Finding] = ()
    need: Need | None = None
    url: str = ""


def finding(
    code: str, reason: str, about: ObjectKey, mirror: RegistryMirror, changes: tuple[Change, ...] = ()
) -> Finding:
    """Return a finding about one mirror, with the severity of its code."""
    return Finding(code, CODES[code].severity, about, reason, changes=changes, subjects=(mirror.name,))


def unreadable(about: ObjectKey, error: ApiError, subjects: tuple[str, ...]) -> Finding:
    """Return the finding for an object that the API server did not return. Whether it exists is not known."""
    return findings.unreadable(about, error, findings.read_failure(error), subjects)


def not_readable(about: ObjectKey, reason: str, subjects: tuple[str, ...], exit_code: ExitCode) -> Finding:
    """Return the finding for something that was not readable for another reason than an error of the API server."""
    return Finding("unreadable", CODES["unreadable"].severity, about, reason, subjects=subjects, exit_code=exit_code)
