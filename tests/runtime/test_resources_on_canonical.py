"""Resources in PostgreSQL's time: a pool of the worker, a transaction of each attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NewType

import psycopg
import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.pg import Pool, TrioConnection

S = awa.JobState

Dsn = NewType("Dsn", str)
Connection = psycopg.AsyncConnection[Any]


@frozen
class Note:
    how: str


app = awa.App()
closed: list[str] = []


@app.resource
async def pool(dsn: Dsn) -> AsyncIterator[Pool]:
    async with Pool(lambda: TrioConnection.connect(dsn, autocommit=True), size=4) as pool:
        async with pool.connection() as connection:
            await connection.execute("CREATE TABLE IF NOT EXISTS notes (how text)")
        yield pool
        closed.append("pool")


@app.resource(scope="attempt")
async def transaction(pool: Pool) -> AsyncIterator[Connection]:
    async with pool.connection() as connection, connection.transaction():
        yield connection


@app.task(deadline=1)
async def note(job: awa.Job[Note], connection: Connection) -> object:
    await connection.execute("INSERT INTO notes VALUES (%s)", [job.args.how])
    if job.args.how == "raise":
        raise ValueError
    if job.args.how == "deadline":
        await connection.execute("SELECT pg_sleep(60)")
    if job.args.how == "cut":
        await trio.sleep_forever()
    return None


@pytest.fixture
async def client(canonical: str) -> AsyncIterator[awa.Client]:
    async with awa.connect(canonical, app=app) as client:
        yield client


async def test_a_transaction_of_the_attempt_ends_with_it(
    client: awa.Client, canonical: str
) -> None:
    closed.clear()
    ids = {
        how: (await client.enqueue(Note(how), deadline=0 if how == "cut" else None)).id
        for how in ("complete", "raise", "deadline", "cut")
    }
    async with trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                app, client, resources={Dsn: canonical}, task_status=task_status
            )

        await nursery.start(run)
        with trio.fail_after(30):
            for how, state in [
                ("complete", S.COMPLETED),
                ("raise", S.RETRYABLE),
                ("deadline", S.RETRYABLE),
                ("cut", S.RUNNING),
            ]:
                while not (
                    (job := await client.jobs.get(ids[how])).errors or job.state is state
                ):
                    await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert (await client.jobs.get(ids["complete"])).state is S.COMPLETED
    cut = await client.jobs.get(ids["cut"])
    assert (cut.state, cut.attempt) == (S.AVAILABLE, 0)
    assert closed == ["pool"]
    with psycopg.connect(canonical) as connection:
        assert connection.execute("SELECT * FROM notes").fetchall() == [("complete",)]
