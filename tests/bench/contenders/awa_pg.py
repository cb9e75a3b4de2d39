"""awa-pg: the queue whose semantics this project took up, in Rust."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

# Its default, four flushers from 512 workers up, is slower than one on two cores.
os.environ.setdefault("AWA_COMPLETION_SHARDS", "1")

import awa

from . import Handle, Producer, Settled


@dataclass
class Nothing:
    n: int
    moment: float


@dataclass
class Ping:
    n: int
    moment: float


@dataclass
class StageA:
    n: int
    moment: float


@dataclass
class StageB:
    n: int
    moment: float


_CLASSES = {"nothing": Nothing, "ping": Ping, "stage_a": StageA, "stage_b": StageB}

_QUEUE = "bench"


def _client(dsn: str) -> Any:
    # It wants a host even where a socket takes its place.
    return awa.AsyncClient(dsn.replace("@/", "@localhost/"), max_connections=20)


class _Producer:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def one(self, kind: str, n: int, moment: float) -> None:
        await self._client.insert(_CLASSES[kind](n, moment), kind=kind, queue=_QUEUE)

    async def many(self, kind: str, ns: Sequence[int], moment: float) -> None:
        of = _CLASSES[kind]
        jobs = [of(n, moment) for n in ns]
        await self._client.enqueue_many_copy(jobs, kind=kind, queue=_QUEUE)


class AwaPg:
    """Its queue storage, with the deadline of five minutes that attempts have by default."""

    package: ClassVar[str] = "awa-pg"
    backend: ClassVar[str] = "asyncio"
    uvloop: ClassVar[bool] = False
    settings: ClassVar[Mapping[str, object]] = {
        "max_workers": 1024,
        "claim_batch_size": 512,
        "claimers": 1,
        "completion_shards": 1,
        "deadline_duration_ms": 300_000,
        "poll_interval_ms": 50,
        "max_connections": 20,
    }
    bulk: ClassVar[int] = 5_000
    analyze: ClassVar[bool] = False
    share: ClassVar[Mapping[str, float]] = {"enqueue": 0.5, "pairs": 0.1}
    completed: ClassVar[str | None] = """
        SELECT completed_count, pg_xact_commit_timestamp(xmin) FROM awa.receipt_completion_batches
         UNION ALL
        SELECT 1, pg_xact_commit_timestamp(xmin) FROM awa.done_entries WHERE state = 'completed'
    """

    async def install(self, dsn: str) -> None:
        client = _client(dsn)
        await client.migrate()
        # A fresh database is moved to queue storage only when a worker first starts.
        _register(client, lambda kind, n, moment: None)
        await _start(client)
        await client.shutdown()
        await client.close()

    @asynccontextmanager
    async def producing(self, dsn: str) -> AsyncIterator[Producer]:
        client = _client(dsn)
        yield _Producer(client)
        await client.close()

    @asynccontextmanager
    async def working(self, dsn: str, told: Handle) -> AsyncIterator[Settled]:
        client = _client(dsn)
        _register(client, told)
        await _start(client)
        yield None
        await client.shutdown()
        await client.close()


def _register(client: Any, told: Handle) -> None:
    def report(kind: str) -> None:
        async def run(job: Any) -> None:
            told(kind, job.args.n, job.args.moment)

        client.task(_CLASSES[kind], kind=kind, queue=_QUEUE)(run)

    for kind in ("nothing", "ping", "stage_b"):
        report(kind)
    producer = _Producer(client)

    async def stage_a(job: Any) -> None:
        told("stage_a", job.args.n, job.args.moment)
        await producer.one("stage_b", job.args.n, job.args.moment)

    client.task(StageA, kind="stage_a", queue=_QUEUE)(stage_a)


async def _start(client: Any) -> None:
    queue = {"name": _QUEUE} | {
        key: AwaPg.settings[key]
        for key in ("max_workers", "claim_batch_size", "claimers", "deadline_duration_ms")
    }
    await client.start([queue], poll_interval_ms=AwaPg.settings["poll_interval_ms"])
