"""The app of the worker processes that tests start and kill, and those processes' main.

``python -m tests.runtime.app_for_processes DSN``
"""

from __future__ import annotations

import logging
import os
import sys

import trio
from attrs import frozen

import awa_trio as awa

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


@app.task(queue="poison")
async def poison(job: awa.Job[Poison]) -> None:
    os._exit(1)


async def main(dsn: str) -> None:
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(run, client)
        print(worker.id, flush=True)


async def run(client: awa.Client, *, task_status: trio.TaskStatus[awa.Worker]) -> None:
    await awa.run_worker(app, client, timings=TIMINGS, task_status=task_status)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    trio.run(main, sys.argv[1])
