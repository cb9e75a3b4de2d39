"""A worker whose settlements do not land: it ends in time, and asks no database without end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio._core.plan import Plan
from awa_trio._runtime.worker import HAND_BACK, LAST_WORDS
from awa_trio._seam.errors import LockTimeout, Rejected
from awa_trio._seam.values import Settled, Want

from .faults import Fault, Settle, never_answer
from .rig import Rig

S = awa.JobState
pytestmark = pytest.mark.virtual_time

Job = awa.Job[Any]


async def refuse(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
    """A trigger raises."""
    await trio.sleep(0.001)
    raise Rejected("P0001")


async def hold(plans: Sequence[Plan], settle: Settle) -> list[Settled]:
    """Somebody has locked the table."""
    await trio.sleep(0.25)
    raise LockTimeout("55P03")


async def second(job: Job) -> None:
    await trio.sleep(1)


async def lose(rig: Rig, count: int = 1) -> None:
    """Jobs of a worker that is gone."""
    dead = await rig.store.register("dead", 30)
    for _ in range(count):
        await rig.enqueue(queue="lost")
    assert len(await rig.store.claim(dead, [Want("lost", count, 0)], {"work": None})) == count
    await rig.store.unregister(dead)


def break_settling(rig: Rig, fault: Fault) -> None:
    rig.backend.faults.extend([fault] * 100_000)


@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("fault", [refuse, hold, never_answer])
async def test_it_ends_in_time_whatever_it_goes_on_submitting(fault: Fault, how: str) -> None:
    """Others' jobs are lost all the time, and none of the rescues can be settled either."""
    rig = Rig(second)
    for _ in range(20):
        await rig.enqueue()
    timings = awa.Timings(rescue_interval=0.1)
    began = 0.0

    async def lose_more() -> None:
        while True:
            await lose(rig)
            await trio.sleep(0.5)

    async with trio.open_nursery() as others:
        others.start_soon(lose_more)
        with trio.CancelScope() as scope:
            async with rig.working(grace=5, timings=timings, queues=["default"]) as worker:
                await trio.sleep(0.5)
                break_settling(rig, fault)
                await trio.sleep(25)
                assert worker.statistics().given_up > 0
                began = trio.current_time()
                if how == "cancel":
                    scope.cancel()
        limit = timings.finalize_deadline if how == "stop" else LAST_WORDS
        assert trio.current_time() - began <= limit + HAND_BACK + 1
        others.cancel_scope.cancel()
    # Nothing is lost: whoever works when the database does again has them all.
    rig.backend.faults.clear()
    async with rig.working(queues=["default", "lost"], timings=timings):
        await trio.sleep(300)
    assert await rig.client.jobs.count(state=S.COMPLETED) == await rig.client.jobs.count()


async def test_what_is_refused_is_not_tried_without_end() -> None:
    rig = Rig(second)
    for _ in range(10):
        await rig.enqueue()
    break_settling(rig, refuse)
    async with rig.working():
        await trio.sleep(60)
        tries = len(rig.backend.worker_stores[0].calls)
        rig.backend.faults = rig.backend.worker_stores[0].faults = deque()
        await trio.sleep(10)
        assert await rig.client.jobs.count(state=S.COMPLETED) == 10
    # Ten jobs in halves, about once a second.
    assert 60 < tries < 60 * 30


async def test_many_that_cannot_be_rescued_are_left_until_the_next_round() -> None:
    rig = Rig(second)
    await lose(rig, 500)
    looks = 0
    find = rig.store.rescue

    async def rescue(*args: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        return await find(*args, **options)

    rig.backend.broken["rescue"] = rescue
    break_settling(rig, refuse)
    async with rig.working(queues=["default"]):
        await trio.sleep(21)
        assert 4 <= looks <= 2 * 5
        rig.backend.worker_stores[0].faults.clear()
        await trio.sleep(15)
    assert await rig.client.jobs.count(queue="lost", state=S.RUNNING) == 0
