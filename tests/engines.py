"""The engines on which whole suites run, and a client on each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

import awa_trio as awa
from awa_trio.testing import memory_client

#: Each with the fixture that gives the DSN of a database of the test's own, if it has any.
ENGINES: dict[str, str | None] = {
    "memory": None,
    "canonical": "canonical",
    "segmented": "segmented",
}


def job_tables(connection: psycopg.Connection) -> list[str]:
    """The tables that jobs are inserted into, in a database of whichever engine."""
    tables = ["awa.jobs", "awa.lane_jobs"]
    return [
        table
        for table in tables
        if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,)
    ]


@asynccontextmanager
async def client_on(
    engine: str, request: pytest.FixtureRequest, app: awa.App
) -> AsyncIterator[awa.Client]:
    """A client of an empty store of the test's own."""
    fixture = ENGINES[engine]
    if fixture is None:
        yield memory_client(app)
    else:
        async with awa.connect(request.getfixturevalue(fixture), app=app) as client:
            yield client
