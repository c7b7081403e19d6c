"""The API server goes back in time: its data are restored from a backup of a moment before a run, during or after it.

What the run has written is lost, and what it has read may never have been. `make test` tries a fifth of the requests.
"""

from collections.abc import Iterator
from functools import partial

import pytest

from kubesandbox import Fault
from tests.fault_world import Built, World, differing
from tests.sandbox.test_every_fault import deleted, every_world
from tests.sweeps import sampled

pytestmark = pytest.mark.usefixtures("quick")
RUNS = 3


def restore(built: Built, cluster: World) -> None:
    cluster.sandbox.cluster.store.restore(built.template.cluster.store)


def wrong_afterwards(built: Built, cluster: World, undisturbed: World) -> Iterator[object]:
    for _ in range(RUNS):
        cluster.run()
    if not built.world.reads_again:  # its steps depend on controllers, which work on a real server
        yield from differing(built.world.state(cluster), built.world.state(undisturbed))
    yield from differing(built.world.untouched(cluster), built.world.untouched(undisturbed))
    yield from deleted(cluster.requests()) - deleted(undisturbed.requests())


@every_world
def test_the_next_runs_complete_what_a_restore_undid(built: Built) -> None:
    wrong: dict[str, object] = {}

    with built.serve() as undisturbed:
        for _ in range(1 + RUNS):
            undisturbed.run()
        for number in sampled(built.to_disturb()):
            with built.serve() as cluster:
                cluster.sandbox.inject(Fault(kind="call-before", call=partial(restore, built, cluster), skip=number))
                ran = cluster.run()
                cluster.sandbox.clear_faults()
                found: list[object] = [] if ran.exit_code in (0, 1, 2, built.world.exit_code) else [ran]
                found += wrong_afterwards(built, cluster, undisturbed)
            if found:
                wrong[built.name(number)] = found

    assert wrong == {}


@every_world
def test_the_next_runs_do_again_what_a_restore_undid_after_a_run(built: Built) -> None:
    with built.serve() as undisturbed, built.serve() as cluster:
        for _ in range(1 + RUNS):
            undisturbed.run()
        cluster.run()
        restore(built, cluster)
        cluster.run()

        assert [*wrong_afterwards(built, cluster, undisturbed)] == []
