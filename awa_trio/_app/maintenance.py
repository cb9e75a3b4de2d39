"""What is done to a database before a client can use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import psycopg
from psycopg.rows import class_row

from .._core.arguments import check_whole
from .._core.errors import ConfigurationError
from .connections import Opener
from .schema import Engine, check_schema, check_server, read_engine, read_status, schema


@attrs.frozen
class StoragePart:
    """A part of what the jobs take up."""

    part: str
    """Its name: ``rows``, or a segment."""
    condition: str
    """What it is good for at present."""
    jobs: int
    """Roughly how many jobs are in it, as PostgreSQL's statistics say."""
    bytes: int
    """Its size on disk, with its indexes."""


@attrs.frozen
class StorageStatus:
    """How a database keeps its jobs, and what they take up."""

    engine: Engine
    parts: tuple[StoragePart, ...]


@asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    opener = Opener.of(dsn, prepare=False)
    try:
        connection = await opener()
    except psycopg.OperationalError as error:
        raise opener.unavailable(error) from error
    async with connection:
        yield connection


async def migrate(
    dsn: str = "", *, engine: Engine | str | None = None
) -> tuple[list[str], int]:
    """Create or upgrade the ``awa`` schema; never goes back.

    Args:
      dsn: as `connect` takes it.
      engine: how the database is to keep its jobs from now on; default, as it does, or
          canonical if it is new. Whoever is connected need not know.

    Returns:
      The names of the migrations applied, and the version the database then has. No
      names if there was nothing to do, or another process did it first.

    Raises:
      ConfigurationError: the DSN cannot be parsed, or the server cannot hold the schema; or
          there is no such engine, or no way from the database's to it.
      DatabaseUnavailable: the server cannot be reached.
      SchemaNewer: the database has a schema that this release is too old for.
      SchemaUnversioned: it has one that does not say its version.
      psycopg.Error: something failed, and nothing was changed.
    """
    wanted = None if engine is None else Engine.named(engine)
    async with _connection(dsn) as connection:
        await check_server(connection)
        present = await read_engine(connection)
        if wanted is Engine.CANONICAL and present is Engine.SEGMENTED:
            raise ConfigurationError(
                "the database has the segmented engine, and jobs in it that the canonical one"
                " would not find; migrate without an engine, or to another database"
            )
        applied = await schema(wanted or present or Engine.CANONICAL).migrate(connection)
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


async def storage_status(dsn: str = "") -> StorageStatus:
    """Return which engine a database has, and what its jobs take up.

    Args:
      dsn: as `connect` takes it.

    Raises:
      ConfigurationError: the DSN cannot be parsed.
      DatabaseUnavailable: the server cannot be reached.
      SchemaMissing: the database has no ``awa`` schema.
      SchemaOlder: it has one that is older than this release needs.
      SchemaNewer: it has one that this release is too old for.
      SchemaUnversioned: it has one that does not say its version.
    """
    async with _connection(dsn) as connection:
        await check_schema(connection)
        engine = await read_engine(connection) or Engine.CANONICAL
        cursor = connection.cursor(row_factory=class_row(StoragePart))
        await cursor.execute("SELECT * FROM awa.storage()")
        parts = await cursor.fetchall()
    return StorageStatus(engine, tuple(parts))


def schema_script(since: int = 0, *, engine: Engine | str = Engine.CANONICAL) -> str:
    """Return the SQL that `migrate` would run on a database of version ``since``; 0 for none.

    Args:
      since: the version.
      engine: the engine that the database is to have; it is canonical.

    Raises:
      ValueError: this release knows no such version, or no such engine.
      TypeError: it is no int.
    """
    check_whole("since", since, 0, schema().version)
    return schema(Engine(engine)).script(since)
