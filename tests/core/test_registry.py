"""The registry: what an enqueue of a class means, and what follows it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from awa_trio._core.errors import (
    ConfigurationError,
    InvalidRequest,
    UndecodableArgs,
    UnknownKind,
)
from awa_trio._core.plan import FollowUpSpec, Outcome
from awa_trio._core.registry import Registry, Task
from awa_trio._core.request import EnqueueRequest, KindDefaults
from awa_trio._core.settings import QueueSettings


@frozen
class Resolve:
    n: int = 0


@frozen
class Reindex:
    n: int = 0


@frozen
class __:
    """A class whose name gives no kind."""

    n: int = 0


def handler(job: object) -> None: ...


def spec(outcome: Outcome = Outcome.COMPLETED) -> FollowUpSpec:
    return FollowUpSpec(outcome, lambda args, job: None)


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.add(Task("resolve", Resolve, handler, KindDefaults("q", 3, 7)))
    return registry


# ---- enqueueing


def test_a_task_says_what_an_enqueue_does_not(registry: Registry) -> None:
    job = registry.prepare(Resolve(1), {})
    assert (job.kind, job.queue, job.priority, job.max_attempts) == ("resolve", "q", 3, 7)
    job = registry.prepare(Resolve(1), {"queue": "other", "priority": 1, "max_attempts": 2})
    assert (job.queue, job.priority, job.max_attempts) == ("other", 1, 2)


def test_a_class_is_known_by_the_kind_it_was_registered_as() -> None:
    registry = Registry()
    registry.declare(Resolve, "look_up", KindDefaults("q"))
    assert registry.prepare(Resolve(1), {}).kind == "look_up"
    with pytest.raises(UnknownKind, match="'resolve'"):
        registry.prepare({"n": 1}, {"kind": "resolve"})


def test_an_unknown_kind_names_the_nearest(registry: Registry) -> None:
    for args, options in [({"n": 1}, {"kind": "resolv"}), (Reindex(1), {})]:
        with pytest.raises(UnknownKind) as caught:
            registry.prepare(args, options)  # type: ignore[arg-type]
        kind = options.get("kind", "reindex")
        assert caught.value.kind == kind
        assert list(caught.value.nearest) == (["resolve"] if kind == "resolv" else [])
    with pytest.raises(UnknownKind, match=r"no task of kind 'zzz'$"):
        registry.prepare({}, {"kind": "zzz"})


def test_an_unknown_kind_may_be_allowed(registry: Registry) -> None:
    job = registry.prepare(Reindex(1), {}, known_only=False)
    assert (job.kind, job.queue) == ("reindex", "default")


@pytest.mark.parametrize("known_only", [True, False])
def test_a_class_whose_name_gives_no_kind_needs_one(
    registry: Registry, known_only: bool
) -> None:
    with pytest.raises(InvalidRequest, match=r"kind: .* has no name to make a kind of"):
        registry.prepare(__(1), {}, known_only=known_only)
    with pytest.raises(InvalidRequest, match="kind: "):
        registry.prepare_many([Resolve(1), __(1)], {}, known_only=known_only)
    assert registry.prepare(__(1), {"kind": "resolve"}).args == b'{"n":1}'
    registry.declare(__, "underscored", KindDefaults())
    assert registry.prepare(__(1), {}).kind == "underscored"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (Resolve, r"give an instance, Resolve\(\.\.\.\), not the class"),
        ({"n": 1}, "a dict has no class to take the kind from; give kind="),
        ([1], "args: "),
        (None, "args: "),
        ("resolve", "args: "),
    ],
)
def test_what_is_not_arguments_is_refused(registry: Registry, args: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        registry.prepare(args, {}, known_only=False)
    with pytest.raises(InvalidRequest, match=message):
        registry.prepare_many([Resolve(1), args], {}, known_only=False)


def test_a_request_brings_its_own_options(registry: Registry) -> None:
    request = EnqueueRequest(Resolve(1), priority=1)
    assert registry.prepare(request, {}).priority == 1
    with pytest.raises(InvalidRequest, match=r"brings its own options: set queue on it"):
        registry.prepare(request, {"queue": "x"})
    one, other = registry.prepare_many([request, Resolve(2)], {"priority": 4})
    assert (one.priority, other.priority) == (1, 4)


def test_many_are_prepared_as_one_is(registry: Registry) -> None:
    registry.declare(Reindex, "reindex", KindDefaults("index"))
    jobs = [Resolve(1), Reindex(2), Resolve(3)]
    assert registry.prepare_many(jobs, {"tags": ["t"]}) == [
        registry.prepare(job, {"tags": ["t"]}) for job in jobs
    ]
    assert registry.prepare_many([], {}) == []


# ---- registering


def test_what_is_refused_leaves_nothing_behind(registry: Registry) -> None:
    class Unstorable:
        n: object

    before = (dict(registry.tasks), dict(registry._declared), dict(registry._kinds))
    for args_type, kind, defaults in [
        (Unstorable, "new", KindDefaults()),
        (Reindex, "resolve", KindDefaults()),
        (Resolve, "again", KindDefaults()),
        (Reindex, "", KindDefaults()),
        (Reindex, "new", KindDefaults(queue="")),
        (Reindex, "new", KindDefaults(priority=9)),
        (Reindex, "new", KindDefaults(max_attempts=0)),
    ]:
        with pytest.raises(ConfigurationError):
            registry.add(Task(kind, args_type, handler, defaults))
    assert (registry.tasks, registry._declared, registry._kinds) == before


def test_plain_dicts_may_be_of_many_kinds() -> None:
    registry = Registry()
    for kind in ("a", "b"):
        registry.declare(dict, kind, KindDefaults())
        assert registry.prepare({}, {"kind": kind}).kind == kind


# ---- following


def test_follow_ups_are_found_in_the_order_they_were_registered(registry: Registry) -> None:
    first, second, failed = spec(), spec(), spec(Outcome.EXHAUSTED)
    for one in (first, failed, second):
        registry.follow(Resolve, one)
    assert registry.specs("resolve", Outcome.COMPLETED) == [first, second]
    assert registry.specs("resolve", Outcome.EXHAUSTED) == [failed]
    assert registry.specs("other", Outcome.COMPLETED) == []


def test_those_that_came_before_the_task_are_found_by_its_kind() -> None:
    registry = Registry()
    first, second = spec(), spec()
    registry.follow(Resolve, first)
    registry.declare(Resolve, "look_up", KindDefaults())
    registry.follow(Resolve, second)
    assert registry.specs("look_up", Outcome.COMPLETED) == [first, second]
    assert registry.specs("resolve", Outcome.COMPLETED) == []


# ---- running


def test_stored_arguments_that_do_not_fit_say_where(registry: Registry) -> None:
    task = registry.tasks["resolve"]
    assert registry.decode(task, b'{"n": 1}') == Resolve(1)
    with pytest.raises(UndecodableArgs, match="n"):
        registry.decode(task, b'{"n": "x"}')


def test_a_queue_nobody_set_has_the_defaults(registry: Registry) -> None:
    registry.queues["q"] = QueueSettings(max_workers=1)
    assert registry.queue_settings("q") == QueueSettings(max_workers=1)
    assert registry.queue_settings("other") == QueueSettings()
