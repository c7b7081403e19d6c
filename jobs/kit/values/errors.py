"""The errors that end a run or exclude objects from it, with the exit code of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from jobs.kit.values.model import ExitCode, Severity
from jobs.kit.values.text import Lines, visible

# Only the message identifies these errors: no status, reason or cause does. The pattern is anchored, since a webhook
# may quote any text.
# https://github.com/kubernetes/apiserver/blob/master/pkg/admission/plugin/resourcequota/controller.go
_QUOTA = re.compile(r'[a-z0-9.-]+ "[^"]*" is forbidden: (exceeded quota|status unknown for quota): ')
# The limit of etcd (https://github.com/etcd-io/etcd/blob/main/api/v3rpc/rpctypes/error.go), and of its client.
TOO_LARGE = (
    "etcdserver: request is too large"
    r"|rpc error: code = ResourceExhausted desc = trying to send message larger than max \(\d+ vs\. \d+\)"
)
_ANNOTATIONS = frozenset({"metadata.annotations", "spec.template.annotations"})

# The message of the authorizer. A 403 of a quota, admission or a terminating namespace has another one.
# https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go
_AUTHORIZER = re.compile(r'is forbidden: User "[^"]*" cannot ')

# The prefix of a policy's own text: a policy of the API server, or of a policy engine behind a webhook.
# https://github.com/kubernetes/apiserver/blob/master/pkg/admission/plugin/policy/validating/dispatcher.go
# https://github.com/kubernetes/apiserver/blob/master/pkg/admission/plugin/webhook/errors/statuserror.go
_POLICY = re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']{0,253})' (with binding '[^']*' )?denied request: ")
_WEBHOOK = re.compile(r'admission webhook "(?P<name>[^"]{0,253})" denied the request')
FAILED_WEBHOOK = "Internal error occurred: failed calling webhook "  # its name follows, in quotes
_FAILED_WEBHOOK = re.compile(FAILED_WEBHOOK + r'"(?P<name>[^"]{0,253})"')

# The codes of failed writes that the namespace of the object may have caused.
QUOTA_EXCEEDED = "quota-exceeded"
TOO_LARGE_THERE = "too-large"
DENIED = "denied"
WEBHOOK_FAILED = "webhook-failed"
WRITE_CONFLICT = "write-conflict"
CHANGED_BY_ADMISSION = "changed-by-admission"

BLOCKED_BY_FINALIZER = "kept"  # the cause of a delete that the server accepted, while a finalizer keeps the object


class ChoresError(Exception):
    """A failure that is logged as one message, without a traceback."""

    exit_code = ExitCode.FAILED

    def lines(self) -> Lines:
        """Return the message, or a list of problems, for the log."""
        return Lines(visible(str(self)))


class StoppedError(ChoresError):
    """A signal stopped the run before it had a plan."""

    exit_code = ExitCode.STOPPED

    def __init__(self) -> None:
        super().__init__("stopped before anything was decided; nothing was written")


class UnreachableError(ChoresError):
    """The API server has accepted no connection in this run."""


class ConfigurationError(ChoresError):
    """Settings, files or custom resources are not valid. Has all problems, each with object, field and remedy."""

    exit_code = ExitCode.REFUSED

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems: Sequence[str] = problems

    def lines(self) -> Lines:
        """Return the problem; of several, their number and all of them."""
        problems = [*map(visible, self.problems)]
        if len(problems) == 1:
            return Lines(problems[0])
        return Lines("\n  ".join([f"{len(problems)} problems:", *problems]))

    def __str__(self) -> str:
        return self.lines()


class ApiError(ChoresError):
    """The API server refused a request, or did not answer (`status` 0).

    `causes` are the reasons in the details of its response, and `fields` the fields of these reasons.
    """

    def __init__(
        self, status: int, message: str, causes: Sequence[str] = (), fields: Collection[str] = frozenset()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.causes = tuple(causes)
        self.fields = frozenset(fields)

    @property
    def severity(self) -> Severity:
        """The severity of a finding about an object that cannot be read because of this error."""
        return Severity.CRITICAL

    @property
    def is_permission(self) -> bool:
        """Whether credentials or rights are missing: a retry fails until someone changes them."""
        return self.status == 401 or (self.status == 403 and bool(_AUTHORIZER.search(self.message)))

    @property
    def is_of_one_request(self) -> bool:
        """Whether the API server answered and accepted the credentials, so that other requests may succeed."""
        return self.status not in (0, 401)

    @property
    def is_policy(self) -> bool:
        """Whether an admission policy or webhook denied the write; its own text in the message has the reason."""
        refused = self.status in (400, 403, 422)
        return refused and bool(_POLICY.search(self.message) or _WEBHOOK.search(self.message))

    @property
    def is_failed_webhook(self) -> bool:
        """Whether the API server got no response from an admission webhook, so that nothing was written."""
        return self.status == 500 and self.message.startswith(FAILED_WEBHOOK)

    @property
    def is_terminating_namespace(self) -> bool:
        """Whether the namespace of the write is terminating (a 403 with this cause)."""
        return self.status == 403 and "NamespaceTerminating" in self.causes

    @property
    def is_too_large(self) -> bool:
        """Whether annotations are longer than the API server allows, or the object is larger than etcd allows.

        The annotations are those of the object or of its pod template.
        """
        if self.status == 422:
            return set(self.causes) == {"FieldValueTooLong"} and self.fields <= _ANNOTATIONS
        return self.status == 500 and bool(re.fullmatch(TOO_LARGE, self.message))

    @property
    def cause(self) -> str:
        """The code of a failed write if its namespace may have caused the failure (a quota, admission); else empty."""
        if self.status == 403 and _QUOTA.match(self.message):  # used up, or its use is not known yet
            return QUOTA_EXCEEDED
        if self.is_policy:
            return DENIED
        return WEBHOOK_FAILED if self.is_failed_webhook else ""

    @property
    def refused_by(self) -> str:
        """The name of the policy or webhook that refused the write, or that did not answer; else empty."""
        if self.is_policy:
            found = _POLICY.search(self.message) or _WEBHOOK.search(self.message)
        else:
            found = _FAILED_WEBHOOK.match(self.message) if self.is_failed_webhook else None
        return found["name"] if found else ""

    @property
    def is_missing_namespace(self) -> bool:
        """Whether the namespace of the write does not exist: a 404 that names the namespace, not the object."""
        return self.status == 404 and self.message.startswith('namespaces "')

    @property
    def exit_code(self) -> ExitCode:  # type: ignore[override]
        """2 if rights are missing or a policy denied the write, else 1."""
        return ExitCode.REFUSED if self.is_permission or self.is_policy else ExitCode.FAILED


class TooMuchError(ApiError):
    """One of several clusters has so much that the run cannot keep it in memory together with others."""

    def __init__(self) -> None:
        super().__init__(0, "its namespaces, copies and changes are too many to keep in memory; limit its rules")


class CredentialsError(ApiError):
    """A request was not sent because its credentials are missing."""

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str) -> None:
        super().__init__(0, message)


class InvalidObjectError(ApiError):
    """An object has content that the API does not define, or that is too large. The run skips it.

    Any user with write access to the object can cause this, so it fails no run.
    """

    exit_code = ExitCode.DONE
    severity = Severity.WARNING

    def __init__(self, why: str) -> None:
        super().__init__(0, f"its content is not valid: {why}")
        self.why = why

    def without_traceback(self) -> InvalidObjectError:
        """Return a copy without a traceback: the traceback would keep the whole object in memory."""
        return InvalidObjectError(self.why)


def no_such_namespace(namespace: str, names: Collection[str]) -> ConfigurationError:
    """Return the error that there is no such namespace, with the names that are close to it."""
    from difflib import get_close_matches  # only for a wrong name

    close = get_close_matches(namespace, sorted(names), n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "check --explain"
    return ConfigurationError(f"namespace {namespace} does not exist; {hint}")
