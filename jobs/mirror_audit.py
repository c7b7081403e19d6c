"""mirror-audit: check that the pull-through caches that RegistryMirrors define exist, have not drifted, and work.

A run reads the cluster with one list request for each kind, whatever the number of mirrors, and compares it with the
desired resources of each mirror. The parts in jobs/mirrors, in the order of a run: observed, actual, endpoints, events,
registry_mirrors, mirror, manifests, evaluate, resources, drift, probes, repairs, removals, codes, findings, status.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import click
from msgspec import Raw

from jobs.kit import log, options
from jobs.kit.apply import DryRun
from jobs.kit.cluster import Cluster, InvalidObject, retry_if_expired, without_invalid
from jobs.kit.conditions import StatusUpdate
from jobs.kit.connect import Connection
from jobs.kit.custom_resources import Invalid, from_cluster, from_files
from jobs.kit.errors import ApiError
from jobs.kit.model import ExitCode, Finding, ObjectKey, Plan, Result, Severity
from jobs.kit.objects import EVENTS, SECRETS, Resource
from jobs.kit.runner import Job, run
from jobs.mirrors.actual import Object, decode_resource, placeholder
from jobs.mirrors.endpoints import Endpoints, Slice, by_service, ready
from jobs.mirrors.evaluate import audit, unchanged
from jobs.mirrors.events import WARNINGS, Event, Quotes, keep, most_informative, quoted
from jobs.mirrors.manifests import DAEMON_SETS, STATEFUL_SETS
from jobs.mirrors.mirror import CACHE_PORT, NAME, NODE_IMAGE, NODE_NAMESPACE, stateful_set_of
from jobs.mirrors.observed import (
    NAMESPACE,
    NODES,
    RESOURCE_KINDS,
    SERVICE_PROXY,
    SLICES,
    STORAGE_CLASSES,
    Observed,
    Probing,
    Settings,
)
from jobs.mirrors.registry_mirrors import REGISTRY_MIRRORS, RegistryMirror, parse_registry_mirror
from jobs.mirrors.resources import is_working, ordinals
from jobs.mirrors.status import status_updates

REPAIR = "mirror-repair"  # the CronJob with the rights to repair
_LINUX = "kubernetes.io/os=linux"
Reduced = TypeVar("Reduced")
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


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read the resources, then the RegistryMirrors.

    In this order, a resource that an overlapping run creates meanwhile is never an orphan.

    Raises:
        ConfigurationError: the CRD is missing.
        ApiError: the list of RegistryMirrors failed; without it there is no audit.
    """
    list_errors: dict[str, ApiError] = {}

    def read(kind: str, reading: Callable[[], Reduced]) -> Reduced | None:
        try:
            return retry_if_expired(reading)
        except ApiError as error:
            list_errors[kind] = error
            return None

    resources: dict[ObjectKey, Object] = {}
    invalid: list[InvalidObject] = []
    for resource in RESOURCE_KINDS:
        resources |= read(resource.kind, partial(_objects, cluster, resource, settings.namespace, invalid)) or {}
    # Both namespaces: earlier versions created DaemonSets in that of the registries.
    resources |= read(DAEMON_SETS.kind, partial(_objects, cluster, DAEMON_SETS, NODE_NAMESPACE, invalid)) or {}
    quotes: Quotes = {}
    if not all(is_working(key.kind, each) for key, each in resources.items()):
        for namespace in (settings.namespace, NODE_NAMESPACE):
            read(EVENTS.kind, partial(_events, cluster, namespace, resources, quotes))
    endpoints = read(SLICES.kind, partial(_endpoints, cluster, settings.namespace, resources, invalid)) or {}
    nodes = read(NODES.kind, partial(_nodes, cluster)) or 0
    mirrors, invalid_mirrors = _mirrors(cluster, settings)
    errors = {each.key: each.error for each in invalid}
    return Observed(
        mirrors, invalid_mirrors, resources, errors, endpoints, nodes, list_errors, events=most_informative(quotes)
    )


