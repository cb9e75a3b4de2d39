"""The app of worker processes that fire schedules, and are killed; and those processes' main.

``python -m tests.runtime.scheduled_app DSN``
"""

from __future__ import annotations

import sys
from functools import partial

import trio
from attrs import frozen

import awa_trio as awa

app = awa.App()

TIMINGS = awa.Timings(
    heartbeat=0.3, lease=1.5, finalize_deadline=1.2, rescue_interval=0.3, poll_interval=0.2,
    schedule_interval=1.0,
)  # fmt: skip


@frozen
class Beat:
    n: int = 0


@app.cron("* * * * * *", name="seconds", missed="catch_up")
@app.periodic(0.5 + 0.5, name="period", missed="catch_up", unique_opts={"states": 255})
@app.task
async def beat(job: awa.Job[Beat]) -> None: ...


async def main(dsn: str) -> None:
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:
        await nursery.start(partial(awa.run_worker, app, client, timings=TIMINGS))
        print("working", flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
