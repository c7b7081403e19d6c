"""What a job is: its name, its functions, and how the runner has to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection
from jobs.kit.run.gauges import Sample
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.model import Dependency, Finding, Plan, Result, RunOptions
from jobs.kit.values.reads import Download, ReadResult
from jobs.kit.values.resources import Resource

if TYPE_CHECKING:
    from jobs.kit.run.session import Session


class Observation(Protocol):
    """The state of the cluster, as a job observed it."""

    def with_documents(
        self: Observed, documents: Mapping[Dependency, ReadResult], downloads: Mapping[str, Download]
    ) -> Observed:
        """Return a copy that also contains these `documents` of the API and `downloads` of the web."""
        ...


class Options(Protocol):
    """The options of a job: its own fields, and those of all jobs."""

    @property
    def run(self) -> RunOptions:
        """The options that all jobs have."""


class NoOptions(Struct, frozen=True):
    """The options of a command that has only those of all jobs."""

    run: RunOptions


OptionsOfJob = TypeVar("OptionsOfJob", bound=Options)
Observed = TypeVar("Observed", bound=Observation)
Settings = TypeVar("Settings")
Metrics = Callable[[Observed, Settings, Plan, Sequence[Result], datetime], Iterable[Sample]]
StatusUpdates = Callable[[Observed, Settings, Plan, Sequence[Result], datetime], Sequence[StatusUpdate]]


class Limits(Struct, frozen=True):
    """What limits the writes of a run.

    - `max_deletes`: the limit of the deletion brake; None: the default of the brake.
    - `brake`: whether to count the deletions of the plan. False: the plan counts what it removes, in another unit.
    - `writes_per_second`: how many writes may start in a second; None: no limit.
    """

    max_deletes: int | None = None
    brake: bool = True
    writes_per_second: float | None = None


class Steps(Struct, frozen=True):
    """A run in steps: after its writes it observes and plans again, since the next writes depend on their effect.

    - `with_progress`: return the plan in which what these findings' writes changed, and is not ready yet, is in
      progress.
    - `wait_seconds`: how long the run may observe again until its next step is possible, and its changes are ready.
    """

    with_progress: Callable[[Plan, Any, Sequence[Finding], datetime], Plan]
    wait_seconds: float = 0.0


class Execution(Protocol):
    """A run: its phases, and its metrics after them. `writes`: whether it is no dry run."""

    cluster: Cluster
    writes: bool

    def execute(self) -> tuple[Plan, Sequence[Result]]:
        """Run the phases; return the plan and the result of each of its findings, sorted."""

    def gauges(self, results: Sequence[Result]) -> Iterable[Sample]:
        """Return the metrics of the run."""


class Job(Struct, Generic[OptionsOfJob, Settings, Observed], frozen=True):
    """A job: its name, its functions, and how the runner has to run it.

    - `resources`: where the API serves each kind that findings name.
    - `observe` only reads. `plan` and `status_updates` are pure: they use no cluster, no clock and no environment.
    - `status_updates`: the statuses and Events of a run. None: the job writes none.
    - `steps`: the run observes again after its writes. None: it observes once, and reads only write conflicts again.
    - `metrics`: the metrics of a run that only this job has. None: it has none.
    - `observe_from`: returns `observe` with a connection to another cluster that it reads too. None: it reads only the
      one of the session.
    - `execution`: how a run is executed that has several clusters. None: in one.
    - `renew`: observes again, after `observe`, what a plan with deletions depends on. None: `observe` has the order.
    - `summary`: what is kept of a run in one of several clusters.
    - `own_cronjob`: the CronJob in the manifests that runs the job like this. Empty: the one with the job's name.
    """

    name: str
    resources: Mapping[str, Resource]
    settings: Callable[[Connection, OptionsOfJob], Settings]
    observe: Callable[[Cluster, Settings], Observed]
    plan: Callable[[Observed, Settings, datetime], Plan]
    status_updates: StatusUpdates[Observed, Settings] | None = None
    limits: Limits = Limits()
    steps: Steps | None = None
    metrics: Metrics[Observed, Settings] | None = None
    own_cronjob: str = ""
    observe_from: Callable[[Session], Callable[[Cluster, Settings], Observed]] | None = None
    execution: Callable[[Job[Any, Any, Any], Session, OptionsOfJob], Execution] | None = None
    renew: Callable[[Cluster, Settings], Observed] | None = None
    summary: Callable[[Observed, Settings, Plan, Sequence[Result]], Any] | None = None

    @property
    def cronjob(self) -> str:
        """The CronJob in the manifests that runs the job like this."""
        return self.own_cronjob or self.name
