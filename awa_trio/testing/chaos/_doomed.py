"""The program of a `worker_process`: a worker that may kill itself at a place."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from random import Random

import trio

from ..._app.app import App
from ..._app.connect import connect
from ..._app.run import run_worker
from ..._core.errors import ConfigurationError
from ..._runtime.worker import Worker
from ._points import Fault, Point
from ._process import STARTED
from ._sabotage import Sabotage, sabotaged
from ._survey import one_at_a_time, prepared


def load(program: str) -> App:
    """Return the app at MODULE:APP.

    Raises:
      ConfigurationError: there is none.
    """
    module, _, name = program.partition(":")
    app = getattr(importlib.import_module(module), name or "app", None)
    if not isinstance(app, App):
        raise ConfigurationError(f"{program}: there is no such app; give MODULE:APP")
    return app


async def main(program: str, place: Point | None) -> None:
    """Run the app's jobs until SIGTERM, or until the place is passed."""
    app = load(program)

    async def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    # To stand still is what a worker does that is presumed dead; this one will not go on.
    sabotage = Sabotage(None if place is None else (place, Fault.FENCE), die)
    async with (
        connect(app=app) as client,
        sabotaged(client, sabotage) as (breaking, _),
        trio.open_nursery() as nursery,
    ):
        with trio.open_signal_receiver(signal.SIGTERM) as signals:

            async def obey(worker: Worker) -> None:
                async for _ in signals:
                    worker.stop()

            async def run(task_status: trio.TaskStatus[Worker]) -> None:
                await run_worker(
                    prepared(app, sabotage),
                    breaking,
                    queues=one_at_a_time(app),
                    random=Random(0),
                    task_status=task_status,
                )
                nursery.cancel_scope.cancel()

            worker = await nursery.start(run)
            os.write(1, STARTED)
            await obey(worker)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    trio.run(main, sys.argv[1], Point.parse(sys.argv[2]) if len(sys.argv) > 2 else None)
