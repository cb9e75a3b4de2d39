"""chancy."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import chancy
from chancy.plugins.leadership import Leadership
from chancy.plugins.pruner import Pruner
from chancy.plugins.recovery import Recovery

from . import Handle, Producer, Settled

#: What handlers call, and where they enqueue; a worker puts its own here. It finds
#: handlers by their import path.
_told: list[Handle] = []
_producers: list[Producer] = []


async def nothing(*, n: int, moment: float) -> None:
    _told[0]("nothing", n, moment)


async def ping(*, n: int, moment: float) -> None:
    _told[0]("ping", n, moment)


async def stage_a(*, n: int, moment: float) -> None:
    _told[0]("stage_a", n, moment)
    await _producers[0].one("stage_b", n, moment)


async def stage_b(*, n: int, moment: float) -> None:
    _told[0]("stage_b", n, moment)


_JOBS = {run.__name__: chancy.Job.from_func(run) for run in (nothing, ping, stage_a, stage_b)}


def _app(dsn: str) -> Any:
    log = logging.getLogger("chancy")
    log.setLevel(logging.ERROR)
    return chancy.Chancy(
        dsn,
        max_connection_pool_size=Chancy.settings["pool"],
        plugins=[Leadership(), Pruner(), Recovery()],
        no_default_plugins=True,
        log=log,
    )


class _Producer:
    def __init__(self, app: Any) -> None:
        self._app = app

    async def one(self, kind: str, n: int, moment: float) -> None:
        await self._app.push(_JOBS[kind].with_kwargs(n=n, moment=moment))

    async def many(self, kind: str, ns: Sequence[int], moment: float) -> None:
        jobs = [_JOBS[kind].with_kwargs(n=n, moment=moment) for n in ns]
        async for _ in self._app.push_many(jobs):
            pass


class Chancy:
    """Its asyncio executor, on uvloop, without the plugins for metrics and workflows."""

    package: ClassVar[str] = "chancy"
    backend: ClassVar[str] = "asyncio"
    uvloop: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, Any]] = {
        "concurrency": 1000,
        "polling_interval": 1,
        "eager_polling": True,
        "send_outgoing_interval": 0.05,
        "pool": 10,
    }
    bulk: ClassVar[int] = 1_000
    analyze: ClassVar[bool] = False
    share: ClassVar[Mapping[str, float]] = {
        "enqueue": 0.5,
        "bulk": 0.1,
        "drain": 0.4,
        "pairs": 0.2,
        "memory": 0.25,
        "waves": 0.5,
    }
    completed: ClassVar[str | None] = """
        SELECT 1, pg_xact_commit_timestamp(xmin) FROM chancy_jobs WHERE state = 'succeeded'
    """

    async def install(self, dsn: str) -> None:
        async with _app(dsn) as app:
            await app.migrate()
            await app.declare(
                chancy.Queue(
                    "default",
                    concurrency=self.settings["concurrency"],
                    executor=chancy.Chancy.Executor.Async,
                    polling_interval=self.settings["polling_interval"],
                    eager_polling=self.settings["eager_polling"],
                )
            )

    @asynccontextmanager
    async def producing(self, dsn: str) -> AsyncIterator[Producer]:
        async with _app(dsn) as app:
            yield _Producer(app)

    @asynccontextmanager
    async def working(self, dsn: str, told: Handle) -> AsyncIterator[Settled]:
        async with _app(dsn) as app:
            _told[:] = [told]
            _producers[:] = [_Producer(app)]
            worker = chancy.Worker(app, register_signal_handlers=False)
            worker.send_outgoing_interval = self.settings["send_outgoing_interval"]
            async with worker:
                yield None
