"""Turns: nobody hides or delays what belongs to others by having the most, or the first by name."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.kit.run.brakes import in_turns


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers())), st.integers(1, 5))
def test_each_owner_has_a_part_of_each_turn_and_nothing_is_lost(items: list[tuple[str, int]], size: int) -> None:
    found = in_turns(items, lambda each: each[0], size)

    assert sorted(found) == sorted(items)
    for owner in "abc":
        own = [number for number, each in enumerate(found) if each[0] == owner]
        assert [found[number] for number in own] == [each for each in items if each[0] == owner], "in their order"
        for count, number in enumerate(own):
            turn = count // size
            before = [each[0] for each in found[:number] if each[0] != owner]
            assert all(before.count(other) <= (turn + 1) * size for other in "abc")
