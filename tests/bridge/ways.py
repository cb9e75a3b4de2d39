"""Transactions of each library, as a program of its users opens them: one value for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import attrs
import psycopg
import sqlalchemy as sa
import sqlalchemy.ext.asyncio as sa_async
from django import setup
from django.conf import settings
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session, scoped_session, sessionmaker

if not settings.configured:
    settings.configure(USE_TZ=True)
    setup()


def url(dsn: str, driver: str) -> sa.URL:
    """SQLAlchemy's address of a database."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    return sa.URL.create(
        f"postgresql+{driver}",
        username=parts.get("user"),
        password=parts.get("password"),
        database=parts["dbname"],
        query={"host": parts["host"], "port": parts.get("port", "5432")},
    )


def for_asyncpg(dsn: str) -> dict[str, Any]:
    """What asyncpg's connect takes for it; with nothing prepared, which a pooler asks for."""
    parts = conninfo_to_dict(dsn)
    return {
        "host": parts["host"],
        "port": int(parts.get("port") or 5432),
        "user": parts.get("user"),
        "password": parts.get("password"),
        "database": parts["dbname"],
        "statement_cache_size": 0,
    }


@contextmanager
def engine(dsn: str, driver: str = "psycopg", **options: Any) -> Iterator[sa.Engine]:
    made = sa.create_engine(url(dsn, driver), poolclass=sa.NullPool, **options)
    try:
        yield made
    finally:
        made.dispose()


@asynccontextmanager
async def async_engine(
    dsn: str, driver: str, **options: Any
) -> AsyncIterator[sa_async.AsyncEngine]:
    made = sa_async.create_async_engine(url(dsn, driver), poolclass=sa.NullPool, **options)
    try:
        yield made
    finally:
        await made.dispose()


@contextmanager
def django(dsn: str) -> Iterator[Any]:
    """Django's connection of a database that it has not known before."""
    parts = conninfo_to_dict(dsn)
    connections.settings["awa"] = connections.configure_settings(
        {
            "default": {"ENGINE": "django.db.backends.dummy"},
            "awa": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"],
                "HOST": parts["host"],
                "PORT": parts.get("port", ""),
                "USER": parts.get("user", ""),
                "PASSWORD": parts.get("password", ""),
            },
        }
    )["awa"]
    try:
        yield connections["awa"]
    finally:
        connections["awa"].close()
        del connections["awa"]
        del connections.settings["awa"]


# ---- one transaction each; what is raised inside rolls it back


@contextmanager
def _psycopg(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as connection:
        yield connection


@contextmanager
def _session(dsn: str) -> Iterator[Any]:
    with engine(dsn) as made, Session(made) as session, session.begin():
        yield session


@contextmanager
def _scoped(dsn: str) -> Iterator[Any]:
    with engine(dsn) as made:
        session = scoped_session(sessionmaker(made))
        try:
            yield session
        except BaseException:
            session.rollback()
            raise
        else:
            session.commit()
        finally:
            session.remove()


@contextmanager
def _connection(dsn: str) -> Iterator[Any]:
    with engine(dsn) as made, made.begin() as connection:
        yield connection


@contextmanager
def _django(dsn: str) -> Iterator[Any]:
    with django(dsn) as connection, transaction.atomic(using="awa"):
        yield connection


@asynccontextmanager
async def _psycopg_async(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        yield connection


@asynccontextmanager
async def _async_session(dsn: str, driver: str) -> AsyncIterator[Any]:
    async with (
        async_engine(dsn, driver) as made,
        sa_async.AsyncSession(made) as session,
        session.begin(),
    ):
        yield session


@asynccontextmanager
async def _async_scoped(dsn: str) -> AsyncIterator[Any]:
    async with async_engine(dsn, "asyncpg") as made:
        session = sa_async.async_scoped_session(
            sa_async.async_sessionmaker(made), asyncio.current_task
        )
        try:
            yield session
        except BaseException:
            await session.rollback()
            raise
        else:
            await session.commit()
        finally:
            await session.remove()


@asynccontextmanager
async def _async_connection(dsn: str, driver: str) -> AsyncIterator[Any]:
    async with async_engine(dsn, driver) as made, made.begin() as connection:
        yield connection


@asynccontextmanager
async def _asyncpg(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(**for_asyncpg(dsn))
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg_pool(dsn: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(**for_asyncpg(dsn), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@attrs.frozen
class Way:
    """How a transaction is opened; one of two."""

    open: Callable[[str], AbstractContextManager[Any]] | None = None
    open_async: Callable[[str], Any] | None = None


WAYS = {
    "psycopg": Way(_psycopg),
    "psycopg async": Way(None, _psycopg_async),
    "Session": Way(_session),
    "scoped_session": Way(_scoped),
    "Connection": Way(_connection),
    "AsyncSession on asyncpg": Way(None, lambda dsn: _async_session(dsn, "asyncpg")),
    "AsyncSession on psycopg": Way(None, lambda dsn: _async_session(dsn, "psycopg")),
    "async_scoped_session": Way(None, _async_scoped),
    "AsyncConnection on asyncpg": Way(None, lambda dsn: _async_connection(dsn, "asyncpg")),
    "AsyncConnection on psycopg": Way(None, lambda dsn: _async_connection(dsn, "psycopg")),
    "Django": Way(_django),
    "asyncpg": Way(None, _asyncpg),
    "asyncpg pool": Way(None, _asyncpg_pool),
}


def in_transaction(way: Way, dsn: str, body: Callable[[Any], list[Any]]) -> list[Any]:
    """Run a body in a transaction; calls that are to be awaited are, where it is asynchronous.

    Args:
      way: how it is opened.
      dsn: the database.
      body: given the connection; returns what its calls returned, coroutines or not, each a
          function so that one runs after another.
    """
    if way.open is not None:
        with way.open(dsn) as connection:
            return [call() for call in body(connection)]

    async def main() -> list[Any]:
        assert way.open_async is not None
        async with way.open_async(dsn) as connection:
            return [await call() for call in body(connection)]

    return asyncio.run(main())
