"""Beats, fencing, self-fencing, rescue: who is dead, and what becomes of its jobs."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio._seam.errors import Transient

from .rig import Next, Rig, Work

S = awa.JobState
pytestmark = pytest.mark.virtual_time

Job = awa.Job[Work]


class Diary:
    """A handler that notes when it starts and ends, and how."""

    def __init__(self, seconds: float = 1e9) -> None:
        self.seconds = seconds
        self.starts: list[tuple[int, int]] = []
        self.cuts: list[float] = []

    async def __call__(self, job: Job) -> None:
        self.starts.append((job.id, job.attempt))
        job.enqueue_on_completion(Next(job.attempt))
        try:
            await trio.sleep(self.seconds)
        except trio.Cancelled:
            self.cuts.append(trio.current_time())
            raise


def fence(rig: Rig) -> None:
    """What a rescuer does to every worker that is registered."""
    for worker in rig.store._workers.values():
        worker.fenced_at = trio.current_time()


async def test_a_worker_that_beats_keeps_its_jobs_for_ever() -> None:
    diary = Diary(3600)
    rig = Rig(diary, deadline=0)
    job_id = await rig.enqueue()
    async with rig.working(), rig.working():
        await trio.sleep(4000)
    assert diary.starts == [(job_id, 1)]
    assert await rig.state(job_id) is S.COMPLETED


async def test_a_fenced_worker_cuts_its_attempts_and_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary = Diary()
    rig = Rig(diary, deadline=0)
    job_id = await rig.enqueue()
    async with rig.working(grace=0) as worker:
        await trio.sleep(10)
        first = worker.id
        fenced = trio.current_time()
        fence(rig)
        await trio.sleep(60)
        assert diary.cuts[0] - fenced <= 5.1, "found out by the next beat"
        assert worker.id not in (None, first)
        assert worker.statistics().lives == 2
        # It runs jobs again: also the one it lost, after the rescue.
        assert diary.starts == [(job_id, 1), (job_id, 2)]
    assert "was fenced" in caplog.text
    assert await rig.follow_ups() == []


async def test_a_fenced_worker_that_claims_first_finds_out_by_that() -> None:
    rig = Rig(Diary(1), deadline=0)
    async with rig.working(timings=awa.Timings(heartbeat=100, lease=1000)) as worker:
        await trio.sleep(10)
        fence(rig)
        job_id = await rig.enqueue()
        await trio.sleep(20)
        assert worker.statistics().lives == 2
        assert await rig.state(job_id) is S.COMPLETED


async def test_a_fenced_worker_settles_nothing() -> None:
    rig = Rig(Diary(20), deadline=0)
    job_id = await rig.enqueue()
    timings = awa.Timings(
        heartbeat=100, lease=1000, rescue_interval=10_000, poll_interval=10_000
    )
    async with rig.working(timings=timings, listen=False) as worker:
        await trio.sleep(10)
        fence(rig)
        await trio.sleep(20)
        assert worker.statistics().stale == 1
        assert await rig.state(job_id) is S.RUNNING
        assert await rig.follow_ups() == []


async def test_a_lost_beat_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    diary = Diary(100)
    rig = Rig(diary, deadline=0)
    beats: Any = type(rig.store).beat
    sent = 0

    async def beat(worker: int) -> bool:
        nonlocal sent
        sent += 1
        if sent % 2:
            raise Transient("lost")
        return bool(await beats(rig.store, worker))

    monkeypatch.setattr(rig.store, "beat", beat, raising=False)
    job_id = await rig.enqueue()
    async with rig.working() as worker:
        await trio.sleep(150)
        assert worker.statistics().lives == 1
    assert sent > 20
    assert diary.starts == [(job_id, 1)]
    assert await rig.state(job_id) is S.COMPLETED


async def test_a_worker_without_answers_takes_itself_for_dead_before_others_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A zombie must stop before another runs its job, not after."""
    diary = Diary()
    rig = Rig(diary, deadline=0)
    job_id = await rig.enqueue()
    silent = False

    async def beat(worker: int) -> bool:
        if silent:
            await trio.sleep_forever()
        return bool(await type(rig.store).beat(rig.store, worker))

    monkeypatch.setattr(rig.store, "beat", beat, raising=False)
    async with rig.working(grace=0):
        await trio.sleep(10)
        silent = True
        began = trio.current_time()
        await trio.sleep(100)
        assert diary.cuts[0] - began < 30, "before the lease is over"
        assert diary.starts[0] == (job_id, 1)
        assert "takes itself for dead" in caplog.text


