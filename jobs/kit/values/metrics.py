"""Metrics of a run: their names, help and labels, and samples of them. Pure.

https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

MOST_RESOURCES = 500  # custom resources with a series in one metric


class Metric(NamedTuple):
    """A gauge. It has the `labels`, and `chore` and `installation`, which all metrics have."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def sample(self, value: float, *labels: str) -> Sample:
        """Return a sample with the values of the labels in their order."""
        return Sample(self, float(value), labels)


class Sample(NamedTuple):
    """A value of a metric. Values of samples with the same labels are added."""

    metric: Metric
    value: float
    labels: tuple[str, ...]


OMITTED = Metric(
    "kube_chores_omitted_series",
    f"Custom resources without a series in this metric: it has at most {MOST_RESOURCES}.",
    ("metric",),
)


def of_resources(metric: Metric, values: Iterable[tuple[str, float]]) -> Iterator[Sample]:
    """Yield a sample for each custom resource, by name, up to MOST_RESOURCES, and the number of the others."""
    remaining = iter(values)
    for name, value in islice(remaining, MOST_RESOURCES):
        yield metric.sample(value, name)
    yield OMITTED.sample(sum(1 for _ in remaining), metric.name)
