"""Attempts that run in the nursery and the scope of the one before, and none can tell."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

import awa_trio as awa
from awa_trio._core.outcome import Abandoned, Cut, Ended, Raised, Returned
from awa_trio._runtime.attempt import Attempt
from awa_trio._runtime.enclosure import TURN, Enclosure
from awa_trio._runtime.job import row_of
from awa_trio.testing import HandlerJob

from .rig import Rig, Work

pytestmark = pytest.mark.virtual_time
Job = awa.Job[Work]
COMPLETED = Returned(awa.Completed())


def nursery_of_task() -> trio.Nursery:
    """The innermost nursery of the task that asks."""
    return trio.lowlevel.current_task().child_nurseries[-1]


class Ran:
    """A handler that notes in which nursery it ran, and what cuts it when; then does more."""

    def __init__(self, more: Callable[[Job], Awaitable[object]] | None = None) -> None:
        self.more = more
        self.nursery: Any = None
        self.cut_at = math.nan

    async def __call__(self, job: Job) -> object:
        self.nursery = nursery_of_task()
        self.cut_at = trio.current_effective_deadline()
        return None if self.more is None else await self.more(job)


async def run(
    enclosure: Enclosure, handler: Callable[[Any], Awaitable[object]], deadline: float = 300.0
) -> Ended:
    row = cast("Any", row_of(HandlerJob(Work())))
    row.deadline = deadline
    attempt = Attempt(row, 1)
    job: Job = awa.Job(row, lambda _: Work(), attempt.buffer, cast("Any", None))
    ended = await attempt.run(handler, job, enclosure)
    attempt.seal()
    return ended


async def test_a_handler_that_left_nothing_leaves_its_nursery_to_the_next() -> None:
    first, second = Ran(), Ran()
    async with Enclosure() as enclosure:
        assert await run(enclosure, first) == COMPLETED
        assert await run(enclosure, second) == COMPLETED
    assert first.nursery is second.nursery


async def test_a_worker_uses_them_again() -> None:
    """Trio has no public way to ask what a task is inside of: without it, nothing is kept."""
    nurseries = []

    async def handle(job: Job) -> None:
        nurseries.append(nursery_of_task())

    rig = Rig(handle)
    for n in range(20):
        await rig.enqueue(n)
    async with rig.working():
        while len(nurseries) < 20:
            await trio.sleep(0.01)
    assert len(set(map(id, nurseries))) < 20


async def asks(job: Job) -> None:
    assert not job.nursery.cancel_scope.cancel_called


async def fails(job: Job) -> None:
    raise ValueError("no")


async def cancels(job: Job) -> None:
    nursery_of_task().cancel_scope.cancel()
    await trio.sleep(1)


async def abandons_a_generator(job: Job) -> None:
    async def numbers() -> AsyncIterator[int]:
        with trio.CancelScope():
            yield 1

    _kept.append(iterator := numbers())
    async for _ in iterator:
        break


_kept: list[Any] = []


async def lets_the_deadline_pass(job: Job) -> None:
    cast("MockClock", trio.lowlevel.current_clock()).jump(301)


@pytest.mark.parametrize(
    "more", [asks, fails, cancels, abandons_a_generator, lets_the_deadline_pass]
)
async def test_whatever_may_be_left_is_left_behind(
    more: Callable[[Job], Awaitable[object]],
) -> None:
    first, second = Ran(more), Ran()
    async with Enclosure() as enclosure:
        await run(enclosure, first)
        assert await run(enclosure, second) == COMPLETED
    assert first.nursery is not second.nursery
    with contextlib.suppress(IndexError):
        await _kept.pop().aclose()
    gc.collect()


async def test_a_handler_that_abandons_a_scope_has_failed() -> None:
    async with Enclosure() as enclosure:
        ended = await run(enclosure, abandons_a_generator)
    assert isinstance(ended, Raised)
    assert "Cancel scope stack corrupted" in repr(ended.error)
    await _kept.pop().aclose()


async def test_no_task_can_be_started_in_the_nursery_of_an_attempt_that_is_over() -> None:
    nurseries: list[trio.Nursery] = []
    jobs: list[Job] = []

    async def keeps_the_nursery(job: Job) -> None:
        nurseries.append(job.nursery)

    async def keeps_the_job(job: Job) -> None:
        jobs.append(job)

    async with Enclosure() as enclosure:
        await run(enclosure, keeps_the_nursery)
        await run(enclosure, keeps_the_job)
        await run(enclosure, keeps_the_job)
        with pytest.raises(RuntimeError, match="closed"):
            nurseries[0].start_soon(trio.sleep, 1)
        for job in jobs:
            with pytest.raises(RuntimeError, match="nursery"):
                job.nursery.start_soon(trio.sleep, 1)


@pytest.mark.parametrize(("before", "after"), [(300, 5), (5, 300), (0, 5), (5, 0), (300, 300)])
async def test_each_attempt_has_its_own_deadline(before: float, after: float) -> None:
    async def passes(job: Job) -> None:
        await trio.sleep(TURN / 4)

    first, second = Ran(passes), Ran(passes)
    async with Enclosure() as enclosure:
        began = trio.current_time()
        assert await run(enclosure, first, before) == COMPLETED
        then = trio.current_time()
        assert await run(enclosure, second, after) == COMPLETED
    assert first.nursery is second.nursery
    assert first.cut_at == (began + before if before else math.inf)
    if after:
        assert then + after - TURN <= second.cut_at <= then + after
    else:
        assert second.cut_at == math.inf


async def test_a_deadline_cuts_the_second_attempt_too() -> None:
    async def sleeps(job: Job) -> None:
        await trio.sleep(100)

    first, second = Ran(), Ran(sleeps)
    async with Enclosure() as enclosure:
        await run(enclosure, first)
        began = trio.current_time()
        ended = await run(enclosure, second, 7)
        assert trio.current_time() - began == pytest.approx(7, abs=TURN)
    assert first.nursery is second.nursery
    assert isinstance(ended, Abandoned)
    assert ended.by is Cut.DEADLINE


async def test_a_cancellation_from_outside_cuts_the_second_attempt_too() -> None:
    async def sleeps(job: Job) -> None:
        await trio.sleep(100)

    first, second = Ran(), Ran(sleeps)
    with trio.move_on_after(3) as scope:
        async with Enclosure() as enclosure:
            await run(enclosure, first)
            ended = await run(enclosure, second)
            assert isinstance(ended, Abandoned)
            assert ended.by is Cut.SHUTDOWN
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert first.nursery is second.nursery


async def test_handlers_without_checkpoints_leave_the_loop_to_others_every_so_often() -> None:
    """Leaving a nursery is a checkpoint."""
    nurseries = []

    async def blocks(job: Job) -> None:
        nurseries.append(nursery_of_task())
        cast("MockClock", trio.lowlevel.current_clock()).jump(TURN / 2)

    rig = Rig(blocks)
    for n in range(40):
        await rig.enqueue(n)
    async with rig.working():
        while len(nurseries) < 40:
            await trio.sleep(0.01)
    assert len(set(map(id, nurseries))) >= 20