async def test_a_dead_workers_jobs_are_rescued_and_the_attempt_counts() -> None:
    diary = Diary(5)
    rig = Rig(diary, deadline=0)
    job_id = await rig.enqueue()
    await die_with_a_job(rig)
    async with rig.working():
        await trio.sleep(60)
    assert diary.starts == [(job_id, 2)]
    job = await rig.client.jobs.get(job_id)
    assert job.state is S.COMPLETED
    assert [e.error for e in job.errors] == [
        "rescued: the worker stopped beating and is presumed dead"
    ]
    assert await rig.follow_ups() == [2]


async def die_with_a_job(rig: Rig, kind: str = "work") -> None:
    """A worker claims what there is, and is never heard of again."""
    from awa_trio._seam.values import Want

    worker = await rig.store.register("the dead one", 30.0)
    assert await rig.store.claim(worker, [Want("default", 100, 0.0)], {kind: None})


async def test_a_job_that_kills_its_workers_is_bounded() -> None:
    """Three workers die of it; it has three attempts, and then it has failed."""
    alarms = []
    rig = Rig(Diary(1), deadline=0)

    @rig.app.on_exhausted(Work)
    def alarm(args: Work, job: awa.JobRow, error: str) -> Next:
        alarms.append((job.id, error))
        return Next(99)

    job_id = await rig.enqueue(max_attempts=3)
    for _ in range(3):
        await die_with_a_job(rig)
        async with rig.working(queues=["other"]):
            await trio.sleep(60)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt, len(job.errors)) == (S.FAILED, 3, 3)
    assert alarms == [(job_id, "rescued: the worker stopped beating and is presumed dead")]
    assert await rig.follow_ups() == [99]


async def test_the_last_attempt_of_a_rescued_job_that_cannot_have_its_follow_up_fails_anyway() -> (
    None
):
    rig = Rig(Diary(1), deadline=0)

    @rig.app.on_exhausted(Work)
    def broken(args: Work, job: awa.JobRow, error: str) -> Next:
        raise ZeroDivisionError

    job_id = await rig.enqueue(max_attempts=1)
    await die_with_a_job(rig)
    async with rig.working():
        await trio.sleep(60)
    assert await rig.state(job_id) is S.FAILED


async def test_jobs_of_an_unknown_kind_are_rescued_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(Diary(1))
    stranger = (await awa.Client(rig.backend, None).enqueue(Work(), kind="stranger")).id
    await die_with_a_job(rig, "stranger")
    async with rig.working():
        await trio.sleep(60)
        assert await rig.state(stranger) is S.RUNNING
        await trio.sleep(100)
        assert await rig.state(stranger) is S.RETRYABLE
    assert "no worker that knows its kind did" in caplog.text


async def test_one_jobs_conflict_does_not_keep_the_others_from_being_rescued() -> None:
    """Two jobs, one key: one was lost running, one is waiting; and a third is lost too."""
    rig = Rig(Diary(1), deadline=0)
    mask = awa.JobState.RETRYABLE.bit | awa.JobState.AVAILABLE.bit
    opts = awa.UniqueOpts(states=mask)
    conflicted = await rig.enqueue(1, unique_opts=opts)
    other = await rig.enqueue(2)
    await die_with_a_job(rig)
    holder = await rig.enqueue(1, unique_opts=opts, queue="parked")
    async with rig.working(queues=["default"]):
        await trio.sleep(60)
    assert await rig.state(conflicted) is S.CANCELLED
    assert f"duplicate of job {holder}" in await rig.error(conflicted)
    assert await rig.state(other) is S.COMPLETED
    assert await rig.state(holder) is S.AVAILABLE


