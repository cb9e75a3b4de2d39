"""Connections, and ways to disturb them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

from awa_trio._pg.connection import TrioConnection
from awa_trio.testing.fixtures import fresh_database

from .proxy import Proxy

Connect: TypeAlias = Callable[..., Awaitable[TrioConnection[Any]]]


@pytest.fixture
def way(awa_server: str) -> Callable[[str], str]:
    """Returns the DSN of a database by its name: never through a pooler.

    What the driver promises, it promises of its own session, its process and its statements.
    """
    return lambda name: make_conninfo(awa_server, dbname=name)


@pytest.fixture(scope="session")
def shared_database(awa_server: str) -> Iterator[str]:
    """A database for all tests of this process that are content with a schema of their own."""
    with fresh_database(awa_server) as name:
        yield make_conninfo(awa_server, dbname=name)


@pytest.fixture
def db(shared_database: str) -> Iterator[str]:
    """The DSN of an empty schema of the test's own: many times cheaper than a database."""
    name = f"s_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(shared_database, autocommit=True) as server:
        server.execute(f"CREATE SCHEMA {name}")
        yield make_conninfo(shared_database, options=f"-c search_path={name}")
        server.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
async def connect(db: str) -> AsyncIterator[Connect]:
    """Opens connections to the test's database, autocommit unless told otherwise."""
    opened: list[TrioConnection[Any]] = []

    async def connect(conninfo: str = db, **options: Any) -> TrioConnection[Any]:
        options.setdefault("autocommit", True)
        opened.append(await TrioConnection.connect(conninfo, **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close_nowait()


@pytest.fixture
async def conn(connect: Connect) -> TrioConnection[Any]:
    """A connection in autocommit mode."""
    return await connect()


@pytest.fixture
async def proxy(db: str, nursery: trio.Nursery) -> Proxy:
    """A TCP server in front of the test's database that can be told to misbehave."""
    proxy = Proxy(db)
    await nursery.start(proxy.serve)
    return proxy
