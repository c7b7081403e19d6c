"""farm-pods: an inventory of pods for users without permission to read pods, one FarmPod for each.

FarmPods are compared with the pods of the namespaces that opted in. Each FarmPod is owned by its pod, so that the
garbage collector deletes it. The job has no permission to delete. The parts are in jobs/farm: farm_pod, observed,
evaluate, brake.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

import click

from jobs.farm.brake import block_creates
from jobs.farm.evaluate import collision, evaluate, unchanged, undecoded, without_pods
from jobs.farm.farm_pod import FARM_PODS, NAME, PODS, FarmPod, FarmPodObject, Pod, PodObject
from jobs.farm.observed import MAX_OBJECTS, WRITES_PER_SECOND, Observed, Settings
from jobs.kit import options
from jobs.kit.cluster import Cluster, InvalidObject, retry_if_expired, without_invalid
from jobs.kit.connect import Connection
from jobs.kit.custom_resources import not_installed
from jobs.kit.errors import ApiError
from jobs.kit.model import Finding, Need, ObjectKey, Plan, Severity
from jobs.kit.objects import NAMESPACES, PartialObject
from jobs.kit.runner import Job, run

OPT_IN = "kubechores.dev/farm"


def settings(_connection: Connection, run_options: options.RunOptions, max_objects: int) -> Settings:
    """Return the settings. The context's namespace is ignored: only -n limits a run to one namespace."""
    return Settings(run_options.namespace or "", max_objects, diff=run_options.diff, verbose=run_options.verbose)


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read FarmPods, then namespaces, then their pods.

    In this order a FarmPod in the list is never newer than its pod, even if another run writes meanwhile.

    Raises:
        ConfigurationError: the CRD is not installed.
        ApiError: FarmPods or namespaces cannot be read; without them nothing can be evaluated.
    """
    try:
        farm_pods, invalid = retry_if_expired(partial(_farm_pods, cluster, settings.namespace))
    except ApiError as error:
        if error.status != 404:
            raise
        raise not_installed(FARM_PODS) from error
    if settings.namespace:
        namespaces = [settings.namespace]
    else:
        namespaces, more = retry_if_expired(partial(_namespaces, cluster))
        invalid = [*invalid, *more]
    pods: list[Pod] = []
    failures = []
    for namespace in namespaces:
        try:
            found, more = retry_if_expired(partial(_pods, cluster, namespace))
        except ApiError as error:
            failures.append(_unreadable(namespace, error))
        else:
            pods += found
            invalid = [*invalid, *more]
    return Observed(
        namespaces, pods, farm_pods, tuple(failures), tuple(undecoded(each.key, each.error) for each in invalid)
    )


def _farm_pods(cluster: Cluster, namespace: str) -> tuple[dict[ObjectKey, FarmPod], Sequence[InvalidObject]]:
    """Return all FarmPods, also those of others: so a conflict is found without a write."""
    invalid: list[InvalidObject] = []
    objects = cluster.objects(FARM_PODS, FarmPodObject, _with_key, namespace=namespace)
    return dict(without_invalid(objects, invalid)), invalid


def _with_key(read: FarmPodObject) -> tuple[ObjectKey, FarmPod]:
    at = read.metadata
    return ObjectKey(FARM_PODS.kind, at.name, sys.intern(at.namespace)), read.reduced


def _namespaces(cluster: Cluster) -> tuple[list[str], Sequence[InvalidObject]]:
    """Return the names of the namespaces that opted in, without those in phase Terminating."""
    invalid: list[InvalidObject] = []
    objects = cluster.objects(
        NAMESPACES,
        PartialObject,
        lambda each: (each.metadata.name, each.metadata.deletion_timestamp is None),
        selector=f"{OPT_IN}=true",
        metadata_only=True,
    )
    return sorted(name for name, stays in without_invalid(objects, invalid) if stays), invalid


def _pods(cluster: Cluster, namespace: str) -> tuple[list[Pod], Sequence[InvalidObject]]:
    """Return the pods of a namespace. A list of all namespaces would be larger if only a few opted in."""
    invalid: list[InvalidObject] = []
    objects = cluster.objects(PODS, PodObject, lambda each: each.reduced, namespace=namespace)
    return list(without_invalid(objects, invalid)), invalid


def _unreadable(namespace: str, error: ApiError) -> Finding:
    remedy = "; the manifests in cronjobs/ grant the permissions that this job needs" if error.is_permission else ""
    reason = f"its pods cannot be read: {error.message}{remedy}"
    key = ObjectKey(NAMESPACES.kind, namespace)
    return Finding("unreadable", Severity.ERROR, key, reason, exit_code=error.exit_code)


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare each pod with its FarmPod: the same input gives the same findings in the same order."""
    places = _places(observed)
    findings = [*observed.failures, *observed.invalid, *without_pods(observed, places.keys())]
    needs: list[Need] = []
    unchanged_count = 0
    for pods in places.values():
        result = collision(pods) if len(pods) > 1 else evaluate(pods[0], observed, settings)
        if isinstance(result, Need):
            needs.append(result)
        elif result:
            findings.append(result)
        else:
            unchanged_count += 1
            findings += [unchanged(pods[0])] if settings.verbose else []
    managed = sum(each.managed for each in observed.farm_pods.values())
    sizes = Counter(place.namespace for place in places)
    braked, brakes = block_creates(findings, managed, sizes, settings.max_objects)
    return Plan(
        # Writes are rate limited, and a run may reach its deadline: so namespaces with many pods come last.
        tuple(sorted(braked, key=lambda finding: (sizes[finding.object.namespace], finding.object, finding.code))),
        unchanged_count,
        tuple(sorted(needs)),
        {"pods": sum(1 for _ in _not_terminating(observed)), "namespaces": len(observed.namespaces)},
        _note(observed, settings),
        brakes=brakes,
    )


def _not_terminating(observed: Observed) -> Iterator[Pod]:
    return (pod for pod in observed.pods if not pod.terminating)


def _places(observed: Observed) -> Mapping[ObjectKey, Sequence[Pod]]:
    places: dict[ObjectKey, tuple[Pod, ...]] = {}
    for pod in _not_terminating(observed):
        place = pod.place
        places[place] = (*places.get(place, ()), pod)
    return places


def _note(observed: Observed, settings: Settings) -> str:
    if settings.namespace:
        return f"no pod in namespace {settings.namespace}"
    return (
        "no pod in the labelled namespaces" if observed.namespaces else f"no active namespace is labelled {OPT_IN}=true"
    )


@click.command(NAME)
@options.option(
    "--max-objects",
    default=MAX_OBJECTS,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Limit of the number of FarmPods, in all namespaces or in that of -n. A namespace gets all of its"
    " FarmPods or none, the smallest namespace first.",
)
@options.option(
    "--writes-per-second",
    default=WRITES_PER_SECOND,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Send at most N writes a second. The next run resumes a run that was stopped.",
)
@options.run_options(f"Process only this namespace, labelled or not; default is all that are labelled {OPT_IN}=true.")
@click.pass_context
def command(context: click.Context, options: options.RunOptions, max_objects: int, writes_per_second: int) -> None:
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
    job = Job(
        NAME,
        {FARM_PODS.kind: FARM_PODS, PODS.kind: PODS},
        lambda connection: settings(connection, options, max_objects),
        observe,
        plan,
        writes_per_second=writes_per_second,
    )
    context.exit(run(job, options))
