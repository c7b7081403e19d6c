"""The plain values of a run: its options, object keys, findings, changes, plans, results, explanations.

All are immutable. The same cluster state gives the same plan to the byte, whatever the order in which it was read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field, structs


class ObjectKey(NamedTuple):
    """The name of one object; sorts by kind, name, namespace. `namespace` is empty for cluster-scoped kinds."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind.lower()}/{self.name}{where}"


class Severity(str, Enum):
    """The severity of a finding. INFO is printed with -v only, and does not count for `--check`.

    It does not decide the exit code: most CRITICAL findings are for the users of an object, and the run succeeds.
    """

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    def is_at_least(self, least: Severity) -> bool:
        """Return whether it is as severe as `least`, or more. The comparison operators compare the words."""
        order = list(Severity)
        return order.index(self) >= order.index(least)


class ExitCode(IntEnum):
    """The exit codes of a run. The podFailurePolicy of the CronJobs depends on them."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    FINDINGS = 3
    BRAKE = 4
    INTERRUPTED = 130
    STOPPED = 143


class DryRun(str, Enum):
    """The values of kubectl's --dry-run: `client` sends no write, `server` has the API server check each one."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


class RunOptions(Struct, frozen=True):
    """The values of the options that all jobs have.

    `filenames` are the files with custom resources that replace those of the cluster. `min_severity` is the least
    severity of findings in the report; None: WARNING, or INFO with `verbose`. `given` has the options of the
    command line, one by one, without those about the output, metrics and writing.
    """

    dry_run: DryRun = DryRun.NONE
    diff: bool = False
    check: bool = False
    output: str = "text"
    verbose: bool = False
    log_format: str = "text"
    kubeconfig: str | None = None
    context: str | None = None
    as_user: str | None = None
    as_group: tuple[str, ...] = ()
    namespace: str | None = None
    filenames: tuple[str, ...] = ()
    push_gateway: str | None = None
    metrics_file: str | None = None
    min_severity: Severity | None = None
    given: tuple[tuple[str, ...], ...] = ()

    def __repr__(self) -> str:
        return "RunOptions()"  # push_gateway may contain a password


class Action(str, Enum):
    """The kind of a write. Its value is the word that kubectl prints for it."""

    CREATE = "created"
    REPLACE = "configured"
    APPLY = "serverside-applied"
    APPLY_NEW = "serverside-created"  # an apply without force, for an object that another run may create meanwhile
    ANNOTATE = "annotated"  # a merge patch of annotations
    PATCH = "patched"  # a merge patch of other fields
    ROLL = "restarted"  # a merge patch of annotations and of the pod template
    DELETE = "deleted"
    RECREATE = "replaced"  # as kubectl replace --force: delete and create, for immutable fields

    @property
    def word(self) -> str:
        """The word in reports: both kinds of create have the same."""
        return Action.CREATE.value if self is Action.APPLY_NEW else self.value


class Body(Struct, frozen=True, gc=False):
    """The body of a write. It is encoded only when it is sent, so that a plan of 10,000 writes stays small.

    All bodies have `encode`. The other methods are for values that are too large to keep, that are secret, or that
    admission must not change: a body of such values overrides them.
    """

    @property
    def reads(self) -> tuple[ObjectKey, ...]:
        """The objects to read before the write, because their values are too large to keep."""
        return ()

    def completed(self, _read: Mapping[ObjectKey, bytes], /) -> Body:
        """Return the body with the values of the objects that were read, as JSON.

        Raises:
            InvalidObjectError: another object changed meanwhile.
            ApiError: the object itself changed, with status 409 as from the API server.
        """
        return self

    def encode(self) -> bytes:
        """Return the object as JSON."""
        raise NotImplementedError

    def changed_by_server(self, _response: bytes, /) -> tuple[str, ...]:
        """Return the fields whose value in the server's response to the write is not the one that was sent."""
        return ()

    def redact(self, text: str) -> str:
        """Return a message of the server about the write without secret values."""
        return text

    def fits_without_others(self) -> bool:
        """Whether the write is small enough without the labels and annotations of other clients that it includes."""
        return False


class NewBody(Body, frozen=True, gc=False):
    """The body of a create that the server can check while an object of that name exists."""

    def renamed(self, name: str) -> NewBody:
        """Return the same object under another name."""
        raise NotImplementedError


