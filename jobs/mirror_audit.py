"""mirror-audit: whether the pull-through caches that RegistryMirrors ask for are there, as asked for, and at work.

What is in the cluster is read with one list for each kind, whatever the number of mirrors, and held against the object
that stands for each mirror and its outgoing resources. The parts are in jobs/mirrors: registry_mirrors, mirror,
manifests, seen, drift, children, endpoints, answers, events, verdicts, repairs, removals, codes, findings, status.
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
from jobs.mirrors.actual import Object, decode_resource, in_the_way
from jobs.mirrors.endpoints import Endpoints, Slice, of_services, ready
from jobs.mirrors.evaluate import audit, unchanged
from jobs.mirrors.events import WARNINGS, Event, Quotes, keep, most_telling, quoted
from jobs.mirrors.manifests import DAEMON_SETS, STATEFUL_SETS
from jobs.mirrors.mirror import CACHE_PORT, NAME, NODE_IMAGE, NODE_NAMESPACE, stateful_set_of
from jobs.mirrors.observed import (
    CHILD_KINDS,
    NAMESPACE,
    NODES,
    SERVICE_PROXY,
    SLICES,
    STORAGE_CLASSES,
    Observed,
    Probing,
    Settings,
)
from jobs.mirrors.registry_mirrors import REGISTRY_MIRRORS, RegistryMirror, parse_registry_mirror
from jobs.mirrors.resources import is_at_work, ordinals
from jobs.mirrors.status import status_updates

REPAIR = "mirror-repair"  # the CronJob with the rights to repair
_LINUX = "kubernetes.io/os=linux"
Reduced = TypeVar("Reduced")
_RESOURCES = (*CHILD_KINDS, EVENTS, REGISTRY_MIRRORS, SECRETS, SERVICE_PROXY, STORAGE_CLASSES)


def settings(connection: Connection, run_options: options.RunOptions, given: Mapping[str, Any]) -> Settings:
    """Return the settings.

    Raises:
        ConfigurationError: with all problems of all RegistryMirrors in files.
    """
    filenames = given["filenames"]
    probing = Probing(given["probe"] or (Probing.NETWORK if connection.in_pod else Probing.NONE))
    if probing is Probing.NONE:
        log.log.info("%s: whether mirrors and upstreams answer is not asked; see --probe", NAME)
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
    """Read what is there, then the RegistryMirrors: what an overlapping run makes is never left over then.

    Raises:
        ConfigurationError: the CRD is missing.
        ApiError: RegistryMirrors cannot be read, without which nothing can be said.
    """
    denied: dict[str, ApiError] = {}

    def read(kind: str, reading: Callable[[], Reduced]) -> Reduced | None:
        try:
            return retry_if_expired(reading)
        except ApiError as error:
            denied[kind] = error
            return None

    children: dict[ObjectKey, Object] = {}
    invalid: list[InvalidObject] = []
    for resource in CHILD_KINDS:
        children |= read(resource.kind, partial(_objects, cluster, resource, settings.namespace, invalid)) or {}
    # Earlier versions made DaemonSets where registries are.
    children |= read(DAEMON_SETS.kind, partial(_objects, cluster, DAEMON_SETS, NODE_NAMESPACE, invalid)) or {}
    quotes: Quotes = {}
    if not all(is_at_work(key.kind, each) for key, each in children.items()):
        for namespace in (settings.namespace, NODE_NAMESPACE):
            read(EVENTS.kind, partial(_events, cluster, namespace, children, quotes))
    endpoints = read(SLICES.kind, partial(_endpoints, cluster, settings.namespace, children, invalid)) or {}
    nodes = read(NODES.kind, partial(_nodes, cluster)) or 0
    mirrors, invalid_mirrors = _mirrors(cluster, settings)
    errors = {each.key: each.error for each in invalid}
    return Observed(mirrors, invalid_mirrors, children, errors, endpoints, nodes, denied, events=most_telling(quotes))


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
            found[each.key] = in_the_way(each.key)
        else:
            found[each[0]] = each[1]
    return found


def _events(cluster: Cluster, namespace: str, children: Mapping[ObjectKey, Object], quotes: Quotes) -> None:
    """Keep what Warnings say of resources of mirrors; one that cannot be decoded says nothing."""
    reduce = partial(quoted, namespace=namespace)
    for each in cluster.objects(EVENTS, Event, reduce, namespace=namespace, fields=WARNINGS):
        if isinstance(each, InvalidObject) or each.quote.about not in children:
            continue
        if each.is_of(children[each.quote.about]):
            keep(quotes, each.quote, each.time)


def _endpoints(
    cluster: Cluster, namespace: str, children: Mapping[ObjectKey, Object], invalid: list[InvalidObject]
) -> dict[str, Endpoints]:
    """Return who is behind each Service."""
    slices = cluster.objects(SLICES, Slice, partial(ready, namespace), namespace=namespace)
    return of_services(without_invalid(slices, invalid), partial(_is_own, children, namespace))


def _is_own(children: Mapping[ObjectKey, Object], namespace: str, service: str, pod: str) -> bool:
    """Whether the StatefulSet behind a Service has a pod of this name."""
    name = stateful_set_of(service)
    prefix, _, number = pod.rpartition("-")
    if prefix != name or not number.isdecimal() or number != str(int(number)):
        return False
    return int(number) in ordinals(children.get(ObjectKey(STATEFUL_SETS.kind, name, namespace)))


def _nodes(cluster: Cluster) -> int:
    """Return how many nodes there are, whatever else they say."""
    return sum(1 for _ in cluster.objects(NODES, Raw, len, selector=_LINUX, metadata_only=True))


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Hold what is there against what the mirrors ask for: the same input gives the same findings in the same order."""
    found = audit(observed, settings)
    findings = [*found.findings, *map(_invalid, observed.invalid_mirrors)]
    findings += [
        Finding("skipped", Severity.INFO, each.head.key, "is being deleted", subjects=(each.name,))
        for each in observed.mirrors
        if each.head.terminating
    ]
    if settings.verbose:
        findings += [unchanged(mirror, key) for mirror, key in found.right]
    return Plan(
        tuple(sorted(findings, key=lambda each: (each.object, each.code, each.subjects))),
        len(found.right),
        tuple(sorted(set(found.needs))),
        {"mirrors": len(observed.mirrors)},
        ""
        if observed.mirrors or observed.invalid_mirrors or observed.denied
        else f"no {REGISTRY_MIRRORS.kind} in the cluster",
        urls=tuple(found.urls),
        brakes=tuple(found.brakes),
        by_subject=True,
        may_progress=found.may_progress,
        pending=found.pending,
    )


