"""The object brake: no more FarmPods than a cluster's etcd was meant to hold. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from jobs.kit.model import Action, Brake, ExitCode, Finding


def hold_creates(findings: Sequence[Finding], there: int, most: int) -> tuple[Sequence[Finding], tuple[Brake, ...]]:
    """Return the findings without their creates when with them there would be more than `most` FarmPods, and the brake.

    `there` is how many there are. None is made rather than some: half an inventory looks like a whole one. Repairs of
    those that are there go on.
    """
    creates = sum(_is_create(finding) for finding in findings)
    total = there + creates
    if not creates or total <= most:
        return findings, ()
    held = [_held(finding) if _is_create(finding) else finding for finding in findings]
    what = f"the object brake holds: there would be {total} FarmPods, {most} are allowed, and none of {creates} is made"
    return held, (Brake(what, "--max-objects", str(total)),)


def _is_create(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.action is Action.CREATE


def _held(finding: Finding) -> Finding:
    reason = f"{finding.reason}; held by the object brake"
    return structs.replace(finding, fix=None, reason=reason, exit_code=ExitCode.BRAKE)
