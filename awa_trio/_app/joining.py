"""Enqueue in a transaction that the caller owns, on any psycopg connection."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, Unpack, cast, overload

import psycopg

from .._core.arguments import check_type
from .._core.codec import Codec
from .._core.errors import InvalidRequest, QueueDraining, SchemaError, SchemaMissing
from .._core.job import PreparedInsert
from .._core.jsontext import name_of
from .._core.registry import Registry
from .._core.request import EnqueueOptions, EnqueueRequest
from .._core.unique import UniqueOpts
from .._seam.values import Enqueued
from .._store.cursors import AsyncStoreCursor, StoreCursor
from .._store.failures import DRAINING
from .._store.sql.producing import enqueued, insertion
from .app import App, registry_of

_Connection: TypeAlias = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

T = TypeVar("T")

#: Prepares requests of programs that have no app: kinds after their classes.
_NO_APP = Registry()


@overload
def enqueue(
    connection: psycopg.Connection[Any],
    args: object,
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> Enqueued: ...


@overload
def enqueue(
    connection: psycopg.AsyncConnection[Any],
    args: object,
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> Coroutine[Any, Any, Enqueued]: ...


def enqueue(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    args: object,
    /,
    *,
    app: App | None = None,
    **options: Unpack[EnqueueOptions],
) -> Enqueued | Coroutine[Any, Any, Enqueued]:
    """Enqueue a job in the caller's own transaction: it exists if and when that commits.

    On an asynchronous connection, of asyncio or Trio, the call is awaited; on a
    synchronous one it is not.

    Args:
      connection: any psycopg connection to the database with the ``awa`` schema.
      args: the job's arguments, or an `EnqueueRequest`.
      app: knows the kind of an args class, and the queue of its task; kinds it does not
          know are refused. Default: the kind is named after the class, the queue is
          ``default``.
      options: ``kind, queue, priority, max_attempts, tags, metadata, run_at, unique_opts,
          ordering_key, limit_key, deadline``. A queue's ``max_depth`` is not looked at.

    Raises:
      InvalidRequest: the request breaks a rule; nothing was sent, the transaction goes on.
      UnknownKind: the app does not know the kind; likewise.
      QueueDraining: somebody drains the queue; the transaction is lost.
      TypeError: the connection is none, or the app is none.
      SchemaMissing: the database has no ``awa`` schema; the transaction has failed.
      SchemaError: it has one that this release cannot enqueue in; likewise.
      psycopg.Error: the database refused it, and the transaction with it.
    """
    check_app(app)
    return enqueue_on(connection, [prepare(app, args, options)], lambda answers: answers[0])


@overload
def enqueue_many(
    connection: psycopg.Connection[Any],
    jobs: Iterable[object],
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> list[Enqueued]: ...


@overload
def enqueue_many(
    connection: psycopg.AsyncConnection[Any],
    jobs: Iterable[object],
    /,
    *,
    app: App | None = ...,
    **options: Unpack[EnqueueOptions],
) -> Coroutine[Any, Any, list[Enqueued]]: ...


def enqueue_many(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
    jobs: Iterable[object],
    /,
    *,
    app: App | None = None,
    **options: Unpack[EnqueueOptions],
) -> list[Enqueued] | Coroutine[Any, Any, list[Enqueued]]:
    """Enqueue many jobs in the caller's own transaction, by one statement.

    On an asynchronous connection, of asyncio or Trio, the call is awaited; on a
    synchronous one it is not.

    Args:
      connection: as for `enqueue`.
      jobs: arguments or `EnqueueRequest`\\ s, each as for `enqueue`.
      app: as for `enqueue`.
      options: as for `enqueue`, for every job that is not an `EnqueueRequest`.

    Returns:
      What became of each, in order. Of several with one unique key the first is inserted,
      and the others name it.

    Raises:
      InvalidRequest: one of the requests breaks a rule; nothing was sent.
      UnknownKind: as `enqueue`.
      TypeError: as `enqueue`; or the jobs are no list of them.
      QueueDraining: as `enqueue`.
      SchemaError: as `enqueue`.
      psycopg.Error: as `enqueue`.
    """
    check_app(app)
    return enqueue_on(connection, prepare_many(app, jobs, options), lambda answers: answers)


def check_app(app: object) -> None:
    """Refuse what is no app, nor None.

    Raises:
      TypeError: as it says.
    """
    if app is not None:
        check_type("app", app, App, "an")


def enqueue_on(
    connection: _Connection, jobs: list[PreparedInsert], of: Callable[[list[Enqueued]], T]
) -> T | Coroutine[Any, Any, T]:
    """Insert jobs on a connection of either kind, and return what is wanted ``of`` the answers.

    Raises:
      TypeError: the connection is none.
    """
    if isinstance(connection, psycopg.AsyncConnection):
        return _enqueue_async(connection, jobs, of)
    if not isinstance(connection, psycopg.Connection):
        raise TypeError(f"connection: give a psycopg connection, not {name_of(connection)}")
    if not jobs:
        return of([])
    cursor = StoreCursor(connection)
    with in_a_sentence():
        cursor.execute(*insertion(jobs, True), binary=True)
    return of(enqueued(cursor.fetchall()))


async def _enqueue_async(
    connection: psycopg.AsyncConnection[Any],
    jobs: list[PreparedInsert],
    of: Callable[[list[Enqueued]], T],
) -> T:
    return of(await enqueue_many_prepared(connection, jobs) if jobs else [])


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Say what a connection of the caller's cannot say, or a database cannot hold.

    Raises:
      InvalidRequest: a name has a character that the connection's encoding lacks; nothing
          was sent.
      SchemaMissing: the database has no ``awa`` schema.
      SchemaError: it has one that this release cannot enqueue in.
      QueueDraining: somebody drains the queue.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"this connection's client_encoding, {error.encoding}, lacks a character"
            " of the job's names or tags; set it to UTF8"
        ) from error
    except Exception as error:
        state, message, detail = _of_driver(error)
        if state == _INVALID_SCHEMA_NAME:
            raise SchemaMissing from error
        if state == _UNDEFINED_FUNCTION and "awa.enqueue" in message:
            raise SchemaError(
                "the database's awa schema has no awa.enqueue as this release calls it, so it is"
                " another release's or another program's: see awa-trio migrate --status, and"
                " upgrade it with: awa-trio migrate --dsn ..."
            ) from error
        if state == DRAINING:
            raise QueueDraining(detail) from error
        raise


_INVALID_SCHEMA_NAME = psycopg.errors.InvalidSchemaName.sqlstate
_UNDEFINED_FUNCTION = psycopg.errors.UndefinedFunction.sqlstate


def _of_driver(error: BaseException | None) -> tuple[str | None, str, str]:
    """SQLSTATE, message and detail of a driver's error, also inside that of a library around it."""
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state:
            said = getattr(error, "diag", None)
            message = getattr(said, "message_primary", None) or str(error)
            detail = getattr(said, "message_detail", None) or getattr(error, "detail", None)
            return str(state), message, str(detail or "")
        error = getattr(error, "orig", None) or error.__cause__
    return None, "", ""


