"""Arguments come back from JSON exactly as they were, or are refused with the path to why not."""

# Half of what is here breaks the rules of typing on purpose, or makes types at run time.
# mypy: disable-error-code="arg-type, dict-item, list-item, misc, name-match, valid-type, var-annotated"

from __future__ import annotations

import dataclasses
import enum
import io
import json
import struct
import sys
import threading
import typing
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    TypedDict,
    TypeVar,
)
from zoneinfo import ZoneInfo

import attrs
import cattrs
import cattrs.gen
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from awa_trio._core.codec import Codec
from awa_trio._core.errors import ConfigurationError, InvalidRequest, UndecodableArgs

T = TypeVar("T")
K = TypeVar("K")

codec = Codec()


def exact(one: Any, other: Any) -> Any:
    """Equal, with the same types and spellings all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(exact, one, other))
    if isinstance(one, (set, frozenset)):
        return one == other and sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            any(exact(key, k) and exact(value, v) for k, v in other.items())
            for key, value in one.items()
        )
    if attrs.has(type(one)):
        names = [field.name for field in attrs.fields(type(one))]
        return all(exact(getattr(one, name), getattr(other, name)) for name in names)
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return all(exact(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, datetime):
        offsets = one.utcoffset(), other.utcoffset()
        return (
            one == other and offsets[0] == offsets[1] and one.isoformat() == other.isoformat()
        )
    return bool(one == other) and repr(one) == repr(other)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Name(enum.StrEnum):
    ANN = "ann"


class Mixed(enum.Enum):
    """Members whose values only their types tell apart."""

    ONE = 1
    TEXT = "1"
    HALF = 0.5


class Nullable(enum.Enum):
    NOTHING = None
    SOMETHING = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Loose(enum.IntFlag, boundary=enum.CONFORM):
    READ = 1


class Kept(enum.IntFlag):
    """Keeps bits it does not know."""

    READ = 1


UserId = NewType("UserId", int)
Maybe = Annotated[int | None, "maybe"]


@attrs.frozen
class Point:
    x: int
    y: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    sku: str
    price: Decimal
    _: dataclasses.KW_ONLY
    labels: frozenset[str] = frozenset()


@attrs.define
class Hidden:
    _secret: int
    names: list[str] = attrs.field(factory=list)
    late: str = attrs.field(default="x", kw_only=True)


@attrs.frozen
class KeywordFirst:
    first: int = attrs.field(kw_only=True)
    second: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Movie(TypedDict):
    title: str
    year: typing.NotRequired[int]


class Draft(TypedDict, total=False):
    id: typing.Required[uuid.UUID]
    text: str


@attrs.frozen
class Card:
    kind: Literal["card"]
    number: str


@attrs.frozen
class Cash:
    kind: Literal["cash", "coins"]
    amount: Decimal


@attrs.frozen
class Cat:
    """Only the kind tells it from a dog."""

    name: str
    kind: Literal["cat"] = "cat"


@attrs.frozen
class Dog:
    name: str
    kind: Literal["dog"] = "dog"


@attrs.frozen
class Pet:
    name: str
    kind: Literal["cat", "dog"]


@attrs.frozen
class Circle:
    radius: int


@dataclasses.dataclass(frozen=True)
class Square:
    side: int = 1


@attrs.frozen
class Node:
    value: int
    children: list[Node] = attrs.Factory(list)
    parent: Node | None = None


@attrs.frozen
class Num:
    n: int


@attrs.frozen
class Neg:
    of: Expr


@attrs.frozen
class Add:
    left: Expr
    right: Expr


Expr = typing.Union["Num", "Neg", "Add"]


@attrs.frozen
class Page(Generic[T]):
    items: list[T]
    first: T | None = None


@attrs.frozen
class Keyed(Page[K], Generic[K]):
    """Its own K stands where the base has T."""

    key: K = attrs.field(kw_only=True)


@attrs.frozen
class UuidPages(Page[dict[str, uuid.UUID]]):
    number: int = attrs.field(kw_only=True)


@attrs.frozen
class Awkward:
    """Names that code generators use themselves."""

    attrs: int
    cl: int
    converter: int
    instance: int
    res: int
    o: int
    typevar_map: int


@attrs.frozen
class Marked:
    """An annotation that is not hashable."""

    n: Annotated[int, []]


class Outer:
    @attrs.frozen
    class Inner:
        n: int


@attrs.frozen
class UsesInner:
    inner: Outer.Inner


@attrs.frozen
class Validated:
    n: int = attrs.field(validator=attrs.validators.gt(0))


@attrs.frozen
class Converted:
    tags: tuple[str, ...] = attrs.field(converter=tuple)


@attrs.define
class Adder:
    """Alters what it is given."""

    n: int = attrs.field(converter=lambda n: n + 1)


@dataclasses.dataclass
class Clamped:
    n: int

    def __post_init__(self) -> None:
        self.n = min(self.n, 10)


@attrs.define(eq=False)
class Identity:
    """Equal only to itself, and verified all the same."""

    n: int = attrs.field(validator=attrs.validators.ge(0))


@dataclasses.dataclass
class Cached:
    n: int
    cache: dict[int, int] = dataclasses.field(init=False, compare=False, default_factory=dict)


PARIS = ZoneInfo("Europe/Paris")
UTC_PLUS = timezone(timedelta(hours=5, minutes=45))
ODD = timezone(-timedelta(hours=1, seconds=2))
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


# ---- What comes back ------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (str, "", '""'),
        (str, "é😀\x7f", '"\\u00e9\\ud83d\\ude00\\u007f"'),
        (typing.LiteralString, "x", '"x"'),
        (int, -(2**63), "-9223372036854775808"),
        (float, -0.0, "-0.0"),
        (float, 1e22, "1e+22"),
        (float, 3, "3"),
        (bool, True, "true"),
        (None, None, "null"),
        (uuid.UUID, ID, f'"{ID}"'),
        (
            datetime,
            datetime(2026, 11, 29, 1, 2, 3, 4, UTC),
            '"2026-11-29T01:02:03.000004+00:00"',
        ),
        (datetime, datetime(1, 1, 1, tzinfo=UTC_PLUS), '"0001-01-01T00:00:00+05:45"'),
        (
            datetime,
            datetime(9999, 12, 31, tzinfo=ODD),
            '"9999-12-31T00:00:00-01:00:02"',
        ),
        (
            datetime,
            datetime(2026, 10, 25, 2, 30, tzinfo=PARIS),
            '"2026-10-25T02:30:00+02:00[Europe/Paris]"',
        ),
        (
            datetime,
            datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
            '"2026-10-25T02:30:00+01:00[Europe/Paris]"',
        ),
        (date, date(2026, 1, 2), '"2026-01-02"'),
        (time, time(1, 2, 3, 4), '"01:02:03.000004"'),
        (time, time(1, 2, tzinfo=UTC_PLUS), '"01:02:00+05:45"'),
        (timedelta, timedelta(days=1, microseconds=10), '"PT86400.00001S"'),
        (timedelta, -timedelta(seconds=90, microseconds=500_000), '"PT-90.5S"'),
        (timedelta, timedelta(0), '"PT0S"'),
        (timedelta, timedelta.min, '"PT-86399999913600S"'),
        (Decimal, Decimal("1.10"), '"1.10"'),
        (Decimal, Decimal("-0E+3"), '"-0E+3"'),
        (Decimal, Decimal("1E-999"), '"1E-999"'),
        (bytes, b"", '""'),
        (bytes, b"\0\xff", '"AP8="'),
        (Color, Color.BLUE, '"blue"'),
        (Level, Level.HIGH, "2"),
        (Name, Name.ANN, '"ann"'),
        (Mixed, Mixed.TEXT, '"1"'),
        (Mixed, Mixed.ONE, "1"),
        (Nullable, Nullable.NOTHING, "null"),
        (Rights, Rights.READ | Rights.WRITE, "3"),
        (Rights, Rights(0), "0"),
        (Kept, Kept(6), "6"),
        (Literal["a", 1, Color.RED], 1, "1"),
        (Literal["a", 1, Color.RED], Color.RED, '"red"'),
        (UserId, 5, "5"),
        (Annotated[int, "positive"], 5, "5"),
        (Marked, Marked(5), '{"n":5}'),
        (Final[int], 5, "5"),
        (list[int], [1, 2], "[1,2]"),
        (MutableSequence[int], [1], "[1]"),
        (tuple[int, ...], (1, 2), "[1,2]"),
        (tuple[int, str], (1, "a"), '[1,"a"]'),
        (tuple[()], (), "[]"),
        (tuple, (1, "a"), '[1,"a"]'),
        (set[int], {10, 9, -1}, "[-1,9,10]"),
        (set[float], {10, 9.5}, "[9.5,10]"),
        (frozenset[str], frozenset({"b", "a!", "a"}), '["a","a!","b"]'),
        (set[str | None], {"z", None}, '["z",null]'),
        (set[Point], {Point(2), Point(1)}, '[{"x":1,"y":0},{"x":2,"y":0}]'),
        (set, {1}, "[1]"),
        (dict[str, int], {"b": 1, "a": 2}, '{"b":1,"a":2}'),
        (dict[int, str], {-1: "a"}, '{"-1":"a"}'),
        (dict[uuid.UUID, int], {ID: 1}, f'{{"{ID}":1}}'),
        (dict[Color, int], {Color.RED: 1}, '{"red":1}'),
        (dict[Level, int], {Level.LOW: 1}, '{"1":1}'),
        (dict[date, int], {date(2026, 1, 1): 1}, '{"2026-01-01":1}'),
        (dict[Literal["a", "b"], int], {"a": 1}, '{"a":1}'),
        (Mapping[str, int], {"a": 1}, '{"a":1}'),
        (MutableMapping[str, int], {"a": 1}, '{"a":1}'),
        (dict, {"a": [1, None, {"b": 2.5}]}, '{"a":[1,null,{"b":2.5}]}'),
        (list, [1, "a"], '[1,"a"]'),
        (Any, {"a": True}, '{"a":true}'),
        (object, [None], "[null]"),
        (int | None, None, "null"),
        (int | str, "1", '"1"'),
        (int | float, 1.0, "1.0"),
        (float | int, 1, "1"),
        (bool | int, True, "true"),
        (Literal["a", None], None, "null"),
        (Literal["a"] | Literal["b"] | int, "b", '"b"'),
        (Literal[1] | Literal[True], True, "true"),
        (Any | None, None, "null"),
        (Maybe | None, None, "null"),
        (Maybe | None, 1, "1"),
        (dict | int | None, {"a": 1}, '{"a":1}'),
        (dict | int | None, 1, "1"),
        (dict[str, int] | list[int] | None, [1], "[1]"),
        (Point, Point(1, 2), '{"x":1,"y":2}'),
        (
            Item,
            Item("a", Decimal("1.0"), labels=frozenset({"x"})),
            '{"sku":"a","price":"1.0","labels":["x"]}',
        ),
        (Hidden, Hidden(1, ["a"], late="y"), '{"_secret":1,"names":["a"],"late":"y"}'),
        (KeywordFirst, KeywordFirst(1, first=2), '{"first":2,"second":1}'),
        (Pair, Pair(1), '{"left":1,"right":"r"}'),
        (Movie, {"title": "x"}, '{"title":"x"}'),
        (Movie, {"title": "x", "year": 1}, '{"title":"x","year":1}'),
        (Draft, {"id": ID}, f'{{"id":"{ID}"}}'),
        (Card | Cash, Card("card", "1"), '{"kind":"card","number":"1"}'),
        (Card | Cash, Cash("coins", Decimal(1)), '{"kind":"coins","amount":"1"}'),
        (Cat | Dog, Dog("a"), '{"name":"a","kind":"dog"}'),
        (Circle | Square | None, Square(2), '{"side":2}'),
        (Circle | list[int] | int, Circle(2), '{"radius":2}'),
        (Movie | Circle, {"title": "x"}, '{"title":"x"}'),
        (
            Node,
            Node(1, [Node(2)]),
            '{"value":1,"children":[{"value":2,"children":[],"parent":null}],"parent":null}',
        ),
        (
            Add,
            Add(Num(1), Neg(Add(Num(2), Num(3)))),
            '{"left":{"n":1},"right":{"of":{"left":{"n":2},"right":{"n":3}}}}',
        ),
        (Page[int], Page([1], 2), '{"items":[1],"first":2}'),
        (
            Page[Page[str]],
            Page([Page(["a"])]),
            '{"items":[{"items":["a"],"first":null}],"first":null}',
        ),
        (
            Keyed[uuid.UUID],
            Keyed([ID], ID, key=ID),
            f'{{"items":["{ID}"],"first":"{ID}","key":"{ID}"}}',
        ),
        (
            UuidPages,
            UuidPages([{"a": ID}], number=1),
            f'{{"items":[{{"a":"{ID}"}}],"first":null,"number":1}}',
        ),
        (
            Awkward,
            Awkward(1, 2, 3, 4, 5, 6, 7),
            '{"attrs":1,"cl":2,"converter":3,"instance":4,"res":5,"o":6,"typevar_map":7}',
        ),
        (UsesInner, UsesInner(Outer.Inner(1)), '{"inner":{"n":1}}'),
        (Validated, Validated(1), '{"n":1}'),
        (Converted, Converted(["a"]), '{"tags":["a"]}'),
        (Clamped, Clamped(10), '{"n":10}'),
        (Cached, Cached(1), '{"n":1}'),
    ],
)
def test_what_is_stored_comes_back(type_: Any, value: Any, text: Any) -> None:
    codec.check(type_)

    data = codec.encode(value, type_)

    assert data == text.encode("ascii")
    assert exact(codec.decode(data, type_), value)


def test_the_fold_of_a_datetime_comes_back() -> None:
    later = datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1)

    back = codec.decode(codec.encode(later, datetime), datetime)

    assert (back.fold, back.tzinfo) == (1, PARIS)


def test_a_zone_that_is_always_utc_is_stored_as_its_offset() -> None:
    value = datetime(2026, 1, 1, tzinfo=ZoneInfo("Etc/UTC"))

    assert codec.encode(value, datetime) == b'"2026-01-01T00:00:00+00:00"'
    assert codec.decode(codec.encode(value, datetime), datetime) == value


def test_what_was_encoded_does_not_follow_later_changes() -> None:
    args = {"a": [1]}

    data = codec.encode(args, dict)
    args["a"].append(2)

    assert codec.decode(data, dict) == {"a": [1]}


# ---- Any value of any type, by Hypothesis ------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
OFFSETS = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
ZONED = st.datetimes(timezones=st.timezones(), allow_imaginary=True) | st.datetimes(
    timezones=OFFSETS
)

#: Annotations whose values can be keys and members of sets, each with its values.
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, TEXT),
    (int, st.integers(-(2**63), 2**63 - 1)),
    (UserId, st.integers(0, 9)),
    (uuid.UUID, st.uuids()),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (bytes, st.binary(max_size=8)),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
]
ATOMS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    *SCALARS,
    (float, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5)),
    (bool, st.booleans()),
    (type(None), st.none()),
    (datetime, ZONED),
    (time, (st.times() | st.times(timezones=OFFSETS)).map(lambda t: t.replace(fold=0))),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (Mixed, st.sampled_from(Mixed)),
    (Rights, st.sampled_from([Rights(n) for n in range(4)])),
    (Point, st.builds(Point, st.integers(0, 9), st.integers(0, 9))),
    (Card | Cash, st.builds(Card, st.just("card"), TEXT)),
    (Any, st.recursive(st.integers(0, 9) | TEXT, lambda inner: st.lists(inner, max_size=3))),
]

Typed = tuple[Any, st.SearchStrategy[Any]]


def lists(inner: Typed) -> Typed:
    return list[inner[0]], st.lists(inner[1], max_size=3)


def tuples(inner: Typed) -> Typed:
    return tuple[inner[0], ...], st.lists(inner[1], max_size=3).map(tuple)


def pairs(inner: Typed) -> Typed:
    return tuple[int, inner[0]], st.tuples(st.integers(0, 9), inner[1])


def optionals(inner: Typed) -> Typed:
    return inner[0] | None, st.none() | inner[1]


def attrs_classes(inner: Typed) -> Typed:
    cls = attrs.make_class(
        "Made", {"a": attrs.field(type=inner[0]), "b": attrs.field(type=int, default=1)}
    )
    return cls, st.builds(cls, inner[1], st.integers(0, 9))


def data_classes(inner: Typed) -> Typed:
    cls = dataclasses.make_dataclass("Made", [("a", inner[0])])
    return cls, st.builds(cls, inner[1])


def typed_dicts(inner: Typed) -> Typed:
    cls = TypedDict("Made", {"a": inner[0], "b c": typing.NotRequired[int]})
    return cls, st.fixed_dictionaries({"a": inner[1]}, optional={"b c": st.integers(0, 9)})


def named_tuples(inner: Typed) -> Typed:
    cls: Any = NamedTuple("Made", [("a", inner[0])])
    return cls, st.builds(cls, inner[1])


def dicts(key: Typed, inner: Typed) -> Typed:
    return dict[key[0], inner[0]], st.dictionaries(key[1], inner[1], max_size=3)


def sets(inner: Typed) -> Typed:
    return set[inner[0]], st.sets(inner[1], max_size=3)


def frozensets(inner: Typed) -> Typed:
    return frozenset[inner[0]], st.frozensets(inner[1], max_size=3)


TYPED: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        *(
            st.builds(wrap, inner)
            for wrap in (
                lists,
                tuples,
                pairs,
                optionals,
                attrs_classes,
                data_classes,
                typed_dicts,
                named_tuples,
            )
        ),
        st.builds(dicts, st.sampled_from(SCALARS), inner),
        st.builds(sets, st.sampled_from(SCALARS)),
        st.builds(frozensets, st.sampled_from(SCALARS)),
    ),
    max_leaves=4,
)

slow_to_make = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow_to_make
@given(TYPED, st.data())
def test_any_value_of_a_supported_type_comes_back(typed: Any, data: Any) -> None:
    type_, values = typed
    value = data.draw(values)
    codec = Codec()  # a new one, or the types made here would pile up

    codec.check(type_)
    text = codec.encode(value, type_)

    assert exact(codec.decode(text, type_), value)
    assert codec.encode(codec.decode(text, type_), type_) == text


@slow_to_make
@given(TYPED, TYPED, st.data())
def test_a_value_of_another_type_comes_back_too_or_is_refused(
    typed: Any, other: Any, data: Any
) -> None:
    type_, _ = typed
    value = data.draw(other[1])
    codec = Codec()

    try:
        text = codec.encode(value, type_)
    except InvalidRequest:
        return
    assert exact(codec.decode(text, type_), value)


@slow_to_make
@given(TYPED, TYPED, st.data())
def test_json_of_another_type_is_decoded_or_refused_but_never_altered(
    typed: Any, other: Any, data: Any
) -> None:
    type_, _ = typed
    codec = Codec()
    text = codec.encode(data.draw(other[1]), other[0])

    try:
        value = codec.decode(text, type_)
    except UndecodableArgs:
        return
    # Unknown keys are ignored, by design; whatever was taken is as it was.
    assert exact(codec.decode(codec.encode(value, type_), type_), value)


SHORT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | SHORT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SHORT, inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.data())
def test_the_path_leads_to_the_value_that_is_refused(value: Any, data: Any) -> None:
    path = "args"
    places: list[tuple[Any, Any, str]] = []

    def walk(container: Any, here: str) -> None:
        pairs: Iterable[tuple[Any, Any]] = ()
        if isinstance(container, dict):
            pairs = container.items()
        elif isinstance(container, list):
            pairs = enumerate(container)
        for key, inner in pairs:
            step = f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!a}]"
            places.append((container, key, here + step))
            walk(inner, here + step)

    root = [value]
    walk(root, path)
    container, key, path = data.draw(st.sampled_from(places))
    container[key] = {1, 2}

    with pytest.raises(InvalidRequest) as caught:
        codec.encode(root, Any)

    assert caught.value.problem.startswith(f"{path}: set is not plain JSON")


# ---- What is refused, and where -----------------------------------------------------


@attrs.frozen
class Order:
    id: int
    items: list[Item] = attrs.Factory(list)
    extra: Any = None
    prices: dict[str, float] = attrs.Factory(dict)
    by_number: dict[int, str] = attrs.Factory(dict)
    where: tuple[int, Point] | None = None
    pay: Card | Cash | None = None


class Sub(Point):
    pass


class Text(str):
    pass


class Moment(datetime):
    pass


class Foreign(tzinfo):
    """A zone of a library that knows offsets only of instants."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None if when is None else timedelta(hours=1)

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str:
        return "here"


