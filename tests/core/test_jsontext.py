"""What JSON may be stored, and its two spellings."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.jsontext import (
    MAX_DEPTH,
    Misfit,
    canonical,
    check_plain,
    compact,
    depth,
    read,
    utf8_size,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    ANN = "ann"


class Text(str):
    pass


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def same(one: Any, other: Any) -> bool:
    """Equal, with the same types all the way down; -0.0 is not 0.0."""
    return repr(one) == repr(other)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    check_plain(value)

    assert same(read(compact(value)), value)
    assert compact(value).isascii()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param((1, 2), id="a tuple would be a list"),
        pytest.param({1: "x"}, id="an int key would be a str"),
        pytest.param({True: "x"}, id="a bool key"),
        pytest.param({None: "x"}, id="a None key"),
        pytest.param({Text("a"): 1}, id="a str subclass as a key"),
        pytest.param(Text("a"), id="a str subclass"),
        pytest.param(Level.LOW, id="an IntEnum would be an int"),
        pytest.param(Name.ANN, id="a StrEnum would be a str"),
        pytest.param({1}, id="a set"),
        pytest.param(b"x", id="bytes"),
        pytest.param(1j, id="complex"),
        pytest.param(object(), id="any object"),
        pytest.param(float("nan"), id="NaN"),
        pytest.param(float("inf"), id="infinity"),
        pytest.param(-float("inf"), id="minus infinity"),
        pytest.param(2**63, id="more than 64 bits"),
        pytest.param(-(2**63) - 1, id="less than 64 bits"),
        pytest.param("\0", id="NUL"),
        pytest.param("a\0b", id="NUL inside"),
        pytest.param("é\0", id="NUL beside what is not ASCII"),
        pytest.param("\ud800", id="half a pair"),
        pytest.param("\ud83d\ude00", id="two halves that are not one character"),
        pytest.param({"\0": 1}, id="NUL in a key"),
        pytest.param({"\udfff": 1}, id="half a pair in a key"),
        pytest.param(nested(MAX_DEPTH + 1), id="too deep"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": [0, {"b": v}]}])
def test_what_would_come_back_altered_is_refused_wherever_it_is(value: Any, wrap: Any) -> None:
    with pytest.raises(Misfit):
        check_plain(wrap(value))


@pytest.mark.parametrize(
    "value", ["😀", "\x01\x1f\x7f\u2028\ufeff", -(2**63), 2**63 - 1, -0.0, 1e22, 5e-324, [], {}]
)
def test_the_extremes_that_are_allowed(value: Any) -> None:
    check_plain(value)

    assert same(read(compact(value)), value)


def test_sixty_four_levels_are_allowed() -> None:
    check_plain(nested(MAX_DEPTH))


@pytest.mark.parametrize(
    ("value", "levels"),
    [(1, 0), ("[[", 0), ([], 1), ({}, 1), ([1, [2]], 2), ({"a": {"b": []}, "c": 1}, 3)],
)
def test_depth_counts_containers(value: Any, levels: Any) -> None:
    assert depth(value) == levels


@given(PLAIN)
def test_canonical_json_is_what_the_documentation_says(value: Any) -> None:
    documented = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    assert canonical(value) == documented.encode()


@given(PLAIN)
def test_the_size_is_that_of_compact_utf8(value: Any) -> None:
    unescaped = json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    assert utf8_size(compact(value).encode()) == len(unescaped.encode())


@pytest.mark.parametrize(
    ("value", "size"),
    [("abc", 5), ("é", 4), ("😀", 6), ("\\u00e9", 9), ("\x7f", 3), ("\x01", 8), ("\n", 4)],
)
def test_sizes_of_strings(value: Any, size: Any) -> None:
    assert utf8_size(compact(value).encode()) == size


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "Infinity", "[-Infinity]", "1e999", "[-1e999]", "{} x", b"\xff"]
)
def test_what_is_not_json_or_beyond_floats_is_refused(text: Any) -> None:
    with pytest.raises(ValueError):
        read(text)
