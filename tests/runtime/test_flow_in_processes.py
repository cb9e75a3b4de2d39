"""Limits of all workers together, held by real processes, one of them killed with -9."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from functools import partial
from typing import Any

import psycopg
import pytest
import trio

import awa_trio as awa

from .flow_app import MOST, RATE, Hold, Start, app
from .test_processes import until_done, worker_process

S = awa.JobState
process = partial(worker_process, module="tests.runtime.flow_app")


@pytest.mark.parametrize(
    "engine", ["segmented", pytest.param("canonical", marks=pytest.mark.slow)]
)
async def test_several_workers_keep_one_rate_and_reach_it(
    engine: str, request: pytest.FixtureRequest
) -> None:
    dsn = request.getfixturevalue(engine)
    count = 100
    async with awa.connect(dsn, app=app) as client:
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(process(dsn))
            await client.enqueue_many([Start(n) for n in range(count // 2)])
            await client.enqueue_many([Start(n) for n in range(count // 2)], limit_key="a")
            jobs = await until_done(client)
    starts = sorted(job.attempted_at.timestamp() for job in jobs if job.attempted_at)
    assert len(starts) == count
    for first in range(count):
        for last in range(first, count):
            allowed = RATE.burst + (starts[last] - starts[first]) * RATE.per_second
            assert last - first + 1 <= allowed + 1e-3
    # It is kept, and it is used: with a burst of 200 ms nobody has to be quick.
    ideal = (count - RATE.burst) / RATE.per_second
    assert starts[-1] - starts[0] < 2 * ideal


async def test_a_limit_by_key_holds_while_a_worker_is_killed_and_its_places_come_back(
    canonical: str,
) -> None:
    over: list[int] = []
    done = trio.Event()

    async def watch() -> None:
        """Ask the rows, all at one moment, again and again."""
        query = (
            "SELECT max(n) FROM (SELECT count(*) AS n FROM awa.jobs WHERE queue = 'keyed'"
            " AND state = 'running' GROUP BY limit_key) AS k"
        )
        async with await awa.pg.TrioConnection.connect(
            canonical, autocommit=True, prepare_threshold=None
        ) as connection:
            while not done.is_set():
                [(most,)] = await (await connection.execute(query)).fetchall()
                over.append(most or 0)

    async with awa.connect(canonical, app=app) as client:
        async with trio.open_nursery() as nursery:
            with process(canonical) as first, process(canonical):
                for key in "ab":
                    await client.enqueue_many([Hold(n) for n in range(30)], limit_key=key)
                nursery.start_soon(watch)
                while not await client.jobs.list(state=S.COMPLETED, limit=1):
                    await trio.sleep(0.02)
                first.send_signal(signal.SIGKILL)
                jobs = await until_done(client)
            done.set()
    assert {job.state for job in jobs} == {S.COMPLETED}
    assert max(over) == MOST


async def test_no_claim_that_comes_after_a_pause_gets_anything(canonical: str) -> None:
    """Workers that claim as fast as they can; and at each pause a look at what they have got."""
    async with awa.connect(canonical, app=app) as client:
        await client.queues.override("rated", rate=None)
        await client.enqueue_many([Start(n) for n in range(200)], queue="other")
        store = client._backend.store
        workers = [await store.register(f"w{n}", 60) for n in range(2)]

        async def claim(worker: int) -> None:
            from awa_trio._seam.values import Want

            while True:
                await store.claim(worker, [Want("other", 1, 0.0)], {"start": None})

        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(claim, worker)
            counts: list[Any] = []
            for _ in range(20):
                await client.queues.pause("other")
                with psycopg.connect(canonical, autocommit=True) as observer:
                    query = "SELECT count(*) FROM awa.jobs WHERE state = 'running'"
                    before = observer.execute(query).fetchall()
                    await trio.sleep(0.01)
                    assert observer.execute(query).fetchall() == before
                    counts += before
                await client.queues.resume("other")
                await trio.sleep(0.005)
            nursery.cancel_scope.cancel()
    assert len(set(counts)) > 5, "they did claim between the pauses"
