"""Fixtures for pytest with pytest-trio: a server, a fresh database, a client.

In a ``conftest.py``::

    from awa_trio.testing.fixtures import awa_client, awa_dsn, awa_server, awa_template  # noqa: F401

    @pytest.fixture
    def awa_app():
        return my_program.app

`awa_memory_client` needs `awa_app` alone: no server.

The server is the one that ``AWA_TEST_DSN`` names, by a role that may create databases; or
else a `DevServer` of this test run, which all its processes share. Its databases have the
engine that ``AWA_TEST_ENGINE`` names; default, canonical.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

import psycopg
import pytest
import pytest_trio  # type: ignore[import-untyped]
from psycopg import sql
from psycopg.conninfo import make_conninfo

from .._app.app import App
from .._app.client import Client
from .._app.connect import connect
from .._app.schema import Engine, schema
from ..pg import DevServer, temporary_root
from ._memory import memory_client


@contextmanager
def fresh_database(server: str, *, template: str | None = None) -> Iterator[str]:
    """Make a database for a block, and remove it whoever is connected; its name."""
    name = f"awa_{uuid4().hex[:16]}"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    with psycopg.connect(server, autocommit=True) as connection:
        if template is not None:
            create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
            if connection.info.server_version >= 150_000:
                # Several times faster for a small one than logging every page.
                create += sql.SQL(" STRATEGY file_copy")
        connection.execute(create)
    try:
        yield name
    finally:
        # A server that has ended has taken it along.
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(server, autocommit=True) as connection,
        ):
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            connection.execute(drop.format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def awa_server() -> Iterator[str]:
    """The DSN of a server on which databases may be made."""
    given = os.environ.get("AWA_TEST_DSN")
    if given:
        yield given
        return
    # pytest-xdist gives all processes of a run this name; what a killed run leaves
    # behind is ended by the next.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
    with DevServer(
        temporary_root(run), durable=False, keep=False, settings={"max_connections": 200}
    ) as server:
        yield server.dsn()


@pytest.fixture(scope="session")
def awa_template(awa_server: str) -> Iterator[str]:
    """The name of a database with the ``awa`` schema, to copy."""
    with fresh_database(awa_server) as name:
        dsn = make_conninfo(awa_server, dbname=name)
        with psycopg.connect(dsn, autocommit=True) as connection:
            engine = Engine(os.environ.get("AWA_TEST_ENGINE", Engine.CANONICAL))
            connection.execute(schema(engine).script().encode())
        yield name


@pytest.fixture
def awa_dsn(awa_server: str, awa_template: str) -> Iterator[str]:
    """The DSN of a database of the test's own, with the ``awa`` schema and no jobs."""
    with fresh_database(awa_server, template=awa_template) as name:
        yield make_conninfo(awa_server, dbname=name)


@pytest.fixture
def awa_app() -> App | None:
    """The app of `awa_client` and `awa_memory_client`; override it to return yours."""
    return None


@pytest.fixture
def awa_memory_client(awa_app: App | None) -> Client:
    """A client of a store in memory, for tests that have a clock that jumps."""
    return memory_client(awa_app)


@pytest_trio.trio_fixture  # type: ignore[untyped-decorator]
async def awa_client(awa_dsn: str, awa_app: App | None) -> AsyncIterator[Client]:
    """A client of a database of the test's own."""
    async with connect(awa_dsn, app=awa_app) as client:
        yield client
