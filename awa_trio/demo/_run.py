"""Run the demo: enqueue, watch, kill if asked to, compare."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import attrs
import trio

from .. import connect, migrate
from ..pg import DevServer, TrioConnection, dev_server
from ._library import plain_result, source_files
from ._tasks import ScanFile, make_app

#: The argument of a worker process that is one day killed.
TO_BE_KILLED = "--to-be-killed"

TABLE = "CREATE TABLE demo_modules (name text PRIMARY KEY, size bigint, times int DEFAULT 1)"

COUNTS = """
    SELECT kind, count(*), count(*) FILTER (WHERE state = 'completed'),
           count(*) FILTER (WHERE state IN ('failed', 'cancelled'))
      FROM awa.jobs GROUP BY kind
"""

#: B rows whose A has not completed, or that have no A.
PHANTOMS = """
    SELECT count(*) FROM awa.jobs AS b
      LEFT JOIN awa.jobs AS a ON a.id = (b.metadata ->> 'awa:triggered_by')::bigint
     WHERE b.kind = 'measure_module' AND a.state IS DISTINCT FROM 'completed'
"""

ROWS = "SELECT args ->> 'name', count(*) FROM awa.jobs WHERE kind = 'measure_module' GROUP BY 1"

RESCUED = """
    SELECT count(*) FROM awa.jobs, jsonb_array_elements(errors) AS e
     WHERE e ->> 'error' LIKE 'rescued:%'
"""


@attrs.frozen
class Progress:
    """How far the jobs are."""

    files: int
    files_done: int
    """Those all of whose stage A jobs have completed."""
    scans: int
    """Stage A jobs, so far."""
    modules: int
    modules_done: int
    failed: int
    killed: int


@attrs.frozen
class Summary:
    """What the jobs found, beside what a plain computation finds."""

    files: int
    scans: int
    """Stage A jobs: a file that imports more than 15 modules takes several."""
    modules: dict[str, int]
    """The modules recorded, with their sizes."""
    expected: dict[str, int]
    rows: dict[str, int]
    """Stage B rows of each module: exactly one, whatever was killed."""
    phantoms: int
    """Stage B rows whose stage A did not complete."""
    failed: int
    again: int
    """Stage B handlers that ran again."""
    rescued: int
    """Attempts taken from killed workers."""
    killed: int
    seconds: float

    @property
    def matches(self) -> bool:
        """Whether the jobs found what they should, once each, and nothing else."""
        return (
            self.modules == self.expected
            and self.rows == dict.fromkeys(self.expected, 1)
            and self.phantoms == 0
            and self.failed == 0
        )


async def run_demo(
    *,
    workers: int = 2,
    chaos: bool = False,
    dsn: str | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Run the demo to its end.

    Args:
      workers: worker processes.
      chaos: kill one of them with SIGKILL about twice a second while jobs get done, and start another.
      dsn: an empty database; default, one on a server of its own, gone afterwards.
      watch: told how far the jobs are, several times a second.

    Raises:
      ValueError: no worker processes: the jobs would wait for ever.
    """
    if workers < 1:
        raise ValueError(f"workers={workers}: give at least 1")
    async with AsyncExitStack() as stack:
        if dsn is None:
            server = await stack.enter_async_context(dev_server())
            dsn = await trio.to_thread.run_sync(_demo_database, server)
        await migrate(dsn)
        return await _run(dsn, workers, chaos, watch)


def _demo_database(server: DevServer) -> str:
    return server.create_database("awa_demo")


async def _run(
    dsn: str, workers: int, chaos: bool, watch: Callable[[Progress], None]
) -> Summary:
    async def record(name: str, size: int) -> None:
        raise AssertionError("this process runs no jobs")

    files = source_files()
    app = make_app(record)
    async with (
        await TrioConnection.connect(
            dsn, autocommit=True, prepare_threshold=None
        ) as connection,
        connect(dsn, app=app) as client,
    ):
        await connection.execute(TABLE)
        await client.enqueue_many(map(ScanFile, files))
        began = trio.current_time()
        fleet = Fleet(dsn, workers, to_be_killed=chaos)
        async with trio.open_nursery() as nursery:
            await nursery.start(fleet.run)
            if chaos:
                nursery.start_soon(fleet.kill_now_and_then)
            while not _finished(progress := await _progress(connection, fleet, len(files))):
                watch(progress)
                fleet.done = progress.files_done + progress.modules_done
                await trio.sleep(0.1)
            watch(progress)
            seconds = trio.current_time() - began
            nursery.cancel_scope.cancel()
        expected = await trio.to_thread.run_sync(plain_result)
        return Summary(
            files=len(files),
            scans=progress.scans,
            modules=dict(await _all(connection, "SELECT name, size FROM demo_modules")),
            expected=expected,
            rows=dict(await _all(connection, ROWS)),
            phantoms=(await _all(connection, PHANTOMS))[0][0],
            failed=progress.failed,
            again=(await _all(connection, "SELECT sum(times - 1)::int FROM demo_modules"))[0][
                0
            ],
            rescued=(await _all(connection, RESCUED))[0][0],
            killed=fleet.killed,
            seconds=seconds,
        )


async def _all(connection: TrioConnection[Any], statement: Any) -> list[Any]:
    cursor = await connection.execute(statement)
    return await cursor.fetchall()


async def _progress(connection: TrioConnection[Any], fleet: Fleet, files: int) -> Progress:
    counts = {kind: numbers for kind, *numbers in await _all(connection, COUNTS)}
    scans, scans_done, scans_failed = counts.get("scan_file", [0, 0, 0])
    modules, modules_done, modules_failed = counts.get("measure_module", [0, 0, 0])
    # A job for the rest of a file is there from the moment that the one before completes.
    files_done = scans_done - (scans - files)
    failed = scans_failed + modules_failed
    return Progress(files, files_done, scans, modules, modules_done, failed, fleet.killed)


def _finished(progress: Progress) -> bool:
    done = progress.files_done + progress.modules_done + progress.failed
    return done == progress.files + progress.modules


class Fleet:
    """The worker processes: a process that ends is replaced."""

    def __init__(self, dsn: str, size: int, *, to_be_killed: bool) -> None:
        self._command = [sys.executable, "-m", "awa_trio.demo._process", dsn]
        if to_be_killed:
            self._command.append(TO_BE_KILLED)
        self._size = size
        self._processes: list[trio.Process] = []
        self.killed = 0
        self.done = 0
        """Jobs done, as whoever watches says."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep the processes running until cancelled, and then end them."""
        async with trio.open_nursery() as nursery:
            for _ in range(self._size):
                nursery.start_soon(self._keep_one)
            task_status.started()

    async def _keep_one(self) -> None:
        while True:
            process = await trio.lowlevel.open_process(self._command, stdin=subprocess.PIPE)
            self._processes.append(process)
            try:
                await process.wait()
            finally:
                self._processes.remove(process)
                if process.returncode is None:
                    process.kill()
                    with trio.CancelScope(shield=True):
                        await process.wait()
            await trio.sleep(0.1)

    async def kill_now_and_then(self) -> None:
        """SIGKILL: no cleanup code runs, no connection says goodbye.

        Only when jobs have been done since the last: on a busy machine a worker may need
        longer to start than it is given.
        """
        done = 0
        while True:
            await trio.sleep(random.uniform(0.3, 0.7))
            if self._processes and self.done > done:
                done = self.done
                random.choice(self._processes).send_signal(signal.SIGKILL)
                self.killed += 1
