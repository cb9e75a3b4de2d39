"""Connections whose every statement is a place to cut.

The statements of a run are counted as they pass, so the places to cut are found and not
listed: a statement that somebody adds is cut from then on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import trio
from attrs import frozen
from psycopg.waiting import Wait

from awa_trio._app.connect import WORKER_CONNECTIONS, PgBackend
from awa_trio._app.connections import Opener
from awa_trio._pg.connection import TrioConnection
from awa_trio._pg.connection_drive import Driver
from awa_trio._pg.pool import Pool
from awa_trio._pg.pooler import pooled
from awa_trio._seam.protocol import WorkerStore
from awa_trio._store.sql.store import SqlWorkerStore

#: When to cut: nothing is sent yet; the server has it, and nobody has heard what it did; the
#: answer is here, and nobody has looked at it.
BEFORE, SENT, ANSWERED = MOMENTS = ("before", "sent", "answered")


@frozen
class Point:
    """One place to cut."""

    statement: str
    """A function of the engine's; else the first word."""
    number: int
    """Which of those in the run, from 1."""
    moment: str

    def __str__(self) -> str:
        return f"{self.moment} {self.statement} {self.number}"


Strike = Callable[[Point], Awaitable[None]]


class Knife:
    """Told of every point that is passed; whoever holds it may strike there."""

    def __init__(self) -> None:
        self.passed: list[Point] = []
        self._counts: Counter[str] = Counter()
        self._strike: Strike | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    def hold(self, strike: Strike) -> None:
        """From now on count, and call ``strike`` at every point."""
        self.passed = []
        self._counts = Counter()
        self._strike = strike
        self._token = trio.lowlevel.current_trio_token()

    def put_down(self) -> None:
        """Count no more."""
        self._strike = None

    def count(self, statement: str) -> int:
        """Number a statement; 0 if nobody holds the knife, or this is another event loop."""
        if self._strike is None or trio.lowlevel.current_trio_token() is not self._token:
            return 0
        self._counts[statement] += 1
        return self._counts[statement]

    async def at(self, point: Point) -> None:
        """A point is passed. What happens there cannot be cancelled by it."""
        if self._strike is not None:
            self.passed.append(point)
            with trio.CancelScope(shield=True):
                await self._strike(point)


_FUNCTION = re.compile(rb"awa\.(\w+)\(")
_BLOCKS = {"_enter_gen": "BEGIN", "_exit_gen": "COMMIT"}


def statement_of(gen: Any) -> str | None:
    """What one of psycopg's generators is about to send; None if it is nothing of interest."""
    if gen.__name__ != "_execute_gen":
        return _BLOCKS.get(gen.__name__)
    query = gen.gi_frame.f_locals["query"]
    text = query if isinstance(query, bytes) else str(query).encode()
    called = _FUNCTION.search(text)
    return (called[1] if called else text.split()[0]).decode()


class CutDriver(Driver):
    """Says when a statement has been sent."""

    sent: Callable[[], Awaitable[None]] | None = None

    async def run(self, gen: Any, fd: int, s: Wait) -> Any:
        sent, self.sent = self.sent, None
        if sent is not None and s == Wait.R:
            await sent()
        return await super().run(gen, fd, s)


class CutConnection(TrioConnection[Any]):
    """Passes its statements by a knife."""

    knife: Knife

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        statement = statement_of(gen)
        number = 0 if statement is None else self.knife.count(statement)
        if statement is None or not number:
            return await super().wait(gen, *args, **options)
        await self.knife.at(Point(statement, number, BEFORE))

        async def sent() -> None:
            await self.knife.at(Point(statement, number, SENT))

        self._driver = CutDriver(self.pgconn)
        self._driver.sent = sent
        try:
            answer = await super().wait(gen, *args, **options)
        finally:
            self._driver.sent = None
        await self.knife.at(Point(statement, number, ANSWERED))
        return answer


class CutOpener:
    """Opens such connections."""

    def __init__(self, dsn: str, knife: Knife) -> None:
        self._conninfo = Opener.of(dsn, prepare=True).conninfo
        self._knife = knife

    async def __call__(self) -> psycopg.AsyncConnection[Any]:
        connection = await CutConnection.connect(
            self._conninfo, autocommit=True, prepare_threshold=None
        )
        connection.knife = Knife()  # nobody holds it: this statement is none of the run
        if not await pooled(connection):
            connection.prepare_threshold = 0
        connection.knife = self._knife
        return connection


class CutBackend(PgBackend):
    """The ground of a client, and of its workers, all of whose connections can be cut."""

    worker_pool: Pool

    def __init__(self, opener: CutOpener, pool: Pool) -> None:
        super().__init__(opener, opener, pool)  # type: ignore[arg-type]
        self.pool = pool

    @asynccontextmanager
    async def worker_store(self) -> AsyncIterator[WorkerStore]:
        async with Pool(self._opener, size=WORKER_CONNECTIONS, name="the worker's") as pool:
            self.worker_pool = pool
            yield SqlWorkerStore(pool, self._opener, self._opener)
