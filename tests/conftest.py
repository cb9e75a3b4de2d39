"""Fixtures every test may use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo
from trio.testing import MockClock

from awa_trio._app.schema import Engine, schema
from awa_trio.testing.fixtures import (  # noqa: F401
    awa_app,
    awa_client,
    awa_dsn,
    awa_server,
    awa_template,
    fresh_database,
)


@pytest.fixture
def dsn(awa_server: str) -> Iterator[str]:  # noqa: F811
    """The DSN of an empty database of the test's own."""
    with fresh_database(awa_server) as name:
        yield make_conninfo(awa_server, dbname=name)


@pytest.fixture
def migrated(awa_dsn: str) -> str:  # noqa: F811
    """The DSN of a database of the test's own, with the ``awa`` schema."""
    return awa_dsn


@pytest.fixture(scope="session")
def segmented_template(awa_server: str) -> Iterator[str]:  # noqa: F811
    """The name of a database with the ``awa`` schema of the segmented engine, to copy."""
    with fresh_database(awa_server) as name:
        with psycopg.connect(make_conninfo(awa_server, dbname=name), autocommit=True) as made:
            made.execute(schema(Engine.SEGMENTED).script().encode())
        yield name


@pytest.fixture
def segmented(awa_server: str, segmented_template: str) -> Iterator[str]:  # noqa: F811
    """The DSN of a database of the test's own, with the segmented engine."""
    with fresh_database(awa_server, template=segmented_template) as name:
        yield make_conninfo(awa_server, dbname=name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests marked ``virtual_time`` on a clock that jumps.

    Neither sockets nor threads can be used there: the clock waits for neither, so a minute's
    timeout strikes while a thread takes a millisecond. ``real_time`` excepts a test that has
    them from its module's mark.
    """
    for item in items:
        if item.get_closest_marker("virtual_time") and not item.get_closest_marker("real_time"):
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


def _run_in_virtual_time(main: Any, *, clock: Any = None, **options: Any) -> Any:
    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), **options)
