"""The benchmarks run on the real control plane, at a tiny size."""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from benchmarks import tables
from benchmarks.cluster import Clone, bench_cluster
from benchmarks.compare import BARE, compare
from benchmarks.worlds import farm_pods, sync_copies
from tests import control_plane
from tests.worlds import namespace_object

pytestmark = pytest.mark.cluster
PROGRAMS = (sync_copies.OWN, sync_copies.IN_POD, BARE)  # to build the Go program takes minutes


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := control_plane.missing():
        pytest.skip(reason)


def test_a_world_runs_with_its_bare_client() -> None:
    prepare = partial(sync_copies.prepare, programs=(sync_copies.OWN, BARE))
    programs = {name: sync_copies.PROGRAMS[name] for name in PROGRAMS}
    world = replace(sync_copies.WORLD, prepare=prepare, programs=programs)

    results = list(compare(world, 1, [30]))

    ran = {(each.program, each.scenario): each for each in results}
    measured = [key for key in product(PROGRAMS, world.scenarios) if sync_copies.at_most(*key, 30)]
    assert list(ran) == measured
    for (program, scenario), each in ran.items():
        assert each.written == (0 if scenario == "converged" else 30), (program, scenario)
        assert each.peak_mib > 5
    # Pages of namespaces, copies and sources; one write for each copy.
    assert ran[BARE, "converged"].requests == 3
    assert ran[BARE, "changed"].requests == 33
    assert len(tables.of_job([world], {world.name: results})) == 2 + 3


def test_the_world_of_farm_pods() -> None:
    scenarios = {name: each for name, each in farm_pods.WORLD.scenarios.items() if name != "at its rate"}
    world = replace(farm_pods.WORLD, scenarios=scenarios)

    ran = {(each.program, each.scenario): each for each in compare(world, 1, [90])}

    assert {key: each.written for key, each in ran.items() if each.written} == {
        (farm_pods.OWN, "changed"): 3,
        (BARE, "changed"): 3,
    }
    # Pages of FarmPods and pods. The job also lists namespaces and counts pods.
    assert (ran[BARE, "converged"].requests, ran[farm_pods.OWN, "converged"].requests) == (2, 4)
    assert (ran[BARE, "few opted in"].requests, ran[farm_pods.OWN, "few opted in"].requests) == (3, 3)
    assert ran[farm_pods.IN_FULL, "converged"].received > ran[farm_pods.OWN, "converged"].received


def test_clones_that_were_written_without_the_api_server_are_served() -> None:
    with bench_cluster() as cluster:
        cluster.put([namespace_object("team-0")])
        template, before = cluster.template("/api/v1/namespaces/team-0"), cluster.count("/api/v1/namespaces")

        with cluster.without_api_server():
            cluster.write(template.clone(Clone("", f"team-{number}")) for number in range(1, 4))

        assert cluster.count("/api/v1/namespaces") == before + 3
        assert cluster.api.call("GET", "/api/v1/namespaces/team-3")["metadata"]["uid"] != template.uid


def test_the_clusters_of_a_hub_are_compared_with_local_runs() -> None:
    command = [sys.executable, "-m", "benchmarks.clusters", "1", "3", "2"]  # a process without threads, which forks

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    assert [each[0] for each in rows] == [
        "first: 2 clusters",
        "converged: 2 clusters",
        "converged: one large cluster",
        "converged: 2 local runs",
        "converged: 2 clusters, 1 at once",
        "changed: 2 clusters",
        "converged: 1 cluster",
        "converged: 4 clusters",
    ]
    requests = {name: int(figures[-2]) for name, *figures in rows}
    assert requests["first: 2 clusters"] >= 60 + requests["converged: 2 clusters"]
    assert requests["converged: 2 clusters, 1 at once"] == requests["converged: 2 clusters"]
