"""The stores in PostgreSQL: a client's, and a worker's, which also beats and listens."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeAlias

import anyio
import psycopg
from psycopg.types.numeric import Int8

from ..._pg.listener import Listener
from ..._seam.hearing import Disconnected, Hear, Reconnected
from ..cursors import AsyncStoreCursor
from ..failures import store_error
from .calls import Connections
from .dead_letters import SqlDeadLetters
from .flow import SqlFlow
from .hearing import CALLBACKS_CHANNEL, CUT_CHANNEL, JOBS_CHANNEL, QUEUES_CHANNEL, parse
from .inspecting import SqlInspecting
from .producing import SqlProducing
from .resolving import SqlResolving
from .scheduling import SqlScheduling
from .upkeep import SqlUpkeep
from .working import BEAT, SqlWorking

logger = logging.getLogger("awa_trio.worker")

Connect: TypeAlias = Callable[[], Awaitable["psycopg.AsyncConnection[Any]"]]


class SqlStore(
    SqlProducing,
    SqlWorking,
    SqlUpkeep,
    SqlResolving,
    SqlInspecting,
    SqlDeadLetters,
    SqlScheduling,
    SqlFlow,
):
    """A store whose transactions are calls of the ``awa`` schema's functions."""


class SqlWorkerStore(SqlStore):
    """A store for one worker, whose connections nobody else can use up.

    Args:
      connections: a pool of its own.
      connect: opens one connection in the running event loop, for the heartbeat.
      hearing: opens one that notifications come by; None if there is no such way.
    """

    threaded_pulse = True

    def __init__(
        self, connections: Connections, connect: Connect, hearing: Connect | None
    ) -> None:
        super().__init__(connections)
        self._connect = connect
        self._hearing = hearing

    def now(self) -> datetime:
        """See `_seam.protocol.WorkerStore`."""
        return datetime.now(UTC)

    @asynccontextmanager
    async def pulse(self) -> AsyncIterator[SqlPulse]:
        """See `_seam.protocol.WorkerStore`."""
        pulse = SqlPulse(self._connect)
        try:
            yield pulse
        finally:
            await pulse.aclose()

    async def listen(self, hear: Hear, ready: Callable[[], None]) -> NoReturn:
        """See `_seam.protocol.WorkerStore`."""

        if self._hearing is None:
            logger.warning(
                "a pooler is in between, which would deliver no notifications: new jobs are found"
                " by polling; to hear of them, connect with listen_dsn=, or --listen-dsn"
            )
            ready()
            while True:
                await anyio.sleep_forever()

        def heard(channel: str, payload: str) -> bool:
            news = parse(channel, payload)
            if news is not None:
                hear(news)
            return news is not None

        listener = Listener(
            self._hearing,
            [JOBS_CHANNEL, CUT_CHANNEL, CALLBACKS_CHANNEL, QUEUES_CHANNEL],
            heard,
            lambda: hear(Reconnected()),
            lost=lambda: hear(Disconnected()),
        )
        try:
            await listener.run(ready)
        except psycopg.Error as error:
            raise store_error(error) from error


class SqlPulse:
    """A worker's heartbeat on one connection, opened again whenever it is lost."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def beat(self, worker: int) -> bool:
        """See `_seam.protocol.Pulse`."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = await self._connect()
            cursor = AsyncStoreCursor(self._connection)
            await cursor.execute(BEAT, (Int8(worker),))
            row = await cursor.fetchone()
        except psycopg.Error as error:
            await self.aclose()
            raise store_error(error) from error
        return row is not None and bool(row[0])

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
