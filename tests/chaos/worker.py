"""A worker's process: ``python -m tests.chaos.worker SLOT LEDGER DSN``.

It does what lines on its standard input say: how many seconds its wall clock is off. It
stops in peace when that is closed.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from tests.clock_off import set_clock

# Before anything else takes the real one.
set_clock(0)

import trio  # noqa: E402

import awa_trio as awa  # noqa: E402
from awa_trio import events  # noqa: E402
from awa_trio.pg import TrioConnection  # noqa: E402

from .app import CANCEL_GRACE, RETENTION, TIMINGS, app_that_tells, own_queue  # noqa: E402
from .ledger import Ledger  # noqa: E402
from .tracing import witnesses  # noqa: E402

#: Seconds between signs that the process is awake.
AWAKE = 0.05


class Told(awa.Observer):
    """Writes down what the worker is told has committed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def observe(self, event: events.Event) -> None:
        match event:
            case events.Settled(job):
                inserted = [i.id for i in (*event.registered, *event.staged) if i.id]
                self._ledger.write(
                    "settled", job=job.id, kind=job.kind, to=event.to_state, inserted=inserted
                )
            case events.Fenced(worker):
                self._ledger.write("fenced", worker=worker)
            case _:
                pass


async def main(slot: int, path: Path, dsn: str) -> None:
    """Work until told to stop."""
    ledger = Ledger(path)
    ledger.write("born", pid=os.getpid(), slot=slot)
    app = app_that_tells(ledger.write)
    TrioConnection.cancel_grace = CANCEL_GRACE
    queues = ["default", "items", own_queue(slot)]
    async with (
        awa.connect(
            dsn, app=app, pool_size=2, observers=[Told(ledger), *witnesses(path.parent)]
        ) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_show_that_it_is_awake, ledger)

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                app,
                client,
                queues=queues,
                grace=5,
                timings=TIMINGS,
                retention=RETENTION,
                task_status=task_status,
            )
            nursery.cancel_scope.cancel(reason="the worker has stopped")

        worker = await nursery.start(run)
        ledger.write("works", worker=worker.id)
        while line := await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            set_clock(float(line))
        worker.stop()


async def _show_that_it_is_awake(ledger: Ledger) -> None:
    while True:
        ledger.write("awake")
        await trio.sleep(AWAKE)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    trio.run(main, int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
