"""Delays between attempts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.backoff import MAX_BACKOFF, delay, exponential


@pytest.mark.parametrize(
    ("attempt", "least", "most"),
    [(1, 2.0, 2.5), (2, 4.0, 5.0), (10, 1024.0, 1280.0), (16, 65_536.0, 81_920.0)],
)
def test_the_first_delays(attempt: int, least: float, most: float) -> None:
    assert (exponential(attempt, 0.0), exponential(attempt, 1.0)) == (least, most)


@given(st.integers(-5, 10_000_000), st.floats(0, 1))
def test_any_attempt_has_a_delay_of_at_most_a_day(attempt: int, fraction: float) -> None:
    assert 0 < exponential(attempt, fraction) <= MAX_BACKOFF


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_delays_grow(attempt: int, fraction: float) -> None:
    assert exponential(attempt, fraction) <= exponential(attempt + 1, fraction)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [(5, 5.0), (-1, 0.0), (1e9, 86_400.0), (math.inf, 86_400.0), (math.nan, 86_400.0)],
)
def test_a_tasks_own_delay_is_clamped(returned: float, expected: float) -> None:
    assert delay(3, 0.5, lambda attempt: returned) == expected


def test_a_tasks_own_delay_is_given_the_attempt_that_failed() -> None:
    assert delay(3, 0.5, lambda attempt: attempt * 10) == 30
