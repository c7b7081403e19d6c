"""Compare each pod with its FarmPod, and limit the number of FarmPods, for the cluster's etcd. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from jobs.core.farm_pods.compare import admitted
from jobs.core.farm_pods.evaluate import collision, evaluate, unchanged, without_pods
from jobs.core.farm_pods.farm_pod import FarmPodManifest, Pod
from jobs.core.farm_pods.observed import OPT_IN, Observed, Settings
from jobs.kit.values.model import (
    Action,
    Brake,
    ExitCode,
    Finding,
    Need,
    ObjectKey,
    Plan,
    Severity,
    Summary,
    WriteOrder,
)
from jobs.kit.values.resources import NAMESPACES


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare each pod with its FarmPod: the same input gives the same findings in the same order."""
    places = _places(each for each in observed.pods if not each.terminating)
    findings = [*observed.failures, *observed.invalid, *without_pods(observed, places.keys())]
    needs: list[Need] = []
    unchanged_count = sum(observed.unchanged.values())
    for same_place in places.values():
        result = collision(same_place) if len(same_place) > 1 else evaluate(same_place[0], observed, settings)
        if isinstance(result, Need):
            needs.append(result)
        elif result:
            findings.append(result)
        else:
            unchanged_count += 1
            findings += [unchanged(same_place[0], observed)] if settings.run.verbose else []
    sizes = Counter(place.namespace for place in places) + Counter(observed.unchanged)
    managed = sum(each.managed for each in observed.farm_pods.values()) + sum(observed.unchanged.values())
    pods = sum(map(len, places.values())) + sum(observed.unchanged.values())
    braked, brakes = block_creates(findings, managed, sizes, settings.max_objects)
    needs += _pods_to_read(braked)
    return Plan(
        braked,
        unchanged_count,
        needs,
        Summary({"pods": pods, "namespaces": len(observed.namespaces)}, _note(observed, settings)),
        brakes=brakes,
        # Writes are rate limited, and a run may reach its deadline: so namespaces with many pods come last.
        order=WriteOrder(namespaces=sizes),
    )


def _places(pods: Iterable[Pod]) -> Mapping[ObjectKey, Sequence[Pod]]:
    places: dict[ObjectKey, list[Pod]] = {}
    for pod in pods:
        places.setdefault(pod.place, []).append(pod)
    return places


def _pods_to_read(findings: Iterable[Finding]) -> Iterator[Need]:
    """Yield the pods of missing FarmPods whose containers are not known yet."""
    for each in findings:
        body = each.fix.body if each.fix else None
        if isinstance(body, FarmPodManifest) and body.pod.containers is None:
            yield Need(body.pod.key)


def _note(observed: Observed, settings: Settings) -> str:
    if settings.namespace:
        return f"no pod in namespace {settings.namespace}"
    return (
        "no pod in the labelled namespaces" if observed.namespaces else f"no active namespace is labelled {OPT_IN}=true"
    )


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
    return [*kept, *(_over_limit(each, creates[each]) for each in sorted(blocked))], (
        # The value of the option has a reserve: it is still sufficient after some more pods were created.
        Brake(message, "--max-objects", str(total + total // 10)),
    )


def _over_limit(namespace: str, number: int) -> Finding:
    key = ObjectKey(NAMESPACES.kind, namespace)
    pods = "1 pod has no FarmPod" if number == 1 else f"{number} pods have no FarmPod"
    reason = f"{pods}: the object brake blocks the creation"
    return Finding("over-limit", Severity.WARNING, key, reason, exit_code=ExitCode.BRAKE)
