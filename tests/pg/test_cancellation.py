"""What a cancelled operation has done, and what is left of its connection.

The claims, in the order of the tests: `Cancelled` from an autocommit statement means that
it did not happen; what had happened is returned; blocks are left as they must be;
afterwards the connection is idle or closed. The random test at the end tries them all.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import psycopg
import pytest
import trio
from psycopg import pq
from psycopg.pq import TransactionStatus

from awa_trio._pg.connection import TrioConnection

from .conftest import Connect
from .proxy import Proxy, backend_activity

#: Sleeps; if it is cancelled, goes on nevertheless and does what `then` says.
STUBBORN = """
    CREATE FUNCTION stubborn(times int) RETURNS text LANGUAGE plpgsql AS $$
    BEGIN
        FOR i IN 1..times LOOP
            BEGIN
                PERFORM pg_sleep(30);
            EXCEPTION WHEN query_canceled THEN
                NULL;
            END;
        END LOOP;
        {then}
        RETURN 'done';
    END $$
"""


@pytest.fixture
async def table(conn: TrioConnection[Any]) -> TrioConnection[Any]:
    """A connection that sees the table ``t``, and what has been committed to it."""
    await conn.execute("CREATE TABLE t (x bigint)")
    return conn


async def committed(observer: TrioConnection[Any]) -> list[int]:
    rows = await (await observer.execute("SELECT x FROM t ORDER BY x")).fetchall()
    return [x for (x,) in rows]


async def until_active(db: str, application_name: str) -> None:
    """Wait until the server is running a query of this session."""
    with trio.fail_after(20):
        while not await backend_activity(db, application_name):
            await trio.sleep(0.005)


async def assert_usable(connection: TrioConnection[Any]) -> None:
    assert connection.idle
    number = random.randrange(1_000_000)
    assert await (await connection.execute("SELECT %s::int", (number,))).fetchone() == (number,)


# ---- Statements ----------------------------------------------------------------------


async def test_in_a_cancelled_scope_nothing_is_sent(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await connection.execute("INSERT INTO t VALUES (1)")
            pytest.fail("it was sent")
        finally:
            with trio.CancelScope(shield=True):
                await connection.execute("INSERT INTO t VALUES (2)")

    assert scope.cancelled_caught
    assert await committed(table) == [2]
    await assert_usable(connection)


async def test_a_loop_of_statements_in_a_cancelled_scope_ends(
    conn: TrioConnection[Any],
) -> None:
    rounds = 0

    with trio.CancelScope() as scope:
        scope.cancel()
        while rounds < 10:
            rounds += 1
            await conn.execute("SELECT 1")

    assert rounds == 1


async def test_a_statement_in_flight_is_cancelled_on_the_server(
    table: TrioConnection[Any], connect: Connect, db: str, nursery: trio.Nursery
) -> None:
    connection = await connect(application_name="in_flight")

    with trio.CancelScope() as scope:

        async def cancel() -> None:
            await until_active(db, "in_flight")
            scope.cancel()

        nursery.start_soon(cancel)
        await connection.execute("INSERT INTO t SELECT 1 FROM pg_sleep(30)")

    assert scope.cancelled_caught
    assert await backend_activity(db, "in_flight") == []
    assert await committed(table) == []
    await assert_usable(connection)


async def test_what_had_completed_is_returned_and_the_cancellation_strikes_next(
    table: TrioConnection[Any], connect: Connect
) -> None:
    await table.execute(STUBBORN.format(then="INSERT INTO t VALUES (1);").encode())
    connection = await connect()
    answer = None

    with trio.move_on_after(0.1) as scope:
        cursor = await connection.execute("SELECT stubborn(1)")
        answer = await cursor.fetchone()
        await trio.lowlevel.checkpoint()
        pytest.fail("the cancellation was lost")

    assert answer == ("done",)
    assert scope.cancelled_caught
    assert await committed(table) == [1]
    await assert_usable(connection)


async def test_one_request_to_cancel_may_not_be_enough(
    table: TrioConnection[Any], connect: Connect
) -> None:
    await table.execute(STUBBORN.format(then="PERFORM pg_sleep(30);").encode())
    connection = await connect()
    connection.cancel_grace = 20

    with trio.move_on_after(0.1) as scope:
        await connection.execute("SELECT stubborn(2)")

    assert scope.cancelled_caught
    await assert_usable(connection)


async def test_what_failed_by_itself_raises_its_own_error(
    table: TrioConnection[Any], connect: Connect
) -> None:
    await table.execute(STUBBORN.format(then="PERFORM 1/0;").encode())
    connection = await connect()

    with pytest.raises(psycopg.errors.DivisionByZero), trio.move_on_after(0.1):
        await connection.execute("SELECT stubborn(1)")

    await assert_usable(connection)


async def test_a_timeout_of_the_server_is_no_cancellation(conn: TrioConnection[Any]) -> None:
    await conn.execute("SET statement_timeout = '20ms'")

    with trio.CancelScope() as scope, pytest.raises(psycopg.errors.QueryCanceled):
        await conn.execute("SELECT pg_sleep(30)")

    assert not scope.cancelled_caught
    assert conn.idle


@pytest.mark.parametrize("delay", [0.0, 0.0001, 0.0005, 0.001, 0.01, 0.1])
async def test_the_implicit_begin_may_be_cut_anywhere(connect: Connect, delay: float) -> None:
    connection = await connect(autocommit=False)

    with trio.move_on_after(delay) as scope:
        await connection.execute("SELECT pg_sleep(30)")

    assert scope.cancelled_caught
    assert not connection.closed
    await connection.rollback()
    assert connection.idle


async def test_outside_a_block_a_cancelled_statement_fails_its_transaction(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect(autocommit=False)
    await connection.execute("INSERT INTO t VALUES (1)")

    with trio.move_on_after(0.05):
        await connection.execute("SELECT pg_sleep(30)")

    # Rolling back silently would let the next statements commit without this one.
    assert connection.info.transaction_status == TransactionStatus.INERROR
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        await connection.execute("INSERT INTO t VALUES (2)")
    await connection.rollback()
    assert connection.idle


async def test_a_large_statement_may_be_cut_while_it_is_sent(
    connect: Connect, proxy: Proxy, nursery: trio.Nursery
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 20

    async def clear() -> None:
        await trio.sleep(0.3)
        proxy.resume()

    # A jam: our own buffers fill up, and psycopg waits to write.
    proxy.stall()
    nursery.start_soon(clear)
    with trio.move_on_after(0.1) as scope:
        await connection.execute("SELECT pg_sleep(30), length(%s)", ("x" * 20_000_000,))

    assert scope.cancelled_caught
    await assert_usable(connection)


async def test_a_scope_cancelled_twice_over_changes_nothing(conn: TrioConnection[Any]) -> None:
    with trio.CancelScope() as outer:
        with trio.CancelScope() as inner:
            outer.cancel()
            inner.cancel()
            await conn.execute("SELECT pg_sleep(30)")

    assert outer.cancelled_caught
    await assert_usable(conn)


async def test_a_failing_neighbour_cancels_and_the_group_is_plain(
    conn: TrioConnection[Any],
) -> None:
    async def fail() -> None:
        await trio.sleep(0.05)
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as caught:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conn.execute, "SELECT pg_sleep(30)")
            nursery.start_soon(fail)

    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
    await assert_usable(conn)


async def test_an_executemany_happens_as_a_whole_or_not_at_all(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    with trio.move_on_after(0.05) as scope:
        await connection.cursor().executemany(
            "INSERT INTO t SELECT %s FROM pg_sleep(0.01)", [(x,) for x in range(1000)]
        )

    assert scope.cancelled_caught
    assert await committed(table) == []
    await assert_usable(connection)


# ---- Transaction blocks ----------------------------------------------------------------


@pytest.mark.parametrize("block", ["transaction", "pipeline"])
async def test_a_block_is_not_entered_in_a_cancelled_scope(
    conn: TrioConnection[Any], block: str
) -> None:
    entered = 0

    with trio.CancelScope() as scope:
        scope.cancel()
        while entered < 10:
            async with getattr(conn, block)():
                entered += 1

    assert entered == 0
    await assert_usable(conn)


async def test_a_body_that_was_cut_is_rolled_back(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    with trio.move_on_after(0.05) as scope:
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES (1)")
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (2)")
                await connection.execute("SELECT pg_sleep(30)")

    assert scope.cancelled_caught
    assert await committed(table) == []
    await assert_usable(connection)


async def test_so_is_one_that_was_cut_between_statements(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    with trio.move_on_after(0.05) as scope:
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES (1)")
            await trio.sleep_forever()

    assert scope.cancelled_caught
    assert await committed(table) == []
    await assert_usable(connection)


async def test_a_body_that_completed_is_committed(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()
    left = False

    with trio.CancelScope() as scope:
        async with connection.transaction():
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (1)")
                scope.cancel()
        left = True
        await trio.lowlevel.checkpoint()

    assert left
    assert scope.cancelled_caught
    assert await committed(table) == [1]
    await assert_usable(connection)


async def test_a_savepoint_that_was_cut_leaves_its_transaction_going(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    async with connection.transaction():
        await connection.execute("INSERT INTO t VALUES (1)")
        with trio.move_on_after(0.05):
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (2)")
                await connection.execute("SELECT pg_sleep(30)")
        await connection.execute("INSERT INTO t VALUES (3)")

    assert await committed(table) == [1, 3]


@pytest.fixture
async def slow_commits(table: TrioConnection[Any]) -> TrioConnection[Any]:
    """Commits of inserts into ``t`` take as many milliseconds as ``x`` says."""
    await table.execute(
        """
        CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(NEW.x / 1000.0); RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION doze()
        """
    )
    return table


async def test_a_commit_in_flight_is_awaited(
    slow_commits: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()
    left = False

    with trio.move_on_after(0.1) as scope:
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES (400)")
        left = True
        await trio.lowlevel.checkpoint()

    assert left
    assert scope.cancelled_caught
    assert await committed(slow_commits) == [400]
    await assert_usable(connection)


async def test_so_is_one_in_a_pipeline(
    slow_commits: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    with trio.move_on_after(0.1) as scope:
        async with connection.pipeline(), connection.transaction():
            await connection.execute("INSERT INTO t VALUES (400)")
        await trio.lowlevel.checkpoint()

    assert scope.cancelled_caught
    assert await committed(slow_commits) == [400]
    await assert_usable(connection)


async def test_so_is_an_explicit_one(
    slow_commits: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect(autocommit=False)
    left = False

    with trio.CancelScope() as scope:
        await connection.execute("INSERT INTO t VALUES (400)")
        scope.deadline = trio.current_time() + 0.1
        await connection.commit()
        left = True
        await trio.lowlevel.checkpoint()

    assert left
    assert scope.cancelled_caught
    assert await committed(slow_commits) == [400]
    await assert_usable(connection)


async def test_but_not_longer_than_the_grace(
    slow_commits: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()
    connection.cancel_grace = 0.3

    with pytest.raises(psycopg.OperationalError, match="not known"), trio.move_on_after(0.1):
        async with connection.transaction():
            await connection.execute("INSERT INTO t VALUES (2000)")

    assert connection.closed


async def test_an_explicit_commit_is_not_sent_in_a_cancelled_scope(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect(autocommit=False)

    with trio.CancelScope() as scope:
        await connection.execute("INSERT INTO t VALUES (1)")
        scope.cancel()
        await connection.commit()

    assert scope.cancelled_caught
    assert connection.info.transaction_status == TransactionStatus.INTRANS
    with trio.CancelScope() as scope:
        scope.cancel()
        await connection.rollback()  # but this is cleaning up
    assert connection.idle
    assert await committed(table) == []


# ---- Other blocks -----------------------------------------------------------------------


async def test_a_copy_in_that_was_cut_did_not_happen(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    with trio.move_on_after(0.05) as scope:
        async with connection.cursor().copy("COPY t FROM STDIN") as copy:
            while True:
                await copy.write(b"1\n" * 1000)

    assert scope.cancelled_caught
    assert await committed(table) == []
    await assert_usable(connection)


async def test_leaving_a_copy_in_a_cancelled_scope_keeps_the_error_of_its_body(
    conn: TrioConnection[Any],
) -> None:
    await conn.execute("CREATE TABLE t (x bigint)")

    with pytest.raises(ZeroDivisionError), trio.CancelScope() as scope:
        async with conn.cursor().copy("COPY t FROM STDIN") as copy:
            await copy.write(b"1\n")
            scope.cancel()
            raise ZeroDivisionError
    await assert_usable(conn)

    with pytest.raises(ZeroDivisionError), trio.CancelScope() as scope:
        async with conn.cursor().copy(
            "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000)) TO STDOUT"
        ) as copy:
            await copy.read()
            scope.cancel()
            raise ZeroDivisionError
    await assert_usable(conn)


async def test_a_copy_in_whose_body_completed_happened(
    table: TrioConnection[Any], connect: Connect
) -> None:
    connection = await connect()

    with trio.CancelScope() as scope:
        async with connection.cursor().copy("COPY t FROM STDIN") as copy:
            await copy.write(b"1\n2\n")
            scope.cancel()

    assert await committed(table) == [1, 2]
    await assert_usable(connection)


@pytest.mark.parametrize("step", ["before a row", "between rows"])
async def test_a_copy_out_may_be_cut(conn: TrioConnection[Any], step: str) -> None:
    query = "SELECT repeat('x', 1000), pg_sleep(0.001) FROM generate_series(1, 100000)"

    with trio.move_on_after(0.1) as scope:
        async with conn.cursor().copy(f"COPY ({query}) TO STDOUT".encode()) as copy:
            while await copy.read():
                if step == "between rows":
                    await trio.sleep_forever()

    assert scope.cancelled_caught
    await assert_usable(conn)


@pytest.mark.parametrize("step", ["before a row", "between rows"])
async def test_a_stream_may_be_cut(conn: TrioConnection[Any], step: str) -> None:
    query = "SELECT repeat('x', 1000), pg_sleep(0.001) FROM generate_series(1, 100000)"

    with trio.move_on_after(0.1) as scope:
        async with aclosing(conn.cursor().stream(query)) as rows:  # type: ignore[type-var]
            async for _ in rows:
                if step == "between rows":
                    await trio.sleep_forever()

    assert scope.cancelled_caught
    await assert_usable(conn)


async def test_a_server_side_cursor_may_be_cut(conn: TrioConnection[Any]) -> None:
    with trio.move_on_after(0.1) as scope:
        async with conn.transaction(), conn.cursor("c") as cursor:
            await cursor.execute("SELECT pg_sleep(0.001) FROM generate_series(1, 100000)")
            async for _ in cursor:
                pass

    assert scope.cancelled_caught
    await assert_usable(conn)


@pytest.mark.parametrize("where", ["its body", "a fetch", "its end"])
async def test_a_pipeline_may_be_cut(
    table: TrioConnection[Any], connect: Connect, where: str
) -> None:
    connection = await connect()

    with trio.move_on_after(0.1) as scope:
        async with connection.pipeline():
            await connection.execute("INSERT INTO t VALUES (1)")
            cursor = await connection.execute("SELECT pg_sleep(30)")
            await connection.execute("INSERT INTO t VALUES (2)")
            if where == "its body":
                await trio.sleep_forever()
            elif where == "a fetch":
                await cursor.fetchone()

    assert scope.cancelled_caught
    assert await committed(table) == []
    await assert_usable(connection)


async def test_cutting_the_end_of_a_pipeline_keeps_no_secret_from_the_next_statement(
    conn: TrioConnection[Any],
) -> None:
    async with conn.pipeline():
        with trio.move_on_after(0.1) as scope:
            cursor = await conn.execute("SELECT pg_sleep(30)")
            await cursor.fetchone()
        assert scope.cancelled_caught

    await assert_usable(conn)


async def test_a_cancellation_that_is_heard_of_only_at_the_end_is_one_nevertheless(
    connect: Connect, proxy: Proxy, nursery: trio.Nursery
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 20

    async def clear() -> None:
        await trio.sleep(0.3)
        proxy.resume()

    with trio.move_on_after(0.1) as scope:
        async with connection.pipeline():
            # Cut while it is sent; it is sent to its end, and its answer, most often, read
            # by the end of the pipeline.
            proxy.stall()
            nursery.start_soon(clear)
            await connection.execute("SELECT pg_sleep(30), length(%s)", ("x" * 20_000_000,))

    assert scope.cancelled_caught
    await assert_usable(connection)


async def test_what_a_pipeline_never_heard_is_not_held_against_a_later_stream(
    connect: Connect, proxy: Proxy
) -> None:
    connection = await connect(proxy.dsn)
    connection._cancel_unheard = True  # a pipeline's statement ended before its cancellation
    proxy.latency = 0.01

    with trio.move_on_after(0.1) as scope:
        query = "SELECT repeat('x', 1000), pg_sleep(0.001) FROM generate_series(1, 100000)"
        async with aclosing(connection.cursor().stream(query)) as rows:  # type: ignore[type-var]
            async for _ in rows:
                pass

    assert scope.cancelled_caught
    await assert_usable(connection)


# ---- Ctrl-C -------------------------------------------------------------------------------

INTERRUPTED = """
import sys, trio
from awa_trio._pg.connection import TrioConnection