item = Item("a", Decimal(1))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Order(True), "args.id: expected int, not bool"),
        (Order(1.0), "args.id: expected int, not float"),
        (Order(Level.LOW), "args.id: expected int, not Level"),
        (Order(2**63), "args.id: an integer outside 64 bits"),
        (Order(1, [item, Item(None, Decimal(1))]), "args.items[1].sku: expected str, not None"),
        (Order(1, [Item("\0", Decimal(1))]), "args.items[0].sku: U+0000 cannot be stored"),
        (Order(1, [Item("a\ud800", Decimal(1))]), "args.items[0].sku: a lone surrogate"),
        (Order(1, [Item("a", Decimal("NaN"))]), "args.items[0].price: a Decimal that is not"),
        (Order(1, [Item("a", Decimal("-Infinity"))]), "args.items[0].price: a Decimal that is"),
        (Order(1, [Item("a", 1.5)]), "args.items[0].price: expected Decimal, not float"),
        (Order(1, (item,)), "args.items: expected list, not tuple"),
        (Order(1, [item] * 3 + [{"sku": "a"}]), "args.items[3]: expected Item, not dict"),
        (
            Order(1, [Item("a", Decimal(1), labels={"x"})]),
            "args.items[0].labels: expected frozenset",
        ),
        (
            Order(1, [Item("a", Decimal(1), labels=frozenset({"\0"}))]),
            "args.items[0].labels[0]: U+0000",
        ),
        (Order(1, extra={"a": [1, (2,)]}), "args.extra.a[1]: tuple is not plain JSON"),
        (
            Order(1, extra={"a b": {1: 2}}),
            "args.extra['a b'] (key 1): a JSON object has str keys, not int",
        ),
        (Order(1, extra=[{"\0": 1}]), "args.extra[0] (key '\\x00'): U+0000 cannot be stored"),
        (Order(1, extra={"x": ID}), "args.extra.x: UUID is not plain JSON"),
        (Order(1, extra=float("nan")), "args.extra: NaN is not JSON"),
        (Order(1, prices={"a": float("inf")}), "args.prices['a']: infinity is not JSON"),
        (Order(1, prices={"a": "1"}), "args.prices['a']: expected float, not str"),
        (
            Order(1, prices={"x" * 99: True}),
            f"args.prices['{'x' * 36}...]: expected float, not bool",
        ),
        (Order(1, prices={1: 1.0}), "args.prices (key 1): expected str, not int"),
        (Order(1, prices=OrderedDict(a=1.0)), "args.prices: expected dict, not OrderedDict"),
        (Order(1, by_number={"1": "a"}), "args.by_number (key '1'): expected int, not str"),
        (Order(1, by_number={True: "a"}), "args.by_number (key True): expected int, not bool"),
        (Order(1, by_number={7: Text("a")}), "args.by_number[7]: expected str, not Text"),
        (Order(1, where=(1, Sub(2))), "args.where[1]: expected Point, not Sub"),
        (Order(1, where=(1,)), "args.where: expected 2 items, not 1"),
        (
            Order(1, pay=Card("cash", "1")),
            "args.pay.kind: expected one of 'card', not another str",
        ),
        (Order(1, pay=Point(1)), "args.pay: expected Card or Cash, not Point"),
        (Order(1, pay=Cash("cash", None)), "args.pay.amount: expected Decimal, not None"),
    ],
)
def test_a_value_that_would_be_altered_is_refused_with_its_path(
    value: Any, problem: Any
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        codec.encode(value, Order)

    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001
        (datetime, datetime(2026, 1, 1, tzinfo=Foreign())),
        (datetime, Moment(2026, 1, 1, tzinfo=UTC)),
        (datetime, date(2026, 1, 1)),
        (date, datetime(2026, 1, 1, tzinfo=UTC)),
        (time, time(1, tzinfo=PARIS)),
        (time, time(1, fold=1)),
        (time, time(1, tzinfo=timezone(timedelta(microseconds=1)))),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1)))),
        (float, True),
        (float, 2**63),
        (bool, 1),
        (None, 0),
        (str, Name.ANN),
        (Name, "ann"),
        (Color, "red"),
        (Color, Level.LOW),
        (Literal[1], True),
        (Literal["a"], "b"),
        (Literal["a"], ["a"]),
        (bytes, bytearray(b"x")),
        (uuid.UUID, str(ID)),
        (Pair, (1, "r")),
        (tuple[int, str], Pair(1)),
        (Movie, {"title": "x", "more": 1}),
        (Movie, {}),
        (Movie, OrderedDict(title="x")),
        (Draft, {"text": "x"}),
        (Any, Pair(1)),
        (dict, [1]),
        (list, {}),
        (Kept, Kept(2**70)),
        (int | str, True),
        (int | str, None),
        (set[int], {1.0}),
        (set, {(1,)}),
    ],
)
def test_what_is_nearly_the_type_is_not_the_type(type_: Any, value: Any) -> None:
    with pytest.raises(InvalidRequest):
        codec.encode(value, type_)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"title": "x", "stars": 1}, "args: Movie has no key 'stars'"),
        ({"year": 1}, "args: Movie needs the key 'title'"),
        ({"title": 1}, "args.title: expected str, not int"),
    ],
)
def test_the_keys_of_a_typed_dict_are_checked(value: Any, problem: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        codec.encode(value, Movie)

    assert caught.value.problem == problem


def test_a_zone_that_is_not_what_its_name_says_is_refused() -> None:
    def zone(key: str) -> ZoneInfo:
        # One transition, at the epoch, from UTC to an hour and a half later.
        head = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 1, 2, 4)
        data = struct.pack(">lB", 0, 1) + struct.pack(">lBBlBB", 0, 0, 0, 5400, 0, 0) + b"ABC\0"
        return ZoneInfo.from_file(io.BytesIO(head + data), key)

    for key, problem in (
        ("Europe/Paris", "rules"),
        ("Nowhere/Land", "no data"),
        (None, "given"),
    ):
        with pytest.raises(InvalidRequest, match=problem):
            codec.encode(datetime(2026, 1, 1, tzinfo=zone(key)), datetime)


