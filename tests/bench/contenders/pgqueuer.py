"""pgqueuer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar

import asyncpg
from pgqueuer.core.qm import QueueManager
from pgqueuer.queries import Queries

from . import Handle, Producer, Settled


def _payload(n: int, moment: float) -> bytes:
    return json.dumps([n, moment]).encode()


class _Producer:
    def __init__(self, pool: Any) -> None:
        self._queries: Any = Queries.from_asyncpg_pool(pool)

    async def one(self, kind: str, n: int, moment: float) -> None:
        await self._queries.enqueue(kind, _payload(n, moment))

    async def many(self, kind: str, ns: Sequence[int], moment: float) -> None:
        payloads = [_payload(n, moment) for n in ns]
        await self._queries.enqueue([kind] * len(ns), payloads, [0] * len(ns))


class PgQueuer:
    """With asyncpg, on uvloop, its autovacuum settings applied."""

    package: ClassVar[str] = "pgqueuer"
    backend: ClassVar[str] = "asyncio"
    uvloop: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, Any]] = {
        "batch_size": 200,
        "pool": 10,
        "autovac": True,
        "log_aggregation_interval": 0,
    }
    bulk: ClassVar[int] = 1_000
    analyze: ClassVar[bool] = False
    share: ClassVar[Mapping[str, float]] = {"pairs": 0.2}
    # It deletes the job, and appends to its log.
    completed: ClassVar[str | None] = """
        SELECT 1, pg_xact_commit_timestamp(xmin) FROM pgqueuer_log WHERE status = 'successful'
    """

    async def install(self, dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        queries: Any = Queries.from_asyncpg_connection(connection)
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()

    @asynccontextmanager
    async def producing(self, dsn: str) -> AsyncIterator[Producer]:
        async with asyncpg.create_pool(dsn, min_size=1, max_size=self.settings["pool"]) as pool:
            yield _Producer(pool)

    @asynccontextmanager
    async def working(self, dsn: str, told: Handle) -> AsyncIterator[Settled]:
        connection = await asyncpg.connect(dsn)
        manager: Any = QueueManager(Queries.from_asyncpg_connection(connection))

        def report(kind: str) -> None:
            async def run(job: Any) -> None:
                n, moment = json.loads(job.payload)
                told(kind, n, moment)

            manager.entrypoint(kind, accepts_context=False)(run)

        for kind in ("nothing", "ping", "stage_b"):
            report(kind)
        async with self.producing(dsn) as producer:

            async def stage_a(job: Any) -> None:
                n, moment = json.loads(job.payload)
                told("stage_a", n, moment)
                await producer.one("stage_b", n, moment)

            manager.entrypoint("stage_a", accepts_context=False)(stage_a)
            running = asyncio.create_task(
                manager.run(
                    batch_size=self.settings["batch_size"],
                    log_aggregation_interval=timedelta(0),
                )
            )
            yield None
            manager.shutdown.set()
            await running
        await connection.close()
