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

    def unlike(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's answer to the write differs from what was sent."""

    def conceal(self, text: str) -> str:
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

    held: str
    option: str
    value: str


@dataclass(frozen=True)
class Plan:
    """What a job found, in a stable order. While `needs` or `urls` is not empty the findings are not final.

    `needs` are objects and `urls` documents of the web that must be read before more can be said. `facts` are the
    numbers of the summary line by plural noun, in its order; `note` is said where nothing is to do. `wanted` counts by
    kind the objects that custom resources ask for, `places` by custom resource how many it asks for. `by_subject` has
    the text of the report told custom resource by custom resource, the worst first. `waits` is whether a later look may
    see what the next step depends on, though nothing is written. `first` are findings whose writes the others depend
    on: these are made before the objects are read and the plan is made again. `spares` are rolls to try in place of
    rolls that fail, in this order; `findings` have them without a fix. While `urls` is not empty, `pending` are the
    custom resources whose findings are not final; those of all others are.
    """

    findings: tuple[Finding, ...] = ()
    unchanged: int = 0
    needs: tuple[Need, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    wanted: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    brakes: tuple[Brake, ...] = ()
    urls: tuple[str, ...] = ()
    by_subject: bool = False
    waits: bool = False
    first: tuple[Finding, ...] = ()
    spares: tuple[Finding, ...] = ()
    pending: frozenset[str] = frozenset()


class Outcome(str, Enum):
    """What became of a finding."""

    TOLD = "told"  # nothing to write
    PLANNED = "planned"  # a dry run
    DONE = "done"
    SKIPPED = "skipped"  # the write lost its point: its namespace is going, or what was to be deleted changed
    CONTESTED = "contested"  # somebody else wrote it first, or the answer was lost: look before believing either
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
