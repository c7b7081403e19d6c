"""What a run knows and decides, as plain values: keys, findings, fixes, plans, results.

Pure and frozen. The same input gives the same plan to the byte, whatever the order of what was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from msgspec import Struct


class ObjectKey(NamedTuple):
    """Names one object; sorts by kind, name, namespace. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.lower()}/{self.name}{where}"


class Severity(str, Enum):
    """How much a finding matters. INFO is shown with -v only, and is not a finding to `--check`."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ExitCode(IntEnum):
    """What a run tells its caller; the podFailurePolicy of the CronJobs reads these."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    FINDINGS = 3
    BRAKE = 4
    INTERRUPTED = 130
    STOPPED = 143


class Action(str, Enum):
    """A write. The values are the words kubectl prints for it."""

    CREATE = "created"
    REPLACE = "configured"
    APPLY = "serverside-applied"
    APPLY_NEW = "serverside-created"  # an apply that takes nothing from others, should the object be there by now
    ANNOTATE = "annotated"  # a merge patch of our annotations
    ROLL = "restarted"  # one that changes the pod template too
    DELETE = "deleted"
    RECREATE = "replaced"  # as kubectl replace --force: deleted and created, for what cannot be changed in place

    @property
    def word(self) -> str:
        """What to call it: how an object was created is nothing to its readers."""
        return Action.CREATE.value if self is Action.APPLY_NEW else self.value


class Body(Protocol):
    """What a write sends. Encoded only when it is sent, so that a plan of 10,000 writes stays small."""

    def encode(self) -> bytes:
        """Return the object as JSON."""

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's answer to the write differs from what was sent."""

    def redact(self, text: str) -> str:
        """Return what the server said of the write without values that must not show."""


class Change(NamedTuple):
    """One field whose actual value is not the desired one; None is absent. Values of Secrets are never in here."""

    field: str
    actual: str | None
    desired: str | None


class Fix(Struct, frozen=True, gc=False):
    """A write that removes a finding.

    `result` is what the object is after the write, where the finding's reason says what it was before.
    """

    action: Action
    body: Body
    result: str = ""


class Finding(Struct, frozen=True, gc=False):
    """Something that is not as it should be, or worth telling.

    `subjects` are the names of the custom resources that the finding is about, sorted. `exit_code` is what the run
    ends with on account of this finding alone, before any write was tried. `remedy` says what has to happen first
    where no fix is planned although one was asked for.
    """

    code: str
    severity: Severity
    object: ObjectKey
    reason: str
    fix: Fix | None = None
    changes: tuple[Change, ...] = ()
    subjects: tuple[str, ...] = ()
    exit_code: ExitCode = ExitCode.DONE
    remedy: str = ""


class Need(NamedTuple):
    """An object that must be read before more can be said; `full` says whether its metadata alone would not do."""

    key: ObjectKey
    full: bool = True


class Brake(NamedTuple):
    """What is held back because it may be a mistake, and the option that lets it pass in one run."""

    message: str
    option: str
    value: str


@dataclass(frozen=True)
class Plan:
    """The findings of a job, in a stable order, and the writes that remove them.

    While `needs` (objects) or `urls` (documents of the web) is not empty, the findings are not final: read these and
    plan again. While `urls` is not empty, the findings of the custom resources in `pending` are not final; all others
    are.

    `facts` are the numbers of the summary line by plural noun, in its order. `note` is the summary if there is nothing
    to do. `desired_by_kind` counts by kind the objects that custom resources request, `desired_by_subject` by custom
    resource. With `by_subject`, the text report is grouped by custom resource, the worst first. `may_progress` is
    whether a later observation may find what the next step depends on, though this run writes nothing. `prerequisites`
    are findings whose writes the others depend on: the run writes them, reads these objects and plans again.
    `substitutes` are rolls to try, in this order, in place of rolls that fail; `findings` lists them without a fix.
    """

    findings: tuple[Finding, ...] = ()
    unchanged: int = 0
    needs: tuple[Need, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    desired_by_kind: Mapping[str, int] = field(default_factory=dict)
    desired_by_subject: Mapping[str, int] = field(default_factory=dict)
    brakes: tuple[Brake, ...] = ()
    urls: tuple[str, ...] = ()
    by_subject: bool = False
    may_progress: bool = False
    prerequisites: tuple[Finding, ...] = ()
    substitutes: tuple[Finding, ...] = ()
    pending: frozenset[str] = frozenset()


class Outcome(str, Enum):
    """What became of a finding."""

    REPORTED = "reported"  # nothing to write
    PLANNED = "planned"  # a dry run
    DONE = "done"
    SKIPPED = "skipped"  # the write lost its point: its namespace is going, or what was to be deleted changed
    CONFLICTED = "conflicted"  # somebody else wrote it first, or the answer was lost: look before believing either
    FAILED = "failed"
    STOPPED = "stopped"  # the run ended before this write was tried


class Result(NamedTuple):
    """A finding and what became of it; `message` says why where the outcome alone does not.

    `cause` is the code of a failed write that the object's namespace alone may have caused (jobs/kit/refusals.py),
    `refused_by` the name of the policy or webhook that is the reason.
    """

    finding: Finding
    outcome: Outcome
    message: str = ""
    exit_code: ExitCode = ExitCode.DONE
    cause: str = ""
    refused_by: str = ""

    @property
    def reason(self) -> str:
        """Why there is a finding; once it is removed, or in a dry run, what removes it."""
        fix = self.finding.fix
        is_result = fix and fix.result and self.outcome in (Outcome.DONE, Outcome.PLANNED)
        return fix.result if fix and is_result else self.finding.reason
