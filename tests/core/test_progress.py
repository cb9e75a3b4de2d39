"""Progress and output: what is kept of them, and what is refused."""

from __future__ import annotations

import json
import threading
from enum import StrEnum
from typing import Any

import pytest

import awa_trio as awa
from awa_trio._core.job import JobState
from awa_trio._core.output import MAX_OUTPUT_BYTES, encode_output
from awa_trio._core.plan import Transition, annotate
from awa_trio._core.progress import (
    MAX_MESSAGE,
    MAX_PROGRESS_BYTES,
    JobProgress,
    ProgressBuffer,
    read_progress,
)


class Phase(StrEnum):
    READING = "reading"


def stored(buffer: ProgressBuffer) -> Any:
    text = buffer.text()
    assert text is not None
    return json.loads(text)


def test_nothing_said_is_nothing_stored() -> None:
    buffer = ProgressBuffer(None)
    assert buffer.now == JobProgress(None, None, {})
    assert buffer.text() is None
    assert buffer.unwritten() is None
    assert buffer.seal() is None


def test_what_is_said_is_stored_and_the_rest_stays_as_it_is() -> None:
    buffer = ProgressBuffer(None)
    buffer.set(percent=12.5)
    assert stored(buffer) == {"percent": 12.5}
    buffer.set(message=Phase.READING)
    assert stored(buffer) == {"percent": 12.5, "message": "reading"}
    assert type(buffer.now.message) is str
    buffer.set(metadata={"page": 3, "é": [None, {"x": "\u2028"}]})
    buffer.set(percent=0)
    assert stored(buffer) == {
        "percent": 0,
        "message": "reading",
        "metadata": {"page": 3, "é": [None, {"x": "\u2028"}]},
    }
    assert json.loads(ProgressBuffer(buffer.text())._metadata_text) == buffer.now.metadata
    text = buffer.text()
    assert text is not None
    assert text.isascii()


def test_metadata_is_merged_one_level_deep() -> None:
    buffer = ProgressBuffer(b'{"metadata": {"a": {"x": 1}, "b": 1}}')
    buffer.set(metadata={"a": {"y": 2}, "c": None})
    assert buffer.now.metadata == {"a": {"y": 2}, "b": 1, "c": None}
    buffer.set(metadata={})
    assert buffer.now.metadata == {"a": {"y": 2}, "b": 1, "c": None}


def test_it_begins_with_what_earlier_attempts_left() -> None:
    buffer = ProgressBuffer(b'{"percent": 40, "message": "m", "metadata": {"page": 7}}')
    assert buffer.now == JobProgress(40, "m", {"page": 7})
    assert buffer.unwritten() is None
    buffer.set(percent=50)
    assert stored(buffer) == {"percent": 50, "message": "m", "metadata": {"page": 7}}


@pytest.mark.parametrize(
    "raw", [b"[]", b"1", b'{"percent": "x", "message": 1, "metadata": []}', b"{}", None]
)
def test_what_makes_no_sense_was_not_said(raw: bytes | None) -> None:
    assert read_progress(raw) == JobProgress()


def test_clearing_forgets_what_earlier_attempts_left() -> None:
    buffer = ProgressBuffer(b'{"percent": 40, "metadata": {"page": 7}}')
    buffer.clear()
    assert buffer.now == JobProgress()
    assert buffer.text() == b"{}"


