"""What handlers that wait for callbacks cost: ``python -m tests.bench.waiting [HANDLERS]``.

One worker, one process. Prints, for so many handlers waiting at once: memory per waiter,
CPU of this process and of PostgreSQL while nothing happens, and how long it takes to let
them begin, and to resume and complete them all.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.pg import DevServer

from .ground import SETTINGS, cpu_of_server

#: Seconds in which nothing happens.
IDLE = 20.0

app = awa.App()


@frozen
class Wait:
    n: int


@app.task()
async def wait(job: awa.Job[Wait]) -> None:
    await job.wait_for_callback(await job.register_callback())


def memory() -> int:
    """Bytes that this process has in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def measure(dsn: str, postmaster: int, handlers: int) -> dict[str, float]:
    """Let so many handlers wait, watch them, resume them."""
    figures: dict[str, float] = {}
    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                app,
                client,
                queues={"default": 100},
                max_waiting=100_000,
                task_status=task_status,
            )

        worker = await nursery.start(run)
        await trio.sleep(2)
        before = memory()
        began = time.perf_counter()
        for first in range(0, handlers, 5000):
            jobs = [Wait(n) for n in range(first, min(first + 5000, handlers))]
            await client.enqueue_many(jobs)
        while worker.statistics().waiting < handlers:
            await trio.sleep(0.02)
        figures["begin, jobs/s"] = handlers / (time.perf_counter() - began)
        await trio.sleep(2)
        figures["memory per waiter, KiB"] = (memory() - before) / handlers / 1024
        cpu, server, began = time.process_time(), cpu_of_server(postmaster), time.perf_counter()
        await trio.sleep(IDLE)
        took = time.perf_counter() - began
        figures["idle CPU, %"] = (time.process_time() - cpu) / took * 100
        figures["idle CPU of PostgreSQL, %"] = (cpu_of_server(postmaster) - server) / took * 100
        figures["slots free"] = worker._parts.dispatcher._queues["default"].free
        tokens = [
            job.callback_token
            for job in await client.jobs.list(state="waiting_external", limit=handlers)
        ]
        limit = trio.CapacityLimiter(8)

        async def resume(token: str | None) -> None:
            async with limit:
                assert token is not None
                await client.callbacks.resume(token, {"ok": True})

        began = time.perf_counter()
        async with trio.open_nursery() as resolvers:
            for token in tokens:
                resolvers.start_soon(resume, token)
        while worker.statistics().settled[awa.JobState.COMPLETED] < handlers:
            await trio.sleep(0.02)
        figures["resume and complete, jobs/s"] = handlers / (time.perf_counter() - began)
        worker.stop()
    return figures


def main() -> None:
    handlers = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    from awa_trio.pg import temporary_root

    with DevServer(temporary_root("bench-waiting"), keep=False, settings=SETTINGS) as server:
        dsn = server.dsn()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(awa.schema_script(0).encode())
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            stat = Path(f"/proc/{row[0]}/stat").read_text().rsplit(")", 1)[1].split()
        figures = trio.run(measure, dsn, int(stat[1]), handlers)
    print(f"{handlers} handlers waiting for callbacks on one worker")
    for name, value in figures.items():
        print(f"{name:32} {value:10.2f}")


if __name__ == "__main__":
    main()