def _invalid(invalid_mirrors: Invalid) -> Finding:
    key, reason = invalid_mirrors.head.key, "; ".join(invalid_mirrors.problems)
    return Finding("invalid", Severity.ERROR, key, reason, subjects=(key.name,), exit_code=ExitCode.REFUSED)


def conditions(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return what the statuses of RegistryMirrors should say: of those in the cluster that are not pending."""
    if settings.mirrors is not None:
        return []
    heads = [*(each.head for each in observed.mirrors), *(each.head for each in observed.invalid_mirrors)]
    final = (head for head in heads if not head.terminating and head.key.name not in plan.pending)
    active = sorted(final, key=lambda head: head.key)
    return status_updates(active, results, now, asked=settings.probing is Probing.NETWORK)


def _is_of_a_mirror(url: str) -> bool:
    """Whether what a URL says may change by what a repair writes; upstreams answer as they do."""
    return url.startswith("http://")


def _is_probe(url: str) -> bool:
    """Whether a URL is of a registry or of its cache: who writes a RegistryMirror chooses the host."""
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
    help="How to ask mirrors and upstreams whether they answer: over the network, the default in a pod; mirrors alone, "
    "through the API server's service proxy, which takes the right to get services/proxy; or not at all, the default "
    "elsewhere.",
)
@options.option(
    "--node-image",
    metavar="IMAGE",
    help=f"The image of kube-chores as nodes pull it, which the DaemonSets should have. Default is {NODE_IMAGE} in a "
    "pod; elsewhere each keeps the one it has.",
)
@options.option(
    "--repair", is_flag=True, help="Make what is missing, set right what drifted, remove what is left over."
)
@options.option(
    "--allow-cache-loss",
    is_flag=True,
    help="With --repair: make a claim anew where nothing else helps, and delete those of mirrors that are gone.",
)
@options.option(
    "--wait",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="With --repair: how long to wait for what the next step hangs on, such as a mirror that starts; else the next "
    "run goes on.",
)
@options.max_deletes("mirrors")
@options.run_options(f"Namespace of the mirrors' resources and credentials; default is {NAMESPACE}.")
@click.pass_context
def command(context: click.Context, /, options: options.RunOptions, **given: Any) -> None:
    """Audit the registry caches that RegistryMirrors define. They are pull-through caches.

    Says what of a mirror is missing, not as asked for, not at work or not safe; docs/mirror-audit.md explains the cause
    of each finding and what to do. Changes nothing but the status of RegistryMirrors; with --repair it does what can be
    done, step by step, and says of the rest what a person must do. Exits 0 when that is done, whatever it found, 1 when
    a retry is useful, 2 when a person must act first, 3 with --check when anything is not as it should be, 4 when the
    deletion brake held something back.

    \b
    Examples:
      chores mirror-audit                            audit, and tell the statuses
      chores mirror-audit --check --diff             change nothing, show wanted and actual values
      chores mirror-audit --probe service-proxy      from a laptop: ask mirrors through the API server
      chores mirror-audit -f mirrors.yaml -o json    what mirrors in a file would find
      chores mirror-audit --repair --dry-run         what a repair would do first
    """
    if not given["repair"] and (given["allow_cache_loss"] or given["wait"]):
        raise click.UsageError("--allow-cache-loss and --wait go with --repair.")
    if given["filenames"] and options.dry_run is DryRun.NONE:
        options = replace(options, dry_run=DryRun.CLIENT)
    job = Job(
        NAME,
        {resource.kind: resource for resource in _RESOURCES},
        lambda connection: settings(connection, options, given),
        observe,
        plan,
        conditions,
        max_deletes=sys.maxsize,  # the plan has a brake of its own, which counts mirrors
        refetches=_is_of_a_mirror,
        is_probe=_is_probe,
        cronjob=REPAIR if given["repair"] else NAME,
        steps=given["repair"],
        wait_seconds=given["wait"],
        needs_namespace=not given["filenames"],
    )
    context.exit(run(job, options))
