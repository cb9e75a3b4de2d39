"""``awa-trio worker``: run jobs until a signal."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import trio
from cyclopts import Parameter

from .. import ConfigurationError, Observer, Worker, connect, run_worker
from ._options import Dsn, load_app
from ._output import err


async def worker(
    app: str,
    /,
    *,
    queue: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    grace: float = 25.0,
    name: str | None = None,
    listen: bool = True,
    prepare: bool = True,
    telemetry: Annotated[bool, Parameter(negative="")] = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False,
    dsn: Dsn = "",
) -> int:
    """Run the jobs of an app until stopped.

    The first SIGTERM or SIGINT stops in peace: no new jobs, and time for the running ones
    to end. The second stops at once: they are cut and handed back. A third ends the
    process on the spot, if a handler will not let go.

    Parameters
    ----------
    app
        MODULE:APP, or FILE.py:APP; ":APP" may be left out if it is ":app".
    queue
        Serve this queue, as NAME or NAME=ATTEMPTS_AT_ONCE; may be given several times.
        Default, every queue the app knows.
    grace
        Seconds for the running jobs to end after the first signal.
    name
        How people know the worker. Default, host and process.
    listen
        Hear of new jobs by LISTEN; polling finds them too.
    prepare
        Prepare statements; not through a pooler that does not support them.
    telemetry
        Trace and measure with OpenTelemetry's global providers, which the app's module or
        opentelemetry-instrument has set up.
    verbose
        Log what happens to each job.
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(message)s",
    )
    logging.getLogger("psycopg").setLevel(logging.INFO)
    loaded = load_app(app)
    queues = dict(map(_queue, queue)) if queue else None
    observers = [_telemetry()] if telemetry else []
    async with connect(dsn, app=loaded, prepare=prepare, observers=observers) as client:
        run = partial(
            run_worker,
            loaded,
            client,
            queues=queues,
            grace=grace,
            name=name,
            listen=listen,
        )
        return await run_until_signalled(run, grace)


async def run_until_signalled(run: Callable[..., Awaitable[None]], grace: float) -> int:
    """Run a worker until signals have stopped it; return the exit code."""
    code = 0
    now = trio.CancelScope()
    started: Worker | None = None

    async def work(task_status: trio.TaskStatus[Worker]) -> None:
        with now:
            await run(task_status=task_status)
        nursery.cancel_scope.cancel()

    async def obey() -> None:
        nonlocal code
        seen = 0
        async for number in signals:
            seen += 1
            if seen == 1 and started is not None:
                err.print(f"no new jobs; up to {grace:g} s for the running ones to end")
                started.stop()
            elif seen <= 2:
                err.print("the running jobs are cut and handed back")
                code = 128 + number
                now.cancel(reason=f"signal {number}")
            else:
                os._exit(128 + number)

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(obey)
            worker: Worker = await nursery.start(work)
            started = worker
            err.print(f"worker {worker.id} serves {', '.join(worker.queues)}; Ctrl-C stops it")
    return code


def _telemetry() -> Observer:
    try:
        from ..telemetry import Telemetry
    except ImportError as error:
        raise ConfigurationError(f"--telemetry: {error}") from error
    return Telemetry()


def _queue(given: str) -> tuple[str, int | None]:
    name, equals, count = given.partition("=")
    if not equals:
        return name, None
    if not count.isdecimal():
        raise ConfigurationError(
            f"--queue {given}: give NAME=ATTEMPTS_AT_ONCE, as in {name}=50"
        )
    return name, int(count)
