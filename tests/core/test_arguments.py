"""Values that are not what a parameter takes: one sentence that names it, and an error to catch."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest

from awa_trio._core.arguments import check_seconds, check_string, check_type, check_whole
from awa_trio._core.errors import ConfigurationError

whole = partial(check_whole, "n", most=9)
string = partial(check_string, "s", most=3)
seconds = partial(check_seconds, "grace")
whole_or_none = partial(
    whole, instead=" or None", error=ConfigurationError, wrong_type=ConfigurationError
)
an_hour = partial(check_seconds, "step", most=3600, positive=True)
a_while = partial(check_seconds, "wait", least=1, most=60, instead=" or a timedelta")


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (whole, 1),
        (whole, 9),
        (string, "é日x"),
        (partial(check_string, "s"), ""),
        (seconds, 0),
        (seconds, math.inf),
        (lambda value: check_type("x", value, dict), {}),
    ],
)
def test_what_is_right_passes(check: Callable[[object], None], value: object) -> None:
    check(value)


@pytest.mark.parametrize(
    ("check", "value", "error", "message"),
    [
        (whole, 0, ValueError, "n: give a whole number from 1 to 9, not 0"),
        (whole, 10, ValueError, "n: give a whole number from 1 to 9, not 10"),
        pytest.param(
            whole, 10**5000, ValueError, "n: give a whole number from 1 to 9", id="huge"
        ),
        (whole, True, TypeError, "n: give a whole number from 1 to 9, not bool"),
        (whole, "5", TypeError, "n: give a whole number from 1 to 9, not str"),
        (whole, None, TypeError, "n: give a whole number from 1 to 9, not None"),
        (whole, 1.0, TypeError, "n: give a whole number from 1 to 9, not float"),
        (string, 5, TypeError, "s: give a str, not int"),
        (string, b"a", TypeError, "s: give a str, not bytes"),
        (string, "a\0b", ValueError, r"s: U\+0000 cannot be stored"),
        (string, "\ud800", ValueError, "s: a lone surrogate cannot be stored"),
        (string, "", ValueError, "s: give 1 to 3 characters, not 0"),
        (string, "abcd", ValueError, "s: give 1 to 3 characters, not 4"),
        (seconds, -1, ValueError, "grace: give at least 0 seconds, not -1"),
        (seconds, math.nan, ValueError, "grace: give at least 0 seconds, not nan"),
        pytest.param(
            seconds,
            -(10**400),
            ValueError,
            "grace: give at least 0 seconds, not a number as",
            id="huge negative seconds",
        ),
        pytest.param(
            seconds,
            10**400,
            ValueError,
            "grace: so many seconds are for ever; give math.inf",
            id="huge seconds",
        ),
        (seconds, True, TypeError, "grace: give seconds, as a number, not bool"),
        (seconds, "5", TypeError, "grace: give seconds, as a number, not str"),
        (partial(seconds, error=ConfigurationError), -1, ConfigurationError, "grace"),
        (whole_or_none, 10**7, ConfigurationError, "n: give .* 1 to 9 or None, not 10,000,000"),
        (whole_or_none, "5", ConfigurationError, "n: give .* 1 to 9 or None, not str"),
        (partial(check_whole, "n"), 0, ValueError, "n: give a whole number from 1 on, not 0"),
        (an_hour, 0, ValueError, "step: give more than 0 and at most 3,600 seconds, not 0"),
        (an_hour, 3601.0, ValueError, "step: give more than 0 and at most 3,600 seconds, not"),
        (a_while, 0.5, ValueError, "wait: give 1 to 60 seconds or a timedelta, not 0.5"),
        (a_while, "5", TypeError, "wait: give seconds, as a number or a timedelta, not str"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    check: Callable[[object], None], value: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{message}") as caught:
        check(value)
    assert type(caught.value) is error
    assert len(str(caught.value)) < 100
