"""Fixtures every test may use."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import trio
from trio.testing import MockClock

SERVER = os.environ.get("AWA_TEST_DSN", "host=/work/pg/root15 user=postgres dbname=postgres")


@pytest.fixture
def dsn() -> Iterator[str]:
    """The DSN of an empty database of the test's own."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield psycopg.conninfo.make_conninfo(SERVER, dbname=name)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def template() -> Iterator[str]:
    """The name of a database with the ``awa`` schema, to copy."""
    from awa_trio._app.schema import schema

    name = f"template_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(SERVER, dbname=name, autocommit=True) as database:
            database.execute(schema().script())
        yield name
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def migrated(template: str) -> Iterator[str]:
    """The DSN of a database of the test's own, with the ``awa`` schema."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        yield psycopg.conninfo.make_conninfo(SERVER, dbname=name)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests marked ``virtual_time`` on a clock that jumps; sockets cannot be used there."""
    for item in items:
        if item.get_closest_marker("virtual_time"):
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


def _run_in_virtual_time(main: Any, *, clock: Any = None, **options: Any) -> Any:
    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), **options)
