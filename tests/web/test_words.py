"""What people read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from awa_trio import Rate
from awa_trio._core import outcome
from awa_trio._core.report import report
from awa_trio._counts import counted
from awa_trio.web import _words as words

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "just now"), (-0.9, "just now"), (1.4, "1 s ago"), (-4, "in 4 s"), (9.6, "10 s ago"),
     (-7200, "in 2 h")],
)  # fmt: skip
def test_instants(seconds: float, said: str) -> None:
    assert words.ago(NOW - timedelta(seconds=seconds), NOW) == said
    assert words.ago(None) == ""


def test_counts_end_somewhere_and_say_so() -> None:
    assert counted(9_999) == "9,999"
    assert counted(10_000) == counted(10_001) == "10,000+"
    assert counted(12_345, None) == "12,345"


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_of_an_error_its_type_and_place_are_told_and_none_of_its_words() -> None:
    for said in ("card 4242", "card 4242\n  /tmp/x.py:1 in y", "", "Secret: 4242"):
        told = words.headline(report(raised(ValueError(said))))
        assert told.startswith("ValueError at test_words.py:")
        assert told.endswith(" in raised")


@pytest.mark.parametrize(
    "somebodys", ["Smith", "Declined: card 4242", "declined", "4242", "", "a b\nc d", "Ärger"]
)
def test_somebodys_words_are_not_told(somebodys: str) -> None:
    assert words.headline(somebodys) == ""


def test_what_awa_trio_itself_records_is_told() -> None:
    own = {outcome.TIMED_OUT, *(lost.value for lost in outcome.Lost)}
    assert own == words.OWN_ERRORS
    for sentence in own:
        assert words.headline(sentence) == sentence
    assert words.headline("DeadlineExceeded: the deadline of 5 s passed") == "DeadlineExceeded"


def test_what_is_shown_of_a_value_ends_somewhere() -> None:
    assert words.pretty(b'{"a": 1}') == '{\n  "a": 1\n}'
    assert words.pretty(b"[" * 100_000).startswith("[[[")
    long = words.pretty(b'"' + b"x" * 300_000 + b'"')
    assert len(long) < 101_000
    assert "characters more" in long
    assert words.pretty(None) == ""
    assert words.pretty(b"\xff") == "\ufffd"


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "no limit"), (True, "yes"), (False, "no"), (1000, "1,000"), (0.5, "0.5"),
     (Rate(10, burst=1), "10 per second, 1 at once"), (Rate(300, per=60, burst=9), "300 per 60 s, 9 at once")],
)  # fmt: skip
def test_settings(value: object, said: str) -> None:
    assert words.setting("rate", value) == said
    assert words.setting("deadline", 300.0) == "300 s"
    assert words.setting("priority_ageing", 0) == "none"
