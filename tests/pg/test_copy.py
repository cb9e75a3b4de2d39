"""COPY on a Trio connection, both ways and in both formats."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from awa_trio._pg.connection import TrioConnection

ROWS = [(1, "plain"), (2, 'tab\tline\nback\\slash "quoted"'), (3, None), (4, "ünïcode")]


@pytest.fixture
async def table(conn: TrioConnection[Any]) -> TrioConnection[Any]:
    await conn.execute("CREATE TABLE t (x int4, y text)")
    return conn


async def stored(conn: TrioConnection[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = await (
        await conn.execute("SELECT x, y FROM t ORDER BY x")
    ).fetchall()
    return rows


@pytest.mark.parametrize("format", ["text", "binary"])
async def test_rows_in_and_out(table: TrioConnection[Any], format: str) -> None:
    cursor = table.cursor()

    async with cursor.copy(f"COPY t FROM STDIN (FORMAT {format})".encode()) as copy:
        copy.set_types(["int4", "text"])
        for row in ROWS:
            await copy.write_row(row)
    assert cursor.rowcount == len(ROWS)
    assert await stored(table) == ROWS

    async with cursor.copy(
        f"COPY (SELECT x, y FROM t ORDER BY x) TO STDOUT (FORMAT {format})".encode()
    ) as copy:
        copy.set_types(["int4", "text"])
        assert [row async for row in copy.rows()] == ROWS
    assert cursor.rowcount == len(ROWS)
    assert table.idle


async def test_blocks_in_and_out(table: TrioConnection[Any]) -> None:
    cursor = table.cursor()

    async with cursor.copy("COPY t FROM STDIN") as copy:
        await copy.write("1\ton")
        await copy.write(b"e\n2\ttwo\n")
    assert await stored(table) == [(1, "one"), (2, "two")]

    async with cursor.copy("COPY t TO STDOUT") as copy:
        assert b"".join([bytes(block) async for block in copy]) == b"1\tone\n2\ttwo\n"
    async with cursor.copy("COPY t TO STDOUT") as copy:
        assert bytes(await copy.read()) == b"1\tone\n"
        assert await copy.read_row() == ("2", "two")
        assert await copy.read_row() is None


async def test_more_than_the_buffers_hold(table: TrioConnection[Any]) -> None:
    cursor = table.cursor()

    async with cursor.copy("COPY t FROM STDIN") as copy:
        for x in range(3000):
            await copy.write_row((x, "y" * 1000))
        await copy.write(b"9999\t" + b"z" * 300_000 + b"\n")

    rows = 0
    async with cursor.copy("COPY t TO STDOUT") as copy:
        async for _ in copy:
            rows += 1
    assert rows == 3001


async def test_parameters_and_adapters_apply(table: TrioConnection[Any]) -> None:
    cursor = table.cursor()

    async with cursor.copy("COPY (SELECT %s, %s) TO STDOUT", (1, "it's")) as copy:
        assert [row async for row in copy.rows()] == [("1", "it's")]


async def test_what_the_server_refuses_is_raised_at_the_end(table: TrioConnection[Any]) -> None:
    with pytest.raises(psycopg.errors.BadCopyFileFormat):
        async with table.cursor().copy("COPY t FROM STDIN") as copy:
            await copy.write(b"1\ttoo\tmany\n")

    assert table.idle
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with table.cursor().copy(
            "COPY (SELECT 1/(x-3) FROM generate_series(1, 5) x) TO STDOUT"
        ) as copy:
            async for _ in copy:
                pass
    assert table.idle


async def test_a_body_that_raises_undoes_the_copy(table: TrioConnection[Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with table.cursor().copy("COPY t FROM STDIN") as copy:
            await copy.write(b"1\tone\n")
            raise ZeroDivisionError
    assert table.idle
    assert await stored(table) == []

    with pytest.raises(ZeroDivisionError):
        async with table.cursor().copy(
            "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT"
        ) as copy:
            await copy.read()
            raise ZeroDivisionError
    assert table.idle


async def test_a_statement_that_is_no_copy_is_refused(table: TrioConnection[Any]) -> None:
    with pytest.raises(psycopg.ProgrammingError, match="copy"):
        async with table.cursor().copy("SELECT 1"):
            pass
    assert table.idle
    with pytest.raises(psycopg.errors.UndefinedTable):
        async with table.cursor().copy("COPY no_such_table FROM STDIN"):
            pass
    assert table.idle
    # psycopg leaves this one in the middle of a COPY, so it is closed.
    with pytest.raises(psycopg.ProgrammingError, match=r"use copy\(\) instead"):
        await table.execute("COPY t FROM STDIN")
    assert table.closed
