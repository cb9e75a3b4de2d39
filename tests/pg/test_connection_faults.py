"""What the network and the server do to a connection, and what is left of it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo
from trio.testing import wait_all_tasks_blocked

from awa_trio._pg.connection import TrioConnection

from .conftest import Connect
from .proxy import Proxy


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """The server lives, and this backend of it answers nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Where connections are accepted and never answered."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield f"host=127.0.0.1 port={listener.getsockname()[1]} user=x dbname=x"


# ---- While connecting -----------------------------------------------------------


async def test_a_cancelled_connect_leaves_no_descriptor(silent_server: str) -> None:
    before = descriptors()

    for _ in range(5):
        with trio.move_on_after(0.02) as scope:
            await TrioConnection.connect(silent_server)
        assert scope.cancelled_caught
        assert descriptors() <= before


@pytest.mark.slow
async def test_a_connect_that_times_out_leaves_no_descriptor(silent_server: str) -> None:
    before = descriptors()

    with pytest.raises(psycopg.errors.ConnectionTimeout) as caught:
        await TrioConnection.connect(silent_server, connect_timeout=2)

    assert "connection timeout expired" in str(caught.value)
    assert descriptors() <= before


async def test_a_server_that_hangs_up_is_an_error_and_leaves_no_descriptor(
    proxy: Proxy,
) -> None:
    before = descriptors()
    proxy.cut_after(1)

    with pytest.raises(psycopg.OperationalError):
        await TrioConnection.connect(proxy.dsn)

    with trio.fail_after(5):
        while not descriptors() <= before:  # the proxy's own side
            await trio.sleep(0.01)


async def test_connecting_blocks_nobody(proxy: Proxy, silent_server: str) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.01)
            ticks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        with trio.move_on_after(0.3):
            await TrioConnection.connect(silent_server)
        nursery.cancel_scope.cancel()

    assert ticks >= 5


# ---- A network that is slow, gone, or cut -------------------------------------------


async def test_latency_changes_nothing_but_the_time(proxy: Proxy, connect: Connect) -> None:
    connection = await connect(proxy.dsn)
    proxy.latency = 0.03

    assert await (await connection.execute("SELECT 1")).fetchone() == (1,)
    # Longer than it takes to ask again: the request to cancel must be given its time.
    proxy.latency = 0.15
    with trio.move_on_after(0.2) as scope:
        await connection.execute("SELECT pg_sleep(30)")

    assert scope.cancelled_caught
    assert connection.idle
    proxy.latency = 0.0
    assert await (await connection.execute("SELECT 2")).fetchone() == (2,)


