"""What is done to a database before a client can use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from .._core.arguments import check_whole
from .connections import Opener
from .schema import check_schema, check_server, read_status, schema


@asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    opener = Opener.of(dsn, prepare=False)
    try:
        connection = await opener()
    except psycopg.OperationalError as error:
        raise opener.unavailable(error) from error
    async with connection:
        yield connection


async def migrate(dsn: str = "") -> tuple[list[str], int]:
    """Create or upgrade the ``awa`` schema; never goes back.

    Args:
      dsn: as `connect` takes it.

    Returns:
      The names of the migrations applied, and the version the database then has. No
      names if there was nothing to do, or another process did it first.

    Raises:
      ConfigurationError: the DSN cannot be parsed, or the server cannot hold the schema.
      DatabaseUnavailable: the server cannot be reached.
      SchemaNewer: the database has a schema that this release is too old for.
      SchemaUnversioned: it has one that does not say its version.
      psycopg.Error: something failed, and nothing was changed.
    """
    async with _connection(dsn) as connection:
        await check_server(connection)
        await read_status(connection)
        applied = await schema().migrate(connection)
        await check_schema(connection)
        status = await read_status(connection)
    return [f"{m.version:04d}_{m.name}" for m in applied], status.version


async def schema_status(dsn: str = "") -> tuple[int, int]:
    """Return the version of the ``awa`` schema a database has, 0 for none, and the one known here.

    Args:
      dsn: as `connect` takes it.

    Raises:
      ConfigurationError: the DSN cannot be parsed.
      DatabaseUnavailable: the server cannot be reached.
      SchemaUnversioned: the schema does not say its version.
    """
    async with _connection(dsn) as connection:
        status = await read_status(connection)
    return status.version, schema().version


def schema_script(since: int = 0) -> str:
    """Return the SQL that `migrate` would run on a database of version ``since``; 0 for none.

    Raises:
      ValueError: this release knows no such version.
      TypeError: it is no int.
    """
    check_whole("since", since, 0, schema().version)
    return schema().script(since)
