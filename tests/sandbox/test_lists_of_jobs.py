"""What each job sends when nothing is to be written: lists, in the form that costs the server least and is safe."""

import pytest

from kubesandbox import Request
from tests.every_job import fault_worlds
from tests.fault_world import Built

METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# Objects that runs read by name, each with one request. In these worlds, `taken` are objects in the place of a copy,
# and `adopted` waits for somebody to confirm. A mirror names its Secret. Workloads name all that they use. A
# FarmPod whose spec was ever changed is compared with its pod.
READ_BY_NAME = {
    "sync-copies": {"taken", "adopted"},
    "sync-copies of more kinds": {"taken"},
    "fetch-rates": {"taken"},
    "mirror-audit": {"login"},
    "mirror-repair": {"login"},
    "farm-pods": {"farm-edited", "edited", "farm-recreated", "recreated"},
}
WORLDS = fault_worlds()
every_world = pytest.mark.parametrize("built", WORLDS, indirect=True, scope="module")


@pytest.fixture
def converged(built: Built) -> list[Request]:
    """The requests of a run that has nothing to write, without access reviews."""
    with built.serve() as cluster:
        cluster.run()
        cluster.run()
        cluster.sandbox.requests.clear()
        cluster.run()
        return [each for each in cluster.requests() if each.path != REVIEWS]


def is_list(request: Request) -> bool:
    return "limit" in request.query


@every_world
def test_a_converged_run_writes_nothing(converged: list[Request]) -> None:
    writes = [each for each in converged if each.method != "GET"]

    # The Event of a roll that waits for something exists: its name is that of the first run.
    assert [each for each in writes if not (each.path.endswith("/events") and each.status == 409)] == []


@pytest.mark.parametrize("built", [name for name in WORLDS if "roll" not in name], indirect=True, scope="module")
def test_a_converged_run_sends_lists(built: Built, converged: list[Request]) -> None:
    names = [each.path.rpartition("/")[2] for each in converged if not is_list(each)]

    assert set(names) <= READ_BY_NAME.get(built.world.name, set())
    assert len({each.path for each in converged if not is_list(each)}) == len(names)


@every_world
def test_lists_are_of_the_latest_state(converged: list[Request]) -> None:
    parameters = {name for each in converged for name in each.query}

    # With a resourceVersion, a list may be older than a list before it: docs/performance.md.
    assert parameters <= {"limit", "continue", "labelSelector", "fieldSelector"}


@every_world
def test_lists_accept_gzip_but_those_of_values_of_secrets(converged: list[Request]) -> None:
    for each in filter(is_list, converged):
        assert each.accept in (METADATA, "application/json")
        has_values = each.path.endswith("/secrets") and each.accept != METADATA
        assert each.accept_encoding == ("" if has_values else "gzip"), each.path