class FieldDiff(NamedTuple):
    """One field whose actual value is not the desired one; None is an absent field. Never has values of Secrets."""

    field: str
    actual: str | None
    desired: str | None


class Change(Struct, frozen=True, gc=False):
    """A write that resolves a finding.

    `result` replaces the finding's reason in the report after the write, if that reason describes the state before it.
    `origin` is the namespace of the source of a copy. The run writes the change only after it wrote all objects of
    `after`. If it `is_removal`, the deletion brake counts it as it counts deletions.
    """

    action: Action
    body: Body
    result: str = ""
    origin: str = ""
    after: tuple[ObjectKey, ...] = ()
    is_removal: bool = False


class Finding(Struct, frozen=True, gc=False):
    """A difference between the actual and the desired state, or something else to report.

    `subjects` are the names of the custom resources that the finding is about, sorted. `exit_code` is the exit code
    that this finding alone gives the run, before any write. `remedy` is what to do; in a repair, what has to
    happen first, if a change was requested but cannot be planned yet. `deferral` is the code of a deferred roll.
    """

    code: str
    severity: Severity
    object: ObjectKey
    reason: str
    change: Change | None = None
    diff: tuple[FieldDiff, ...] = ()
    subjects: tuple[str, ...] = ()
    exit_code: ExitCode = ExitCode.DONE
    remedy: str = ""
    deferral: str = ""

    @property
    def action(self) -> Action | None:
        """The kind of its write; None if it has none."""
        return self.change.action if self.change else None

    @property
    def is_removal(self) -> bool:
        """Whether the deletion brake counts it."""
        return self.change is not None and (self.change.action is Action.DELETE or self.change.is_removal)


class Dependency(NamedTuple):
    """An object that must be read before the plan is final. `full`: the whole object, not only its metadata."""

    key: ObjectKey
    full: bool = True


class Brake(NamedTuple):
    """Why a brake blocks writes that may be a mistake, and the option and value that allow them in one run.

    `only` are options, each with a value, that limit that run.
    """

    message: str
    option: str
    value: str
    only: tuple[str, ...] = ()


class Fetch(NamedTuple):
    """A document of the web that must be fetched before the findings are final.

    - `url`: several fetches may have the same one.
    - `subject`: the name of the custom resource that needs it.
    - `is_probe`: its redirects are not followed, and only the log has the reason of a failure.
    - `again`: each observation of a run fetches it again.
    """

    url: str
    subject: str = ""
    is_probe: bool = False
    again: bool = False


# The types of manifests that list those of the same image for several platforms.
INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")


