"""What a worker does with its jobs, in virtual time."""

from __future__ import annotations

import contextvars
import inspect
import itertools
import logging
from collections import Counter
from datetime import UTC
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio._core.codec import Codec
from awa_trio._core.job import PreparedInsert
from awa_trio._store.memory.store import MemoryStore

from .rig import Next, Rig, Work

S = awa.JobState
pytestmark = pytest.mark.virtual_time

Job = awa.Job[Work]


async def nothing(job: Job) -> None: ...


async def forever(job: Job) -> None:
    await trio.sleep_forever()


async def minute(job: Job) -> None:
    await trio.sleep(60)


# ---- starting and stopping


async def test_an_idle_worker_stops_at_once() -> None:
    rig = Rig(nothing)
    async with rig.working(grace=1000):
        began = trio.current_time()
    assert trio.current_time() - began < 1


async def test_stopping_lets_running_attempts_end_and_claims_no_more() -> None:
    rig = Rig(minute)
    running = await rig.enqueue()
    async with rig.working(grace=100) as worker:
        await trio.sleep(10)
        worker.stop()
        worker.stop()
        late = await rig.enqueue()
    assert await rig.state(running) is S.COMPLETED
    assert await rig.state(late) is S.AVAILABLE


async def test_attempts_that_outlast_the_grace_are_handed_back_unspent() -> None:
    rig = Rig(minute)
    job_id = await rig.enqueue()
    async with rig.working(grace=20):
        await trio.sleep(10)
        stopped = trio.current_time()
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt, job.errors) == (S.AVAILABLE, 0, [])
    assert 20 <= trio.current_time() - stopped < 22


async def test_cancelling_hands_back_at_once() -> None:
    rig = Rig(minute)
    job_id = await rig.enqueue()
    with trio.move_on_after(10) as scope:
        await rig.run(grace=1000)
    assert scope.cancelled_caught
    assert trio.current_time() - scope.deadline < 1
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt) == (S.AVAILABLE, 0)


async def test_a_job_that_may_only_be_tried_once_is_not_handed_back() -> None:
    rig = Rig(minute)
    job_id = await rig.enqueue(max_attempts=1)
    with trio.move_on_after(10):
        await rig.run()
    assert await rig.state(job_id) is S.FAILED
    assert "interrupted by the worker's shutdown" in await rig.error(job_id)


async def test_a_handler_that_swallows_the_shutdown_is_handed_back_all_the_same() -> None:
    async def swallow(job: Job) -> None:
        job.enqueue_on_completion(Next())
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            pass

    rig = Rig(swallow)
    job_id = await rig.enqueue()
    with trio.move_on_after(10):
        await rig.run()
    assert await rig.state(job_id) is S.AVAILABLE
    assert await rig.follow_ups() == []


async def test_a_handler_that_cleans_up_slowly_is_waited_for() -> None:
    cleaned = []

    async def clean(job: Job) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
            cleaned.append(job.id)

    rig = Rig(clean)
    job_id = await rig.enqueue()
    with trio.move_on_after(10):
        await rig.run()
    assert cleaned == [job_id]
    assert await rig.state(job_id) is S.AVAILABLE


async def test_a_worker_leaves_nothing_behind() -> None:
    rig = Rig(minute)
    for _ in range(5):
        await rig.enqueue()
    with trio.move_on_after(10):
        await rig.run()
    assert rig.store._workers == {}
    assert all(row.worker_id is None for row in rig.store._jobs.values())


# ---- claiming


@pytest.mark.parametrize("slots", [1, 2, 3, 7])
async def test_no_more_attempts_run_than_there_are_slots_and_none_waits_claimed(
    slots: int,
) -> None:
    running = peak = 0

    async def count(job: Job) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        claimed = [r for r in rig.store._jobs.values() if r.state is S.RUNNING]
        assert len(claimed) <= slots
        await trio.sleep(1)
        running -= 1

    rig = Rig(count)
    ids = [await rig.enqueue() for _ in range(30)]
    async with rig.working(queues={"default": slots}):
        await trio.sleep(40)
    assert peak == slots
    assert {await rig.state(i) for i in ids} == {S.COMPLETED}


