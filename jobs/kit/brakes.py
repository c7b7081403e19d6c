"""Brakes: pure filters over a plan that hold back what may be a mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from jobs.kit.model import Action, Brake, ExitCode, Finding, Plan

FEWEST_DELETES = 10
SHARE_OF_WANTED = 0.1


def block_deletes(plan: Plan, max_deletes: int | None) -> Plan:
    """Return the plan without its deletions of one kind and code when there are more of them than allowed.

    Allowed are `max_deletes`, by default 10 or a tenth of the wanted objects of that kind, the larger: what is wanted
    only those decide who write custom resources, while whoever makes objects could forge our stamp. Creates and
    replaces go on; so does a replacement that deletes and creates the same object.
    """
    deletes = Counter(_sort(finding) for finding in plan.findings if _is_delete(finding))
    held = {
        (kind, code): number
        for (kind, code), number in sorted(deletes.items())
        if number > _allowed_of(kind, plan, max_deletes)
    }
    findings = tuple(
        structs.replace(
            finding, fix=None, reason=f"{finding.reason}; held by the deletion brake", exit_code=ExitCode.BRAKE
        )
        if _is_delete(finding) and _sort(finding) in held
        else finding
        for finding in plan.findings
    )
    return replace(plan, findings=findings, brakes=(*plan.brakes, _brake(plan, held, max_deletes))) if held else plan


def _allowed_of(kind: str, plan: Plan, max_deletes: int | None) -> int:
    return allowed(plan.desired_by_kind.get(kind, 0), max_deletes)


def _is_delete(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.action is Action.DELETE


def _sort(finding: Finding) -> tuple[str, str]:
    return finding.object.kind, finding.code


def _brake(plan: Plan, held: Mapping[tuple[str, str], int], max_deletes: int | None) -> Brake:
    what = " and ".join(
        f"{number} {kind}s ({code}; {_allowed_of(kind, plan, max_deletes)} are allowed)"
        for (kind, code), number in held.items()
    )
    held_back = f"the deletion brake holds: {what} would be deleted, and none is"
    return Brake(held_back, "--max-deletes", str(max(held.values())))


def allowed(desired: int, max_deletes: int | None) -> int:
    """Return how many objects of one sort a run may delete where `desired` are asked for."""
    return max(FEWEST_DELETES, int(desired * SHARE_OF_WANTED)) if max_deletes is None else max_deletes
