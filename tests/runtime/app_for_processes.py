"""The app of the worker processes that tests start and kill, and those processes' main.

``python -m tests.runtime.app_for_processes DSN``
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.pg import TrioConnection

TIMINGS = awa.Timings(
    heartbeat=0.3, lease=1.5, finalize_deadline=1.2, rescue_interval=0.3, poll_interval=0.2,
    reconcile_interval=1.0,
)  # fmt: skip


@frozen
class Source:
    """Stages one unique follow-up for each of its items, and one for itself."""

    n: int
    items: list[int]
    seconds: float = 0.0


@frozen
class Item:
    item: int


@frozen
class Receipt:
    """One per completed source: tells which attempt committed."""

    n: int
    attempt: int


@frozen
class Poison:
    """Kills the process that runs it."""


@frozen
class Ledgered:
    """Completes in a transaction of its own; says when it has come to a place, and waits there."""

    wait_at: str


@frozen
class Waits:
    """Waits for a callback in memory, and stages a receipt that tells what it got."""

    n: int


app = awa.App()
app.queue("default", max_workers=8)
app.queue("items", max_workers=8)


def soon(attempt: int) -> float:
    """Who is rescued need not wait for long: what is tested is what happens then."""
    return 0.2


@app.task(backoff=soon)
async def source(job: awa.Job[Source]) -> None:
    for item in job.args.items:
        job.enqueue_on_completion(Item(item), unique_opts={})
        await trio.sleep(job.args.seconds)
    job.enqueue_on_completion(Receipt(job.args.n, job.attempt))


@app.task(queue="items", backoff=soon)
async def item(job: awa.Job[Item]) -> None: ...


@app.task(queue="items", backoff=soon)
async def receipt(job: awa.Job[Receipt]) -> None: ...


@app.task()
async def waits(job: awa.Job[Waits]) -> None:
    if job.last_callback is None:
        payload = await job.wait_for_callback(await job.register_callback())
    else:
        payload = job.last_callback.payload
    job.enqueue_on_completion(Receipt(payload, job.attempt))


@app.task(queue="poison")
async def poison(job: awa.Job[Poison]) -> None:
    os._exit(1)


@app.task(queue="ledgered")
async def ledgered(job: awa.Job[Ledgered]) -> None:
    async def at(place: str) -> None:
        if job.attempt == 1 and place == job.args.wait_at:
            print(place, flush=True)
            await trio.sleep_forever()

    async with await Paused.connect(sys.argv[1], autocommit=True) as connection:
        connection.before_commit = partial(at, "settled")
        async with job.complete_in(connection) as tx:
            await tx.connection.execute(
                "INSERT INTO ledgered VALUES (%s, %s)", [job.id, job.attempt]
            )
            await at("inside")
        await at("committed")


class Paused(TrioConnection[Any]):
    """Does something just before a block ends."""

    before_commit: Callable[[], Awaitable[None]]

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        if gen.__name__ == "_exit_gen":
            await self.before_commit()
        return await super().wait(gen, *args, **options)


async def main(dsn: str) -> None:
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(run, client)
        print(worker.id, flush=True)


async def run(client: awa.Client, *, task_status: trio.TaskStatus[awa.Worker]) -> None:
    await awa.run_worker(app, client, timings=TIMINGS, task_status=task_status)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    trio.run(main, sys.argv[1])
