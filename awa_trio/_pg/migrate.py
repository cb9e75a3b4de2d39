"""Bring a database's schema forward, never back.

A schema is numbered migrations, which are never edited, and functions, which are
replaced whenever the version moves. All of it happens in one transaction, under a
lock that ends with the transaction: several processes may try at once, also through
a pooler, and a failure leaves the database as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

import attrs
import psycopg
from psycopg import errors as e
from psycopg.rows import tuple_row

_VERSION_TABLE = """
CREATE TABLE {name}.schema_version (
    version          int NOT NULL,
    oldest_supported int NOT NULL,
    migrated_at      timestamptz NOT NULL DEFAULT now(),
    only_row         boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
INSERT INTO {name}.schema_version (version, oldest_supported) VALUES (0, 0);
"""

_NEW_VERSION = """
UPDATE {name}.schema_version
   SET version = {version}, oldest_supported = {oldest}, migrated_at = now()
 WHERE version = {since};
"""

#: Before anything else in the transaction: whoever migrates is the owner, and must not run
#: what others have put into a schema of the session's search_path under a familiar name.
_ONLY_BUILT_INS = "SET LOCAL search_path = pg_catalog, pg_temp;"

#: Whether there is such a table. Another program may have one of the same name.
_HAS_VERSION = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute"
    " WHERE attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('{name}.schema_version')"
    " AND attname OPERATOR(pg_catalog.=) 'oldest_supported' AND NOT attisdropped)"
)

_READ_VERSION = "SELECT version, oldest_supported FROM {name}.schema_version"


@attrs.frozen
class Migration:
    """One step forward."""

    version: int
    """Its number, from 1, without gaps."""
    name: str
    sql: str = attrs.field(repr=False)


@attrs.frozen
class SchemaStatus:
    """What a database has."""

    version: int
    """The latest migration applied; 0 if there is no schema."""
    oldest_supported: int
    """The lowest version that a program may know and still work with this schema."""


@attrs.frozen
class Schema:
    """A schema's whole definition.

    Its table ``schema_version`` has one row: the version, and the lowest version that a
    program may know and still work.
    """

    name: str
    """The PostgreSQL schema everything is in."""
    migrations: Sequence[Migration]
    functions: Sequence[str] = attrs.field(repr=False)
    """``CREATE OR REPLACE`` statements, in any order."""
    oldest_supported: int
    """Programs that know this version or a later one work with the latest."""
    engine: str = ""
    """Which of several sets of functions this is; ``{name}.engine()`` says. Empty: there is one."""
    own_migrations: Sequence[Migration] = ()
    """What only this engine needs. Those of a version come after that version's `migrations`."""

    @property
    def version(self) -> int:
        """The latest version."""
        return len(self.migrations)

    @classmethod
    def load(
        cls, name: str, folder: Traversable, *, oldest_supported: int, engine: str = ""
    ) -> Schema:
        """Read a schema from ``folder``: ``migrations/0001_name.sql`` ..., ``functions/name.sql`` ....

        Raises:
          ValueError: the migrations are not numbered 1, 2, 3, ...
        """
        migrations = _migrations(folder)
        if [m.version for m in migrations] != list(range(1, len(migrations) + 1)):
            raise ValueError(f"the migrations in {folder} are not numbered 1, 2, 3, ...")
        functions = list(_functions(folder).values())
        return cls(name, migrations, functions, oldest_supported, engine)

    def varied(self, folder: Traversable, engine: str, renamed: Mapping[str, str]) -> Schema:
        """Return another engine: this one's functions, but for those in ``folder``.

        Args:
          folder: as `load` reads it; its migrations have the numbers of those they belong to.
          engine: its name.
          renamed: what functions of this engine's are called, whose names are those of
              functions in ``folder`` that go on calling them.
        """
        own = _functions(folder)
        functions = []
        for text in self.functions:
            found = re.search(
                rf"^CREATE OR REPLACE FUNCTION {self.name}\.(\w+)\(", text, re.MULTILINE
            )
            called = found[1] if found else ""
            if called in renamed:
                # Its parameters are qualified by its name, too.
                functions.append(re.sub(rf"\b{called}(?=[.(])", renamed[called], text))
            elif called not in own:
                functions.append(text)
        return attrs.evolve(
            self,
            functions=[*functions, *own.values()],
            engine=engine,
            own_migrations=_migrations(folder),
        )

    def script(self, since: int = 0) -> str:
        """Return the SQL that brings a database from version ``since`` to the latest.

        Empty if that is the latest. Meant to be read, and run with psql by those who let
        no program run DDL: it is what `migrate` runs. For an engine with migrations of its
        own, the database is one that has none of them.
        """
        if since >= self.version and not self.own_migrations:
            return ""
        return "\n".join(["BEGIN;", *self._statements(since, 0), "COMMIT;", ""])

    def _statements(self, since: int, own_since: int) -> list[str]:
        parts = [_ONLY_BUILT_INS, f"SELECT pg_advisory_xact_lock({self._lock});"]
        if since == 0:
            parts += [
                f"CREATE SCHEMA IF NOT EXISTS {self.name};",
                _VERSION_TABLE.format(name=self.name),
            ]
        parts += [m.sql for m in self._missing(since, own_since)]
        # Bodies may name functions that come later.
        parts.append("SET LOCAL check_function_bodies = off;")
        parts += self.functions
        # Guarded, so that a script printed for another version changes nothing.
        parts.append(
            _NEW_VERSION.format(
                name=self.name, version=self.version, oldest=self.oldest_supported, since=since
            )
        )
        return parts

    def _missing(self, since: int, own_since: int) -> list[Migration]:
        """The migrations after a version, of all engines and of this one."""
        return sorted(
            [
                *(m for m in self.migrations if m.version > since),
                *(m for m in self.own_migrations if m.version > own_since),
            ],
            key=lambda m: m.version,
        )

    @property
    def _lock(self) -> int:
        """A key for the advisory lock: any number that other programs are unlikely to use."""
        return int.from_bytes(b"awa:" + self.name.encode()[:3].ljust(3), "big")

    async def status(self, connection: psycopg.AsyncConnection[Any]) -> SchemaStatus:
        """Read what a database has; in its own transaction unless the caller has one open."""
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute(_HAS_VERSION.format(name=self.name).encode())
        row = await cursor.fetchone()
        if row is None or not row[0]:
            return SchemaStatus(0, 0)
        await cursor.execute(_READ_VERSION.format(name=self.name).encode())
        row = await cursor.fetchone()
        return SchemaStatus(*row) if row is not None else SchemaStatus(0, 0)

    async def engine_of(self, connection: psycopg.AsyncConnection[Any]) -> str | None:
        """Return the engine that a database has; None if it does not say."""
        cursor = connection.cursor(row_factory=tuple_row)
        await cursor.execute(
            f"SELECT pg_catalog.to_regprocedure('{self.name}.engine()') IS NOT NULL".encode()
        )
        row = await cursor.fetchone()
        if row is None or not row[0]:
            return None
        await cursor.execute(f"SELECT {self.name}.engine()".encode())
        row = await cursor.fetchone()
        return None if row is None else str(row[0])

    async def migrate(self, connection: psycopg.AsyncConnection[Any]) -> list[Migration]:
        """Bring a database to the latest version, and to this engine; return the migrations applied.

        None if another process did it first, or it is newer than this program knows. An
        engine with migrations of its own is for good: no other is put in its place.

        Args:
          connection: in autocommit mode, allowed to create a schema.

        Raises:
          psycopg.Error: something failed, and nothing was changed.
        """
        async with connection.transaction():
            await connection.execute(_ONLY_BUILT_INS)
            await connection.execute(f"SELECT pg_advisory_xact_lock({self._lock})".encode())
            since = (await self.status(connection)).version
            engine = (await self.engine_of(connection)) or ""
            moves = bool(self.own_migrations) and engine != self.engine
            if since > self.version or (since == self.version and not moves):
                return []
            if not moves and engine not in ("", self.engine):
                return []  # Another process has moved it meanwhile.
            own_since = 0 if moves else since
            for statement in self._statements(since, own_since):
                try:
                    await connection.execute(statement.encode())
                except e.Error as error:
                    error.add_note(f"while running:\n{statement[:2000]}")
                    raise
        return self._missing(since, own_since)


def _migrations(folder: Traversable) -> list[Migration]:
    migrations = []
    for file in sorted((folder / "migrations").iterdir(), key=lambda file: file.name):
        found = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if found is not None:
            migrations.append(Migration(int(found[1]), found[2], file.read_text("utf-8")))
    return migrations


def _functions(folder: Traversable) -> dict[str, str]:
    files = sorted((folder / "functions").iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".sql"): file.read_text("utf-8")
        for file in files
        if file.name.endswith(".sql")
    }
