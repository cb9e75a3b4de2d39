"""Databases in which all is recorded."""

from __future__ import annotations

import pytest

from tests.engines import ENGINES

from . import install

SQL_ENGINES = [engine for engine, fixture in ENGINES.items() if fixture is not None]


def recorded_database(request: pytest.FixtureRequest, engine: str) -> str:
    """The DSN of a database of the test's own, with an engine, in which all is recorded."""
    fixture = ENGINES[engine]
    assert fixture is not None
    dsn: str = request.getfixturevalue(fixture)
    install(dsn)
    return dsn


@pytest.fixture(params=SQL_ENGINES)
def recording(request: pytest.FixtureRequest) -> str:
    """The DSN of one, on each engine."""
    return recorded_database(request, request.param)
