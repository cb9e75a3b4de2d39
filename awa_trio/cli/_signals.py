"""SIGINT and SIGTERM end a command: by cancelling what it does, or in peace."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable

import trio


async def until_signalled(run: Callable[[], Awaitable[None]]) -> int | None:
    """Run a function until it returns, or SIGINT or SIGTERM cancel it; return the signal's number.

    A second signal ends the process on the spot.
    """
    stopped: int | None = None

    async def obey() -> None:
        nonlocal stopped
        async for number in signals:
            if stopped is not None:
                os._exit(128 + number)
            stopped = number
            running.cancel(reason=f"signal {number}")

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(obey)
            # Obeyed until the end: the first signal's cancellation may take its time.
            with trio.CancelScope() as running:
                await run()
            nursery.cancel_scope.cancel()
    return stopped


async def obey_signals(
    stop: Callable[[], object], *, task_status: trio.TaskStatus[None]
) -> None:
    """Call a function at the first SIGINT or SIGTERM; a second ends the process on the spot."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        stopping = False
        async for number in signals:
            if stopping:
                os._exit(128 + number)
            stopping = True
            stop()
