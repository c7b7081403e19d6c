"""The metrics of a run: what a metric is, and those that each run has, whatever its job. Pure.

docs/metrics.md has the table of all metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product

from msgspec import Struct

from jobs.kit.run.results import UNCHANGED
from jobs.kit.values.model import Action, ExitCode, Finding, Outcome, Plan, Result, Severity
from jobs.kit.values.resources import RULES

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
LAST_WORKING = Metric(
    "kube_chores_last_working_timestamp_seconds",
    "Time of the end of the last run that failed at most because of rules, rates and clusters that are not ready.",
)
DURATION = Metric("kube_chores_run_duration_seconds", "Duration of the last run.")
EXIT_CODE = Metric("kube_chores_run_exit_code", "Exit code of the last run.")
FINDINGS = Metric("kube_chores_findings", "Findings that are left after the last complete run.", ("code", "severity"))
WRITES = Metric("kube_chores_writes", "Writes of the last complete run.", ("action", "outcome"))
REQUESTS = Metric("kube_chores_requests", "Requests to the API server, with retries.", ("method",))
RETRIES = Metric("kube_chores_retries", "Requests to the API server that were retries.")
RECEIVED_BYTES = Metric("kube_chores_received_bytes", "Bytes of the bodies that the API server sent.")
BRAKE_ENGAGED = Metric("kube_chores_brake_engaged", "1 if a brake blocked writes of the last complete run, else 0.")
UNCHANGED_OBJECTS = Metric("kube_chores_unchanged_objects", "Objects that were as desired.")

KEPT = (LAST_SUCCESS, LAST_WORKING)  # a run that fails keeps those of earlier runs
# Alerts report each resource that is 0 in one of these. Mirrors can also have warnings only.
_READY = ("kube_chores_cluster_ready", "kube_chores_rate_ready", "kube_chores_rule_ready")
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


def of_end(
    code: ExitCode, end: float, seconds: float, before: Mapping[Metric, float], *, is_working: bool
) -> Iterator[Sample]:
    """Yield the metrics that each run has, also one that failed early.

    `end` is a Unix time. `before` has the KEPT metrics of earlier runs, as far as they are known.
    """
    yield LAST_RUN.sample(end)
    for metric, is_now in ((LAST_SUCCESS, code is ExitCode.DONE), (LAST_WORKING, is_working)):
        if is_now or metric in before:
            yield metric.sample(end if is_now else before[metric])
    yield DURATION.sample(seconds)
    yield EXIT_CODE.sample(code)


def is_working(code: ExitCode, results: Iterable[Result], samples: Iterable[Sample]) -> bool:
    """Return whether a complete run succeeded, or only resources that the samples report as not ready failed it.

    A failed read or write counts only in another cluster: its cause is rarely the custom resource. An invalid
    CopyratorRule is not in the samples of each job that reads it.
    """
    if code not in (ExitCode.FAILED, ExitCode.REFUSED, ExitCode.BRAKE):
        return code is ExitCode.DONE
    not_ready = {(*each.metric.labels, *each.labels) for each in samples if _is_not_ready(each)}
    failed = [each for each in results if each.exit_code is not ExitCode.DONE and not _is_invalid_rule(each.finding)]
    return all(not not_ready.isdisjoint(_resources(each)) for each in failed)


def _is_not_ready(sample: Sample) -> bool:
    return sample.metric.name in _READY and not sample.value


def _is_invalid_rule(finding: Finding) -> bool:
    return finding.code == "invalid" and finding.object.kind == RULES.kind


def _resources(result: Result) -> list[tuple[str, str]]:
    """Return the cluster or the custom resources that are responsible for a failure, each as a label and its value."""
    finding = result.finding
    if name := result.cluster or (finding.object.name if finding.object.kind == "Cluster" else ""):
        return [("cluster", name)]
    is_mistake = result.exit_code is not ExitCode.FAILED or finding.code == "unavailable"  # or no provider has the rate
    if not is_mistake or result.outcome is not Outcome.REPORTED or finding.code == "unreadable":
        return []
    return [(label, name) for label in ("rate", "rule") for name in finding.subjects]


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
