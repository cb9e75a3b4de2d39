"""One worker process of the demo; made to be killed."""

from __future__ import annotations

import logging
import os
import sys

import trio

from .. import Timings, connect, run_worker
from ..pg import Pool, TrioConnection
from ._run import TO_BE_KILLED
from ._tasks import make_app

#: For workers that are killed: it is found out within seconds, not half a minute. On a busy
#: machine leases so short expire for no reason.
IMPATIENT = Timings(
    heartbeat=0.5, lease=2.0, finalize_deadline=1.5, rescue_interval=0.5, poll_interval=0.2
)

RECORD = """
    INSERT INTO demo_modules (name, size) VALUES (%s, %s)
    ON CONFLICT (name) DO UPDATE SET size = excluded.size, times = demo_modules.times + 1
"""


async def main(dsn: str, timings: Timings) -> None:
    """Work until the parent process goes away, or this one is killed."""

    async def connect_pool() -> TrioConnection[tuple[object, ...]]:
        return await TrioConnection.connect(dsn, autocommit=True, prepare_threshold=None)

    async with Pool(connect_pool, size=4) as pool:

        async def record(name: str, size: int) -> None:
            async with pool.connection() as connection:
                await connection.execute(RECORD, (name, size))

        app = make_app(record)
        async with connect(dsn, app=app) as client, trio.open_nursery() as nursery:
            nursery.start_soon(_end_with_parent, nursery.cancel_scope)
            await run_worker(app, client, timings=timings)


async def _end_with_parent(scope: trio.CancelScope) -> None:
    """The parent holds the other end of stdin, and the kernel closes it whatever happens."""
    async with trio.lowlevel.FdStream(os.dup(0)) as stdin:
        async for _ in stdin:
            pass
    scope.cancel(reason="the parent process is gone")


if __name__ == "__main__":
    # Rescues are what the demo shows; the parent counts them.
    logging.getLogger("awa_trio").setLevel(logging.ERROR)
    trio.run(main, sys.argv[1], IMPATIENT if TO_BE_KILLED in sys.argv else Timings())
