"""The metrics of a run: their names, their labels, and how many series there are at most."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jobs.__main__ import chores
from jobs.core.fetch_rates import plan as of_rates
from jobs.core.fetch_rates.exchange_rates import ExchangeRate
from jobs.core.fetch_rates.exchange_rates import Spec as RateSpec
from jobs.core.fetch_rates.observed import Observed as ObservedRates
from jobs.core.fetch_rates.observed import Settings as RateSettings
from jobs.core.mirror_audit import status as of_mirrors
from jobs.core.roll_workloads import plan as of_rolls
from jobs.core.sync_copies import clusters as of_clusters
from jobs.core.sync_copies import status as of_rules
from jobs.kit.run import gauges
from jobs.kit.run.gauges import MOST_RESOURCES, Metric, Sample
from jobs.kit.run.metrics import Families
from jobs.kit.values.model import (
    Action,
    Change,
    Deletion,
    ExitCode,
    Finding,
    ObjectKey,
    Outcome,
    Plan,
    Result,
    Severity,
)
from jobs.kit.values.reads import Head
from jobs.kit.values.registry import JOBS

MODULES = (gauges, gauges, of_rates, of_mirrors, of_rolls, of_rules, of_clusters)
METRICS = {each for module in MODULES for each in vars(module).values() if isinstance(each, Metric)}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def values(samples: Iterator[Sample], metric: Metric) -> dict[tuple[str, ...], float]:
    """The values of one metric by its labels, as Prometheus reads them."""
    text = generate_latest(Families(samples, "chore", "here")).decode()
    found = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {
        tuple(each.labels[name] for name in metric.labels): each.value for each in found if each.name == metric.name
    }


def finding(code: str, severity: Severity = Severity.WARNING, change: Change | None = None, name: str = "a") -> Finding:
    return Finding(code, severity, ObjectKey("ConfigMap", name, "team"), "", change, subjects=("settings",))


def test_no_label_is_a_namespace() -> None:
    labels = {label for metric in METRICS for label in metric.labels}

    of_runs = {"action", "code", "method", "metric", "outcome", "reason", "severity"}
    assert labels == of_runs | {"cluster", "mirror", "rate", "rule"}


def test_a_metric_of_custom_resources_has_a_limited_number_of_series() -> None:
    metric = of_rules.RULE_COPIES
    names = [f"rule-{number}" for number in range(MOST_RESOURCES + 7)]

    samples = [*gauges.of_resources(metric, ((name, 1) for name in names))]

    assert len(values(iter(samples), metric)) == MOST_RESOURCES
    assert values(iter(samples), gauges.OMITTED) == {(metric.name,): 7}


def test_one_namespace_with_many_rates_does_not_displace_those_of_others() -> None:
    heads = [Head(ObjectKey("ExchangeRate", f"rate-{n:04}", "many"), uid=f"{n}") for n in range(MOST_RESOURCES + 50)]
    heads.append(Head(ObjectKey("ExchangeRate", "zloty", "shop"), uid="shop"))
    observed = ObservedRates(tuple(ExchangeRate(head, RateSpec("USD")) for head in heads), list_failed=True)

    samples = [*of_rates.gauges(observed, RateSettings("", {}), Plan(), [], NOW)]

    assert len(values(iter(samples), of_rates.RATE_READY)) == MOST_RESOURCES
    assert ("shop/zloty",) in values(iter(samples), of_rates.RATE_READY)


def test_findings_that_the_run_resolved_are_not_counted() -> None:
    change = Change(Action.DELETE, Deletion("uid", "1"))
    results = [
        Result(finding("orphan", change=change), Outcome.DONE),
        Result(finding("orphan", change=change, name="b"), Outcome.FAILED),
        Result(finding("conflict"), Outcome.REPORTED),
        Result(finding("unchanged", Severity.INFO), Outcome.REPORTED),
    ]

    samples = [*gauges.of_results(Plan(unchanged=5), results)]

    found = values(iter(samples), gauges.FINDINGS)
    assert {key: value for key, value in found.items() if value} == {
        ("conflict", "warning"): 1,
        ("orphan", "warning"): 1,
    }
    written = values(iter(samples), gauges.WRITES)
    assert {key for key, value in written.items() if value} == {("deleted", "done"), ("deleted", "failed")}
    assert ("created", "failed") in written
    assert values(iter(samples), gauges.BRAKE_ENGAGED) == {(): 0}
    assert values(iter(samples), gauges.UNCHANGED_OBJECTS) == {(): 5}


def test_a_blocked_deletion_engages_the_brake() -> None:
    blocked = Result(finding("orphan"), Outcome.REPORTED, exit_code=ExitCode.BRAKE)

    assert values(gauges.of_results(Plan(), [blocked]), gauges.BRAKE_ENGAGED) == {(): 1}


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [(ExitCode.DONE, None, 9.0), (ExitCode.DONE, 5.0, 9.0), (ExitCode.FAILED, 5.0, 5.0), (ExitCode.BRAKE, None, None)],
)
def test_only_exit_code_0_is_a_success(code: ExitCode, before: float | None, after: float | None) -> None:
    kept = {} if before is None else {gauges.LAST_SUCCESS: before, gauges.LAST_WORKING: 6.0}

    samples = [*gauges.of_end(code, 9.0, 0.5, kept, is_working=code is ExitCode.BRAKE)]

    assert values(iter(samples), gauges.LAST_SUCCESS).get(()) == after
    assert values(iter(samples), gauges.LAST_WORKING).get(()) == (
        9.0 if code is ExitCode.BRAKE else kept.get(gauges.LAST_WORKING)
    )
    assert values(iter(samples), gauges.LAST_RUN) == {(): 9.0}
    assert values(iter(samples), gauges.EXIT_CODE) == {(): float(code)}


RULE = finding("source-missing")  # of rule `settings`
UNREACHED = Finding("unreachable", Severity.CRITICAL, ObjectKey("Cluster", "eu"), "")
INVALID = Finding(
    "invalid", Severity.CRITICAL, ObjectKey("CopyratorRule", "b", "kube-chores"), "", exit_code=ExitCode.REFUSED
)
UNAVAILABLE = Finding(
    "unavailable", Severity.CRITICAL, ObjectKey("ExchangeRate", "usd", "shop"), "", subjects=("shop/usd",)
)
NO_PROVIDER = Result(UNAVAILABLE, Outcome.REPORTED, exit_code=ExitCode.FAILED)
NOT_READY = (of_rules.RULE_READY.sample(0, "settings"), of_clusters.CLUSTER_READY.sample(0, "eu"))


@pytest.mark.parametrize(
    ("code", "results", "samples"),
    [
        (ExitCode.DONE, [Result(RULE, Outcome.FAILED)], ()),
        (ExitCode.BRAKE, [Result(RULE, Outcome.REPORTED, exit_code=ExitCode.BRAKE)], NOT_READY),
        (ExitCode.REFUSED, [Result(RULE, Outcome.REPORTED, exit_code=ExitCode.REFUSED)], NOT_READY),
        (ExitCode.FAILED, [Result(UNREACHED, Outcome.REPORTED, exit_code=ExitCode.FAILED)], NOT_READY),
        (ExitCode.FAILED, [Result(RULE, Outcome.FAILED, exit_code=ExitCode.FAILED, cluster="eu")], NOT_READY),
        (ExitCode.REFUSED, [Result(INVALID, Outcome.REPORTED, exit_code=ExitCode.REFUSED)], ()),
        (ExitCode.FAILED, [NO_PROVIDER], [of_rates.RATE_READY.sample(0, "shop/usd")]),
    ],
    ids=[
        "success",
        "brake",
        "mistake",
        "unreachable-cluster",
        "write-in-a-cluster",
        "an-invalid-rule-in-a-job-without-metrics-of-rules",
        "no-provider-of-a-rate",
    ],
)
def test_a_run_works_if_only_resources_that_are_not_ready_fail_it(
    code: ExitCode, results: list[Result], samples: Sequence[Sample]
) -> None:
    assert gauges.is_working(code, results, samples)


OF_RULE = Result(RULE, Outcome.REPORTED, exit_code=ExitCode.BRAKE)


@pytest.mark.parametrize(
    ("code", "result", "samples"),
    [
        (ExitCode.FINDINGS, OF_RULE, NOT_READY),
        (ExitCode.STOPPED, OF_RULE, NOT_READY),
        (ExitCode.BRAKE, OF_RULE, ()),
        (ExitCode.BRAKE, OF_RULE, [of_rules.RULE_READY.sample(1, "settings")]),
        (ExitCode.BRAKE, OF_RULE, [of_clusters.CLUSTER_READY.sample(0, "settings")]),
        (ExitCode.BRAKE, OF_RULE, [of_mirrors.MIRROR_READY.sample(0, "settings")]),
        (ExitCode.FAILED, Result(RULE, Outcome.REPORTED, exit_code=ExitCode.FAILED), NOT_READY),
        (ExitCode.REFUSED, Result(RULE, Outcome.FAILED, exit_code=ExitCode.REFUSED), NOT_READY),
        (
            ExitCode.REFUSED,
            Result(finding("unreadable"), Outcome.REPORTED, exit_code=ExitCode.REFUSED),
            NOT_READY,
        ),
        (ExitCode.FAILED, Result(UNREACHED, Outcome.REPORTED, exit_code=ExitCode.FAILED), NOT_READY[:1]),
        (ExitCode.FAILED, NO_PROVIDER, [*NOT_READY, of_rates.RATE_READY.sample(1, "shop/usd")]),
        (ExitCode.FAILED, Result(UNAVAILABLE, Outcome.FAILED, exit_code=ExitCode.FAILED), NOT_READY),
    ],
    ids=[
        "findings-with-check",
        "stopped",
        "a-deleted-rule",
        "a-ready-rule",
        "a-cluster-of-this-name",
        "a-mirror-of-this-name",
        "a-retry-can-help",
        "a-refused-write",
        "a-missing-right",
        "another-cluster",
        "a-ready-rate",
        "a-write-of-a-rate",
    ],
)
def test_a_run_does_not_work_if_no_resource_reports_a_failure(
    code: ExitCode, result: Result, samples: Sequence[Sample]
) -> None:
    explained = [OF_RULE, Result(UNREACHED, Outcome.REPORTED, exit_code=ExitCode.FAILED)]

    assert not gauges.is_working(code, [result], samples)
    assert not gauges.is_working(code, [*explained, result], samples)


def test_requests_are_counted_by_method_also_if_there_are_none() -> None:
    samples = [*gauges.of_traffic({"GET": 4}, 2, 3)]

    requests = {"DELETE": 0, "GET": 4, "PATCH": 0, "POST": 0, "PUT": 0}
    assert values(iter(samples), gauges.REQUESTS) == {(method,): number for method, number in requests.items()}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--push-gateway", "pushgateway:9091", "the value is not an http or https URL."),
        ("--push-gateway", "http://user:hunter2@pushgateway/?x=1", "the URL has a query or a fragment"),
        (
            "--push-gateway",
            "http://user:1/hunter2@pushgateway",
            "the URL has @ in its path; in a password, replace / by",
        ),
        ("--push-gateway", "http://user:1?hunter2@pushgateway", "the URL has a query or a fragment"),
        ("--push-gateway", "ftp://user:hunter2@pushgateway", "the value is not an http or https URL."),
        ("--metrics-file", "/tmp/metrics.txt", "'/tmp/metrics.txt' does not end in .prom"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_without_its_password(
    job: str, flag: str, value: str, message: str
) -> None:
    run = CliRunner().invoke(chores, [job, flag, value], env={"KUBECONFIG": "/nonexistent"})

    assert run.exit_code == 2
    assert message in run.output
    assert "hunter2" not in run.output


@pytest.mark.parametrize("job", JOBS)
def test_without_the_flags_nothing_that_sends_metrics_is_imported(job: str, tmp_path: Path) -> None:
    """A CronJob may start every minute."""
    assert imported(job, tmp_path) & {"prometheus_client", "jobs.kit.run.metrics"} == set()
    assert "prometheus_client" in imported(job, tmp_path, "--metrics-file", str(tmp_path / "x.prom"), "-n", "team")


def imported(job: str, folder: Path, *arguments: str) -> set[str]:
    """The modules that a run without a cluster imports."""
    code = f"""if True:
        import sys
        from jobs.__main__ import main
        try:
            main({[job, *arguments]!r})
        except SystemExit:
            print(*sys.modules)
    """
    env = {"KUBECONFIG": "/nonexistent", "HOME": str(folder)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env, text=True)
    return set(run.stdout.split())
