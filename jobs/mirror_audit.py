"""mirror-audit: check that the pull-through caches that RegistryMirrors define exist, have not drifted, and work.

A run reads the cluster with one list request for each kind, whatever the number of mirrors, and compares it with the
desired resources of each mirror. The parts are in jobs/core/mirror_audit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from jobs.core.mirror_audit.desired.mirror import CACHE_PORT, NAME, NODE_IMAGE
from jobs.core.mirror_audit.observe import observe
from jobs.core.mirror_audit.observed import NAMESPACE, RESOURCE_KINDS, Probing, Settings
from jobs.core.mirror_audit.plan import plan
from jobs.core.mirror_audit.registry_mirrors import parse_registry_mirror
from jobs.core.mirror_audit.status import conditions
from jobs.kit.api.connect import Connection
from jobs.kit.api.custom_resources import from_files
from jobs.kit.run import log, options
from jobs.kit.run.runner import Job, run
from jobs.kit.values.model import DryRun
from jobs.kit.values.resources import (
    EVENTS,
    REGISTRY_MIRRORS,
    SECRETS,
    SERVICE_PROXY,
    STORAGE_CLASSES,
)

REPAIR = "mirror-repair"  # the CronJob with the rights to repair
_RESOURCES = (*RESOURCE_KINDS, EVENTS, REGISTRY_MIRRORS, SECRETS, SERVICE_PROXY, STORAGE_CLASSES)


def settings(connection: Connection, run_options: options.RunOptions, given: Mapping[str, Any]) -> Settings:
    """Combine options and connection into the settings of a run.

    Raises:
        ConfigurationError: all problems of all RegistryMirrors in files.
    """
    filenames = given["filenames"]
    probing = Probing(given["probe"] or (Probing.NETWORK if connection.in_pod else Probing.NONE))
    if probing is Probing.NONE:
        log.log.info("%s: mirrors and upstreams are not probed; see --probe", NAME)
    mirrors = from_files(filenames, REGISTRY_MIRRORS, parse_registry_mirror, "") if filenames else None
    return Settings(
        run_options.namespace or NAMESPACE,
        given["node_image"] or (NODE_IMAGE if connection.in_pod else ""),
        probing,
        mirrors,
        diff=run_options.diff,
        verbose=run_options.verbose,
        repair=given["repair"],
        allow_cache_loss=given["allow_cache_loss"],
        max_deletes=given["max_deletes"],
    )


def _is_mirror_url(url: str) -> bool:
    """Return whether a write of a repair can change the response of a URL: mirrors yes, upstreams no."""
    return url.startswith("http://")


def _is_probe(url: str) -> bool:
    """Return whether a URL is that of a registry or its cache: the author of a RegistryMirror chooses the host."""
    return url.endswith(("/v2/", f":{CACHE_PORT}/"))


@click.command(NAME)
@options.option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    metavar="FILE",
    help="Read RegistryMirrors from this file, folder or - instead of the cluster. Implies a dry run; needs no CRD.",
)
@options.option(
    "--probe",
    type=click.Choice([each.value for each in Probing]),
    help="How to probe mirrors and upstreams. network is the default in a pod. service-proxy probes only mirrors, "
    "through the API server, and requires permission to get services/proxy. none is the default elsewhere.",
)
@options.option(
    "--node-image",
    metavar="IMAGE",
    help=f"Image of kube-chores for the DaemonSets, as nodes pull it. Default is {NODE_IMAGE} in a pod; elsewhere each "
    "DaemonSet keeps its image.",
)
@options.option("--repair", is_flag=True, help="Create missing resources, correct drifted ones, and delete orphans.")
@options.option(
    "--allow-cache-loss",
    is_flag=True,
    help="With --repair: recreate claims that cannot be corrected, and delete the claims of deleted mirrors.",
)
@options.option(
    "--wait",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="With --repair: how long to wait until the next step is possible, for example until a mirror is ready. After "
    "that, the next run continues.",
)
@options.max_deletes("mirrors")
@options.run_options(f"Namespace of the mirrors' resources and credentials; default is {NAMESPACE}.")
@click.pass_context
def command(context: click.Context, /, options: options.RunOptions, **given: Any) -> None:
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
      chores mirror-audit --repair --dry-run         print the first steps of a repair
    """
    if not given["repair"] and (given["allow_cache_loss"] or given["wait"]):
        raise click.UsageError("--allow-cache-loss and --wait require --repair.")
    if given["filenames"] and options.dry_run is DryRun.NONE:
        options = replace(options, dry_run=DryRun.CLIENT)
    job = Job(
        NAME,
        {resource.kind: resource for resource in _RESOURCES},
        lambda connection: settings(connection, options, given),
        observe,
        plan,
        conditions,
        max_deletes=sys.maxsize,  # the plan has its own brake, which counts mirrors
        refetches=_is_mirror_url,
        is_probe=_is_probe,
        cronjob=REPAIR if given["repair"] else NAME,
        steps=given["repair"],
        wait_seconds=given["wait"],
        needs_namespace=not given["filenames"],
    )
    context.exit(run(job, options))
