"""From what a user asks for to what a store inserts."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, Generic, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from awa_trio._core.codec import Codec
from awa_trio._core.errors import InvalidRequest
from awa_trio._core.job import PreparedInsert
from awa_trio._core.request import (
    MAX_REQUEST_BYTES,
    OPTION_NAMES,
    EnqueueOptions,
    EnqueueRequest,
    KindDefaults,
    prepare,
    public_metadata,
)
from awa_trio._core.unique import UniqueOpts, unique_key

T = TypeVar("T")

codec = Codec()


@attrs.frozen
class SendEmail:
    to: str
    copies: int = 0


@attrs.frozen
class Page(Generic[T]):
    items: list[T]


class Movie(TypedDict):
    id: UUID


class Queue(enum.StrEnum):
    MAIL = "mail"


class Priority(enum.IntEnum):
    URGENT = 1


def prepared(args: object, **options: Any) -> PreparedInsert:
    return prepare(EnqueueRequest(args, **options), codec)


# ---- What is asked for ----------------------------------------------------------------


def test_a_request_with_nothing_but_args() -> None:
    assert prepared(SendEmail("a@b.c")) == PreparedInsert(
        kind="send_email",
        queue="default",
        args=b'{"to":"a@b.c","copies":0}',
        priority=2,
        max_attempts=25,
        size=len('send_emaildefault{"to":"a@b.c","copies":0}'),
    )


def test_a_request_with_everything() -> None:
    at = datetime(2026, 11, 29, 12, tzinfo=ZoneInfo("Europe/Paris"))

    job = prepared(
        {"to": "é"},
        kind="mail",
        queue="q",
        priority=1,
        max_attempts=1000,
        tags=["x", "ÿ"],
        metadata={"by": "ü"},
        run_at=at,
        unique_opts={"by_queue": True, "states": 3},
        ordering_key="k",
        limit_key="li",
        deadline=30,
    )

    assert job == PreparedInsert(
        kind="mail",
        queue="q",
        args=b'{"to":"\\u00e9"}',
        priority=1,
        max_attempts=1000,
        metadata=b'{"by":"\\u00fc"}',
        tags=("x", "ÿ"),
        run_at=datetime(2026, 11, 29, 11, tzinfo=UTC),
        unique_key=unique_key("mail", "q", {"to": "é"}, UniqueOpts(by_queue=True)),
        unique_states=3,
        ordering_key="k",
        limit_key="li",
        deadline=30.0,
        size=len('mailq{"to":"é"}{"by":"ü"}xÿkli'.encode()),
    )


def test_methods_set_one_thing_and_leave_the_rest() -> None:
    request = (
        EnqueueRequest(SendEmail("a"), queue="q", metadata={"old": 1})
        .options(priority=1, tags=["t"])
        .unique(UniqueOpts(by_queue=True))
        .metadata({"new": 2})
    )

    assert request == EnqueueRequest(
        SendEmail("a"),
        queue="q",
        priority=1,
        tags=["t"],
        unique_opts=UniqueOpts(by_queue=True),
        metadata={"new": 2},
    )
    assert prepare(request, codec).metadata == b'{"new":2}'


def test_unique_without_options_means_the_defaults() -> None:
    request = EnqueueRequest(SendEmail("a"))

    assert prepare(request.unique(), codec) == prepare(request.unique({}), codec)
    assert prepare(request.unique(), codec).unique_states == 31
    assert prepare(request, codec).unique_key is None


def test_a_request_does_not_show_what_may_be_secret() -> None:
    request = EnqueueRequest({"password": "hunter2"}, kind="k", metadata={"token": "hunter2"})

    assert "hunter2" not in repr(request)


def test_every_option_can_be_given_by_keyword_and_by_method() -> None:
    assert OPTION_NAMES == (
        "kind",
        "queue",
        "priority",
        "max_attempts",
        "tags",
        "metadata",
        "run_at",
        "unique_opts",
        "ordering_key",
        "limit_key",
        "deadline",
    )
    options: dict[str, Any] = dict.fromkeys(OPTION_NAMES)

    assert EnqueueRequest({}, **options) == EnqueueRequest({}).options(**options)


def test_none_is_the_same_as_leaving_an_option_out() -> None:
    options: EnqueueOptions = {
        "kind": None,
        "queue": None,
        "priority": None,
        "max_attempts": None,
        "tags": None,
        "metadata": None,
        "run_at": None,
        "unique_opts": None,
        "ordering_key": None,
        "limit_key": None,
        "deadline": None,
    }

    assert prepared(SendEmail("a"), **options) == prepared(SendEmail("a"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("prioritty", "did you mean 'priority'?"),
        ("unique", "did you mean 'unique_opts'?"),
        ("zzz", "there are kind, queue, priority"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(name: Any, hint: Any) -> None:
    asks: list[Callable[..., object]] = [EnqueueRequest, EnqueueRequest({}).options]
    arguments: list[tuple[object, ...]] = [({},), ()]
    for ask, args in zip(asks, arguments, strict=True):
        with pytest.raises(InvalidRequest) as caught:
            ask(*args, **{name: 1})
        assert caught.value.problem.startswith(f"options: there is no option '{name}'; {hint}")


def test_a_request_inside_a_request_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="already"):
        EnqueueRequest(EnqueueRequest({}))


# ---- What the task says -----------------------------------------------------------------


def test_the_task_says_what_the_request_does_not() -> None:
    defaults = KindDefaults(queue="mail", priority=3, max_attempts=5)

    job = prepare(EnqueueRequest(SendEmail("a")), codec, defaults=defaults)

    assert (job.queue, job.priority, job.max_attempts) == ("mail", 3, 5)


def test_the_request_comes_before_the_task() -> None:
    defaults = KindDefaults(queue="mail", priority=3, max_attempts=5)
    request = EnqueueRequest(SendEmail("a"), queue="default", priority=2, max_attempts=25)

    job = prepare(request, codec, defaults=defaults)

    assert (job.queue, job.priority, job.max_attempts) == ("default", 2, 25)


def test_what_the_task_says_is_checked_too() -> None:
    with pytest.raises(InvalidRequest, match=r"^queue:"):
        prepare(EnqueueRequest(SendEmail("a")), codec, defaults=KindDefaults(queue=""))


def test_the_annotation_of_a_task_encodes_what_a_class_does_not_say() -> None:
    movie = {"id": UUID(int=1)}
    pages = Page([UUID(int=1)])

    job = prepare(
        EnqueueRequest(movie, kind="movie"), codec, defaults=KindDefaults(args_type=Movie)
    )
    page = prepare(EnqueueRequest(pages), codec, defaults=KindDefaults(args_type=Page[UUID]))

    assert json.loads(job.args) == {"id": str(UUID(int=1))}
    assert (page.kind, json.loads(page.args)) == ("page", {"items": [str(UUID(int=1))]})


def test_args_of_another_class_than_the_tasks_are_encoded_by_their_own() -> None:
    job = prepare(
        EnqueueRequest({"to": "a"}, kind="send_email"),
        codec,
        defaults=KindDefaults(args_type=SendEmail),
    )

    assert job.args == b'{"to":"a"}'


# ---- What is refused ------------------------------------------------------------------------

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": ""}, "kind: give 1 to 200 characters, not 0"),
        ({"kind": "k" * 201}, "kind: give 1 to 200 characters, not 201"),
        ({"kind": b"k"}, "kind: give a str, not bytes"),
        ({"kind": "a\0"}, "kind: U+0000 cannot be stored"),
        ({"queue": ""}, "queue: give 1 to 200"),
        ({"queue": "é" * 201}, "queue: give 1 to 200"),
        ({"queue": 1}, "queue: give a str, not int"),
        ({"queue": "\ud800"}, "queue: a lone surrogate"),
        ({"priority": 0}, "priority: give a whole number from 1 to 4, not 0"),
        ({"priority": 5}, "priority: give a whole number from 1 to 4, not 5"),
        pytest.param(
            {"priority": 10**5000},
            "priority: give a whole number from 1 to 4, not a number as large as that",
            id="huge priority",
        ),
        ({"priority": True}, "priority: give a whole number from 1 to 4, not bool"),
        ({"priority": 2.0}, "priority: give a whole number from 1 to 4, not float"),
        ({"priority": "2"}, "priority: give a whole number from 1 to 4, not str"),
        ({"max_attempts": 0}, "max_attempts: give a whole number from 1 to 1,000, not 0"),
        (
            {"max_attempts": 1001},
            "max_attempts: give a whole number from 1 to 1,000, not 1,001",
        ),
        ({"max_attempts": True}, "max_attempts: give a whole number"),
        ({"tags": "urgent"}, "tags: give a list of str, not str"),
        ({"tags": {"urgent": 1}}, "tags: give a list of str, not dict"),
        ({"tags": ["t"] * 21}, "tags: give at most 20, not 21"),
        ({"tags": ["a", ""]}, "tags[1]: give 1 to 200 characters, not 0"),
        ({"tags": ["t" * 201]}, "tags[0]: give 1 to 200 characters, not 201"),
        ({"tags": ["a", None]}, "tags[1]: give a str, not None"),
        ({"tags": ["a\0"]}, "tags[0]: U+0000"),
        ({"tags": ["a\udc00"]}, "tags[0]: a lone surrogate"),
        ({"metadata": []}, "metadata: give a mapping, not list"),
        ({"metadata": "{}"}, "metadata: give a mapping, not str"),
        ({"metadata": {"a": {1}}}, "metadata.a: set is not plain JSON"),
        ({"metadata": {1: 1}}, "metadata (key 1): a JSON object has str keys, not int"),
        ({"metadata": {"a": ["\0"]}}, "metadata.a[0]: U+0000"),
        (
            {"metadata": {"awa:x": 1}},
            "metadata['awa:x']: keys that begin with awa: are reserved",
        ),
        ({"run_at": NAIVE}, "run_at: give a timezone-aware datetime"),
        ({"run_at": date(2026, 1, 1)}, "run_at: give a datetime, not date"),
        ({"run_at": 5}, "run_at: give a datetime, not int"),
        (
            {"run_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))},
            "run_at: in UTC",
        ),
        (
            {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
            "run_at: in UTC",
        ),
        ({"unique_opts": {"by_que": 1}}, "unique_opts: there is no option 'by_que'"),
        ({"unique_opts": True}, "unique_opts: give UniqueOpts(...) or a mapping, not bool"),
        ({"unique_opts": {"states": 0}}, "unique_opts.states: give a mask from 1 to 255"),
        ({"ordering_key": ""}, "ordering_key: give 1 to 200 characters, not 0"),
        ({"ordering_key": "k" * 201}, "ordering_key: give 1 to 200 characters, not 201"),
        ({"ordering_key": 7}, "ordering_key: give a str, not int"),
        ({"limit_key": ""}, "limit_key: give 1 to 200 characters, not 0"),
        ({"deadline": -1}, "deadline: give 0 to"),
        ({"deadline": -0.001}, "deadline: give 0 to"),
        ({"deadline": float("nan")}, "deadline: give 0 to"),
        ({"deadline": float("inf")}, "deadline: give 0 to"),
        ({"deadline": 1e300}, "deadline: give 0 to"),
        ({"deadline": 10**400}, "deadline: give 0 to"),
        (
            {"deadline": True},
            "deadline: give seconds, as a number, with 0 for no limit, not bool",
        ),
        (
            {"deadline": "30"},
            "deadline: give seconds, as a number, with 0 for no limit, not str",
        ),
        (
            {"deadline": timedelta(30)},
            "deadline: give seconds, as a number, with 0 for no limit, not timedelta",
        ),
    ],
)
def test_an_option_the_schema_would_refuse_is_refused_by_name(
    options: Any, problem: Any
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        prepared(SendEmail("a"), **options)

    assert caught.value.problem.startswith(problem)


class Plain:
    pass


@pytest.mark.parametrize(
    ("args", "options", "problem"),
    [
        ({"a": 1}, {}, "kind: a dict has no class to take the kind from; give kind=..."),
        (SendEmail, {}, "args: give an instance, SendEmail(...), not the class SendEmail"),
        (SendEmail("\0"), {}, "args.to: U+0000 cannot be stored"),
        (SendEmail(5), {}, "args.to: expected str, not int"),  # type: ignore[arg-type]
        ({"a": [1, (2,)]}, {"kind": "k"}, "args.a[1]: tuple is not plain JSON"),
        ([1], {"kind": "k"}, "args: list is not stored as a JSON object"),
        (5, {"kind": "k"}, "args: int is not stored as a JSON object"),
        (None, {"kind": "k"}, "args: None is not stored as a JSON object"),
        ("{", {"kind": "k"}, "args: str is not stored as a JSON object"),
        (Plain(), {}, "args: Plain: Plain cannot be stored"),
        (Page([1]), {}, "args: Page.items[]: T stands for no type here"),
        (type("K" * 201, (), {})(), {}, "kind: give 1 to 200 characters, not 201"),
        (type("_", (), {})(), {}, "kind: "),
    ],
)
def test_args_that_cannot_be_stored_are_refused(args: Any, options: Any, problem: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        prepared(args, **options)

    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "k" * 200, "queue": "é" * 200, "ordering_key": "😀" * 200},
        {"priority": 4, "max_attempts": 1},
        {"tags": ["t" * 200] * 20},
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"run_at": datetime.min.replace(tzinfo=UTC)},
        {"deadline": 0},
        {"deadline": 366 * 86_400},
        {"metadata": {"awa": 1, "Awa:": 2, "nested": {"awa:": 3}}},
    ],
)
def test_the_limits_themselves_are_accepted(options: Any) -> None:
    job = prepared(SendEmail("a"), **options)

    for name, value in options.items():
        stored = getattr(job, name)
        if name == "metadata":
            stored = json.loads(stored)
        assert stored == (tuple(value) if name == "tags" else value)


def test_members_of_enums_are_stored_as_what_they_are() -> None:
    job = prepared(
        SendEmail("a"), queue=Queue.MAIL, tags=[Queue.MAIL], priority=Priority.URGENT
    )

    assert [type(value) for value in (job.queue, job.tags[0], job.priority)] == [str, str, int]
    assert (job.queue, job.tags, job.priority) == ("mail", ("mail",), 1)


def test_a_set_of_tags_is_stored_in_order() -> None:
    tags = {"c", "a", "b", "e", "d"}

    assert prepared(SendEmail("a"), tags=tags).tags == ("a", "b", "c", "d", "e")
    assert prepared(SendEmail("a"), tags=frozenset(tags)).tags == ("a", "b", "c", "d", "e")
    assert prepared(SendEmail("a"), tags=["b", "a"]).tags == ("b", "a")


def test_a_subclass_of_datetime_becomes_a_datetime() -> None:
    class Moment(datetime):
        pass

    run_at = prepared(SendEmail("a"), run_at=Moment(2026, 1, 1, 1, 2, 3, 4, UTC)).run_at

    assert type(run_at) is datetime
    assert run_at == datetime(2026, 1, 1, 1, 2, 3, 4, UTC)


def test_the_request_as_a_whole_has_a_limit() -> None:
    fixed = len(b'kdefault{"a":""}')

    largest = prepared({"a": "x" * (MAX_REQUEST_BYTES - fixed)}, kind="k")

    assert largest.size == MAX_REQUEST_BYTES
    with pytest.raises(InvalidRequest) as caught:
        prepared({"a": "x" * (MAX_REQUEST_BYTES - fixed + 1)}, kind="k")
    assert caught.value.problem.startswith(
        "args: the request takes 1,048,577 bytes, 1,048,569 of them for the arguments,"
    )
    with pytest.raises(InvalidRequest, match="the request takes"):
        prepared({}, kind="k", metadata={"a": "é" * (MAX_REQUEST_BYTES // 2)})


# ---- Reserved metadata --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "stored"),
    [
        (None, b'{"awa:triggered_by":7}'),
        ({}, b'{"awa:triggered_by":7}'),
        ({"a": 1}, b'{"a":1,"awa:triggered_by":7}'),
        (MappingProxyType({"a": {"b": []}}), b'{"a":{"b":[]},"awa:triggered_by":7}'),
    ],
)
def test_reserved_metadata_joins_the_rest_and_is_not_counted(
    metadata: Any, stored: Any
) -> None:
    request = EnqueueRequest(SendEmail("a"), metadata=metadata)

    job = prepare(request, codec, reserved={"awa:triggered_by": 7})

    assert job.metadata == stored
    assert job.size == prepare(request, codec).size
    assert public_metadata(job.metadata) == dict(metadata or {})


def test_no_metadata_is_none() -> None:
    assert prepared(SendEmail("a"), metadata={}).metadata is None
    assert public_metadata(None) == {}


def test_metadata_passed_on_is_accepted() -> None:
    job = prepare(
        EnqueueRequest(SendEmail("a"), metadata={"a": 1}), codec, reserved={"awa:x": "y"}
    )

    again = prepared(SendEmail("b"), metadata=public_metadata(job.metadata))

    assert again.metadata == b'{"a":1}'


# ---- Any request, by Hypothesis --------------------------------------------------------------------

ANY_TEXT = st.text(max_size=210) | st.sampled_from(["", "\0", "\ud800", "k" * 200, "k" * 201])
TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)
JSON = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT.filter(lambda key: not key.startswith("awa:")), JSON, max_size=4)

EARLY, LATE = datetime(2, 1, 1), datetime(9998, 1, 1)  # noqa: DTZ001
GOOD = st.fixed_dictionaries(
    {"kind": TEXT},
    optional={
        "queue": TEXT,
        "priority": st.integers(1, 4),
        "max_attempts": st.integers(1, 1000),
        "tags": st.lists(TEXT, max_size=20),
        "metadata": OBJECTS,
        "run_at": st.datetimes(EARLY, LATE, timezones=st.timezones()),
        "unique_opts": st.fixed_dictionaries(
            {}, optional={"by_queue": st.booleans(), "states": st.integers(1, 255)}
        ),
        "ordering_key": TEXT,
        "limit_key": TEXT,
        "deadline": st.floats(0, 86_400),
    },
)
ANY = st.fixed_dictionaries(
    {"kind": ANY_TEXT},
    optional={
        "queue": ANY_TEXT,
        "priority": st.integers(-1, 6) | st.booleans() | st.floats(),
        "max_attempts": st.integers(-1, 1002) | st.booleans(),
        "tags": st.lists(ANY_TEXT, max_size=22),
        "metadata": st.dictionaries(st.text(), st.floats() | st.text() | st.integers()),
        "run_at": st.datetimes() | st.datetimes(timezones=st.timezones()),
        "unique_opts": st.dictionaries(
            st.sampled_from(["states", "by_args"]), st.integers(-1, 257) | st.booleans()
        ),
        "ordering_key": ANY_TEXT,
        "limit_key": ANY_TEXT,
        "deadline": st.floats() | st.integers(),
    },
)


def storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


@given(st.dictionaries(st.text(), st.floats() | st.text() | st.integers(), max_size=3), ANY)
def test_nothing_gets_through_that_the_schema_would_refuse(args: Any, options: Any) -> None:
    try:
        job = prepared(args, **options)
    except InvalidRequest:
        return

    assert 1 <= len(job.kind) <= 200
    assert 1 <= len(job.queue) <= 200
    assert type(job.priority) is int
    assert 1 <= job.priority <= 4
    assert type(job.max_attempts) is int
    assert 1 <= job.max_attempts <= 1000
    assert len(job.tags) <= 20
    assert all(job.tags)
    assert job.ordering_key is None or 1 <= len(job.ordering_key) <= 200
    assert job.limit_key is None or 1 <= len(job.limit_key) <= 200
    assert job.deadline is None or 0 <= job.deadline < float("inf")
    assert job.run_at is None or job.run_at.utcoffset() == timedelta(0)
    assert (job.unique_key is None) == (job.unique_states == 0)
    assert job.unique_key is None or (len(job.unique_key), job.unique_states <= 255) == (
        16,
        True,
    )
    assert all(
        map(
            storable,
            (job.kind, job.queue, job.ordering_key or "", job.limit_key or "", *job.tags),
        )
    )
    for data in (job.args, job.metadata or b"{}"):
        assert b"\\u0000" not in data.replace(b"\\\\", b"")
        assert storable(repr(json.loads(data)))
        assert isinstance(json.loads(data), dict)


@given(OBJECTS, GOOD)
@example({"a": "\x7f\x80\u07ff\u0800\uffff\U00010000\\u00e9"}, {"kind": "k"})
def test_a_good_request_is_accepted_and_its_size_is_as_documented(
    args: Any, options: Any
) -> None:
    job = prepared(args, **options)

    def utf8(value: Mapping[str, Any] | None) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if value else ""

    counted = [
        options["kind"],
        options.get("queue", "default"),
        utf8(args) or "{}",
        utf8(options.get("metadata")),
        *options.get("tags", ()),
        options.get("ordering_key", ""),
        options.get("limit_key", ""),
    ]
    assert job.size == len("".join(counted).encode())
    assert job.args.isascii()
    assert json.loads(job.args) == args
    assert public_metadata(job.metadata) == options.get("metadata", {})
    if "run_at" in options:
        # Not ==, which is never true of a time that the clocks skip or repeat.
        at = options["run_at"]
        assert job.run_at == at.replace(tzinfo=UTC) - at.utcoffset()


@given(OBJECTS, GOOD)
def test_the_same_request_gives_the_same_insert(args: Any, options: Any) -> None:
    assert prepared(args, **options) == prepared(args, **options)


@given(OBJECTS, GOOD, st.dictionaries(st.just("awa:traceparent"), TEXT, min_size=1))
def test_reserved_metadata_never_changes_what_a_handler_sees(
    args: Any, options: Any, reserved: Any
) -> None:
    request = EnqueueRequest(args, **options)

    job = prepare(request, codec, reserved=reserved)

    assert public_metadata(job.metadata) == public_metadata(prepare(request, codec).metadata)
    assert json.loads(job.metadata or b"")["awa:traceparent"] == reserved["awa:traceparent"]
