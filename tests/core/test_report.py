"""What of an exception is recorded, and what may be logged."""

from __future__ import annotations

import re

import pytest

from awa_trio._core.outcome import DeadlineExceeded
from awa_trio._core.report import MAX_REPORT_CHARS, headline, report, storable


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raised(error: BaseException) -> BaseException:
    """The same error, with a traceback through this function."""
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_error_is_its_type_its_message_and_the_users_frames() -> None:
    lines = report(raised(ValueError("wrong"))).splitlines()
    assert lines[0] == "ValueError: wrong"
    assert re.fullmatch(r"  .*test_report\.py:\d+ in raised", lines[1])
    assert lines[2] == "    raise error"


def test_a_group_is_its_leaves() -> None:
    error = BaseExceptionGroup(
        "", [raised(ValueError("a")), ExceptionGroup("", [KeyError("b")])]
    )
    text = report(error)
    assert "ValueError: a" in text
    assert "KeyError: 'b'" in text
    assert "ExceptionGroup" not in text


def test_a_cause_is_named() -> None:
    error = ValueError("outer")
    error.__cause__ = KeyError("inner")
    assert "from KeyError: 'inner'" in report(error)


def test_what_cleanup_raised_is_recorded_with_the_cut() -> None:
    text = report(DeadlineExceeded("the deadline passed", ZeroDivisionError("cleanup")))
    assert "the deadline passed" in text
    assert "ZeroDivisionError: cleanup" in text


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        ExceptionGroup("", [Unprintable(), Unprintable()]),
        ValueError("nul \x00 and \ud800 half"),
        ValueError("x" * 1_000_000),
        ExceptionGroup("", [ValueError(str(n)) for n in range(1000)]),
        KeyboardInterrupt(),
    ],
)
def test_whatever_it_is_it_can_be_stored(error: BaseException) -> None:
    text = report(error)
    assert 0 < len(text) <= MAX_REPORT_CHARS
    assert "\x00" not in text
    text.encode("utf-8")


def test_what_cannot_be_stored_is_escaped_and_the_rest_is_left_alone() -> None:
    assert storable("a\x00b\ud83dc") == "a\\x00b\\ud83dc"
    assert storable("ünïcödé 🎉") == "ünïcödé 🎉"


def test_a_headline_never_quotes_the_message() -> None:
    error = BaseExceptionGroup("secret", [raised(ValueError("secret")), KeyError("secret")])
    text = headline(error)
    assert "secret" not in text
    assert "ValueError at test_report.py:" in text
    assert "KeyError" in text
