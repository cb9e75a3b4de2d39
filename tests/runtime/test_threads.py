"""Ordinary functions as handlers, in threads, which nothing can interrupt."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import awa_trio as awa

from .rig import Next, Rig, Work

S = awa.JobState
Job = awa.Job[Work]

#: Seconds after which a test has failed: far more than anything here takes.
FAR = 30.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(FAR):
        while not await condition():
            await trio.sleep(0.01)


async def in_state(rig: Rig, job_id: int, state: awa.JobState) -> None:
    async def there() -> bool:
        return await rig.state(job_id) is state

    await until(there)


class Stubborn:
    """A handler that waits until it is let go, whatever happens to its job."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()
        self.refused: list[Exception] = []

    def __call__(self, job: Job) -> None:
        if job.args.n:
            return
        job.enqueue_on_completion(Next(1))
        self.begun.set()
        self.go.wait(FAR)
        try:
            job.enqueue_on_completion(Next(2))
        except awa.StagingSealed as error:
            self.refused.append(error)
        self.ended.set()

    async def until_begun(self) -> None:
        await until(self._has_begun)

    async def _has_begun(self) -> bool:
        return self.begun.is_set()

    async def until_ended(self) -> None:
        async def ended() -> bool:
            return self.ended.is_set()

        await until(ended)


async def test_a_plain_function_is_a_handler_like_any_other() -> None:
    def handler(job: Job) -> object:
        assert threading.current_thread() is not threading.main_thread()
        with pytest.raises(RuntimeError, match="make it async, or use trio"):
            _ = job.nursery
        match job.args.n:
            case 0:
                job.enqueue_on_completion(Next(trio.from_thread.run_sync(lambda: 7)))
            case 1:
                raise ValueError("one")
            case 2:
                raise awa.Cancel("two")
            case 3:
                return awa.RetryAfter(500)
        return None

    rig = Rig(handler)
    ids = [await rig.enqueue(n, max_attempts=2 if n == 3 else 1) for n in range(4)]
    states = [S.COMPLETED, S.FAILED, S.CANCELLED, S.RETRYABLE]
    async with rig.working():
        for job_id, state in zip(ids, states, strict=True):
            await in_state(rig, job_id, state)
    assert await rig.follow_ups() == [7]
    assert "ValueError: one" in await rig.error(ids[1])
    assert "two" in await rig.error(ids[2])


@pytest.mark.parametrize("cut", ["deadline", "admin"])
async def test_the_slot_stays_taken_until_the_thread_ends(
    cut: str, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn()
    rig = Rig(stubborn)
    job_id = await rig.enqueue(0, max_attempts=1, deadline=FAR)
    async with rig.working(queues={"default": 1}) as worker:
        await stubborn.until_begun()
        if cut == "admin":
            assert await rig.client.jobs.cancel(job_id)
        else:
            [attempt] = worker._parts.ledger.running()
            assert attempt.scope is not None
            attempt.scope.deadline = trio.current_time()
        await in_state(rig, job_id, S.FAILED if cut == "deadline" else S.CANCELLED)

        async def mentioned() -> bool:
            return "its thread goes on; the slot is taken until it ends" in caplog.text

        await until(mentioned)
        waiting = await rig.enqueue(1)
        await trio.sleep(0.3)
        assert await rig.state(waiting) is S.AVAILABLE
        assert not stubborn.ended.is_set()
        stubborn.go.set()
        await in_state(rig, waiting, S.COMPLETED)
        assert worker.statistics().running == 0
    [refused] = stubborn.refused
    assert isinstance(refused, awa.StagingError)
    assert await rig.follow_ups() == []


async def test_a_thread_can_ask_whether_its_job_was_cut() -> None:
    ended = threading.Event()
    begun = threading.Event()

    def polite(job: Job) -> None:
        begun.set()
        try:
            while not ended.wait(0.01):
                trio.from_thread.check_cancelled()
        finally:
            ended.set()

    rig = Rig(polite)
    job_id = await rig.enqueue(deadline=FAR)
    async with rig.working():
        with trio.fail_after(FAR):
            while not begun.is_set():
                await trio.sleep(0.01)
            assert await rig.client.jobs.cancel(job_id)
            while not ended.is_set():
                await trio.sleep(0.01)
    assert await rig.state(job_id) is S.CANCELLED


async def test_a_thread_that_would_begin_after_the_cut_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cut comes between the request for a thread and the thread."""
    ran: list[int] = []
    late: list[Callable[[], object]] = []

    async def slow_to_start(run: Callable[[], object], **options: Any) -> object:
        late.append(run)
        await trio.sleep_forever()
        raise AssertionError("unreachable")

    monkeypatch.setattr(trio.to_thread, "run_sync", slow_to_start)
    rig = Rig(lambda job: ran.append(job.id))
    job_id = await rig.enqueue(deadline=0.05, max_attempts=1)
    async with rig.working(queues={"default": 1}):
        await in_state(rig, job_id, S.FAILED)
        monkeypatch.undo()
        [run] = late
        await trio.to_thread.run_sync(run)
        other = await rig.enqueue(deadline=FAR)
        await in_state(rig, other, S.COMPLETED)
    assert ran == [other]


async def test_fifty_that_block_run_at_once_and_leave_the_app_its_threads() -> None:
    """More than Trio's own limiter lets through, and none of it is used up."""
    count = 50
    together = threading.Barrier(count + 1)
    go = threading.Event()

    def block(job: Job) -> None:
        together.wait(FAR)
        go.wait(FAR)

    rig = Rig(block)
    ids = [await rig.enqueue(n, deadline=FAR) for n in range(count)]
    async with rig.working(queues={"default": count}) as worker:
        try:
            # It breaks, and fails this test, unless all of them wait at the same time.
            await trio.to_thread.run_sync(together.wait, FAR)
            assert worker.statistics().running == count
            with trio.fail_after(FAR):
                assert await trio.to_thread.run_sync(lambda: 7) == 7
            assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        finally:
            go.set()
        for job_id in ids:
            await in_state(rig, job_id, S.COMPLETED)


@pytest.mark.parametrize("grace", [0.0, 0.2])
async def test_a_worker_that_stops_hands_the_job_back_and_leaves_the_thread(
    grace: float,
) -> None:
    stubborn = Stubborn()
    rig = Rig(stubborn)
    job_id = await rig.enqueue(deadline=FAR)
    with trio.fail_after(FAR):
        async with rig.working(grace=grace):
            await stubborn.until_begun()
    assert not stubborn.ended.is_set()
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt) == (S.AVAILABLE, 0)
    stubborn.go.set()
    await stubborn.until_ended()
    assert len(stubborn.refused) == 1
    assert await rig.follow_ups() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_an_interrupt_in_a_thread_is_recorded_and_goes_on(error: BaseException) -> None:
    def interrupted(job: Job) -> None:
        raise error

    rig = Rig(interrupted)
    job_id = await rig.enqueue()
    with trio.fail_after(FAR), pytest.raises(type(error)):
        await rig.run()
    assert await rig.state(job_id) is S.RETRYABLE
    assert type(error).__name__ in await rig.error(job_id)