async def test_unknown_kinds_are_left_for_those_that_know_them() -> None:
    rig = Rig(nothing)
    stranger = (await awa.Client(rig.backend, None).enqueue(Work(), kind="stranger")).id
    known = await rig.enqueue()
    async with rig.working():
        await trio.sleep(100)
    assert await rig.state(known) is S.COMPLETED
    assert await rig.state(stranger) is S.AVAILABLE


@pytest.mark.parametrize("listen", [True, False])
async def test_a_new_job_starts_at_once_if_heard_of_and_within_a_poll_if_not(
    listen: bool,
) -> None:
    started = []

    async def note(job: Job) -> None:
        started.append(trio.current_time())

    rig = Rig(note)
    async with rig.working(listen=listen, timings=awa.Timings(poll_interval=30)):
        await trio.sleep(100)
        began = trio.current_time()
        await rig.enqueue()
        await trio.sleep(60)
    waited = started[0] - began
    assert waited == 0 if listen else 0 < waited <= 1.25 * 30


async def test_a_scheduled_job_starts_when_it_is_due_and_not_at_the_next_poll() -> None:
    started = []

    async def note(job: Job) -> None:
        started.append(trio.current_time())

    rig = Rig(note)
    due = rig.store._now().timestamp() + 1000
    async with rig.working(timings=awa.Timings(poll_interval=300)):
        at = trio.current_time() + 1000
        from datetime import datetime

        await rig.enqueue(run_at=datetime.fromtimestamp(due, UTC))
        await trio.sleep(2000)
    assert started == [pytest.approx(at, abs=0.1)]


async def test_a_retry_comes_after_its_backoff() -> None:
    times = []

    async def fail_once(job: Job) -> None:
        times.append(trio.current_time())
        if job.attempt == 1:
            raise ValueError

    rig = Rig(fail_once)
    await rig.enqueue()
    async with rig.working():
        await trio.sleep(60)
    assert 2.0 <= times[1] - times[0] <= 2.6


async def test_priorities_are_served_first() -> None:
    order = []

    async def note(job: Job) -> None:
        order.append(job.args.n)

    rig = Rig(note)
    for n in (4, 2, 3, 1):
        await rig.enqueue(n, priority=n)
    async with rig.working(queues={"default": 1}):
        await trio.sleep(10)
    assert order == [1, 2, 3, 4]


