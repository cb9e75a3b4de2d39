"""A database moves to the segmented engine while limits hold and schedules fire."""

from __future__ import annotations

import signal
from datetime import timedelta
from functools import partial
from itertools import pairwise

import pytest
import trio

import awa_trio as awa

from .flow_app import MOST, RATE, Hold, Start, app
from .test_moving_to_segmented import MIGRATE, canonical, engine  # noqa: F401
from .test_processes import ROOT, worker_process

S = awa.JobState
limited = partial(worker_process, module="tests.runtime.flow_app")
scheduled = partial(worker_process, module="tests.runtime.scheduled_app")


@pytest.mark.slow
async def test_limits_hold_and_no_instant_is_left_out(canonical: str) -> None:  # noqa: F811
    over: list[int] = []

    async def watch() -> None:
        query = (
            "SELECT max(n) FROM (SELECT count(*) AS n FROM awa.jobs WHERE queue = 'keyed'"
            " AND state = 'running' GROUP BY limit_key) AS k"
        )
        async with await awa.pg.TrioConnection.connect(
            canonical, autocommit=True
        ) as connection:
            while True:
                [(most,)] = await (await connection.execute(query)).fetchall()
                over.append(most or 0)

    async with awa.connect(canonical, app=app) as client, trio.open_nursery() as nursery:
        with limited(canonical) as first, limited(canonical), scheduled(canonical):
            for key in "ab":
                await client.enqueue_many([Hold(n) for n in range(60)], limit_key=key)
                await client.enqueue_many([Start(n) for n in range(60)], limit_key=key)
            await client.enqueue_many(
                [Start(n) for n in range(20)], ordering_key="o", limit_key="a"
            )
            nursery.start_soon(watch)
            while len(await client.jobs.list(state=S.COMPLETED, limit=20)) < 20:
                await trio.sleep(0.02)
            await trio.run_process([*MIGRATE, canonical], cwd=ROOT)
            await client.enqueue_many([Start(n) for n in range(100)])
            await client.enqueue_many([Hold(n) for n in range(20)], limit_key="a")
            fires = (await client.cron.get("seconds")).fires
            while (await client.cron.get("seconds")).fires < fires + 2:
                await trio.sleep(0.05)
            first.send_signal(signal.SIGKILL)
            with trio.fail_after(100):
                jobs = [
                    await client.jobs.list(kind=kind, limit=500) for kind in ("start", "hold")
                ]
                while {job.state for of_kind in jobs for job in of_kind} != {S.COMPLETED}:
                    await trio.sleep(0.1)
                    jobs = [
                        await client.jobs.list(kind=kind, limit=500)
                        for kind in ("start", "hold")
                    ]
            beats = await client.jobs.list(kind="beat", limit=5000)
        nursery.cancel_scope.cancel()
    assert await engine(canonical) is awa.Engine.SEGMENTED
    assert [len(of_kind) for of_kind in jobs] == [240, 140]
    assert max(over) == MOST
    starts = sorted(job.attempted_at.timestamp() for job in jobs[0] if job.attempted_at)
    for first_one, start in enumerate(starts):
        for last_one in range(first_one, len(starts)):
            allowed = RATE.burst + (starts[last_one] - start) * RATE.per_second
            assert last_one - first_one + 1 <= allowed + 1e-3
    instants = sorted(
        job.scheduled_for for job in beats if job.schedule == "seconds" and job.scheduled_for
    )
    assert len(instants) > 3
    assert {b - a for a, b in pairwise(instants)} == {timedelta(seconds=1)}
