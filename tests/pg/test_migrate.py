"""Migrations: forward only, all or nothing, by many at once."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
import trio

from awa_trio._pg.connection import TrioConnection
from awa_trio._pg.migrate import Schema, SchemaStatus


def schema(folder: Path, versions: int, *, broken: int = 0, oldest: int = 1) -> Schema:
    """A schema of ``versions`` migrations, each a table, and one function."""
    (folder / "migrations").mkdir(exist_ok=True)
    (folder / "functions").mkdir(exist_ok=True)
    for version in range(1, versions + 1):
        text = f"CREATE TABLE toy.t{version} (x int);"
        if version == broken:
            text += "SELECT 1/0;"
        (folder / "migrations" / f"{version:04d}_step.sql").write_text(text)
    (folder / "functions" / "latest.sql").write_text(
        f"CREATE OR REPLACE FUNCTION toy.latest() RETURNS int LANGUAGE sql AS 'SELECT {versions}';"
    )
    return Schema.load("toy", folder, oldest_supported=oldest)


async def tables(connection: TrioConnection[tuple[object, ...]]) -> list[object]:
    cursor = await connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('toy')"
        " AND relkind = 'r' AND relname LIKE 't_' ORDER BY 1"
    )
    return [row[0] for row in await cursor.fetchall()]


async def test_a_database_is_brought_to_the_latest_version(dsn: str, tmp_path: Path) -> None:
    async with await TrioConnection.connect(dsn, autocommit=True) as connection:
        toy = schema(tmp_path, 2)
        assert await toy.status(connection) == SchemaStatus(0, 0)
        assert [m.version for m in await toy.migrate(connection)] == [1, 2]
        assert await toy.status(connection) == SchemaStatus(2, 1)
        assert await tables(connection) == ["t1", "t2"]
        assert await toy.migrate(connection) == []

        toy = schema(tmp_path, 4, oldest=3)
        assert [m.version for m in await toy.migrate(connection)] == [3, 4]
        assert await toy.status(connection) == SchemaStatus(4, 3)
        assert await tables(connection) == ["t1", "t2", "t3", "t4"]
        cursor = await connection.execute("SELECT toy.latest()")
        assert await cursor.fetchone() == (4,)


async def test_it_never_goes_back(dsn: str, tmp_path: Path) -> None:
    async with await TrioConnection.connect(dsn, autocommit=True) as connection:
        await schema(tmp_path, 3).migrate(connection)
        (tmp_path / "migrations" / "0003_step.sql").unlink()
        older = schema(tmp_path, 2)
        assert await older.migrate(connection) == []
        assert (await older.status(connection)).version == 3


async def test_a_failure_changes_nothing_and_names_the_statement(
    dsn: str, tmp_path: Path
) -> None:
    async with await TrioConnection.connect(dsn, autocommit=True) as connection:
        await schema(tmp_path, 1).migrate(connection)
        with pytest.raises(psycopg.errors.DivisionByZero) as caught:
            await schema(tmp_path, 3, broken=3).migrate(connection)
        assert "CREATE TABLE toy.t3" in caught.value.__notes__[0]
        assert await tables(connection) == ["t1"]
        assert (await schema(tmp_path, 1).status(connection)).version == 1


async def test_of_many_who_try_at_once_one_does_it(dsn: str, tmp_path: Path) -> None:
    toy = schema(tmp_path, 3)
    applied = []

    async def migrate() -> None:
        async with await TrioConnection.connect(dsn, autocommit=True) as connection:
            applied.append(len(await toy.migrate(connection)))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(migrate)
    assert sorted(applied) == [0] * 7 + [3]


def test_migrations_are_numbered_without_gaps(tmp_path: Path) -> None:
    schema(tmp_path, 3)
    (tmp_path / "migrations" / "0002_step.sql").unlink()
    with pytest.raises(ValueError, match="not numbered 1, 2, 3"):
        Schema.load("toy", tmp_path, oldest_supported=1)


def test_the_script_does_the_same_when_someone_else_runs_it(dsn: str, tmp_path: Path) -> None:
    toy = schema(tmp_path, 2)
    psql(dsn, toy.script())
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT version, oldest_supported FROM toy.schema_version")
        assert row.fetchone() == (2, 1)
    assert toy.script(2) == ""
    psql(dsn, schema(tmp_path, 3).script(2))
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT version FROM toy.schema_version").fetchone() == (3,)


def psql(dsn: str, script: str) -> None:
    """Run a script statement by statement, as psql does, stopping at the first error."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(script.encode())


def test_our_own_schema_is_loaded_from_the_package() -> None:
    from awa_trio._app.schema import schema as ours

    folder = files("awa_trio").joinpath("_store", "canonical", "functions")
    names = [file.name for file in folder.iterdir() if file.name.endswith(".sql")]
    assert len(ours().functions) == len(names) > 15
    assert ours().version >= 1


def another(folder: Path, base: Schema) -> Schema:
    """An engine that has a table of its own, and a function that calls what it replaces."""
    (folder / "migrations").mkdir(parents=True)
    (folder / "functions").mkdir()
    (folder / "migrations" / "0001_more.sql").write_text("CREATE TABLE toy.t9 (x int);")
    (folder / "functions" / "latest.sql").write_text(
        "CREATE OR REPLACE FUNCTION toy.latest() RETURNS int LANGUAGE sql AS"
        " 'SELECT toy.latest_of_old() + 100';"
    )
    (folder / "functions" / "engine.sql").write_text(
        "CREATE OR REPLACE FUNCTION toy.engine() RETURNS text LANGUAGE sql AS $$SELECT 'new'$$;"
    )
    return base.varied(folder, "new", {"latest": "latest_of_old"})


async def test_a_database_moves_to_another_engine_and_not_back(
    dsn: str, tmp_path: Path
) -> None:
    async with await TrioConnection.connect(dsn, autocommit=True) as connection:
        old = schema(tmp_path, 2)
        new = another(tmp_path / "new", old)
        await old.migrate(connection)
        assert await old.engine_of(connection) is None
        assert [m.name for m in await new.migrate(connection)] == ["more"]
        assert await new.engine_of(connection) == "new"
        assert await tables(connection) == ["t1", "t2", "t9"]
        cursor = await connection.execute("SELECT toy.latest()")
        assert await cursor.fetchone() == (102,)
        assert await new.migrate(connection) == []
        assert await old.migrate(connection) == []
        assert await new.engine_of(connection) == "new"


async def test_a_new_database_gets_the_migrations_of_its_engine_in_order(
    dsn: str, tmp_path: Path
) -> None:
    async with await TrioConnection.connect(dsn, autocommit=True) as connection:
        new = another(tmp_path / "new", schema(tmp_path, 2))
        applied = await new.migrate(connection)
        assert [(m.version, m.name) for m in applied] == [(1, "step"), (1, "more"), (2, "step")]
        newer = another(tmp_path / "newer", schema(tmp_path, 3))
        assert [m.version for m in await newer.migrate(connection)] == [3]
