"""farm-pods: an inventory of pods for users without permission to read pods, one FarmPod for each.

FarmPods are compared with the pods of the namespaces that opted in. Each FarmPod is owned by its pod, so that the
garbage collector deletes it. The job has no permission to delete. The parts are in jobs/core/farm_pods.
"""

from __future__ import annotations

import click
from msgspec import Struct

from jobs.core.farm_pods.farm_pod import NAME
from jobs.core.farm_pods.observe import observe
from jobs.core.farm_pods.observed import MAX_OBJECTS, OPT_IN, WRITES_PER_SECOND, Observed, Settings
from jobs.core.farm_pods.plan import plan
from jobs.kit.api.connect import Connection
from jobs.kit.run import flags
from jobs.kit.run.job import Job, Limits
from jobs.kit.run.runner import run
from jobs.kit.values.model import RunOptions
from jobs.kit.values.resources import FARM_PODS, PODS, by_kind


class Options(Struct, frozen=True):
    """The options of this job, with those of all jobs in `run`."""

    run: RunOptions
    max_objects: int
    writes_per_second: int


def settings(_connection: Connection, options: Options) -> Settings:
    """Return the settings. The context's namespace is ignored: only -n limits a run to one namespace."""
    return Settings(options.run.namespace or "", options.max_objects, options.run)


def job(options: Options) -> Job[Options, Settings, Observed]:
    """Return the job as these options have it run."""
    limits = Limits(writes_per_second=options.writes_per_second)
    return Job(NAME, by_kind(FARM_PODS, PODS), settings, observe, plan, limits=limits)


@click.command(NAME)
@flags.option(
    "--max-objects",
    default=MAX_OBJECTS,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Limit of the number of FarmPods, in all namespaces or in that of -n. A namespace gets all of its"
    " FarmPods or none, the smallest namespace first.",
)
@flags.option(
    "--writes-per-second",
    default=WRITES_PER_SECOND,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Send at most N writes a second. The next run resumes a run that was stopped.",
)
@flags.metrics
@flags.run_options(
    Options, f"Process only this namespace, labelled or not; default is all that are labelled {OPT_IN}=true."
)
def command(context: click.Context, options: Options) -> None:
    """List pods for users without permission to read them. Each pod gets a FarmPod with its number of containers.

    The next run creates the FarmPods for pods of namespaces labelled kubechores.dev/farm=true. The garbage collector
    deletes a FarmPod with its pod; the job deletes nothing. Objects that are not managed by kube-chores stay untouched.
    A second run in a row writes nothing. Exits 0 when done, 1 when a retry is useful, 2 when a person must act first,
    3 with --check when there are findings, 4 when there would be more FarmPods than the limit.

    \b
    Examples:
      chores farm-pods --dry-run                     show what would be created, in all labelled namespaces
      chores farm-pods -n shop                       process one namespace
      chores farm-pods -n shop --dry-run -v          show the FarmPod of each pod
    """
    context.exit(run(job(options), options))
