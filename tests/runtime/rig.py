"""A worker in a test: one app, one client, handlers given as plain functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.testing import memory_client

from .faults import FaultyBackend, make_faulty

Handler = Callable[[awa.Job["Work"]], Awaitable[object]]


@frozen
class Work:
    n: int = 0


@frozen
class Next:
    n: int = 0


class Rig:
    """An app with one task, a client on a store that can be made to fail, and workers."""

    def __init__(self, handler: Any, client: awa.Client | None = None, **task: Any) -> None:
        self.app = awa.App()
        self.app.task(args=Work, kind="work", **task)(handler)
        self.app.declare(Next, queue="next")
        self.client: awa.Client
        self.backend: FaultyBackend
        self.client, self.backend = make_faulty(client or memory_client(), self.app)

    @property
    def store(self) -> Any:
        """The store in memory itself."""
        return self.client._backend.store

    async def enqueue(self, n: int = 0, **options: Any) -> int:
        return (await self.client.enqueue(Work(n), kind="work", **options)).id

    async def state(self, job_id: int) -> awa.JobState:
        return (await self.client.jobs.get(job_id)).state

    async def error(self, job_id: int) -> str:
        errors = (await self.client.jobs.get(job_id)).errors
        return errors[-1].error if errors else ""

    async def follow_ups(self) -> list[int]:
        return [j.args_json["n"] for j in reversed(await self.client.jobs.list(kind="next"))]

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED, **options: Any) -> None:
        options = {"random": Random(0)} | options
        await awa.run_worker(self.app, self.client, task_status=task_status, **options)

    @asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[awa.Worker]:
        """A worker for a block; stopped at its end."""

        async def run(task_status: Any) -> None:
            await self.run(task_status=task_status, **options)

        async with trio.open_nursery() as nursery:
            worker = await nursery.start(run)
            try:
                yield worker
            finally:
                worker.stop()
