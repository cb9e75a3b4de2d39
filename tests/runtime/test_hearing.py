"""Hearing of new jobs on PostgreSQL: without it, and when the listener loses its connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import trio

import awa_trio as awa

from .app_for_processes import Item, Source, app
from .test_processes import check, in_state, until_done

S = awa.JobState

#: A poll would find a job only after the test has failed.
NO_POLLS = awa.Timings(poll_interval=600.0)


@asynccontextmanager
async def working(client: awa.Client, **options: Any) -> AsyncIterator[awa.Worker]:
    async def run(task_status: Any) -> None:
        await awa.run_worker(app, client, task_status=task_status, **options)

    async with trio.open_nursery() as nursery:
        worker = await nursery.start(run)
        try:
            yield worker
        finally:
            worker.stop()


@pytest.fixture
def observer(migrated: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(migrated, autocommit=True, application_name="observer") as connection:
        yield connection


def listeners(observer: psycopg.Connection[Any]) -> list[int]:
    rows = observer.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'awa_trio' AND query ILIKE 'LISTEN%'"
    ).fetchall()
    return [pid for (pid,) in rows]


async def until_listening(observer: psycopg.Connection[Any]) -> list[int]:
    with trio.fail_after(30):
        while len(found := listeners(observer)) != 1:
            await trio.sleep(0.01)
    return found


async def quiet(worker: awa.Worker) -> None:
    """Wait until the worker has looked for jobs and found that there are none."""
    with trio.fail_after(30):
        while True:
            claims = worker.statistics().claims
            await trio.sleep(0.3)
            if claims and worker.statistics().claims == claims:
                return


async def test_without_listening_jobs_are_found_by_polling(
    migrated: str, observer: psycopg.Connection[Any]
) -> None:
    timings = awa.Timings(poll_interval=0.1)
    async with (
        awa.connect(migrated, app=app) as client,
        working(client, listen=False, timings=timings) as worker,
    ):
        for n in range(5):
            await client.enqueue(Source(n, [n]))
            await trio.sleep(0.1)
        jobs = await until_done(client)
        assert listeners(observer) == []
        assert worker.statistics().settled[S.COMPLETED] == 15
    check(jobs, 5)


async def test_and_not_before(migrated: str) -> None:
    """So the test above is about polling, and those below are about listening."""
    async with (
        awa.connect(migrated, app=app) as client,
        working(client, listen=False, timings=NO_POLLS) as worker,
    ):
        await quiet(worker)
        answer = await client.enqueue(Item(1))
        await trio.sleep(0.5)
        assert (await client.jobs.get(answer.id)).state is S.AVAILABLE


async def test_listening_jobs_are_found_at_once(migrated: str) -> None:
    async with (
        awa.connect(migrated, app=app) as client,
        working(client, timings=NO_POLLS) as worker,
    ):
        await quiet(worker)
        answer = await client.enqueue(Item(1))
        await in_state(client, answer.id, S.COMPLETED)


async def test_what_was_enqueued_while_the_listener_was_cut_off_is_found_when_it_is_back(
    migrated: str, observer: psycopg.Connection[Any]
) -> None:
    """Each job with its notification: some are heard, some fall in the gap."""
    async with (
        awa.connect(migrated, app=app) as client,
        working(client, timings=NO_POLLS) as worker,
    ):
        await quiet(worker)
        for n in range(5):
            [listener] = await until_listening(observer)
            with observer.transaction():
                observer.execute("SELECT pg_terminate_backend(%s, 10000)", [listener])
                answer = awa.enqueue(observer, Item(n), app=app)
            await in_state(client, answer.id, S.COMPLETED)
        assert worker.statistics().lives == 1


async def test_a_job_nobody_was_told_of_is_found_by_the_look_after_the_reconnection(
    migrated: str, observer: psycopg.Connection[Any]
) -> None:
    """Its notification is lost for certain: there was none."""
    async with (
        awa.connect(migrated, app=app) as client,
        working(client, timings=NO_POLLS) as worker,
    ):
        await quiet(worker)
        [listener] = await until_listening(observer)
        row = observer.execute(
            "SELECT id FROM awa.enqueue('item', '{\"item\": 1}', queue => 'items', notify => false)"
        ).fetchone()
        assert row is not None
        await trio.sleep(0.3)
        assert (await client.jobs.get(row[0])).state is S.AVAILABLE
        observer.execute("SELECT pg_terminate_backend(%s)", [listener])
        await in_state(client, row[0], S.COMPLETED)


async def test_so_is_a_cancellation_nobody_was_told_of(
    migrated: str, observer: psycopg.Connection[Any]
) -> None:
    """Not only jobs are missed: what was settled elsewhere is, too."""
    timings = awa.Timings(poll_interval=600.0, reconcile_interval=600.0)
    async with (
        awa.connect(migrated, app=app) as client,
        working(client, timings=timings) as worker,
    ):
        answer = await client.enqueue(Source(1, [1], seconds=600))
        await in_state(client, answer.id, S.RUNNING)
        [listener] = await until_listening(observer)
        observer.execute("SELECT pg_terminate_backend(%s, 10000)", [listener])
        assert await client.jobs.cancel(answer.id)
        with trio.fail_after(30):
            while worker.statistics().running:
                await trio.sleep(0.01)
        assert await client.jobs.list(kind="item") == []
