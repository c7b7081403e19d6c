"""Turns: nobody has all of a limited number because of having the most, or the first by name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from operator import itemgetter
from typing import TypeVar

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


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
