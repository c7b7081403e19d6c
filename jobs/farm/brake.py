"""The object brake: no more FarmPods than a cluster's etcd was meant to hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jobs.kit.model import Action, Brake, ExitCode, Finding, ObjectKey, Severity
from jobs.kit.objects import NAMESPACES


def hold_creates(findings: Sequence[Finding], there: int, most: int) -> tuple[Sequence[Finding], tuple[Brake, ...]]:
    """Return the findings without their creates when with them there would be more than `most` FarmPods, and the brake.

    `there` is how many there are. None is made rather than some: half an inventory looks like a whole one. Repairs of
    those that are there go on. What is held is told namespace by namespace, since it is many.
    """
    creates = Counter(finding.object.namespace for finding in findings if _is_create(finding))
    total = there + creates.total()
    if not creates or total <= most:
        return findings, ()
    held = [_held(namespace, number) for namespace, number in creates.items()]
    what = (
        f"the object brake holds: there would be {total} FarmPods, {most} are allowed, and none of {creates.total()} is"
        " made; CHORES_MAX_OBJECTS of the CronJob allows more for good"
    )
    return [*(each for each in findings if not _is_create(each)), *held], (
        Brake(what, "--max-objects", _enough(total)),
    )


def _enough(total: int) -> str:
    """Return a number that still is enough when a few more pods have come."""
    return str(total + total // 10)


def _is_create(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.action is Action.CREATE


def _held(namespace: str, number: int) -> Finding:
    key = ObjectKey(NAMESPACES.kind, namespace)
    pods = "1 pod has no FarmPod" if number == 1 else f"{number} pods have no FarmPods"
    return Finding("held", Severity.WARNING, key, f"{pods}: held by the object brake", exit_code=ExitCode.BRAKE)
