"""This project, on either engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.cli._collector import spare_the_collector

from . import Handle, Producer, Settled

#: As many slots as the peers were given.
SLOTS = 500

app = awa.App()
app.queue("default", max_workers=SLOTS)


@frozen
class Nothing:
    n: int
    moment: float


@frozen
class Ping:
    n: int
    moment: float


@frozen
class StageA:
    n: int
    moment: float


@frozen
class StageB:
    n: int
    moment: float


_CLASSES: Mapping[str, Callable[[int, float], object]] = {
    "nothing": Nothing,
    "ping": Ping,
    "stage_a": StageA,
    "stage_b": StageB,
}


def _nobody(kind: str, n: int, moment: float) -> None:
    pass


#: What handlers report to; a worker puts its own in this place.
_told: Handle = _nobody


@app.task()
async def nothing(job: awa.Job[Nothing]) -> None:
    _told("nothing", job.args.n, job.args.moment)


@app.task()
async def ping(job: awa.Job[Ping]) -> None:
    _told("ping", job.args.n, job.args.moment)


@app.task()
async def stage_b(job: awa.Job[StageB]) -> None:
    _told("stage_b", job.args.n, job.args.moment)


@app.task()
async def stage_a(job: awa.Job[StageA]) -> None:
    _told("stage_a", job.args.n, job.args.moment)
    job.enqueue_on_completion(StageB(job.args.n, job.args.moment), unique_opts={})


class _Producer:
    def __init__(self, client: awa.Client) -> None:
        self._client = client

    async def one(self, kind: str, n: int, moment: float) -> None:
        await self._client.enqueue(_CLASSES[kind](n, moment))

    async def many(self, kind: str, ns: Sequence[int], moment: float) -> None:
        of = _CLASSES[kind]
        await self._client.enqueue_many(of(n, moment) for n in ns)


class Canonical:
    """The engine that is installed by default."""

    package: ClassVar[str] = "awa-trio"
    backend: ClassVar[str] = "trio"
    uvloop: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, object]] = {
        "max_workers": SLOTS,
        "garbage collector": "as awa-trio worker sets it",
    }
    bulk: ClassVar[int] = 5_000
    analyze: ClassVar[bool] = False
    share: ClassVar[Mapping[str, float]] = {}
    completed: ClassVar[str | None] = """
        SELECT 1, pg_xact_commit_timestamp(xmin) FROM awa.jobs WHERE state = 'completed'
    """
    engine: ClassVar[str] = "canonical"

    async def install(self, dsn: str) -> None:
        await awa.migrate(dsn, engine=self.engine)

    @asynccontextmanager
    async def producing(self, dsn: str) -> AsyncIterator[Producer]:
        async with awa.connect(dsn, app=app) as client:
            yield _Producer(client)

    @asynccontextmanager
    async def working(self, dsn: str, told: Handle) -> AsyncIterator[Settled]:
        global _told
        _told = told
        spare_the_collector()
        async with (
            awa.connect(dsn, app=app) as client,
            trio.open_nursery() as nursery,
        ):
            worker = await nursery.start(awa.run_worker, app, client)
            yield lambda: worker.statistics().settled[awa.JobState.COMPLETED]
            worker.stop()


class Segmented(Canonical):
    """The engine whose job bodies are only appended."""

    engine: ClassVar[str] = "segmented"
    completed: ClassVar[str | None] = f"""
        SELECT (SELECT sum(upper(r) - lower(r)) FROM unnest(e.ids) AS r),
               pg_xact_commit_timestamp(e.xmin)
          FROM awa.lane_ends AS e WHERE e.completed
         UNION ALL {Canonical.completed}
    """