def test_all_problems_are_told_at_once() -> None:
    value = Order("x", [Item(1, Decimal(1)), item, Item("\0", Decimal("NaN"))])

    with pytest.raises(InvalidRequest) as caught:
        codec.encode(value, Order)

    assert caught.value.problem == (
        "args.id: expected int, not str; args.items[0].sku: expected str, not int;"
        " args.items[2].sku: U+0000 cannot be stored;"
        " args.items[2].price: a Decimal that is not finite is not JSON"
    )


def test_a_hundred_problems_are_not_told() -> None:
    with pytest.raises(InvalidRequest) as caught:
        codec.encode([None] * 100, list[int])

    problems = caught.value.problem.split("; ")
    assert (len(problems), problems[-1]) == (11, "and more")


def test_messages_never_hold_values() -> None:
    secret = "hunter2"
    values = [
        Order(secret),
        Order(1, extra=[{secret}]),
        Order(1, pay=Card(secret, "1")),
        Order(1, [Item(secret + "\0", Decimal(1))]),
    ]
    for value in values:
        with pytest.raises(InvalidRequest) as caught:
            codec.encode(value, Order)
        assert secret not in str(caught.value)
    for text in ('{"id":"hunter2"}', '{"id":1,"pay":{"kind":"hunter2"}}', '{"id":hunter2}'):
        with pytest.raises(UndecodableArgs) as undecodable:
            codec.decode(text, Order)
        assert secret not in str(undecodable.value)


