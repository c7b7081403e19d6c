"""The deletion brake: how many deletions a run may do."""

import pytest

from jobs.kit.run.brakes import allowed


@pytest.mark.parametrize(
    ("desired", "max_deletes", "most"),
    [(0, None, 10), (100, None, 10), (109, None, 10), (110, None, 11), (5000, None, 500), (5000, 3, 3), (1, 0, 0)],
)
def test_the_limit_is_max_deletes_or_10_or_a_tenth_of_the_desired_objects(
    desired: int, max_deletes: int | None, most: int
) -> None:
    assert allowed(desired, max_deletes) == most
