"""Evaluate the FarmPod of one pod: no finding, a finding with its fix, or the object that must be read first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import structs

from jobs.core.farm_pods.farm_pod import FarmPod, FarmPodManifest, Pod
from jobs.core.farm_pods.observed import Observed, Settings
from jobs.kit.values.errors import ApiError
from jobs.kit.values.findings import unreadable
from jobs.kit.values.model import Action, Finding, Fix, Need, ObjectKey, Severity
from jobs.kit.values.resources import FARM_PODS


def evaluate(pod: Pod, observed: Observed, settings: Settings) -> Finding | Need | None:
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
        return Need(pod.key)
    return Need(place) if actual else _missing(pod)


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
    fix = Fix(Action.REPLACE, FarmPodManifest(pod, actual.document))
    shown = differing if settings.run.diff else ()
    return Finding("drifted", Severity.WARNING, place, _why(pod, actual), fix, shown)


def _missing(pod: Pod) -> Finding:
    return Finding("missing", Severity.WARNING, pod.place, _containers(pod), Fix(Action.CREATE, FarmPodManifest(pod)))


def _why(pod: Pod, actual: FarmPod) -> str:
    if actual.owner and actual.owner != pod.uid:
        return f"pod/{pod.name} was recreated"
    return f"{', '.join(change.field for change in actual.differences(pod))} changed"


def _containers(pod: Pod) -> str:
    return f"{pod.containers} container{'' if pod.containers == 1 else 's'}"


def unchanged(pod: Pod, observed: Observed) -> Finding:
    """Return the finding of a FarmPod that is as desired; shown with -v."""
    actual = observed.actual(pod.place)
    known = structs.replace(pod, containers=actual.containers) if isinstance(actual, FarmPod) else pod
    return Finding("unchanged", Severity.INFO, pod.place, _containers(known))


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
    for key, each in sorted(observed.farm_pods.items()):
        if not each.managed or each.terminating or key in desired or key.namespace in unread:
            continue
        if each.owned or key in terminating or key.namespace not in read_namespaces:
            yield Finding("retained", Severity.INFO, key, "no pod requires this FarmPod; it is deleted with its owner")
        else:
            remedy = f"kubectl delete {FARM_PODS.plural} {key.name} -n {key.namespace}"
            reason = (
                f"its pod does not exist, and it has no owner, so the garbage collector never deletes it; run {remedy}"
            )
            yield Finding("orphan", Severity.WARNING, key, reason)