def test_the_root_has_the_name_it_is_given() -> None:
    with pytest.raises(InvalidRequest, match=r"^metadata\.a: set is not plain JSON"):
        codec.encode({"a": {1}}, dict, root="metadata")


def chain(length: int) -> Node:
    node = Node(0)
    for _ in range(length):
        node = Node(0, [], node)
    return node


@pytest.mark.parametrize(
    ("deepest", "deeper", "type_"),
    [
        # The innermost node is itself two deep: its children are a list.
        (chain(62), chain(63), Node),
        ({"a": json.loads("[" * 63 + "]" * 63)}, {"a": json.loads("[" * 64 + "]" * 64)}, dict),
        (
            Page(json.loads("[" * 63 + "]" * 63)),
            Page(json.loads("[" * 64 + "]" * 64)),
            Page[Any],
        ),
    ],
    ids=["a recursive class", "plain JSON", "plain JSON in a class"],
)
def test_sixty_four_levels_are_stored_and_sixty_five_are_not(
    deepest: Any, deeper: Any, type_: Any
) -> None:
    assert exact(codec.decode(codec.encode(deepest, type_), type_), deepest)

    with pytest.raises(InvalidRequest, match="nested more than 64 deep"):
        codec.encode(deeper, type_)


@pytest.mark.parametrize("length", [300, 5_000])
def test_values_too_deep_for_python_are_refused_as_well(length: Any) -> None:
    with pytest.raises(InvalidRequest, match="nested more than 64 deep"):
        codec.encode(chain(length), Node)


