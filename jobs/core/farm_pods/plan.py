"""Compare each pod with its FarmPod, and limit the number of FarmPods, for the cluster's etcd. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from jobs.core.farm_pods.farm_pod import FarmPod, FarmPodManifest, Pod
from jobs.core.farm_pods.observed import OPT_IN, Observed, Settings
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import (
    Action,
    Brake,
    Change,
    Dependency,
    ExitCode,
    Finding,
    ObjectKey,
    Plan,
    Severity,
    Summary,
    WriteOrder,
)
from jobs.kit.values.reads import unreadable
from jobs.kit.values.resources import FARM_PODS, NAMESPACES

# A pod that was compared: the key of its FarmPod if that is as desired, or the pod.
Compared = ObjectKey | Pod


def compare(pod: Pod, farm_pods: Mapping[ObjectKey, FarmPod]) -> Compared:
    """Return the key of the pod's FarmPod if it is as desired; otherwise the pod, which `plan()` evaluates.

    The key is the one in `farm_pods`: it needs no further memory.
    """
    found = farm_pods.get(pod.place)
    is_desired = found and found.managed and not found.terminating and not pod.terminating and found.is_desired(pod)
    return found.key if found and is_desired else pod


def different(
    compared: Iterable[Compared], farm_pods: Mapping[ObjectKey, FarmPod]
) -> tuple[Sequence[Pod], Mapping[ObjectKey, FarmPod], Mapping[str, int]]:
    """Return the pods and FarmPods to evaluate one by one, and the number of the other pods by namespace.

    A pod stays, although its FarmPod is as desired, if another pod requires a FarmPod of the same name: none of them
    is written then.
    """
    pods: list[Pod] = []
    desired: list[ObjectKey] = []
    for each in dict.fromkeys(compared):  # a server may list a pod twice
        if isinstance(each, Pod):
            pods.append(each)
        else:
            desired.append(each)
    required = {each.place for each in pods if not each.terminating}
    collisions = required.intersection(desired)
    known = (farm_pods[key] for key in sorted(collisions))
    pods += (Pod(each.key.namespace, each.pod, each.owner, each.containers) for each in known)
    left = dict(farm_pods)
    unchanged: Counter[str] = Counter()
    for key in desired:
        if key not in collisions:
            del left[key]
            unchanged[key.namespace] += 1
    return pods, left, unchanged


def to_read_in_full(
    compared: Mapping[str, Collection[Compared]], farm_pods: Mapping[ObjectKey, FarmPod], max_objects: int
) -> Iterator[str]:
    """Yield the namespaces in which the containers of more than half of the pods must be read.

    One list is then less work than single reads. `compared` are pods by namespace, of which only metadata were read.
    """
    sizes, suspects, missing = Counter[str](), Counter[str](), Counter[str]()
    for namespace, pods in compared.items():
        sizes[namespace] = len(pods)
        for each in pods:
            if not isinstance(each, Pod) or each.terminating:
                continue
            if each.place not in farm_pods:
                missing[namespace] += 1
            elif isinstance(compare(each, farm_pods), Pod):  # else it is in the report of -v
                suspects[namespace] += 1
    managed = sum(each.managed for each in farm_pods.values())
    suspects.update({each: missing[each] for each in admitted(missing, managed, sizes, max_objects)})
    yield from (each for each, number in sorted(suspects.items()) if 2 * number > sizes[each])


def admitted(creates: Mapping[str, int], existing: int, pods: Mapping[str, int], max_objects: int) -> set[str]:
    """Return the namespaces whose creates fit, smallest first; one that does not fit does not stop later ones.

    `creates` are the missing FarmPods by namespace, `existing` the number of all FarmPods, `pods` the sizes of the
    namespaces.
    """
    found = set()
    for namespace in sorted(creates, key=lambda each: (pods[each], each)):
        if existing + creates[namespace] <= max_objects:
            existing += creates[namespace]
            found.add(namespace)
    return found


def evaluate(pod: Pod, observed: Observed, settings: Settings) -> Finding | Dependency | None:
    """Return the finding of a pod's FarmPod, or the object that must be read first; None if it is as desired.

    Lists are sufficient if the FarmPod is as desired or missing. Otherwise the FarmPod is read again, then its pod: a
    pod of the same name may have replaced the one in the list. The write is for exactly that version of the FarmPod.
    A missing FarmPod may be of a pod whose containers are not known yet: `plan()` requests that pod.
    """
    place = pod.place
    actual = observed.actual(place)
    if isinstance(actual, ApiError):
        return unreadable(place, actual, f"cannot be read: {actual.message}")
    if actual and not actual.managed:
        return Finding("conflict", Severity.WARNING, place, "exists and is not managed by kube-chores: left untouched")
    if actual and actual.terminating:
        return Finding("skipped", Severity.WARNING, place, "is being deleted")
    if place in observed.pod_reads:
        return _evaluate_with_pod(place, observed.pod_reads[place], actual, settings)
    if actual and actual.is_desired(pod):
        return None
    if place in observed.single_reads:
        return Dependency(pod.key)
    return Dependency(place) if actual else _missing(pod)


def _evaluate_with_pod(
    place: ObjectKey, pod: Pod | ApiError | None, actual: FarmPod | None, settings: Settings
) -> Finding | None:
    """Return the finding after a single read of the pod; None if the FarmPod is as desired."""
    if isinstance(pod, ApiError):
        return unreadable(place, pod, f"cannot be read: {pod.message}")
    if pod is None or pod.terminating:
        reason = "its pod was deleted or is terminating"
        if actual is None:  # the pod ended between the list and this read
            return Finding("skipped", Severity.INFO, place, reason)
        return Finding("retained", Severity.INFO, place, f"{reason}; the FarmPod is deleted with it")
    if actual is None or not actual.document:
        return _missing(pod)
    differing = actual.differences(pod)
    if not differing:
        return None
    is_recreated = actual.owner and actual.owner != pod.uid
    fields = ", ".join(change.field for change in differing)
    why = f"pod/{pod.name} was recreated" if is_recreated else f"{fields} changed"
    change = Change(Action.REPLACE, FarmPodManifest(pod, actual.document))
    return Finding("drifted", Severity.WARNING, place, why, change, differing if settings.run.diff else ())


def _missing(pod: Pod) -> Finding:
    change = Change(Action.CREATE, FarmPodManifest(pod))
    return Finding("missing", Severity.WARNING, pod.place, _containers(pod.containers), change)


def _containers(number: int | None) -> str:
    return f"{number} container{'' if number == 1 else 's'}"


def unchanged(place: ObjectKey, observed: Observed) -> Finding:
    """Return the finding of a FarmPod that is as desired; shown with -v."""
    actual = observed.actual(place)
    assert isinstance(actual, FarmPod)
    return Finding("unchanged", Severity.INFO, place, _containers(actual.containers))


def collision(pods: Sequence[Pod]) -> Finding:
    """Return the finding of pods whose FarmPods would have the same name.

    That happens only if a pod's name was chosen to match the hash of another. Users with permission to create pods
    can do that, so it does not fail the run.
    """
    names = " and ".join(sorted(pod.name for pod in pods))
    reason = f"pods {names} require a FarmPod of the same name, so none is written; rename one of the pods"
    return Finding("collision", Severity.WARNING, pods[0].place, reason)


def without_pods(observed: Observed, desired: Collection[ObjectKey]) -> Iterator[Finding]:
    """Yield the findings of managed FarmPods without a pod in what was observed.

    The garbage collector deletes them with their owner. Perhaps it has not done so yet, or their namespace no longer
    opts in, or could not be read. It never deletes a FarmPod whose pod was deleted and that has no owner; the job has
    no permission to delete it.
    """
    unread = {failure.object.name for failure in observed.failures}
    read_namespaces = set(observed.namespaces) - unread
    terminating = {pod.place for pod in observed.pods if pod.terminating}
    for key, each in observed.farm_pods.items():
        if not each.managed or each.terminating or key in desired or key.namespace in unread:
            continue
        if each.owned or key in terminating or key.namespace not in read_namespaces:
            yield Finding("retained", Severity.INFO, key, "no pod requires this FarmPod; it is deleted with its owner")
        else:
            why = "its pod does not exist, and it has no owner, so the garbage collector never deletes it"
            remedy = f"kubectl delete {FARM_PODS.plural} {key.name} -n {key.namespace}"
            yield Finding("orphan", Severity.WARNING, key, f"{why}; run {remedy}")


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare each pod with its FarmPod: the same input gives the same findings in the same order."""
    places: dict[ObjectKey, list[Pod]] = {}
    for each in observed.pods:
        if not each.terminating:
            places.setdefault(each.place, []).append(each)
    findings = [*observed.failures, *observed.invalid, *without_pods(observed, places.keys())]
    dependencies: list[Dependency] = []
    unchanged_count = sum(observed.unchanged.values())
    for place, same_place in places.items():
        result = collision(same_place) if len(same_place) > 1 else evaluate(same_place[0], observed, settings)
        if isinstance(result, Dependency):
            dependencies.append(result)
        elif result:
            findings.append(result)
        else:
            unchanged_count += 1
            findings += [unchanged(place, observed)] if settings.run.verbose else []
    sizes = Counter(place.namespace for place in places) + Counter(observed.unchanged)
    managed = sum(each.managed for each in observed.farm_pods.values()) + sum(observed.unchanged.values())
    pods = sum(map(len, places.values())) + sum(observed.unchanged.values())
    braked, brakes = block_creates(findings, managed, sizes, settings.max_objects)
    dependencies += _pods_to_read(braked)
    return Plan(
        braked,
        unchanged_count,
        dependencies,
        Summary({"pods": pods, "namespaces": len(observed.namespaces)}, _note(observed, settings)),
        brakes=brakes,
        # Writes are rate limited, and a run may reach its deadline: so namespaces with many pods come last.
        order=WriteOrder(namespaces=sizes),
    )


