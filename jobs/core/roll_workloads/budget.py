"""The limit of rolls in one run, and whose turn it is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter

from jobs.core.roll_workloads.baseline import BaselinePatch
from jobs.kit.values.model import Action, Finding, Severity


def within_budget(findings: Sequence[Finding], max_rolls: int) -> tuple[list[Finding], list[Finding]]:
    """Return the findings with at most `max_rolls` rolls, and the substitutes for rolls that fail.

    All other rolls are deferred. There are at most `max_rolls` substitutes, so that failures do not add more requests.
    """
    rolls = _in_turn([each for each in findings if each.action is Action.ROLL])
    deferred = {each.object for each in rolls[max_rolls:]}
    allowed = [_deferred(each, max_rolls) if each.object in deferred else each for each in findings]
    return allowed, rolls[max_rolls : 2 * max_rolls]


def _deferred(roll: Finding, max_rolls: int) -> Finding:
    reason = f"{roll.reason}, but this run reached --max-rolls ({max_rolls}): a later run rolls the workload"
    return Finding("deferred", Severity.WARNING, roll.object, reason)


def _in_turn(rolls: Sequence[Finding]) -> list[Finding]:
    """Sort the rolls in turns: the first workload of each namespace, then the second of each, and so on.

    Within a turn, workloads that were never rolled come first, then those with the oldest last roll, then by name. A
    tenant can forge the time of the last roll, which is in the baseline. This only changes the order within a turn.
    """
    turns: Counter[str] = Counter()
    placed: list[tuple[int, Finding]] = []
    for each in sorted(rolls, key=lambda found: (_last_roll(found), found.object)):
        turns[each.object.namespace] += 1
        placed.append((turns[each.object.namespace], each))
    return [each for _, each in sorted(placed, key=itemgetter(0))]


def _last_roll(found: Finding) -> str:
    """Return the time of the previous roll of a workload as sortable text; "" if it was never rolled."""
    assert found.fix
    assert isinstance(found.fix.body, BaselinePatch)
    return found.fix.body.last_roll
