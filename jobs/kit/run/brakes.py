"""The deletion brake: a pure filter over a plan that blocks deletions if there are too many of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from jobs.kit.values.model import Action, Brake, ExitCode, Finding, Plan
from jobs.kit.values.text import plural

MIN_DELETES = 10
SHARE_OF_DESIRED = 0.1


def block_deletes(plan: Plan, max_deletes: int | None) -> Plan:
    """Return the plan without its deletions of one kind and code if there are more of them than `allowed()`.

    The limit is a share of the desired objects: only users with access to custom resources can change their number.
    The number of existing objects does not count: other users could create some with the labels of kube-chores. The
    brake blocks no create and no replace, nor a replacement that deletes and creates the same object.
    """
    deletes = Counter(_group(finding) for finding in plan.findings if finding.action is Action.DELETE)
    too_many = {
        (kind, code): number
        for (kind, code), number in sorted(deletes.items())
        if number > _allowed_of(kind, plan, max_deletes)
    }
    if not too_many:
        return plan
    findings = tuple(
        blocked(finding, "blocked by the deletion brake")
        if finding.action is Action.DELETE and _group(finding) in too_many
        else finding
        for finding in plan.findings
    )
    return replace(plan, findings=findings, brakes=(*plan.brakes, _brake(plan, too_many, max_deletes)))


def blocked(finding: Finding, why: str) -> Finding:
    """Return the finding without its write, which a brake blocks; `why` is added to its reason."""
    return structs.replace(finding, fix=None, reason=f"{finding.reason}; {why}", exit_code=ExitCode.BRAKE)


def _allowed_of(kind: str, plan: Plan, max_deletes: int | None) -> int:
    return allowed(plan.desired.by_kind.get(kind, 0), max_deletes)


def _group(finding: Finding) -> tuple[str, str]:
    return finding.object.kind, finding.code


def _brake(plan: Plan, too_many: Mapping[tuple[str, str], int], max_deletes: int | None) -> Brake:
    what = " and ".join(
        f"{number} {plural(kind)} (code {code}, limit {_allowed_of(kind, plan, max_deletes)})"
        for (kind, code), number in too_many.items()
    )
    message = f"the deletion brake blocks the deletion of {what}; none of them is deleted"
    return Brake(message, "--max-deletes", str(max(too_many.values())))


def allowed(desired: int, max_deletes: int | None) -> int:
    """Return how many objects of one kind and code a run may delete: `max_deletes`.

    If that is None: 10, or a tenth of the `desired` objects of that kind if that is more.
    """
    return max(MIN_DELETES, int(desired * SHARE_OF_DESIRED)) if max_deletes is None else max_deletes
