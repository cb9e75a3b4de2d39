"""PostgreSQL goes away and comes back under a worker: a server of the tests' own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio

import awa_trio as awa
from awa_trio._app.schema import Engine, schema
from awa_trio.pg import DevServer
from tests.pg.servers import FAR, take_down

from .app_for_processes import TIMINGS, Source, app
from .test_processes import check, until_done

S = awa.JobState


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's folder. Durable: what has committed must survive."""
    return tmp_path_factory.mktemp("restarts") / "pg"


@pytest.fixture(params=Engine)
def server(request: pytest.FixtureRequest, root: Path) -> Iterator[DevServer]:
    with DevServer(root) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS awa CASCADE")
            connection.execute(schema(request.param).script().encode())
        yield server


@pytest.mark.parametrize(
    ("how", "down"),
    [
        pytest.param(signal.SIGINT, 0.0, id="fast"),
        pytest.param(signal.SIGQUIT, 2.0, id="immediate, and down for longer than the lease"),
        pytest.param(signal.SIGKILL, 0.0, id="killed"),
    ],
)
async def test_a_worker_outlives_a_restart(
    server: DevServer, how: signal.Signals, down: float
) -> None:
    """Jobs run, complete and are enqueued meanwhile; nothing is lost, doubled or made up."""
    dsn = server.dsn()
    enqueued = 0
    over = False

    async def produce(client: awa.Client) -> None:
        """Enqueue all the time; unique, so that it can be repeated when nobody knows."""
        nonlocal enqueued
        while not over:
            source = Source(enqueued, [enqueued % 17, enqueued % 5], seconds=0.02)
            try:
                await client.enqueue(source, unique_opts={"states": 127})
            except awa.DatabaseUnavailable:
                await trio.sleep(0.05)
            else:
                enqueued += 1
                await trio.sleep(0.02)

    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(app, client, timings=TIMINGS, task_status=task_status)

        worker = await nursery.start(run)
        nursery.start_soon(produce, client)
        await trio.sleep(0.3)
        await trio.to_thread.run_sync(take_down, server, how)
        await trio.sleep(down)
        again = await trio.to_thread.run_sync(DevServer(server.root).start)
        try:
            assert again.dsn() == dsn
            before = enqueued
            with trio.fail_after(FAR):
                while enqueued < before + 10:
                    await trio.sleep(0.05)
            over = True
            jobs = await until_done(client, within=FAR)
            worker.stop()
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(again.stop)
    check(jobs, enqueued)


async def test_a_worker_that_starts_while_it_is_down_says_so(server: DevServer) -> None:
    """A client that was connected before: so it is the worker that finds out."""
    async with awa.connect(server.dsn(), app=app) as client:
        await trio.to_thread.run_sync(take_down, server, signal.SIGINT)
        with pytest.raises(
            awa.DatabaseUnavailable, match=r"^starting a worker: .*[Ii]s the server running"
        ):
            await awa.run_worker(app, client, timings=TIMINGS)
        again = await trio.to_thread.run_sync(DevServer(server.root).start)
        try:
            with trio.move_on_after(FAR):
                async with trio.open_nursery() as nursery:

                    async def run(task_status: Any) -> None:
                        await awa.run_worker(
                            app, client, timings=TIMINGS, task_status=task_status
                        )

                    worker = await nursery.start(run)
                    worker.stop()
                return
            raise AssertionError("it did not start")
        finally:
            await trio.to_thread.run_sync(again.stop)
