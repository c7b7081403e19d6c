"""The pure parts of the benchmarks: clones, ratios, exponents and the tables of the page."""

from typing import Any

import pytest

from benchmarks import page, tables
from benchmarks.cluster import Clone, Template, etcd_key, list_path, replaced
from benchmarks.compare import World, rotated
from benchmarks.measured import Measured, figures_of

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


def test_ratios_are_those_of_pairs() -> None:
    own, bare = [run("farm-pods", 10, each) for each in (1, 2, 9)], [run("bare Python", 10, each) for each in (1, 4, 3)]

    rows = tables.ratios(WORLD, [*own, *bare])

    assert rows[2].startswith("| converged | 10 | farm-pods / bare Python | 1.00 (0.50-3.00) | 1.00 |")


def test_a_program_that_ran_less_often_has_fewer_pairs() -> None:
    own, bare = [run("farm-pods", 10, each) for each in (1, 2, 9)], [run("bare Python", 10, 2)]

    assert tables.ratio(tables.SECONDS, own, bare) == "0.50"


def test_cpu_below_the_clock_of_the_kernel_is_not_compared() -> None:
    short = [run("farm-pods", 10, 1, apiserver_cpu_seconds=0.02, etcd_cpu_seconds=0.0)]

    assert tables.ratio(tables.SERVER, short, short) == "-"
    assert tables.exponent(tables.SERVER, {10: short, 1000: short}) == "-"


def test_exponents_are_the_slope_of_the_logarithms() -> None:
    assert tables.slope({10: 3.0, 100: 30.0, 1000: 300.0}) == pytest.approx(1)
    assert tables.slope({10: 3.0, 1000: 30.0}) == pytest.approx(0.5)
    assert tables.slope({10: 3.0, 1000: 3.0}) == pytest.approx(0)


def test_the_summary_has_the_run_with_nothing_to_write_at_the_largest_size() -> None:
    results = [run(name, size, size / 100) for name in ("farm-pods", "bare Python") for size in (10, 1000)]

    rows = tables.summary([WORLD], {"farm-pods": results}, {"farm-pods": "256 MiB"})

    assert rows[2:] == ["| farm-pods | 1,000 pods | 10.00 | 10 | 256 MiB | 3 | 1.00 | 1.00 |"]


def test_a_table_replaces_the_one_between_its_marks_and_is_added_without_marks() -> None:
    text = page.with_table("# Page\n", "rules", ["| old |"])
    text = page.with_table(text, "other", ["| kept |"])

    text = page.with_table(text, "rules", ["| new |"])

    assert "| old |" not in text
    assert text.count("<!-- rules: written by `make benchmark` -->\n| new |\n<!-- end -->\n") == 1
    assert "| kept |\n<!-- end -->\n" in text


def test_stored_results_have_a_line_for_each_run() -> None:
    assert page.stored({"conditions": {"a": "b"}, "rules": [{"seconds": 1.23456}, {"seconds": 2.0}]}) == (
        '{\n "conditions": {"a": "b"},\n "rules": [\n  {"seconds": 1.2346},\n  {"seconds": 2.0}\n ]\n}\n'
    )