@pytest.mark.parametrize("block", ["transaction", "pipeline", "copy in", "copy out", "stream"])
async def test_over_a_slow_network_blocks_are_left_at_rest(
    proxy: Proxy, connect: Connect, block: str
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 20
    await connection.execute("CREATE TEMP TABLE t (x int)")
    proxy.latency = 0.02
    endless = "SELECT repeat('x', 1000), pg_sleep(0.001) FROM generate_series(1, 100000)"

    with trio.move_on_after(0.2) as scope:
        if block == "transaction":
            async with connection.transaction():
                await connection.execute("SELECT pg_sleep(30)")
        elif block == "pipeline":
            async with connection.pipeline():
                await connection.execute("SELECT pg_sleep(30)")
        elif block == "copy in":
            async with connection.cursor().copy("COPY t FROM STDIN") as copy:
                await copy.write(b"1\n")
                await trio.sleep_forever()
        elif block == "copy out":
            async with connection.cursor().copy(f"COPY ({endless}) TO STDOUT".encode()) as copy:
                while await copy.read():
                    pass
        else:
            rows = connection.cursor().stream(endless.encode())
            async with aclosing(rows):  # type: ignore[type-var]
                async for _ in rows:
                    pass

    assert scope.cancelled_caught
    assert connection.idle
    assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


async def test_cancelling_into_a_black_hole_ends_in_the_grace_and_closes(
    proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 0.6
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await trio.sleep(0.02)
            ticks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        proxy.stall()
        began = trio.current_time()
        with trio.move_on_after(0.1) as scope:
            await connection.execute("SELECT 1")
        took = trio.current_time() - began
        nursery.cancel_scope.cancel()

    assert scope.cancelled_caught
    assert connection.closed
    assert connection.broken
    assert 0.6 < took < 3
    # Nobody was stopped: not even half of the ticks is asked for.
    assert ticks >= took / 0.02 / 3


@pytest.mark.parametrize("block", ["transaction", "pipeline", "copy in", "copy out", "stream"])
async def test_leaving_a_block_in_a_black_hole_ends_in_the_grace_and_closes(
    proxy: Proxy, connect: Connect, block: str
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 0.2
    await connection.execute("CREATE TEMP TABLE t (x int)")
    big = "SELECT repeat('x', 1000) FROM generate_series(1, 20000)"

    async def fall_in() -> None:
        proxy.stall()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        scope.deadline = trio.current_time() + 0.1
        if block == "transaction":
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (1)")
                await fall_in()
        elif block == "pipeline":
            async with connection.pipeline():
                await connection.execute("INSERT INTO t VALUES (1)")
                await fall_in()
        elif block == "copy in":
            async with connection.cursor().copy("COPY t FROM STDIN") as copy:
                await copy.write(b"1\n")
                await fall_in()
        elif block == "copy out":
            async with connection.cursor().copy(f"COPY ({big}) TO STDOUT".encode()) as copy:
                await copy.read()
                proxy.stall()
                async for _ in copy:
                    pass
                await trio.sleep_forever()
        else:
            proxy.latency = 0.01
            async for _ in connection.cursor().stream(big.encode()):
                proxy.stall()
    took = trio.current_time() - scope.deadline

    assert scope.cancelled_caught
    assert connection.closed
    assert took < 3


@pytest.mark.slow
async def test_the_grace_is_granted_once_for_cancelling_and_draining(
    proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 2.0

    with trio.CancelScope() as scope:
        async with connection.cursor().copy(
            "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000)) TO STDOUT"
        ) as copy:
            await copy.read()
            proxy.stall()
            scope.cancel()
            began = trio.current_time()
            while await copy.read():
                pass

    assert connection.closed
    assert 1.9 < trio.current_time() - began < 3.5


async def test_a_commit_whose_answer_is_lost_is_an_error_that_says_so(
    proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 0.3
    await connection.execute("CREATE TABLE t (x int)")

    with pytest.raises(psycopg.OperationalError, match="whether it took effect is not known"):
        with trio.CancelScope() as scope:
            async with connection.transaction():
                await connection.execute("INSERT INTO t VALUES (1)")
                proxy.stall()
                scope.cancel()

    assert connection.closed


async def test_a_rollback_that_is_lost_keeps_the_error_of_the_block(
    proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 0.3

    with pytest.raises(ZeroDivisionError), trio.CancelScope() as scope:
        async with connection.transaction():
            await connection.execute("SELECT 1")
            proxy.stall()
            scope.cancel()
            raise ZeroDivisionError

    assert connection.closed


async def test_the_exception_notes_that_nothing_is_known(
    proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(proxy.dsn)
    connection.cancel_grace = 0.2
    proxy.stall()

    with trio.CancelScope() as scope:
        scope.deadline = trio.current_time() + 0.05
        try:
            await connection.execute("SELECT 1")
        except trio.Cancelled as cancelled:
            notes = cancelled.__notes__
            raise

    assert notes[0].startswith("the connection was closed before the server had confirmed")
    assert notes[0].endswith("whether it took effect is not known")


@pytest.mark.parametrize("fault", ["reset", "cut"])
async def test_a_connection_that_is_lost_is_an_error_and_closed(
    proxy: Proxy, connect: Connect, fault: str, nursery: trio.Nursery
) -> None:
    connection = await connect(proxy.dsn)

    async def reset() -> None:
        await wait_all_tasks_blocked(0.05)
        proxy.reset()

    if fault == "reset":
        nursery.start_soon(reset)
        query = b"SELECT pg_sleep(30)"
    else:
        proxy.cut_after(20_000)
        query = b"SELECT repeat('x', 1000000)"
    with pytest.raises(psycopg.OperationalError):
        await connection.execute(query)

    assert connection.closed
    assert connection.broken
    with pytest.raises(psycopg.OperationalError, match="the connection is closed"):
        await connection.execute("SELECT 1")


async def test_a_connection_lost_while_it_was_idle_is_noticed_by_the_next_operation(
    proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(proxy.dsn)
    proxy.reset()

    with pytest.raises(psycopg.OperationalError):
        await connection.execute("SELECT 1")

    assert connection.closed


@pytest.mark.parametrize("after", [0, 1, 1000, 100_000])
async def test_a_copy_that_is_cut_is_an_error_and_closed(
    proxy: Proxy, connect: Connect, after: int
) -> None:
    connection = await connect(proxy.dsn)

    with pytest.raises(psycopg.OperationalError):
        async with connection.cursor().copy(
            "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 2000)) TO STDOUT"
        ) as copy:
            proxy.cut_after(after)
            if not after:
                proxy.reset()
            async for _ in copy:
                pass

    assert connection.closed


async def test_a_transaction_that_is_cut_keeps_the_error(
    proxy: Proxy, connect: Connect
) -> None:
    connection = await connect(proxy.dsn)

    with pytest.raises(psycopg.OperationalError):
        async with connection.transaction():
            proxy.reset()
            await connection.execute("SELECT 1")
    assert connection.closed

    other = await connect(proxy.dsn)
    with pytest.raises(psycopg.OperationalError):
        async with other.transaction():
            proxy.reset()  # and now it commits
    assert other.closed


# ---- A server that dies or hangs --------------------------------------------------------


async def test_a_backend_that_is_terminated_says_why(
    conn: TrioConnection[Any], connect: Connect, nursery: trio.Nursery
) -> None:
    killer = await connect()

    async def kill() -> None:
        await wait_all_tasks_blocked(0.05)
        await killer.execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))

    nursery.start_soon(kill)
    with pytest.raises(psycopg.errors.AdminShutdown):
        await conn.execute("SELECT pg_sleep(30)")

    assert conn.closed
    assert conn.broken


async def test_so_does_one_that_times_out_in_a_transaction(connect: Connect) -> None:
    connection = await connect()

    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        async with connection.transaction():
            await connection.execute("SET idle_in_transaction_session_timeout = '50ms'")
            await trio.sleep(0.5)
            await connection.execute("SELECT 1")

    assert connection.closed


async def test_a_backend_that_answers_nothing_is_left_after_the_grace(
    conn: TrioConnection[Any],
) -> None:
    conn.cancel_grace = 0.5

    with frozen(conn.info.backend_pid):
        began = trio.current_time()
        with trio.move_on_after(0.1) as scope:
            await conn.execute("SELECT 1")
        took = trio.current_time() - began

    assert scope.cancelled_caught
    assert conn.closed
    assert 0.5 < took < 3


async def test_closing_under_a_rollback_keeps_the_error_of_the_block(
    conn: TrioConnection[Any], nursery: trio.Nursery
) -> None:
    async def close() -> None:
        await wait_all_tasks_blocked(0.05)
        await conn.close()

    with ExitStack() as until_it_is_over, pytest.raises(ZeroDivisionError):
        async with conn.transaction():
            until_it_is_over.enter_context(frozen(conn.info.backend_pid))
            nursery.start_soon(close)
            raise ZeroDivisionError

    assert conn.closed


async def test_one_that_wakes_in_time_is_forgiven(
    conn: TrioConnection[Any], nursery: trio.Nursery
) -> None:
    conn.cancel_grace = 20
    pid = conn.info.backend_pid

    async def wake() -> None:
        await trio.sleep(0.4)
        os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    nursery.start_soon(wake)
    with trio.move_on_after(0.1) as scope:
        await conn.execute("SELECT pg_sleep(30)")

    assert scope.cancelled_caught
    assert conn.idle
    assert await (await conn.execute("SELECT 1")).fetchone() == (1,)


async def test_a_server_with_no_room_is_an_error(db: str, connect: Connect) -> None:
    observer = await connect()
    name = f"limited_{os.getpid()}"
    await observer.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 0".encode())
    try:
        with pytest.raises(psycopg.OperationalError, match="too many connections for role"):
            await TrioConnection.connect(make_conninfo(db, user=name))
    finally:
        await observer.execute(f"DROP ROLE {name}".encode())