def test_nobody_can_change_it_from_outside() -> None:
    given = {"list": [1]}
    buffer = ProgressBuffer(None)
    buffer.set(metadata=given)
    given["list"].append(2)
    buffer.now.metadata["list"].append(3)
    assert buffer.now.metadata == {"list": [1]}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"percent": -0.1}, "progress.percent: give a number from 0 to 100"),
        ({"percent": 100.1}, "progress.percent: give a number from 0 to 100"),
        ({"percent": float("nan")}, "progress.percent: give a number from 0 to 100"),
        ({"percent": 10**400}, "progress.percent: give a number from 0 to 100"),
        ({"percent": True}, "progress.percent: give a number from 0 to 100, not bool"),
        ({"percent": "5"}, "progress.percent: give a number from 0 to 100, not str"),
        ({"message": 5}, "progress.message: give a str, not int"),
        ({"message": "x" * (MAX_MESSAGE + 1)}, "at most 1,000 characters"),
        ({"message": "\0"}, "progress.message: U+0000"),
        ({"message": "\ud800"}, "progress.message: a lone surrogate"),
        ({"metadata": [1]}, "progress.metadata: give a mapping, not list"),
        ({"metadata": {"a": [0, float("inf")]}}, "progress.metadata.a[1]: infinity"),
        ({"metadata": {"a": {1}}}, "progress.metadata.a: set is not plain JSON"),
        ({"metadata": {1: 2}}, "progress.metadata"),
        ({"metadata": {"a": "x" * MAX_PROGRESS_BYTES}}, "bytes of JSON in all"),
    ],
)
def test_what_is_refused_changes_nothing(said: dict[str, Any], problem: str) -> None:
    buffer = ProgressBuffer(None)
    buffer.set(5, "m", {"a": 1})
    before = buffer.now, buffer.text(), buffer.unwritten()
    with pytest.raises(awa.InvalidValue) as caught:
        buffer.set(**{"percent": 6, **said})
    assert problem in caught.value.problem
    assert (buffer.now, buffer.text(), buffer.unwritten()) == before
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
def test_the_last_byte_that_fits_is_accepted(letter: str) -> None:
    """Counted as UTF-8, however it is stored."""
    room = MAX_PROGRESS_BYTES - len('{"metadata":{"a":""}}')
    fits = letter * (room // len(letter.encode()))
    ProgressBuffer(None).set(metadata={"a": fits})
    with pytest.raises(awa.InvalidValue, match="bytes of JSON in all"):
        ProgressBuffer(None).set(metadata={"a": fits + letter})


def test_what_was_written_is_not_written_again() -> None:
    buffer = ProgressBuffer(None)
    buffer.set(percent=1)
    first = buffer.unwritten()
    assert first is not None
    buffer.set(percent=2)
    buffer.wrote(first[0])
    second = buffer.unwritten()
    assert second is not None
    assert json.loads(second[1]) == {"percent": 2}
    buffer.wrote(second[0])
    assert buffer.unwritten() is None
    buffer.wrote(first[0])
    assert buffer.unwritten() is None, "an answer that comes late"


def test_after_the_end_nothing_can_be_said() -> None:
    buffer = ProgressBuffer(None)
    buffer.set(percent=1)
    assert buffer.seal() == b'{"percent":1}'
    with pytest.raises(awa.LeaseLost, match="the attempt is over"):
        buffer.set(percent=2)
    with pytest.raises(awa.LeaseLost, match="the attempt is over"):
        buffer.clear()
    assert buffer.seal() == b'{"percent":1}'


def test_threads_lose_nothing() -> None:
    buffer = ProgressBuffer(None)

    def say(name: str) -> None:
        for n in range(200):
            buffer.set(metadata={f"{name}{n % 20}": n})

    threads = [threading.Thread(target=say, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(buffer.now.metadata) == 80
    assert stored(buffer)["metadata"] == buffer.now.metadata


# ---- output


@pytest.mark.parametrize("value", [None, True, 1.5, "é", [], {"a": [1, {"b": None}]}])
def test_an_output_is_any_json_value(value: Any) -> None:
    text = encode_output(value)
    assert json.loads(text) == value
    assert text.isascii()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "output: NaN is not JSON"),
        ({"a": [1, {"b": object()}]}, "output.a[1].b: object is not plain JSON"),
        ((1, 2), "output: tuple is not plain JSON"),
        ({"a": "\0"}, "output.a: U+0000"),
        (2**63, "output: an integer outside 64 bits"),
        ("x" * (MAX_OUTPUT_BYTES - 1), "65,537 bytes of JSON"),
    ],
)
def test_an_output_that_is_refused_says_where(value: Any, problem: str) -> None:
    with pytest.raises(awa.InvalidValue) as caught:
        encode_output(value)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_output_of_65_536_bytes_is_accepted() -> None:
    assert len(encode_output("x" * (MAX_OUTPUT_BYTES - 2))) == MAX_OUTPUT_BYTES
    encode_output("é" * ((MAX_OUTPUT_BYTES - 2) // 2))


# ---- what a move makes of them


@pytest.mark.parametrize("to", JobState)
def test_a_completion_writes_the_output_and_all_others_the_progress(to: JobState) -> None:
    move = Transition(1, 1, JobState.RUNNING, to, 1)
    annotate(move, progress=b"p", output=b"o")
    if to is JobState.COMPLETED:
        assert (move.progress, move.output) == (None, b"o")
    else:
        assert (move.progress, move.output) == (b"p", None)
