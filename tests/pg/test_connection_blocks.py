"""Transactions and pipelines on a Trio connection, undisturbed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from awa_trio._pg.connection import TrioConnection

from .conftest import Connect


@pytest.fixture
async def table(conn: TrioConnection[Any]) -> TrioConnection[Any]:
    """A connection that sees the table ``t``, and what has been committed to it."""
    await conn.execute("CREATE TABLE t (x int)")
    return conn


def give_up(transaction: psycopg.AsyncTransaction) -> None:
    raise psycopg.Rollback(transaction)


async def committed(observer: TrioConnection[Any]) -> list[int]:
    rows = await (await observer.execute("SELECT x FROM t ORDER BY x")).fetchall()
    return [x for (x,) in rows]


# ---- Transactions --------------------------------------------------------------


@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_block_commits(
    table: TrioConnection[Any], connect: Connect, autocommit: bool
) -> None:
    connection = await connect(autocommit=autocommit)

    async with connection.transaction() as transaction:
        await connection.execute("INSERT INTO t VALUES (1)")
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        assert await committed(table) == []

    assert connection.idle
    assert transaction.status == transaction.Status.COMMITTED
    assert await committed(table) == [1]


@pytest.mark.parametrize("autocommit", [True, False])
async def test_a_block_that_raises_rolls_back(
    table: TrioConnection[Any], connect: Connect, autocommit: bool
) -> None:
    connection = await connect(autocommit=autocommit)

    with pytest.raises(ZeroDivisionError):
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES (1)")
            raise ZeroDivisionError

    assert connection.idle
    assert await committed(table) == []


async def test_blocks_nest(table: TrioConnection[Any], connect: Connect) -> None:
    connection = await connect()

    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (2)")
                await connection.execute("SELECT 1/0")
        async with connection.transaction("named") as inner:
            assert inner.savepoint_name == "named"
            await connection.execute("INSERT INTO t VALUES (3)")
        async with connection.transaction(force_rollback=True):
            await connection.execute("INSERT INTO t VALUES (4)")

    assert await committed(table) == [1, 3]


async def test_rollback_leaves_as_many_blocks_as_it_names(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES (1)")
        async with connection.transaction() as middle:
            await connection.execute("INSERT INTO t VALUES (2)")
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (3)")
                give_up(middle)
            await connection.execute("INSERT INTO t VALUES (99)")
        await connection.execute("INSERT INTO t VALUES (4)")

    assert await committed(table) == [1, 4]


async def test_commit_and_rollback_are_refused_inside_a_block(
    conn: TrioConnection[Any],
) -> None:
    async with conn.transaction():
        with pytest.raises(psycopg.ProgrammingError, match="forbidden within a Transaction"):
            await conn.commit()
        with pytest.raises(psycopg.ProgrammingError, match="forbidden within a Transaction"):
            await conn.rollback()

    assert conn.idle


async def test_a_commit_that_fails_raises_and_leaves_the_connection_idle(
    conn: TrioConnection[Any],
) -> None:
    await conn.execute("CREATE TABLE d (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    with pytest.raises(psycopg.errors.UniqueViolation):
        async with conn.transaction():
            await conn.execute("INSERT INTO d VALUES (1), (1)")

    assert conn.idle


async def test_a_block_is_entered_once(conn: TrioConnection[Any]) -> None:
    async with conn.transaction() as transaction:
        pass

    with pytest.raises(TypeError, match="only once"):
        async with transaction:
            pass
    assert conn.idle


async def test_losing_the_connection_inside_a_block_is_not_silent(
    conn: TrioConnection[Any], connect: Connect
) -> None:
    killer = await connect()

    with pytest.raises(psycopg.OperationalError, match="nothing was committed"):
        async with conn.transaction() as transaction:
            await killer.execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))
            with pytest.raises(psycopg.OperationalError):
                await conn.execute("SELECT 1")

    assert transaction.status == transaction.Status.FAILED


async def test_closing_it_there_is_the_same_as_rolling_back(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    async with connection.transaction() as transaction:
        await connection.execute("INSERT INTO t VALUES (1)")
        await connection.close()

    assert transaction.status == transaction.Status.FAILED
    assert await committed(table) == []


# ---- Pipelines ------------------------------------------------------------------


async def test_a_pipeline_sends_without_waiting_for_answers(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    async with connection.pipeline() as pipeline:
        await connection.execute("INSERT INTO t VALUES (1)")
        cursor = await connection.execute("SELECT 'first'")
        later = await connection.execute("SELECT 'second'")
        assert await later.fetchone() == ("second",)
        assert await cursor.fetchone() == ("first",)
        await pipeline.sync()
        assert await committed(table) == [1]

    assert connection.idle


async def test_an_error_in_a_pipeline_aborts_it_until_the_next_sync(
    conn: TrioConnection[Any],
) -> None:
    async with conn.pipeline() as pipeline:
        # Raised by whoever reads the answer, which is the sync if nobody did before.
        with pytest.raises(psycopg.errors.DivisionByZero):
            await conn.execute("SELECT 1/0")
            await conn.execute("CREATE TABLE never (x int)")
            await pipeline.sync()
        with suppress(psycopg.errors.PipelineAborted):
            await pipeline.sync()
        cursor = await conn.execute("SELECT 'again'")
        assert await cursor.fetchone() == ("again",)

    assert conn.idle
    assert await (await conn.execute("SELECT to_regclass('never')")).fetchone() == (None,)


async def test_an_error_found_at_the_end_of_a_pipeline_is_raised(
    conn: TrioConnection[Any],
) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with conn.pipeline():
            await conn.execute("SELECT 1/0")

    assert conn.idle


@pytest.mark.parametrize("outside", ["pipeline", "transaction"])
async def test_pipelines_and_transactions_nest_both_ways(
    table: TrioConnection[Any], connect: Connect, outside: str
) -> None:
    connection = await connect()

    for fails in (False, True):
        blocks = [connection.pipeline(), connection.transaction()]
        first, second = blocks if outside == "pipeline" else reversed(blocks)
        try:
            async with first, second:
                await connection.execute("INSERT INTO t VALUES (1)")
                if fails:
                    await connection.execute("INSERT INTO t VALUES (2)")
                    await connection.execute("SELECT 1/0")
        except psycopg.errors.DivisionByZero:
            assert fails
        else:
            assert not fails
        assert connection.idle

    assert await committed(table) == [1]


async def test_executemany_rides_a_pipeline(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    async with connection.pipeline():
        await connection.cursor().executemany("INSERT INTO t VALUES (%s)", [(1,), (2,)])
        await connection.execute("INSERT INTO t VALUES (3)")

    assert await committed(table) == [1, 2, 3]


async def test_what_cannot_be_in_a_pipeline_says_so(conn: TrioConnection[Any]) -> None:
    async with conn.pipeline():
        with pytest.raises(psycopg.NotSupportedError, match="COPY"):
            async with conn.cursor().copy("COPY (SELECT 1) TO STDOUT"):
                pass
        with pytest.raises(psycopg.ProgrammingError, match="stream"):
            async for _ in conn.cursor().stream("SELECT 1"):
                pass

    assert conn.idle
