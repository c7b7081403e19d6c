"""The pure parts of the benchmarks: clones, ratios and the tables of the page."""

import json
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest

from benchmarks import clusters, page, tables
from benchmarks.cluster import Clone, Template, etcd_key, list_path, replaced
from benchmarks.compare import World, rotated
from benchmarks.measured import Measured, Usage, figures_of
from benchmarks.worlds import own_cluster

WORLD = World(
    "farm-pods", "pods", (10, 1000), lambda *_: None, {"converged": lambda *_: 0}, {"farm-pods": lambda _: []}
)


def run(program: str, size: int, seconds: float, **figures: Any) -> Measured:
    usual = {"seconds": seconds, "cpu_seconds": 1.0, "apiserver_cpu_seconds": 1.0, "etcd_cpu_seconds": 1.0}
    usual |= {"peak_mib": 10.0, "requests": 3, "received": 2_000_000, "sent": 0, "written": 0}
    return Measured("farm-pods", program, "converged", size, **{**usual, **figures})


def test_a_clone_has_its_own_name_namespace_and_uid() -> None:
    stored = b"k8s\x00\x0a\x05web-0\x0a\x04shop\x24uid-1 web-0.shop node-1"
    template = Template("/registry/pods/shop/web-0", "/api/v1/pods", stored, "shop", "web-0", "uid-1")

    key, content = template.clone(Clone("mail", "web-7", "uid-2", {"node-1": "node-2"}))

    assert key == "/registry/pods/mail/web-7"
    assert content == b"k8s\x00\x0a\x05web-7\x0a\x04mail\x24uid-2 web-7.mail node-2"


def test_texts_are_replaced_at_once_and_the_longest_first() -> None:
    assert replaced(b"aa a b", {"a": "b", "b": "a", "aa": "xy"}) == b"xy b a"


def test_a_text_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="another length than web: mail"):
        replaced(b"web", {"web": "mail"})


@pytest.mark.parametrize(
    ("path", "key", "listed_at"),
    [
        ("/api/v1/namespaces/shop", "/registry/namespaces/shop", "/api/v1/namespaces"),
        ("/api/v1/nodes/n1", "/registry/minions/n1", "/api/v1/nodes"),
        ("/api/v1/namespaces/shop/pods/web", "/registry/pods/shop/web", "/api/v1/pods"),
        ("/api/v1/namespaces/shop/services/web", "/registry/services/specs/shop/web", "/api/v1/services"),
        (
            "/apis/apps/v1/namespaces/shop/deployments/web",
            "/registry/deployments/shop/web",
            "/apis/apps/v1/deployments",
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web",
            "/registry/endpointslices/shop/web",
            "/apis/discovery.k8s.io/v1/endpointslices",
        ),
        (
            "/apis/kubechores.dev/v1/namespaces/shop/farmpods/web",
            "/registry/kubechores.dev/farmpods/shop/web",
            "/apis/kubechores.dev/v1/farmpods",
        ),
        (
            "/apis/kubechores.dev/v1/registrymirrors/hub",
            "/registry/kubechores.dev/registrymirrors/hub",
            "/apis/kubechores.dev/v1/registrymirrors",
        ),
    ],
)
def test_keys_in_etcd_and_paths_of_lists(path: str, key: str, listed_at: str) -> None:
    assert (etcd_key(path), list_path(path)) == (key, listed_at)


