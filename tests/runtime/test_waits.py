"""Attempts that wait for callbacks, in virtual time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

import pytest
import trio

import awa_trio as awa
from awa_trio._seam.errors import Transient
from awa_trio._seam.hearing import Answered
from awa_trio._seam.values import Held, Wait

from .rig import Next, Rig, Work
from .test_lives import fence
from .test_threads import in_state

S = awa.JobState
pytestmark = pytest.mark.virtual_time
Job = awa.Job[Work]


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(1000):
        while not condition():
            await trio.sleep(0.1)


class Waiter:
    """A handler that registers a callback, waits for it, and notes what it got."""

    def __init__(self, waits: int = 1, timeout: float = 3600.0) -> None:
        self.waits = waits
        self.timeout = timeout
        self.tokens: dict[int, str] = {}
        self.runs: list[tuple[int, int]] = []
        self.payloads: list[Any] = []
        self.last: list[awa.CallbackAnswer | None] = []
        self.errors: list[BaseException] = []

    async def __call__(self, job: Job) -> None:
        self.runs.append((job.args.n, job.attempt))
        self.last.append(job.last_callback)
        job.enqueue_on_completion(Next(job.args.n))
        if job.last_callback is not None:
            return
        try:
            for _ in range(self.waits):
                self.tokens[job.args.n] = await job.register_callback(self.timeout)
                token = self.tokens[job.args.n]
                self.payloads.append(await job.wait_for_callback(token))
        except BaseException as error:
            self.errors.append(error)
            raise


async def waiting(rig: Rig, job_id: int) -> str:
    """The token of a job whose handler waits."""
    with trio.fail_after(100):
        while (job := await rig.client.jobs.get(job_id)).state is not S.WAITING_EXTERNAL:
            await trio.sleep(0.1)
    assert job.callback_token is not None
    return job.callback_token


# ---- resuming


@pytest.mark.parametrize("listen", [True, False])
async def test_a_waiting_handler_gets_the_payload(listen: bool) -> None:
    handler = Waiter()
    rig = Rig(handler, deadline=60)
    job_id = await rig.enqueue()
    async with rig.working(listen=listen) as worker:
        token = await waiting(rig, job_id)
        await trio.sleep(1000)
        assert worker.statistics().waiting == 1
        began = trio.current_time()
        assert await rig.client.callbacks.resume(token, {"x": [1]}) == job_id
        job = await rig.client.jobs.wait(job_id)
    assert handler.payloads == [{"x": [1]}]
    assert (job.state, job.attempt) == (S.COMPLETED, 1)
    assert await rig.follow_ups() == [0]
    assert trio.current_time() - began < (1 if listen else 5)


async def test_sequential_waits_each_with_a_callback_of_its_own() -> None:
    handler = Waiter(waits=5)
    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        seen: set[str] = set()
        for n in range(5):
            await until(lambda: handler.tokens.get(0) not in {None, *seen})
            await waiting(rig, job_id)
            seen.add(handler.tokens[0])
            await rig.client.callbacks.resume(handler.tokens[0], n)
        await rig.client.jobs.wait(job_id)
    assert handler.payloads == [0, 1, 2, 3, 4]
    assert len(seen) == 5


@pytest.mark.parametrize("read", ["answered", "running"])
async def test_the_answer_to_an_earlier_wait_does_not_wake_a_later_one(read: str) -> None:
    """It would end and begin again, and whoever retried the job meanwhile was refused."""
    handler = Waiter(waits=2)
    rig = Rig(handler)
    job_id = await rig.enqueue()
    ended: list[Wait] = []

    async def late(worker: int) -> list[Held]:
        return [Held(job_id, 1, "work", 1, 25, S.WAITING_EXTERNAL, first, answered=True)]

    async def end_waits(worker: int, waits: Sequence[Wait]) -> Any:
        ended.extend(waits)
        return await rig.store.end_waits(worker, waits)

    rig.backend.broken["end_waits"] = end_waits
    async with rig.working():
        first = await waiting(rig, job_id)
        await rig.client.callbacks.resume(first)
        await until(lambda: handler.tokens[0] != first)
        second = await waiting(rig, job_id)
        rig.backend.broken[read] = late
        await trio.sleep(100)
        del rig.backend.broken[read]
        await rig.client.callbacks.resume(second)
        await rig.client.jobs.wait(job_id)
    assert [wait.token for wait in ended] == [first, second]


async def test_a_callback_answered_early_is_returned_at_once() -> None:
    registered: dict[str, str] = {}
    payloads = []

    async def handler(job: Job) -> None:
        registered["token"] = await job.register_callback()
        await trio.sleep(60)
        began = trio.current_time()
        payloads.append(await job.wait_for_callback(registered["token"]))
        assert trio.current_time() == began

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        await until(lambda: bool(registered))
        await rig.client.callbacks.resume(registered["token"], "early")
        with pytest.raises(awa.CallbackAlreadyResolved):
            await rig.client.callbacks.resume(registered["token"], "late")
        await rig.client.jobs.wait(job_id)
    assert payloads == ["early"]
    assert await rig.state(job_id) is S.COMPLETED


async def test_a_callback_answered_before_parking_runs_the_job_again_unspent() -> None:
    last = []

    async def handler(job: Job) -> object:
        last.append((job.attempt, job.last_callback))
        if job.last_callback is not None:
            return None
        token = await job.register_callback()
        await rig.client.callbacks.resume(token, 7)
        return awa.WaitForCallback(token)

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        job = await rig.client.jobs.wait(job_id)
    assert job.attempt == 1
    [first, second] = last
    assert first == (1, None)
    assert second[0] == 1
    assert second[1] is not None
    assert second[1].payload == 7


async def test_a_parked_job_runs_again_with_the_answer() -> None:
    last = []

    async def handler(job: Job) -> object:
        last.append(job.last_callback and job.last_callback.payload)
        if job.last_callback is None:
            return awa.WaitForCallback(await job.register_callback())
        return awa.RetryAfter(5) if len(last) == 2 else None

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working() as worker:
        token = await waiting(rig, job_id)
        assert worker.statistics().running == 0
        await rig.client.callbacks.resume(token, {"ok": True})
        job = await rig.client.jobs.wait(job_id)
    # Kept until the job ends, through a retry.
    assert last == [None, {"ok": True}, {"ok": True}]
    assert job.attempt == 2


async def test_a_false_alarm_wakes_nobody() -> None:
    """Anyone may send a notification: the row decides."""
    handler = Waiter()
    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        token = await waiting(rig, job_id)
        for _ in range(3):
            rig.store._tell(Answered(job_id, 1))
            await trio.sleep(1)
        assert await waiting(rig, job_id) == token
        assert handler.payloads == []
        await rig.client.callbacks.resume(token)
        await rig.client.jobs.wait(job_id)
    assert handler.payloads == [None]


# ---- slots, clocks


async def test_a_waiting_attempt_lends_its_slot_and_gets_one_before_new_jobs() -> None:
    order: list[str] = []

    async def handler(job: Job) -> None:
        if job.args.n == 0:
            order.append("waits")
            await job.wait_for_callback(await job.register_callback())
            order.append("resumed")
        else:
            order.append(f"begins {job.args.n}")
            await trio.sleep(10)

    rig = Rig(handler)
    waiter = await rig.enqueue(0)
    async with rig.working(queues={"default": 1}) as worker:
        token = await waiting(rig, waiter)
        others = [await rig.enqueue(n) for n in (1, 2)]
        await trio.sleep(5)
        assert worker.statistics().running == 2
        await rig.client.callbacks.resume(token)
        await trio.sleep(4)
        # No slot is free yet: the row says so too.
        assert await rig.state(waiter) is S.WAITING_EXTERNAL
        for job_id in (waiter, *others):
            await rig.client.jobs.wait(job_id)
    assert order == ["waits", "begins 1", "resumed", "begins 2"]


async def test_many_resumed_at_once_never_run_more_than_there_are_slots() -> None:
    running = peak = 0

    async def handler(job: Job) -> None:
        nonlocal running, peak
        token = await job.register_callback()
        await job.wait_for_callback(token)
        running += 1
        peak = max(peak, running)
        await trio.sleep(1)
        running -= 1

    rig = Rig(handler)
    ids = [await rig.enqueue(n) for n in range(30)]
    async with rig.working(queues={"default": 4}) as worker:
        tokens = [await waiting(rig, job_id) for job_id in ids]
        more = [await rig.enqueue(n) for n in range(30)]
        async with trio.open_nursery() as nursery:
            for token in tokens:
                nursery.start_soon(rig.client.callbacks.resume, token)
        for job_id in ids:
            assert (await rig.client.jobs.wait(job_id)).state is S.COMPLETED
        for job_id in more:
            await waiting(rig, job_id)
        assert worker.statistics().waiting == 30
        slots = worker._parts.dispatcher._queues["default"]
        assert (slots.free, slots.waiting) == (4, 30)
        assert slots.started <= 30 + 4
    assert peak == 4


async def test_slots_that_stood_in_are_not_kept() -> None:
    rig = Rig(Waiter())
    ids = [await rig.enqueue(n) for n in range(50)]
    async with rig.working(queues={"default": 2}) as worker:
        for job_id in ids:
            await rig.client.callbacks.resume(await waiting(rig, job_id))
        for job_id in ids:
            await rig.client.jobs.wait(job_id)
        await trio.sleep(10)
        slots = worker._parts.dispatcher._queues["default"]
        assert (slots.free, slots.waiting, slots.started <= 2) == (2, 0, True)


async def test_beyond_max_waiting_nothing_is_claimed() -> None:
    handler = Waiter()
    rig = Rig(handler)
    ids = [await rig.enqueue(n) for n in range(9)]
    async with rig.working(queues={"default": 2}, max_waiting=4) as worker:
        await trio.sleep(100)
        assert 4 <= worker.statistics().waiting <= 5
        first = [job_id for job_id in ids if await rig.state(job_id) is S.WAITING_EXTERNAL]
        for job_id in first:
            await rig.client.callbacks.resume(await waiting(rig, job_id))
        await trio.sleep(10)
        assert len(handler.payloads) == len(first)
        assert worker.statistics().waiting >= 4


@pytest.mark.parametrize("most", [0, -1])
async def test_max_waiting_is_at_least_one(most: int) -> None:
    with pytest.raises(awa.ConfigurationError, match="max_waiting"):
        await Rig(Waiter()).run(max_waiting=most)


async def test_the_deadlines_clock_stands_still_while_it_waits() -> None:
    async def handler(job: Job) -> None:
        await trio.sleep(6)
        await job.wait_for_callback(await job.register_callback())
        await trio.sleep(job.args.n)

    rig = Rig(handler, deadline=10, backoff=lambda attempt: 1000.0)
    ids = [await rig.enqueue(3), await rig.enqueue(5)]
    async with rig.working():
        for job_id in ids:
            token = await waiting(rig, job_id)
            job = await rig.client.jobs.get(job_id)
            assert job.deadline_at is None
            await trio.sleep(500)
            now = rig.store._now()
            await rig.client.callbacks.resume(token)
            await trio.sleep(0.5)
            job = await rig.client.jobs.get(job_id)
            assert job.deadline_at is not None
            assert (job.deadline_at - now).total_seconds() == pytest.approx(4, abs=0.2)
        await trio.sleep(20)
    assert await rig.state(ids[0]) is S.COMPLETED
    assert await rig.state(ids[1]) is S.RETRYABLE
    assert "the deadline of 10 s passed" in await rig.error(ids[1])


async def test_a_deadline_that_has_passed_before_the_wait_cuts_the_attempt() -> None:
    """The handler blocked, and its wait is the first checkpoint."""

    async def handler(job: Job) -> None:
        token = await job.register_callback()
        clock = trio.lowlevel.current_clock()
        clock.jump(20)  # type: ignore[attr-defined]
        await job.wait_for_callback(token)

    rig = Rig(handler, deadline=10)
    job_id = await rig.enqueue(max_attempts=2)
    async with rig.working():
        await trio.sleep(5)
    assert await rig.state(job_id) is S.RETRYABLE
    assert "the deadline of 10 s passed" in await rig.error(job_id)


# ---- misuse


async def test_what_cannot_work_is_refused_with_a_sentence() -> None:
    problems: list[str] = []

    async def handler(job: Job) -> None:
        async def misuse(call: Awaitable[object]) -> None:
            with pytest.raises(awa.CallbackInvalid) as caught:
                await call
            problems.append(str(caught.value))

        await misuse(job.wait_for_callback("nobody's"))
        await misuse(job.register_callback(0))
        first = await job.register_callback()
        second = await job.register_callback()
        await misuse(job.wait_for_callback(first))

        async def wait() -> None:
            await job.wait_for_callback(second)

        job.nursery.start_soon(wait)
        await trio.sleep(1)
        await misuse(job.wait_for_callback(second))
        await misuse(job.register_callback())
        await rig.client.callbacks.resume(second)
        await trio.sleep(1)
        await misuse(job.wait_for_callback(second))
        with pytest.raises(awa.CallbackNotFound):
            await rig.client.callbacks.resume(first)

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, job.errors) == (S.COMPLETED, [])
    assert len(problems) == 6


@pytest.mark.parametrize("how", ["never registered", "replaced", "waited for"])
async def test_parking_for_another_callback_fails_the_job(how: str) -> None:
    async def handler(job: Job) -> object:
        token = "token"
        if how != "never registered":
            token = await job.register_callback()
        if how == "replaced":
            await job.register_callback()
        if how == "waited for":
            await rig.client.callbacks.resume(token)
            await job.wait_for_callback(token)
        return awa.WaitForCallback(token)

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, job.attempt) == (S.FAILED, 1)
    assert "CallbackInvalid: WaitForCallback needs the token" in job.errors[-1].error


async def test_a_wait_that_the_handler_gives_up_can_be_begun_again() -> None:
    log: list[object] = []

    async def handler(job: Job) -> None:
        token = await job.register_callback()
        for _ in range(3):
            with trio.move_on_after(10):
                log.append(await job.wait_for_callback(token))
                break
            row = await rig.client.jobs.get(job.id)
            log.append(row.state)
            assert row.deadline_at is not None
        job.enqueue_on_completion(Next(1))

    rig = Rig(handler, deadline=5)
    job_id = await rig.enqueue()
    async with rig.working(queues={"default": 1}) as worker:
        token = await waiting(rig, job_id)
        await trio.sleep(25)
        await rig.client.callbacks.resume(token, "at last")
        job = await rig.client.jobs.wait(job_id)
        assert worker._parts.dispatcher._queues["default"].free in (0, 1)
    assert log == [S.RUNNING, S.RUNNING, "at last"]
    assert job.state is S.COMPLETED
    assert await rig.follow_ups() == [1]


async def test_another_task_of_the_attempt_may_fail_it_while_one_waits() -> None:
    async def handler(job: Job) -> None:
        async def fail() -> None:
            await trio.sleep(10)
            raise ValueError("no")

        job.nursery.start_soon(fail)
        await job.wait_for_callback(await job.register_callback())

    rig = Rig(handler)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working(queues={"default": 1}) as worker:
        job = await rig.client.jobs.wait(job_id)
        await trio.sleep(1)
        assert worker._parts.dispatcher._queues["default"].free == 1
        assert worker.statistics().waiting == 0
    assert job.state is S.FAILED
    assert "ValueError: no" in job.errors[-1].error


# ---- settled from outside


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize(
    ("how", "state"),
    [
        ("complete", S.COMPLETED),
        ("fail", S.FAILED),
        ("retry", S.COMPLETED),
        ("timeout", S.RETRYABLE),
    ],
)
async def test_a_waiting_handler_is_told_that_it_was_superseded(
    how: str, state: awa.JobState, listen: bool
) -> None:
    handler = Waiter(timeout=600.0)
    rig = Rig(handler, backoff=lambda attempt: 3000.0)
    job_id = await rig.enqueue(max_attempts=3)
    async with rig.working(listen=listen) as worker:
        token = await waiting(rig, job_id)
        if how == "timeout":
            await trio.sleep(620)
        else:
            await getattr(rig.client.callbacks, how)(token)
        await until(lambda: bool(handler.errors))
        if how == "retry":
            await until(lambda: len(handler.runs) == 2)
            await rig.client.callbacks.resume(await waiting(rig, job_id))
        await trio.sleep(2)
        assert worker.statistics().running == 0
    [error] = handler.errors
    assert isinstance(error, awa.CallbackSuperseded)
    job = await rig.client.jobs.get(job_id)
    assert job.state is state
    if how == "timeout":
        assert job.errors[-1].error == "callback timed out"
    if how == "retry":
        assert handler.runs == [(0, 1), (0, 1)]
    # What it had staged is gone, but for the run that completed itself.
    assert await rig.follow_ups() == ([0] if how == "retry" else [])


async def test_a_superseded_handler_that_swallows_it_changes_nothing() -> None:
    async def handler(job: Job) -> object:
        token = await job.register_callback()
        job.enqueue_on_completion(Next(1))
        try:
            await job.wait_for_callback(token)
        except awa.CallbackSuperseded:
            pass
        with pytest.raises(awa.CallbackSuperseded):
            await job.register_callback()
        job.enqueue_on_completion(Next(2))
        return awa.Completed()

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working() as worker:
        await rig.client.callbacks.fail(await waiting(rig, job_id), "the bank said no")
        await trio.sleep(1)
        assert worker.statistics().running == 0
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.errors[-1].error) == (S.FAILED, "the bank said no")
    assert await rig.follow_ups() == []


async def test_a_handler_that_has_not_begun_to_wait_is_cut_when_others_settle_its_job() -> None:
    cut = []
    tokens = []

    async def handler(job: Job) -> None:
        tokens.append(await job.register_callback())
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            cut.append(job.id)
            raise

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        await until(lambda: bool(tokens))
        with pytest.raises(awa.InvalidTransition, match="once it waits"):
            await rig.client.callbacks.retry(tokens[0])
        await rig.client.callbacks.complete(tokens[0], {"by": "others"})
        await trio.sleep(1)
    assert cut == [job_id]
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.raw_output) == (S.COMPLETED, b'{"by":"others"}')


async def test_an_operators_cancel_cuts_a_waiting_handler() -> None:
    handler = Waiter()
    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working() as worker:
        await waiting(rig, job_id)
        await rig.client.jobs.cancel(job_id)
        await trio.sleep(1)
        assert worker.statistics().running == 0
        assert worker.statistics().waiting == 0
    [error] = handler.errors
    assert isinstance(error, trio.Cancelled)
    assert await rig.state(job_id) is S.CANCELLED


@pytest.mark.parametrize("cause", ["cancelled", "fenced", "stopped", "its scope is cancelled"])
async def test_a_handler_that_waits_in_a_shield_is_let_go_once_it_is_settled(
    cause: str,
) -> None:
    """Nobody will answer it; and a worker cannot end while its handler does not."""
    handler = Waiter()

    async def shielded(job: Job) -> None:
        with trio.CancelScope(shield=True):
            await handler(job)

    rig = Rig(shielded)
    job_id = await rig.enqueue()
    with trio.fail_after(100), trio.CancelScope() as scope:
        async with rig.working(grace=1.0) as worker:
            await waiting(rig, job_id)
            match cause:
                case "cancelled":
                    await rig.client.jobs.cancel(job_id)
                case "fenced":
                    fence(rig)
                case "stopped":
                    worker.stop()
                case _:
                    scope.cancel()
            await until(lambda: worker.statistics().running == 0)
    assert worker.statistics().waiting == 0
    [error] = handler.errors
    assert isinstance(error, awa.CallbackSuperseded)
    state = S.CANCELLED if cause == "cancelled" else S.WAITING_EXTERNAL
    assert await rig.state(job_id) is state
    assert await rig.follow_ups() == []


async def test_only_the_first_resolution_counts() -> None:
    async def handler(job: Job) -> object:
        return awa.WaitForCallback(await job.register_callback())

    rig = Rig(handler)
    ids = [await rig.enqueue(n) for n in range(4)]
    callbacks = rig.client.callbacks
    async with rig.working():
        tokens = [await waiting(rig, job_id) for job_id in ids]
    first: list[Any] = [callbacks.resume, callbacks.complete, callbacks.fail, callbacks.retry]
    for token, resolve in zip(tokens, first, strict=True):
        await resolve(token)
        for again in (*first, callbacks.heartbeat):
            with pytest.raises(awa.CallbackAlreadyResolved):
                await again(token)
    states = [await rig.state(job_id) for job_id in ids]
    assert states == [S.AVAILABLE, S.COMPLETED, S.FAILED, S.AVAILABLE]
    for resolve in first:
        with pytest.raises(awa.CallbackNotFound):
            await resolve("nobody's")


# ---- timeouts


@pytest.mark.parametrize(("attempts", "state"), [(1, S.FAILED), (2, S.RETRYABLE)])
async def test_a_parked_job_times_out(attempts: int, state: awa.JobState) -> None:
    async def handler(job: Job) -> object:
        return awa.WaitForCallback(await job.register_callback(timeout=100))

    rig = Rig(handler, backoff=lambda attempt: 10_000.0)
    job_id = await rig.enqueue(max_attempts=attempts)
    async with rig.working():
        token = await waiting(rig, job_id)
        await trio.sleep(90)
        await rig.client.callbacks.heartbeat(token, 100)
        await trio.sleep(90)
        assert await rig.state(job_id) is S.WAITING_EXTERNAL
        await trio.sleep(30)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt) == (state, 1)
    assert job.errors[-1].error == "callback timed out"
    for call in (rig.client.callbacks.resume, rig.client.callbacks.heartbeat):
        with pytest.raises(awa.CallbackNotFound):
            await call(token)


async def test_a_callback_does_not_time_out_an_attempt_that_runs() -> None:
    async def handler(job: Job) -> None:
        await job.register_callback(timeout=10)
        await trio.sleep(100)

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, job.errors) == (S.COMPLETED, [])


# ---- workers that stop, die, or lose their database


async def test_a_job_that_only_waits_outlives_its_worker_and_is_run_again_unspent() -> None:
    handler = Waiter()
    rig = Rig(handler)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working(grace=1000):
        token = await waiting(rig, job_id)
        began = trio.current_time()
    # It did not use up the grace.
    assert trio.current_time() - began < 10
    assert isinstance(handler.errors[0], trio.Cancelled)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.worker_id, job.callback_token) == (S.WAITING_EXTERNAL, None, token)
    async with rig.working():
        await trio.sleep(100)  # A deploy re-runs nothing that only waits.
        assert len(handler.runs) == 1
        await rig.client.callbacks.resume(token, "late")
        job = await rig.client.jobs.wait(job_id)
    assert handler.runs == [(0, 1), (0, 1)]
    assert handler.last[1] == awa.CallbackAnswer(token, "late")
    assert (job.state, job.attempt) == (S.COMPLETED, 1)


async def test_stopping_waits_for_those_that_run_and_meanwhile_others_may_be_resumed() -> None:
    async def handler(job: Job) -> None:
        if job.args.n == 0:
            await job.wait_for_callback(await job.register_callback())
        await trio.sleep(20)

    rig = Rig(handler)
    waiter, runner = await rig.enqueue(0), await rig.enqueue(1)
    async with rig.working(grace=100) as worker:
        token = await waiting(rig, waiter)
        worker.stop()
        await trio.sleep(5)
        await rig.client.callbacks.resume(token)
    assert await rig.state(runner) is S.COMPLETED
    assert await rig.state(waiter) is S.COMPLETED


async def test_stopping_lets_go_on_what_has_been_answered_and_waits_for_a_slot() -> None:
    order = []

    async def handler(job: Job) -> None:
        if job.args.n < 2:
            await job.wait_for_callback(await job.register_callback())
        await trio.sleep(5)
        order.append(job.args.n)

    rig = Rig(handler)
    waiters = [await rig.enqueue(0), await rig.enqueue(1)]
    async with rig.working(queues={"default": 1}, grace=100) as worker:
        tokens = [await waiting(rig, job_id) for job_id in waiters]
        await rig.enqueue(2)
        await trio.sleep(1)
        for token in tokens:
            await rig.client.callbacks.resume(token)
        worker.stop()
    assert order == [2, 0, 1]
    assert {await rig.state(job_id) for job_id in waiters} == {S.COMPLETED}


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_answered_in_the_moment_of_the_shutdown(how: str) -> None:
    """The answer has come, and there is no slot, nor time, to go on with it."""
    handler = Waiter()

    async def either(job: Job) -> None:
        if job.args.n == 0:
            await handler(job)
        else:
            await trio.sleep_forever()

    rig = Rig(either, deadline=0)
    job_id = await rig.enqueue(0)
    with trio.CancelScope() as scope:
        async with rig.working(queues={"default": 1}, grace=1) as worker:
            token = await waiting(rig, job_id)
            await rig.enqueue(1)
            await trio.sleep(1)
            await rig.client.callbacks.resume(token, "kept")
            worker.stop() if how == "stop" else scope.cancel()
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt, job.worker_id) == (S.AVAILABLE, 0, None)
    async with rig.working(queues={"default": 2}):
        job = await rig.client.jobs.wait(job_id)
    assert job.state is S.COMPLETED
    assert handler.last[-1] == awa.CallbackAnswer(token, "kept")


@pytest.mark.parametrize("answered", [False, True])
async def test_a_worker_that_is_presumed_dead_while_its_handlers_wait(answered: bool) -> None:
    handler = Waiter()
    rig = Rig(handler)
    job_id = await rig.enqueue()

    async with rig.working():
        token = await waiting(rig, job_id)
        fence(rig)
        if answered:
            await rig.client.callbacks.resume(token, "kept")
        await until(lambda: bool(handler.errors))
        await trio.sleep(20)
        if not answered:
            job = await rig.client.jobs.get(job_id)
            assert (job.state, job.worker_id) == (S.WAITING_EXTERNAL, None)
            assert len(handler.runs) == 1
            await rig.client.callbacks.resume(token, "kept")
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, job.attempt) == (S.COMPLETED, 1)
    assert handler.last[-1] == awa.CallbackAnswer(token, "kept")


@pytest.mark.parametrize("call", ["begin_waits", "end_waits"])
@pytest.mark.parametrize("lands", [True, False], ids=["it landed", "it did not land"])
async def test_a_lost_answer_changes_nothing(call: str, lands: bool) -> None:
    handler = Waiter()
    rig = Rig(handler)
    failures = 3
    real = getattr(rig.store, call)

    async def fail(worker: int, waits: Any) -> Any:
        nonlocal failures
        if not failures:
            return await real(worker, waits)
        failures -= 1
        if lands:
            await real(worker, waits)
        raise Transient("the connection was lost")

    rig.backend.broken[call] = fail
    job_id = await rig.enqueue()
    async with rig.working():
        token = await waiting(rig, job_id)
        await rig.client.callbacks.resume(token, 1)
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, handler.payloads, job.attempt) == (S.COMPLETED, [1], 1)


async def test_a_database_that_goes_away_while_registering_is_an_error_of_the_attempt() -> None:
    async def handler(job: Job) -> None:
        await job.register_callback()

    async def fail(*given: object) -> bool:
        raise Transient("the connection was lost")

    rig = Rig(handler)
    rig.backend.broken["register_callback"] = fail
    job_id = await rig.enqueue()
    async with rig.working():
        await until(lambda: bool(rig.store._jobs[job_id].errors))
    assert "DatabaseUnavailable: registering a callback" in await rig.error(job_id)


@pytest.mark.parametrize("lands", [True, False], ids=["it landed", "it did not land"])
@pytest.mark.parametrize("call", ["begin_waits", "end_waits"])
async def test_given_up_by_the_handler_while_the_database_is_away(
    call: str, lands: bool
) -> None:
    """Its scope strikes in the middle of a call that is made again and again."""
    log: list[object] = []

    async def handler(job: Job) -> None:
        token = await job.register_callback()
        for _ in range(2):
            with trio.move_on_after(10):
                log.append(await job.wait_for_callback(token))
                return
            log.append("given up")

    rig = Rig(handler)
    real = getattr(rig.store, call)

    async def fail(worker: int, waits: Any) -> Any:
        if log:
            return await real(worker, waits)
        if lands:
            await real(worker, waits)
        await trio.sleep(1.5)
        raise Transient("the connection was lost")

    rig.backend.broken[call] = fail
    job_id = await rig.enqueue()

    async with rig.working():
        await until(lambda: rig.store._jobs[job_id].callback_token is not None)
        await trio.sleep(2)
        await rig.client.callbacks.resume(rig.store._jobs[job_id].callback_token, "kept")
        with trio.fail_after(1000):
            job = await rig.client.jobs.wait(job_id)
    assert job.state is S.COMPLETED
    assert log[-1] == "kept"


@pytest.mark.parametrize("lands", [True, False], ids=["it lands", "it does not land"])
async def test_cut_while_the_wait_is_being_begun(lands: bool) -> None:
    """Nobody knows where the row is: comparing with the rows finds out."""
    handler = Waiter()
    rig = Rig(handler)
    real = rig.store.begin_waits
    begun = trio.Event()

    async def hang(worker: int, waits: Any) -> Any:
        if lands:
            await real(worker, waits)
        begun.set()
        await trio.sleep_forever()

    rig.backend.broken["begin_waits"] = hang
    job_id = await rig.enqueue()
    with trio.CancelScope() as scope:
        async with rig.working():
            await begun.wait()
            scope.cancel()
    job = await rig.client.jobs.get(job_id)
    assert job.worker_id is None
    assert job.state is (S.WAITING_EXTERNAL if lands else S.AVAILABLE)


async def test_an_orphan_that_waits_is_detached() -> None:
    """The worker does not know of it: its row says who waits, and nobody does."""
    handler = Waiter()
    rig = Rig(handler)
    async with rig.working() as worker:
        job_id = await rig.enqueue()
        token = await waiting(rig, job_id)
        [attempt] = worker._parts.ledger.running()
        worker._parts.ledger._held.clear()
        await trio.sleep(30)
        job = await rig.client.jobs.get(job_id)
        assert (job.state, job.worker_id) == (S.WAITING_EXTERNAL, None)
        worker._parts.ledger.hold(attempt)
        await rig.client.callbacks.complete(token)


# ---- the same moment


@pytest.mark.parametrize("moment", [n / 4 for n in range(-8, 9)])
@pytest.mark.parametrize("what", ["stop", "cancel", "fence"])
async def test_resumed_just_as_the_worker_goes(what: str, moment: float) -> None:
    """Before, after or at the same time: the payload arrives, once, and no attempt is spent."""
    got = []

    async def handler(job: Job) -> None:
        job.enqueue_on_completion(Next(0))
        if job.last_callback is not None:
            got.append(job.last_callback.payload)
            return
        got.append(await job.wait_for_callback(await job.register_callback()))
        await trio.sleep(0.5)

    rig = Rig(handler)
    real_end = rig.store.end_waits

    async def slowly(worker: int, waits: Any) -> Any:
        await trio.sleep(0.3)
        ended = await real_end(worker, waits)
        await trio.sleep(0.3)
        return ended

    rig.backend.broken["end_waits"] = slowly
    job_id = await rig.enqueue(max_attempts=3)

    async def resume() -> None:
        await trio.sleep(10 + moment)
        await rig.client.callbacks.resume(token, "payload")

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with rig.working(grace=0.2) as worker:
                token = await waiting(rig, job_id)
                nursery.start_soon(resume)
                await trio.sleep(10)
                if what == "fence":
                    fence(rig)
                    await trio.sleep(10)
                worker.stop() if what != "cancel" else scope.cancel()
    job = await rig.client.jobs.get(job_id)
    assert job.worker_id is None or what == "fence"
    async with rig.working():
        job = await rig.client.jobs.wait(job_id)
    assert job.state is S.COMPLETED
    assert job.attempt <= (2 if what == "fence" else 1)
    assert set(got) == {"payload"}
    assert await rig.follow_ups() == [0]


@pytest.mark.parametrize("moment", [n / 4 for n in range(-4, 5)])
async def test_resumed_just_as_its_deadline_strikes(moment: float) -> None:
    """The clock goes on with what was left from when the handler has its slot again."""

    async def handler(job: Job) -> None:
        await trio.sleep(4)
        await job.wait_for_callback(await job.register_callback())
        await trio.sleep(1 + moment)

    rig = Rig(handler, deadline=5, backoff=lambda attempt: 1000.0)
    job_id = await rig.enqueue()
    async with rig.working():
        await rig.client.callbacks.resume(await waiting(rig, job_id))
        await trio.sleep(10)
    assert await rig.state(job_id) is (S.COMPLETED if moment < 0 else S.RETRYABLE)


@pytest.mark.parametrize("moment", [n / 4 for n in range(-4, 5)])
@pytest.mark.parametrize("how", ["complete", "fail", "resume", "cancel"])
async def test_settled_just_as_it_times_out(how: str, moment: float) -> None:
    handler = Waiter(timeout=10.0)
    rig = Rig(handler)
    job_id = await rig.enqueue(max_attempts=1)
    won = True
    async with rig.working(timings=awa.Timings(rescue_interval=0.1)) as worker:
        token = await waiting(rig, job_id)
        await trio.sleep(9.9 + moment)
        try:
            if how == "cancel":
                won = await rig.client.jobs.cancel(job_id)
            else:
                await getattr(rig.client.callbacks, how)(token)
        except awa.CallbackNotFound:
            won = False
        await trio.sleep(5)
        assert worker.statistics().running == 0
    job = await rig.client.jobs.get(job_id)
    states = {"complete": S.COMPLETED, "fail": S.FAILED, "resume": S.COMPLETED}
    assert job.state is (states.get(how, S.CANCELLED) if won else S.FAILED)
    assert (job.errors[-1:] and job.errors[-1].error == "callback timed out") != won
    assert await rig.follow_ups() == ([0] if won and how == "resume" else [])


# ---- threads


@pytest.mark.real_time
async def test_a_handler_in_a_thread_waits_through_from_thread() -> None:
    payloads = []

    def handler(job: Job) -> None:
        token = trio.from_thread.run(job.register_callback, 60.0)
        payloads.append(trio.from_thread.run(job.wait_for_callback, token))

    rig = Rig(handler)
    ids = [await rig.enqueue(n) for n in range(3)]
    # One slot, one thread: each that waits leaves them to the next.
    async with rig.working(queues={"default": 1}) as worker:
        for job_id in ids:
            await in_state(rig, job_id, S.WAITING_EXTERNAL)
        for n, job_id in enumerate(ids):
            token = (await rig.client.jobs.get(job_id)).callback_token
            assert token is not None
            await rig.client.callbacks.resume(token, n)
        for job_id in ids:
            await in_state(rig, job_id, S.COMPLETED)
        assert worker._parts.ledger._threads.total_tokens == 1
    assert sorted(payloads) == [0, 1, 2]


@pytest.mark.real_time
async def test_a_thread_that_waits_is_let_go_when_the_worker_stops() -> None:
    let_go = threading.Event()

    def handler(job: Job) -> None:
        token = trio.from_thread.run(job.register_callback, 3600.0)
        try:
            trio.from_thread.run(job.wait_for_callback, token)
        finally:
            let_go.set()

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working():
        await in_state(rig, job_id, S.WAITING_EXTERNAL)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.worker_id) == (S.WAITING_EXTERNAL, None)
    assert await trio.to_thread.run_sync(let_go.wait, 30)


@pytest.mark.real_time
async def test_a_thread_that_begins_to_wait_is_let_go_when_the_worker_stops() -> None:
    """The call that would begin its wait is under way, and never answered."""
    let_go = threading.Event()
    asked = trio.Event()

    def handler(job: Job) -> None:
        token = trio.from_thread.run(job.register_callback, 3600.0)
        try:
            trio.from_thread.run(job.wait_for_callback, token)
        finally:
            let_go.set()

    async def begin(worker_id: int, waits: object) -> NoReturn:
        asked.set()
        await trio.sleep_forever()

    rig = Rig(handler)
    async with rig.working(grace=0.0) as worker:
        worker._parts.waits._begins._call = begin
        await rig.enqueue()
        await asked.wait()
    assert await trio.to_thread.run_sync(let_go.wait, 30)


# ---- many


async def test_a_thousand_wait_at_the_cost_of_one() -> None:
    handler = Waiter()
    rig = Rig(handler)
    await rig.client.enqueue_many([Work(n) for n in range(1000)], kind="work")
    async with rig.working(queues={"default": 20}) as worker:
        await until(lambda: worker.statistics().waiting == 1000)
        begun = worker._parts.waits.calls
        assert begun < 500
        asked = 0
        real = rig.store.answered

        async def count(worker_id: int) -> Any:
            nonlocal asked
            asked += 1
            return await real(worker_id)

        rig.backend.broken["answered"] = count
        slots = worker._parts.dispatcher._queues["default"]
        assert slots.free == 20
        await trio.sleep(60)
        # One question a second for all of them, and no other call.
        assert asked <= 90
        assert worker._parts.waits.calls == begun
        for token in list(handler.tokens.values()):
            await rig.client.callbacks.resume(token, 1)
        await until(lambda: worker.statistics().settled[S.COMPLETED] == 1000)
        assert worker.statistics().waiting == 0
    assert len(handler.payloads) == 1000
    assert len(await rig.client.jobs.list(kind="next", limit=2000)) == 1000


async def test_neither_token_nor_payload_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    handler = Waiter(timeout=60.0)
    rig = Rig(handler)
    ids = [await rig.enqueue(n, max_attempts=1) for n in range(4)]
    async with rig.working():
        tokens = [await waiting(rig, job_id) for job_id in ids]
        await rig.client.callbacks.resume(tokens[0], "canary")
        await rig.client.callbacks.complete(tokens[1], "canary")
        await rig.client.callbacks.fail(tokens[2], "canary")
        await trio.sleep(100)
    for secret in ("canary", *tokens):
        assert secret not in caplog.text
