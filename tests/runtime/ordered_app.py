"""The app of the worker processes that run jobs in order, and those processes' main.

Each attempt is a row of the table ``trace``: when it began, and when it ended.

``python -m tests.runtime.ordered_app DSN``
"""

from __future__ import annotations

import sys
from typing import Any

import psycopg
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.pg import Pool, TrioConnection

#: A lease that a busy machine does not let run out, and that a test can wait for.
TIMINGS = awa.Timings(
    heartbeat=0.5, lease=5.0, finalize_deadline=4.0, rescue_interval=0.5, poll_interval=0.2,
)  # fmt: skip

TRACE = """
CREATE TABLE trace (
    key text NOT NULL, n int NOT NULL, attempt int NOT NULL, process int NOT NULL,
    began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz
)
"""


@frozen
class Step:
    """The n-th job of its ordering key."""

    n: int
    seconds: float = 0.0


app = awa.App()
app.queue("steps", max_workers=20)
traces: Pool


@app.task(queue="steps", backoff=lambda attempt: 0.2)
async def step(job: awa.Job[Step]) -> None:
    async with traces.connection() as connection:
        cursor = await connection.execute(
            "INSERT INTO trace (key, n, attempt, process) VALUES (%s, %s, %s, pg_backend_pid())"
            " RETURNING began",
            [job.ordering_key, job.args.n, job.attempt],
        )
        row = await cursor.fetchone()
        assert row is not None
        await trio.sleep(job.args.seconds)
        await connection.execute(
            "UPDATE trace SET ended = clock_timestamp() WHERE key = %s AND began = %s",
            [job.ordering_key, row[0]],
        )


async def main(dsn: str) -> None:
    global traces

    async def open_one() -> psycopg.AsyncConnection[Any]:
        # As behind a pooler, whether there is one or not.
        return await TrioConnection.connect(dsn, autocommit=True, prepare_threshold=None)

    async with awa.connect(dsn, app=app) as client, Pool(open_one, size=20) as traces:
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(run, client)
            print(worker.id, flush=True)


async def run(client: awa.Client, *, task_status: trio.TaskStatus[awa.Worker]) -> None:
    await awa.run_worker(app, client, timings=TIMINGS, task_status=task_status)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
