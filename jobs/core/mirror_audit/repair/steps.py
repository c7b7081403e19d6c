"""A step of a repair, and what the steps of many findings are together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from jobs.kit.values.model import Action, ExitCode, Finding, Fix, Need, ObjectKey


class Step(NamedTuple):
    """The next step for a resource: a write (`fix`), or the condition for it (`remedy`).

    `need` is an object to read first. `may_progress` is whether a later observation in the same run may allow the next
    step. `first` is a write to another object before this one.
    """

    fix: Fix | None = None
    remedy: str = ""
    need: Need | None = None
    may_progress: bool = False
    first: Finding | None = None
    exit_code: ExitCode = ExitCode.DONE


def with_steps(steps: Sequence[tuple[Finding, Step]]) -> list[Finding]:
    """Return the findings with their steps, with at most one write to each object."""
    return _one_write_per_object([each for found, step in steps for each in _with_step(found, step)])


def _one_write_per_object(findings: Sequence[Finding]) -> list[Finding]:
    """Keep one write to each object. A deletion comes first, because it makes other writes unnecessary."""
    writes: dict[ObjectKey, Finding] = {}
    for each in findings:
        before = writes.get(each.object)
        if each.fix and (before is None or _deletes(each) > _deletes(before)):
            writes[each.object] = each
    return [
        structs.replace(each, fix=None, remedy="another step for this object includes it")
        if each.fix and writes[each.object] is not each
        else each
        for each in findings
    ]


def _deletes(found: Finding) -> bool:
    return found.action is Action.DELETE


def _with_step(found: Finding, step: Step) -> list[Finding]:
    exit_code = step.exit_code or found.exit_code
    planned = structs.replace(found, fix=step.fix, remedy=step.remedy, exit_code=exit_code)
    return [step.first, planned] if step.first else [planned]
