"""The listener, on a real server whose connections are cut."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest
import trio

from awa_trio._pg.connection import TrioConnection
from awa_trio._pg.listener import Listener


class Ears:
    """What a listener hears, and how often it was told to look."""

    def __init__(self, dsn: str, **options: object) -> None:
        self.heard: list[tuple[str, str]] = []
        self.looks = 0
        self.changed = trio.Event()
        self.dsn = dsn
        connect = partial(TrioConnection.connect, dsn, autocommit=True, application_name="ears")
        self.listener = Listener(
            connect,
            ["one", 'Two:"2"'],
            self.hear,
            self.look,
            backoff=(0.01, 0.1),
            **options,  # type: ignore[arg-type]
        )

    def hear(self, channel: str, payload: str) -> bool:
        self.heard.append((channel, payload))
        self._change()
        return payload != "nonsense"

    def look(self) -> None:
        self.looks += 1
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, *, heard: int = 0, looks: int = 0) -> None:
        with trio.fail_after(20):
            while len(self.heard) < heard or self.looks < looks:
                await self.changed.wait()

    def notify(self, channel: str, payload: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_notify(%s, %s)", [channel, payload])

    def cut(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'ears' AND datname = current_database()"
            )

    async def start(self, nursery: trio.Nursery) -> None:
        ready = trio.Event()
        nursery.start_soon(self.listener.run, ready.set)
        with trio.fail_after(20):
            await ready.wait()


async def test_it_hears_what_is_said_on_its_channels(dsn: str, nursery: trio.Nursery) -> None:
    ears = Ears(dsn)
    await ears.start(nursery)
    ears.notify("one", "a")
    ears.notify("three", "not listened to")
    ears.notify('Two:"2"', "b")
    await ears.until(heard=2)
    assert ears.heard == [("one", "a"), ('Two:"2"', "b")]


async def test_it_says_look_when_it_begins(dsn: str, nursery: trio.Nursery) -> None:
    ears = Ears(dsn)
    await ears.start(nursery)
    await ears.until(looks=1)
    assert (ears.looks, ears.listener.connected) == (1, True)


async def test_cut_off_it_listens_again_and_says_look_after_that(
    dsn: str, nursery: trio.Nursery
) -> None:
    ears = Ears(dsn)
    await ears.start(nursery)
    for n in range(1, 4):
        await ears.until(looks=n)
        ears.cut()
        await ears.until(looks=n + 1)
        ears.notify("one", str(n))
        await ears.until(heard=n)
    assert [payload for _, payload in ears.heard] == ["1", "2", "3"]
    assert ears.listener.connections == 4


async def test_what_nobody_understands_is_counted_and_ignored(
    dsn: str, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    ears = Ears(dsn)
    await ears.start(nursery)
    ears.notify("one", "nonsense")
    ears.notify("one", "sense")
    await ears.until(heard=2)
    assert (ears.listener.received, ears.listener.malformed) == (2, 1)
    assert "makes no sense" in caplog.text
    assert "nonsense" not in caplog.text


async def test_ten_thousand_notifications_are_heard_in_order(
    dsn: str, nursery: trio.Nursery
) -> None:
    ears = Ears(dsn)
    await ears.start(nursery)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for start in range(0, 10_000, 1000):
            connection.execute(
                "SELECT pg_notify('one', n::text) FROM generate_series(%s::int, %s::int) n",
                [start, start + 999],
            )
    await ears.until(heard=10_000)
    assert [payload for _, payload in ears.heard] == [str(n) for n in range(10_000)]


async def test_a_quiet_connection_is_asked_whether_it_lives(
    dsn: str, nursery: trio.Nursery
) -> None:
    ears = Ears(dsn, ping=0.05)
    await ears.start(nursery)
    with psycopg.connect(dsn, autocommit=True) as connection, trio.fail_after(20):
        while not connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'ears' AND query = 'SELECT 1'"
        ).fetchone():
            await trio.sleep(0.01)
    ears.notify("one", "still here")
    await ears.until(heard=1)


async def test_the_first_connection_must_succeed() -> None:
    ears = Ears("host=/nowhere dbname=nothing")
    with pytest.raises(psycopg.OperationalError):
        await ears.listener.run(lambda: None)


async def test_it_leaves_no_connection_behind(dsn: str) -> None:
    ears = Ears(dsn)
    async with trio.open_nursery() as nursery:
        await ears.start(nursery)
        nursery.cancel_scope.cancel()
    with psycopg.connect(dsn, autocommit=True) as connection, trio.fail_after(20):
        while connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'ears'"
        ).fetchone():
            await trio.sleep(0.01)
