"""The tables of what runs cost the server, and of the latency on a node."""

import pytest

from benchmarks import latency, server_cost


@pytest.mark.parametrize(
    ("job", "runs"), [("sync-copies", 60), ("farm-pods", 12), ("mirror-audit", 4), ("fetch-rates", 1)]
)
def test_runs_in_an_hour_are_those_of_the_shipped_schedule(job: str, runs: int) -> None:
    assert server_cost.runs_per_hour(job) == runs


def test_a_job_has_the_median_of_its_runs_and_its_share_on_schedule() -> None:
    names = {"job": "sync-copies", "unit": "copies", "size": 10_000, "etcd": 0.01}

    rows = server_cost.rows([{**names, "kube-apiserver": each} for each in (0.19, 0.29, 0.39)])

    # 0.3 seconds, 60 times in an hour
    assert rows[2:] == ["| sync-copies, 10,000 copies | 300 (200-400) | 0.50% |"]


def test_the_latency_is_the_sum_of_phases() -> None:
    rounds = [{"start": start, **dict.fromkeys(latency.PHASES, 0.1)} for start in ("by hand", "scheduled")]

    rows = latency.rows(rounds)

    assert rows[0] == "| until | by hand, ms | scheduled, ms |"
    assert (rows[2], rows[-1]) == ("| pod is assigned to the node | 300 | 300 |", "| writes; last copy | 800 | 800 |")
