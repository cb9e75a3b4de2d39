"""Completing attempts in transactions of their handlers' own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import psycopg
from psycopg.types.numeric import Int8

from ..._core.errors import ConfigurationError
from ..._core.job import PreparedInsert
from ..._core.plan import Plan
from ..._pg import arrays
from ..._seam.protocol import Joined
from ..._seam.values import Enqueued, Settled
from ..block import TransactionBlock
from ..cursors import AsyncStoreCursor
from ..failures import InLane
from .calls import Calls, call
from .producing import SqlProducing
from .settling import SETTLE, settled, settlement

DATABASE_IDENTITY = call("database_identity", 0)
CARRY = call("carry", 1)
"""Of the segmented engine only, which asks for it."""
JOIN_TRANSACTION = call("join_transaction", 3)
HAS_COMMITTED = call("has_committed", 3)
SETTLE_IN = (
    SETTLE.replace(b"*", b"s.*, pg_catalog.pg_current_xact_id()::pg_catalog.text") + b" AS s"
)
"""Which transaction it was in, too."""


class JoinedTransaction:
    """A transaction of a handler's own, in which its attempt completes."""

    transaction = ""
    running = False

    def __init__(self, block: TransactionBlock) -> None:
        self._block = block
        self._store = SqlProducing(block)

    async def begin(self, worker: int, job_id: int, run_lease: int) -> str:
        """Begin, find out where this is, and return which database that is.

        Raises:
          InLane: the job is to leave its lane before this begins.
        """
        parameters = (Int8(worker), Int8(job_id), Int8(run_lease))
        await self._block.begin()
        try:
            [(identity, self.transaction, self.running)] = await self._store._rows(
                JOIN_TRANSACTION, parameters
            )
        except BaseException as error:
            await self._block.roll_back(error)
            raise
        return cast("str", identity)

    @property
    def lost(self) -> bool:
        """See `_seam.protocol.Joined`."""
        return self._block.lost

    async def enqueue(self, jobs: Sequence[PreparedInsert]) -> list[Enqueued]:
        """See `_seam.protocol.Joined`."""
        self._block.require_open()
        return await self._store.enqueue(jobs)

    async def settle(self, plan: Plan, *, worker: int, patience: float) -> Settled:
        """See `_seam.protocol.Joined`."""
        self._block.require_open()
        [(*row, transaction)] = await self._store._rows(
            SETTLE_IN, settlement([plan], worker, patience)
        )
        if transaction != self.transaction:
            # What it wrote until then is committed, or gone; the rest must not go its own way.
            self._block.refuse_another()
        return settled([plan], *row)[0]


class SqlJoining(Calls):
    """`_seam.protocol.Working.join`."""

    _identity: str | None = None
    """Which database this is, once somebody asked."""

    @asynccontextmanager
    async def join(
        self, connection: object, worker: int, job_id: int, run_lease: int
    ) -> AsyncIterator[Joined]:
        """See `_seam.protocol.Working`."""
        block = TransactionBlock(connection)
        if self._identity is None:
            self._identity = cast("str", await self._value(DATABASE_IDENTITY, ()))
        joined = JoinedTransaction(block)
        try:
            identity = await joined.begin(worker, job_id, run_lease)
        except InLane:
            await self._rows(CARRY, (arrays.int8s([job_id]),))
            identity = await joined.begin(worker, job_id, run_lease)
        try:
            if identity != self._identity:
                raise ConfigurationError(
                    "this connection leads to another database than the worker's; open it with"
                    " the worker's DSN"
                )
            yield joined
        except BaseException as error:
            if not await block.roll_back(error):
                raise
        else:
            await block.commit()

    async def has_committed(self, job_id: int, run_lease: int, transaction: str) -> bool | None:
        """See `_seam.protocol.Working`."""
        parameters = (Int8(job_id), Int8(run_lease), transaction)
        return cast("bool | None", await self._value(HAS_COMMITTED, parameters))


async def database_identity(connection: psycopg.AsyncConnection[Any]) -> str:
    """Return which database a connection is to, among all there are.

    Raises:
      psycopg.Error: it cannot be asked, or has no ``awa`` schema.
    """
    cursor = AsyncStoreCursor(connection)
    await cursor.execute(DATABASE_IDENTITY, ())
    [identity] = await cursor.fetchone() or [""]
    return cast("str", identity)
