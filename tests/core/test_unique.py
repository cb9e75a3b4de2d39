"""Which jobs count as the same one."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from awa_trio._core.codec import Codec
from awa_trio._core.errors import InvalidRequest
from awa_trio._core.jsontext import canonical, read
from awa_trio._core.unique import UniqueOpts, period_bucket, unique_key

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "unique-keys.md"


def vectors() -> list[dict[str, Any]]:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found: list[dict[str, Any]] = json.loads(block)
    return found


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["name"])
def test_published_vectors(vector: Any) -> None:
    opts = UniqueOpts(**{name: vector[name] for name in ("by_queue", "by_args", "by_period")})

    key = unique_key(vector["kind"], vector["queue"], vector["args"], opts)

    assert canonical(vector["args"]).decode() == vector["canonical"]
    assert key.hex() == vector["key"]


def test_the_published_vectors_cover_every_option() -> None:
    used = {
        (v["by_queue"], v["by_args"], v["by_period"] is None, (v["by_period"] or 0) < 0)
        for v in vectors()
    }

    assert len(used) >= 5


def test_the_definition_byte_by_byte() -> None:
    opts = UniqueOpts(by_queue=True, by_period=258)

    key = unique_key("send_email", "mail", {"b": 1, "a": "é"}, opts)

    text = b'send_email\0mail\0{"a":"\xc3\xa9","b":1}\0\x02\x01\0\0\0\0\0\0'
    assert key == hashlib.sha256(text).digest()[:16]


def shuffled(value: Any, draw: Any) -> Any:
    if isinstance(value, dict):
        keys = draw(st.permutations(list(value)))
        return {key: shuffled(value[key], draw) for key in keys}
    if isinstance(value, list):
        return [shuffled(item, draw) for item in value]
    return value


@given(PLAIN, st.data())
def test_the_order_of_keys_does_not_count(args: Any, data: Any) -> None:
    other = shuffled(args, data.draw)

    assert unique_key("k", "q", args, UniqueOpts()) == unique_key("k", "q", other, UniqueOpts())


@attrs.frozen
class Groups:
    members: frozenset[str]
    sizes: set[int]
    prices: frozenset[Decimal | None]
    limits: dict[str, frozenset[int]]


@given(
    st.lists(TEXT, unique=True),
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True),
    st.lists(st.integers() | st.none(), unique=True, max_size=5),
    st.data(),
)
def test_equal_args_with_sets_and_dicts_have_equal_keys(
    members: Any, sizes: Any, prices: Any, data: Any
) -> None:
    def encoded() -> Any:
        # Sets that were filled in another order iterate in another order.
        def mixed(items: Any) -> Any:
            return data.draw(st.permutations(items))

        decimals = [None if price is None else Decimal(price) for price in prices]
        limits = [(member, frozenset(mixed(sizes))) for member in mixed(members)]
        value = Groups(
            frozenset(mixed(members)),
            set(mixed(sizes)),
            frozenset(mixed(decimals)),
            dict(limits),
        )
        return read(Codec().encode(value, Groups))

    one, other = encoded(), encoded()

    assert unique_key("k", "q", one, UniqueOpts()) == unique_key("k", "q", other, UniqueOpts())


@pytest.mark.parametrize(
    ("one", "other", "opts"),
    [
        (("a", "q", {}), ("b", "q", {}), {}),
        (("a", "q", {"x": 1}), ("a", "q", {"x": 2}), {}),
        (("a", "q", {"x": 1}), ("a", "q", {"x": 1.0}), {}),
        (("a", "q", {"x": 0.0}), ("a", "q", {"x": -0.0}), {}),
        (("a", "q", {"x": 1}), ("a", "q", {"x": "1"}), {}),
        (("a", "q", {"x": 1}), ("a", "q", {"x": True}), {}),
        (("a", "q", {"x": None}), ("a", "q", {}), {}),
        (("a", "q", {}), ("a", "r", {}), {"by_queue": True}),
    ],
)
def test_different_jobs(one: Any, other: Any, opts: Any) -> None:
    keys = [
        unique_key(kind, queue, args, UniqueOpts.coerce(opts))
        for kind, queue, args in (one, other)
    ]

    assert keys[0] != keys[1]


def test_what_was_not_asked_for_does_not_count() -> None:
    opts = UniqueOpts(by_args=False)

    assert unique_key("k", "q", {"x": 1}, opts) == unique_key("k", "r", {"x": 2}, opts)
    assert unique_key("k", "q", {}, UniqueOpts(by_period=1)) != unique_key(
        "k", "q", {}, UniqueOpts(by_period=2)
    )


def test_the_states_are_not_part_of_the_key() -> None:
    one, other = UniqueOpts(states=1), UniqueOpts(states=255)

    assert unique_key("k", "q", {}, one) == unique_key("k", "q", {}, other)


def test_an_empty_mapping_means_the_defaults() -> None:
    assert UniqueOpts.coerce({}) == UniqueOpts(
        by_queue=False, by_args=True, by_period=None, states=31
    )


def test_options_are_taken_as_they_are() -> None:
    opts = UniqueOpts(by_queue=True)

    assert UniqueOpts.coerce(opts) is opts
    assert UniqueOpts.coerce({"states": 3, "by_period": -(2**63)}) == UniqueOpts(
        states=3, by_period=-(2**63)
    )


@pytest.mark.parametrize(
    ("given_", "problem"),
    [
        (
            {"by_perod": 1},
            "unique_opts: there is no option 'by_perod'; did you mean 'by_period'?",
        ),
        ({"state": 1}, "unique_opts: there is no option 'state'; did you mean 'states'?"),
        (
            {"zzz": 1},
            "unique_opts: there is no option 'zzz'; there are by_queue, by_args, by_period",
        ),
        ({7: 1}, "unique_opts: there is no option 7"),
        ({"by_queue": 1}, "unique_opts.by_queue: give a bool, not int"),
        ({"by_args": None}, "unique_opts.by_args: give a bool, not None"),
        ({"by_period": True}, "unique_opts.by_period"),
        ({"by_period": 1.0}, "unique_opts.by_period"),
        ({"by_period": 2**63}, "unique_opts.by_period"),
        ({"by_period": -(2**63) - 1}, "unique_opts.by_period"),
        ({"states": 0}, "unique_opts.states"),
        ({"states": 256}, "unique_opts.states"),
        ({"states": -1}, "unique_opts.states"),
        ({"states": True}, "unique_opts.states"),
        ({"states": None}, "unique_opts.states"),
        (True, "unique_opts: give UniqueOpts(...) or a mapping, not bool"),
        ([("states", 1)], "unique_opts: give UniqueOpts(...) or a mapping, not list"),
    ],
)
def test_options_out_of_range_are_refused_by_name(given_: Any, problem: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        UniqueOpts.coerce(given_)

    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("seconds", "at", "bucket"),
    [
        (60, datetime(1970, 1, 1, tzinfo=UTC), 0),
        (60, datetime(1970, 1, 1, 0, 0, 59, 999_999, tzinfo=UTC), 0),
        (60, datetime(1970, 1, 1, 0, 1, tzinfo=UTC), 1),
        (60, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (86_400, datetime(2026, 11, 29, tzinfo=UTC), 20_786),
        (86_400, datetime(2026, 11, 29, 1, tzinfo=timezone(timedelta(hours=2))), 20_785),
        (3600, datetime.min.replace(tzinfo=UTC), -17_259_888),
        (10**30, datetime.max.replace(tzinfo=UTC), 0),
    ],
)
def test_periods_are_counted_from_the_epoch(seconds: Any, at: Any, bucket: Any) -> None:
    assert period_bucket(seconds, at) == bucket


@given(
    st.integers(1, 10**9),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)),
)
def test_a_period_holds_its_instant_whatever_the_time_zone(
    seconds: Any, at: Any, offset: Any
) -> None:
    bucket = period_bucket(seconds, at)
    micros = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    assert bucket * seconds * 10**6 <= micros < (bucket + 1) * seconds * 10**6
    if datetime(2, 1, 1, tzinfo=UTC) < at < datetime(9998, 1, 1, tzinfo=UTC):
        assert period_bucket(seconds, at.astimezone(timezone(offset))) == bucket


@pytest.mark.parametrize("seconds", [0, -1, True, 1.5, None])
def test_a_period_has_a_length(seconds: Any) -> None:
    with pytest.raises(InvalidRequest, match="seconds"):
        period_bucket(seconds, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_naive_datetime_is_in_no_period() -> None:
    with pytest.raises(InvalidRequest, match="aware"):
        period_bucket(60, datetime(2026, 1, 1))  # noqa: DTZ001
