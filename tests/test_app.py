"""The app: what its decorators take, and what they refuse before anything runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import pytest
from attrs import frozen

import awa_trio as awa
from awa_trio._app.app import registry_of, worker_queues
from awa_trio._core.plan import Outcome
from awa_trio._core.registry import Task
from awa_trio.testing import memory_client, work_one

if TYPE_CHECKING:
    from decimal import Decimal as Unseen

S = awa.JobState
T = TypeVar("T")


@frozen
class Work:
    n: int = 0


@frozen
class Other:
    n: int = 0


@frozen
class Page(Generic[T]):
    items: list[T]


class Fields(TypedDict):
    n: int


class __:
    """A class whose name gives no kind."""

    def __init__(self, n: int = 0) -> None:
        self.n = n


def task_of(app: awa.App) -> Task:
    [task] = registry_of(app).tasks.values()
    return task


def registered(handler: Any, **options: Any) -> Task:
    app = awa.App()
    assert app.task(**options)(handler) is handler
    return task_of(app)


# ---- which arguments, by which annotation


async def good(job: awa.Job[Work]) -> None: ...


def in_thread(job: awa.Job[Work]) -> None: ...


def test_the_annotation_names_the_arguments_and_they_the_kind() -> None:
    task = registered(good)
    assert (task.kind, task.args_type, task.in_thread) == ("work", Work, False)
    assert registered(in_thread).in_thread


def test_a_decorator_without_arguments_needs_no_parentheses() -> None:
    @frozen
    class Local:
        n: int

    app = awa.App()

    @app.task
    async def local(job: awa.Job[Local]) -> None: ...

    assert inspect.iscoroutinefunction(local)
    assert (task_of(app).kind, task_of(app).handler) == ("local", local)


def test_options_of_a_task_are_given_by_name() -> None:
    app: Any = awa.App()
    with pytest.raises(awa.ConfigurationError, match=r"as in @app\.task\(kind="):
        app.task("my_kind")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_follow_up_without_its_class_is_refused(outcome: Outcome) -> None:
    def lost(*facts: object) -> None: ...

    on = getattr(awa.App(), f"on_{outcome.value}")
    with pytest.raises(
        awa.ConfigurationError, match=rf"as in @app\.on_{outcome.value}\(MyArgs\), not .*lost"
    ):
        on(lost)


def test_classes_that_are_local_to_a_function_are_found() -> None:
    @frozen
    class Local:
        n: int

    app = awa.App()

    @app.task()
    async def handler(job: awa.Job[Local]) -> None: ...

    assert task_of(app).args_type is Local


class Callable_:
    async def __call__(self, job: awa.Job[Work]) -> None: ...


class Plain:
    def __call__(self, job: awa.Job[Work]) -> None: ...


class Bound:
    async def method(self, job: awa.Job[Work]) -> None: ...

    def plain(self, job: awa.Job[Work]) -> None: ...


async def with_resource(resource: str, job: awa.Job[Work], *, more: int = 0) -> None: ...


@functools.wraps(in_thread)
async def made_async(job: Any) -> None:
    in_thread(job)


@functools.wraps(good)
def passing_on(job: Any) -> Any:
    return good(job)


@pytest.mark.parametrize(
    ("handler", "threaded"),
    [
        pytest.param(Callable_(), False, id="object"),
        pytest.param(Plain(), True, id="plain object"),
        pytest.param(Bound().method, False, id="method"),
        pytest.param(Bound().plain, True, id="plain method"),
        pytest.param(functools.partial(with_resource, "r"), False, id="partial"),
        pytest.param(
            functools.partial(functools.partial(with_resource, more=1), "r"), False, id="nested"
        ),
        pytest.param(functools.partial(in_thread), True, id="plain partial"),
        pytest.param(functools.partial(Callable_()), False, id="partial of an object"),
        pytest.param(made_async, False, id="async decorator around a plain function"),
        pytest.param(passing_on, False, id="plain decorator around an async function"),
    ],
)
@pytest.mark.parametrize("given", [True, False], ids=["args given", "annotated"])
def test_whatever_can_be_called_is_a_handler(handler: Any, threaded: bool, given: bool) -> None:
    task = registered(handler, **({"args": Work} if given else {}))
    assert (task.kind, task.args_type, task.in_thread) == ("work", Work, threaded)


async def unannotated(job) -> None: ...  # type: ignore[no-untyped-def]


async def wrong(job: int) -> None: ...


async def bare(job: awa.Job) -> None: ...  # type: ignore[type-arg]


async def later(job: awa.Job[Later]) -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def slip(job: awa.Jobb[Work]) -> None: ...  # type: ignore[name-defined]


async def unseen(job: awa.Job[Unseen]) -> None: ...


async def none() -> None: ...


async def two(job: awa.Job[Work], other) -> None: ...  # type: ignore[no-untyped-def]


async def keyword(job: awa.Job[Work], *, needed) -> None: ...  # type: ignore[no-untyped-def]


async def only_keyword(*, job: awa.Job[Work]) -> None: ...


async def union(job: awa.Job[Work | None]) -> None: ...


async def plain_dict(job: awa.Job[dict[str, int]]) -> None: ...


class DictObject:
    async def __call__(self, job: awa.Job[dict[str, int]]) -> None: ...


async def async_generator(job: awa.Job[Work]) -> Any:
    yield 1


def generator(job: awa.Job[Work]) -> Any:
    yield 1


NO_CLASS = r"annotate the first parameter of handler {} .*\(job: awa\.Job\[MyArgs\]\)"
NO_NAME = r"annotation of handler {} cannot be evaluated \(.*\); .*@app\.task\(args=MyArgs\)"
NO_JOB = r"handler {} must take a job as its first parameter, as in async def {}\(job: awa\.Job"
NO_KIND = r"arguments of handler {} have no class to name their kind after; give kind="


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (unannotated, NO_CLASS),
        (wrong, NO_CLASS),
        (bare, NO_CLASS),
        (later, NO_NAME),
        (slip, NO_NAME),
        (unseen, NO_NAME),
        (none, NO_JOB),
        (two, r"annotate parameter 'other' of handler {} with the type of a resource"),
        (keyword, r"annotate parameter 'needed' of handler {} with the type of a resource"),
        (only_keyword, NO_JOB),
        (union, NO_KIND),
        (plain_dict, NO_KIND),
        (DictObject(), r"have no class to name their kind after; give kind="),
        (async_generator, r"handler {} is a generator; it must return, not yield"),
        (generator, r"handler {} is a generator; it must return, not yield"),
        ("a name", r"handler 'a name' must take a job as its first parameter"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_handler_is_one_sentence(handler: Any, message: str) -> None:
    name = getattr(handler, "__name__", "")
    app = awa.App()
    with pytest.raises(awa.ConfigurationError, match=message.format(name, name)) as caught:
        app.task()(handler)
    assert "\n" not in str(caught.value)
    assert app.kinds == ()


@pytest.mark.parametrize("handler", [later, slip, unseen, unannotated])
def test_the_class_may_be_given_where_the_annotation_does_not_say(handler: Any) -> None:
    assert registered(handler, args=Work).args_type is Work


@pytest.mark.parametrize("handler", [async_generator, generator])
def test_a_generator_is_refused_whoever_names_its_arguments(handler: Any) -> None:
    with pytest.raises(awa.ConfigurationError, match="is a generator"):
        registered(handler, args=Work)


@pytest.mark.parametrize("args", [dict, dict[str, int], Page[int], Fields])
def test_arguments_without_a_class_of_their_own_need_a_kind(args: Any) -> None:
    task = registered(good, args=args, kind="mine")
    assert (task.kind, task.args_type) == ("mine", args)
    if args is not Fields:
        with pytest.raises(awa.ConfigurationError, match="give kind="):
            registered(good, args=args)


def test_so_does_a_class_whose_name_gives_none() -> None:
    with pytest.raises(awa.ConfigurationError, match="no name to make a kind of; give kind="):
        registered(good, args=__)


def test_arguments_that_cannot_be_stored_are_refused_and_nothing_is_registered() -> None:
    class Bad:
        n: object

    app = awa.App()
    for _ in range(2):  # the second time too, for the same reason
        with pytest.raises(awa.ConfigurationError, match="Bad cannot be stored"):
            app.task(args=Bad)(good)
    app.task(args=Work, kind="bad")(good)
    assert app.kinds == ("bad",)


# ---- options, and what is known already


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": ""}, "kind: give 1 to 200 characters"),
        ({"kind": "k" * 201}, "kind: give 1 to 200 characters, not 201"),
        ({"kind": 3}, "kind: give a str"),
        ({"kind": "a\0b"}, "kind: "),
        ({"queue": ""}, "queue: give 1 to 200 characters"),
        ({"queue": "q" * 201}, "queue: "),
        ({"priority": 0}, "priority: give a whole number from 1 to 4"),
        ({"priority": 5}, "priority: "),
        ({"priority": "high"}, "priority: "),
        ({"max_attempts": 0}, "max_attempts: give a whole number from 1 to 1,000"),
        ({"max_attempts": 1001}, "max_attempts: "),
        ({"deadline": -1}, "deadline: give 0 to 31,622,400 seconds, not -1"),
        ({"deadline": "soon"}, "deadline: give seconds, as a number, not str"),
        ({"backoff": 3}, "backoff=3: give a function"),
    ],
)
def test_a_value_out_of_its_range_is_refused_at_once(
    options: dict[str, Any], message: str
) -> None:
    app = awa.App()
    with pytest.raises(awa.ConfigurationError, match=message):
        app.task(**options)(good)
    assert app.kinds == ()
    if options.keys() <= {"kind", "queue", "priority", "max_attempts"}:
        with pytest.raises(awa.ConfigurationError, match=message):
            app.declare(Work, **options)


def test_a_kind_is_registered_once() -> None:
    app = awa.App()
    app.task(kind="k")(good)
    with pytest.raises(awa.ConfigurationError, match="'k' is registered twice"):
        app.task(kind="k", args=Other)(good)
    with pytest.raises(awa.ConfigurationError, match="'k' is registered twice"):
        app.declare(Other, kind="k")
    assert task_of(app).args_type is Work


def test_a_class_is_registered_once() -> None:
    app = awa.App()
    app.declare(Work, kind="a")
    with pytest.raises(
        awa.ConfigurationError, match="Work is registered twice, as kinds 'a' and 'b'"
    ):
        app.task(kind="b")(good)
    app.task(args=Other, kind="b")(good)
    assert app.kinds == ("b",)


def test_a_queue_is_set_once_and_in_its_range() -> None:
    app = awa.App()
    app.queue("q", max_workers=3)
    with pytest.raises(awa.ConfigurationError, match="queue 'q' is set twice"):
        app.queue("q")
    for options in ({"max_workers": 0}, {"max_workers": 1.5}, {"deadline": float("inf")}):
        with pytest.raises(awa.ConfigurationError, match=next(iter(options))):
            app.queue("other", **options)
    with pytest.raises(awa.ConfigurationError, match="queue: give 1 to 200 characters"):
        app.queue("")


def test_an_app_says_what_it_runs() -> None:
    app = awa.App()
    assert repr(app) == "<App with tasks for nothing>"
    app.task()(good)
    app.declare(Other)
    assert repr(app) == "<App with tasks for work>"


# ---- the queues of a worker


def test_a_worker_serves_every_queue_the_app_knows() -> None:
    app = awa.App()
    app.queue("set", max_workers=3, deadline=7)
    app.task(queue="of a task")(good)
    app.declare(Other, queue="of others")
    queues = worker_queues(app, None)
    assert list(queues) == ["default", "of a task", "set"]
    assert queues["set"] == awa.QueueSettings(max_workers=3, deadline=7)
    assert queues["default"] == awa.QueueSettings()


def test_or_those_it_is_given() -> None:
    app = awa.App()
    app.queue("set", max_workers=3, deadline=7)
    assert worker_queues(app, iter(["set", "new"])) == {
        "set": awa.QueueSettings(max_workers=3, deadline=7),
        "new": awa.QueueSettings(),
    }
    own = awa.QueueSettings(max_workers=2)
    assert worker_queues(app, {"set": None}) == worker_queues(app, ["set"])
    assert worker_queues(app, {"set": 5, "new": own}) == {
        "set": awa.QueueSettings(max_workers=5, deadline=7),
        "new": own,
    }


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ("name", r"queues='name': give a list of names, as in \['name'\]"),
        ([], "at least one queue"),
        ({}, "at least one queue"),
        ({"q": 0}, "max_workers: give a whole number from 1 to 100,000, not 0"),
        ({"q": "5"}, "max_workers: give a whole number .*, not str"),
        ({"q": True}, "max_workers: give a whole number .*, not bool"),
        ([3], "queue: give a str"),
        ([""], "queue: give 1 to 200"),
        (["q" * 201], "queue: give 1 to 200"),
    ],
)
def test_queues_that_make_no_sense_are_refused(queues: Any, message: str) -> None:
    with pytest.raises(awa.ConfigurationError, match=message):
        worker_queues(awa.App(), queues)


# ---- registered follow-ups


class AsyncFollowUp:
    async def __call__(self, args: Work, job: awa.JobRow) -> Other:
        return Other()


async def async_follow_up(args: Work, job: awa.JobRow) -> Other:
    return Other()


async def async_generating(args: Work, job: awa.JobRow) -> Any:
    yield Other()


def generating(args: Work, job: awa.JobRow) -> Any:
    yield Other()


@pytest.mark.parametrize(
    "function",
    [
        async_follow_up,
        async_generating,
        generating,
        AsyncFollowUp(),
        functools.partial(async_follow_up, Work()),
    ],
    ids=["async", "async generator", "generator", "async object", "async partial"],
)
@pytest.mark.parametrize("outcome", ["on_completed", "on_exhausted", "on_rescued"])
def test_a_follow_up_that_would_wait_is_refused(function: Any, outcome: str) -> None:
    with pytest.raises(awa.ConfigurationError, match="must be an ordinary function"):
        getattr(awa.App(), outcome)(Work)(function)


@pytest.mark.parametrize(
    ("outcome", "parameters"),
    [
        ("on_completed", "args, job"),
        ("on_retried", "args, job, error, seconds"),
        ("on_exhausted", "args, job, error"),
        ("on_cancelled", "args, job, reason"),
        ("on_waiting_for_callback", "args, job, token"),
        ("on_rescued", "args, job, reason"),
    ],
)
def test_a_follow_up_that_cannot_be_called_with_what_it_gets_is_refused(
    outcome: str, parameters: str
) -> None:
    on = getattr(awa.App(), outcome)(Work)
    message = f"of {outcome} is called with \\({parameters}\\); let it take these"
    for wrong in (lambda: None, lambda args, job, a, b, c: None, lambda args, *, job: None):
        with pytest.raises(awa.ConfigurationError, match=message):
            on(wrong)
    on(lambda *facts: None)
    on(lambda args, job, a=1, b=2: None)


def test_a_follow_up_is_for_a_class() -> None:
    with pytest.raises(awa.ConfigurationError, match="a dict has no kind of its own"):
        awa.App().on_completed(dict)(lambda args, job: None)
    with pytest.raises(awa.ConfigurationError, match="give kind="):
        awa.App().on_completed(__)(lambda args, job: None)


@pytest.mark.parametrize("first", [True, False], ids=["before its task", "after its task"])
@pytest.mark.parametrize("kind", [None, "a_kind_of_its_own"])
async def test_a_follow_up_may_be_registered_before_or_after_its_task(
    first: bool, kind: str | None
) -> None:
    app = awa.App()
    app.declare(Other)

    def register() -> None:
        @app.on_completed(Work)
        def follow(args: Work, job: awa.JobRow) -> Other:
            return Other(args.n + 1)

    if first:
        register()
    app.task(kind=kind)(good)
    if not first:
        register()
    client = memory_client(app)
    await client.enqueue(Work(1))
    worked = await work_one(app, client)
    assert worked is not None
    assert worked.state is S.COMPLETED
    [other] = await client.jobs.list(kind="other")
    assert other.args_json == {"n": 2}


async def test_another_class_does_not_inherit_the_follow_up_by_its_name() -> None:
    def made() -> Callable[..., Any]:
        @frozen
        class Work:
            n: int = 5

        return Work

    namesake = made()
    app = awa.App()
    app.declare(Other)
    app.on_completed(Work)(lambda args, job: Other())
    app.task(args=Work, kind="ours")(good)
    app.task(args=namesake)(good)
    client = memory_client(app)
    await client.enqueue(namesake())
    worked = await work_one(app, client)
    assert worked is not None
    assert (worked.job.kind, worked.state) == ("work", S.COMPLETED)
    assert await client.jobs.list(kind="other") == []


async def test_a_follow_up_without_a_name_of_its_own_can_fail() -> None:
    """A partial: its error has to be recorded like any other's."""

    def follow(reason: str, args: Work, job: awa.JobRow) -> Other:
        raise ValueError(reason)

    app = awa.App()
    app.task()(good)
    app.on_completed(Work)(functools.partial(follow, "why"))
    client = memory_client(app)
    await client.enqueue(Work(1))
    worked = await work_one(app, client)
    assert worked is not None
    assert worked.state is S.FAILED
    assert worked.error is not None
    assert "the registered follow-up functools.partial could not be made" in worked.error
    assert "ValueError: why" in worked.error


# ---- handlers that are not what they look like, run


async def test_an_async_decorator_around_a_plain_function_is_run() -> None:
    ran: list[int] = []

    def plain(job: awa.Job[Work]) -> None:
        ran.append(job.args.n)

    @functools.wraps(plain)
    async def decorated(job: awa.Job[Work]) -> None:
        plain(job)

    app = awa.App()
    app.task()(decorated)
    client = memory_client(app)
    await client.enqueue(Work(7))
    await work_one(app, client)
    assert ran == [7]


async def test_a_plain_function_that_returns_a_coroutine_has_not_completed() -> None:
    app = awa.App()
    app.task(args=Work, max_attempts=1)(lambda job: good(job))
    client = memory_client(app)
    await client.enqueue(Work(7))
    worked = await work_one(app, client)
    assert worked is not None
    assert worked.state is S.FAILED
    assert worked.error is not None
    assert "appears to be asynchronous" in worked.error
