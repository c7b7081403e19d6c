"""The object brake: no more FarmPods than a cluster's etcd was meant to hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from jobs.kit.model import Action, Brake, ExitCode, Finding, ObjectKey, Severity
from jobs.kit.objects import NAMESPACES


def block_creates(
    findings: Sequence[Finding], there: int, pods: Mapping[str, int], most: int
) -> tuple[Sequence[Finding], tuple[Brake, ...]]:
    """Return the findings without creates of namespaces for which `most` FarmPods leave no room, and the brake.

    `there` is how many there are, and `pods` how many each namespace is to have: its size, which does not depend on how
    far an earlier run came. Whole namespaces are served, the smallest first: half an inventory looks like a whole one,
    and the many pods of one namespace hold no other. Repairs of those that are there go on. What is held is told
    namespace by namespace, since it is many.
    """
    creates = Counter(finding.object.namespace for finding in findings if _is_create(finding))
    total = there + creates.total()
    if not creates or total <= most:
        return findings, ()
    held = creates.keys() - _served(creates, there, pods, most)
    what = (
        f"the object brake holds: there would be {total} FarmPods, {most} are allowed, and"
        f" {sum(creates[each] for each in held)} of {creates.total()} are not made; CHORES_MAX_OBJECTS of the CronJob"
        " allows more for good"
    )
    kept = [each for each in findings if not (_is_create(each) and each.object.namespace in held)]
    return [*kept, *(_held(each, creates[each]) for each in sorted(held))], (
        Brake(what, "--max-objects", _enough(total)),
    )


def _served(creates: Mapping[str, int], there: int, pods: Mapping[str, int], most: int) -> set[str]:
    """Return the namespaces whose creates fit, one after another; one that does not fit stops no larger one."""
    served = set()
    for namespace in sorted(creates, key=lambda each: (pods[each], each)):
        if there + creates[namespace] <= most:
            there += creates[namespace]
            served.add(namespace)
    return served


def _enough(total: int) -> str:
    """Return a number that still is enough when a few more pods have come."""
    return str(total + total // 10)


def _is_create(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.action is Action.CREATE


def _held(namespace: str, number: int) -> Finding:
    key = ObjectKey(NAMESPACES.kind, namespace)
    pods = "1 pod has no FarmPod" if number == 1 else f"{number} pods have no FarmPods"
    return Finding("over-limit", Severity.WARNING, key, f"{pods}: held by the object brake", exit_code=ExitCode.BRAKE)