def _mirrors(cluster: Cluster, settings: Settings) -> tuple[tuple[RegistryMirror, ...], tuple[Invalid, ...]]:
    if settings.mirrors is not None:
        return settings.mirrors, ()
    return from_cluster(cluster, REGISTRY_MIRRORS, parse_registry_mirror)


def _objects(
    cluster: Cluster, resource: Resource, namespace: str, invalid: list[InvalidObject]
) -> dict[ObjectKey, Object]:
    found: dict[ObjectKey, Object] = {}
    for each in cluster.objects(resource, Raw, partial(decode_resource, resource, namespace), namespace=namespace):
        if isinstance(each, InvalidObject):
            invalid.append(each)
            found[each.key] = placeholder(each.key)
        else:
            found[each[0]] = each[1]
    return found


def _events(cluster: Cluster, namespace: str, resources: Mapping[ObjectKey, Object], quotes: Quotes) -> None:
    """Keep quotes of Warning Events about resources of mirrors. Events that cannot be decoded are ignored."""
    reduce = partial(quoted, namespace=namespace)
    for each in cluster.objects(EVENTS, Event, reduce, namespace=namespace, fields=WARNINGS):
        if isinstance(each, InvalidObject) or each.quote.about not in resources:
            continue
        if each.is_of(resources[each.quote.about]):
            keep(quotes, each.quote, each.time)


def _endpoints(
    cluster: Cluster, namespace: str, resources: Mapping[ObjectKey, Object], invalid: list[InvalidObject]
) -> dict[str, Endpoints]:
    slices = cluster.objects(SLICES, Slice, partial(ready, namespace), namespace=namespace)
    return by_service(without_invalid(slices, invalid), partial(_is_own, resources, namespace))


def _is_own(resources: Mapping[ObjectKey, Object], namespace: str, service: str, pod: str) -> bool:
    """Return whether the StatefulSet of a Service has a pod of this name."""
    name = stateful_set_of(service)
    prefix, _, number = pod.rpartition("-")
    if prefix != name or not number.isdecimal() or number != str(int(number)):
        return False
    return int(number) in ordinals(resources.get(ObjectKey(STATEFUL_SETS.kind, name, namespace)))


def _nodes(cluster: Cluster) -> int:
    """Return the number of Linux nodes; their content is not decoded."""
    return sum(1 for _ in cluster.objects(NODES, Raw, len, selector=_LINUX, metadata_only=True))


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare the cluster with what RegistryMirrors define. The same input gives the same findings, sorted."""
    found = audit(observed, settings)
    findings = [*found.findings, *map(_invalid, observed.invalid_mirrors)]
    findings += [
        Finding("skipped", Severity.INFO, each.head.key, "is being deleted", subjects=(each.name,))
        for each in observed.mirrors
        if each.head.terminating
    ]
    if settings.verbose:
        findings += [unchanged(mirror, key) for mirror, key in found.healthy]
    return Plan(
        tuple(sorted(findings, key=lambda each: (each.object, each.code, each.subjects))),
        len(found.healthy),
        tuple(sorted(set(found.needs))),
        {"mirrors": len(observed.mirrors)},
        ""
        if observed.mirrors or observed.invalid_mirrors or observed.list_errors
        else f"no {REGISTRY_MIRRORS.kind} in the cluster",
        urls=tuple(found.urls),
        brakes=tuple(found.brakes),
        by_subject=True,
        may_progress=found.may_progress,
        pending=found.pending,
    )


def _invalid(invalid_mirror: Invalid) -> Finding:
    key, reason = invalid_mirror.head.key, "; ".join(invalid_mirror.problems)
    return Finding("invalid", Severity.ERROR, key, reason, subjects=(key.name,), exit_code=ExitCode.REFUSED)


def conditions(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of the RegistryMirrors in the cluster that are not pending."""
    if settings.mirrors is not None:
        return []
    heads = [*(each.head for each in observed.mirrors), *(each.head for each in observed.invalid_mirrors)]
    final = (head for head in heads if not head.terminating and head.key.name not in plan.pending)
    active = sorted(final, key=lambda head: head.key)
    return status_updates(active, results, now, probed=settings.probing is Probing.NETWORK)


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