def test_a_bad_value_far_too_deep_is_refused_without_a_recursion_error() -> None:
    node = Node("x")
    for _ in range(250):
        node = Node(0, [], node)

    with pytest.raises(InvalidRequest):
        codec.encode(node, Node)


def test_brackets_in_strings_are_not_levels() -> None:
    codec.encode({"a": "[" * 100 + "{" * 100}, dict)


def test_what_contains_itself_is_refused() -> None:
    plain: list[Any] = []
    plain.append(plain)
    node = Node(1)
    node.children.append(node)

    for value, type_ in ((plain, list), (node, Node)):
        with pytest.raises(InvalidRequest, match="deep"):
            codec.encode(value, type_)


# ---- Decoding ------------------------------------------------------------------------


def test_decoding_tells_all_problems_in_one_sentence() -> None:
    text = (
        '{"id":"x","items":[{"sku":1,"price":"1"},{}],"prices":{"a":true},"by_number":{"x":1}}'
    )

    with pytest.raises(UndecodableArgs) as caught:
        codec.decode(text, Order)

    assert str(caught.value) == (
        "this does not fit Order: args.id: expected a whole number, found a string;"
        " args.items[0].sku: expected a string, found a whole number;"
        " args.items[1].sku: missing; args.items[1].price: missing;"
        " args.prices['a']: expected a number, found true or false;"
        " args.by_number (key 'x'): expected a whole number as a key;"
        " args.by_number['x']: expected a string, found a whole number"
    )
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (int, "1.0"),
        (int, '"1"'),
        (int, "9223372036854775808"),
        (str, "1"),
        (str, '"\\u0000"'),
        (str, '"\\ud800"'),
        (bool, "1"),
        (bool, '"true"'),
        (None, "0"),
        (float, '"1.5"'),
        (float, "1e999"),
        (float, "NaN"),
        (float, "true"),
        (uuid.UUID, f'"{ID.hex}"'),
        (uuid.UUID, f'"{{{ID}}}"'),
        (uuid.UUID, '"x"'),
        (uuid.UUID, "1"),
        (datetime, '"2026-01-01T00:00:00"'),
        (datetime, '"2026-01-01"'),
        (datetime, '"2026-01-01T00:00:00.1234567+00:00"'),
        (datetime, '"2026-13-01T00:00:00Z"'),
        (datetime, '"2026-01-01T00:00:00+01:00[Nowhere/Land]"'),
        (datetime, '"2026-01-01T00:00:00+05:00[Europe/Paris]"'),
        (datetime, '"2026-01-01T00:00:00+01:00[../../etc/passwd]"'),
        (datetime, '"٢٠٢٦-01-01T00:00:00Z"'),
        (date, '"20260101"'),
        (date, '"2026-W01-1"'),
        (date, '"2026-02-30"'),
        (time, '"0102"'),
        (time, '"25:00"'),
        (time, '"01:00+00:00:00.000001"'),
        (timedelta, '"PT1.1234567S"'),
        (timedelta, '"P1D"'),
        (timedelta, "90"),
        (timedelta, '"PT99999999999999999999S"'),
        (Decimal, "1.5"),
        (Decimal, '" 1"'),
        (Decimal, '"1_0"'),
        (Decimal, '"NaN"'),
        (Decimal, '"1E+9999999999999999999"'),
        (bytes, '"AP8"'),
        (bytes, '"A P8="'),
        (bytes, '"é"'),
        (Color, '"green"'),
        (Level, "3"),
        (Level, "true"),
        (Mixed, "true"),
        (Mixed, "1.0"),
        (Color, "[]"),
        (Rights, "4"),
        (Rights, "true"),
        (Loose, "2"),
        (Literal[1], "true"),
        (Literal["a"], '"b"'),
        (Literal["a"], "[]"),
        (list[int], "{}"),
        (list[int], '"12"'),
        (tuple[int, int], "[1]"),
        (set[int], "[1,1]"),
        (set, "[[1]]"),
        (dict[str, int], "[]"),
        (dict[int, int], '{"01":1}'),
        (dict[int, int], '{" 1":1}'),
        (dict[int, int], '{"1.0":1}'),
        (
            dict[uuid.UUID, int],
            f'{{"{str(ID).replace("5", "A")}":1,"{str(ID).replace("5", "a")}":1}}',
        ),
        (dict, "[]"),
        (dict, '{"a":"\\u0000"}'),
        (list, "{}"),
        (list, "[9223372036854775808]"),
        (Any, '"\\ud800"'),
        (int | str, "null"),
        (int | str, "1.5"),
        (Card | Cash, "{}"),
        (Card | Cash, '{"kind":"cheque"}'),
        (Card | Cash, '{"kind":[]}'),
        (Circle | Square, "{}"),
        (Circle | Square, '{"radius":1,"side":1}'),
        (Point, "[1,2]"),
        (Point, '"x"'),
        (Square, "[]"),
        (Movie, "{}"),
        (Validated, '{"n":0}'),
        (Node, '{"value":1,"parent":' * 2000 + "null" + "}" * 2000),
        (dict, ""),
        (dict, "{"),
        (dict, b"\xff"),
    ],
)
def test_json_that_does_not_fit_is_refused(type_: Any, text: Any) -> None:
    with pytest.raises(UndecodableArgs, match="args") as caught:
        codec.decode(text, type_)

    assert isinstance(caught.value.__cause__, Exception | None)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Point, '{"x":1}', Point(1, 0)),
        (Point, '{"x":1,"y":2,"z":3}', Point(1, 2)),
        (Hidden, '{"_secret":1}', Hidden(1)),
        (Item, '{"sku":"a","price":"1"}', Item("a", Decimal(1))),
        (Pair, '{"left":1}', Pair(1)),
        (Movie, '{"title":"x","stars":5}', {"title": "x"}),
        (Card | Cash, '{"kind":"card","number":"1","more":1}', Card("card", "1")),
        (datetime, '"2026-01-01T00:00Z"', datetime(2026, 1, 1, tzinfo=UTC)),
        (uuid.UUID, f'"{str(ID).upper()}"', ID),
        (float, "3", 3),
        (dict, b'{"a":\t1}', {"a": 1}),
        (str, '"é"'.encode(), "é"),
    ],
)
def test_what_other_producers_and_other_releases_write_is_read(
    type_: Any, text: Any, value: Any
) -> None:
    assert exact(codec.decode(text, type_), value)


