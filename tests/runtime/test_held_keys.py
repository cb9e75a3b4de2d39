"""Producers whose open transactions hold unique keys: nobody waits who does not want them."""

from __future__ import annotations

from functools import partial

import psycopg
import pytest
import trio
from attrs import frozen

import awa_trio as awa

S = awa.JobState


@frozen
class Find:
    key: str


@frozen
class Found:
    key: str


@frozen
class Plain:
    n: int


#: Without running: the key is let go of when the job starts, and taken back when it is to
#: run again.
WAITING_ONLY = {"states": S.SCHEDULED.bit | S.AVAILABLE.bit | S.RETRYABLE.bit}


def make_app() -> awa.App:
    app = awa.App()
    app.queue("default", max_workers=100)

    @app.task()
    async def find(job: awa.Job[Find]) -> None:
        job.enqueue_on_completion(Found(job.args.key), unique_opts={})

    @app.task()
    async def plain(job: awa.Job[Plain]) -> None:
        await trio.sleep(0.3)
        if job.args.n < 0:
            raise awa.RetryAfter(60)

    app.declare(Found, queue="nobody")
    return app


async def until(client: awa.Client, many: int, **wanted: str) -> None:
    """Until so many jobs are as wanted: well before a settlement would be given up."""
    with trio.fail_after(15):
        while len(await client.jobs.list(limit=1000, **wanted)) < many:  # type: ignore[arg-type]
            await trio.sleep(0.05)


async def test_completions_beside_sixty_that_want_a_held_key(migrated: str) -> None:
    app = make_app()
    async with awa.connect(migrated, app=app) as client, trio.open_nursery() as nursery:
        with psycopg.connect(migrated) as producer:
            awa.enqueue(producer, Found("held"), app=app, unique_opts={})
            await client.enqueue_many([Find("held")] * 60 + [Find(f"{n}") for n in range(10)])
            worker = await nursery.start(partial(awa.run_worker, app, client))
            await until(client, 10, kind="find", state=S.COMPLETED)
            assert len(await client.jobs.list(kind="find", state=S.RUNNING)) == 60
            producer.commit()
        await until(client, 70, kind="find", state=S.COMPLETED)
        jobs = await client.jobs.list(kind="find", limit=100)
        assert {job.attempt for job in jobs} == {1}
        assert len(await client.jobs.list(kind="found")) == 11
        worker.stop()


async def test_completions_beside_forty_that_want_their_own_held_keys_back(
    migrated: str,
) -> None:
    app = make_app()
    async with awa.connect(migrated, app=app) as client, trio.open_nursery() as nursery:
        for n in range(1, 41):
            await client.enqueue(Plain(-n), unique_opts=WAITING_ONLY)
        await client.enqueue_many([Plain(n) for n in range(20)])
        worker = await nursery.start(partial(awa.run_worker, app, client))
        await until(client, 60, kind="plain", state=S.RUNNING)
        with psycopg.connect(migrated) as producer:
            for n in range(1, 41):
                awa.enqueue(producer, Plain(-n), app=app, unique_opts=WAITING_ONLY)
            await until(client, 20, kind="plain", state=S.COMPLETED)
            producer.rollback()
        await until(client, 40, kind="plain", state=S.RETRYABLE)
        worker.stop()


#: Held while the job runs, and not while it waits: it needs the key when it starts.
RUNNING_ONLY = {"states": S.RUNNING.bit}


@pytest.mark.parametrize("engine", ["canonical", "segmented"])
@pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])
async def test_starts_behind_those_whose_keys_a_producer_holds(
    request: pytest.FixtureRequest, engine: str, ordered: bool
) -> None:
    """They fill no claim: neither jobs without keys wait behind them, nor jobs whose keys are free."""
    dsn = request.getfixturevalue(engine)
    app = awa.App()
    app.queue("default", max_workers=3)
    app.task(args=Plain, kind="plain")(nothing)

    def key(n: int) -> dict[str, str]:
        return {"ordering_key": str(n)} if ordered else {}

    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:
        with psycopg.connect(dsn) as producer:
            for n in range(10):
                awa.enqueue(producer, Plain(n), app=app, queue="elsewhere", unique_opts={})
            for n in range(15):
                await client.enqueue(Plain(n), unique_opts=RUNNING_ONLY, **key(n))  # type: ignore[arg-type]
            await client.enqueue_many([Plain(n) for n in range(20, 25)])
            worker = await nursery.start(partial(awa.run_worker, app, client))
            await until(client, 10, queue="default", state=S.COMPLETED)
            waiting = await client.jobs.list(queue="default", state=S.AVAILABLE)
            assert sorted(job.args_json["n"] for job in waiting) == list(range(10))
            producer.rollback()
        await until(client, 20, queue="default", state=S.COMPLETED)
        worker.stop()


async def nothing(job: awa.Job[Plain]) -> None: ...


@pytest.mark.parametrize("many", [1, 5])
async def test_a_worker_ends_though_the_keys_its_attempts_want_are_held(
    migrated: str, many: int
) -> None:
    """Their settlements are given up, and looked for in the rows, while the worker ends."""
    app = make_app()
    timings = awa.Timings(finalize_deadline=0.5, reconcile_interval=0.05)
    async with awa.connect(migrated, app=app) as client:
        with psycopg.connect(migrated) as producer:
            for n in range(many):
                awa.enqueue(producer, Found(f"{n}"), app=app, unique_opts={})
            await client.enqueue_many([Find(f"{n}") for n in range(many)])
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    worker = await nursery.start(
                        partial(awa.run_worker, app, client, timings=timings)
                    )
                    await until(client, many, kind="find", state=S.RUNNING)
                    while worker.statistics().finalizing < many:
                        await trio.sleep(0.01)
                    worker.stop()
            producer.rollback()
        jobs = await client.jobs.list(kind="find", limit=100)
        assert {(job.state, job.attempt) for job in jobs} == {(S.AVAILABLE, 0)}
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(partial(awa.run_worker, app, client))
            await until(client, many, kind="find", state=S.COMPLETED)
            worker.stop()
        assert len(await client.jobs.list(kind="found", limit=100)) == many
