"""Real worker processes, killed with -9, stopped, cut off: nothing lost, doubled or made up."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio
from psycopg import sql

import awa_trio as awa

from ..engines import job_tables
from .app_for_processes import TIMINGS, Item, Poison, Source, Waits, app

S = awa.JobState
ROOT = Path(__file__).parents[2]


@contextmanager
def worker_process(
    dsn: str, module: str = "tests.runtime.app_for_processes", *, clock_off: int = 0
) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own, working."""
    program = ["-m", *(("tests.clock_off", str(clock_off)) if clock_off else ()), module]
    process = subprocess.Popen(
        [sys.executable, *program, dsn],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the worker process did not start"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@asynccontextmanager
async def client_of(dsn: str) -> AsyncIterator[awa.Client]:
    async with awa.connect(dsn, app=app) as client:
        yield client


async def until_done(client: awa.Client, *, within: float = 60) -> list[awa.JobDetails]:
    """All jobs, once none is on its way."""
    with trio.fail_after(within):
        while True:
            jobs = await client.jobs.list(limit=100_000)
            if jobs and all(job.state.terminal for job in jobs):
                return jobs
            await trio.sleep(0.1)


def check(jobs: list[awa.JobDetails], sources: int) -> None:
    """The guarantees of ADR-046, read off the rows."""
    by_id = {job.id: job for job in jobs}
    done = [job for job in jobs if job.kind == "source"]
    assert len(done) == sources
    assert {job.state for job in done} == {S.COMPLETED}, "nothing is lost"
    staged = {item for job in done for item in job.args_json["items"]}
    items = [job.args_json["item"] for job in jobs if job.kind == "item"]
    assert sorted(items) == sorted(staged), "one row per key, and none that nobody staged"
    receipts = [
        (job.args_json["n"], job.args_json["attempt"]) for job in jobs if job.kind == "receipt"
    ]
    # One attempt's follow-ups: the committing attempt's, once.
    assert sorted(receipts) == sorted((job.args_json["n"], job.attempt) for job in done)
    for job in jobs:
        if job.kind != "source":
            assert job.triggered_by is not None
            assert by_id[job.triggered_by].state is S.COMPLETED, "no phantom"


async def test_a_killed_workers_jobs_are_done_by_another(migrated: str) -> None:
    async with client_of(migrated) as client:
        answer = await client.enqueue(Source(1, [1, 2, 3], seconds=0.5))
        with worker_process(migrated) as first:
            await in_state(client, answer.id, S.RUNNING)
            first.send_signal(signal.SIGKILL)
            with worker_process(migrated):
                jobs = await until_done(client)
    check(jobs, 1)
    job = await_source(jobs)
    assert job.attempt == 2
    assert "presumed dead" in job.errors[0].error


def await_source(jobs: list[awa.JobDetails]) -> awa.JobDetails:
    [job] = [job for job in jobs if job.kind == "source"]
    return job


async def in_state(client: awa.Client, job_id: int, state: awa.JobState) -> None:
    with trio.fail_after(30):
        while (await client.jobs.get(job_id)).state is not state:
            await trio.sleep(0.01)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_killed_while_its_handlers_wait(migrated: str, when: str) -> None:
    """The jobs wait on without a handler; a resolution that finds no live one runs them again."""
    async with client_of(migrated) as client:
        with worker_process(migrated) as first:
            ids = [(await client.enqueue(Waits(n))).id for n in range(20)]
            for job_id in ids:
                await in_state(client, job_id, S.WAITING_EXTERNAL)
            tokens = [(await client.jobs.get(job_id)).callback_token for job_id in ids]
            first.send_signal(signal.SIGKILL)
            first.wait()
        if when == "before":
            # Nobody knows yet that the worker is dead: it seems to wait.
            await resume_all(client, tokens)
        with worker_process(migrated) as second:
            if when == "after":
                await detached(client, ids)
                await resume_all(client, tokens)
            jobs = await until_done(client)
            second.send_signal(signal.SIGKILL)
    done = [job for job in jobs if job.kind == "waits"]
    assert {(job.state, job.attempt, job.errors == []) for job in done} == {
        (S.COMPLETED, 1, True)
    }
    receipts = [job.args_json["n"] for job in jobs if job.kind == "receipt"]
    assert sorted(receipts) == [100 + n for n in range(20)]


async def resume_all(client: awa.Client, tokens: list[str | None]) -> None:
    for n, token in enumerate(tokens):
        assert token is not None
        await client.callbacks.resume(token, 100 + n)


async def detached(client: awa.Client, ids: list[int]) -> None:
    """Until another worker has found out that theirs is dead."""
    with trio.fail_after(30):
        for job_id in ids:
            while (await client.jobs.get(job_id)).worker_id is not None:
                await trio.sleep(0.05)


@pytest.mark.parametrize(
    "kills", [pytest.param(12, id="few"), pytest.param(200, id="200", marks=pytest.mark.slow)]
)
async def test_random_kill_points(migrated: str, kills: int) -> None:
    """Workers are killed at random moments, among claims, handlers and commits."""
    chance = random.Random(46)
    sources = killed = 0
    over = False

    async def produce(client: awa.Client) -> None:
        nonlocal sources
        while not over:
            items = [chance.randrange(60) for _ in range(chance.randrange(1, 15))]
            await client.enqueue(Source(sources, items, seconds=0.01), max_attempts=1000)
            sources += 1
            await trio.sleep(0.02)

    async def live_and_die() -> None:
        """Processes, one after another, each killed a moment after it began to work."""
        nonlocal killed, over
        command = [sys.executable, "-m", "tests.runtime.app_for_processes", migrated]
        while not over:
            process = await trio.lowlevel.open_process(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert process.stdout is not None
            async with process.stdout:
                await process.stdout.receive_some()
                await trio.sleep(chance.uniform(0, 0.7))
                process.kill()
                await process.wait()
            killed += 1
            over = killed >= kills

    async with client_of(migrated) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, client)
            for _ in range(4):
                nursery.start_soon(live_and_die)
        with worker_process(migrated), worker_process(migrated):
            jobs = await until_done(client, within=120)
    check(jobs, sources)
    assert any("presumed dead" in e.error for job in jobs for e in job.errors)


def start(dsn: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.app_for_processes", dsn],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def test_a_zombie_that_wakes_up_changes_nothing(migrated: str) -> None:
    """SIGSTOP past the lease, then SIGCONT: the job was done elsewhere meanwhile."""
    async with client_of(migrated) as client:
        answer = await client.enqueue(Source(1, [1, 2, 3, 4], seconds=0.3))
        with worker_process(migrated) as zombie:
            await in_state(client, answer.id, S.RUNNING)
            zombie.send_signal(signal.SIGSTOP)
            with worker_process(migrated):
                await until_done(client)
                zombie.send_signal(signal.SIGCONT)
                await client.enqueue(Source(2, [9]))
                jobs = await until_done(client)
                await trio.sleep(1)
                assert {j.id for j in await client.jobs.list(limit=1000)} == {
                    j.id for j in jobs
                }
            assert zombie.poll() is None
    check(jobs, 2)


async def test_a_job_that_kills_its_process_has_an_end(migrated: str) -> None:
    async with client_of(migrated) as client:
        answer = await client.enqueue(Poison(), max_attempts=2)
        with trio.fail_after(300):
            while (await client.jobs.get(answer.id)).state is not S.FAILED:
                # It ends by the job, or lives on to see that it has failed.
                process = start(migrated)
                try:
                    while (
                        process.poll() is None
                        and (await client.jobs.get(answer.id)).state is not S.FAILED
                    ):
                        await trio.sleep(0.05)
                finally:
                    process.kill()
                    process.wait()
        job = await client.jobs.get(answer.id)
    assert job.attempt == 2
    assert len(job.errors) == 2


@pytest.mark.parametrize(
    "statement",
    ["%awa.claim(%", "%awa.settle(%", "%awa.beat(%", "LISTEN%", "%awa.rescue(%", "%"],
)
async def test_a_backend_that_is_terminated_costs_nothing(
    migrated: str, statement: str
) -> None:
    """During claim, settlement, heartbeat, listening; or all at once."""
    async with client_of(migrated) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(app, client, timings=TIMINGS, task_status=task_status)

        worker = await nursery.start(run)
        sources = 0
        killed = 0
        with psycopg.connect(migrated, autocommit=True, prepare_threshold=None) as killer:
            while sources < 30 or (not killed and sources < 2000):
                answers = await client_enqueue(client, sources)
                sources += answers
                await trio.sleep(0.02)
                row = killer.execute(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                    " AND application_name = 'awa_trio' AND query ILIKE %s",
                    [statement],
                ).fetchone()
                assert row is not None
                killed += row[0]
        jobs = await until_done_through(client)
        worker.stop()
    assert killed > 0
    check(jobs, sources)


async def client_enqueue(client: awa.Client, n: int) -> int:
    """Enqueue one source, trying again when its own connection was the one that was cut."""
    while True:
        try:
            await client.enqueue(Source(n, [n % 7, n % 5]), unique_opts={})
            return 1
        except awa.DatabaseUnavailable:
            await trio.sleep(0.01)


async def until_done_through(client: awa.Client) -> list[awa.JobDetails]:
    with trio.fail_after(60):
        while True:
            try:
                return await until_done(client)
            except awa.DatabaseUnavailable:
                await trio.sleep(0.05)


async def test_two_workers_that_race_for_one_job_run_it_once(migrated: str) -> None:
    runs: list[int] = []
    racing = awa.App()

    @racing.task(args=Item, kind="item")
    async def item(job: awa.Job[Item]) -> None:
        runs.append(job.args.item)
        await trio.sleep(0)

    async with awa.connect(migrated, app=racing) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                racing, client, queues={"default": 4}, timings=TIMINGS, task_status=task_status
            )

        workers = [await nursery.start(run) for _ in range(3)]
        for n in range(200):
            await client.enqueue(Item(n))
        await until_done(client)
        for worker in workers:
            worker.stop()
    assert sorted(runs) == list(range(200))


@pytest.mark.parametrize("off", [-600, 600])
async def test_a_worker_whose_clock_is_ten_minutes_off(migrated: str, off: int) -> None:
    """The database's clock decides what is due, whose lease has run out and what is late."""
    with worker_process(migrated, clock_off=off), worker_process(migrated):
        async with client_of(migrated) as client:
            for n in range(10):
                # Some outlast a lease, which neither worker takes from the other.
                await client.enqueue(
                    Source(n, [n], seconds=2 * TIMINGS.lease if n < 2 else 0.1)
                )
            later = datetime.now(UTC) + timedelta(seconds=2)
            due = await client.enqueue(Source(10, []), run_at=later)
            jobs = await until_done(client)
    assert {(job.state, job.attempt) for job in jobs} == {(S.COMPLETED, 1)}
    [scheduled] = [job for job in jobs if job.id == due.id]
    assert scheduled.attempted_at is not None
    assert scheduled.attempted_at >= later


async def test_opposite_orders_of_unique_keys_do_not_deadlock(migrated: str) -> None:
    """Five hundred rounds of two workers that complete with the same keys, in opposite orders."""
    rounds = 500
    opposite = awa.App()
    for queue in ("forward", "backward"):
        opposite.queue(queue, max_workers=2)
    turns: dict[int, trio.Event] = {}

    @opposite.task(args=Source, kind="source")
    async def source(job: awa.Job[Source]) -> None:
        for item in job.args.items:
            job.enqueue_on_completion(Item(item), unique_opts={})
        # The two of a round end together, each in a worker of its own.
        turn = job.args.n // 2
        if turn in turns:
            turns.pop(turn).set()
        else:
            await turns.setdefault(turn, trio.Event()).wait()

    opposite.declare(Item, queue="nobody")
    with psycopg.connect(migrated, autocommit=True) as observer:
        # Before the completion's own patience is at an end, so that none goes unseen.
        name = sql.Identifier(observer.info.dbname)
        observer.execute(sql.SQL("ALTER DATABASE {} SET deadlock_timeout = 1").format(name))
        async with (
            awa.connect(migrated, app=opposite) as client,
            trio.open_nursery() as nursery,
        ):
            keys = list(range(10))
            for n in range(rounds):
                fresh = [100 * n + key for key in keys]
                await client.enqueue(Source(2 * n, fresh), queue="forward")
                await client.enqueue(Source(2 * n + 1, fresh[::-1]), queue="backward")

            workers = [
                await nursery.start(partial(awa.run_worker, opposite, client, queues=[queue]))
                for queue in ("forward", "backward")
            ]
            with trio.fail_after(120):
                while await client.jobs.list(
                    state=["available", "running", "retryable"], kind="source", limit=1
                ):
                    await trio.sleep(0.1)
            statistics = [worker.statistics() for worker in workers]
            for worker in workers:
                worker.stop()
        row = observer.execute(
            "SELECT count(*) FROM awa.list_jobs(NULL, 'item', NULL, NULL, NULL, 100000)"
        ).fetchone()
        assert row == (rounds * len(keys),)
        assert observer.execute(
            "SELECT DISTINCT state FROM awa.list_jobs(NULL, 'source', NULL, NULL, NULL, 100000)"
        ).fetchall() == [("completed",)]
        assert deadlocks(observer) == 0
    assert sum(s.duplicates for s in statistics) == rounds * len(keys)
    assert [s.settled[S.COMPLETED] for s in statistics] == [rounds, rounds]


def deadlocks(connection: psycopg.Connection[Any]) -> int:
    connection.execute("SELECT pg_stat_clear_snapshot()")
    row = connection.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_producer_that_holds_a_key_holds_up_nobody_else(migrated: str) -> None:
    """Its transaction is open for long: other completions commit at once, this one later."""
    async with awa.connect(migrated, app=app) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(app, client, queues=["default"], task_status=task_status)

        worker = await nursery.start(run)
        with psycopg.connect(migrated) as producer:
            held = awa.enqueue(producer, Item(1), unique_opts={}, app=app)
            waiting = await client.enqueue(Source(1, [1, 2]))
            await in_state(client, waiting.id, S.RUNNING)
            began = trio.current_time()
            others = await client.enqueue_many([Source(n, [n]) for n in range(100, 200)])
            plain = await client.enqueue(Source(3, []))
            for answer in [*others, plain]:
                await in_state(client, answer.id, S.COMPLETED)
            took = trio.current_time() - began
            assert (await client.jobs.get(waiting.id)).state is S.RUNNING
            producer.commit()
        await in_state(client, waiting.id, S.COMPLETED)
        worker.stop()
    assert took < 10, "they waited for the producer"
    with psycopg.connect(migrated) as connection:
        rows = connection.execute(
            "SELECT id FROM awa.list_jobs(NULL, 'item', NULL, NULL, NULL, 1000)"
            " WHERE args ->> 'item' = '1'"
        ).fetchall()
    assert rows == [(held.id,)]


async def test_if_the_producer_rolls_back_the_follow_up_is_inserted(migrated: str) -> None:
    async with awa.connect(migrated, app=app) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(app, client, queues=["default"], task_status=task_status)

        worker = await nursery.start(run)
        with psycopg.connect(migrated) as producer:
            awa.enqueue(producer, Item(1), unique_opts={}, app=app)
            waiting = await client.enqueue(Source(1, [1]))
            await in_state(client, waiting.id, S.RUNNING)
            await trio.sleep(0.6)
            producer.rollback()
        await in_state(client, waiting.id, S.COMPLETED)
        worker.stop()
        [item] = await client.jobs.list(kind="item")
    assert item.triggered_by == waiting.id


async def test_a_refused_insert_rolls_its_own_completion_back_and_no_other(
    migrated: str,
) -> None:
    """A trigger added outside awa_trio: the error is recorded at once, under the lease."""
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            """
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF NEW.args ->> 'item' = '13' THEN RAISE EXCEPTION 'unlucky'; END IF;
                RETURN NEW;
            END $$;
            """
        )
        for table in job_tables(connection):
            connection.execute(
                f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW"
                " WHEN (NEW.kind = 'item') EXECUTE FUNCTION refuse()".encode()
            )
    async with client_of(migrated) as client, trio.open_nursery() as nursery:
        sources = [Source(n, [n, n + 100]) for n in range(30)]
        answers = await client.enqueue_many(sources)

        async def run(task_status: Any) -> None:
            await awa.run_worker(app, client, task_status=task_status)

        worker = await nursery.start(run)
        jobs = await until_done(client)
        worker.stop()
    states = {job.id: job for job in jobs}
    unlucky = states[answers[13].id]
    assert unlucky.state is S.FAILED
    assert unlucky.attempt == 1
    assert "unlucky" in unlucky.errors[0].error
    assert {states[a.id].state for n, a in enumerate(answers) if n != 13} == {S.COMPLETED}
    items = {job.args_json["item"] for job in jobs if job.kind == "item"}
    assert items == {n + k for n in range(30) if n != 13 for k in (0, 100)}


async def test_a_workers_own_clock_decides_nothing(
    migrated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes off, to either side."""
    import datetime as dt

    real = time.time
    for offset in (600.0, -600.0):
        monkeypatch.setattr(time, "time", lambda offset=offset: real() + offset)
        async with client_of(migrated) as client, trio.open_nursery() as nursery:
            soon = dt.datetime.fromtimestamp(real() + 1.5, dt.UTC)
            answer = await client.enqueue(Item(int(offset)), run_at=soon)

            async def run(task_status: Any, client: awa.Client = client) -> None:
                await awa.run_worker(app, client, timings=TIMINGS, task_status=task_status)

            worker = await nursery.start(run)
            assert (await client.jobs.get(answer.id)).state is S.SCHEDULED
            await in_state(client, answer.id, S.COMPLETED)
            assert worker.statistics().lives == 1
            assert real() >= soon.timestamp() - 0.05
            worker.stop()
