"""farm-pods while pods are replaced during its runs."""

from functools import partial
from pathlib import Path

import pytest

from kubesandbox import Fault
from tests.apis import Api, sandbox_api
from tests.farm import owner, pod
from tests.fault_world import Built

pytestmark = pytest.mark.parametrize("built", ["farm-pods"], indirect=True)


def test_a_pod_recreated_at_any_moment_of_a_run_owns_its_farm_pod_after_the_next(built: Built, tmp_path: Path) -> None:
    """The result is the same if the job or the garbage collector is first."""
    wrong: dict[str, object] = {}
    for number in range(len(built.trace)):
        with built.serve() as world:
            api = sandbox_api(world.sandbox, tmp_path)
            world.sandbox.inject(Fault(kind="call-before", call=partial(_renew, api), skip=number))
            codes = {world.run().exit_code for _ in range(2)}
            end = built.world.state(world).get(("farmpods", "shop", "farm-kept"))
            now = world.stored("pods")["pods", "shop", "kept"]
        if codes != {0} or not end or (end["ownerReferences"], end["spec"]["containers"]) != ([owner(now)], 3):
            wrong[f"before {built.name(number)}"] = (codes, end, now["metadata"]["uid"])
    assert wrong == {}


def _renew(api: Api) -> None:
    api.delete(pod("shop", "kept"))
    api.create(pod("shop", "kept", containers=3))
