"""The schema this release works with, and whether a database has it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from .._core.errors import ConfigurationError, SchemaMissing, SchemaNewer, SchemaOlder
from .._pg.migrate import Schema

#: Releases that know this version of the schema work with the latest. Raised when a
#: migration breaks what they call.
OLDEST_SUPPORTED = 2

#: PostgreSQL before this lacks what the functions use.
OLDEST_SERVER = 150_000


@cache
def schema() -> Schema:
    """Return the whole definition of the ``awa`` schema."""
    folder = files("awa_trio").joinpath("_store", "canonical")
    return Schema.load("awa", folder, oldest_supported=OLDEST_SUPPORTED)


async def check_schema(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make sure that this release can work with a database.

    Raises:
      SchemaMissing: it has no ``awa`` schema.
      SchemaOlder: it has an older one.
      SchemaNewer: it has one that this release is too old for.
    """
    known = schema().version
    status = await schema().status(connection)
    if status.version == 0:
        raise SchemaMissing
    if status.version < known:
        raise SchemaOlder(status.version, known)
    if status.oldest_supported > known:
        raise SchemaNewer(status.version, status.oldest_supported, known)


async def check_server(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make sure that a server can hold the schema.

    Raises:
      ConfigurationError: it is too old, or the database does not store Unicode.
    """
    if connection.info.server_version < OLDEST_SERVER:
        raise ConfigurationError(
            f"PostgreSQL {connection.info.server_version // 10_000} is too old;"
            f" awa_trio needs {OLDEST_SERVER // 10_000} or later"
        )
    cursor = connection.cursor(row_factory=tuple_row)
    await cursor.execute("SHOW server_encoding")
    row = await cursor.fetchone()
    if row is not None and row[0] != "UTF8":
        raise ConfigurationError(
            f"the database's encoding is {row[0]}; create one with: createdb -E UTF8 -T template0"
        )