def test_the_cause_of_a_refusal_is_the_exception_of_the_class() -> None:
    with pytest.raises(UndecodableArgs) as caught:
        codec.decode('{"n":0}', Validated)

    assert isinstance(caught.value.__cause__, ValueError)
    assert str(caught.value).startswith("this does not fit Validated: args: ValueError: ")


def refuse(*said: Any) -> Any:
    def validator(*_: object) -> None:
        raise ValueError(*said)

    return attrs.make_class("Refusing", {"n": attrs.field(type=int, validator=validator)})


@pytest.mark.parametrize(
    ("said", "problem"),
    [((), "ValueError"), ((["odd"],), "ValueError"), (("too odd", 1), "ValueError: too odd")],
)
def test_what_a_class_says_is_told_if_it_is_text(said: Any, problem: Any) -> None:
    with pytest.raises(UndecodableArgs) as caught:
        codec.decode('{"n":1}', refuse(*said))

    assert str(caught.value) == f"this does not fit Refusing: args: {problem}"


def test_json_that_is_none_is_chained_from_why() -> None:
    with pytest.raises(UndecodableArgs, match="args: this is not JSON") as caught:
        codec.decode("{", dict)

    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


# ---- Classes that run code when they are made -------------------------------------------


def test_a_class_that_alters_its_fields_is_refused_with_the_path() -> None:
    with pytest.raises(InvalidRequest, match=r"^args\[1\]: Adder would alter it"):
        codec.encode([Point(1), Adder(1)], list[Point | Adder])


def test_a_value_that_its_class_would_refuse_again_is_refused_now() -> None:
    clamped = Clamped(1)
    clamped.n = 11
    stale = Identity(1)
    object.__setattr__(stale, "n", -1)

    with pytest.raises(InvalidRequest, match="Clamped would alter it when decoded"):
        codec.encode(clamped, Clamped)
    with pytest.raises(
        InvalidRequest,
        match=r"^args\.items\[0\]: Identity would refuse it when decoded: ValueError",
    ):
        codec.encode(Page([stale]), Page[Identity])


def test_only_classes_that_run_code_are_decoded_once_more() -> None:
    for plain in (Point, Item, Pair, Movie, Node, Page[int], Card | Cash):
        assert not codec._shape(plain).alters
    for active in (Validated, list[Validated], Page[Adder], Clamped, tuple[int, Identity]):
        assert codec._shape(active).alters


def test_an_untyped_value_is_not_spoiled_by_the_class_that_holds_it() -> None:
    @attrs.define
    class Taker:
        data: Any = attrs.field(converter=lambda data: (data.pop("a", None) and data) or data)

    taken = Taker({"b": 1})
    taken.data["a"] = 2

    with pytest.raises(InvalidRequest):
        codec.encode(taken, Taker)
    assert taken.data == {"a": 2, "b": 1}


# ---- Annotations of all kinds ---------------------------------------------------------------


def test_classes_of_main_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    source = "@attrs.frozen\nclass Mine:\n    other: 'Yours'\n@attrs.frozen\nclass Yours:\n    n: int"
    scope: dict[str, Any] = {"__name__": "__main__", "attrs": attrs}
    exec(source, scope)
    monkeypatch.setattr(main, "Yours", scope["Yours"], raising=False)
    mine, yours = scope["Mine"], scope["Yours"]
    value = mine(yours(1))

    assert codec.decode(codec.encode(value, mine), mine) == value


def test_a_class_defined_in_a_function_may_contain_itself() -> None:
    @attrs.frozen
    class Chain:
        next: Chain | None = None

    assert codec.decode(codec.encode(Chain(Chain()), Chain), Chain) == Chain(Chain())


