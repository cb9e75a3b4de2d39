"""Two tasks on one connection: the second is told at once, the first notices nothing."""

from __future__ import annotations

import random
import warnings
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import psycopg
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from awa_trio._pg.connection import TrioConnection

from .conftest import Connect
from .test_cancellation import OPERATIONS

Use: TypeAlias = Callable[[TrioConnection[Any]], Awaitable[object]]


async def _execute(conn: TrioConnection[Any]) -> None:
    await conn.execute("SELECT 1")


async def _executemany(conn: TrioConnection[Any]) -> None:
    await conn.cursor().executemany("SELECT %s", [(1,), (2,)])


async def _commit(conn: TrioConnection[Any]) -> None:
    await conn.commit()


async def _transaction(conn: TrioConnection[Any]) -> None:
    async with conn.transaction():
        pass


async def _pipeline(conn: TrioConnection[Any]) -> None:
    async with conn.pipeline():
        pass


async def _stream(conn: TrioConnection[Any]) -> None:
    async with aclosing(conn.cursor().stream("SELECT 1")) as rows:  # type: ignore[type-var]
        async for _ in rows:
            pass


async def _copy(conn: TrioConnection[Any]) -> None:
    async with conn.cursor().copy("COPY (SELECT 1) TO STDOUT"):
        pass


async def _notifies(conn: TrioConnection[Any]) -> None:
    async with aclosing(conn.notifies(timeout=0)) as notifies:
        async for _ in notifies:
            pass


USES = [_execute, _executemany, _commit, _transaction, _pipeline, _stream, _copy, _notifies]


@pytest.mark.parametrize("use", USES)
async def test_a_second_task_is_refused_at_once(
    conn: TrioConnection[Any], use: Use, nursery: trio.Nursery
) -> None:
    answers: list[object] = []

    async def first() -> None:
        cursor = await conn.execute("SELECT 'first', pg_sleep(0.15)")
        answers.append(await cursor.fetchone())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first, name="the one who was there first")
        await wait_all_tasks_blocked()
        with pytest.raises(
            trio.BusyResourceError, match=r"another task .*there first.* from a pool"
        ):
            await use(conn)
        assert answers == []  # which means at once

    assert answers == [("first", "")]
    assert conn.idle


@pytest.mark.parametrize("use", USES)
async def test_so_is_one_that_disturbs_a_wait_for_notifications(
    conn: TrioConnection[Any], use: Use, connect: Connect
) -> None:
    await conn.execute("LISTEN news")
    heard: list[str] = []

    async def listen() -> None:
        async with aclosing(conn.notifies(stop_after=1)) as notifies:
            async for notify in notifies:
                heard.append(notify.payload)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await use(conn)
        await (await connect()).execute("NOTIFY news, 'undisturbed'")

    assert heard == ["undisturbed"]


async def test_closing_is_for_everybody(conn: TrioConnection[Any]) -> None:
    async def first() -> None:
        with pytest.raises(
            psycopg.OperationalError, match="closed while this operation was run"
        ):
            await conn.execute("SELECT pg_sleep(30)")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        await conn.close()

    assert conn.closed
    assert not conn.broken


async def test_so_is_asking_the_server_to_cancel(conn: TrioConnection[Any]) -> None:
    cancelled = trio.Event()

    async def first() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            await conn.execute("SELECT pg_sleep(30)")
        cancelled.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await wait_all_tasks_blocked()
        while not cancelled.is_set():
            # One request may arrive before the query, and is forgotten then.
            await conn.cancel_safe()
            with trio.move_on_after(0.05):
                await cancelled.wait()

    assert conn.idle


# ---- A task that meets itself ---------------------------------------------------------


async def test_a_query_inside_a_loop_over_notifications_is_refused(
    conn: TrioConnection[Any],
) -> None:
    await conn.execute("LISTEN news; NOTIFY news")

    async with aclosing(conn.notifies()) as notifies:
        async for _ in notifies:
            with pytest.raises(trio.BusyResourceError, match="this task has not yet left"):
                await conn.execute("SELECT 1")
            break

    assert conn.idle


async def test_a_query_inside_a_copy_is_refused(conn: TrioConnection[Any]) -> None:
    await conn.execute("CREATE TABLE t (x int)")

    async with conn.cursor().copy("COPY t FROM STDIN") as copy:
        with pytest.raises(trio.BusyResourceError, match="this task has not yet left"):
            await conn.execute("SELECT 1")
        await copy.write(b"1\n")

    assert await (await conn.execute("SELECT x FROM t")).fetchall() == [(1,)]


async def test_a_block_that_ends_inside_an_open_stream_closes_the_connection(
    conn: TrioConnection[Any],
) -> None:
    with pytest.raises(trio.BusyResourceError, match="this task has not yet left"):
        async with conn.transaction():
            rows = conn.cursor().stream("SELECT generate_series(1, 10)")
            await anext(rows)

    assert conn.closed
    await rows.aclose()  # type: ignore[attr-defined]


