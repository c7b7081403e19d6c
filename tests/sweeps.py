"""How much of the long sweeps a run of pytest does: a fifth that a seed chooses, or all of it.

The environment variable SWEEPS is the seed, or `all`. tests/conftest.py sets a new seed, and prints it at the end.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hypothesis

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
VARIABLE = "SWEEPS"
SHARE = 5


def choose_seed() -> None:
    """Set a new seed, unless the environment has one, or `all`. Workers of pytest-xdist inherit it."""
    os.environ.setdefault(VARIABLE, str(random.randrange(10**6)))


def described() -> str:
    """Return a line for people: what was done, and how to repeat it."""
    chosen = os.environ[VARIABLE]
    if chosen == "all":
        return "sweeps: all requests and examples"
    return f"sweeps: one of {SHARE} requests and examples; SWEEPS={chosen} repeats them, SWEEPS=all tries all"


def sampled(items: Sequence[T]) -> list[T]:
    """Return all items, or a fifth of them in their order: another one in each test."""
    chosen = os.environ[VARIABLE]
    if chosen == "all":
        return list(items)
    numbers = random.Random(f"{chosen} {os.environ['PYTEST_CURRENT_TEST']}")
    return [items[each] for each in sorted(numbers.sample(range(len(items)), math.ceil(len(items) / SHARE)))]


def examples(most: int = 100, **options: Any) -> Callable[[F], F]:
    """Return a decorator for a test with `most` examples of Hypothesis, or a fifth of them, by the seed of this run."""
    chosen = os.environ[VARIABLE]
    number = most if chosen == "all" else most // SHARE
    settings = hypothesis.settings(max_examples=number, deadline=None, **options)
    return lambda test: hypothesis.seed(chosen)(settings(test))
