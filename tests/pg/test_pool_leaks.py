"""Thousands of acquires and transactions, cut at random or whose connection dies, leave the
pool whole, and the server without anything that they began."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import psycopg
import pytest
import sniffio
from psycopg import pq
from psycopg.conninfo import make_conninfo

from awa_trio._pg.pool import Pool

from .test_pool import connector, one, run  # noqa: F401, a fixture

Connection: TypeAlias = "psycopg.AsyncConnection[Any]"
Operation: TypeAlias = Callable[[Connection, int, random.Random], Awaitable[None]]

SIZE = 4
TASKS = 40


async def query(connection: Connection, key: int, chance: random.Random) -> None:
    await one(connection, f"SELECT pg_sleep({chance.random() * 0.004})")


async def transaction(connection: Connection, key: int, chance: random.Random) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES (%s)", [key])
        await one(connection, f"SELECT pg_sleep({chance.random() * 0.002})")


async def savepoint(connection: Connection, key: int, chance: random.Random) -> None:
    async with connection.transaction():
        try:
            async with connection.transaction():
                await connection.execute("SELECT 1 / %s", [chance.randrange(2)])
        except psycopg.errors.DivisionByZero:
            pass
        await connection.execute("INSERT INTO t VALUES (%s)", [key])


async def lock(connection: Connection, key: int, chance: random.Random) -> None:
    """Wait for a lock that another has, or have it."""
    async with connection.transaction():
        await one(connection, f"SELECT pg_advisory_xact_lock({chance.randrange(2)})")
        await connection.execute("INSERT INTO t VALUES (%s)", [key])


async def left_open(connection: Connection, key: int, chance: random.Random) -> None:
    """A transaction begun by hand, and not ended."""
    await connection.execute("BEGIN")
    await one(connection, f"SELECT pg_advisory_xact_lock({chance.randrange(2)})")


async def failing(connection: Connection, key: int, chance: random.Random) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES (%s)", [key])
        await connection.execute("SELECT 1 / 0")


async def closing(connection: Connection, key: int, chance: random.Random) -> None:
    await connection.close()


async def dying(connection: Connection, key: int, chance: random.Random) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES (%s)", [key])
        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


#: With how often each comes, of those that are drawn.
OPERATIONS: dict[Operation, int] = {
    query: 6,
    transaction: 8,
    savepoint: 4,
    lock: 6,
    left_open: 2,
    failing: 2,
    closing: 1,
    dying: 1,
}

#: What is looked at from outside, of the sessions of one pool.
SESSIONS = """
    SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%%'),
           (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid IN (
                   SELECT pid FROM pg_stat_activity WHERE application_name = %(name)s))
      FROM pg_stat_activity WHERE application_name = %(name)s
"""


async def fuzz(db: str, name: str, bursts: int, seed: int) -> Counter[str]:
    """Bursts of tasks on one pool, which is whole after each; what became of the tasks, and how
    many rows are there that nobody was told of."""
    chance = random.Random(seed)
    dsn = make_conninfo(db, application_name=name)
    connect = connector(dsn)
    seen: Counter[str] = Counter()
    committed: set[int] = set()
    unknown: set[int] = set()

    async def unreliable() -> Connection:
        if chance.random() < 0.1:
            raise psycopg.OperationalError("the server cannot be reached")
        return await connect()

    # psycopg's own connections take longer to be cut, and are closed if they are cut again.
    scale = 1 if sniffio.current_async_library() == "trio" else 5

    async def task(pool: Pool, key: int) -> None:
        [operation] = chance.choices(list(OPERATIONS), [*OPERATIONS.values()])
        done = False
        try:
            patience = chance.random() * chance.choice([0.002, 0.01, 0.05])
            with anyio.move_on_after(patience * scale):
                async with pool.connection() as connection:
                    await operation(connection, key, chance)
                    done = True
        except psycopg.errors.DivisionByZero:
            seen["failed"] += 1
        except psycopg.Error:
            seen["lost"] += 1
            unknown.add(key)
        else:
            seen["done" if done else "cut"] += 1
        if done and operation in (transaction, savepoint, lock):
            committed.add(key)

    async with Pool(connector(db), size=1, name="looking on") as looking:
        async with Pool(unreliable, size=SIZE, name="fuzzed") as pool:
            for burst in range(bursts):
                told = f"burst {burst} of seed {seed}"
                async with anyio.create_task_group() as group:
                    for n in range(TASKS):
                        group.start_soon(task, pool, burst * TASKS + n)
                        if chance.random() < 0.2:
                            await anyio.sleep(chance.random() * 0.004)
                s = pool.statistics()
                assert (s.borrowed, s.connecting, s.waiting) == (0, 0, 0), told
                assert s.idle <= SIZE, told
                for connection, _ in pool._idle:
                    assert connection.info.transaction_status == pq.TransactionStatus.IDLE
                # A server process that was told to end takes its time.
                want = (s.idle, 0, 0)
                with anyio.move_on_after(10):
                    while (found := await _sessions(looking, name)) != want:
                        await anyio.sleep(0.005)
                assert found == want, told
        async with looking.connection() as connection:
            rows = await (await connection.execute("SELECT x FROM t")).fetchall()
    kept = {x for (x,) in rows}
    assert committed <= kept
    return seen + Counter(untold=len(kept - committed - unknown))


async def _sessions(pool: Pool, name: str) -> tuple[int, int, int]:
    async with pool.connection() as connection:
        cursor = await connection.execute(SESSIONS, {"name": name})
        [(sessions, in_transaction, locks)] = await cursor.fetchall()
    return sessions, in_transaction, locks


async def check(db: str, bursts: int, seed: int) -> None:
    async with Pool(connector(db), size=1) as pool, pool.connection() as connection:
        await connection.execute("DROP TABLE IF EXISTS t")
        await connection.execute("CREATE TABLE t (x bigint)")
    seen = await fuzz(db, f"fuzzed {seed}", bursts, seed)
    print(f"seed {seed}: {bursts * TASKS} tasks, {dict(seen)}")
    assert min(seen[what] for what in ("done", "cut", "lost")) > bursts / 4, seen
    # On Trio a transaction that was cut did not happen; on asyncio it may have.
    if sniffio.current_async_library() == "trio":
        assert seen["untold"] == 0


def test_cut_at_random_nothing_leaks(db: str, run: Any) -> None:  # noqa: F811
    async def test() -> None:
        await check(db, 40, seed=1)

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_cut_at_random_for_long_nothing_leaks(db: str, run: Any, seed: int) -> None:  # noqa: F811
    async def test() -> None:
        await check(db, 100, seed)

    run(test)
