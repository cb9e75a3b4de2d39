"""Ordering keys from end to end: the order in which handlers begin, and that none overlap."""

from __future__ import annotations

import itertools
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import psycopg
import pytest
import trio
from psycopg.rows import class_row

import awa_trio as awa

from .ordered_app import TRACE, Step, app
from .rig import Rig, Work
from .test_processes import worker_process

S = awa.JobState
ORDERED_APP = "tests.runtime.ordered_app"


@attrs.frozen
class Trace:
    """One attempt."""

    key: str
    n: int
    attempt: int
    process: int
    began: datetime
    ended: datetime | None


def traces(dsn: str) -> dict[str, list[Trace]]:
    """Each key's attempts, in the order they began."""
    by_key: dict[str, list[Trace]] = defaultdict(list)
    with psycopg.connect(dsn) as connection:
        cursor = connection.cursor(row_factory=class_row(Trace))
        for trace in cursor.execute("SELECT * FROM trace ORDER BY began"):
            by_key[trace.key].append(trace)
    return by_key


def check_order(
    attempts: Sequence[Trace], jobs: int, killed_at: datetime | None = None
) -> None:
    """One at a time, first starts in order, every job done."""
    firsts = [trace.n for trace in attempts if trace.attempt == 1]
    assert firsts == sorted(set(firsts))
    for one, following in itertools.pairwise(attempts):
        ended = one.ended or killed_at
        assert ended is not None
        assert ended <= following.began, "two at once"
    assert {trace.n for trace in attempts if trace.ended} == set(range(jobs))


async def enqueue(client: awa.Client, keys: int, jobs: int, seconds: float = 0.0) -> None:
    await client.enqueue_many(
        awa.EnqueueRequest(Step(n, seconds), ordering_key=f"key {key}", queue="steps")
        for n in range(jobs)
        for key in range(keys)
    )


async def until_done(dsn: str, within: float) -> None:
    with trio.fail_after(within):
        async with awa.connect(dsn) as client:
            while await client.jobs.list(
                state=["available", "scheduled", "retryable", "running"], limit=1
            ):
                await trio.sleep(0.1)


