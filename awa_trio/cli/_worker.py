"""``awa-trio worker``: run jobs until a signal."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated

import trio
from cyclopts import Parameter
from cyclopts.validators import Number

from .. import (
    App,
    ConfigurationError,
    DatabaseUnavailable,
    Observer,
    Worker,
    connect,
    health,
    run_worker,
)
from ._collector import spare_the_collector
from ._errors import CommandFailed, UsageError
from ._logs import JsonLog, log_to_stderr, teller
from ._options import Dsn, ListenDsn, load_app
from ._output import note

#: Characters of a worker's name.
MAX_NAME = 200


async def worker(
    app: str,
    /,
    *,
    queue: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    grace: Annotated[float, Parameter(validator=Number(gte=0))] = 25.0,
    name: str | None = None,
    max_workers: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    listen: bool = True,
    prepare: bool | None = None,
    listen_dsn: ListenDsn = "",
    telemetry: Annotated[bool, Parameter(negative="")] = False,
    probes: Annotated[str | None, Parameter(name="--health")] = None,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False,
    json: JsonLog = False,
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
    max_workers
        Attempts of all queues together that run at once. Default, what each queue may.
    listen
        Hear of new jobs by LISTEN; polling finds them too.
    prepare
        Prepare statements. Default, unless a pooler is in between.
    telemetry
        Trace and measure with OpenTelemetry's global providers, which the app's module or
        opentelemetry-instrument has set up.
    probes
        Answer GET /healthz and GET /readyz at this HOST:PORT, or PORT of the loopback address.
        Needs the extra "health". systemd is told by itself, if it asks.
    verbose
        Log what happens to each job, and show the traceback of a program that cannot be
        imported.
    """
    log_to_stderr(logging.DEBUG if verbose else logging.INFO, as_json=json)
    logging.getLogger("psycopg").setLevel(logging.INFO)
    queues = _queues(queue) if queue else None
    if name is not None and not 1 <= len(name) <= MAX_NAME:
        raise UsageError(f"--name: give 1 to {MAX_NAME} characters")
    loaded = load_app(app, verbose=verbose)
    observers = [_telemetry()] if telemetry else []
    spare_the_collector()
    async with AsyncExitStack() as held:
        listeners = None if probes is None else await health.listen(probes)
        for one in listeners or ():
            await held.enter_async_context(one)
        client = await held.enter_async_context(
            connect(
                dsn, app=loaded, prepare=prepare, listen_dsn=listen_dsn, observers=observers
            )
        )
        run = partial(
            run_worker,
            loaded,
            client,
            queues=queues,
            grace=grace,
            name=name,
            max_workers=max_workers,
            listen=listen,
        )
        tell = teller(as_json=json)
        return await run_until_signalled(run, grace, tell, listeners)


async def run_until_signalled(
    run: Callable[..., Awaitable[None]],
    grace: float,
    tell: Callable[[str], None] = note,
    listeners: Sequence[trio.SocketListener] | None = None,
) -> int:
    """Run a worker until signals have stopped it; return the exit code.

    Args:
      run: runs it.
      grace: seconds it gives its jobs.
      tell: says how it goes on.
      listeners: where probes come in, if they do.

    Raises:
      CommandFailed: a handler's SystemExit or KeyboardInterrupt ended it.
    """
    code = 0
    worker: Worker | None = None

    class Announcement:
        """What `run_worker` tells when the worker runs."""

        def started(self, running: Worker) -> None:
            nonlocal worker
            worker = running
            nursery.start_soon(health.notify, running)
            if listeners is not None:
                nursery.start_soon(answer_probes, running, listeners)
            tell(f"worker {worker.id} serves {', '.join(worker.queues)}; Ctrl-C stops it")

    async def answer_probes(running: Worker, listeners: Sequence[trio.SocketListener]) -> None:
        async with trio.open_nursery() as serving:
            where = await serving.start(health.serve, running, listeners)
            tell(f"health is at http://{where[0]}/readyz and /healthz")

    async def obey() -> None:
        nonlocal code
        seen = 0
        async for number in signals:
            seen += 1
            if seen == 1 and worker is not None:
                tell(f"no new jobs; up to {grace:g} s for the running ones to end")
                worker.stop()
            elif seen <= 2:
                tell("the running jobs are cut and handed back" if worker else "not started")
                code = 128 + number
                now.cancel(reason=f"signal {number}")
            else:
                os._exit(128 + number)

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(obey)
            with trio.CancelScope() as now:
                try:
                    await run(task_status=Announcement())
                except (SystemExit, KeyboardInterrupt) as error:
                    # Signals come to `obey`, so it was a handler's.
                    if not code:
                        raise _ended_by(error) from error
                except DatabaseUnavailable:
                    # Nobody who gave up on its start asks why that failed.
                    if not code or worker is not None:
                        raise
            nursery.cancel_scope.cancel()
    return code


def _ended_by(error: SystemExit | KeyboardInterrupt) -> CommandFailed:
    said = f"({error.code!r})" if isinstance(error, SystemExit) else ""
    whose = " ".join(getattr(error, "__notes__", ())) or "raised by a handler"
    return CommandFailed(
        f"{type(error).__name__}{said}, {whose}, ended the worker; a handler returns, or raises"
        " an Exception, instead"
    )


def _queues(given: Sequence[str]) -> dict[str, int | None]:
    """Return the queues to serve.

    Raises:
      UsageError: a name or a number cannot be one, or a queue is given twice.
    """
    chosen: dict[str, int | None] = {}
    rules = App()
    for text in given:
        name, equals, count = text.partition("=")
        if equals and not (count.isascii() and count.isdecimal() and len(count) < 10):
            raise UsageError(
                f"--queue {text}: give NAME=ATTEMPTS_AT_ONCE, as in {name or 'mail'}=50"
            )
        try:
            rules.queue(name, max_workers=int(count) if equals else 1)
        except ConfigurationError as error:
            raise UsageError(f"--queue {text[:100]}: {error}") from error
        chosen[name] = int(count) if equals else None
    return chosen


def _telemetry() -> Observer:
    try:
        from ..telemetry import Telemetry
    except ImportError as error:
        raise ConfigurationError(f"--telemetry: {error}") from error
    return Telemetry()
