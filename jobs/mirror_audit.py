"""mirror-audit: check that the pull-through caches that RegistryMirrors define exist, have not drifted, and work.

A run reads the cluster with one list request for each kind, whatever the number of mirrors, and compares it with the
desired resources of each mirror. The parts are in jobs/core/mirror_audit.
"""

from __future__ import annotations

import click
from msgspec import Struct

from jobs.core.mirror_audit.desired import NAME
from jobs.core.mirror_audit.observe import observe
from jobs.core.mirror_audit.observed import NAMESPACE, RESOURCE_KINDS, Observed, Probing, Settings
from jobs.core.mirror_audit.plan import plan
from jobs.core.mirror_audit.registry_mirrors import parse_registry_mirror
from jobs.core.mirror_audit.status import gauges, status_updates, with_progress
from jobs.kit.api.connect import Connection
from jobs.kit.api.custom_resources import from_files
from jobs.kit.run import flags, log
from jobs.kit.run.job import Job, Limits, Steps
from jobs.kit.run.runner import run
from jobs.kit.values.model import ObjectKey, RunOptions
from jobs.kit.values.registry import REPAIR
from jobs.kit.values.resources import (
    EVENTS,
    PODS,
    PRIORITY_CLASSES,
    REGISTRY_MIRRORS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICE_PROXY,
    STORAGE_CLASSES,
    by_kind,
)


class Options(Struct, frozen=True):
    """The options of this job, with those of all jobs in `run`; `wait` is in seconds."""

    run: RunOptions
    probe: str | None
    node_image: str | None
    repair: bool
    allow_cache_loss: bool
    wait: int
    max_deletes: int | None
    images: int


def settings(connection: Connection, options: Options) -> Settings:
    """Combine options and connection into the settings of a run.

    Raises:
        ConfigurationError: all problems of all RegistryMirrors in files.
    """
    filenames = options.run.filenames
    probing = Probing(options.probe or (Probing.NETWORK if connection.in_pod else Probing.NONE))
    if probing is Probing.NONE and options.probe is None:
        log.log.info("%s: mirrors and upstreams are not probed; see --probe", NAME)
    mirrors = from_files(filenames, REGISTRY_MIRRORS, parse_registry_mirror, "") if filenames else None
    return Settings(
        options.run.namespace or NAMESPACE,
        options.node_image or "",
        probing,
        mirrors,
        ObjectKey(PODS.kind, connection.pod_name, connection.pod_namespace) if connection.in_pod else None,
        run=options.run,
        repair=options.repair,
        allow_cache_loss=options.allow_cache_loss,
        max_deletes=options.max_deletes,
        images=options.images,
    )


def job(options: Options) -> Job[Options, Settings, Observed]:
    """Return the job as these options have it run."""
    return Job(
        NAME,
        by_kind(
            *RESOURCE_KINDS,
            EVENTS,
            PODS,
            PRIORITY_CLASSES,
            REGISTRY_MIRRORS,
            SECRETS,
            SERVICE_ACCOUNTS,
            SERVICE_PROXY,
            STORAGE_CLASSES,
        ),
        settings,
        observe,
        plan,
        status_updates,
        Limits(brake=False),  # the plan has its own brake, which counts mirrors
        Steps(with_progress, options.wait) if options.repair else None,
        metrics=gauges,
        own_cronjob=REPAIR if options.repair else "",
    )


@click.command(NAME)
@flags.filenames(
    "Read RegistryMirrors from this file, folder or - instead of the cluster. Implies a dry run; needs no CRD."
)
@flags.option(
    "--probe",
    type=click.Choice([each.value for each in Probing]),
    help="How to probe mirrors and upstreams. network is the default in a pod. service-proxy probes only mirrors, "
    "through the API server, and requires permission to get services/proxy. none is the default elsewhere.",
)
@flags.option(
    "--node-image",
    settable=False,
    metavar="IMAGE",
    help="Image of kube-chores for the pods of mirrors, as nodes pull it. Default in a pod is the image of that pod; "
    "elsewhere each mirror keeps its image.",
)
@flags.option(
    "--images",
    is_flag=False,
    flag_value=50,
    default=0,
    type=click.IntRange(min=0),
    metavar="[N]",
    help="Also check that registries have the images of pods and CronJobs: at most N of each registry in a run, 50 by "
    "default. If there are more, they take turns by the time, with runs every 15 minutes. Namespaces get equal shares; "
    "what a namespace does not need, others get. Requires permission to list pods and CronJobs.",
)
@flags.option("--repair", is_flag=True, help="Create missing resources, correct drifted ones, and delete orphans.")
@flags.option(
    "--allow-cache-loss",
    is_flag=True,
    help="With --repair: recreate claims that cannot be corrected, and delete the claims of deleted mirrors.",
)
@flags.option(
    "--wait",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="With --repair: how long to wait until the next step is possible, and until what the run changed is ready. "
    "After that, the next run continues.",
)
@flags.max_deletes("mirrors")
@flags.metrics
@flags.min_severity(
    "Report only findings that are at least this severe, and count only those for --check. Writes and failures are "
    "always reported. Default is warning; info with -v."
)
@flags.run_options(Options, f"Namespace of the mirrors' resources and credentials; default is {NAMESPACE}.")
def command(context: click.Context, options: Options) -> None:
    """Audit the registry caches that RegistryMirrors define. They are pull-through caches.

    Reports which resources of a mirror are missing, drifted, not working or not safe. docs/mirror-audit.md explains the
    cause of each finding and its remedy. Changes only the status of RegistryMirrors. With --repair it repairs step by
    step, and prints what a person must do for the rest. Exits 0 when the run is complete, whatever it found; 1 when a
    retry is useful; 2 when a person must act first; 3 with --check when there are findings; 4 when the deletion brake
    blocked a deletion.

    \b
    Examples:
      chores mirror-audit                            audit, and update the statuses
      chores mirror-audit --check --diff             change nothing, print desired and actual values
      chores mirror-audit --probe service-proxy      from a laptop: probe mirrors through the API server
      chores mirror-audit -f mirrors.yaml -o json    audit the mirrors in a file
      chores mirror-audit --min-severity critical    report only findings that are critical
      chores mirror-audit --images --check           also report images that registries do not have
      chores mirror-audit --repair --dry-run         print the first steps of a repair
    """
    if not options.repair and (options.allow_cache_loss or options.wait):
        given = [name for name in ("allow_cache_loss", "wait") if getattr(options, name)]
        names = " and ".join(flags.named(context, name) for name in given)
        raise click.UsageError(f"{names} cannot be used without --repair.")
    if options.repair and options.images:
        raise click.UsageError(f"{flags.named(context, 'images')} cannot be used with --repair.")
    context.exit(run(job(options), options))
