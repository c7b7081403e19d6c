"""The deletion brake, a filter over a plan that blocks deletions if there are too many of them; and turns. Pure.

Turns: nobody has all of a limited number because of having the most, or the first by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

from msgspec import structs

from jobs.kit.values.model import Action, Brake, ExitCode, Finding, Plan
from jobs.kit.values.text import plural

MIN_DELETES = 10
SHARE_OF_DESIRED = 0.1

_Group = tuple[str, str]  # a kind and a code
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def block_deletes(plan: Plan, max_deletes: int | None) -> Plan:
    """Return the plan without its removals of one kind and code if there are more of them than `allowed()`.

    If most are of one rule, one source namespace or one namespace, only those are blocked, as long as all others
    together are within the limit: nobody can block the deletions of others, not even in the same namespace.

    The limit is a share of the desired objects, whose number users with access to custom resources and sources change.
    The number of existing objects does not count: other users could create some with the labels of kube-chores. The
    brake blocks no create and no replace, nor a replacement that deletes and creates the same object.
    """
    groups: dict[_Group, list[Finding]] = {}
    for finding in plan.findings:
        if finding.is_removal:
            groups.setdefault((finding.object.kind, finding.code), []).append(finding)
    too_many = {
        group: _too_many(found, limit)
        for group, found in sorted(groups.items())
        if len(found) > (limit := _allowed_of(group, plan, max_deletes))
    }
    if not too_many:
        return plan
    stopped = {id(each) for found in too_many.values() for each in found}
    findings = tuple(
        blocked(each, "blocked by the deletion brake") if id(each) in stopped else each for each in plan.findings
    )
    # With this limit, no group has too many.
    enough = max(len(groups[group]) for group in too_many)
    return structs.replace(plan, findings=findings, brakes=(*plan.brakes, _brake(plan, too_many, max_deletes, enough)))


# What may be the cause of deletions, from the most specific to the least: a rule and the namespace of a source.
_CAUSES: Sequence[Callable[[Finding], Hashable]] = (
    lambda deletion: (deletion.subjects, _origin(deletion)) if deletion.subjects else (),
    lambda deletion: _origin(deletion),
    lambda deletion: deletion.subjects,
    lambda deletion: deletion.object.namespace,
)


def _too_many(deletions: list[Finding], limit: int) -> list[Finding]:
    """Return those to block of more deletions than the limit: those of the causes of most of them, or all."""
    for cause in _CAUSES:
        stopped = _blocked_causes(Counter(map(cause, deletions)), limit)
        if stopped:
            return [each for each in deletions if cause(each) in stopped]
    return deletions


def _blocked_causes(numbers: Counter[Hashable], limit: int) -> set[Hashable]:
    """Return the causes without which the deletions are within the limit: those that have more, and the largest other.

    That one must have half of the other deletions: one cause within the limit does not block those of others either. If
    there are many such causes, something else may be wrong, and the result is empty.
    """
    stopped = {cause for cause, number in numbers.items() if cause and number > limit}
    others = {cause: number for cause, number in numbers.items() if cause not in stopped}
    rest = sum(others.values())
    largest = max(others, key=lambda cause: others[cause], default="")
    if rest > limit and largest and 2 * others[largest] >= rest:
        stopped.add(largest)
        rest -= others[largest]
    return stopped if rest <= limit else set()


def _origin(deletion: Finding) -> str:
    return deletion.change.origin if deletion.change else ""


def blocked(finding: Finding, why: str) -> Finding:
    """Return the finding without its write, which a brake blocks; `why` is added to its reason."""
    return structs.replace(finding, change=None, reason=f"{finding.reason}; {why}", exit_code=ExitCode.BRAKE)


def _allowed_of(group: _Group, plan: Plan, max_deletes: int | None) -> int:
    return allowed(plan.desired.by_kind.get(group[0], 0), max_deletes)


def _brake(plan: Plan, too_many: Mapping[_Group, list[Finding]], max_deletes: int | None, enough: int) -> Brake:
    what = " and ".join(
        f"{len(found)} {plural(group[0])} (code {group[1]}, limit {_allowed_of(group, plan, max_deletes)})"
        for group, found in too_many.items()
    )
    are_deletions = all(each.action is Action.DELETE for found in too_many.values() for each in found)
    verb, done = ("deletion", "deleted") if are_deletions else ("removal or change", "changed")
    message = f"the deletion brake blocks the {verb} of {what}; none of them is {done}"
    return Brake(message, "--max-deletes", str(enough))


def allowed(desired: int, max_deletes: int | None) -> int:
    """Return how many objects of one kind and code a run may delete: `max_deletes`.

    If that is None: 10, or a tenth of the `desired` objects of that kind if that is more.
    """
    return max(MIN_DELETES, int(desired * SHARE_OF_DESIRED)) if max_deletes is None else max_deletes


def in_turns(items: Iterable[T], owner: Callable[[T], Hashable], size: int = 1) -> list[T]:
    """Return the items in turns: the first `size` of each owner, then the next of each, and so on.

    Within a turn they keep their order.
    """
    numbers: Counter[Hashable] = Counter()
    placed: list[tuple[int, T]] = []
    for each in items:
        by = owner(each)
        placed.append((numbers[by] // size, each))
        numbers[by] += 1
    return [each for _, each in sorted(placed, key=itemgetter(0))]


def first_of_each(items: Iterable[T], owner: Callable[[T], H], most: int) -> tuple[list[T], Counter[H]]:
    """Return the first `most` items of each owner in their order, and the number of the others by owner."""
    numbers: Counter[H] = Counter()
    kept = []
    for each in items:
        numbers[by := owner(each)] += 1
        if numbers[by] <= most:
            kept.append(each)
    return kept, Counter({by: number - most for by, number in numbers.items() if number > most})
