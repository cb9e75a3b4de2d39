"""Delays between attempts."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.backoff import MAX_BACKOFF, delay, exponential, usable


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
    ("returned", "expected", "problem"),
    [
        (5, 5.0, ""),
        (Decimal("1.5"), 1.5, ""),
        (MAX_BACKOFF, MAX_BACKOFF, ""),
        (-1, 0.0, "a negative number"),
        (-math.inf, 0.0, "a negative number"),
        (1e9, MAX_BACKOFF, "more than a day"),
        (10**400, MAX_BACKOFF, "more than a day"),
        (math.inf, MAX_BACKOFF, "more than a day"),
        (math.nan, None, "NaN"),
        (None, None, "a NoneType"),
        ("5", None, "a str"),
        (True, None, "a bool"),
        (timedelta(1), None, "a timedelta"),
    ],
)
def test_what_a_tasks_own_function_may_return(
    returned: Any, expected: float | None, problem: str
) -> None:
    assert usable(returned) == (expected, problem)
    used = exponential(3, 0.5) if expected is None else expected
    assert delay(3, 0.5, lambda attempt: returned) == used


def test_a_tasks_own_delay_is_given_the_attempt_that_failed() -> None:
    assert delay(3, 0.5, lambda attempt: attempt * 10) == 30
