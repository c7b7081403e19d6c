"""How findings of an audit are made: how bad one is stands with its code."""

from __future__ import annotations

from msgspec import structs

from jobs.kit.errors import ApiError
from jobs.kit.model import Change, ExitCode, Finding, ObjectKey
from jobs.mirrors.codes import CODES
from jobs.mirrors.registry_mirrors import RegistryMirror

_REMEDY = "; the manifests in cronjobs/ hold the rights that this job needs"


def finding(
    code: str, about: ObjectKey, reason: str, mirror: RegistryMirror, changes: tuple[Change, ...] = ()
) -> Finding:
    """Return a finding about one mirror."""
    return Finding(code, CODES[code].severity, about, reason, changes=changes, subjects=(mirror.name,))


def unreadable(about: ObjectKey, error: ApiError, subjects: tuple[str, ...]) -> Finding:
    """Return what to say of something that could not be looked at, which says nothing of whether it is there."""
    reason = f"cannot be read: {error.message}{_REMEDY if error.is_permission else ''}"
    return structs.replace(could_not_look(about, reason, subjects, error.exit_code), severity=error.severity)


def could_not_look(about: ObjectKey, reason: str, subjects: tuple[str, ...], exit_code: ExitCode) -> Finding:
    """Return the same, for other reasons than an answer of the API server."""
    return Finding("unreadable", CODES["unreadable"].severity, about, reason, subjects=subjects, exit_code=exit_code)