async def test_two_tasks_cannot_step_through_one_copy(conn: TrioConnection[Any]) -> None:
    # The server passes on nothing until it has eight kilobytes.
    async with conn.cursor().copy(
        "COPY (SELECT repeat('x', 10000) FROM generate_series(1, 2)"
        " UNION ALL SELECT pg_sleep(0.2)::text) TO STDOUT"
    ) as copy:
        assert len(await copy.read()) == 10_001
        lines: list[bytes] = []

        async def read() -> None:
            lines.append(bytes(await copy.read()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError, match="another task is using"):
                await copy.read()
        assert [len(line) for line in lines] == [10_001]
        assert await copy.read() == b"\n"
        assert await copy.read() == b""

    assert conn.idle


# ---- Generators that were left before their end ------------------------------------


async def leave_early(conn: TrioConnection[Any], kind: str) -> None:
    with warnings.catch_warnings():
        # Trio's advice, to use aclosing(); this is what happens to those who do not.
        warnings.simplefilter("ignore", ResourceWarning)
        if kind == "stream":
            async for _ in conn.cursor().stream("SELECT generate_series(1, 100000)"):
                break
        else:
            async for _ in conn.notifies():
                break


@pytest.fixture
async def notified(conn: TrioConnection[Any]) -> TrioConnection[Any]:
    await conn.execute("LISTEN news; NOTIFY news")
    return conn


@pytest.mark.parametrize("kind", ["stream", "notifies"])
async def test_whoever_comes_next_waits_until_trio_has_closed_it(
    notified: TrioConnection[Any], kind: str
) -> None:
    await leave_early(notified, kind)

    assert await (await notified.execute("SELECT 1")).fetchone() == (1,)
    assert notified.idle


@pytest.mark.parametrize("kind", ["stream", "notifies"])
async def test_also_if_that_is_another_task(notified: TrioConnection[Any], kind: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave_early, notified, kind)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_transaction, notified)

    assert notified.idle


@pytest.mark.parametrize("kind", ["stream", "notifies"])
async def test_also_at_the_end_of_a_block(
    notified: TrioConnection[Any], connect: Connect, kind: str
) -> None:
    await notified.execute("CREATE TABLE t (x int)")

    async with notified.transaction():
        await notified.execute("INSERT INTO t VALUES (1)")
        await leave_early(notified, kind)
        if kind == "stream":
            # Cancelling the stream has failed the transaction, as it does under asyncio.
            with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                await notified.execute("SELECT 1")
            raise psycopg.Rollback

    assert notified.idle
    count = await (await (await connect()).execute("SELECT count(*) FROM t")).fetchone()
    assert count == (0 if kind == "stream" else 1,)


# ---- Blocks that end while another task is busy -----------------------------------------


async def test_a_transaction_waits_for_its_turn_to_end(
    conn: TrioConnection[Any], connect: Connect
) -> None:
    await conn.execute("CREATE TABLE t (x int)")

    async def intrude() -> None:
        await conn.execute("INSERT INTO t SELECT 2 FROM pg_sleep(0.2)")

    async with trio.open_nursery() as nursery:
        async with conn.transaction():
            await conn.execute("INSERT INTO t VALUES (1)")
            nursery.start_soon(intrude)
            await wait_all_tasks_blocked()

    assert conn.idle
    rows = await (await connect()).execute("SELECT x FROM t ORDER BY x")
    assert await rows.fetchall() == [(1,), (2,)]


async def test_so_does_a_pipeline(conn: TrioConnection[Any]) -> None:
    answers: list[object] = []

    async def intrude() -> None:
        cursor = await conn.execute("SELECT 2, pg_sleep(0.2)")
        answers.append(await cursor.fetchone())

    async with trio.open_nursery() as nursery:
        async with conn.pipeline():
            mine = await conn.execute("SELECT 1")
            nursery.start_soon(intrude)
            await wait_all_tasks_blocked()

    assert answers == [(2, "")]
    assert await mine.fetchone() == (1,)
    assert conn.idle


async def test_but_not_for_ever(conn: TrioConnection[Any]) -> None:
    conn.cancel_grace = 0.3

    async def intrude() -> None:
        with pytest.raises(
            psycopg.OperationalError, match="closed while this operation was run"
        ):
            await conn.execute("SELECT pg_sleep(30)")

    async with trio.open_nursery() as nursery:
        with pytest.raises(
            psycopg.OperationalError, match=r"another task kept this connection busy for 0\.3 s"
        ):
            async with conn.transaction():
                await conn.execute("SELECT 1")
                nursery.start_soon(intrude)
                await wait_all_tasks_blocked()

    assert conn.closed


async def test_three_tasks_at_random_leave_it_at_rest(conn: TrioConnection[Any]) -> None:
    rng = random.Random()
    await conn.execute("CREATE TABLE ct (k bigint, kind text)")
    refused = 0

    async def intrude() -> None:
        nonlocal refused
        for _ in range(25):
            operation = rng.choice(list(OPERATIONS))
            try:
                with trio.move_on_after(rng.choice([10, rng.random() * 0.01])):
                    await operation(conn, rng.randrange(10**12), rng)
            except trio.BusyResourceError:
                refused += 1
            except psycopg.Error:
                pass  # another task's pipeline or failed transaction was in the way
            await trio.sleep(rng.random() * 0.002)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(intrude)

    assert refused > 0
    assert conn.idle
    assert conn._num_transactions == 0
    assert conn._pipeline is None
    assert await (await conn.execute("SELECT 1")).fetchone() == (1,)
