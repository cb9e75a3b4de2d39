"""Statistics: percentiles, spreads, ratios."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .figures import best_of, percentile, ratio, short, spread

VALUES = st.lists(st.floats(0, 1e6), min_size=1).map(sorted)


@given(values=VALUES, percent=st.integers(1, 100))
def test_so_many_percent_do_not_exceed_a_percentile(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_the_hundredth_percentile_is_the_most_and_the_median_is_in_the_middle() -> None:
    assert percentile([1, 2, 3, 4], 100) == 4
    assert percentile([1, 2, 3], 50) == 2


@pytest.mark.parametrize(
    ("value", "written"),
    [(14_338.2, "14,338"), (99.94, "99.9"), (0.00213, "0.00213"), (0, "0"), (-12.3, "-12.3")],
)
def test_numbers_have_the_digits_that_mean_something(value: float, written: str) -> None:
    assert short(value) == written


def test_a_spread_names_the_median_the_least_and_the_most() -> None:
    assert spread([300, 100, 200]) == "200 (100-300)"
    assert spread([100]) == "100"
    assert spread([]) == "-"


def test_a_ratio_is_taken_round_by_round() -> None:
    """The machine was twice as fast in the second round: no ratio says so."""
    ours, theirs = [200.0, 400.0, 200.0], [100.0, 200.0, 100.0]
    assert ratio(ours, {"theirs": theirs}, more_is_better=True) == (2.0, "theirs")


def test_a_ratio_is_to_the_best_of_the_others() -> None:
    peers: dict[str, list[float | None]] = {
        "slow": [10.0, 11.0],
        "fast": [20.0, 22.0],
        "broken": [None, None],
    }
    assert ratio([40.0, 44.0], peers, more_is_better=True) == (2.0, "fast")
    assert ratio([5.0, 5.5], peers, more_is_better=False) == (0.5, "slow")


def test_a_round_that_failed_is_left_out_of_both() -> None:
    assert ratio([None, 30.0], {"b": [1.0, 10.0]}, more_is_better=True) == (3.0, "b")
    assert ratio([30.0, None], {"b": [None, 10.0]}, more_is_better=True) is None


def test_there_is_no_ratio_without_peers_nor_to_nothing() -> None:
    assert ratio([1.0], {}, more_is_better=True) is None
    assert ratio([1.0], {"b": [0.0]}, more_is_better=False) is None
    assert best_of({"a": [], "b": [None]}, more_is_better=True) is None