@pytest.mark.parametrize(
    "jobs", [1_200, pytest.param(10_000, id="10000", marks=pytest.mark.slow)]
)
async def test_two_workers_run_the_jobs_of_12_keys_in_order_and_one_at_a_time(
    migrated: str, jobs: int
) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(TRACE)
    async with awa.connect(migrated, app=app) as client:
        await enqueue(client, 12, jobs // 12)
    with worker_process(migrated, ORDERED_APP), worker_process(migrated, ORDERED_APP):
        begun = time.perf_counter()
        await until_done(migrated, within=120 + jobs / 50)
        print(
            f"{jobs / (time.perf_counter() - begun):.0f} jobs/s, with two writes in each handler"
        )
    by_key = traces(migrated)
    assert len(by_key) == 12
    for attempts in by_key.values():
        check_order(attempts, jobs // 12)
        assert len(attempts) == jobs // 12
    processes = {trace.process for attempts in by_key.values() for trace in attempts}
    assert len(processes) > 1


async def test_a_killed_workers_keys_go_on_in_order(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(TRACE)
    async with awa.connect(migrated, app=app) as client:
        await enqueue(client, 6, 30, seconds=0.02)
    with worker_process(migrated, ORDERED_APP), worker_process(migrated, ORDERED_APP) as victim:
        with trio.fail_after(60):
            while sum(map(len, traces(migrated).values())) < 40:
                await trio.sleep(0.05)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        killed_at = datetime.now(UTC) + timedelta(milliseconds=100)
        await until_done(migrated, within=120)
    by_key = traces(migrated)
    assert len(by_key) == 6
    for attempts in by_key.values():
        check_order(attempts, 30, killed_at)
    lost = [t for attempts in by_key.values() for t in attempts if t.ended is None]
    again = [t for attempts in by_key.values() for t in attempts if t.attempt == 2]
    assert {(t.key, t.n) for t in lost} <= {(t.key, t.n) for t in again}


# ---- in virtual time


@pytest.mark.virtual_time
async def test_the_next_of_a_key_starts_as_soon_as_one_has_ended() -> None:
    """No poll in between, and no notification: the poll is an hour away, and nobody listens."""
    began: list[tuple[float, int]] = []

    async def handler(job: awa.Job[Work]) -> None:
        began.append((trio.current_time(), job.args.n))
        await trio.sleep(1)

    rig = Rig(handler)
    for n in range(5):
        await rig.enqueue(n, ordering_key="o")
    timings = awa.Timings(poll_interval=3600.0)
    async with rig.working(timings=timings, listen=False):
        start = trio.current_time()
        await trio.sleep(6)
    assert [n for _, n in began] == [0, 1, 2, 3, 4]
    for seconds, (at, _) in enumerate(began):
        assert at - start == pytest.approx(seconds, abs=0.2)


@pytest.mark.virtual_time
async def test_blocked_keys_do_not_keep_the_dispatcher_busy() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        await trio.sleep(1000)

    rig = Rig(handler, deadline=0)
    for _ in range(50):
        await rig.enqueue(ordering_key="o")
    async with rig.working() as worker:
        await trio.sleep(5)
        before = worker._parts.dispatcher.claims
        await trio.sleep(100)
        assert worker._parts.dispatcher.claims - before < 150, "polls, and nothing more"


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "ending",
    [
        awa.RetryAfter(100),
        awa.Snooze(100),
        awa.Cancel("c"),
        ValueError("e"),
        awa.TerminalError(),
    ],
    ids=lambda ending: type(ending).__name__,
)
async def test_an_attempt_that_does_not_complete_makes_way(ending: Any) -> None:
    began: list[int] = []

    async def handler(job: awa.Job[Work]) -> object:
        began.append(job.args.n)
        if job.args.n == 0 and job.attempt == 1 and len(began) == 1:
            if isinstance(ending, Exception):
                raise ending
            return ending
        return None

    rig = Rig(handler, backoff=lambda attempt: 100.0)
    for n in range(3):
        await rig.enqueue(n, ordering_key="o")
    async with rig.working(timings=awa.Timings(poll_interval=3600.0), listen=False):
        await trio.sleep(10)
        assert began == [0, 1, 2]
        await trio.sleep(200)
    ended = isinstance(ending, awa.Cancel | awa.TerminalError)
    assert began == ([0, 1, 2] if ended else [0, 1, 2, 0])


@pytest.mark.virtual_time
async def test_a_job_that_a_shutdown_hands_back_is_the_next_of_its_key() -> None:
    began: list[int] = []

    async def handler(job: awa.Job[Work]) -> None:
        began.append(job.args.n)
        if len(began) == 1:
            await trio.sleep(1000)

    rig = Rig(handler)
    for n in range(3):
        await rig.enqueue(n, ordering_key="o")
    async with rig.working(grace=0.0):
        await trio.sleep(1)
    assert await rig.state(1) is S.AVAILABLE
    async with rig.working():
        await trio.sleep(1)
    assert began == [0, 0, 1, 2]


@pytest.mark.virtual_time
async def test_urgent_jobs_do_not_keep_others_waiting_for_ever() -> None:
    began: list[int] = []

    async def handler(job: awa.Job[Work]) -> None:
        began.append(job.args.n)
        await trio.sleep(10)

    rig = Rig(handler)
    rig.app.queue("default", max_workers=1, priority_ageing=60.0)
    await rig.enqueue(0, priority=1)
    await rig.enqueue(-4, priority=4)
    async with rig.working():
        for n in range(1, 30):
            await rig.enqueue(n, priority=1)
            await trio.sleep(10)
    # After 180 s it counts as 1, and came before those that were enqueued since.
    assert 17 <= began.index(-4) <= 20
