"""The tables of what runs cost the server, and of the latency on a node."""

from typing import Any

import pytest

from benchmarks import latency, server_cost
from benchmarks.compare import BARE
from benchmarks.list_client import TODAY


def run(program: str, apiserver: float) -> dict[str, Any]:
    names = {"job": "sync-copies", "program": program, "unit": "copies", "size": 10_000}
    return {**names, "kube-apiserver": apiserver, "etcd": 0.01}


def listed(way: str, apiserver: float, reads: int) -> dict[str, Any]:
    figures = {"cpu": 0.1, "seconds": 0.2, "received": 2e6, "requests": 20.0, "etcd reads": reads}
    return {"server": "1.33", "way": way, "kube-apiserver": apiserver, **figures}


@pytest.mark.parametrize(
    ("job", "runs"), [("sync-copies", 60), ("farm-pods", 12), ("mirror-audit", 4), ("fetch-rates", 1)]
)
def test_runs_in_an_hour_are_those_of_the_shipped_schedule(job: str, runs: int) -> None:
    assert server_cost.runs_per_hour(job) == runs


def test_a_job_has_the_medians_of_its_runs_and_ratios_of_pairs() -> None:
    runs = [run(name, each) for each in (0.19, 0.29, 0.39) for name in ("sync-copies", BARE)]

    rows = server_cost.rows_of_runs(runs)

    # 0.3 seconds, 60 times in an hour
    assert rows[2:] == ["| sync-copies, 10,000 copies | 290 (190-390) | 10 | 0.50% | 1.00 |"]


def test_a_way_to_list_is_compared_with_that_of_the_jobs() -> None:
    lists = [listed(TODAY, 0.2, 19), listed("one page", 0.1, 0), listed(TODAY, 0.4, 19), listed("one page", 0.1, 0)]

    rows = server_cost.rows_of_lists(lists)

    assert rows[2:] == [
        f"| 1.33 | {TODAY} | 1.00 | 1.00 | 1.00 | 2.00 | 20 | 19 |",
        "| 1.33 | one page | 0.38 (0.25-0.50) | 1.00 | 1.00 | 2.00 | 20 | 0 |",
    ]


def test_each_phase_of_the_latency_is_a_row() -> None:
    phases = dict.fromkeys(latency.PHASES, 0.1)
    rounds = [{"start": start, **phases, "to the last copy": 0.8} for start in ("by hand", "scheduled")]

    rows = latency.tables(rounds)["latency"]

    assert rows[0] == "| phase | by hand, ms | scheduled, ms |"
    assert rows[2] == "| Job is created | 100 (100-100) | 100 (100-100) |"
    assert rows[-1] == "| to the last copy | 800 (800-800) | 800 (800-800) |"
    assert len(rows) == len(latency.PHASES) + 3


def test_a_machine_without_a_node_keeps_the_table() -> None:
    assert latency.tables([]) == {}