def test_programs_start_in_another_order_in_each_run() -> None:
    assert [rotated(["a", "b", "c"], number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_figures_of_a_job_and_of_a_bare_client() -> None:
    traffic = {"requests": {"GET": 2, "POST": 1}, "bytesReceived": 5, "bytesSent": 4}
    bare = {"requests": 3, "received": 5, "sent": 4, "written": 1}

    assert figures_of({"traffic": traffic, "summary": {"created": 1, "unchanged": 7}}) == bare
    assert figures_of(bare) == bare


def test_the_table_of_a_job_has_the_largest_size_and_ratios_of_pairs() -> None:
    results = [run(name, size, size / 100) for name in ("farm-pods", "bare Python") for size in (10, 1000)]
    results += [run("farm-pods", 1000, 30), run("bare Python", 1000, 10), run("farm-pods", 1000, 20)]

    rows = tables.of_job([WORLD], {"farm-pods": results})

    assert rows[2:] == ["| converged | 1,000 pods | 20.00 | 10 | 3 | 2.00 (1.00-3.00) |"]


def test_the_other_worlds_of_a_job_name_their_programs() -> None:
    other = replace(WORLD, name="many", pairs=(("a", "b"), ("many rules", "one rule")))
    found = [run("farm-pods", 10, 1)]

    rows = tables.of_job([WORLD, other], {"farm-pods": found, "many": [run("many rules", 9, 2), run("one rule", 9, 1)]})

    assert rows[2:] == [
        "| converged | 10 pods | 1.00 | 10 | 3 | - |",
        "| converged: many rules / one rule | 9 pods | 2.00 | 10 | 3 | 2.00 |",
    ]


def test_stored_results_have_a_line_for_each_run() -> None:
    assert page.stored({"conditions": {"a": "b"}, "rules": [{"seconds": 1.23456}, {"seconds": 2.0}]}) == (
        '{\n "conditions": {"a": "b"},\n "rules": [\n  {"seconds": 1.2346},\n  {"seconds": 2.0}\n ]\n}\n'
    )


def test_runs_over_clusters_are_compared_with_as_many_local_runs() -> None:
    found = [
        replace(run(program, size, seconds), scenario=scenario)
        for scenario, program, size, seconds in (
            ("first", clusters.AT_ONCE, 20, 60),
            ("first", clusters.LARGE, 1, 70),
            ("converged", clusters.LOCAL, 20, 10),
            ("converged", clusters.AT_ONCE, 20, 4),
            ("converged", clusters.LARGE, 1, 15),
            ("converged", clusters.AT_ONCE, 1, 2),
        )
    ]

    assert clusters.rows([asdict(each) for each in found])[2:] == [
        "| first: 20 clusters | 60.00 | 1.00 | 10 | 3 | - |",
        "| converged: 20 local runs | 10.00 | 1.00 | 10 | 3 | - |",
        "| converged: 20 clusters | 4.00 | 1.00 | 10 | 3 | 0.40 |",
        "| converged: one large cluster | 15.00 | 1.00 | 10 | 3 | - |",
        "| converged: 1 cluster | 2.00 | 1.00 | 10 | 3 | - |",
    ]


def test_only_namespaces_of_the_measurement_are_deleted_and_only_with_their_uid() -> None:
    world = own_cluster.World("0a1b", 2)
    names = ["chores-benchmark-0a1b-00001", "chores-benchmark-0a1b-00002", "chores-benchmark-0a1b", "shop"]

    writes = list(world.deletions((name, f"uid-{number}") for number, name in enumerate(names)))

    assert [(each.name, json.loads(each.body)["preconditions"]) for each in writes] == [
        ("chores-benchmark-0a1b-00001", {"uid": "uid-0"}),
        ("chores-benchmark-0a1b", {"uid": "uid-2"}),
    ]


def test_a_run_that_writes_something_else_has_no_figures() -> None:
    failed = [{"outcome": "failed", "reason": "from home/source", "message": message} for message in ("quota", "quota")]
    report = {"traffic": {"requests": {"GET": 6}, "bytesReceived": 0, "bytesSent": 0}, "summary": {"created": 18}}
    used = Usage(0, 1.5, 1.0, 40.0, json.dumps({**report, "results": failed}).encode(), "")

    assert own_cluster.figures("changed", used, 18) == own_cluster.Run("changed", 1.5, 40.0, 6)
    what = "run 'first' of sync-copies"
    assert own_cluster.figures("first", used, 20) == f"{what} wrote 18 copies in place of 20: quota"
    assert own_cluster.figures("first", used._replace(exit_code=2, stdout=b""), 20) == f"{what} ended with exit code 2"


@pytest.mark.parametrize(
    ("left", "sent", "end"),
    [
        ("", "SIGTERM", (143, "")),
        ("left", "SIGTERM", (0, "143")),
        ("left", "SIGTERM SIGTERM", (0, "143")),
        ("left", "SIGHUP SIGTERM", (0, "129")),
        ("left", "SIGINT SIGINT", (130, "left")),
        ("left", "SIGTERM SIGINT", (143, "left")),
    ],
)
def test_only_a_second_ctrl_c_ends_a_clean_up(left: str, sent: str, end: tuple[int, str]) -> None:
    code = (
        "import signal, sys; from benchmarks.signals import Signals\n"
        "signals = Signals(); signals.left = sys.argv[1]\n"
        "for name in sys.argv[2].split(): signal.raise_signal(signal.Signals[name])\n"
        "sys.stderr.write(str(signals.exit_code))"
    )
    command = ["/usr/bin/env", "--default-signal", sys.executable, "-c", code, left, sent]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == end
