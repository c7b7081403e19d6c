"""Brakes: pure filters over a plan that hold back what may be a mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from jobs.kit.model import Action, Brake, ExitCode, Plan

FEWEST_DELETES = 10
SHARE_OF_STAMPED = 0.1


def hold_deletes(plan: Plan, max_deletes: int | None) -> Plan:
    """Return the plan without its deletions of a kind when there are more of them than allowed.

    Allowed are `max_deletes`, by default 10 or a tenth of the stamped objects of that kind, the larger. Creates and
    replaces go on; so does a replacement that deletes and creates the same object.
    """
    deletes = Counter(f.object.kind for f in plan.findings if f.fix and f.fix.action is Action.DELETE)
    held = {
        kind: number
        for kind, number in sorted(deletes.items())
        if number > allowed(plan.stamped.get(kind, 0), max_deletes)
    }
    findings = tuple(
        structs.replace(
            finding, fix=None, reason=f"{finding.reason}; held by the deletion brake", exit_code=ExitCode.BRAKE
        )
        if finding.object.kind in held and finding.fix and finding.fix.action is Action.DELETE
        else finding
        for finding in plan.findings
    )
    return replace(plan, findings=findings, brakes=(*plan.brakes, _brake(plan, held))) if held else plan


def _brake(plan: Plan, held: Mapping[str, int]) -> Brake:
    what = " and ".join(f"{number} of {plan.stamped[kind]} {kind}s" for kind, number in held.items())
    held_back = f"the deletion brake holds: {what} would be deleted, and none is"
    return Brake(held_back, "--max-deletes", str(max(held.values())))


def allowed(stamped: int, max_deletes: int | None) -> int:
    """Return how many of `stamped` things of one sort a run may delete."""
    return max(FEWEST_DELETES, int(stamped * SHARE_OF_STAMPED)) if max_deletes is None else max_deletes