async def test_claims_that_fail_are_made_again(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(nothing)
    failures = 0

    async def claim(*args: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures <= 3:
            raise awa_transient()
        return await rig.store.claim(*args)

    rig.backend.broken["claim"] = claim
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(60)
    assert await rig.state(job_id) is S.COMPLETED
    assert "claiming: gone" in caplog.text


def awa_transient() -> Exception:
    from awa_trio._seam.errors import Transient

    return Transient("gone")


async def test_a_claim_whose_answer_was_lost_is_handed_back_unspent() -> None:
    attempts = []

    async def note(job: Job) -> None:
        attempts.append(job.attempt)

    rig = Rig(note)

    async def claim_and_lose(*args: Any) -> Any:
        jobs = await rig.store.claim(*args)
        if jobs:
            del rig.backend.broken["claim"]
            raise awa_transient()
        return jobs

    rig.backend.broken["claim"] = claim_and_lose
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(60)
    assert attempts == [1]
    assert await rig.state(job_id) is S.COMPLETED


# ---- running


async def test_context_variables_do_not_leak_to_the_next_job() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen = []

    async def leave(job: Job) -> None:
        seen.append(variable.get())
        variable.set(job.id)
        await trio.sleep(0)

    rig = Rig(leave)
    for _ in range(5):
        await rig.enqueue()
    async with rig.working(queues={"default": 1}):
        await trio.sleep(10)
    assert seen == [0] * 5


async def test_a_handler_sees_the_context_the_worker_was_started_in() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")
    seen = []

    async def look(job: Job) -> None:
        seen.append(variable.get())

    rig = Rig(look)
    await rig.enqueue()
    variable.set("of the worker")
    async with rig.working():
        await trio.sleep(10)
    assert seen == ["of the worker"]


async def test_tasks_are_named_after_their_jobs() -> None:
    names = []

    async def look(job: Job) -> None:
        names.append(trio.lowlevel.current_task().name)

    rig = Rig(look)
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(10)
    assert names == [f"awa:job:{job_id}:work"]


@pytest.mark.parametrize("swallows", [False, True])
async def test_arguments_that_do_not_fit_fail_the_job_once_they_are_read(
    swallows: bool,
) -> None:
    async def handler(job: Job) -> None:
        for _ in range(2):
            try:
                raise AssertionError(job.args)
            except awa.UndecodableArgs:
                if not swallows:
                    raise

    rig = Rig(handler)
    job_id = (
        await awa.Client(rig.backend, None).enqueue({"n": "not a number"}, kind="work")
    ).id
    async with rig.working():
        await trio.sleep(10)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt) == (S.FAILED, 1)
    assert "UndecodableArgs: this does not fit Work: args.n: " in job.errors[-1].error
    assert job.dead_letter == awa.DeadLetterReason.UNDECODABLE


async def test_arguments_are_decoded_once_and_only_if_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = []
    decode = Codec.decode

    def counting(self: Codec, data: bytes, type_: Any, **root: str) -> Any:
        decoded.append(data)
        return decode(self, data, type_, **root)

    async def handler(job: Job) -> None:
        if job.attempt == 1:
            raise awa.RetryAfter(1)
        assert job.args is job.args == Work(7)

    monkeypatch.setattr(Codec, "decode", counting)
    rig = Rig(handler)
    job_id = await rig.enqueue(7)
    async with rig.working():
        await trio.sleep(10)
    assert await rig.state(job_id) is S.COMPLETED
    assert decoded == [b'{"n":7}']


@pytest.mark.parametrize(("takes", "every"), [(0.0, 1.0), (0.1, 3.0)])
async def test_claims_of_a_busy_queue_go_on_where_the_last_ended(
    takes: float, every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And look from the head of the queue every second, less often if that takes long, and
    before they find nothing more."""

    async def handler(job: Job) -> None:
        await trio.sleep(0.25)

    asked: list[tuple[float, bool, int]] = []
    claim = MemoryStore.claim

    async def noting(store: MemoryStore, worker: int, wants: Any, kinds: Any) -> Any:
        [want] = wants
        began = trio.current_time() - begun
        if not want.after:
            await trio.sleep(takes)
        jobs = await claim(store, worker, wants, kinds)
        if jobs or asked[-1][1]:
            asked.append((began, bool(want.after), len(jobs)))
        assert all(p.id < job.id for p in want.after for job in jobs)
        return jobs

    monkeypatch.setattr(MemoryStore, "claim", noting)
    rig = Rig(handler)
    for n in range(200):
        await rig.enqueue(n)
    begun = trio.current_time()
    async with rig.working(queues={"default": 4}) as worker:
        while worker.statistics().settled[S.COMPLETED] < 200:
            await trio.sleep(0.1)
        await trio.sleep(1)
    whole = [at for at, after, _ in asked if not after]
    assert len(whole) < len(asked) / 2
    pauses = [later - earlier for earlier, later in itertools.pairwise(whole[:-1])]
    assert pauses
    assert all(every <= pause < every + 0.5 for pause in pauses), whole
    # The last is one that could find everything.
    assert (asked[-1][1], asked[-1][2]) == (False, 0), asked


async def test_an_unrecognised_result_completes_and_is_mentioned_once_per_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(job: Job) -> int:
        return 42

    rig = Rig(answer)
    ids = [await rig.enqueue() for _ in range(3)]
    async with rig.working():
        await trio.sleep(10)
    assert {await rig.state(i) for i in ids} == {S.COMPLETED}
    assert caplog.text.count("returned a int, which means completed") <= 1


async def test_a_child_that_fails_fails_the_attempt() -> None:
    async def parent(job: Job) -> None:
        async def child() -> None:
            raise awa.RetryAfter(500)

        job.nursery.start_soon(child)
        await trio.sleep_forever()

    rig = Rig(parent)
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(10)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.errors) == (S.RETRYABLE, [])


# ---- deadlines


async def test_a_deadline_cuts_and_counts_as_a_failed_attempt() -> None:
    rig = Rig(forever, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working():
        await trio.sleep(31)
        assert await rig.state(job_id) is S.FAILED
    assert await rig.error(job_id) == "DeadlineExceeded: the deadline of 30 s passed"


async def test_a_handler_that_swallows_its_deadline_has_failed_all_the_same() -> None:
    async def swallow(job: Job) -> None:
        job.enqueue_on_completion(Next())
        with trio.CancelScope() as mine:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                mine.cancel()

    rig = Rig(swallow, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working():
        await trio.sleep(60)
    assert await rig.state(job_id) is S.FAILED
    assert await rig.follow_ups() == []


async def test_a_deadline_that_passes_without_a_checkpoint_is_noticed() -> None:
    clock = trio.lowlevel.current_clock()

    async def busy(job: Job) -> None:
        job.enqueue_on_completion(Next())
        clock.jump(60)  # type: ignore[attr-defined]

    rig = Rig(busy, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working():
        await trio.sleep(100)
    assert await rig.state(job_id) is S.FAILED
    assert await rig.follow_ups() == []


async def test_what_cleanup_raises_over_the_cut_is_recorded_with_it() -> None:
    async def messy(job: Job) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError("in cleanup")

    rig = Rig(messy, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working():
        await trio.sleep(60)
    error = await rig.error(job_id)
    assert "the deadline of 30 s passed" in error
    assert "ZeroDivisionError: in cleanup" in error


async def test_cleanup_that_raises_a_result_does_not_change_the_cut() -> None:
    async def clever(job: Job) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise awa.Snooze(1)

    rig = Rig(clever, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working():
        await trio.sleep(60)
    assert await rig.state(job_id) is S.FAILED


async def test_a_scope_of_the_handlers_own_is_no_cut() -> None:
    async def own(job: Job) -> None:
        with trio.move_on_after(5):
            await trio.sleep_forever()
        job.nursery.start_soon(trio.sleep_forever)
        job.nursery.cancel_scope.cancel()
        job.enqueue_on_completion(Next())

    rig = Rig(own)
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(60)
    assert await rig.state(job_id) is S.COMPLETED
    assert await rig.follow_ups() == [0]


async def test_a_handler_that_cancels_its_nursery_and_does_not_return_has_failed() -> None:
    async def own(job: Job) -> None:
        job.enqueue_on_completion(Next())
        job.nursery.cancel_scope.cancel()
        await trio.sleep_forever()

    rig = Rig(own)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working():
        await trio.sleep(60)
    assert await rig.state(job_id) is S.FAILED
    assert "the handler did not return" in await rig.error(job_id)
    assert await rig.follow_ups() == []


async def test_a_cancelled_exception_that_is_nobodys_is_an_ordinary_failure() -> None:
    stolen: list[BaseException] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.sleep(0)
        except trio.Cancelled as error:
            stolen.append(error)
            raise

    async def lookalike(job: Job) -> None:
        raise stolen[0]

    rig = Rig(lookalike)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working() as worker:
        await trio.sleep(60)
        assert await rig.state(job_id) is S.FAILED
        assert "Cancelled" in await rig.error(job_id)
        other = await rig.enqueue(max_attempts=1)
        await trio.sleep(60)
        assert await rig.state(other) is S.FAILED
        assert worker.statistics().lives == 1


# ---- handlers that will not end


async def test_a_handler_that_will_not_end_is_settled_without_waiting_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = []

    async def stubborn(job: Job) -> None:
        jobs.append(job)
        job.enqueue_on_completion(Next())
        with trio.CancelScope(shield=True):
            await trio.sleep(500 if job.args.n == 0 else 1)

    rig = Rig(stubborn, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working(queues={"default": 1}, grace=1000) as worker:
        await trio.sleep(34)
        assert await rig.state(job_id) is S.RUNNING
        await trio.sleep(3)
        assert await rig.state(job_id) is S.FAILED
        assert worker.statistics().overdue == 1
        assert (
            f"job {job_id} (work, attempt 1 of 1, queue default, worker 1) was cut"
            in caplog.text
        )
        with pytest.raises(awa.StagingSealed):
            jobs[0].enqueue_on_completion(Next())
        waiting = await rig.enqueue(1)
        await trio.sleep(100)
        assert await rig.state(waiting) is S.AVAILABLE, "its slot is taken until it ends"
        await trio.sleep(400)
        assert await rig.state(waiting) is S.COMPLETED
        assert worker.statistics().overdue == 0
    assert await rig.state(job_id) is S.FAILED
    assert await rig.follow_ups() == [0]


async def test_at_shutdown_it_is_handed_back_without_waiting_for_it() -> None:
    async def stubborn(job: Job) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(500)

    rig = Rig(stubborn)
    job_id = await rig.enqueue()
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(rig.run)
            await trio.sleep(10)
            scope.cancel()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(8)
            assert await rig.state(job_id) is S.AVAILABLE


# ---- cancelled from outside


@pytest.mark.parametrize("listen", [True, False])
async def test_an_admin_cancel_cancels_the_handler(listen: bool) -> None:
    ended: list[float] = []

    async def note_end(job: Job) -> None:
        job.enqueue_on_completion(Next())
        try:
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    rig = Rig(note_end)
    job_id = await rig.enqueue(deadline=0)
    async with rig.working(listen=listen):
        await trio.sleep(10)
        began = trio.current_time()
        assert await rig.client.jobs.cancel(job_id, reason="no longer wanted")
        await trio.sleep(40)
    assert ended[0] - began < (0.1 if listen else 16)
    assert await rig.state(job_id) is S.CANCELLED
    assert "no longer wanted" in await rig.error(job_id)
    assert await rig.follow_ups() == []


async def test_news_that_comes_while_the_rows_are_read_is_not_forgotten() -> None:
    """Of two jobs that are cancelled one after the other, the second is cut as soon."""
    ended: dict[int, float] = {}

    async def note_end(job: Job) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended[job.id] = trio.current_time()

    rig = Rig(note_end)
    both = [await rig.enqueue(n, deadline=0) for n in range(2)]
    read = trio.Event()

    async def slowly(worker: int) -> Any:
        rows = await rig.store.running(worker)
        read.set()
        await trio.sleep(1)
        return rows

    async with rig.working(timings=awa.Timings(reconcile_interval=600.0)):
        await trio.sleep(10)
        rig.backend.broken["running"] = slowly
        began = trio.current_time()
        assert await rig.client.jobs.cancel(both[0])
        await read.wait()
        assert await rig.client.jobs.cancel(both[1])
        await trio.sleep(10)
        assert ended.keys() == set(both)
    assert max(ended.values()) - began < 5


async def test_news_of_another_lease_cuts_nothing() -> None:
    from awa_trio._seam.hearing import CutElsewhere

    rig = Rig(minute)
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(10)
        rig.store._tell(CutElsewhere(job_id, 99, S.CANCELLED))
        rig.store._tell(CutElsewhere(10**9, 1, S.CANCELLED))
        await trio.sleep(100)
    assert await rig.state(job_id) is S.COMPLETED


async def test_a_notification_that_is_not_true_cuts_nothing() -> None:
    """Anybody who may connect may send one."""
    from awa_trio._seam.hearing import CutElsewhere

    rig = Rig(minute)
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(10)
        for state in S:
            rig.store._tell(CutElsewhere(job_id, 1, state))
            await trio.sleep(1)
        await trio.sleep(100)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt) == (S.COMPLETED, 1)


async def test_what_is_settled_while_the_rows_are_read_is_no_orphan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def second(job: Job) -> None:
        await trio.sleep(1)

    rig = Rig(second)

    async def slowly(worker: int) -> Any:
        rows = await rig.store.running(worker)
        await trio.sleep(3)
        return rows

    rig.backend.broken["running"] = slowly
    async with rig.working(timings=awa.Timings(reconcile_interval=0.1)):
        for n in range(100):
            await rig.enqueue(n)
            await trio.sleep(0.3)
    assert "marked as run by this worker" not in caplog.text


# ---- bugs and signals


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("grouped", [False, True])
async def test_an_interrupt_in_a_handler_is_recorded_and_goes_on(
    error: BaseException, grouped: bool
) -> None:
    async def interrupted(job: Job) -> None:
        if job.args.n == 1:
            await trio.sleep(5)
            raise BaseExceptionGroup("", [error]) if grouped else error
        await trio.sleep_forever()

    rig = Rig(interrupted)
    bystander = await rig.enqueue(0)
    victim = await rig.enqueue(1)
    with pytest.raises(type(error)):
        await rig.run()
    assert await rig.state(victim) is S.RETRYABLE
    assert type(error).__name__ in await rig.error(victim)
    assert await rig.state(bystander) is S.AVAILABLE


class Hostile(Exception):
    """An exception whose own code raises wherever it is looked at."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Undividable(BaseExceptionGroup[BaseException]):
    def derive(self, excs: Any) -> Any:
        raise RuntimeError("derive")


class Lazy:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("a proxy without a target")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


_variable = contextvars.ContextVar[object]("_variable")


async def _hostile(job: Job) -> None:
    raise Hostile


async def _undividable(job: Job) -> None:
    raise Undividable("", [Hostile(), ValueError()])


async def _undividable_cleanup(job: Job) -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled as cancelled:
        raise Undividable("", [cancelled, ValueError("cleanup")]) from None


async def _lazy(job: Job) -> object:
    return Lazy()


async def _not_a_token(job: Job) -> object:
    return awa.WaitForCallback(object())  # type: ignore[arg-type]


async def _incomparable(job: Job) -> None:
    _variable.set(Incomparable())


async def _circular(job: Job) -> None:
    error = Hostile()
    error.__cause__ = error
    vars(error)["cleanup"] = error
    raise error


@pytest.mark.parametrize(
    ("handler", "state", "error"),
    [
        (_hostile, S.FAILED, "Hostile: <its __str__ raised KeyboardInterrupt>"),
        (_undividable, S.FAILED, "RuntimeError: derive"),
        (_undividable_cleanup, S.FAILED, "ValueError: cleanup"),
        (_lazy, S.COMPLETED, ""),
        (_not_a_token, S.FAILED, "WaitForCallback takes a token, not object"),
        (_incomparable, S.COMPLETED, ""),
        (_circular, S.FAILED, "Hostile"),
    ],
)
async def test_whatever_a_handler_does_its_neighbours_run_on(
    handler: Any, state: awa.JobState, error: str
) -> None:
    async def either(job: Job) -> object:
        if job.args.n:
            return await handler(job)
        await trio.sleep(20)
        return None

    _variable.set(Incomparable())
    rig = Rig(either, deadline=60)
    neighbour = await rig.enqueue(0)
    job_id = await rig.enqueue(1, max_attempts=1)
    async with rig.working():
        await trio.sleep(90)
        assert await rig.state(neighbour) is S.COMPLETED
        assert await rig.state(job_id) is state
        assert error in await rig.error(job_id)
        later = await rig.enqueue(0)
        await trio.sleep(30)
        assert await rig.state(later) is S.COMPLETED


@pytest.mark.parametrize("hook", ["completed", "exhausted"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_a_hook_that_interrupts_is_recorded_before_it_goes_on(
    hook: str, error: BaseException
) -> None:
    async def handler(job: Job) -> None:
        if hook == "exhausted":
            raise awa.TerminalError("no")

    rig = Rig(handler)

    def follow_up(*args: object) -> None:
        raise error

    (rig.app.on_completed if hook == "completed" else rig.app.on_exhausted)(Work)(follow_up)
    job_id = await rig.enqueue()
    if isinstance(error, GeneratorExit):
        async with rig.working():
            await trio.sleep(10)
    else:
        with pytest.raises(type(error)):
            await rig.run()
    assert await rig.state(job_id) is S.FAILED


@pytest.mark.parametrize(
    ("returned", "least", "most", "said"),
    [
        (float("nan"), 2.0, 2.5, "returned NaN for attempt 1: the default delay is used"),
        ("5", 2.0, 2.5, "returned a str for attempt 1: the default delay is used"),
        (-5, 0.0, 0.0, "returned a negative number for attempt 1: 0 is used"),
        (float("inf"), 86_400, 86_400, "returned more than a day for attempt 1: 86400 is used"),
    ],
)
async def test_a_backoff_that_is_none_is_mentioned_once_and_another_used(
    returned: Any, least: float, most: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def too_clever(attempt: int) -> Any:
        return returned

    async def fails(job: Job) -> None:
        raise ValueError

    rig = Rig(fails, backoff=too_clever, max_attempts=2)
    ids = [await rig.enqueue(), await rig.enqueue()]
    async with rig.working():
        await trio.sleep(1)
    for job_id in ids:
        job = await rig.client.jobs.get(job_id)
        assert least <= (job.run_at - job.created_at).total_seconds() <= most + 1
    [record] = [r for r in caplog.records if "backoff" in r.message]
    assert record.levelno == logging.WARNING
    assert "the backoff function of kind work, " in record.message
    assert "too_clever, " in record.message
    assert said in record.message


async def test_a_backoff_that_interrupts_is_recorded() -> None:
    def backoff(attempt: int) -> float:
        raise SystemExit

    async def fails(job: Job) -> None:
        raise ValueError

    rig = Rig(fails, backoff=backoff)
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(1)
        assert await rig.state(job_id) is S.RETRYABLE
        assert "ValueError" in await rig.error(job_id)
        assert "SystemExit" in await rig.error(job_id)


@pytest.mark.parametrize("method", ["claim", "lead", "rescue", "running", "settle"])
async def test_a_bug_in_a_service_takes_the_worker_down_loudly(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(minute)
    job_id = await rig.enqueue()

    async def bug(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("a bug")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_break_later, rig, method, bug)
        with trio.fail_after(200), pytest.raises(awa.WorkerCrashed) as caught:
            await rig.run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "takes the worker down" in caplog.text
    if method != "settle":
        assert await rig.state(job_id) in (S.AVAILABLE, S.COMPLETED)


async def _break_later(rig: Rig, method: str, bug: Any) -> None:
    await trio.sleep(10)
    for store in rig.backend.worker_stores:
        if method == "settle":
            store.faults.extend([lambda plans, settle: bug()] * 100)
        else:
            store.broken[method] = bug
    await rig.enqueue()


async def test_an_idle_worker_asks_and_does_not_claim() -> None:
    """A claim writes: it holds the worker's row."""
    rig = Rig(nothing)
    async with rig.working() as worker:
        await trio.sleep(10)
        claims = worker.statistics().claims
        await trio.sleep(100)
        assert worker.statistics().claims == claims


@pytest.mark.parametrize("listen", [True, False])
async def test_an_idle_worker_makes_less_than_a_call_a_second_if_it_hears(
    listen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def count(name: str) -> None:
        method = getattr(MemoryStore, name)

        async def counting(store: MemoryStore, *args: Any, **options: Any) -> Any:
            calls.append(name)
            return await method(store, *args, **options)

        monkeypatch.setattr(MemoryStore, name, counting)

    for name in CALLS:
        count(name)
    async with Rig(nothing).working(listen=listen):
        await trio.sleep(50)
        calls.clear()
        await trio.sleep(100)
        made = Counter(calls)
    assert {"next_due", "beat", "lead", "rescue", "running"} <= set(made)
    assert (made.total() <= 100) is listen, made


#: Those of a store that are transactions.
CALLS = [
    name
    for name, method in inspect.getmembers(MemoryStore, inspect.iscoroutinefunction)
    if not name.startswith("_") and name != "listen"
]


@pytest.mark.parametrize("listen", [True, False])
async def test_a_job_that_nobody_tells_of_is_found_by_asking(listen: bool) -> None:
    rig = Rig(nothing)
    async with rig.working(listen=listen):
        await trio.sleep(10)
        job = PreparedInsert("work", "default", b'{"n":0}')
        [enqueued] = await rig.backend.store.enqueue([job], notify=False)
        await trio.sleep(3.2 if listen else 1.3)
        assert await rig.state(enqueued.id) is S.COMPLETED


@pytest.mark.parametrize("method", ["claim", "lead", "rescue", "running"])
async def test_a_service_that_the_database_fails_starts_again(method: str) -> None:
    rig = Rig(nothing)
    failures = 0

    async def fail(*args: Any, **options: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures > 5:
            del rig.backend.broken[method]
        raise awa_transient()

    async with rig.working() as worker:
        await trio.sleep(1)
        rig.backend.broken[method] = fail
        job_id = await rig.enqueue()
        await trio.sleep(210)
        assert await rig.state(job_id) is S.COMPLETED
        assert worker.statistics().leads
    assert failures > 5


async def test_a_worker_that_cannot_register_does_not_start() -> None:
    rig = Rig(nothing)

    async def fail(*args: Any) -> Any:
        raise awa_transient()

    rig.backend.broken["register"] = fail
    with pytest.raises(awa.DatabaseUnavailable, match="starting a worker"):
        await rig.run()


async def test_a_worker_that_cannot_listen_does_not_start_and_leaves_nothing() -> None:
    rig = Rig(nothing)

    async def fail(*args: Any) -> Any:
        raise awa_transient()

    rig.backend.broken["listen"] = fail
    with pytest.raises(awa.DatabaseUnavailable):
        await rig.run()
    assert rig.store._workers == {}


async def test_an_app_without_tasks_has_nothing_to_run() -> None:
    rig = Rig(nothing)
    with pytest.raises(awa.ConfigurationError, match="no tasks"):
        await awa.run_worker(awa.App(), rig.client)


@pytest.mark.parametrize("grace", [-1, float("nan")])
async def test_a_grace_that_makes_no_sense_is_refused(grace: float) -> None:
    rig = Rig(nothing)
    with pytest.raises(awa.ConfigurationError, match="grace"):
        await rig.run(grace=grace)


# ---- upkeep


async def test_old_jobs_are_removed() -> None:
    rig = Rig(nothing)
    job_id = await rig.enqueue()
    async with rig.working(retention=awa.Retention(completed=3600)):
        await trio.sleep(3500)
        assert await rig.state(job_id) is S.COMPLETED
        await trio.sleep(300)
        with pytest.raises(awa.JobNotFound):
            await rig.client.jobs.get(job_id)


async def test_one_of_two_workers_leads_and_the_other_takes_over() -> None:
    rig = Rig(nothing)
    async with rig.working() as second:
        async with rig.working() as first:
            await trio.sleep(60)
            assert first.statistics().leads != second.statistics().leads
        await trio.sleep(60)
        assert second.statistics().leads


async def test_debug_logs_never_hold_arguments_or_metadata(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def handler(job: Job) -> object:
        job.enqueue_on_completion(Next(314159), metadata={"secret": "271828"}, unique_opts={})
        match job.args.n:
            case 314151:
                raise ValueError(f"{job.args.n}")
            case 314152:
                return awa.RetryAfter(1)
            case 314153:
                raise awa.TerminalError(f"{job.args.n}")
            case 314154:
                return awa.WaitForCallback("t")
            case 314155:
                await trio.sleep_forever()
        return None

    rig = Rig(handler, deadline=5)
    for n in range(314150, 314157):
        await rig.enqueue(n, metadata={"secret": "271828"}, tags=["161803"])
    async with rig.working():
        await trio.sleep(300)
    assert caplog.records
    for secret in ("31415", "271828", "161803"):
        assert secret not in caplog.text
