"""The jobs of a soak: one kind for each thing that a worker can be asked to do."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.pg import TrioConnection

#: Seconds for which what has ended is kept: tables are to come to rest within minutes.
KEPT = 60.0

RETENTION = awa.Retention(completed=KEPT, failed=KEPT, dead_letters=KEPT)

app = awa.App()
app.queue("default", max_workers=40)
app.queue("probes", max_workers=4)

SLOTS = 44
"""Attempts that the worker runs at once."""

pickups: list[float] = []
"""Seconds from the enqueue of each probe to its handler's first line, since somebody looked."""

EXPECTED = re.compile(
    r"RuntimeError: (attempt \d fails|every attempt fails)|DeadlineExceeded"
    r"|failed by its callback|callback timed out|cancelled: cancelled by an operator"
)
"""The errors that jobs are to have."""

leaked: list[Any] = []
"""What `LEAKS` keep."""


@frozen
class Probe:
    """Measures how long a job takes to begin."""

    moment: float


@frozen
class Plain:
    n: int


@frozen
class Stages:
    """Stages follow-ups, some of which others have staged too."""

    items: list[int]


@frozen
class Item:
    item: int


@frozen
class Flaky:
    """Fails twice."""

    n: int


@frozen
class Doomed:
    """Fails for good: a dead letter."""

    n: int


@frozen
class Overruns:
    """Is cut by its deadline."""

    n: int


@frozen
class Waits:
    """Waits for a callback in memory."""

    n: int


@frozen
class Parks:
    """Waits for a callback, and keeps nothing in memory."""

    n: int


@frozen
class WaitsInVain:
    """Waits for a callback that does not come."""

    n: int


@frozen
class IsCancelled:
    """Runs until somebody cancels it."""

    n: int


@frozen
class Ordered:
    """Has an ordering key."""

    n: int


@frozen
class Snoozes:
    n: int


@frozen
class Reports:
    """Has progress, output, and a resource of its own."""

    n: int


@frozen
class InAThread:
    n: int


@frozen
class Completes:
    """Completes in a transaction of its own."""

    n: int


@frozen
class Scratch:
    """A resource of one attempt, with a file of its own."""

    file: int


@app.resource(scope="attempt")
async def scratch() -> AsyncIterator[Scratch]:
    file = os.open(os.devnull, os.O_RDONLY)
    try:
        yield Scratch(file)
    finally:
        os.close(file)


@app.resource(scope="attempt")
async def own_connection() -> AsyncIterator[TrioConnection[Any]]:
    async with await TrioConnection.connect(os.environ["AWA_DSN"], autocommit=True) as own:
        yield own


def soon(attempt: int) -> float:
    return 0.5


@app.task(queue="probes", priority=1)
async def probe(job: awa.Job[Probe]) -> None:
    pickups.append(time.time() - job.args.moment)


@app.task
async def plain(job: awa.Job[Plain]) -> None: ...


@app.task
async def stages(job: awa.Job[Stages]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0.01)
        for item in job.args.items:
            job.enqueue_on_completion(Item(item), unique_opts={"states": 23})


@app.task
async def item(job: awa.Job[Item]) -> None:
    await trio.sleep(0.01)


@app.task(backoff=soon)
async def flaky(job: awa.Job[Flaky]) -> None:
    if job.attempt <= 2:
        raise RuntimeError(f"attempt {job.attempt} fails")


@app.task(max_attempts=2, backoff=soon)
async def doomed(job: awa.Job[Doomed]) -> None:
    raise RuntimeError("every attempt fails")


@app.task(max_attempts=1, deadline=0.3)
async def overruns(job: awa.Job[Overruns]) -> None:
    job.enqueue_on_completion(Item(-1))
    await trio.sleep_forever()


@app.task(backoff=soon)
async def waits(job: awa.Job[Waits]) -> None:
    await job.wait_for_callback(await job.register_callback(60))
    job.enqueue_on_completion(Plain(job.args.n))


@app.task
async def parks(job: awa.Job[Parks]) -> object:
    if job.last_callback is None:
        return awa.WaitForCallback(await job.register_callback(60))
    return None


@app.task(max_attempts=2, backoff=soon)
async def waits_in_vain(job: awa.Job[WaitsInVain]) -> None:
    if job.attempt == 1:
        await job.wait_for_callback(await job.register_callback(1))


@app.task(deadline=0)
async def is_cancelled(job: awa.Job[IsCancelled]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)


@app.task
async def ordered(job: awa.Job[Ordered]) -> None:
    await trio.sleep(0.01)


@app.task
async def snoozes(job: awa.Job[Snoozes]) -> object:
    if job.progress.percent is None:
        job.progress.set(percent=50)
        return awa.Snooze(1)
    return None


@app.task
async def reports(job: awa.Job[Reports], scratch: Scratch) -> None:
    for percent in (25, 50, 75):
        job.progress.set(percent=percent, message=f"{percent} of a hundred")
        await trio.sleep(0.01)
    await job.flush_progress()
    job.set_output({"file": scratch.file})


@app.task
def in_a_thread(job: awa.Job[InAThread]) -> None:
    time.sleep(0.01)


@app.task
async def completes(job: awa.Job[Completes], own: TrioConnection[Any]) -> None:
    async with job.complete_in(own) as transaction:
        await transaction.enqueue(Plain(job.args.n))
