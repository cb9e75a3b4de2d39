"""A worker in a process of its own, which can be killed, or kills itself at a place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

import trio

from ..._app.connections import require_trio
from ..._core.errors import ConfigurationError
from ._points import Point

#: What the process prints when it has started.
STARTED = b"the worker has started\n"


@final
class WorkerProcess:
    """A worker in a process of its own; `worker_process` makes one."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self.ended = trio.Event()
        """Set when the process has ended."""

    @property
    def pid(self) -> int:
        """The process's ID."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, or the number of the signal that killed it, as a negative number; None while it runs."""
        return self._process.returncode

    def kill(self) -> None:
        """Kill it, with SIGKILL: from one moment to the next, as by the kernel that is out of memory."""
        self._process.kill()

    def stop(self) -> None:
        """Let it stop in peace, with SIGTERM."""
        self._process.terminate()

    def suspend(self) -> None:
        """Let it stand still, with SIGSTOP, as a machine that is suspended."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on as if nothing had been."""
        self._process.send_signal(signal.SIGCONT)

    async def _watch(self) -> None:
        await self._process.wait()
        self.ended.set()

    async def wait(self) -> int:
        """Wait until it has ended; return its `returncode`."""
        await self.ended.wait()
        return self._process.returncode or 0


@asynccontextmanager
async def worker_process(
    program: str,
    dsn: str,
    *,
    die_at: Point | str | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[WorkerProcess]:
    """Run a worker in a process of its own, for a block; it has started when the block begins.

    It runs one attempt of each queue at a time, and retries failed ones at once. At the end of the
    block it is killed, if it still runs.

    Args:
      program: the app, as MODULE:APP, to be found from the folder that this process is in.
      dsn: its database.
      die_at: where it kills itself, with SIGKILL, as `Point` is printed; default, nowhere.
      environ: its environment; default, this process's.

    Raises:
      ConfigurationError: it ended before it had started, and says why on stderr; or ``die_at`` is no place.
      WrongEventLoop: not called under Trio.
    """
    require_trio("worker_process")
    place = [] if die_at is None else [str(Point.parse(str(die_at)))]
    given = dict(os.environ if environ is None else environ)
    here = str(Path.cwd())
    given["PYTHONPATH"] = os.pathsep.join(filter(None, (here, given.get("PYTHONPATH"))))
    given["AWA_DSN"] = dsn
    command = [sys.executable, "-m", "awa_trio.testing.chaos._doomed", program, *place]
    process = await trio.lowlevel.open_process(command, env=given, stdout=subprocess.PIPE)
    made = WorkerProcess(process)
    assert process.stdout is not None
    failure: Exception | None = None
    try:
        async with process.stdout, trio.open_nursery() as nursery:
            nursery.start_soon(made._watch)
            try:
                if bytes(await process.stdout.receive_some()) != STARTED:
                    raise ConfigurationError(
                        f"the worker of {program} could not start: exit code {await made.wait()}"
                    )
                yield made
            except Exception as error:
                failure = error
            process.kill()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
    if failure is not None:
        raise failure