def _pods_to_read(findings: Iterable[Finding]) -> Iterator[Dependency]:
    """Yield the pods of missing FarmPods whose containers are not known yet."""
    for each in findings:
        body = each.change.body if each.change else None
        if isinstance(body, FarmPodManifest) and body.pod.containers is None:
            yield Dependency(body.pod.key)


def _note(observed: Observed, settings: Settings) -> str:
    if settings.namespace:
        return f"no pod in namespace {settings.namespace}"
    none_labelled = f"no active namespace is labelled {OPT_IN}=true"
    return "no pod in the labelled namespaces" if observed.namespaces else none_labelled


def block_creates(
    findings: Sequence[Finding], existing: int, pods: Mapping[str, int], max_objects: int
) -> tuple[Sequence[Finding], tuple[Brake, ...]]:
    """Return the findings without creates that would exceed `max_objects` FarmPods, and the brake.

    `existing` is the number of FarmPods that exist. `pods` is the size of each namespace: its desired FarmPods, whether
    they exist or not, so that it does not depend on how far an earlier run came. A namespace gets all of its FarmPods
    or none, since readers cannot distinguish a partial inventory from a complete one. The smallest namespaces come
    first, so that a large one does not block the others. FarmPods that exist are still repaired. What is blocked is
    reported by namespace, since it may be many.
    """
    creates = Counter(finding.object.namespace for finding in findings if finding.action is Action.CREATE)
    total = existing + creates.total()
    if not creates or total <= max_objects:
        return findings, ()
    blocked = creates.keys() - admitted(creates, existing, pods, max_objects)
    message = (
        f"the object brake blocks {sum(creates[each] for each in blocked)} of {creates.total()} creates: there would be"
        f" {total} FarmPods, the limit is {max_objects}; to raise the limit for all runs, "
        "set CHORES_MAX_OBJECTS in the CronJob"
    )
    kept = [each for each in findings if not (each.action is Action.CREATE and each.object.namespace in blocked)]
    # The value of the option has a reserve: it is still sufficient after some more pods were created.
    brake = Brake(message, "--max-objects", str(total + total // 10))
    return [*kept, *(_over_limit(each, creates[each]) for each in blocked)], (brake,)


def _over_limit(namespace: str, number: int) -> Finding:
    pods = "1 pod has no FarmPod" if number == 1 else f"{number} pods have no FarmPod"
    key, reason = ObjectKey(NAMESPACES.kind, namespace), f"{pods}: the object brake blocks the creation"
    return Finding("over-limit", Severity.WARNING, key, reason, exit_code=ExitCode.BRAKE)
