"""procrastinate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import procrastinate

from . import KINDS, Handle, Producer, Settled


def _app(dsn: str) -> Any:
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    return procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=dsn, min_size=1, max_size=Procrastinate.settings["pool"]
        )
    )


class _Producer:
    def __init__(self, app: Any) -> None:
        self._deferrers = {kind: app.configure_task(kind) for kind in KINDS}

    async def one(self, kind: str, n: int, moment: float) -> None:
        await self._deferrers[kind].defer_async(n=n, moment=moment)

    async def many(self, kind: str, ns: Sequence[int], moment: float) -> None:
        jobs = [{"n": n, "moment": moment} for n in ns]
        await self._deferrers[kind].batch_defer_async(*jobs)


class Procrastinate:
    """With psycopg, on uvloop."""

    package: ClassVar[str] = "procrastinate"
    backend: ClassVar[str] = "asyncio"
    uvloop: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, Any]] = {"concurrency": 20, "pool": 10}
    bulk: ClassVar[int] = 1_000
    # Without it the drain takes twice as long.
    analyze: ClassVar[bool] = True
    share: ClassVar[Mapping[str, float]] = {
        "enqueue": 0.5,
        "bulk": 0.2,
        "drain": 0.06,
        "pairs": 0.05,
        "pickup2000": 0.3,
        "memory": 0.03,
        "waves": 0.03,
    }
    completed: ClassVar[str | None] = """
        SELECT 1, pg_xact_commit_timestamp(xmin) FROM procrastinate_jobs WHERE status = 'succeeded'
    """

    async def install(self, dsn: str) -> None:
        app = _app(dsn)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def producing(self, dsn: str) -> AsyncIterator[Producer]:
        app = _app(dsn)
        async with app.open_async():
            yield _Producer(app)

    @asynccontextmanager
    async def working(self, dsn: str, told: Handle) -> AsyncIterator[Settled]:
        app = _app(dsn)
        producer = _Producer(app)

        def report(kind: str) -> None:
            async def run(n: int, moment: float) -> None:
                told(kind, n, moment)

            app.task(name=kind)(run)

        for kind in ("nothing", "ping", "stage_b"):
            report(kind)

        async def stage_a(n: int, moment: float) -> None:
            told("stage_a", n, moment)
            await producer.one("stage_b", n, moment)

        app.task(name="stage_a")(stage_a)
        async with app.open_async():
            worker = asyncio.create_task(
                app.run_worker_async(
                    concurrency=self.settings["concurrency"], install_signal_handlers=False
                )
            )
            yield None
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker
