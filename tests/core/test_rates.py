"""Token buckets: never more than they hold and get, and no less."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.errors import ConfigurationError
from awa_trio._core.rates import Bucket, Rate, seconds_to, take, tokens, whole

rates = st.builds(
    Rate,
    st.floats(0.01, 1000),
    per=st.floats(0.1, 3600),
    burst=st.integers(1, 100),
)
#: Seconds that pass, and how many would be taken then.
visits = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), min_size=1, max_size=40)


@given(rates, visits)
def test_no_stretch_of_time_has_more_than_burst_and_rate_allow(
    rate: Rate, visits: list[tuple[float, int]]
) -> None:
    now, bucket, taken = 1000.0, None, []
    for seconds, wanted in visits:
        now += seconds
        count = min(wanted, whole(tokens(rate, bucket, now)))
        bucket = take(rate, bucket, count, now)
        taken.append((now, count))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            span = taken[last][0] - taken[first][0]
            count = sum(n for _, n in taken[first : last + 1])
            assert count <= rate.burst + span * rate.per_second + 1e-3


@given(rates, st.integers(1, 200))
def test_who_takes_each_token_when_it_comes_gets_the_whole_rate(rate: Rate, count: int) -> None:
    now, bucket = 0.0, take(rate, None, rate.burst, 0.0)
    for _ in range(count):
        wait = seconds_to(rate, bucket, now)
        assert wait > 0
        now += wait
        assert whole(tokens(rate, bucket, now)) == 1
        bucket = take(rate, bucket, 1, now)
    assert now == pytest.approx(count / rate.per_second, rel=1e-3)


@given(rates, st.floats(-1e6, 1e6))
def test_a_clock_that_is_set_brings_no_more_than_a_burst_and_takes_nothing(
    rate: Rate, jump: float
) -> None:
    bucket = Bucket(rate.burst / 2, 1e7)
    level = tokens(rate, bucket, 1e7 + jump)
    assert bucket.tokens <= level <= rate.burst


def test_a_new_bucket_is_full() -> None:
    rate = Rate(10, burst=7)
    assert (tokens(rate, None, 0.0), seconds_to(rate, None, 0.0)) == (7.0, 0.0)


@pytest.mark.parametrize(
    ("rate", "burst"),
    [
        (Rate(10), 1),
        (Rate(100), 10),
        (Rate(60, per=60), 1),
        (Rate(0.1), 1),
        (Rate(3, burst=3), 3),
    ],
)
def test_the_default_burst_is_a_tenth_of_a_second_and_one_at_least(
    rate: Rate, burst: int
) -> None:
    assert rate.burst == burst
    assert Rate.from_json(rate.to_json()) == rate


@pytest.mark.parametrize(
    "arguments",
    [
        {"count": 0},
        {"count": -1},
        {"count": math.inf},
        {"count": math.nan},
        {"count": True},
        {"count": "10"},
        {"count": 1, "per": 0},
        {"count": 1, "per": math.inf},
        {"count": 1, "per": 1e-9},
        {"count": 1e-9, "per": 1e6},
        {"count": 1, "burst": 0},
        {"count": 1, "burst": 1.5},
    ],
)
def test_a_rate_that_is_none_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"^Rate[.(].*: give "):
        Rate(**arguments)
