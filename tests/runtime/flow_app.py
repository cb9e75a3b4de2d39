"""An app with limits of all workers together, for worker processes.

``python -m tests.runtime.flow_app DSN``
"""

from __future__ import annotations

import logging
import sys

import trio
from attrs import frozen

import awa_trio as awa

from .app_for_processes import TIMINGS, soon

#: Starts a second, of all workers together; small enough for a machine that is busy.
RATE = awa.Rate(40, burst=8)

#: Attempts of one key at once.
MOST = 3


@frozen
class Start:
    """Starts, and is over."""

    n: int


@frozen
class Hold:
    """Holds a place of its key for a while."""

    n: int


app = awa.App()
app.queue("rated", rate=RATE)
app.queue("keyed", max_per_key=MOST)


@app.task(queue="rated")
async def start(job: awa.Job[Start]) -> None: ...


@app.task(queue="keyed", backoff=soon)
async def hold(job: awa.Job[Hold]) -> None:
    await trio.sleep(0.15)


async def main(dsn: str) -> None:
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:
        worker = await nursery.start(run, client)
        print(worker.id, flush=True)


async def run(client: awa.Client, *, task_status: trio.TaskStatus[awa.Worker]) -> None:
    await awa.run_worker(app, client, timings=TIMINGS, task_status=task_status)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    trio.run(main, sys.argv[1])
