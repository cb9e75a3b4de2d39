"""A handler that blocks the event loop: it is named, and costs nobody a lease."""

from __future__ import annotations

import time
from typing import Any

import attrs
import pytest
import trio

import awa_trio as awa

from .app_for_processes import Item
from .test_processes import in_state, worker_process

S = awa.JobState

#: Seconds for which the loop is blocked: past the lease, and past the moment at which the
#: worker would take itself for dead.
BLOCKED = 3.0

TIMINGS = awa.Timings(
    heartbeat=0.3, lease=2.4, finalize_deadline=1.2, rescue_interval=0.3, poll_interval=0.2,
    blocked_after=0.3,
)  # fmt: skip


async def run_blocked(
    dsn: str, seconds: float, timings: awa.Timings
) -> tuple[awa.JobDetails, awa.WorkerStatistics, list[int]]:
    """Run a job that blocks the loop, next to a worker process that would rescue it."""
    app = awa.App()
    attempts: list[int] = []

    @app.task(args=Item, kind="item", queue="blocking")
    async def block(job: awa.Job[Item]) -> None:
        attempts.append(job.attempt)
        if len(attempts) == 1:
            time.sleep(seconds)

    async with awa.connect(dsn, app=app) as client, trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                app, client, queues=["blocking"], timings=timings, task_status=task_status
            )

        with worker_process(dsn):
            worker = await nursery.start(run)
            answer = await client.enqueue(Item(1))
            await in_state(client, answer.id, S.COMPLETED)
            job = await client.jobs.get(answer.id)
            statistics = worker.statistics()
            worker.stop()
    return job, statistics, attempts


async def test_a_handler_that_blocks_is_named_and_keeps_its_lease(
    migrated: str, caplog: pytest.LogCaptureFixture
) -> None:
    job, statistics, attempts = await run_blocked(migrated, BLOCKED, TIMINGS)
    assert (job.attempt, job.errors, attempts) == (1, [], [1])
    assert statistics.lives == 1
    assert statistics.stale == 0
    # Once, however long it lasts; a machine that is busy may block the loop by itself.
    blocked = f"by awa:job:{job.id}:item at test_blocked_loop.py:"
    [warning] = [r.getMessage() for r in caplog.records if blocked in r.getMessage()]
    assert "the event loop has been blocked for" in warning
    assert "in block; " in warning
    assert "use trio.to_thread.run_sync" in warning


async def test_a_loop_that_is_blocked_for_good_loses_its_jobs(
    migrated: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that does nothing else must not keep them by its beats."""
    timings = attrs.evolve(TIMINGS, give_up_blocked_after=0.6)
    # Long enough for a rescuer on a busy machine: beats go on for 0.6 s, the lease for 2.4 s.
    job, statistics, attempts = await run_blocked(migrated, 2 * BLOCKED, timings)
    assert (job.attempt, attempts) == (2, [1, 2])
    assert "presumed dead" in job.errors[0].error
    assert statistics.lives == 2
    assert "takes itself for dead" in caplog.text or "was fenced" in caplog.text
