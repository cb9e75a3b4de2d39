"""From a DSN to a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import psycopg

from .._core.arguments import check_type, check_whole
from .._core.errors import ConfigurationError, WrongEventLoop
from .._core.observer import Observer
from .._pg.pool import Pool
from .._pg.pooler import pooled
from .._runtime.observing import listed
from .._seam.protocol import WorkerStore
from .._store.sql.joining import database_identity
from .._store.sql.store import SqlStore, SqlWorkerStore
from .app import App
from .calls import in_time
from .client import Client
from .connections import Opener, current_library
from .schema import check_schema

#: Claims, two finalizers, one for settlements that wait, upkeep, reconciliation.
WORKER_CONNECTIONS = 6

#: As many as a PostgreSQL can have at all (MAX_BACKENDS).
MOST_CONNECTIONS = 262_143


class PgBackend:
    """A client's ground: a pool of connections to one database.

    Args:
      opener: opens more of the pool's.
      hearing: opens one that notifications come by; None if there is no such way.
      pool: its connections.
    """

    def __init__(self, opener: Opener, hearing: Opener | None, pool: Pool) -> None:
        self._opener = opener
        self._hearing = hearing
        self._pool = pool
        self.store = SqlStore(pool)

    @asynccontextmanager
    async def worker_store(self) -> AsyncIterator[WorkerStore]:
        """Open a store with a pool of its own: handlers that hold every connection of the
        client's cannot keep a worker from settling their jobs."""
        async with Pool(
            self._opener, size=WORKER_CONNECTIONS, name="the worker's pool"
        ) as pool:
            if self._hearing is not None and self._hearing is not self._opener:
                await _check_way(self._hearing, pool)
            yield SqlWorkerStore(pool, self._opener, self._hearing)

    def connection(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Borrow a connection."""
        return self._pool.connection()


async def _check_way(hearing: Opener, pool: Pool) -> None:
    """Make sure that notifications come from the database where the jobs are.

    Raises:
      ConfigurationError: they would come from another, and none that matters.
      DatabaseUnavailable: that cannot be reached.
    """
    try:
        with in_time("connecting"):
            async with await hearing() as straight, pool.connection() as own:
                found = {await database_identity(each) for each in (straight, own)}
    except psycopg.OperationalError as error:
        raise hearing.unavailable(error) from error
    except psycopg.ProgrammingError:
        # It has no such function: no schema of ours at all.
        found = set()
    if len(found) != 1:
        raise ConfigurationError(
            "listen_dsn leads to another database than the one where the jobs are, so nothing"
            " would be heard of them; give another way to the same database, or leave it out"
        )


async def _open_at(home: str, opener: Opener) -> psycopg.AsyncConnection[Any]:
    """Open a connection in the event loop that the client was connected in.

    Raises:
      WrongEventLoop: another runs here, and what it opened would be lent to tasks of that one.
    """
    here = current_library()
    if here != home:
        raise WrongEventLoop(
            f"this client was connected on {home}, and {here} is running here; connect another,"
            " or call it by way of awa_trio.aio"
        )
    return await opener()


@asynccontextmanager
async def connect(
    dsn: str = "",
    /,
    *,
    app: App | None = None,
    pool_size: int = 10,
    prepare: bool | None = None,
    listen_dsn: str = "",
    observers: Iterable[Observer] = (),
) -> AsyncIterator[Client]:
    """Connect to a database, as an async context manager, on Trio or on asyncio.

    Args:
      dsn: a libpq connection string or URI; default, that of the environment variable
          AWA_DSN, else libpq's own variables.
      app: knows the kinds of args classes and the queues of their tasks; with it, kinds
          that it does not know are refused.
      pool_size: the most connections of the client's; a worker has its own.
      prepare: prepare statements; default, unless a pooler is in between. True also through
          one: for those in session mode, and those that keep statements in transaction mode.
      listen_dsn: where workers of this client hear of new jobs, if ``dsn`` is that of a
          pooler: the same database, by a way that leads to the server itself. Without it
          they poll.
      observers: told what the client does, and its workers.

    Raises:
      ConfigurationError: a DSN cannot be parsed, the pool is too small or large, or
          statements are to be prepared and a pooler does not keep them.
      TypeError: a value is of another type.
      DatabaseUnavailable: the server cannot be reached, or refuses.
      SchemaMissing: the database has no ``awa`` schema.
      SchemaOlder: it has one that is older than this release needs.
      SchemaNewer: it has one that this release is too old for.
      SchemaUnversioned: it has one that does not say its version.
      WrongEventLoop: neither Trio nor asyncio runs.
    """
    home = current_library()
    if app is not None:
        check_type("app", app, App, "an")
    check_whole("pool_size", pool_size, most=MOST_CONNECTIONS, error=ConfigurationError)
    observers = listed(observers)
    if prepare is not None:
        check_type("prepare", prepare, bool)
    opener = Opener.of(dsn, prepare=prepare)
    check_type("listen_dsn", listen_dsn, str)
    hearing = Opener.of(listen_dsn, prepare=False) if listen_dsn else None
    at_home = partial(_open_at, home, opener)
    async with Pool(at_home, size=pool_size, name="the client's pool") as pool:
        try:
            async with pool.connection() as connection:
                with in_time("connecting"):
                    await check_schema(connection)
                    if hearing is None and not await pooled(connection):
                        hearing = opener
        except (
            psycopg.errors.DuplicatePreparedStatement,
            psycopg.errors.InvalidSqlStatementName,
        ) as error:
            raise ConfigurationError(
                "connecting: a pooler in transaction mode is in between, which does not keep"
                " prepared statements; leave out prepare=True, or --prepare"
            ) from error
        except psycopg.OperationalError as error:
            raise opener.unavailable(error) from error
        yield Client(PgBackend(opener, hearing, pool), app, observers)