async def main():
    c = await TrioConnection.connect(sys.argv[1], autocommit=True, application_name=sys.argv[2])
    try:
        {body}
    except KeyboardInterrupt:
        print("idle" if c.idle else "closed" if c.closed else c.info.transaction_status)
        if c.idle:
            await c.execute("SELECT 1")
        raise
    finally:
        c.close_nowait()

trio.run(main)
"""
BODIES = {
    "query": 'await c.execute("SELECT pg_sleep(30)")',
    "transaction": 'async with c.transaction(): await c.execute("SELECT pg_sleep(30)")',
    "copy": 'async with c.cursor().copy("COPY (SELECT pg_sleep(30)) TO STDOUT") as x: await x.read()',
    "pipeline": 'async with c.pipeline(): await (await c.execute("SELECT pg_sleep(30)")).fetchone()',
    "large": 'await c.execute("SELECT pg_sleep(30), length(%s)", ("x" * 10_000_000,))',
    "child": """async with trio.open_nursery() as nursery:
            nursery.start_soon(c.execute, "SELECT pg_sleep(30)")""",
}


@pytest.mark.parametrize(
    "kind",
    [
        *("query", "transaction"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("copy", "pipeline", "large", "child")),
    ],
)  # fmt: skip
async def test_an_interrupt_cancels_on_the_server_and_is_raised(db: str, kind: str) -> None:
    name = f"interrupted_{kind}"
    program = INTERRUPTED.format(body=BODIES[kind])
    if kind == "child":
        # Inside a nursery, Trio wraps it, as it wraps everything.
        program = program.replace("except Key", "except* Key")
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", program, db, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None

    await until_active(db, name)
    process.send_signal(signal.SIGINT)
    with trio.fail_after(20):
        out = b"".join([chunk async for chunk in process.stdout])
        err = b"".join([chunk async for chunk in process.stderr])
        await process.wait()

    # A COPY that the server has begun is cancelled, but the block that would drain it was
    # never entered.
    assert out == (b"closed\n" if kind == "copy" else b"idle\n"), err.decode()
    assert b"KeyboardInterrupt" in err
    assert await backend_activity(db, name) == []


# ---- Asking the server ----------------------------------------------------------------------


async def test_cancel_safe_has_its_timeout(proxy: Proxy, connect: Connect) -> None:
    connection = await connect(proxy.dsn)
    proxy.stall()

    with pytest.raises(psycopg.errors.CancellationTimeout):
        await connection.cancel_safe(timeout=0.1)

    await connection.close()
    await connection.cancel_safe()  # nothing to cancel


async def test_a_request_that_fails_is_no_error_of_the_statement(
    conn: TrioConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = 0
    request = TrioConnection._request_cancel

    async def fail_once(self: TrioConnection[Any]) -> None:
        nonlocal requests
        requests += 1
        if requests == 1:
            raise psycopg.OperationalError("no route to host")
        await request(self)

    monkeypatch.setattr(TrioConnection, "_request_cancel", fail_once)
    with trio.move_on_after(0.05) as scope:
        await conn.execute("SELECT pg_sleep(30)")

    assert scope.cancelled_caught
    assert requests == 2
    await assert_usable(conn)


@pytest.mark.parametrize("implementation", ["python", "binary"])
async def test_an_old_libpq_never_blocks_the_loop(
    conn: TrioConnection[Any], monkeypatch: pytest.MonkeyPatch, implementation: str
) -> None:
    monkeypatch.setattr(psycopg.capabilities, "has_cancel_safe", lambda: False)
    monkeypatch.setattr(pq, "__impl__", implementation)

    with trio.move_on_after(0.05) as scope:
        await conn.execute("SELECT pg_sleep(30)")

    assert scope.cancelled_caught
    if implementation == "python":
        # In a thread, because ctypes lets go of the GIL...
        await assert_usable(conn)
    else:
        # ...which psycopg's C code does not: then rather no connection.
        assert conn.closed


# ---- At random ---------------------------------------------------------------------------

Operation: TypeAlias = Callable[[TrioConnection[Any], int, random.Random], Awaitable[None]]


async def insert(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    await c.execute(
        "INSERT INTO ct SELECT %s, 'insert' FROM pg_sleep(%s)", (key, rng.random() * 0.006)
    )


async def transact(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    async with c.transaction():
        await c.execute("INSERT INTO ct VALUES (%s, 'transact')", (key,))
        await c.execute("SELECT pg_sleep(%s)", (rng.random() * 0.004,))
        try:
            async with c.transaction():
                await c.execute("INSERT INTO ct VALUES (%s, 'savepoint')", (key + 1,))
                if rng.random() < 0.5:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        await c.execute("SELECT pg_sleep(%s)", (rng.random() * 0.002,))


async def pipe(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    async with c.pipeline(), c.transaction():
        for i in range(5):
            await c.execute("INSERT INTO ct VALUES (%s, 'pipe')", (key + i,))
        await (await c.execute("SELECT pg_sleep(%s)", (rng.random() * 0.004,))).fetchone()


async def pipe_autocommit(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    async with c.pipeline():
        for i in range(5):
            await c.execute(
                "INSERT INTO ct SELECT %s, 'pipe_autocommit' FROM pg_sleep(%s)",
                (key + i, rng.random() * 0.001),
            )


async def insert_many(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    await c.cursor().executemany(
        "INSERT INTO ct VALUES (%s, 'insert_many')", [(key + i,) for i in range(60)]
    )


async def copy_in(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    binary = rng.random() < 0.5
    async with c.cursor().copy(
        "COPY ct FROM STDIN (FORMAT binary)" if binary else "COPY ct FROM STDIN"
    ) as copy:
        copy.set_types(["int8", "text"])
        for i in range(300):
            await copy.write_row((key + i, "copy_in"))
            if i % 50 == 0:
                await trio.sleep(rng.random() * 0.001)


async def copy_out(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    lines = 0
    async with c.cursor().copy(
        "COPY (SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g) TO STDOUT"
    ) as copy:
        async for _ in copy:
            lines += 1
    assert lines == 20_000


async def stream(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    query = "SELECT g, repeat('x', 100) FROM generate_series(1, 3000) g"
    async with aclosing(c.cursor().stream(query)) as rows:  # type: ignore[type-var]
        assert len([row async for row in rows]) == 3000


async def server_side(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    async with c.transaction(), c.cursor(f"c{key}") as cursor:
        await cursor.execute("SELECT g, pg_sleep(0.0001) FROM generate_series(1, 100) g")
        cursor.itersize = 10
        assert len([row async for row in cursor]) == 100


async def listen(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    await c.execute("LISTEN x")
    async with aclosing(c.notifies(timeout=0.003)) as notifies:
        async for _ in notifies:
            pass


async def select(c: TrioConnection[Any], key: int, rng: random.Random) -> None:
    cursor = await c.execute("SELECT %s::bigint, pg_sleep(%s)", (key, rng.random() * 0.003))
    assert await cursor.fetchone() == (key, "")


#: With the number of rows that each inserts if it happens.
OPERATIONS: dict[Operation, int] = {
    insert: 1,
    transact: 1,
    pipe: 5,
    pipe_autocommit: 5,
    insert_many: 60,
    copy_in: 300,
    copy_out: 0,
    stream: 0,
    server_side: 0,
    listen: 0,
    select: 0,
}


async def cancel_at_random(
    connect: Connect, rounds: int, seed: int
) -> Counter[tuple[str, bool]]:
    rng = random.Random(seed)
    connection, observer = await connect(), await connect()
    await observer.execute("CREATE TABLE ct (k bigint PRIMARY KEY, kind text)")
    seen: Counter[tuple[str, bool]] = Counter()
    for round in range(rounds):
        key = round * 1000
        operation = rng.choice(list(OPERATIONS))
        name = operation.__name__
        happened = False
        with trio.move_on_after(rng.random() * rng.choice([0.001, 0.004, 0.012])):
            await operation(connection, key, rng)
            happened = True
        seen[name, happened] += 1

        # Never closed here, at rest, and no stray cancellation strikes the next statement.
        told = f"round {round} of seed {seed}: {name}, {happened=}"
        assert connection.idle, told
        assert connection._num_transactions == 0, told
        assert connection._pipeline is None, told
        cursor = await connection.execute("SELECT %s::bigint", (key,))
        assert await cursor.fetchone() == (key,), told
        # The server has what we were told, neither more nor less.
        rows = await observer.execute(
            "SELECT count(*) FROM ct WHERE k >= %s AND k < %s AND kind = %s",
            (key, key + 1000, name),
        )
        row = await rows.fetchone()
        assert row is not None
        if happened:
            assert row == (OPERATIONS[operation],), told
        elif operation is pipe_autocommit:
            # A pipeline is not a transaction: what was sent before the cut is committed.
            assert row < (5,), told
        else:
            assert row == (0,), told
    return seen


async def test_cancelled_at_random(connect: Connect) -> None:
    seen = await cancel_at_random(connect, 250, seed=random.randrange(1000))

    # Both outcomes were met, or the test has tested nothing.
    assert sum(n for (_, happened), n in seen.items() if happened) > 10
    assert sum(n for (_, happened), n in seen.items() if not happened) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_cancelled_at_random_for_long(connect: Connect, seed: int) -> None:
    seen = await cancel_at_random(connect, 1500, seed)

    for operation in OPERATIONS:
        name = operation.__name__
        assert seen[name, False] > 0, name
