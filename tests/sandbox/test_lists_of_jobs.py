"""What each job sends when nothing is to be written: lists, in the form that costs the server least and is safe."""

import pytest

from kubesandbox import Request
from tests.every_job import fault_worlds
from tests.fault_world import Built

METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubject"


def is_list(request: Request) -> bool:
    return "limit" in request.query


@pytest.mark.parametrize("built", fault_worlds(), indirect=True)
def test_a_converged_run_sends_lists_of_the_latest_state_with_gzip_but_for_values_of_secrets(built: Built) -> None:
    with built.serve() as cluster:
        cluster.run()
        cluster.run()
        cluster.sandbox.requests.clear()
        cluster.run()
        converged = [each for each in cluster.requests() if not each.path.startswith(REVIEWS)]

    # The Event of a roll that waits for something exists: its name is that of the first run.
    writes = [each for each in converged if each.method != "GET"]
    assert [each for each in writes if not (each.path.endswith("/events") and each.status == 409)] == []
    # With a resourceVersion, a list may be older than a list before it: docs/performance.md.
    parameters = {name for each in converged for name in each.query}
    assert parameters <= {"limit", "continue", "labelSelector", "fieldSelector"}
    # In lists of pods and CronJobs in full, environment variables may be secret.
    secret = ("/secrets", "/pods", "/cronjobs") if built.world.job == "mirror-audit" else ("/secrets",)
    for each in filter(is_list, converged):
        assert each.accept in (METADATA, "application/json")
        has_values = each.path.endswith(secret) and each.accept != METADATA
        assert each.accept_encoding == ("" if has_values else "gzip"), each.path
    if built.world.job != "roll-workloads":
        names = [each.path.rpartition("/")[2] for each in converged if not is_list(each)]
        assert set(names) <= built.world.read_by_name, "other objects are read one by one"
        assert len({each.path for each in converged if not is_list(each)}) == len(names)
