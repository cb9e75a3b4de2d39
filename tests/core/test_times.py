"""Durations and instants, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from awa_trio._times import at_in_words, in_words, measured


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 ms"), (0.0004, "0.4 ms"), (0.0065, "6.5 ms"), (0.184, "184 ms"), (0.9996, "1.0 s"),
     (3.21, "3.2 s"), (9.96, "10 s"), (61, "61 s"), (119.4, "119 s"), (119.9, "2 min"),
     (3 * 3600, "3 h"), (86_400 * 9, "9 d"), (-5, "5.0 s")],
)  # fmt: skip
def test_what_was_measured_is_told_to_two_digits(seconds: float, said: str) -> None:
    assert measured(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.4, "0 s"), (3.21, "3 s"), (90, "90 s"), (-120, "2 min"), (7_199, "120 min"),
     (7_200, "2 h"), (172_800, "2 d")],
)  # fmt: skip
def test_nobody_is_told_a_unit_of_which_it_is_less_than_two(seconds: float, said: str) -> None:
    assert in_words(seconds) == said


def test_an_instant_is_told_in_utc_with_how_far_off_it_is() -> None:
    at = datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    for before, said in ((300, "in 5 min"), (-90, "90 s ago"), (0.5, "just now")):
        present = datetime(2026, 1, 1, 12, tzinfo=UTC) - timedelta(seconds=before)
        assert at_in_words(at, present) == f"2026-01-01 12:00:00 UTC, {said}"
