"""Enqueue in a transaction that the caller owns, on connections of other libraries.

A library is looked for among the modules that are imported: nobody can hold a connection of
one that is not. So nothing here imports any of them.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, Unpack, overload

import psycopg

from .._core.errors import ConfigurationError
from .._core.job import PreparedInsert
from .._core.jsontext import name_of
from .._core.request import EnqueueOptions
from .._seam.values import Enqueued
from .._store.texts import Statement, enqueued_row, insertion_in_texts
from .app import App
from .joining import check_app, enqueue_on, in_a_sentence, prepare, prepare_many

# What type checkers know each by. The classes themselves would be anything at all to them wherever a
# library is not installed, or has no types.


class _AsyncSqlAlchemy(Protocol):
    """A session or connection of SQLAlchemy's that is awaited."""

    def aclose(self) -> Coroutine[Any, Any, None]: ...


class _Asyncpg(Protocol):
    """A connection of asyncpg's."""

    def is_in_transaction(self) -> bool: ...


class _AsyncpgPooled(Protocol):
    """One that a pool has lent, which is a proxy without methods of its own."""

    _holder: Any


class _SqlAlchemy(Protocol):
    """A session or connection of SQLAlchemy's."""

    def begin_nested(self) -> Any: ...


class _Django(Protocol):
    """Django's connection."""

    vendor: Any
    in_atomic_block: Any


class _DjangoProxy(Protocol):
    """``django.db.connection``, which has what the thread's connection has."""

    def __getattr__(self, item: Any, /) -> Any: ...


SyncConnection: TypeAlias = psycopg.Connection[Any] | _SqlAlchemy | _Django | _DjangoProxy
AwaitedConnection: TypeAlias = (
    psycopg.AsyncConnection[Any] | _AsyncSqlAlchemy | _Asyncpg | _AsyncpgPooled
)

T = TypeVar("T")

_Rows: TypeAlias = Sequence[Any]
_Run: TypeAlias = Callable[[Statement], _Rows]
_RunAsync: TypeAlias = Callable[[Statement], Awaitable[_Rows]]


