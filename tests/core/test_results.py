"""What a handler may say."""

from __future__ import annotations

import math
import pickle

import pytest

from awa_trio._core.results import MAX_DELAY, Cancel, RetryAfter, Snooze, WaitForCallback


@pytest.mark.parametrize("kind", [RetryAfter, Snooze])
@pytest.mark.parametrize("seconds", [0, 0.5, 3600, MAX_DELAY])
def test_a_delay_is_a_number_of_seconds(kind: type[RetryAfter], seconds: float) -> None:
    assert kind(seconds).seconds == seconds


@pytest.mark.parametrize("kind", [RetryAfter, Snooze])
@pytest.mark.parametrize(
    "seconds",
    [
        *(-1, -0.001, math.inf, math.nan, MAX_DELAY * 2),
        *(pytest.param(10**400, id="huge"), pytest.param(-(10**5000), id="huge negative")),
    ],
)
def test_a_delay_that_is_no_delay_is_refused(kind: type[RetryAfter], seconds: float) -> None:
    with pytest.raises(ValueError, match=kind.__name__):
        kind(seconds)


@pytest.mark.parametrize("seconds", ["5", None, True, [1]])
def test_a_delay_that_is_no_number_is_refused(seconds: object) -> None:
    with pytest.raises(TypeError, match="RetryAfter: give seconds, as a number, not"):
        RetryAfter(seconds)  # type: ignore[arg-type]


def test_results_are_equal_by_what_they_say() -> None:
    assert RetryAfter(5) == RetryAfter(5.0) != RetryAfter(6)
    assert Snooze(5) != RetryAfter(5)
    assert len({Cancel("a"), Cancel("a"), WaitForCallback("a")}) == 2


def test_results_can_be_raised_and_read() -> None:
    with pytest.raises(Snooze) as caught:
        raise Snooze(7)
    assert repr(caught.value) == "Snooze(7)"
    assert pickle.loads(pickle.dumps(caught.value)) == Snooze(7)


def test_a_cancel_has_a_reason_even_if_none_is_given() -> None:
    assert Cancel().reason == "cancelled by its handler"
