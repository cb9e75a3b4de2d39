"""Fixtures every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from trio.testing import MockClock

import awa_trio as awa
from awa_trio._app.schema import Engine, schema
from awa_trio.testing import fixtures
from awa_trio.testing.fixtures import (  # noqa: F401
    awa_app,
    awa_client,
    awa_server,
    awa_template,
    fresh_database,
)

from .databases import Databases
from .hanging import pytest_runtest_protocol  # noqa: F401
from .pooler import Pooler, pooler

#: Set it, and the databases of tests are behind a PgBouncer in transaction mode.
POOLED = bool(os.environ.get("AWA_TEST_POOLER"))


@pytest.fixture(scope="session")
def awa_pooler(awa_server: str) -> Iterator[Pooler | None]:  # noqa: F811
    """The pooler that this run's databases are behind, if AWA_TEST_POOLER is set."""
    if not POOLED:
        yield None
        return
    with pooler(awa_server) as running:
        yield running


@pytest.fixture
def straight(awa_server: str) -> Callable[[str], str]:  # noqa: F811
    """Returns the server's own address of a database, given any DSN of it."""
    return lambda dsn: make_conninfo(awa_server, dbname=conninfo_to_dict(dsn)["dbname"])


@pytest.fixture(autouse=POOLED)
def of_a_pooler(awa_pooler: Pooler | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect through the pooler as its users do, whoever connects and however they got the DSN.

    Clients hear of new jobs by a way of their own, and connections of a test's own prepare
    nothing: docs/reference/compatibility.md.
    """
    assert awa_pooler is not None
    running, connect = awa_pooler, awa.connect

    @wraps(connect)
    def hearing(dsn: Any = "", /, **options: Any) -> AbstractAsyncContextManager[awa.Client]:
        if isinstance(dsn, str) and running.leads(dsn):
            options.setdefault("listen_dsn", running.past(dsn))
        return connect(dsn, **options)

    monkeypatch.setattr(awa, "connect", hearing)
    monkeypatch.setattr(fixtures, "connect", hearing)
    monkeypatch.setattr(psycopg, "connect", partial(psycopg.connect, prepare_threshold=None))


@pytest.fixture
def way(
    awa_server: str,  # noqa: F811
    awa_pooler: Pooler | None,
    request: pytest.FixtureRequest,
) -> Callable[[str], str]:
    """Returns the DSN of a database by its name: by way of the pooler, if there is one.

    Tests that look at the server's sessions, which a pooler shares among its clients, go the
    straight way.
    """

    def way(name: str) -> str:
        own = make_conninfo(awa_server, dbname=name)
        if awa_pooler is None or request.node.get_closest_marker("sessions"):
            return own
        return awa_pooler.dsn(own)

    return way


@pytest.fixture
def dsn(awa_server: str, way: Callable[[str], str]) -> Iterator[str]:  # noqa: F811
    """The DSN of an empty database of the test's own."""
    with fresh_database(awa_server) as name:
        yield way(name)


@pytest.fixture(scope="session")
def databases(awa_server: str) -> Iterator[Databases]:  # noqa: F811
    """The databases of this process of the run."""
    with Databases(awa_server, keep="AWA_TEST_DSN" not in os.environ) as databases:
        yield databases


@pytest.fixture
def database_like(
    databases: Databases,
    way: Callable[[str], str],
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[str], str]]:
    """Returns the DSN of a database of the test's own, given the name of a template.

    Other tests had it before, unless this one is marked ``untouched``.
    """
    untouched = request.node.get_closest_marker("untouched")
    with ExitStack() as stack:

        def like(template: str) -> str:
            if untouched:
                server = databases.server
                return way(stack.enter_context(fresh_database(server, template=template)))
            name = databases.take(template)
            stack.callback(databases.give_back, template, name)
            return way(name)

        yield like


@pytest.fixture
def awa_dsn(awa_template: str, database_like: Callable[[str], str]) -> str:  # noqa: F811
    """The DSN of a database of the test's own, with the ``awa`` schema and no jobs."""
    return database_like(awa_template)


@pytest.fixture
def migrated(awa_dsn: str) -> str:
    """The DSN of a database of the test's own, with the engine that AWA_TEST_ENGINE says."""
    return awa_dsn


@pytest.fixture(scope="session")
def canonical_template(
    awa_server: str,  # noqa: F811
    awa_template: str,  # noqa: F811
) -> Iterator[str]:
    """The name of a database with the ``awa`` schema of the canonical engine, to copy."""
    with template_of(Engine.CANONICAL, awa_server, awa_template) as name:
        yield name


@pytest.fixture(scope="session")
def segmented_template(
    awa_server: str,  # noqa: F811
    awa_template: str,  # noqa: F811
) -> Iterator[str]:
    """The name of a database with the ``awa`` schema of the segmented engine, to copy."""
    with template_of(Engine.SEGMENTED, awa_server, awa_template) as name:
        yield name


@contextmanager
def template_of(engine: Engine, server: str, default: str) -> Iterator[str]:
    """The name of a database with the schema of an engine; ``default`` if that has it."""
    with psycopg.connect(make_conninfo(server, dbname=default)) as connection:
        row = connection.execute("SELECT awa.engine()").fetchone()
    if row == (engine.value,):
        yield default
        return
    with fresh_database(server) as name:
        with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as made:
            made.execute(schema(engine).script().encode())
        yield name


@pytest.fixture
def canonical(canonical_template: str, database_like: Callable[[str], str]) -> str:
    """The DSN of a database of the test's own, with the canonical engine."""
    return database_like(canonical_template)


@pytest.fixture
def segmented(segmented_template: str, database_like: Callable[[str], str]) -> str:
    """The DSN of a database of the test's own, with the segmented engine."""
    return database_like(segmented_template)


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
