"""Turns: nobody has all of a limited number because of having the most, or the first by name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from operator import itemgetter
from typing import TypeVar

T = TypeVar("T")


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
