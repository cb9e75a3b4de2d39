"""The pool, on Trio and on asyncio: the same tests, a real server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import psycopg
import pytest
import sniffio

from awa_trio._pg.connection import TrioConnection
from awa_trio._pg.pool import Pool, PoolClosed, PoolTimeout

IDLE = psycopg.pq.TransactionStatus.IDLE

Test = Callable[[], Awaitable[None]]


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """Run a test in one of the event loops, for a minute at most."""

    def run_in_loop(test: Test) -> None:
        async def bounded() -> None:
            with anyio.fail_after(60):
                await test()

        anyio.run(bounded, backend=request.param)

    return run_in_loop


def connector(dsn: str) -> Callable[[], Awaitable[psycopg.AsyncConnection[Any]]]:
    async def connect() -> psycopg.AsyncConnection[Any]:
        trio = sniffio.current_async_library() == "trio"
        kind: Any = TrioConnection if trio else psycopg.AsyncConnection
        connection: psycopg.AsyncConnection[Any] = await kind.connect(dsn, autocommit=True)
        return connection

    return connect


async def one(connection: psycopg.AsyncConnection[Any], statement: Any = "SELECT 1") -> Any:
    cursor = await connection.execute(statement)
    row = await cursor.fetchone()
    return None if row is None else row[0]


@asynccontextmanager
async def pool_of(dsn: str, size: int, **options: Any) -> AsyncIterator[Pool]:
    async with Pool(connector(dsn), size=size, **options) as pool:
        yield pool
        s = pool.statistics()
        assert (s.borrowed, s.connecting, s.waiting) == (0, 0, 0)
        assert s.idle <= size


def test_a_connection_is_opened_when_first_needed_and_lent_again(dsn: str, run: Any) -> None:
    async def test() -> None:
        async with pool_of(dsn, 3) as pool:
            assert pool.statistics().opened == 0
            pids = set()
            for _ in range(5):
                async with pool.connection() as connection:
                    pids.add(await one(connection, "SELECT pg_backend_pid()"))
            assert len(pids) == 1
            assert pool.statistics().opened == 1

    run(test)


def test_no_more_connections_than_its_size_and_each_lent_to_one_task(
    dsn: str, run: Any
) -> None:
    async def test() -> None:
        async with pool_of(dsn, 3) as pool:
            lent: set[int] = set()
            peak = 0

            async def borrow() -> None:
                nonlocal peak
                for _ in range(5):
                    async with pool.connection() as connection:
                        assert id(connection) not in lent
                        lent.add(id(connection))
                        peak = max(peak, len(lent))
                        assert await one(connection) == 1
                        lent.remove(id(connection))

            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(borrow)
            assert peak == 3
            assert pool.statistics().opened == 3

    run(test)


def test_those_who_wait_are_served_in_order(dsn: str, run: Any) -> None:
    async def test() -> None:
        async with pool_of(dsn, 1) as pool:
            served = []

            async def borrow(n: int) -> None:
                async with pool.connection():
                    served.append(n)
                    await anyio.sleep(0.001)

            async with anyio.create_task_group() as group:
                async with pool.connection():
                    for n in range(10):
                        group.start_soon(borrow, n)
                        while pool.statistics().waiting <= n:
                            await anyio.sleep(0.001)
            assert served == list(range(10))

    run(test)


def test_waiting_is_bounded_and_the_error_says_who_has_them(dsn: str, run: Any) -> None:
    async def test() -> None:
        async with pool_of(dsn, 2, timeout=0.05, name="the pool of the test") as pool:
            async with pool.connection(), pool.connection():
                with pytest.raises(PoolTimeout) as caught:
                    await pool.acquire()
            assert "the pool of the test" in str(caught.value)
            assert "2 of 2 are borrowed" in str(caught.value)
            async with pool.connection() as connection:
                assert await one(connection) == 1

    run(test)


@pytest.mark.parametrize("failed", [False, True])
def test_a_connection_that_comes_back_in_a_transaction_is_rolled_back(
    dsn: str, run: Any, failed: bool
) -> None:
    async def test() -> None:
        async with pool_of(dsn, 1) as pool:
            async with pool.connection() as connection:
                pid = await one(connection, "SELECT pg_backend_pid()")
                await connection.execute("CREATE TABLE t (x int)")
                await connection.execute("BEGIN")
                await connection.execute("INSERT INTO t VALUES (1)")
                if failed:
                    with pytest.raises(psycopg.errors.DivisionByZero):
                        await connection.execute("SELECT 1/0")
            async with pool.connection() as connection:
                assert connection.info.transaction_status == IDLE
                assert await one(connection, "SELECT count(*) FROM t") == 0
                assert await one(connection, "SELECT pg_backend_pid()") == pid

    run(test)


def test_a_connection_whose_server_process_is_gone_is_replaced(dsn: str, run: Any) -> None:
    async def test() -> None:
        async with pool_of(dsn, 2) as pool:
            async with pool.connection() as connection:
                pid = await one(connection, "SELECT pg_backend_pid()")
                async with pool.connection() as killer:
                    await killer.execute("SELECT pg_terminate_backend(%s)", [pid])
                with pytest.raises(psycopg.OperationalError):
                    await one(connection)
            for _ in range(3):
                async with pool.connection() as a, pool.connection() as b:
                    assert await one(a) == await one(b) == 1
            assert pool.statistics().discarded == 1

    run(test)


def test_one_that_died_while_it_rested_is_found_out_before_it_is_lent(
    dsn: str, run: Any
) -> None:
    async def test() -> None:
        async with pool_of(dsn, 1, check_after=0.0) as pool:
            async with pool.connection() as connection:
                pid = await one(connection, "SELECT pg_backend_pid()")
            killer = await connector(dsn)()
            await killer.execute("SELECT pg_terminate_backend(%s)", [pid])
            await killer.close()
            async with pool.connection() as connection:
                assert await one(connection, "SELECT pg_backend_pid()") != pid

    run(test)


def test_once_one_was_found_broken_those_that_rested_prove_that_they_live(
    dsn: str, run: Any
) -> None:
    """A restart of the server costs its users one error, and not one a connection."""

    async def test() -> None:
        async with pool_of(dsn, 6) as pool:
            borrowed = [await pool.acquire() for _ in range(5)]
            pids = [await one(connection, "SELECT pg_backend_pid()") for connection in borrowed]
            alive = borrowed.pop()
            for connection in borrowed:
                await pool.release(connection)
            async with await connector(dsn)() as killer:
                await killer.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::int[]) pid",
                    [pids[:-1]],
                )
            with pytest.raises(psycopg.OperationalError):
                async with pool.connection() as connection:
                    await one(connection)
            await pool.release(alive)
            borrowed = [await pool.acquire() for _ in range(5)]
            for connection in borrowed:
                assert await one(connection) == 1
            assert alive in borrowed
            assert pool.statistics().discarded == 4
            for connection in borrowed:
                await pool.release(connection)

    run(test)


def test_one_that_rested_for_too_long_is_closed(dsn: str, run: Any) -> None:
    async def test() -> None:
        async with pool_of(dsn, 1, max_idle=0.0) as pool:
            async with pool.connection():
                pass
            await anyio.sleep(0.01)
            async with pool.connection() as connection:
                assert await one(connection) == 1
            assert pool.statistics().opened == 2

    run(test)


def test_a_failure_to_connect_is_the_borrowers_and_costs_no_permit(dsn: str, run: Any) -> None:
    async def test() -> None:
        good = connector(dsn)
        failures = 3

        async def connect() -> psycopg.AsyncConnection[Any]:
            nonlocal failures
            await anyio.sleep(0.001)
            if failures:
                failures -= 1
                raise psycopg.OperationalError("no")
            return await good()

        async with Pool(connect, size=1) as pool:
            outcomes = []

            async def borrow() -> None:
                try:
                    async with pool.connection() as connection:
                        outcomes.append(await one(connection))
                except psycopg.OperationalError:
                    outcomes.append("failed")

            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(borrow)
            assert sorted(map(str, outcomes)) == ["1", "1", "1", "failed", "failed", "failed"]
            assert pool.statistics().borrowed == 0

    run(test)


def test_closing_refuses_those_who_wait_and_closes_what_comes_back(dsn: str, run: Any) -> None:
    async def test() -> None:
        pool = Pool(connector(dsn), size=1)
        refused = []

        async def wait() -> None:
            with pytest.raises(PoolClosed):
                await pool.acquire()
            refused.append(True)

        connection = await pool.acquire()
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
            while pool.statistics().waiting < 3:
                await anyio.sleep(0.001)
            await pool.aclose()
        assert len(refused) == 3
        assert await one(connection) == 1
        await pool.release(connection)
        assert connection.closed
        with pytest.raises(PoolClosed):
            await pool.acquire()

    run(test)


@pytest.mark.parametrize("seed", range(3))
def test_cancelled_borrowers_lose_nothing(dsn: str, run: Any, seed: int) -> None:
    """200 tasks cancelled at random moments: waiting, connecting, querying, returning.

    psycopg #509, #1208, #1345: a hand-off that is not atomic loses a connection.
    """

    async def test() -> None:
        chance = random.Random(seed)
        async with pool_of(dsn, 3) as pool:

            async def borrow(patience: float) -> None:
                with anyio.move_on_after(patience):
                    async with pool.connection() as connection:
                        await one(connection, "SELECT pg_sleep(0.002)")

            async with anyio.create_task_group() as group:
                for _ in range(200):
                    group.start_soon(borrow, chance.random() * 0.05)
                    if chance.random() < 0.3:
                        await anyio.sleep(chance.random() * 0.003)
            s = pool.statistics()
            assert (s.borrowed, s.connecting, s.waiting) == (0, 0, 0)
            async with pool.connection() as a, pool.connection() as b, pool.connection() as c:
                assert await one(a) == await one(b) == await one(c) == 1
            assert pool.statistics().idle == 3

    run(test)


def test_a_waiter_cancelled_as_it_is_handed_a_connection_passes_it_on(
    dsn: str, run: Any
) -> None:
    async def test() -> None:
        async with pool_of(dsn, 1) as pool:
            for _ in range(50):
                connection = await pool.acquire()
                scope = anyio.CancelScope()
                got: list[bool] = []

                async def wait(scope: anyio.CancelScope = scope, got: list[bool] = got) -> None:
                    with scope:
                        async with pool.connection():
                            got.append(True)

                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    while not pool.statistics().waiting:
                        await anyio.lowlevel.checkpoint()
                    await pool.release(connection)
                    scope.cancel()
                s = pool.statistics()
                assert (s.borrowed, s.waiting, s.idle) == (0, 0, 1), got

    run(test)


def test_a_pool_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Pool(connector(""), size=0)
