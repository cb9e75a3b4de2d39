"""A worker's cap, shared: what always holds, and a few worked examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.shares import Share, rooms

shares = st.lists(
    st.builds(
        Share,
        running=st.integers(0, 30),
        most=st.integers(0, 60),
        weight=st.integers(1, 10),
        minimum=st.integers(0, 20),
    ),
    min_size=1,
    max_size=6,
)


def kept(share: Share, given: int = 0) -> int:
    return max(0, share.minimum - share.running - given)


@given(st.integers(0, 120), shares)
def test_never_too_much(cap: int, shares: list[Share]) -> None:
    """Within the cap, within what each could use, and nobody's minimum given away."""
    given = rooms(cap, shares)
    free = max(0, cap - sum(share.running for share in shares))
    assert all(0 <= room <= share.most for room, share in zip(given, shares, strict=True))
    assert sum(given) <= free
    if sum(map(kept, shares)) <= free and sum(s.minimum for s in shares) <= cap:
        left = free - sum(given)
        assert left >= sum(map(kept, shares, given))


@given(st.integers(0, 120), shares)
def test_never_too_little(cap: int, shares: list[Share]) -> None:
    """What no minimum is owed is used, if anybody can; and what is owed is given."""
    given = rooms(cap, shares)
    free = cap - sum(share.running for share in shares)
    fits = sum(s.minimum for s in shares) <= cap
    if not fits or sum(map(kept, shares)) > free:
        return
    left = free - sum(given) - sum(map(kept, shares, given))
    for room, share in zip(given, shares, strict=True):
        assert room >= min(share.most, kept(share))
        assert left == 0 or room == share.most


@given(st.integers(1, 120), shares)
def test_who_has_least_for_its_weight_is_next(cap: int, shares: list[Share]) -> None:
    """So whoever has work and nothing running is never left out for another's second slot."""
    shares = [Share(s.running, s.most, s.weight) for s in shares]
    given = rooms(cap, shares)
    for had, one in zip(given, shares, strict=True):
        for got, other in zip(given, shares, strict=True):
            if had > 0 and got < other.most:
                assert (one.running + had - 1) / one.weight <= (
                    other.running + got
                ) / other.weight


@given(st.integers(1, 40), st.lists(st.integers(1, 10), min_size=2, max_size=5), st.data())
def test_over_time_each_gets_by_its_weight(
    cap: int, weights: list[int], data: st.DataObject
) -> None:
    """Whatever ends first: queues that always have work run by their weights, to within one."""
    running = [0] * len(weights)
    for _ in range(30):
        given = rooms(cap, [Share(r, cap, w) for r, w in zip(running, weights, strict=True)])
        running = [r + g for r, g in zip(running, given, strict=True)]
        assert sum(running) == cap
        ending = data.draw(st.integers(0, len(weights) - 1))
        running[ending] = max(0, running[ending] - 1)
    given = rooms(cap, [Share(0, cap, w) for w in weights])
    for got, weight in zip(given, weights, strict=True):
        assert got == pytest.approx(cap * weight / sum(weights), abs=len(weights))


@pytest.mark.parametrize(
    ("cap", "queues", "expected"),
    [
        (10, [Share(0, 99), Share(0, 99)], [5, 5]),
        (10, [Share(0, 99, weight=4), Share(0, 99)], [8, 2]),
        (10, [Share(0, 99, weight=4), Share(0, 0)], [10, 0]),
        (10, [Share(8, 99), Share(0, 99)], [0, 2]),
        (10, [Share(0, 99), Share(0, 0, minimum=3)], [7, 0]),
        (10, [Share(7, 99), Share(0, 99, minimum=3)], [0, 3]),
        (10, [Share(0, 99, minimum=9), Share(0, 99, minimum=9)], [5, 5]),
        (10, [Share(12, 99), Share(0, 99, minimum=2)], [0, 0]),
        (0, [Share(0, 99)], [0]),
    ],
)
def test_examples(cap: int, queues: list[Share], expected: list[int]) -> None:
    assert rooms(cap, queues) == expected