class Login(Struct, frozen=True, gc=False):
    """A username and a password of a registry."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Login()"


class ManifestRequest(NamedTuple):
    """The manifest of an image, of which a registry reports whether it exists, and its digest.

    - `key`: the name of its Download.
    - `server`: the URL of the registry, such as https://quay.io. Only https servers get a login.
    - `reference`: a tag or a digest.
    - `logins`: used one after another if the registry requires a login, until it accepts one.
    """

    key: str
    server: str
    repository: str
    reference: str
    logins: tuple[Login, ...] = ()


class Summary(Struct, frozen=True):
    """What the report prints besides the results.

    - `facts`: the numbers of the summary line by plural noun, in its order.
    - `note`: the summary if there is nothing to do.
    - `by_subject`: group the text report by custom resource, the one with the worst findings first.
    - `absent`: the custom resources without any of their objects, by name. The text report has this finding in place of
      those of the missing objects.
    """

    facts: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    by_subject: bool = False
    absent: Mapping[str, Finding] = field(default_factory=dict)


class DesiredCounts(Struct, frozen=True):
    """How many objects custom resources request, by kind and by custom resource: also 0, if it exists."""

    by_kind: Mapping[str, int] = field(default_factory=dict)
    by_subject: Mapping[str, int] = field(default_factory=dict)


class WriteOrder(Struct, frozen=True):
    """In which order a run writes, if that is not the order of the objects.

    - `namespaces`: objects in namespaces with a small number come first; one that is not in it has 0.
    - `substitutes`: rolls to apply, in this order, in place of rolls that fail. The plan lists them without a change.
    """

    namespaces: Mapping[str, int] = field(default_factory=dict)
    substitutes: Sequence[Finding] = ()


class Plan(Struct, frozen=True):
    """The findings of a job, and the writes that resolve them.

    A plan sorts itself, in whatever order it was made: `dependencies`; `findings` by `order`, object, code, subjects.

    While `dependencies` (objects), `fetches` (documents of the web) or `manifests` (of images) is not empty, the
    findings are not final: read these and plan again. Fetches and manifests are in the order in which to request them.

    - `unchanged`: the number of objects that are as desired.
    - `brakes`: why writes are blocked.
    - `may_progress`: a later observation may make the next step possible, though this run writes nothing.
    - `computed`: what the job computed for each custom resource, and needs again for statuses and metrics.
    """

    findings: Sequence[Finding] = ()
    unchanged: int = 0
    dependencies: Collection[Dependency] = ()
    summary: Summary = Summary()
    fetches: Sequence[Fetch] = ()
    desired: DesiredCounts = DesiredCounts()
    brakes: Sequence[Brake] = ()
    order: WriteOrder = WriteOrder()
    may_progress: bool = False
    manifests: Sequence[ManifestRequest] = ()
    computed: Mapping[Any, Any] = {}

    def __post_init__(self) -> None:
        ranks = self.order.namespaces
        findings = sorted(
            self.findings, key=lambda each: (ranks.get(each.object.namespace, 0), each.object, each.code, each.subjects)
        )
        structs.force_setattr(self, "findings", tuple(findings))
        structs.force_setattr(self, "dependencies", tuple(sorted(set(self.dependencies))))


class Outcome(str, Enum):
    """What happened to a finding in this run."""

    REPORTED = "reported"  # nothing to write
    PLANNED = "planned"  # a dry run
    DONE = "done"
    SKIPPED = "skipped"  # no longer needed: its namespace is terminating, or the object to delete changed
    CONFLICTED = "conflicted"  # another client wrote first, or the response was lost: read the object again
    FAILED = "failed"
    STOPPED = "stopped"  # the run ended before this write was tried


class Result(Struct, frozen=True, gc=False):
    """A finding and its outcome in this run; `message` is the reason of that outcome, if it needs one.

    `cause` is the code of a failed write that the object's namespace alone may have caused (jobs/kit/run/results.py).
    `refused_by` is the name of the policy or webhook that refused it. `is_event`: the write was that of an Event.
    `cluster` is the name of another cluster that has the object.
    """

    finding: Finding
    outcome: Outcome
    message: str = ""
    exit_code: ExitCode = ExitCode.DONE
    cause: str = ""
    refused_by: str = ""
    is_event: bool = False
    cluster: str = ""

    @property
    def reason(self) -> str:
        """The reason of the finding; for a write that is done or planned, its result if it has one."""
        change = self.finding.change
        is_result = change and change.result and self.outcome in (Outcome.DONE, Outcome.PLANNED)
        return change.result if change and is_result else self.finding.reason


class Deletion(Body, frozen=True, gc=False):
    """The body of a delete of exactly one version of an object.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
    """

    uid: str
    resource_version: str

    def encode(self) -> bytes:
        """Return the DeleteOptions as JSON."""
        preconditions = {"uid": self.uid, "resourceVersion": self.resource_version}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})


class Recreation(Body, frozen=True, gc=False):
    """A delete and a create, for a change of immutable fields."""

    deletion: Deletion
    manifest: NewBody

    def encode(self) -> bytes:
        """Return the object to create as JSON."""
        return self.manifest.encode()

    def changed_by_server(self, response: bytes) -> tuple[str, ...]:
        """Return the fields of the content that admission changed, by the server's response to the create."""
        return self.manifest.changed_by_server(response)

    def redact(self, text: str) -> str:
        """Return the text without values of the Secret."""
        return self.manifest.redact(text)


class Row(NamedTuple):
    """One line: its cells, why, and further lines. `document` is the same for -o json."""

    cells: tuple[str, ...]
    reason: str
    document: Mapping[str, Any]
    details: tuple[str, ...] = ()


class Explanation(Struct, frozen=True):
    """The rows of a namespace, with the names of their columns, and a summary."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    summary: str
