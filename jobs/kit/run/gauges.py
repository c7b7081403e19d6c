"""The metrics of a run: what a metric is, and those that each run has, whatever its job. Pure.

docs/metrics.md has the table of all metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product

from msgspec import Struct

from jobs.kit.run.results import UNCHANGED
from jobs.kit.values.model import Action, ExitCode, Outcome, Plan, Result, Severity

MOST_RESOURCES = 500  # custom resources with a series in one metric


class Metric(Struct, frozen=True):
    """A gauge. It has the `labels`, and `chore` and `installation`, which all metrics have."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def sample(self, value: float, *labels: str) -> Sample:
        """Return a sample with the values of the labels in their order."""
        return Sample(self, float(value), labels)


class Sample(Struct, frozen=True):
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


LAST_RUN = Metric("kube_chores_last_run_timestamp_seconds", "Time of the end of the last run.")
LAST_SUCCESS = Metric("kube_chores_last_success_timestamp_seconds", "Time of the end of the last run with exit code 0.")
DURATION = Metric("kube_chores_run_duration_seconds", "Duration of the last run.")
EXIT_CODE = Metric("kube_chores_run_exit_code", "Exit code of the last run.")
FINDINGS = Metric("kube_chores_findings", "Findings that are left after the last complete run.", ("code", "severity"))
WRITES = Metric("kube_chores_writes", "Writes of the last complete run.", ("action", "outcome"))
REQUESTS = Metric("kube_chores_requests", "Requests to the API server, with retries.", ("method",))
RETRIES = Metric("kube_chores_retries", "Requests to the API server that were retries.")
RECEIVED_BYTES = Metric("kube_chores_received_bytes", "Bytes of the bodies that the API server sent.")
BRAKE_ENGAGED = Metric("kube_chores_brake_engaged", "1 if a brake blocked writes of the last complete run, else 0.")
UNCHANGED_OBJECTS = Metric("kube_chores_unchanged_objects", "Objects that were as desired.")

_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def of_end(code: ExitCode, end: float, seconds: float, last_success: float | None) -> Iterator[Sample]:
    """Yield the metrics that each run has, also one that failed early.

    `end` is a Unix time. `last_success` is that of an earlier run; None: not known.
    """
    yield LAST_RUN.sample(end)
    succeeded = end if code is ExitCode.DONE else last_success
    if succeeded is not None:
        yield LAST_SUCCESS.sample(succeeded)
    yield DURATION.sample(seconds)
    yield EXIT_CODE.sample(code)


def of_traffic(requests: Mapping[str, int], retries: int, received_bytes: int) -> Iterator[Sample]:
    """Yield the metrics of the requests to the API server, which `requests` has by method."""
    for method in sorted({*_METHODS, *requests}):
        yield REQUESTS.sample(requests.get(method, 0), method)
    yield RETRIES.sample(retries)
    yield RECEIVED_BYTES.sample(received_bytes)


def of_results(plan: Plan, results: Sequence[Result]) -> Iterator[Sample]:
    """Yield the metrics of a complete run. Codes without a finding, and writes that did not happen, are 0 or absent."""
    for code, severity in product(("invalid", "unreadable"), Severity):
        yield FINDINGS.sample(0, code, severity.value)
    for action, outcome in product({each.word for each in Action}, (Outcome.DONE, Outcome.FAILED)):
        yield WRITES.sample(0, action, outcome.value)
    for result in results:
        finding = result.finding
        if finding.code != UNCHANGED and result.outcome is not Outcome.DONE:
            yield FINDINGS.sample(1, finding.code, finding.severity.value)
        if finding.change:
            yield WRITES.sample(1, finding.change.action.word, result.outcome.value)
    yield BRAKE_ENGAGED.sample(bool(plan.brakes) or any(each.exit_code is ExitCode.BRAKE for each in results))
    yield UNCHANGED_OBJECTS.sample(plan.unchanged)
