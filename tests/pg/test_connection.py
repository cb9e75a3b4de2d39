"""A connection: opening, closing, what it tells about itself, and where it refuses to work."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, assert_type

import psycopg
import pytest
import trio
from psycopg.adapt import Dumper
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, class_row, dict_row, namedtuple_row, scalar_row
from psycopg.types.json import Jsonb
from trio.testing import assert_checkpoints

from awa_trio._core.errors import WrongEventLoop
from awa_trio._pg import connection_drive
from awa_trio._pg.connection import TrioConnection

from .conftest import Connect


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


# ---- Opening and closing -------------------------------------------------------


async def test_it_connects_and_answers(db: str) -> None:
    connection = await TrioConnection.connect(db)

    cursor = await connection.execute("SELECT 1 + %s, current_database()", (1,))

    assert await cursor.fetchone() == (2, connection.info.dbname)
    await connection.close()


async def test_keywords_complete_the_connection_string(connect: Connect) -> None:
    connection = await connect(application_name="whoever", client_encoding="latin1")

    cursor = await connection.execute("SHOW application_name; SHOW client_encoding")

    assert await cursor.fetchone() == ("whoever",)
    assert cursor.nextset()
    assert await cursor.fetchone() == ("LATIN1",)


async def test_a_string_that_makes_no_sense_is_refused(db: str) -> None:
    with pytest.raises(psycopg.ProgrammingError):
        await TrioConnection.connect("dbname=a nonsense")
    with pytest.raises(psycopg.ProgrammingError, match="connect_timeout"):
        await TrioConnection.connect(db, connect_timeout="soon")


async def test_a_server_that_refuses_is_an_error_of_its_own(db: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        await TrioConnection.connect(db, dbname="no_such_database")


async def test_leaving_the_block_commits_and_closes(connect: Connect) -> None:
    observer = await connect()
    await observer.execute("CREATE TABLE t (x int)")

    async with await connect(autocommit=False) as connection:
        await connection.execute("INSERT INTO t VALUES (1)")

    assert connection.closed
    assert not connection.broken
    assert await (await observer.execute("SELECT x FROM t")).fetchall() == [(1,)]


async def test_leaving_the_block_by_an_exception_rolls_back_and_closes(
    connect: Connect,
) -> None:
    observer = await connect()
    await observer.execute("CREATE TABLE t (x int)")

    with pytest.raises(ZeroDivisionError):
        async with await connect(autocommit=False) as connection:
            await connection.execute("INSERT INTO t VALUES (1)")
            raise ZeroDivisionError

    assert connection.closed
    assert await (await observer.execute("SELECT x FROM t")).fetchall() == []


async def test_a_commit_that_fails_still_closes(connect: Connect) -> None:
    observer = await connect()
    await observer.execute("CREATE TABLE t (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    with pytest.raises(psycopg.errors.UniqueViolation):
        async with await connect(autocommit=False) as connection:
            await connection.execute("INSERT INTO t VALUES (1), (1)")

    assert connection.closed


async def test_a_commit_in_a_cancelled_scope_is_not_sent_and_still_closes(
    connect: Connect,
) -> None:
    observer = await connect()
    await observer.execute("CREATE TABLE t (x int)")

    with trio.CancelScope() as scope:
        async with await connect(autocommit=False) as connection:
            await connection.execute("INSERT INTO t VALUES (1)")
            scope.cancel()

    assert scope.cancelled_caught
    assert connection.closed
    assert await (await observer.execute("SELECT x FROM t")).fetchall() == []


async def test_a_closed_connection_says_so(conn: TrioConnection[Any]) -> None:
    await conn.close()
    await conn.close()

    assert conn.closed
    assert not conn.broken
    with pytest.raises(psycopg.OperationalError, match="the connection is closed"):
        await conn.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="the connection is closed"):
        await conn.commit()
    with pytest.raises(psycopg.OperationalError, match="the connection is closed"):
        async with conn.transaction():
            pytest.fail("a closed connection began a transaction")


async def test_close_closes_in_a_cancelled_scope(conn: TrioConnection[Any]) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await conn.close()

    assert scope.cancelled_caught
    assert conn.closed


async def test_a_connection_may_be_closed_after_trio_has_ended(db: str) -> None:
    async def open_one() -> TrioConnection:
        return await TrioConnection.connect(db)

    def elsewhere() -> bool:
        connection = trio.run(open_one)
        asyncio.run(connection.close())
        return connection.closed

    assert await trio.to_thread.run_sync(elsewhere)


async def test_one_that_nobody_closed_warns_and_goes_at_once(db: str) -> None:
    before = descriptors()
    connection: TrioConnection | None = await TrioConnection.connect(db)
    assert not descriptors() <= before

    with pytest.warns(ResourceWarning, match="deleted while still open"):
        connection = None

    assert connection is None
    assert descriptors() <= before


async def test_it_leaves_neither_descriptors_nor_objects(db: str) -> None:
    async def use() -> None:
        async with await TrioConnection.connect(db, autocommit=True) as connection:
            for _ in range(20):
                with trio.CancelScope() as scope:
                    scope.deadline = trio.current_time() + 0.001
                    await connection.execute("SELECT pg_sleep(5)")
                async with connection.transaction():
                    await connection.execute("SELECT 1")
                with pytest.raises(psycopg.errors.DivisionByZero):
                    await connection.execute("SELECT 1/0")

    for _ in range(2):
        await use()
    gc.collect()
    objects, files = len(gc.get_objects()), descriptors()
    for _ in range(3):
        await use()
    gc.collect()

    assert descriptors() <= files
    # Sixty rounds; one object left by each would show.
    assert len(gc.get_objects()) - objects < 40


# ---- What it makes, and the types of that -----------------------------------------


async def test_rows_are_tuples_unless_a_factory_makes_them(db: str) -> None:
    async with await TrioConnection.connect(db) as connection:
        assert_type(connection, TrioConnection[tuple[Any, ...]])
        row = await (await connection.execute("SELECT 1 AS a")).fetchone()
        assert_type(row, tuple[Any, ...] | None)
        assert row == (1,)


async def test_the_row_factory_makes_every_row_and_its_type(db: str) -> None:
    async with await TrioConnection.connect(db, row_factory=dict_row) as connection:
        assert_type(connection, TrioConnection[DictRow])
        cursor = await connection.execute("SELECT 1 AS a")
        row = await cursor.fetchone()
        assert_type(row, DictRow | None)
        assert row == {"a": 1}

        tuples = connection.cursor(row_factory=namedtuple_row)
        await tuples.execute("SELECT 2 AS b")
        named = await tuples.fetchone()
        assert repr(named) == "Row(b=2)"


async def test_row_factories_for_classes_and_scalars(conn: TrioConnection[Any]) -> None:
    class Point:
        def __init__(self, x: int, y: int) -> None:
            self.sum = x + y

    points = conn.cursor(row_factory=class_row(Point))
    await points.execute("SELECT 1 AS x, 2 AS y")
    point = await points.fetchone()
    assert_type(point, Point | None)
    assert point is not None
    assert point.sum == 3

    scalars = conn.cursor(row_factory=scalar_row)
    await scalars.execute("SELECT generate_series(1, 3)")
    assert await scalars.fetchall() == [1, 2, 3]


async def test_a_subclass_is_what_connect_returns(db: str) -> None:
    class Patient(TrioConnection[tuple[Any, ...]]):
        cancel_grace = 60.0

    async with await Patient.connect(db) as connection:
        assert_type(connection, Patient)
        assert connection.cancel_grace == 60.0


async def test_cursor_factories(connect: Connect) -> None:
    raw = await connect(cursor_factory=psycopg.AsyncRawCursor)
    assert await (await raw.execute("SELECT $1::int + 1", [1])).fetchone() == (2,)

    client = await connect(cursor_factory=psycopg.AsyncClientCursor)
    cursor = client.cursor()
    assert isinstance(cursor, psycopg.AsyncClientCursor)
    assert cursor.mogrify("SELECT %s", ["it's"]) == "SELECT 'it''s'"
    assert await (await client.execute("SELECT %s", ["it's"])).fetchone() == ("it's",)


async def test_the_context_lends_its_adapters(connect: Connect) -> None:
    class Celsius:
        pass

    class CelsiusDumper(Dumper):
        oid = psycopg.adapters.types["float8"].oid

        def dump(self, obj: Celsius) -> bytes:
            return b"36.6"

    lender = await connect()
    lender.adapters.register_dumper(Celsius, CelsiusDumper)
    connection = await connect(context=lender)

    assert await (await connection.execute("SELECT %s", (Celsius(),))).fetchone() == (36.6,)
    with pytest.raises(psycopg.ProgrammingError, match="cannot adapt type 'Celsius'"):
        await (await connect()).execute("SELECT %s", (Celsius(),))


@pytest.mark.parametrize("binary", [False, True])
async def test_values_come_back_as_they_went(conn: TrioConnection[Any], binary: bool) -> None:
    values = (
        *(12345678901234567890, "it's ünïcode", b"\x00\xff", [1, None, 3], True, None),
        *({"a": [1, None]}, uuid.UUID(int=7), datetime(2026, 1, 2, 3, tzinfo=UTC)),
    )
    sent = [Jsonb(value) if isinstance(value, dict) else value for value in values]

    cursor = await conn.execute(
        "SELECT %s::numeric, %s, %s, %s::int4[], %s, %s::text, %s, %s, %s", sent, binary=binary
    )

    assert await cursor.fetchone() == values


async def test_settings_of_the_transactions_to_come(connect: Connect) -> None:
    connection = await connect(autocommit=False)
    await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
    await connection.set_read_only(True)
    await connection.set_deferrable(True)

    cursor = await connection.execute(
        "SELECT current_setting('transaction_isolation'),"
        " current_setting('transaction_read_only'), current_setting('transaction_deferrable')"
    )

    assert await cursor.fetchone() == ("serializable", "on", "on")
    with pytest.raises(psycopg.ProgrammingError, match="can't change"):
        await connection.set_autocommit(True)
    await connection.rollback()
    await connection.set_autocommit(True)
    assert connection.autocommit
    with pytest.raises(AttributeError, match="set_autocommit"):
        connection.autocommit = False


async def test_without_autocommit_the_first_statement_begins_a_transaction(
    connect: Connect,
) -> None:
    connection = await connect(autocommit=False)
    observer = await connect()

    await connection.execute("CREATE TABLE t (x int)")
    assert connection.info.transaction_status == TransactionStatus.INTRANS
    await connection.commit()
    await connection.execute("INSERT INTO t VALUES (1)")
    await connection.rollback()

    assert await (await observer.execute("SELECT count(*) FROM t")).fetchone() == (0,)


async def test_notices_reach_their_handlers(conn: TrioConnection[Any]) -> None:
    heard: list[str | None] = []
    conn.add_notice_handler(lambda notice: heard.append(notice.message_primary))

    await conn.execute("DO $$ BEGIN RAISE NOTICE 'mind the gap'; END $$")

    assert heard == ["mind the gap"]


# ---- idle -----------------------------------------------------------------------


async def test_idle_means_between_operations(connect: Connect) -> None:
    connection = await connect(autocommit=False)
    seen = {"fresh": connection.idle}

    await connection.execute("SELECT 1")
    seen["in a transaction"] = connection.idle
    await connection.rollback()
    seen["rolled back"] = connection.idle
    async with connection.pipeline():
        seen["in a pipeline"] = connection.idle
    async with connection.cursor().copy("COPY (SELECT 1) TO STDOUT") as copy:
        seen["in a copy"] = connection.idle
        assert [bytes(line) async for line in copy] == [b"1\n"]
    await connection.commit()
    async with connection.transaction():
        seen["in a transaction block"] = connection.idle
    with pytest.raises(psycopg.errors.SyntaxError):
        await connection.execute("SELEKT")
    seen["in a failed transaction"] = connection.idle
    await connection.rollback()
    seen["rolled back again"] = connection.idle
    await connection.close()
    seen["closed"] = connection.idle

    assert {when for when, idle in seen.items() if idle} == {
        *("fresh", "rolled back", "rolled back again"),
    }


async def test_an_idle_connection_may_be_handed_to_another_task(
    conn: TrioConnection[Any],
) -> None:
    answers: list[object] = []

    async def ask(number: int) -> None:
        answers.append(await (await conn.execute("SELECT %s", (number,))).fetchone())

    for number in range(3):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, number)

    assert answers == [(0,), (1,), (2,)]


# ---- Checkpoints -------------------------------------------------------------------


async def test_connecting_is_a_checkpoint(db: str) -> None:
    with assert_checkpoints():
        connection = await TrioConnection.connect(db)
    with assert_checkpoints(), pytest.raises(psycopg.OperationalError):
        await TrioConnection.connect("host=/nonexistent/directory")
    with assert_checkpoints(), pytest.raises(psycopg.ProgrammingError):
        await TrioConnection.connect("nonsense")
    with assert_checkpoints():
        await connection.close()
    with assert_checkpoints():
        await connection.close()


async def test_statements_are_checkpoints(connect: Connect) -> None:
    connection = await connect(autocommit=False)

    with assert_checkpoints():
        await connection.commit()  # nothing to commit
    with assert_checkpoints():
        await connection.execute("SELECT 1")
    with assert_checkpoints():
        await connection.commit()
    with assert_checkpoints(), pytest.raises(psycopg.errors.DivisionByZero):
        await connection.execute("SELECT 1/0")
    await connection.rollback()
    with assert_checkpoints():
        await connection.set_autocommit(True)
    with assert_checkpoints():
        async with connection.transaction():
            pass
    with assert_checkpoints():
        async with connection.pipeline():
            pass
    with assert_checkpoints():
        await connection.cursor().executemany("SELECT %s", [(1,), (2,)])
    with assert_checkpoints():
        await connection.cancel_safe()
    with assert_checkpoints():
        async with await connect():
            pass


@pytest.mark.parametrize("block", ["copy", "pipeline"])
async def test_steps_that_need_not_wait_yield_now_and_then(
    conn: TrioConnection[Any], block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    yields = 0

    def counted(checkpoint: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def wrapper() -> None:
            nonlocal yields
            yields += 1
            await checkpoint()

        return wrapper

    # Every 5 ms, really; for this test, every time.
    monkeypatch.setattr(connection_drive, "MAX_BUSY", 0.0)
    for name in ("checkpoint", "cancel_shielded_checkpoint"):
        monkeypatch.setattr(connection_drive, name, counted(getattr(trio.lowlevel, name)))

    await conn.execute("CREATE TEMP TABLE t (x int, y text)")
    if block == "copy":
        async with conn.cursor().copy("COPY t FROM STDIN") as copy:
            yields = 0
            for _ in range(100):
                await copy.write(b"1\tabc\n")
            assert yields >= 100
    else:
        async with conn.pipeline():
            yields = 0
            for _ in range(100):
                await conn.execute("SELECT 1")
            assert yields >= 100


# ---- The wrong event loop ------------------------------------------------------------


def test_asyncio_is_refused_in_one_sentence(db: str) -> None:
    with pytest.raises(
        WrongEventLoop, match=r"asyncio is running here; use psycopg\.AsyncConn"
    ):
        asyncio.run(TrioConnection.connect(db))


def test_no_event_loop_is_refused_in_one_sentence(db: str) -> None:
    coroutine = TrioConnection.connect(db)
    with pytest.raises(
        WrongEventLoop, match=r"no Trio task is running here; call it from inside"
    ):
        coroutine.send(None)


def test_constructing_one_outside_trio_is_refused(db: str) -> None:
    with psycopg.connect(db) as other, pytest.raises(WrongEventLoop, match="no Trio task"):
        TrioConnection(other.pgconn)


async def _execute(connection: TrioConnection[Any]) -> None:
    await connection.execute("SELECT 1")


async def _transaction(connection: TrioConnection[Any]) -> None:
    async with connection.transaction():
        pass


async def _pipeline(connection: TrioConnection[Any]) -> None:
    async with connection.pipeline():
        pass


async def _notifies(connection: TrioConnection[Any]) -> None:
    async for _ in connection.notifies(timeout=0):
        pass


async def _stream(connection: TrioConnection[Any]) -> None:
    async for _ in connection.cursor().stream("SELECT 1"):
        pass


async def _copy(connection: TrioConnection[Any]) -> None:
    async with connection.cursor().copy("COPY (SELECT 1) TO STDOUT"):
        pass


async def _cancel_safe(connection: TrioConnection[Any]) -> None:
    await connection.cancel_safe()


@pytest.mark.parametrize(
    "use", [_execute, _transaction, _pipeline, _notifies, _stream, _copy, _cancel_safe]
)
async def test_using_one_under_asyncio_is_refused_and_harmless(
    conn: TrioConnection[Any], use: Callable[[TrioConnection[Any]], Awaitable[None]]
) -> None:
    async def wrapped() -> None:
        await use(conn)

    def elsewhere() -> None:
        with pytest.raises(WrongEventLoop, match="asyncio is running here"):
            asyncio.run(wrapped())

    await trio.to_thread.run_sync(elsewhere)

    assert conn.idle
    assert await (await conn.execute("SELECT 1")).fetchone() == (1,)


TRIO_ASYNCIO = """
import sys, trio, trio_asyncio
from awa_trio._core.errors import WrongEventLoop
from awa_trio._pg import connection_drive
from awa_trio._pg.connection import TrioConnection

