"""Caps, rates, limits by key, ageing, overrides and pauses all at once, as chance has them.

Each of them is kept whatever the others are, and everything runs in the end; in virtual time, where
a worker that does not sleep when it should stands still for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio.testing import memory_client

from .rig import Work

S = awa.JobState
pytestmark = pytest.mark.virtual_time

KEYS = (None, "a", "b")


def settings(chance: Random) -> dict[str, Any]:
    """Some of the settings of a queue."""

    def rate() -> awa.Rate:
        return awa.Rate(chance.choice([1, 5, 20]), burst=chance.randint(1, 5))

    found: dict[str, Any] = {
        "max_workers": chance.randint(1, 8),
        "weight": chance.randint(1, 3),
        "priority_ageing": chance.choice([0, 1, 60]),
    }
    some = {
        "worker_rate": rate(),
        "rate": rate(),
        "rate_per_key": rate(),
        "max_per_key": chance.randint(1, 3),
    }
    return found | {name: value for name, value in some.items() if chance.random() < 0.4}


def keeps(rate: awa.Rate, starts: Iterable[float], workers: int = 1) -> bool:
    """Whether in no stretch of time more have started than so many buckets hold and get."""
    at = list(starts)
    return all(
        last - first + 1
        <= workers * (rate.burst + (at[last] - at[first]) * rate.per_second) + 1e-3
        for first in range(len(at))
        for last in range(first, len(at))
    )


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 200))]
)
async def test_each_is_kept_whatever_the_others_are(seed: int) -> None:
    chance = Random(seed)
    queues = {f"q{n}": settings(chance) for n in range(chance.randint(1, 4))}
    cap, workers = chance.choice([None, 1, 2, 5]), chance.randint(1, 2)
    seconds = [chance.choice([0, 0.01, 0.2, 1]) for _ in range(7)]
    starts: list[tuple[float, str, str | None]] = []
    running, most = Counter[Any](), Counter[Any]()
    app = awa.App()
    for queue, options in queues.items():
        app.queue(queue, **options)

    @app.task
    async def work(job: awa.Job[Work]) -> None:
        nonlocal most
        starts.append((trio.current_time(), job.queue, job.limit_key))
        counted = Counter[Any](["all", job.queue, (job.queue, job.limit_key)])
        running.update(counted)
        most |= running
        await trio.sleep(seconds[job.args.n % 7])
        running.subtract(counted)

    client = memory_client(app)
    async with trio.open_nursery() as nursery:
        serve = partial(awa.run_worker, app, client, max_workers=cap, random=Random(seed))
        serving = [await nursery.start(serve) for _ in range(workers)]
        for _ in range(3):
            for queue in queues:
                for n in range(chance.randint(0, 15)):
                    await client.enqueue(
                        Work(n),
                        queue=queue,
                        priority=chance.randint(1, 4),
                        limit_key=chance.choice(KEYS),
                    )
            await trio.sleep(3 * chance.random())
        queue = chance.choice([*queues])
        await client.queues.override(queue, max_workers=1)
        await client.queues.pause(queue)
        await trio.sleep(1)
        await client.queues.resume(queue)
        await client.queues.reset(queue)
        with trio.fail_after(600):
            while await client.jobs.count(state=[s for s in S if s is not S.COMPLETED]):
                await trio.sleep(1)
        for worker in serving:
            worker.stop()
    assert cap is None or most["all"] <= cap * workers
    for queue, options in queues.items():
        assert most[queue] <= options["max_workers"] * workers
        of_queue = [(at, key) for at, name, key in starts if name == queue]
        if "rate" in options:
            assert keeps(options["rate"], [at for at, _ in of_queue])
        if "worker_rate" in options:
            assert keeps(options["worker_rate"], [at for at, _ in of_queue], workers)
        for one in KEYS[1:]:
            assert most[queue, one] <= options.get("max_per_key", 100)
            if "rate_per_key" in options:
                assert keeps(
                    options["rate_per_key"], [at for at, key in of_queue if key == one]
                )
