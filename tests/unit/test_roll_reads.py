"""How many ConfigMaps and Secrets a run of roll-workloads reads."""

from datetime import datetime, timedelta, timezone

import pytest

from jobs.core.roll_workloads import observe
from jobs.core.roll_workloads.observe import within_bounds
from jobs.kit.values.model import Dependency, ObjectKey

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "MOST_OF_NAMESPACE", 10)
    monkeypatch.setattr(observe, "MOST", 25)


def wanted(namespace: str, workloads: int, sources: int) -> dict[ObjectKey, list[Dependency]]:
    """Return workloads of a namespace, each with its own sources."""
    return {
        ObjectKey("Deployment", f"web-{one}", namespace): [
            Dependency(ObjectKey("ConfigMap", f"c-{one}-{each}", namespace)) for each in range(sources)
        ]
        for one in range(workloads)
    }


def count(needs: set[Dependency], namespace: str) -> int:
    return sum(each.key.namespace == namespace for each in needs)


def test_a_namespace_with_many_sources_takes_no_reads_of_others() -> None:
    worlds = {**wanted("a-tenant", 350, 9), **wanted("shop", 5, 2), **wanted("team", 1, 3)}

    needs, findings = within_bounds(worlds, (), NOW)

    assert [count(needs, name) for name in ("a-tenant", "shop", "team")] == [9, 10, 3]
    (finding,) = findings
    assert (finding.object.name, finding.reason.partition(":")[0]) == ("a-tenant", "349 workloads were not compared")


def test_many_namespaces_together_are_limited_and_those_that_want_least_come_first() -> None:
    worlds = {key: needs for n in range(9) for key, needs in wanted(f"many-{n}", 1, 9).items()} | wanted("z", 1, 2)

    needs, findings = within_bounds(worlds, (), NOW)

    assert (len(needs), count(needs, "z"), len(findings)) == (20, 2, 7)


def test_what_was_read_counts_so_that_a_run_ends() -> None:
    worlds = wanted("shop", 3, 4)
    needs, _ = within_bounds(worlds, (), NOW)
    assert len(needs) == 8
    rest = {key: of for key, of in worlds.items() if not needs.issuperset(of)}

    again, findings = within_bounds(rest, [each.key for each in needs], NOW)

    assert (again, len(findings)) == (set(), 1)


def test_later_runs_read_what_this_one_does_not() -> None:
    worlds, runs = wanted("shop", 30, 5), (NOW + timedelta(minutes=5 * number) for number in range(100))

    assert len(set().union(*(within_bounds(worlds, (), now)[0] for now in runs))) == 150


def test_shared_sources_count_once() -> None:
    shared = [Dependency(ObjectKey("ConfigMap", f"c-{each}", "shop")) for each in range(10)]
    worlds = {ObjectKey("Deployment", f"web-{one}", "shop"): shared for one in range(50)}

    assert within_bounds(worlds, (), NOW) == (set(shared), [])
