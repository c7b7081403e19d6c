"""What a run reads: objects, custom resources, and pages of the web; each may be an error, which is a finding. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from msgspec import Struct

from jobs.kit.values.decoding import decode
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import ExitCode, Finding, ObjectKey, Result, Severity

Reduced = TypeVar("Reduced")
Status = TypeVar("Status")
Spec = TypeVar("Spec")
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class ReadResult:
    """The result of reading one object: its JSON or an error. An error with status 404: the object does not exist."""

    body: bytes = b""
    error: ApiError | None = None

    def reduced(self, reduce: Callable[[bytes], Reduced]) -> Reduced | ApiError:
        """Return the object reduced by `reduce`, or the error of the read or of `reduce`."""
        if self.error:
            return self.error
        try:
            return reduce(self.body)
        except InvalidObjectError as error:
            return error.without_traceback()

    def reduced_if_exists(self, reduce: Callable[[bytes], Reduced]) -> Reduced | ApiError | None:
        """Return the same as `reduced`, but None for an object that does not exist."""
        return None if self.error and self.error.status == 404 else self.reduced(reduce)


class InvalidObject(NamedTuple):
    """An object of a list that could not be decoded, and why. Without a name, its `key` has its number in the list."""

    key: ObjectKey
    error: InvalidObjectError


class Head(Struct, frozen=True):
    """The metadata of a custom resource, and its status as JSON, as an earlier run wrote it.

    `created` is a time in RFC 3339. A custom resource from a file has no `created`, `uid` and `status`.
    """

    key: ObjectKey
    uid: str = ""
    generation: int = 0
    terminating: bool = False
    status: bytes = b""
    created: str = ""

    def status_as(self, kind: type[Status]) -> Status:
        """Return the status decoded as `kind`; an empty one if another client wrote something else."""
        try:
            return decode(self.status, kind) if self.status else kind()
        except InvalidObjectError:
            return kind()


class Invalid(Struct, frozen=True):
    """A custom resource that is not valid, with all its problems. One that could not be decoded has no uid."""

    head: Head
    problems: tuple[str, ...]


def parse(
    head: Head,
    spec: bytes,
    kind: type[Spec],
    problems: Callable[[Spec], Iterable[str]],
    combine: Callable[[Head, Spec], Parsed],
) -> Parsed | Invalid:
    """Return the custom resource, or all problems of its spec; `problems` yields each with its path in the spec."""
    try:
        decoded = decode(spec or b"null", kind)
    except InvalidObjectError as error:
        return Invalid(head, (f"spec: {error.why}",))
    found = tuple(f"spec.{problem}" for problem in problems(decoded))
    return Invalid(head, found) if found else combine(head, decoded)


# The errors of pages that were not requested.
NOT_FETCHED = "not fetched: the run was stopped"
NOT_IN_TIME = "not probed in time"
# The errors of pages whose host name was not resolved.
NO_DNS = "no DNS server answered"
NAME_NOT_FOUND = "its host name was not found"


class Page(NamedTuple):
    """A document, or an error. The same cause has the same text, so that statuses stay unchanged.

    `status` is the one of the last answer, or 0 without an answer; `challenge` is its header WWW-Authenticate.
    """

    body: bytes = b""
    error: str = ""
    status: int = 0
    challenge: str = ""


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
