"""List the workloads, select those that opted in, and read what they use: tenants choose the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from msgspec.structs import replace

from jobs.core.roll_workloads.baseline import NoKeyError
from jobs.core.roll_workloads.observed import (
    BATCH_KINDS,
    Observed,
    OptIn,
    Settings,
    first_of_each_namespace,
    invalid_value,
    opt_in,
    opt_in_of,
    reduced,
)
from jobs.core.roll_workloads.schedule import Annotations, annotations_of
from jobs.core.roll_workloads.workloads import KINDS, Document, Workload
from jobs.core.roll_workloads.workloads import reduced as reduced_workload
from jobs.kit.api.cluster import Cluster, List, complete
from jobs.kit.values.errors import ApiError, ConfigurationError, no_such_namespace
from jobs.kit.values.model import Dependency, Finding, ObjectKey, Severity
from jobs.kit.values.reads import (
    InvalidObject,
    NamespaceObject,
    PartialObject,
    read_failure,
    string_map,
    unreadable,
)
from jobs.kit.values.resources import KEY_NAME, NAMESPACES, ROLLOUTS, Resource

# To read one workload costs the server as much as to list ten in full (docs/performance.md). A list is more data.
_OBJECTS_PER_READ = 4
_MOST_READS = 250  # of one kind and namespace; a list of more workloads takes less memory, which `Bounds` limits

_ARGO = (
    "component cronjobs/components/argo-rollouts grants the permissions (Helm: jobs.roll-workloads.argoRollouts); "
    "without --argo-rollouts, none are needed"
)
_NO_KEY = f"its Secret is not set; use --key-secret kube-chores/{KEY_NAME}, with the namespace of your installation"

_Place = tuple[str, str]  # a kind and a namespace
_ALL = "(all)"


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """List the workloads and select those that opted in; a list that fails does not stop the others.

    Raises:
        ApiError: namespaces cannot be listed, which every evaluation needs.
    """
    opted_in_spaces, terminating_spaces, schedules, failures = _namespaces(cluster, settings.namespace)
    candidates: list[ObjectKey] = []
    mistakes: list[Finding] = []
    numbers: Counter[_Place] = Counter()
    for resource, found in cluster.lists(
        _of_metadata(each, settings, opted_in_spaces) for each in (*settings.kinds, *BATCH_KINDS)
    ):
        if isinstance(found, ApiError):
            failures.append(_list_failed(resource, found))
            continue
        failures += [_undecoded(each) for each in found if isinstance(each, InvalidObject)]
        with_annotation = [each for each in found if isinstance(each, OptIn)]
        mistakes += [mistake for each in with_annotation if (mistake := each.mistake())]
        candidates += [each.key for each in with_annotation if each.is_opted_in]
        numbers.update((resource.kind, each) for each in found if isinstance(each, str))
        numbers.update((resource.kind, each.key.namespace) for each in with_annotation)
    opted_in = sorted(key for key in candidates if key.namespace not in terminating_spaces)
    others: list[ObjectKey] = []
    if settings.only:
        name, mistakes = settings.only.name, []
        others = [key for key in opted_in if key.name != name and key.kind == ROLLOUTS.kind]
        opted_in = [key for key in opted_in if key.name == name]
        if not opted_in and not any(each.code == "unreadable" for each in failures):
            raise _not_opted_in(settings.only)
    terminating = [
        Finding("skipped", Severity.INFO, key, f"namespace {key.namespace} is terminating")
        for key in candidates
        if key.namespace in terminating_spaces
    ]
    no_key = None if settings.key_secret else NoKeyError(_NO_KEY)
    shown = mistakes if settings.run.verbose else first_of_each_namespace(mistakes)
    namespaces = tuple(sorted(opted_in_spaces - terminating_spaces))
    bounds = Bounds()
    workloads = _list_in_full(cluster, (*opted_in, *others), numbers, bounds)
    findings = (*failures, *shown, *terminating, *bounds.findings())
    kept, others_kept = (tuple(each for each in keys if each not in bounds.left_out) for keys in (opted_in, others))
    return Observed(
        kept,
        findings,
        settings.key_secret,
        settings.new_key,
        no_key,
        workloads,
        namespaces=namespaces,
        schedules=schedules,
        other_rollouts=others_kept,
    )


def _not_opted_in(only: ObjectKey) -> ConfigurationError:
    where = f"{only.namespace}/{only.name}"
    return ConfigurationError(
        f"--now {where}: no workload of this name opted in; see chores roll-workloads --explain {where}"
    )


def observe_with_listed(where: ObjectKey, cluster: Cluster, settings: Settings) -> Observed:
    """Observe as a run does, and list the workloads in a namespace, also without an annotation; or those of a name.

    Raises:
        ApiError: namespaces or the workloads cannot be listed.
        ConfigurationError: the namespace does not exist.
    """
    opted_in = _opted_in_namespaces(where, cluster, settings)
    observed = observe(cluster, settings)
    fields = f"metadata.name={where.name}" if where.name else ""
    listed: list[OptIn] = []
    failed = {each.object.kind for each in observed.failures if each.object.name == _ALL}
    for resource in (each for each in settings.kinds if each.kind not in failed):
        reduce = partial(opt_in_of, resource.kind, opted_in)
        objects = partial(cluster.objects, namespace=where.namespace, fields=fields, metadata_only=True)
        found, _ = complete(objects, resource, PartialObject, reduce)
        listed += found
    return replace(observed, listed=tuple(sorted(listed, key=lambda each: each.key)))


def _opted_in_namespaces(where: ObjectKey, cluster: Cluster, settings: Settings) -> frozenset[str]:
    try:
        found, invalid = _list_namespaces(cluster)
    except ApiError as error:
        if settings.namespace and _is_forbidden(error):
            return frozenset()  # as in a run with -n
        raise
    names = {key.name for key in (*found, *(each.key for each in invalid))}
    if where.namespace not in names:
        raise no_such_namespace(where.namespace, names)
    return frozenset(key.name for key, each in found.items() if each.value == "true")


def _namespaces(
    cluster: Cluster, only: str
) -> tuple[frozenset[str], frozenset[str], Mapping[str, Annotations], list[Finding]]:
    """Return namespaces that opted in, those that are terminating, and schedules.

    With -n, permission to list namespaces is optional.
    """
    try:
        found, invalid = _list_namespaces(cluster)
    except ApiError as error:
        if not (only and _is_forbidden(error)):
            raise
        reason = f"annotations of namespaces cannot be read: {error.message}"
        finding = Finding("skipped", Severity.INFO, ObjectKey(NAMESPACES.kind, only), reason)
        return frozenset(), frozenset(), {}, [finding]
    failures = [_undecoded(each) for each in invalid if only in ("", each.key.name)]
    selected = {key: each for key, each in found.items() if only in ("", key.name)}
    for key, each in selected.items():
        if not each.active:
            continue
        if each.value is not None and (mistake := invalid_value(key, each.value)):
            failures.append(mistake)
        if problems := each.schedule.problems():
            failures.append(Finding("invalid", Severity.WARNING, key, "; ".join(problems)))
    opted_in = frozenset(key.name for key, each in selected.items() if each.value == "true")
    terminating = frozenset(key.name for key, each in found.items() if not each.active)
    schedules = {key.name: each.schedule for key, each in selected.items() if each.schedule != Annotations()}
    return opted_in, terminating, schedules, failures


def _is_forbidden(error: ApiError) -> bool:
    """Return whether only the permission is missing; with invalid credentials, all other requests fail too."""
    return error.status == 403 and error.is_permission


class _Namespace(NamedTuple):
    """A namespace: its annotations, and whether it is active."""

    name: str
    value: str | None
    schedule: Annotations
    active: bool


def _list_namespaces(cluster: Cluster) -> tuple[dict[ObjectKey, _Namespace], Sequence[InvalidObject]]:
    found, invalid = complete(cluster.objects, NAMESPACES, NamespaceObject, _namespace)
    return {ObjectKey(NAMESPACES.kind, each.name): each for each in found}, invalid


def _namespace(read: NamespaceObject) -> _Namespace:
    at = read.metadata
    return _Namespace(at.name, opt_in(at), annotations_of(string_map(at.annotations)), read.active)


def _of_metadata(resource: Resource, settings: Settings, opted_in: frozenset[str]) -> List:
    """Return the request for the metadata of a kind, each object as `reduced` returns it."""
    reduce = partial(reduced, resource.kind, opted_in)
    return List(resource, PartialObject, reduce, settings.namespace, metadata_only=True, tag=resource, large=True)


def _list_in_full(
    cluster: Cluster, opted_in: Iterable[ObjectKey], numbers: Mapping[_Place, int], bounds: Bounds
) -> Mapping[ObjectKey, Workload | ApiError]:
    """Return the workloads of namespaces where many opted in; a run reads the others one by one.

    `numbers` are those of all workloads. If a list fails, its workloads are read one by one too; they get its error
    only if these reads would probably fail as well, after many retries.
    """
    by_place: dict[_Place, set[ObjectKey]] = {}
    for key in opted_in:
        by_place.setdefault((key.kind, key.namespace), set()).add(key)
    kinds = {each.kind: each for each in KINDS}
    requested = (
        List(kinds[kind], Document, partial(_kept, bounds, kind, keys), namespace, tag=keys, large=True)
        for (kind, namespace), keys in by_place.items()
        if len(keys) > _MOST_READS or (len(keys) > 1 and len(keys) * _OBJECTS_PER_READ >= numbers[kind, namespace])
    )
    found: dict[ObjectKey, Workload | ApiError] = {}
    for keys, objects in cluster.lists(requested):
        if isinstance(objects, ApiError):
            found |= {} if objects.is_of_one_request else dict.fromkeys(keys, objects)
            continue
        for each in objects:
            if each and each.key in keys:
                found[each.key] = each.error if isinstance(each, InvalidObject) else each
    return found


def _kept(bounds: Bounds, kind: str, keys: Container[ObjectKey], document: Document) -> Workload | None:
    key = ObjectKey(kind, document.metadata.name, document.metadata.namespace)
    if key not in keys:
        return None
    found = reduced_workload(key, document)
    return found if bounds.keep(found) else None


def _list_failed(resource: Resource, error: ApiError) -> Finding:
    """Return the finding for a kind that cannot be listed; Jobs and CronJobs are only listed to find mistakes."""
    key = ObjectKey(resource.kind, _ALL)
    if resource == ROLLOUTS and error.status == 404:
        return Finding("skipped", Severity.INFO, key, "Argo Rollouts is not installed")
    if resource in BATCH_KINDS and _is_forbidden(error):
        return Finding(
            "skipped", Severity.INFO, key, f"annotations of {resource.plural} are not checked: {error.message}"
        )
    return unreadable(key, error, read_failure(error, resource.plural, _ARGO * (resource == ROLLOUTS)))


def _undecoded(found: InvalidObject) -> Finding:
    return unreadable(found.key, found.error, read_failure(found.error, "the object"))


MOST_BYTES_OF_NAMESPACE = 16 << 20  # of its workloads, which are a few KiB each
MOST_OF_NAMESPACE = 5_000
MOST = 50_000  # a run reads about 500 in a second, and ends after 120
_MANY_SOURCES = (
    f"a run reads at most {MOST_OF_NAMESPACE} ConfigMaps and Secrets of a namespace, and {MOST} of all; the next run "
    "reads those of others"
)


class Bounds:
    """Which workloads a run keeps in memory: of each namespace, those that a list has first."""

    def __init__(self) -> None:
        self.left_out: set[ObjectKey] = set()
        self._kept: set[ObjectKey] = set()
        self._bytes: Counter[str] = Counter()

    def keep(self, workload: Workload) -> bool:
        """Return whether to keep this workload. If a list begins again, the answer is the same."""
        key = workload.key
        if key not in self._kept and key not in self.left_out:
            fits = self._bytes[key.namespace] + workload.size <= MOST_BYTES_OF_NAMESPACE
            self._bytes[key.namespace] += workload.size if fits else 0
            (self._kept if fits else self.left_out).add(key)
        return key in self._kept

    def findings(self) -> list[Finding]:
        """Return a finding for each namespace of which workloads are left out."""
        most = f"a run keeps at most {MOST_BYTES_OF_NAMESPACE >> 20} MiB of the workloads of a namespace; opt out some"
        numbers = Counter(each.namespace for each in self.left_out)
        return [_finding(namespace, number, most) for namespace, number in sorted(numbers.items())]


def within_bounds(
    wanted: Mapping[ObjectKey, Collection[Dependency]], read: Iterable[ObjectKey], now: datetime
) -> tuple[set[Dependency], list[Finding]]:
    """Return what to read next, and a finding for each namespace that wants more than this run reads.

    `wanted` is what workloads want, `read` what this run read before. The namespace that wants least comes first.
    Within one, the order is another one in each run, so that later runs read what this one does not.
    """
    done = Counter(each.namespace for each in read)
    left = MOST - done.total()
    by_namespace: dict[str, list[ObjectKey]] = {}
    for workload in wanted:
        by_namespace.setdefault(workload.namespace, []).append(workload)
    sizes = {name: len({dependency for each in of for dependency in wanted[each]}) for name, of in by_namespace.items()}
    chosen: set[Dependency] = set()
    findings: list[Finding] = []
    for namespace in sorted(by_namespace, key=lambda name: (sizes[name], name)):
        bound = min(MOST_OF_NAMESPACE - done[namespace], left)
        fitting: set[Dependency] = set()
        left_out = 0
        for workload in sorted(by_namespace[namespace], key=lambda each: sha256(f"{now} {each}".encode()).digest()):
            more = set(wanted[workload]) - fitting
            if len(fitting) + len(more) <= bound:
                fitting |= more
            else:
                left_out += 1
        left -= len(fitting)
        chosen |= fitting
        findings += [_finding(namespace, left_out, _MANY_SOURCES)] if left_out else []
    return chosen, findings


def _finding(namespace: str, workloads: int, why: str) -> Finding:
    number = "1 workload was" if workloads == 1 else f"{workloads} workloads were"
    return Finding("too-many", Severity.WARNING, ObjectKey(NAMESPACES.kind, namespace), f"{number} not compared: {why}")