async def asyncio_flavour(connection):
    try:
        await connection.execute("SELECT 1")
    except WrongEventLoop as error:
        print(error)
    await trio_asyncio.trio_as_aio(trio_flavour)(connection)

async def trio_flavour(connection):
    print(await (await connection.execute("SELECT 1")).fetchone())

async def main():
    async with trio_asyncio.open_loop(), await TrioConnection.connect(sys.argv[1]) as connection:
        await trio_flavour(connection)
        await trio_asyncio.aio_as_trio(asyncio_flavour)(connection)

trio.run(main)
"""

GUEST_MODE = """
import asyncio, sys, trio
from awa_trio._pg.connection import TrioConnection

async def guest():
    async with await TrioConnection.connect(sys.argv[1]) as connection:
        print(await (await connection.execute("SELECT 1")).fetchone())

async def host():
    done = asyncio.get_running_loop().create_future()
    trio.lowlevel.start_guest_run(
        guest,
        run_sync_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe,
        done_callback=done.set_result,
    )
    (await done).unwrap()

asyncio.run(host())
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        pytest.param(
            TRIO_ASYNCIO,
            "(1,)\n"
            "a TrioConnection works in a Trio task, but this is asyncio code under trio-asyncio;"
            " call it through trio_asyncio.trio_as_aio()\n"
            "(1,)\n",
            id="trio-asyncio: Trio's flavour works, asyncio's is told",
        ),
        pytest.param(GUEST_MODE, "(1,)\n", id="guest mode works"),
    ],
)
async def test_loops_within_loops(db: str, program: str, printed: str) -> None:
    done = await trio.run_process(
        [sys.executable, "-c", program, db], capture_stdout=True, stderr=subprocess.STDOUT
    )
    assert done.stdout.decode() == printed
