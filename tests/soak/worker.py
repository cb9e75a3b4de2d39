"""The worker of a soak, in a process of its own, which says how it is.

``python -m tests.soak.worker SECONDS [LEAK]``, on the database that AWA_DSN names: every so many seconds a line of JSON
with what it has of everything. With the name of one of `LEAKS` it loses some of that with
every job, so that tests can show that it is found.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

import awa_trio as awa
from awa_trio import events

from .app import RETENTION, app, leaked, pickups

#: Rescue and retention take their turns often enough to be part of what is measured.
TIMINGS = awa.Timings(prune_interval=2.0, sample_interval=5.0)


def _leak_thread() -> None:
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    leaked.append(stop)


LEAKS: dict[str, Callable[[], object]] = {
    "memory": lambda: leaked.append(bytearray(65_536)),
    "fds": lambda: leaked.append(socket.socket()),
    "threads": _leak_thread,
}
"""By what they lose."""


class Leaking(awa.Observer):
    """An observer that loses something with every settlement."""

    def __init__(self, leak: Callable[[], object]) -> None:
        self._leak = leak

    def observe(self, event: events.Event) -> None:
        """See `awa_trio.Observer`."""
        if isinstance(event, events.Settled):
            self._leak()


def state() -> dict[str, Any]:
    """What this process has of everything."""
    now = trio.lowlevel.current_statistics()
    seen, pickups[:] = pickups[:], []
    return {
        "memory": int(Path("/proc/self/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE"),
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "tasks": now.tasks_living,
        "objects": len(gc.get_objects()),
        "cpu": time.process_time(),
        "pickups": seen,
    }


async def main(seconds: float, leak: str | None) -> None:
    """Run until standard input is closed, and say at the end what was settled."""
    observers = [Leaking(LEAKS[leak])] if leak else []
    async with awa.connect(app=app) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                app, client, timings=TIMINGS, retention=RETENTION, observers=observers,
                grace=2.0, task_status=task_status,
            )  # fmt: skip

        worker: awa.Worker = await nursery.start(run)
        nursery.start_soon(_tell, worker, seconds)
        await trio.to_thread.run_sync(sys.stdin.read, limiter=trio.CapacityLimiter(1))
        nursery.cancel_scope.cancel()


async def _tell(worker: awa.Worker, seconds: float) -> None:
    while True:
        await trio.sleep(seconds)
        told = worker.statistics()
        settled = {str(to): count for to, count in told.settled.items()}
        counted = {
            "settled": settled,
            "stale": told.stale,
            "given up": told.given_up,
            "lives": told.lives,
            "duplicates": told.duplicates,
        }
        print(json.dumps(state() | {"worker": counted}), flush=True)


if __name__ == "__main__":
    trio.run(main, float(sys.argv[1]), next(iter(sys.argv[2:]), None))