def prepare(app: App | None, args: object, options: EnqueueOptions) -> PreparedInsert:
    """Validate and serialize a request as an app, or the lack of one, has it."""
    registry = _NO_APP if app is None else registry_of(app)
    return registry.prepare(args, options, known_only=app is not None)


def prepare_many(
    app: App | None, jobs: Iterable[object], options: EnqueueOptions
) -> list[PreparedInsert]:
    r"""Do the same with many; `EnqueueRequest`\ s among them bring their own options."""
    given: object = jobs
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise TypeError(f"jobs: give the arguments of several, in a list, not {name_of(jobs)}")
    registry = _NO_APP if app is None else registry_of(app)
    return registry.prepare_many(jobs, options, known_only=app is not None)


def codec_of(app: App | None) -> Codec:
    """Return what encodes an app's arguments."""
    return (_NO_APP if app is None else registry_of(app)).codec


def unique_key_of(
    app: App | None,
    key: object,
    *,
    kind: str | None,
    queue: str | None,
    unique_opts: UniqueOpts | Mapping[str, Any] | None,
) -> bytes:
    """Return a unique key, given as such or as what a job with it is enqueued with.

    Raises:
      InvalidRequest: it has not 16 bytes, or the request breaks a rule.
      UnknownKind: the app does not know the kind.
    """
    if isinstance(key, bytes | bytearray | memoryview):
        raw = bytes(key)
        if len(raw) != 16:
            raise InvalidRequest(f"a unique key has 16 bytes, not {len(raw)}")
        if (kind, queue, unique_opts) != (None, None, None):
            raise InvalidRequest("a key of bytes says everything: leave out the options")
        return raw
    options: EnqueueOptions = {"kind": kind, "queue": queue, "unique_opts": unique_opts}
    given = cast("EnqueueOptions", {k: v for k, v in options.items() if v is not None})
    if not isinstance(key, EnqueueRequest):
        given.setdefault("unique_opts", {})
    found = prepare(app, key, given).unique_key
    if found is None:
        raise InvalidRequest(
            "the EnqueueRequest has no unique options, and so no key: set them with .unique(...)"
        )
    return found


async def enqueue_many_prepared(
    connection: psycopg.AsyncConnection[Any], jobs: list[PreparedInsert], *, notify: bool = True
) -> list[Enqueued]:
    """Insert prepared jobs in the transaction that the connection is in."""
    cursor = AsyncStoreCursor(connection)
    with in_a_sentence():
        await cursor.execute(*insertion(jobs, notify), binary=True)
    return enqueued(await cursor.fetchall())
