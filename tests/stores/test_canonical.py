"""The canonical engine keeps the contract, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
import trio

from awa_trio._app.connections import Opener
from awa_trio._pg.pool import Pool
from awa_trio._seam.hearing import GotWork, News, Reconnected
from awa_trio._store.sql.store import SqlWorkerStore

from .contract import StoreContract, World
from .flow_contract import FlowContract

#: Time passes when everything that has happened is moved into the past.
SHIFT = """
UPDATE awa.jobs SET
    run_at = run_at - make_interval(secs => %(s)s),
    created_at = created_at - make_interval(secs => %(s)s),
    attempted_at = attempted_at - make_interval(secs => %(s)s),
    callback_until = callback_until - make_interval(secs => %(s)s),
    deadline_at = deadline_at - make_interval(secs => %(s)s),
    finalized_at = finalized_at - make_interval(secs => %(s)s);
UPDATE awa.workers SET
    beat_at = beat_at - make_interval(secs => %(s)s),
    fenced_at = fenced_at - make_interval(secs => %(s)s);
UPDATE awa.leaders SET until = until - make_interval(secs => %(s)s);
UPDATE awa.schedules SET
    since = since - make_interval(secs => %(s)s),
    cursor = cursor - make_interval(secs => %(s)s),
    fired_for = fired_for - make_interval(secs => %(s)s),
    fired_at = fired_at - make_interval(secs => %(s)s),
    paused_at = paused_at - make_interval(secs => %(s)s),
    seen_at = seen_at - make_interval(secs => %(s)s);
UPDATE awa.buckets SET at = at - make_interval(secs => %(s)s);
"""


class SqlWorld(World):
    shift = SHIFT

    def __init__(self, pool: Pool, opener: Opener, hearing: Opener) -> None:
        self.pool = pool
        self.store = SqlWorkerStore(pool, opener, hearing)
        self.heard: list[News] = []
        self.something = trio.Event()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def hear(self, news: News) -> None:
        self.heard.append(news)
        self.something.set()

    async def advance(self, seconds: float) -> None:
        async with self.pool.connection() as connection:
            for statement in self.shift.split(";")[:-1]:
                await connection.execute(statement, {"s": seconds})

    async def news(self) -> list[News]:
        """Notifications arrive in the order of the commits: one of our own is the last."""
        last = GotWork(str(uuid4()))
        async with self.pool.connection() as connection:
            await connection.execute("SELECT pg_notify('awa:jobs', %s)", [last.queue])
        while last not in self.heard:
            self.something = trio.Event()
            with trio.fail_after(10):
                await self.something.wait()
        heard = self.heard.copy()
        self.heard.clear()
        return [news for news in heard if news != last and not isinstance(news, Reconnected)]


class TestCanonical(StoreContract, FlowContract):
    @pytest.fixture
    async def world(
        self, canonical: str, straight: Callable[[str], str], nursery: trio.Nursery
    ) -> AsyncIterator[SqlWorld]:
        opener = Opener.of(canonical, prepare=None)
        async with Pool(opener, size=4) as pool:
            world = SqlWorld(pool, opener, Opener.of(straight(canonical), prepare=False))
            ready = trio.Event()
            nursery.start_soon(world.store.listen, world.hear, ready.set)
            await ready.wait()
            yield world
