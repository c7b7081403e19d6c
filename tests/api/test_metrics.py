"""The metrics of each job, on the embedded and on a real API server. They are read from a file."""

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.api.conftest import Run, with_rule
from tests.api.test_roll_workloads import changed, new_web, with_baseline
from tests.apis import Api
from tests.mirrors import Mirrors
from tests.pushgateway import Series, series
from tests.rates import RatesServer, today
from tests.worlds import at, configmap, exchange_rate

Metrics = Callable[[str], Series]


@pytest.fixture
def sent(tmp_path: Path) -> Callable[..., Metrics]:
    """Run a job, and return a function that returns the series of a metric that it sent."""

    def run_and_read(run: Run, *arguments: str) -> Metrics:
        file = tmp_path / "job.prom"
        run("--metrics-file", str(file), *arguments)
        text = file.read_text()
        return lambda name: series(text, f"kube_chores_{name}")

    return run_and_read


def test_the_copies_of_each_rule(api: Api, sync: Run, sent: Callable[..., Metrics], home: str, team: str) -> None:
    source = with_rule(api, configmap(home), "settings")
    shop = api.namespace("shop")
    with_rule(
        api, configmap(api.namespace("annex"), "theme", labels={"copy": "theme"}), "broken", namespaces=["absent"]
    )
    api.create({**at(shop, source), "data": {"a": "of the team"}})

    found = sent(sync)

    assert found("rule_desired_copies")["settings",] - found("rule_copies")["settings",] == 1
    assert found("rule_copies")["settings",] >= 1
    assert found("rule_conflicts") == {("settings",): 1, ("broken",): 0}
    assert found("rule_ready") == {("settings",): 0, ("broken",): 0}
    assert found("findings")["conflict", "warning"] == 1

    api.delete(at(shop, source))
    found = sent(sync)
    assert found("rule_desired_copies")["settings",] == found("rule_copies")["settings",]
    assert (found("rule_ready")["settings",], found("rule_conflicts")["settings",]) == (1, 0)
    assert found("writes")["created", "done"] == 1


def test_a_verification_is_a_chore_of_its_own(
    api: Api, sync: Run, sent: Callable[..., Metrics], home: str, team: str, tmp_path: Path
) -> None:
    with_rule(api, configmap(home))

    found = sent(sync, "--verify", "content")

    assert 'kube_chores_run_exit_code{chore="sync-copies-verify",' in (tmp_path / "job.prom").read_text()
    assert found("writes")["created", "done"] >= 1
    assert found("rule_ready") == {}  # those of sync-copies are a minute old at most


def test_the_age_of_each_rate(api: Api, fetch: Run, rates: RatesServer, sent: Callable[..., Metrics]) -> None:
    shop = api.namespace("shop")
    api.create(exchange_rate(shop))
    api.create(exchange_rate(shop, "unknown", "XYZ"))

    found = sent(fetch)

    midnight = datetime.combine(today(), datetime.min.time(), timezone.utc).timestamp()
    assert found("rate_timestamp_seconds") == {(f"{shop}/usd",): midnight}
    assert found("rate_ready") == {(f"{shop}/usd",): 1, (f"{shop}/unknown",): 0}
    assert found("omitted_series") == {("kube_chores_rate_timestamp_seconds",): 0, ("kube_chores_rate_ready",): 0}


def test_a_run_works_if_it_fails_only_because_providers_do(
    api: Api, fetch: Run, rates: RatesServer, sent: Callable[..., Metrics]
) -> None:
    shop = api.namespace("shop")
    api.create(exchange_rate(shop))
    rates.fail(503)

    found = sent(fetch)

    assert (found("run_exit_code"), found("rate_ready")) == ({(): 1}, {(f"{shop}/usd",): 0})
    assert found("last_working_timestamp_seconds") == found("last_run_timestamp_seconds")


def test_the_state_of_each_mirror(audit: Run, mirrors: Mirrors, sent: Callable[..., Metrics]) -> None:
    healthy = mirrors.healthy()  # not probed, so its state is unknown
    missing = mirrors.create("missing", "gcr.io")["metadata"]["name"]

    found = sent(audit)

    assert found("mirror_ready") == {(missing,): 0}
    assert found("mirror_findings")[healthy.registry_mirror.name, "critical"] == 0
    assert found("mirror_findings")[missing, "critical"] == 5
    assert found("findings")["missing", "critical"] == 5


def test_a_repair_is_a_chore_of_its_own(repair: Run, mirrors: Mirrors, tmp_path: Path) -> None:
    mirrors.create("missing", "gcr.io")
    file = tmp_path / "repair.prom"

    repair("--metrics-file", str(file))

    assert 'kube_chores_run_exit_code{chore="mirror-repair",' in file.read_text()
    assert series(file.read_text(), "kube_chores_writes")["created", "done"] > 0


def test_the_deferred_rolls_by_reason(api: Api, roll: Run, sent: Callable[..., Metrics]) -> None:
    _, source, web = new_web(api)
    with_baseline(api, roll, web)
    changed(api, source)

    deferred = sent(roll, "--max-rolls", "0")("deferred_rolls")
    rolled = sent(roll)

    assert {reason for reason, number in deferred.items() if number} == {("max-rolls",)}
    assert set(rolled("deferred_rolls").values()) == {0}
    if api.kind == "sandbox":  # no controller observes the roll
        assert sent(roll)("incomplete_rolls") == {("rollout-incomplete",): 1, ("rollout-stuck",): 0}
    assert rolled("writes")["restarted", "done"] == 1