async def test_recovery_does_not_depend_on_the_dead_workers_row() -> None:
    diary = Diary(1)
    rig = Rig(diary, deadline=0)
    job_id = await rig.enqueue()
    await die_with_a_job(rig)
    rig.store._workers.clear()
    async with rig.working():
        await trio.sleep(30)
    assert diary.starts == [(job_id, 2)]


async def test_recovery_goes_on_if_the_worker_that_did_it_dies() -> None:
    diary = Diary(1)
    rig = Rig(diary, deadline=0)
    leader = await rig.store.register("a leader that died", 30.0)
    assert await rig.store.lead("upkeep", leader, 60.0)
    job_id = await rig.enqueue()
    await die_with_a_job(rig)
    async with rig.working():
        await trio.sleep(120)
    assert diary.starts == [(job_id, 2)]


async def test_an_attempt_that_its_worker_does_not_settle_is_rescued_by_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A blocked loop: the beats go on, and nothing else does."""
    diary = Diary()
    rig = Rig(diary, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    from awa_trio._seam.values import Want

    blocked = await rig.store.register("the blocked one", 1e9)
    await rig.store.claim(blocked, [Want("default", 1, 0.0)], {"work": 30.0})
    async with rig.working():
        await trio.sleep(40)
        assert await rig.state(job_id) is S.RUNNING
        await trio.sleep(15)
        assert await rig.state(job_id) is S.FAILED
    assert "its deadline passed and its worker did not settle it" in await rig.error(job_id)


@pytest.mark.parametrize("seconds", [0.0, 3.0, 7.0, 12.5])
async def test_a_zombie_never_overlaps_the_attempt_that_replaces_it(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Its beats are lost from some moment on; its job runs elsewhere, after it has stopped."""
    running: list[int] = []
    most = 0

    async def exclusive(job: Job) -> None:
        nonlocal most
        running.append(job.attempt)
        most = max(most, len(running))
        try:
            await trio.sleep(200)
        finally:
            running.remove(job.attempt)

    rig = Rig(exclusive, deadline=0)
    cut_off: set[int] = set()
    beats: Any = type(rig.store).beat

    async def beat(worker: int) -> bool:
        if worker in cut_off:
            await trio.sleep_forever()
        return bool(await beats(rig.store, worker))

    monkeypatch.setattr(rig.store, "beat", beat, raising=False)
    async with rig.working() as first, rig.working():
        await trio.sleep(seconds)
        job_id = await rig.enqueue()
        await trio.sleep(seconds)
        while (worker_id := (await rig.client.jobs.get(job_id)).worker_id) is None:
            await trio.sleep(0.01)
        cut_off.add(worker_id)
        await trio.sleep(400)
        assert first.id not in cut_off
    job = await rig.client.jobs.get(job_id)
    assert most == 1
    assert (job.state, job.attempt) == (S.COMPLETED, 2)
    assert "presumed dead" in job.errors[0].error


async def test_timings_of_a_test_are_respected() -> None:
    """Healthy jobs are not picked up again when the lease is short and the handler long."""
    diary = Diary(5)
    rig = Rig(diary, deadline=0)
    job_id = await rig.enqueue()
    timings = awa.Timings(heartbeat=0.3, lease=1.0, finalize_deadline=0.9, rescue_interval=0.2)
    async with rig.working(timings=timings), rig.working(timings=timings):
        await trio.sleep(10)
    assert diary.starts == [(job_id, 1)]
