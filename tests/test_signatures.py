"""What tasks and resources say by their annotations."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NewType

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._app.app import registry_of

if TYPE_CHECKING:
    from decimal import Decimal as NotImported


@frozen
class Args:
    n: int


class Database: ...


class Client:
    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None: ...


Token = NewType("Token", str)
Secret = Annotated[str, "secret"]


def requests_of(handler: Any, **options: Any) -> dict[str, Any]:
    app = awa.App()
    app.task(kind="k", **options)(handler)
    return dict(registry_of(app).tasks["k"].requests)


def resource_of(function: Any, **options: Any) -> Any:
    app = awa.App()
    assert app.resource(**options)(function) is function
    [resource] = registry_of(app)._resources.values()
    return resource


# ---- handlers


def test_parameters_besides_the_job_request_resources() -> None:
    class Local: ...

    async def handle(
        job: awa.Job[Args],
        db: Database,
        token: Token,
        secret: Secret,
        many: list[Database],
        *rest: int,
        local: Local,
        limit: int = 3,
        **more: int,
    ) -> None: ...

    app = awa.App()
    app.task()(handle)
    assert registry_of(app).tasks["args"].requests == {
        "db": Database,
        "token": Token,
        "secret": Secret,
        "many": list[Database],
        "local": Local,
    }


def test_threads_request_them_too() -> None:
    def handle(job: awa.Job[Args], db: Database) -> None: ...

    assert requests_of(handle) == {"db": Database}


def test_a_handler_of_which_the_arguments_are_given_may_hide_its_job() -> None:
    async def handle(job: NotImported, db: Database) -> None: ...

    async def bare(job, db: Database) -> None: ...  # type: ignore[no-untyped-def]

    assert requests_of(handle, args=Args) == requests_of(bare, args=Args) == {"db": Database}
    assert requests_of(functools.partial(handle, db=Database()), args=Args) == {}
    assert requests_of(functools.partial(handle), args=Args) == {"db": Database}


def test_methods_and_objects_are_handlers() -> None:
    class Handlers:
        async def handle(self, job: awa.Job[Args], db: Database) -> None: ...

        async def __call__(self, job: awa.Job[Args], token: Token) -> None: ...

    def decorated(job: awa.Job[Args], db: Database) -> None: ...

    @functools.wraps(decorated)
    def wrapper(*args: Any, **options: Any) -> None: ...

    app = awa.App()
    app.task(kind="object")(Handlers())
    assert registry_of(app).tasks["object"].requests == {"token": Token}
    assert requests_of(Handlers().handle) == {"db": Database}
    assert requests_of(wrapper) == {"db": Database}


async def no_job() -> None: ...
async def only_by_name(*, job: awa.Job[Args]) -> None: ...
async def job_last(db: Database, job: awa.Job[Args]) -> None: ...
async def two_jobs(job: awa.Job[Args], other: awa.Job[Args]) -> None: ...
async def bare(job: awa.Job[Args], db) -> None: ...  # type: ignore[no-untyped-def]
async def not_imported(job: awa.Job[Args], db: NotImported) -> None: ...
async def job_not_imported(job: awa.Job[NotImported]) -> None: ...
async def by_position(job: awa.Job[Args], db: Database, /) -> None: ...
async def anything(job: awa.Job[Args], db: Any) -> None: ...
async def unhashable(job: awa.Job[Args], db: Annotated[str, []]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (no_job, r"must take a job as its first parameter, as in async def no_job\(job: "),
        (only_by_name, "must take a job as its first parameter"),
        (job_last, r"annotate the first parameter of handler job_last .*\(db: awa\.Job"),
        (two_jobs, "'other' of handler two_jobs: a handler takes its job as the first"),
        (bare, "annotate parameter 'db' of handler bare with the type of a resource"),
        (not_imported, r"'db' of handler not_imported .*\(name 'NotImported' .* only for type"),
        (job_not_imported, r"as in @app\.task\(args=MyArgs\)"),
        (by_position, "'db' of handler by_position is given by name; remove the '/'"),
        (anything, "'db' of handler anything requests Any, which could be anything"),
        (unhashable, "by which nothing can be looked up"),
    ],
)
def test_a_handler_that_does_not_say_what_it_takes_is_refused(
    handler: Any, problem: str
) -> None:
    with pytest.raises(awa.ConfigurationError, match=problem):
        awa.App().task()(handler)


# ---- resources


async def generator(token: Token, /, *, limit: int = 3) -> AsyncIterator[Database]:
    yield Database()


async def iterating(token: Token, limit: int = 3) -> AsyncIterator[Database]:
    yield Database()


async def generating() -> AsyncGenerator[Database, None]:
    yield Database()


@asynccontextmanager
async def decorated() -> AsyncIterator[Database]:
    yield Database()


def returning() -> AbstractAsyncContextManager[Database]:
    return decorated()


def client() -> Client:
    return Client()


def nursery() -> AbstractAsyncContextManager[trio.Nursery]:
    return trio.open_nursery()


@pytest.mark.parametrize(
    ("function", "key"),
    [
        (iterating, Database),
        (generating, Database),
        (decorated, Database),
        (returning, Database),
        (client, Client),
        (nursery, trio.Nursery),
    ],
)
async def test_what_a_function_returns_says_what_it_provides(function: Any, key: type) -> None:
    resource = resource_of(function)
    assert (resource.key, resource.scope) == (key, "worker")
    async with resource.open(**dict.fromkeys(resource.requests, Token("t"))) as value:
        assert isinstance(value, key)


def test_it_may_be_said_otherwise() -> None:
    async def untyped():  # type: ignore[no-untyped-def]
        yield 1

    assert resource_of(untyped, provides=Token).key is Token
    assert resource_of(iterating, provides=Token).requests == {"token": Token}
    assert resource_of(iterating, scope="attempt").scope == "attempt"


def test_the_decorator_needs_no_parentheses() -> None:
    class Local: ...

    app = awa.App()

    @app.resource
    async def local(db: Database) -> AsyncIterator[Local]:
        yield Local()

    assert registry_of(app)._resources[Local].requests == {"db": Database}


@pytest.mark.parametrize(
    ("annotation", "args"), [(awa.Job, None), (awa.Job[Any], None), (awa.Job[Args], Args)]
)
def test_an_attempts_resource_may_take_the_job(annotation: Any, args: Any) -> None:
    async def local(db: Database, it: Any) -> AsyncIterator[Client]:
        yield Client()

    local.__annotations__["it"] = annotation
    resource = resource_of(local, scope="attempt")
    assert (resource.job_parameter, resource.job_args) == ("it", args)
    assert resource.requests == {"db": Database}


async def coroutine() -> Database:
    return Database()


def sync_generator() -> Iterator[Database]:
    yield Database()


async def no_annotation():  # type: ignore[no-untyped-def]
    yield Database()


async def wrong_annotation() -> Database:  # type: ignore[misc]
    yield Database()


async def unknown_annotation() -> AsyncIterator[NotImported]:
    yield Database()  # type: ignore[misc]


def no_manager() -> Database:
    return Database()


def of_anything() -> AbstractAsyncContextManager:  # type: ignore[type-arg]
    return decorated()


async def of_any() -> AsyncIterator[Any]:
    yield 1


async def with_job(job: awa.Job[Args]) -> AsyncIterator[Database]:
    yield Database()


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (coroutine, "must be an async generator function, which yields once, or an ordinary"),
        (sync_generator, "must be an async generator function"),
        (
            no_annotation,
            r"as in -> AsyncIterator\[Database\]; or give the type, as in @app.res",
        ),
        (wrong_annotation, r"as in -> AsyncIterator\[Database\]"),
        (unknown_annotation, "name 'NotImported' is not defined"),
        (no_manager, r"as in -> AbstractAsyncContextManager\[Database\]"),
        (of_anything, r"as in -> AbstractAsyncContextManager\[Database\]"),
        (of_any, "resource of_any provides Any, which could be anything"),
        (generator, "'token' of resource generator is given by name"),
        (with_job, "lives as long as the worker and has no job; give it scope='attempt'"),
    ],
)
def test_a_function_that_does_not_say_what_it_provides_is_refused(
    function: Any, problem: str
) -> None:
    with pytest.raises(awa.ConfigurationError, match=problem):
        awa.App().resource(function)


def test_a_scope_is_one_of_two() -> None:
    with pytest.raises(awa.ConfigurationError, match="give 'worker' or 'attempt'"):
        awa.App().resource(scope="job")(generating)  # type: ignore[call-overload]


def test_a_checker_knows_the_decorated_function() -> None:
    """Checked by mypy, when it reads this."""
    app = awa.App()

    @app.resource
    async def one() -> AsyncIterator[Database]:
        yield Database()

    @app.resource(scope="attempt")
    async def two(job: awa.Job[Any]) -> AsyncIterator[Client]:
        yield Client()

    first: Callable[[], AsyncIterator[Database]] = one
    second: Callable[[awa.Job[Any]], AsyncIterator[Client]] = two
    assert (first, second) == (one, two)
