"""Brakes: pure filters over a plan that hold back what may be a mistake."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from jobs.kit.model import Action, ExitCode, Plan

FEWEST_DELETES = 10
SHARE_OF_STAMPED = 0.1


def hold_deletes(plan: Plan, max_deletes: int | None) -> Plan:
    """Return the plan without its deletions of a kind when there are more of them than allowed.

    Allowed are `max_deletes`, by default 10 or a tenth of the stamped objects of that kind, the larger. Creates and
    replaces go on; so does a replacement that deletes and creates the same object. `held` counts what was held back.
    """
    deletes = Counter(f.object.kind for f in plan.findings if f.fix and f.fix.action is Action.DELETE)
    held = {kind: number for kind, number in sorted(deletes.items()) if number > _allowed(plan, kind, max_deletes)}
    findings = tuple(
        replace(finding, fix=None, reason=f"{finding.reason}; held by the deletion brake", exit_code=ExitCode.BRAKE)
        if finding.object.kind in held and finding.fix and finding.fix.action is Action.DELETE
        else finding
        for finding in plan.findings
    )
    return replace(plan, findings=findings, held=held)


def _allowed(plan: Plan, kind: str, max_deletes: int | None) -> int:
    if max_deletes is not None:
        return max_deletes
    return max(FEWEST_DELETES, int(plan.stamped.get(kind, 0) * SHARE_OF_STAMPED))