@overload
def enqueue(
    connection: AwaitedConnection,
    args: object,
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> Coroutine[Any, Any, Enqueued]: ...
@overload
def enqueue(
    connection: SyncConnection,
    args: object,
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> Enqueued: ...
def enqueue(
    connection: Any,
    args: object,
    /,
    *,
    app: App | None = None,
    **options: Unpack[EnqueueOptions],
) -> Enqueued | Coroutine[Any, Any, Enqueued]:
    """Enqueue a job in the caller's own transaction: it exists if and when that commits.

    On an asynchronous connection or session the call is awaited; on a synchronous one it is
    not. Nothing is committed, rolled back or opened here, but for a SQLAlchemy session or
    connection that has begun no transaction yet, which begins one as at any statement.

    Args:
      connection: to the database with the ``awa`` schema, in a transaction: a SQLAlchemy
          ``Session``, ``Connection``, ``AsyncSession`` or ``AsyncConnection``, or a scoped
          session; Django's ``connection``, or one of ``connections``; an asyncpg connection;
          or a psycopg one.
      args: the job's arguments, or an `EnqueueRequest`.
      app: as for `awa_trio.enqueue`.
      options: as for `awa_trio.enqueue`.

    Raises:
      InvalidRequest: the request breaks a rule; nothing was sent, the transaction goes on.
      UnknownKind: the app does not know the kind; likewise.
      TypeError: the connection is none of these, or the app is none.
      ConfigurationError: it leads to another kind of database; or no transaction is open on
          it, so that the job would exist at once, whatever becomes of the caller's rows.
      QueueDraining: somebody drains the queue; the transaction has failed.
      SchemaMissing: the database has no ``awa`` schema; likewise.
      SchemaError: it has one that this release cannot enqueue in; likewise.
      Exception: the library's own, where the database refused it, and the transaction with it.
    """
    check_app(app)
    return _enqueue(connection, [prepare(app, args, options)], _first)


@overload
def enqueue_many(
    connection: AwaitedConnection,
    jobs: Iterable[object],
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> Coroutine[Any, Any, list[Enqueued]]: ...
@overload
def enqueue_many(
    connection: SyncConnection,
    jobs: Iterable[object],
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> list[Enqueued]: ...
def enqueue_many(
    connection: Any,
    jobs: Iterable[object],
    /,
    *,
    app: App | None = None,
    **options: Unpack[EnqueueOptions],
) -> list[Enqueued] | Coroutine[Any, Any, list[Enqueued]]:
    """Enqueue many jobs in the caller's own transaction, by one statement.

    Args:
      connection: as for `enqueue`.
      jobs: arguments or `EnqueueRequest`\\ s, each as for `enqueue`.
      app: as for `enqueue`.
      options: as for `enqueue`, for every job that is not an `EnqueueRequest`.

    Returns:
      What became of each, in order. Of several with one unique key the first is inserted,
      and the others name it.

    Raises:
      InvalidRequest: as `enqueue`.
      UnknownKind: as `enqueue`.
      TypeError: as `enqueue`; or the jobs are no list of them.
      ConfigurationError: as `enqueue`.
      QueueDraining: as `enqueue`.
      SchemaError: as `enqueue`.
      Exception: as `enqueue`.
    """
    check_app(app)
    return _enqueue(connection, prepare_many(app, jobs, options), _all)


def _first(answers: list[Enqueued]) -> Enqueued:
    return answers[0]


def _all(answers: list[Enqueued]) -> list[Enqueued]:
    return answers


def _enqueue(
    connection: Any, jobs: list[PreparedInsert], of: Callable[[list[Enqueued]], T]
) -> T | Coroutine[Any, Any, T]:
    """Insert jobs on whatever connection it is, and return what is wanted ``of`` the answers."""
    if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return enqueue_on(connection, jobs, of)
    run = _django(connection) or _sqlalchemy(connection)
    if run is not None:
        return of(_answers(_run(run, jobs)))
    run_async = _asyncpg(connection) or _sqlalchemy_async(connection)
    if run_async is None:
        raise TypeError(
            "connection: give a SQLAlchemy session or connection, Django's connection, or an"
            f" asyncpg or psycopg connection, not {name_of(connection)}{_hint(connection)}"
        )
    return _run_async(run_async, jobs, of)


def _run(run: _Run, jobs: list[PreparedInsert]) -> _Rows:
    with in_a_sentence():
        return run(insertion_in_texts(jobs)) if jobs else ()


async def _run_async(
    run: _RunAsync, jobs: list[PreparedInsert], of: Callable[[list[Enqueued]], T]
) -> T:
    with in_a_sentence():
        return of(_answers(await run(insertion_in_texts(jobs)) if jobs else ()))


def _answers(rows: _Rows) -> list[Enqueued]:
    return [Enqueued(*enqueued_row(row)) for row in rows]


# ---- what each library calls a place for a parameter, a transaction, and running a statement


def _is_a(connection: object, module: str, *names: str) -> bool:
    """Whether it is of one of these classes of a module, if anybody has imported that."""
    found = sys.modules.get(module)
    return found is not None and isinstance(
        connection, tuple(getattr(found, name) for name in names)
    )


def _django(connection: Any) -> _Run | None:
    if not (
        _is_a(connection, "django.db.backends.base.base", "BaseDatabaseWrapper")
        or _is_a(connection, "django.utils.connection", "ConnectionProxy")
    ):
        return None
    _require_postgresql(connection.vendor)
    if connection.get_autocommit():
        raise _no_transaction("wrap it in transaction.atomic()")

    def run(statement: Statement) -> _Rows:
        with connection.cursor() as cursor:
            cursor.execute(statement.sql(lambda n: "%s"), statement.parameters)
            rows: _Rows = cursor.fetchall()
        return rows

    return run


def _sqlalchemy(connection: Any) -> _Run | None:
    if _is_a(connection, "sqlalchemy.orm", "scoped_session"):
        connection = connection()
    if _is_a(connection, "sqlalchemy.orm", "Session"):
        return lambda statement: _on_sqlalchemy(connection.connection(), statement)
    if _is_a(connection, "sqlalchemy.engine", "Connection"):
        return lambda statement: _on_sqlalchemy(connection, statement)
    return None


def _sqlalchemy_async(connection: Any) -> _RunAsync | None:
    module = "sqlalchemy.ext.asyncio"
    if _is_a(connection, module, "async_scoped_session"):
        connection = connection()
    if not _is_a(connection, module, "AsyncSession", "AsyncConnection"):
        return None

    async def run(statement: Statement) -> _Rows:
        def inside(connection: Any) -> _Rows:
            run = _sqlalchemy(connection)
            assert run is not None
            return run(statement)

        rows: _Rows = await connection.run_sync(inside)
        return rows

    return run


def _on_sqlalchemy(connection: Any, statement: Statement) -> _Rows:
    _require_postgresql(connection.dialect.name)
    if getattr(connection.connection.dbapi_connection, "autocommit", False) is True:
        raise _no_transaction("its isolation level is AUTOCOMMIT, use one with transactions")
    parameters = {f"p{n}": text for n, text in enumerate(statement.parameters, 1)}
    text = sys.modules["sqlalchemy"].text(statement.sql(lambda n: f":p{n}"))
    rows: _Rows = connection.execute(text, parameters).all()
    return rows


def _asyncpg(connection: Any) -> _RunAsync | None:
    if not (
        _is_a(connection, "asyncpg", "Connection")
        or _is_a(connection, "asyncpg.pool", "PoolConnectionProxy")
    ):
        return None

    async def run(statement: Statement) -> _Rows:
        if not connection.is_in_transaction():
            raise _no_transaction("use it inside async with connection.transaction()")
        rows: _Rows = await connection.fetch(
            statement.sql(lambda n: f"${n}"), *statement.parameters
        )
        return rows

    return run


def _require_postgresql(vendor: str) -> None:
    if vendor != "postgresql":
        raise ConfigurationError(
            f"this connection leads to {vendor}, and jobs are kept in PostgreSQL; give the"
            " connection of the database with the awa schema"
        )


def _no_transaction(remedy: str) -> ConfigurationError:
    return ConfigurationError(
        f"no transaction is open on this connection, so the job would exist at once: {remedy};"
        " or enqueue with a client, which has transactions of its own"
    )


def _hint(connection: object) -> str:
    """What to do with things that lead to a connection."""
    if _is_a(connection, "asyncpg.pool", "Pool"):
        return "; take a connection from it, with pool.acquire()"
    if _is_a(connection, "sqlalchemy.engine", "Engine") or _is_a(
        connection, "sqlalchemy.ext.asyncio", "AsyncEngine"
    ):
        return "; take a connection from it, with engine.begin()"
    if _is_a(connection, "sqlalchemy.orm", "sessionmaker") or _is_a(
        connection, "sqlalchemy.ext.asyncio", "async_sessionmaker"
    ):
        return "; open a session with it"
    if _is_a(connection, "django.db.utils", "ConnectionHandler"):
        return "; give one of them, as connections['default']"
    return ""
