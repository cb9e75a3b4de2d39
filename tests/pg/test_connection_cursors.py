"""Cursors of every kind on a Trio connection: they are psycopg's own, unchanged."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import psycopg
import pytest
import trio
from psycopg import sql
from psycopg.rows import dict_row, scalar_row
from psycopg.types import TypeInfo
from trio.testing import wait_all_tasks_blocked

from awa_trio._pg.connection import TrioConnection

from .conftest import Connect


async def test_fetching_by_one_by_some_and_the_rest(conn: TrioConnection[Any]) -> None:
    cursor = await conn.execute("SELECT generate_series(1, 6)")

    assert cursor.rowcount == 6
    assert await cursor.fetchone() == (1,)
    assert await cursor.fetchmany(2) == [(2,), (3,)]
    await cursor.scroll(-1)
    assert [row async for row in cursor] == [(3,), (4,), (5,), (6,)]
    assert await cursor.fetchone() is None
    assert await cursor.fetchall() == []
    with pytest.raises(IndexError):
        await cursor.scroll(1)


async def test_several_results_of_one_query(conn: TrioConnection[Any]) -> None:
    cursor = await conn.execute("SELECT 1; SELECT 2; CREATE TEMP TABLE t (x int); SELECT 3")

    assert [result.statusmessage async for result in cursor.results()] == [
        *("SELECT 1", "SELECT 1", "CREATE TABLE", "SELECT 1"),
    ]
    await cursor.set_result(-1)
    assert await cursor.fetchone() == (3,)


async def test_composed_queries_and_named_parameters(conn: TrioConnection[Any]) -> None:
    query = sql.SQL("SELECT {} FROM (VALUES (%(a)s::int)) AS v (x)").format(sql.Identifier("x"))

    assert await (await conn.execute(query, {"a": 4})).fetchone() == (4,)


async def test_an_error_carries_its_diagnosis_and_leaves_the_cursor_usable(
    conn: TrioConnection[Any],
) -> None:
    cursor = conn.cursor()
    await cursor.execute("CREATE TEMP TABLE t (x int CONSTRAINT positive CHECK (x > 0))")

    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        await cursor.execute("INSERT INTO t VALUES (-1)")

    assert caught.value.diag.constraint_name == "positive"
    await cursor.execute("INSERT INTO t VALUES (1)")
    assert cursor.rowcount == 1


async def test_a_closed_cursor_says_so(conn: TrioConnection[Any]) -> None:
    async with conn.cursor() as cursor:
        await cursor.execute("SELECT 1")

    with pytest.raises(psycopg.InterfaceError, match="the cursor is closed"):
        await cursor.execute("SELECT 1")


async def test_executemany(conn: TrioConnection[Any]) -> None:
    cursor = conn.cursor()
    await cursor.execute("CREATE TEMP TABLE t (x int PRIMARY KEY)")

    await cursor.executemany("INSERT INTO t VALUES (%s)", [(i,) for i in range(1000)])
    assert cursor.rowcount == 1000

    await cursor.executemany(
        "DELETE FROM t WHERE x = %s RETURNING x", [(3,), (5,)], returning=True
    )
    assert [await result.fetchall() async for result in cursor.results()] == [[(3,)], [(5,)]]

    # In autocommit mode too, all of it or none.
    with pytest.raises(psycopg.errors.UniqueViolation):
        await cursor.executemany("INSERT INTO t VALUES (%s)", [(3,), (5,), (7,)])
    assert await (await conn.execute("SELECT count(*) FROM t")).fetchone() == (998,)


async def test_an_executemany_whose_arguments_fail_leaves_nothing(
    conn: TrioConnection[Any],
) -> None:
    cursor = conn.cursor()
    await cursor.execute("CREATE TEMP TABLE t (x int)")

    with pytest.raises(OSError, match="the file is gone"):

        def arguments() -> Any:
            yield (1,)
            yield (2,)
            raise FileNotFoundError("the file is gone")

        await cursor.executemany("INSERT INTO t VALUES (%s)", arguments())

    assert conn.idle


async def test_prepared_statements(connect: Connect) -> None:
    connection = await connect(prepare_threshold=2)

    async def prepared() -> set[str]:
        cursor = await connection.execute(
            "SELECT statement FROM pg_prepared_statements", prepare=False
        )
        return {statement for (statement,) in await cursor.fetchall()}

    for _ in range(2):
        await connection.execute("SELECT %s + 1", (1,))
    assert await prepared() == set()
    await connection.execute("SELECT %s + 1", (1,))
    assert await prepared() == {"SELECT $1 + 1"}
    await connection.execute("SELECT 'at once'", prepare=True)
    assert await prepared() == {"SELECT $1 + 1", "SELECT 'at once'"}


async def test_stream_yields_rows_as_they_arrive(conn: TrioConnection[Any]) -> None:
    cursor = conn.cursor(row_factory=scalar_row)
    rows = [1, 2, 3, 4, 5]

    assert [x async for x in cursor.stream("SELECT generate_series(1, %s)", (5,))] == rows
    if psycopg.capabilities.has_stream_chunked():
        assert [x async for x in cursor.stream("SELECT generate_series(1, 5)", size=2)] == rows
    with pytest.raises(psycopg.errors.DivisionByZero):
        async for _ in cursor.stream("SELECT 1/(3-x) FROM generate_series(1, 5) x"):
            pass
    assert conn.idle


async def test_a_stream_that_is_left_early_is_cancelled_on_the_server(
    conn: TrioConnection[Any],
) -> None:
    query = "SELECT x, repeat('x', 1000), pg_sleep(0.001) FROM generate_series(1, 100000) x"

    async with aclosing(conn.cursor().stream(query)) as rows:  # type: ignore[type-var]
        assert (await anext(rows))[0] == 1

    assert conn.idle
    assert await (await conn.execute("SELECT 2")).fetchone() == (2,)


async def test_server_side_cursors(connect: Connect) -> None:
    connection = await connect(autocommit=False)

    async with connection.cursor("numbers", row_factory=dict_row, scrollable=True) as cursor:
        await cursor.execute("SELECT generate_series(1, %s) AS n", (250,))
        assert await cursor.fetchone() == {"n": 1}
        assert [row["n"] for row in await cursor.fetchmany(2)] == [2, 3]
        await cursor.scroll(100, mode="absolute")
        cursor.itersize = 20
        assert [row["n"] async for row in cursor] == list(range(101, 251))

    rows = await connection.execute("SELECT name FROM pg_cursors")
    assert await rows.fetchall() == []


async def test_a_server_side_cursor_with_hold_outlives_its_transaction(
    connect: Connect,
) -> None:
    connection = await connect(autocommit=False)

    async with connection.cursor("kept", withhold=True) as cursor:
        await cursor.execute("SELECT generate_series(1, 3)")
        await connection.commit()
        assert await cursor.fetchall() == [(1,), (2,), (3,)]


async def test_types_are_looked_up(conn: TrioConnection[Any]) -> None:
    await conn.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')")

    info = await TypeInfo.fetch(conn, "mood")

    assert info is not None
    assert info.name == "mood"
    assert await TypeInfo.fetch(conn, "no_such_type") is None


async def test_large_values_fill_the_buffers_both_ways(conn: TrioConnection[Any]) -> None:
    big = "x" * 4_000_000

    cursor = await conn.execute("SELECT length(%s)", (big,))
    assert await cursor.fetchone() == (len(big),)

    # Here the server's answers and our questions wait for each other.
    async with conn.pipeline():
        cursors = [
            await conn.execute("SELECT repeat('y', 500000), %s::text", ("z" * 500_000,))
            for _ in range(8)
        ]
    for cursor in cursors:
        row = await cursor.fetchone()
        assert row is not None
        assert (len(row[0]), len(row[1])) == (500_000, 500_000)


async def test_many_connections_work_side_by_side(connect: Connect) -> None:
    first, *others = [await connect() for _ in range(4)]
    await first.execute("SELECT pg_advisory_lock(1)")

    async def queue(connection: TrioConnection[Any]) -> None:
        await connection.execute("SELECT pg_advisory_lock(1), pg_advisory_unlock(1)")

    # All of them wait for a lock that one of them holds: in turn, they would for ever.
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for connection in others:
                nursery.start_soon(queue, connection)
            await wait_all_tasks_blocked()
            await first.execute("SELECT pg_advisory_unlock(1)")
