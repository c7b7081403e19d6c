"""The object brake: a limit on the number of FarmPods, for the cluster's etcd. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from jobs.kit.values.model import Action, Brake, ExitCode, Finding, ObjectKey, Severity
from jobs.kit.values.resources import NAMESPACES


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
    blocked = creates.keys() - _admitted(creates, existing, pods, max_objects)
    message = (
        f"the object brake blocks {sum(creates[each] for each in blocked)} of {creates.total()} creates: there would be"
        f" {total} FarmPods, the limit is {max_objects}; to raise the limit for all runs, "
        "set CHORES_MAX_OBJECTS in the CronJob"
    )
    kept = [each for each in findings if not (each.action is Action.CREATE and each.object.namespace in blocked)]
    return [*kept, *(_over_limit(each, creates[each]) for each in sorted(blocked))], (
        Brake(message, "--max-objects", _with_reserve(total)),
    )


def _admitted(creates: Mapping[str, int], existing: int, pods: Mapping[str, int], max_objects: int) -> set[str]:
    """Return the namespaces whose creates fit, smallest first; one that does not fit does not stop later ones."""
    admitted = set()
    for namespace in sorted(creates, key=lambda each: (pods[each], each)):
        if existing + creates[namespace] <= max_objects:
            existing += creates[namespace]
            admitted.add(namespace)
    return admitted


def _with_reserve(total: int) -> str:
    """Return a limit that is still sufficient after some more pods were created."""
    return str(total + total // 10)


def _over_limit(namespace: str, number: int) -> Finding:
    key = ObjectKey(NAMESPACES.kind, namespace)
    pods = "1 pod has no FarmPod" if number == 1 else f"{number} pods have no FarmPod"
    reason = f"{pods}: the object brake blocks the creation"
    return Finding("over-limit", Severity.WARNING, key, reason, exit_code=ExitCode.BRAKE)