def test_names_of_a_function_are_found_if_given() -> None:
    @attrs.frozen
    class Leg:
        n: int

    @attrs.frozen
    class Table:
        legs: list[Leg]

    with pytest.raises(ConfigurationError, match=r"Table.*names Leg.*names="):
        codec.check(Table)
    codec.check(Table, names=locals())

    assert codec.decode(codec.encode(Table([Leg(1)]), Table), Table) == Table([Leg(1)])


def test_an_annotation_means_what_it_means_where_it_was_written() -> None:
    # Both modules have a class of this name; the inherited field means the other one.
    scope: dict[str, Any] = {"__name__": "elsewhere", "attrs": attrs}
    exec(
        "from __future__ import annotations\n"
        "@attrs.frozen\nclass Point:\n    z: int\n"
        "@attrs.frozen\nclass Base:\n    at: Point\n",
        scope,
    )
    module = type(sys)("elsewhere")
    module.__dict__.update(scope)
    sys.modules["elsewhere"] = module
    try:
        derived = attrs.frozen(
            type(
                "Derived",
                (scope["Base"],),
                {"__annotations__": {"p": "Point"}, "__module__": __name__},
            )
        )
        value = derived(scope["Point"](1), Point(2))

        assert codec.encode(value, derived) == b'{"at":{"z":1},"p":{"x":2,"y":0}}'
    finally:
        del sys.modules["elsewhere"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is of Python 3.12")
def test_type_parameters_and_aliases_of_python_3_12() -> None:
    scope: dict[str, Any] = {"attrs": attrs, "__name__": __name__}
    source = """
type Ids = list[int]
type Pairs[A] = list[tuple[A, A]]
type Json = dict[str, Json]

@attrs.frozen
class Box[A]:
    ids: Ids
    pairs: Pairs[A]
    next: 'Box[A] | None'

@attrs.frozen
class Looped:
    json: Json
"""
    exec(compile(source, "box.py", "exec", dont_inherit=True), scope)
    box = scope["Box"]
    value = box([1], [(ID, ID)], None)

    data = codec.encode(value, box[uuid.UUID])

    assert exact(codec.decode(data, box[uuid.UUID]), value)
    with pytest.raises(ConfigurationError, match=r"^Looped\.json.*defined by itself"):
        codec.check(scope["Looped"])


class Plain:
    def __init__(self, a: int) -> None:
        self.a = a


class Empty(enum.Enum):
    pass


class Tuples(enum.Enum):
    A = (1, 2)


class Lists(enum.Enum):
    A = [1]  # noqa: RUF012


class Nul(enum.Enum):
    A = "\0"


@attrs.frozen
class Bare:
    a = attrs.field()


@dataclasses.dataclass
class WithInit:
    a: int
    b: dataclasses.InitVar[int]

    def __post_init__(self, b: int) -> None:
        self.a += b


@dataclasses.dataclass
class Derived:
    a: int
    b: int = dataclasses.field(init=False)


@attrs.frozen
class Holder:
    bad: dict[str, list[Fraction]]


@attrs.frozen
class Unhashable:
    points: set[Hidden]


Broken = attrs.frozen(type("Broken", (), {"__annotations__": {"a": "list[int"}}))

Unspeakable = TypedDict("Unspeakable", {"a\0": int})


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (Holder, r"^Holder\.bad\[\]\[\]: Fraction cannot be stored .* attrs class"),
        (Plain, r"^Plain: Plain cannot be stored .* attrs class or a dataclass"),
        (
            Sequence[int],
            r"^Sequence\[int\]: .* write list\[\.\.\.\] or tuple\[\.\.\., \.\.\.\],",
        ),
        (Iterable[int], "write list"),
        (typing.Collection[int], "write list"),
        (typing.AbstractSet[int], "write frozenset"),
        (deque[int], "write list"),
        (OrderedDict[str, int], "write dict"),
        (bytearray, "write bytes"),
        (Path, "write str"),
        (Text, "write str, or a NewType of it"),
        (Moment, "write datetime, or a NewType"),
        (complex, "complex cannot be stored"),
        (type, "type cannot be stored"),
        (Empty, "Empty has no members"),
        (Tuples, "Tuples has a member whose value cannot be stored"),
        (Lists, "Lists has a member whose value cannot be stored"),
        (Nul, r"Nul has a member .* U\+0000"),
        (Literal[b"x"], "bytes"),
        (Literal["red", Color.RED], "stored as the same"),
        (dict[float, int], r"^dict\[float, int\] \(a key\): keys of JSON objects|keys of JSON"),
        (dict[Mixed, int], "Mixed is not always stored as one"),
        (dict[bool, int], "bool is not always stored as one"),
        (dict[Point, int], "use a list of pairs"),
        (Unhashable, r"^Unhashable\.points: a set cannot hold Hidden"),
        (set[list[int]], "a set cannot hold list of int"),
        (Bare, r"^Bare\.a: without an annotation"),
        (WithInit, "^WithInit: b is an InitVar"),
        (Derived, r"^Derived\.b: with init=False"),
        (Page, r"^Page\.items\[\]: T stands for no type here; say which, as in Page\[int\]"),
        (list[T], r"^list\[~T\]\[\]: T stands for no type"),
        (list["Point"], "string"),
        (Unspeakable, r"'a\\x00': U\+0000"),
        (str | uuid.UUID, "str and UUID are both stored as a string"),
        (date | datetime, "are both stored as a string"),
        (Nullable | None, "None and a member of Nullable are both stored as null"),
        (int | Level, "int and Level are both stored as a whole number"),
        (Literal["a"] | str, "str and one of 'a' can both be str"),
        (list[int] | tuple[int, ...], "are both stored as an array"),
        (list[int] | list[str], "can both be list"),
        (dict[str, int] | Point, "are both stored as an object"),
        (dict[str, int] | Point | Circle, "are both stored as an object"),
        (Point | Any, "JSON cannot be told from the rest"),
        (Movie | Draft, "can both be dict"),
        (Point | Sub, "nothing tells Point apart; give each a field such as kind"),
        (Cat | Pet, "nothing tells Cat apart"),
        (Circle | Awkward | Outer.Inner | Num, "nothing tells Inner apart"),
        (Annotated[int, []], "unhashable"),
        (Broken, r"^Broken: the annotations of Broken cannot be evaluated: SyntaxError"),
    ],
)
def test_a_type_that_cannot_keep_the_promise_is_refused_when_first_seen(
    type_: Any, message: Any
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        codec.check(type_)
    with pytest.raises(ConfigurationError, match=message):
        codec.check(type_)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: list[inner],
        lambda inner: tuple[inner, ...],
        lambda inner: tuple[int, inner],
        lambda inner: dict[str, inner],
        lambda inner: dict[str, inner] | None,
        lambda inner: int | list[inner] | str,
        lambda inner: attrs.make_class("Wrapper", {"inner": attrs.field(type=inner)}),
    ],
)
def test_a_type_may_nest_sixty_four_deep(wrap: Any) -> None:
    type_: Any = int
    for _ in range(64):
        type_ = wrap(type_)
    codec = Codec()

    codec.check(type_)
    with pytest.raises(ConfigurationError, match="nested more than 64 deep"):
        codec.check(wrap(type_))


