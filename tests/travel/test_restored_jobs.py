"""etcd is restored from a backup while a job writes: the next run writes again what the restore undid, and no more."""

import pytest

from tests.travel.conftest import before_write
from tests.travel.town import WRITING, Town

pytestmark = pytest.mark.travel
WRITES_BEFORE = 20  # more than are in flight


def check_next_run(town: Town, job: str) -> None:
    """The next run writes what the restored data lack, each once; the one after that nothing."""
    lacking = town.paths(job) - town.done(job)
    assert lacking
    town.api.mark()
    assert town.run(job).exit_code == 0
    assert town.written(job) == dict.fromkeys(lacking, 1)
    assert town.done(job) == town.paths(job)
    town.check_nothing_is_left(job)


@pytest.mark.parametrize("job", WRITING)
def test_a_backup_of_a_moment_of_a_run_is_completed(town: Town, job: str) -> None:
    """A roll is repeated if the backup is older: the pods are then those of the backup, too."""
    town.prepare(job)
    with before_write(WRITES_BEFORE, town.hub.snapshot):
        assert town.run(job).exit_code == 0
    assert town.done(job) == town.paths(job)

    town.hub.restore()

    assert town.done(job)
    check_next_run(town, job)


@pytest.mark.parametrize("job", WRITING)
def test_a_run_during_a_restore_is_completed_by_the_next(town: Town, job: str) -> None:
    town.prepare(job)
    town.hub.snapshot()

    with before_write(WRITES_BEFORE, town.hub.restore):
        ran = town.run(job)

    assert ran.exit_code in (0, 1), ran
    check_next_run(town, job)


@pytest.mark.parametrize("job", ["sync-copies", "roll-workloads"])
def test_an_old_value_that_a_restore_brings_back_rolls_no_workload(town: Town, job: str) -> None:
    """The config, its copies and the record of what the pods have are of the same moment."""
    town.prepare("roll-workloads")
    assert town.run("roll-workloads").exit_code == 0
    town.settle_all()
    town.hub.snapshot()
    town.change()
    for each in ("sync-copies", "roll-workloads"):
        assert town.run(each).exit_code == 0

    town.hub.restore()

    town.check_nothing_is_left(job)
