"""The schema this release works with, and whether a database has it."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from .._core.errors import (
    ConfigurationError,
    SchemaMissing,
    SchemaNewer,
    SchemaOlder,
    SchemaUnversioned,
)
from .._pg.migrate import Schema, SchemaStatus

#: Releases that know this version of the schema work with the latest. Raised when a
#: migration breaks what they call.
OLDEST_SUPPORTED = 2

#: PostgreSQL before this lacks what the functions use.
OLDEST_SERVER = 150_000

#: Whether the schema has anything in it: tables, types, what belongs to them.
_HAS_RELATIONS = (
    "SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n"
    " ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
    " WHERE n.nspname OPERATOR(pg_catalog.=) 'awa' LIMIT 1"
)


#: The functions of the canonical engine that the segmented one goes on calling, for the jobs
#: that have rows, and under which names.
RENAMED = {
    "ahead_of": "ahead_of_rows",
    "backlogs": "backlogs_of_rows",
    "busy_queues": "busy_queues_of_rows",
    "claim": "claim_rows",
    "count_jobs": "count_rows",
    "ended": "ended_rows",
    "enqueue": "enqueue_row",
    "get_jobs": "get_rows",
    "has_committed": "has_committed_row",
    "insert_jobs": "insert_rows",
    "join_transaction": "join_transaction_of_row",
    "list_jobs": "list_rows",
    "next_due": "next_due_of_rows",
    "queue_counts": "queue_counts_of_rows",
    "queue_names": "queue_names_of_rows",
    "record_progress": "record_progress_of_rows",
    "register_callback": "register_callback_of_row",
    "rescue": "rescue_rows",
    "running": "running_rows",
    "storage": "storage_of_rows",
    "waiting_kinds": "waiting_kinds_of_rows",
}


class Engine(StrEnum):
    """How a database keeps its jobs; the same calls do the same with each."""

    CANONICAL = "canonical"
    """One table of jobs, updated in place."""
    SEGMENTED = "segmented"
    """Ordinary jobs are appended, claimed and completed in batches, and never updated."""

    @classmethod
    def named(cls, name: Engine | str) -> Engine:
        """Return the engine of a name.

        Raises:
          ConfigurationError: there is none.
        """
        try:
            return cls(name)
        except ValueError as error:
            raise ConfigurationError(
                f"there is no engine {name!r}; choose one of {', '.join(cls)}"
            ) from error


@cache
def schema(engine: Engine = Engine.CANONICAL) -> Schema:
    """Return the whole definition of the ``awa`` schema."""
    folders = files("awa_trio").joinpath("_store")
    canonical = Schema.load(
        "awa",
        folders.joinpath(Engine.CANONICAL),
        oldest_supported=OLDEST_SUPPORTED,
        engine=Engine.CANONICAL,
    )
    if engine is Engine.CANONICAL:
        return canonical
    return canonical.varied(folders.joinpath(engine), engine, RENAMED)


async def read_engine(connection: psycopg.AsyncConnection[Any]) -> Engine | None:
    """Read which engine a database has; None if it has no ``awa`` schema."""
    if (await read_status(connection)).version == 0:
        return None
    return Engine(await schema().engine_of(connection) or Engine.CANONICAL)


async def read_status(connection: psycopg.AsyncConnection[Any]) -> SchemaStatus:
    """Read what a database has.

    Raises:
      SchemaUnversioned: an ``awa`` schema that does not say its version.
      ConfigurationError: the role may not look.
    """
    try:
        status = await schema().status(connection)
        if status.version == 0:
            cursor = connection.cursor(row_factory=tuple_row)
            await cursor.execute(_HAS_RELATIONS)
            if await cursor.fetchone() is not None:
                # Unless somebody has just created it, between the two looks.
                status = await schema().status(connection)
                if status.version == 0:
                    raise SchemaUnversioned
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"this role may not use the awa schema ({error.diag.message_primary}); connect as"
            " the role that created it, or have that GRANT this one USAGE on the schema, and"
            " rights on what is in it"
        ) from error
    return status


async def check_schema(connection: psycopg.AsyncConnection[Any]) -> None:
    """Make sure that this release can work with a database.

    Raises:
      SchemaMissing: it has no ``awa`` schema.
      SchemaOlder: it has an older one.
      SchemaNewer: it has one that this release is too old for.
      SchemaUnversioned: it has one that does not say its version.
      ConfigurationError: the role may not look.
    """
    known = schema().version
    status = await read_status(connection)
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
