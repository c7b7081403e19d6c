"""What is to be said of one pod's FarmPod: nothing, a finding with its fix, or what must be read first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from jobs.farm.farm_pod import FARM_PODS, FarmPod, Manifest, Pod
from jobs.farm.observed import Look, Observed, Settings
from jobs.kit.errors import ApiError
from jobs.kit.model import Action, Finding, Fix, Need, ObjectKey, Severity


def evaluate(pod: Pod, observed: Observed, settings: Settings) -> Finding | Need | None:
    """Return what is to be said of the FarmPod of a pod that shares its place with no other; None if it is right.

    The list says which are right and which are missing. Any other is read by itself, and then its pod: of two pods of
    one name only the pod itself tells which is there now, and the write holds that very version of the FarmPod.
    """
    place = pod.place
    look = observed.looks.get(place)
    if isinstance(look, ApiError):
        return _unreadable(place, look)
    actual = _latest(place, observed)
    if actual and not actual.ours:
        return Finding("conflict", Severity.WARNING, place, "exists and is not ours: left untouched")
    if actual and actual.terminating:
        return Finding("skipped", Severity.WARNING, place, "is being deleted")
    if place in observed.asked:
        return _settled(place, observed.asked[place], actual, look, settings)
    if actual and not actual.changed_by_server(pod):
        return None
    if place in observed.looks:
        return Need(pod.key)
    return Need(place) if actual else _missing(pod)


def _latest(place: ObjectKey, observed: Observed) -> FarmPod | None:
    look = observed.looks.get(place)
    if place in observed.looks:
        return look.farm_pod if isinstance(look, Look) else None
    return observed.farm_pods.get(place)


def _settled(
    place: ObjectKey, pod: Pod | ApiError | None, actual: FarmPod | None, look: Look | None, settings: Settings
) -> Finding | None:
    """Return what to say once the pod was asked too."""
    if isinstance(pod, ApiError):
        return _unreadable(place, pod)
    if pod is None or pod.terminating:
        return Finding("retained", Severity.INFO, place, "its pod is gone or going, and it goes with it")
    if actual is None or look is None:
        return _missing(pod)
    differing = actual.changed_by_server(pod)
    if not differing:
        return None
    fix = Fix(Action.REPLACE, Manifest(pod, look.document))
    shown = differing if settings.diff else ()
    return Finding("drifted", Severity.WARNING, place, _why(pod, actual), fix, shown)


def _missing(pod: Pod) -> Finding:
    return Finding("missing", Severity.WARNING, pod.place, _told(pod), Fix(Action.CREATE, Manifest(pod)))


def _why(pod: Pod, actual: FarmPod) -> str:
    if actual.owner and actual.owner != pod.uid:
        return f"pod/{pod.name} was made anew"
    return f"{', '.join(change.field for change in actual.changed_by_server(pod))} changed"


def _told(pod: Pod) -> str:
    return f"{pod.containers} container{'' if pod.containers == 1 else 's'}"


def unchanged(pod: Pod) -> Finding:
    """Return the finding that all is well, for those who ask to see it."""
    return Finding("unchanged", Severity.INFO, pod.place, _told(pod))


def collision(pods: Sequence[Pod]) -> Finding:
    """Return what is said of pods whose FarmPods would have one name, which takes a name made to be another's hash.

    Whoever may make pods can do that, so it fails no run.
    """
    names = " and ".join(sorted(pod.name for pod in pods))
    reason = f"pods {names} would both have this FarmPod: none is written; rename one"
    return Finding("collision", Severity.WARNING, pods[0].place, reason)


def leftovers(observed: Observed, desired: Collection[ObjectKey]) -> Iterator[Finding]:
    """Yield what to say of FarmPods of ours for which no pod was seen: the garbage collector sees to them.

    It may not have come to them yet, or their namespace is not looked at any more, or could not be. One whose pod is
    gone and that nothing owns it will never remove, and the job may not.
    """
    unread = {failure.object.name for failure in observed.failures}
    looked_at = set(observed.namespaces) - unread
    going = {pod.place for pod in observed.pods if pod.terminating}
    for key, each in sorted(observed.farm_pods.items()):
        if not each.ours or each.terminating or key in desired or key.namespace in unread:
            continue
        if each.owned or key in going or key.namespace not in looked_at:
            yield Finding(
                "retained", Severity.INFO, key, "no pod that is looked at calls for it; it goes with its owner"
            )
        else:
            remedy = f"kubectl delete {FARM_PODS.plural} {key.name} -n {key.namespace}"
            reason = f"its pod is gone and nothing owns it, so it would stay for ever: {remedy}"
            yield Finding("orphan", Severity.WARNING, key, reason)


def undecoded(key: ObjectKey, error: ApiError) -> Finding:
    """Return what is said of an object that a list had and that cannot be decoded."""
    return Finding("unreadable", error.severity, key, error.message, exit_code=error.exit_code)


def _unreadable(key: ObjectKey, error: ApiError) -> Finding:
    return Finding("unreadable", error.severity, key, f"cannot be read: {error.message}", exit_code=error.exit_code)