def test_an_unsupported_type_is_refused_at_encode_and_decode_as_well() -> None:
    with pytest.raises(ConfigurationError):
        codec.encode(Plain(1), Plain)
    with pytest.raises(ConfigurationError):
        codec.decode("{}", Plain)


def test_classes_tell_whose_instances_are_values() -> None:
    assert codec.classes(Point) == {Point}
    assert codec.classes(Page[int] | None) == {Page, type(None)}
    assert codec.classes(Movie) == {dict}
    assert codec.classes(Any) == frozenset()


def test_threads_may_meet_a_type_at_the_same_time() -> None:
    codec = Codec()
    barrier = threading.Barrier(8)
    results: list[bytes] = []

    def encode() -> None:
        barrier.wait()
        results.append(codec.encode(Add(Num(1), Neg(Num(2))), Add))

    threads = [threading.Thread(target=encode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [b'{"left":{"n":1},"right":{"of":{"n":2}}}'] * 8


# ---- Hooks of users --------------------------------------------------------------------------


@attrs.frozen
class Money:
    amount: Fraction
    currency: str = "EUR"


@attrs.frozen
class Bill:
    total: Money
    tip: Money | None = None
    fraction: Fraction = Fraction(0)


def hooks(converter: cattrs.Converter) -> None:
    converter.register_unstructure_hook(Fraction, str)
    converter.register_structure_hook(Fraction, lambda text, _: Fraction(text))


def test_hooks_serve_values_wherever_they_are() -> None:
    codec = Codec(hooks)
    bill = Bill(Money(Fraction(1, 3)), None, Fraction(2, 7))

    data = codec.encode(bill, Bill)

    assert data == b'{"total":{"amount":"1/3","currency":"EUR"},"tip":null,"fraction":"2/7"}'
    assert codec.decode(data, Bill) == bill


def test_hooks_may_build_on_ours() -> None:
    def renamed(converter: cattrs.Converter) -> None:
        hooks(converter)
        renamed_amount = cattrs.override(rename="a")
        converter.register_unstructure_hook(
            Money, cattrs.gen.make_dict_unstructure_fn(Money, converter, amount=renamed_amount)
        )
        converter.register_structure_hook(
            Money, cattrs.gen.make_dict_structure_fn(Money, converter, amount=renamed_amount)
        )

    codec = Codec(renamed)
    bill = Bill(Money(Fraction(1, 3)), Money(Fraction(1)))

    data = codec.encode(bill, Bill)

    assert json.loads(data)["total"] == {"a": "1/3", "currency": "EUR"}
    assert codec.decode(data, Bill) == bill
    with pytest.raises(
        UndecodableArgs,
        match=r"args\.total: expected a string, found a whole number @ \$\.currency",
    ):
        codec.decode('{"total":{"a":"1","currency":5}}', Bill)


def test_hooks_come_before_everything_that_is_built_in() -> None:
    def seconds(converter: cattrs.Converter) -> None:
        converter.register_unstructure_hook(
            timedelta, lambda value: value // timedelta(seconds=1)
        )
        converter.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
        converter.register_unstructure_hook(Point | str, lambda value: [str(value)])
        converter.register_structure_hook(Point | str, lambda value, _: value[0])

    codec = Codec(seconds)

    assert codec.encode(timedelta(seconds=90), timedelta) == b"90"
    assert codec.encode("x", Point | str) == b'["x"]'
    assert codec.decode('["x"]', Point | str) == "x"


def test_hooks_that_lose_something_are_found_out() -> None:
    def lossy(converter: cattrs.Converter) -> None:
        converter.register_unstructure_hook(Fraction, float)
        converter.register_structure_hook(Fraction, lambda number, _: Fraction(number))

    codec = Codec(lossy)

    assert codec.encode(Fraction(1, 2), Fraction) == b"0.5"
    with pytest.raises(
        InvalidRequest, match=r"^args\.amount: the hooks of Fraction do not give"
    ):
        codec.encode(Money(Fraction(1, 3)), Money)


def test_hooks_of_a_class_without_equality_are_compared_by_what_they_store() -> None:
    class Box:
        def __init__(self, n: int) -> None:
            self.n = n

    def boxes(converter: cattrs.Converter) -> None:
        converter.register_unstructure_hook(Box, lambda box: box.n)
        converter.register_structure_hook(Box, lambda n, _: Box(min(n, 9)))

    codec = Codec(boxes)

    assert codec.decode(codec.encode(Box(9), Box), Box).n == 9
    with pytest.raises(InvalidRequest, match="the hooks of Box"):
        codec.encode(Box(10), Box)


def test_a_hook_must_store_plain_json() -> None:
    def raw(converter: cattrs.Converter) -> None:
        converter.register_unstructure_hook(Fraction, lambda value: (value.numerator, 1))
        converter.register_structure_hook(Fraction, lambda value, _: Fraction(*value))

    with pytest.raises(InvalidRequest, match=r"^args\.amount: tuple is not plain JSON"):
        Codec(raw).encode(Money(Fraction(1)), Money)


def test_null_of_a_hook_is_not_none() -> None:
    def nulls(converter: cattrs.Converter) -> None:
        converter.register_unstructure_hook(Fraction, lambda _: None)
        converter.register_structure_hook(Fraction, lambda _, __: Fraction(0))

    with pytest.raises(InvalidRequest, match="null"):
        Codec(nulls).encode(Fraction(0), Fraction | None)


@pytest.mark.parametrize("way", ["unstructure", "structure"])
def test_a_hook_for_one_way_only_is_refused(way: Any) -> None:
    def half(converter: cattrs.Converter) -> None:
        if way == "structure":
            converter.register_unstructure_hook(Fraction, str)
        else:
            converter.register_structure_hook(Fraction, lambda text, _: Fraction(text))

    with pytest.raises(ConfigurationError, match=rf"Money\.amount: .* its {way} hook"):
        Codec(half).check(Money)


def test_a_hooked_type_in_a_union_needs_hooks_for_the_union() -> None:
    with pytest.raises(ConfigurationError, match="hooks for the whole union"):
        Codec(hooks).check(Fraction | int)
