"""The API server goes back in time during a run: its data are restored from a backup of a moment before the run.

What the run has written is lost, and what it has read may never have been. `make test` tries a fifth of the requests.
"""

from functools import partial

import pytest

from kubesandbox import Fault
from tests.fault_world import Built, World, differing
from tests.sandbox.test_every_fault import every_world, sweep
from tests.sweeps import sampled

pytestmark = pytest.mark.usefixtures("quick")


def restore(built: Built, cluster: World) -> None:
    cluster.sandbox.cluster.store.restore(built.template.cluster.store)


@every_world
def test_the_next_run_completes_what_a_restore_undid(built: Built) -> None:
    def disturb(cluster: World, number: int) -> list[object]:
        cluster.sandbox.inject(Fault(kind="call-before", call=partial(restore, built, cluster), skip=number))
        ran = cluster.run()
        cluster.sandbox.clear_faults()
        return [] if ran.exit_code in (0, 1, 2, built.world.exit_code) else [ran]

    assert sweep(built, sampled(built.to_disturb()), disturb) == {}


@every_world
def test_the_next_run_does_again_what_a_restore_undid_after_it(built: Built) -> None:
    with built.serve() as cluster:
        cluster.run()
        restore(built, cluster)

        assert cluster.run().exit_code == built.world.exit_code
        assert differing(built.world.end(cluster), built.end) == []
