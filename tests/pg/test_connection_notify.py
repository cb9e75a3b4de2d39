"""Notifications on a Trio connection."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import psycopg
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from awa_trio._pg.connection import TrioConnection

from .conftest import Connect


@pytest.fixture
async def listening(conn: TrioConnection[Any]) -> TrioConnection[Any]:
    await conn.execute("LISTEN news")
    return conn


async def test_a_notification_arrives_while_waiting(
    listening: TrioConnection[Any], connect: Connect, nursery: trio.Nursery
) -> None:
    sender = await connect()

    async def send() -> None:
        await wait_all_tasks_blocked()
        await sender.execute("SELECT pg_notify('news', %s)", ("hello",))

    nursery.start_soon(send)
    async for notify in listening.notifies(stop_after=1):
        assert notify == psycopg.Notify("news", "hello", sender.info.backend_pid)


async def test_what_arrived_during_other_operations_is_kept(
    listening: TrioConnection[Any],
) -> None:
    for payload in ("one", "two"):
        await listening.execute("SELECT pg_notify('news', %s)", (payload,))

    assert [n.payload async for n in listening.notifies(timeout=0)] == ["one", "two"]
    assert [n.payload async for n in listening.notifies(timeout=0)] == []


async def test_no_time_at_all_is_enough_for_what_has_arrived(
    listening: TrioConnection[Any], connect: Connect
) -> None:
    await (await connect()).execute("NOTIFY news, 'here'")
    await trio.lowlevel.wait_readable(listening.fileno())

    assert [n.payload async for n in listening.notifies(timeout=0)] == ["here"]


async def test_handlers_are_called_as_notifications_pass_by(
    listening: TrioConnection[Any],
) -> None:
    heard: list[str] = []

    def hear(notify: psycopg.Notify) -> None:
        heard.append(notify.payload)

    listening.add_notify_handler(hear)
    await listening.execute("NOTIFY news, 'one'")
    listening.remove_notify_handler(hear)
    await listening.execute("NOTIFY news, 'two'")

    assert heard == ["one"]


async def test_a_timeout_ends_the_wait(listening: TrioConnection[Any]) -> None:
    began = trio.current_time()

    heard = [n async for n in listening.notifies(timeout=0.05)]

    assert heard == []
    assert 0.05 <= trio.current_time() - began < 2
    assert listening.idle


async def test_a_cancelled_wait_loses_nothing(
    listening: TrioConnection[Any], connect: Connect
) -> None:
    sender = await connect()

    with trio.move_on_after(0.02) as scope:
        async for _ in listening.notifies():
            pytest.fail("nobody has notified yet")

    assert scope.cancelled_caught
    assert listening.idle
    await sender.execute("NOTIFY news, 'late'")
    assert [n.payload async for n in listening.notifies(stop_after=1)] == ["late"]


async def test_the_loop_may_be_left_early(listening: TrioConnection[Any]) -> None:
    await listening.execute("NOTIFY news, 'one'")

    async with aclosing(listening.notifies()) as notifies:
        assert (await anext(notifies)).payload == "one"

    assert listening.idle


async def test_a_lost_connection_ends_the_loop(
    listening: TrioConnection[Any], connect: Connect, nursery: trio.Nursery
) -> None:
    killer = await connect()

    async def kill() -> None:
        await wait_all_tasks_blocked()
        await killer.execute("SELECT pg_terminate_backend(%s)", (listening.info.backend_pid,))

    nursery.start_soon(kill)
    with pytest.raises(psycopg.OperationalError):
        async for _ in listening.notifies():
            pass

    assert listening.closed
    assert listening.broken
