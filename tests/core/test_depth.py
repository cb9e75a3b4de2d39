"""What a producer may enqueue upon one count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.depth import GOOD_FOR, Allowance


@given(st.integers(0, 100), st.integers(1, 100), st.lists(st.integers(1, 20)))
def test_one_count_is_good_for_half_of_the_room_it_found(
    depth: int, limit: int, wanted: list[int]
) -> None:
    known: Allowance | None = Allowance.counted(depth, limit, 0.0)
    spent = 0
    for count in wanted:
        assert known is not None
        left = known.take(count, GOOD_FOR / 2)
        if left is None:
            break
        spent += count
        known = left
    assert depth + spent <= max(limit, depth)
    assert spent <= max(0, limit - depth) / 2


def test_a_count_is_good_for_a_while() -> None:
    known = Allowance.counted(0, 100, 10.0)
    assert known.take(1, 10.0 + GOOD_FOR / 2) is not None
    assert known.take(1, 10.0 + GOOD_FOR) is None


def test_more_than_fit_at_all_are_let_into_an_empty_queue_only() -> None:
    assert Allowance.counted(0, 10, 0.0).fits(500)
    assert not Allowance.counted(1, 10, 0.0).fits(500)
    assert Allowance.counted(1, 10, 0.0).fits(9)
    assert not Allowance.counted(1, 10, 0.0).fits(10)
    assert not Allowance.counted(0, 10, 0.0).taken(500).fits(1)
