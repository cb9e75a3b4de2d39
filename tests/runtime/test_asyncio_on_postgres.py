"""asyncio handlers on PostgreSQL: asyncpg's rows, cuts in the middle of its queries, completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import pytest
import trio

import awa_trio as awa
from awa_trio import aio
from awa_trio.pg import TrioConnection

from ..bridge.ways import for_asyncpg
from .rig import Next, Rig, Work

S = awa.JobState


class Pool:
    """asyncpg's, which is generic and so no key."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool


@pytest.fixture(params=["migrated", "segmented"])
def dsn_of(request: pytest.FixtureRequest) -> str:
    dsn: str = request.getfixturevalue(request.param)
    return dsn


@asynccontextmanager
async def rig_on(dsn: str, handler: Any, **task: Any) -> AsyncIterator[Rig]:
    """A rig whose handler may request one pool of asyncpg's for the whole worker."""
    async with awa.connect(dsn) as client:
        rig = Rig(handler, client, asyncio=True, **task)

        @asynccontextmanager
        async def new_pool() -> AsyncIterator[Pool]:
            async with asyncpg.create_pool(**for_asyncpg(dsn), min_size=1, max_size=2) as pool:
                yield Pool(pool)

        @rig.app.resource
        async def pool() -> AsyncIterator[Pool]:
            async with aio.opened(new_pool()) as opened:
                yield opened

        yield rig


async def test_rows_of_asyncpgs_and_staged_jobs(dsn_of: str) -> None:
    async def handler(job: awa.Job[Work], pool: Pool) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(4):
                group.create_task(one(job, pool, n))

    async def one(job: awa.Job[Work], pool: Pool, n: int) -> None:
        value = await pool.pool.fetchval("SELECT 10 * $1::int + $2::int", job.args.n, n)
        job.enqueue_on_completion(Next(value), unique_opts={})

    async with rig_on(dsn_of, handler) as rig, rig.working():
        for n in (1, 2, 1):
            job = await rig.client.jobs.wait(await rig.enqueue(n))
            assert job.state == S.COMPLETED, job.errors
        staged = sorted(await rig.follow_ups())
    assert staged == [10, 11, 12, 13, 20, 21, 22, 23]


@pytest.mark.sessions
async def test_a_cut_in_the_middle_of_a_query_ends_the_query_and_leaves_the_pool_usable(
    migrated: str,
) -> None:
    async def handler(job: awa.Job[Work], pool: Pool) -> None:
        if job.args.n == 0:
            await pool.pool.execute("SELECT pg_sleep(600)")
        job.set_output(await pool.pool.fetchval("SELECT 1"))

    async with rig_on(migrated, handler, max_attempts=1) as rig, rig.working():
        late = await rig.enqueue(0, deadline=0.3)
        assert (await rig.client.jobs.wait(late)).state == S.FAILED
        cancelled = await rig.enqueue(0)
        while await rig.state(cancelled) != S.RUNNING:
            await trio.sleep(0.01)
        await rig.client.jobs.cancel(cancelled, without_follow_ups=True)
        job = await rig.client.jobs.wait(await rig.enqueue(1))
        assert (job.state, job.output) == (S.COMPLETED, 1)
        async with await TrioConnection.connect(migrated) as connection:
            asleep = (
                "SELECT FROM pg_stat_activity WHERE query LIKE '%%600)' AND state = 'active'"
            )
            while await (await connection.execute(asleep)).fetchall():
                await connection.rollback()


async def test_a_job_is_completed_in_a_transaction_on_trios_side(dsn_of: str) -> None:
    async def handler(job: awa.Job[Work]) -> None:
        await asyncio.sleep(0)
        await aio.trio(complete, job)

    async def complete(job: awa.Job[Work]) -> None:
        async with (
            await TrioConnection.connect(dsn_of) as connection,
            job.complete_in(connection) as tx,
        ):
            await tx.enqueue(Next(5))

    async with rig_on(dsn_of, handler) as rig, rig.working():
        job = await rig.client.jobs.wait(await rig.enqueue())
        assert (job.state, await rig.follow_ups()) == (S.COMPLETED, [5])


async def test_a_client_of_its_own_runs_on_asyncio_inside(migrated: str) -> None:
    """psycopg took asyncio's functions before trio-asyncio replaced them."""

    async def handler(job: awa.Job[Work]) -> None:
        async with awa.connect(migrated) as client:
            await client.enqueue(Next(6))

    async with rig_on(migrated, handler) as rig, rig.working():
        job = await rig.client.jobs.wait(await rig.enqueue())
        assert (job.state, await rig.follow_ups()) == (S.COMPLETED, [6]), job.errors


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "to be opened"])
async def test_a_client_of_trios_is_called_on_trio(migrated: str, idle: bool) -> None:
    async def handler(job: awa.Job[Work]) -> None:
        with pytest.raises(awa.WrongEventLoop, match="asyncio"):
            await other.enqueue(Next(1))
        await aio.trio(other.enqueue, Next(7))

    async with (
        awa.connect(migrated) as other,
        rig_on(migrated, handler, max_attempts=1) as rig,
        rig.working(),
        AsyncExitStack() as held,
    ):
        if not idle:
            await held.enter_async_context(other._backend.connection())  # the only one it has
        job = await rig.client.jobs.wait(await rig.enqueue())
        assert (job.state, await rig.follow_ups()) == (S.COMPLETED, [7]), job.errors
