"""Callbacks as other processes resolve them: on PostgreSQL and memory, on Trio and asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

import awa_trio as awa
from awa_trio.testing import HandlerJob, drain, memory_client, work_one

from .engines import ENGINES, client_on

S = awa.JobState
app = awa.App()


@frozen
class Park:
    n: int = 0
    timeout: float = 3600.0


@frozen
class Wait:
    n: int = 0


@frozen
class Done:
    n: int


@frozen
class Alarm:
    error: str


@frozen
class Broken:
    pass


@app.task()
async def park(job: awa.Job[Park]) -> object:
    if job.last_callback is not None:
        job.enqueue_on_completion(Done(job.last_callback.payload))
        return None
    return awa.WaitForCallback(await job.register_callback(job.args.timeout))


@app.task(deadline=30)
async def wait(job: awa.Job[Wait]) -> None:
    job.enqueue_on_completion(Done(await job.wait_for_callback(await job.register_callback())))


@app.task(args=Broken)
async def broken(job: awa.Job[Broken]) -> object:
    return awa.WaitForCallback(await job.register_callback())


app.declare(Done, queue="done")
app.declare(Alarm, queue="done")


@app.on_completed(Park)
def and_then(args: Park, job: awa.JobRow) -> object:
    return Done(1000 + args.n)


@app.on_exhausted(Park)
def raise_alarm(args: Park, job: awa.JobRow, error: str) -> object:
    return Alarm(error)


@app.on_completed(Broken)
@app.on_exhausted(Broken)
def cannot(*facts: object) -> object:
    raise KeyError("broken")


@pytest.fixture(params=ENGINES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        yield client


async def parked(client: awa.Client, args: object = None) -> tuple[int, str]:
    job_id = (await client.enqueue(args or Park())).id
    worked = await work_one(app, client, queue="default")
    assert worked is not None
    assert (worked.job.id, worked.state) == (job_id, S.WAITING_EXTERNAL)
    assert worked.job.callback_token is not None
    return job_id, worked.job.callback_token


async def done(client: awa.Client) -> list[int]:
    return sorted(job.args_json["n"] for job in await client.jobs.list(kind="done"))


@asynccontextmanager
async def working(client: awa.Client, **options: Any) -> AsyncIterator[awa.Worker]:
    async with trio.open_nursery() as nursery:

        async def run(task_status: Any) -> None:
            await awa.run_worker(
                app, client, queues=["default"], task_status=task_status, **options
            )

        worker = await nursery.start(run)
        try:
            yield worker
        finally:
            worker.stop()


async def in_state(client: awa.Client, job_id: int, state: awa.JobState) -> awa.JobDetails:
    with trio.fail_after(30):
        while (job := await client.jobs.get(job_id)).state is not state:
            await trio.sleep(0.01)
    return job


# ---- what follows


async def test_registered_follow_ups_of_an_external_completion(client: awa.Client) -> None:
    job_id, token = await parked(client, Park(5))
    assert await client.callbacks.complete(token, {"paid": 1}) == job_id
    job = await client.jobs.get(job_id)
    assert (job.state, job.raw_output) == (S.COMPLETED, b'{"paid":1}')
    assert await done(client) == [1005]


async def test_registered_follow_ups_of_an_external_failure(client: awa.Client) -> None:
    job_id, token = await parked(client)
    await client.callbacks.fail(token, "declined")
    job = await client.jobs.get(job_id)
    assert (job.state, job.errors[-1].error) == (S.FAILED, "declined")
    [alarm] = await client.jobs.list(kind="alarm")
    assert alarm.args_json == {"error": "declined"}


async def test_registered_follow_ups_of_a_callback_that_timed_out(client: awa.Client) -> None:
    job_id = (await client.enqueue(Park(timeout=1.0), max_attempts=1)).id
    async with working(client, timings=awa.Timings(rescue_interval=0.1)):
        job = await in_state(client, job_id, S.FAILED)
        [alarm] = await client.jobs.list(kind="alarm")
    assert job.errors[-1].error == "callback timed out"
    assert alarm.args_json == {"error": "callback timed out"}
    assert alarm.triggered_by == job_id


async def test_which_outcomes_waiting_fires(client: awa.Client) -> None:
    """Parking fires its own; a wait in memory none, nor one that loses its handler."""
    fires = awa.App()
    fires.declare(Done, queue="done")
    fires.task(args=Park)(park)
    fires.task(args=Wait, backoff=lambda attempt: 3600.0)(wait)

    def note(*facts: object) -> object:
        return awa.EnqueueRequest(Alarm(" ".join(map(str, facts[2:]))), kind="alarm")

    fires.declare(Alarm, queue="done")
    for cls in (Park, Wait):
        fires.on_waiting_for_callback(cls)(lambda args, job, token: note(args, job, "parked"))
        fires.on_rescued(cls)(lambda args, job, reason: note(args, job, reason))

    @asynccontextmanager
    async def worker() -> AsyncIterator[awa.Worker]:
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                timings = awa.Timings(rescue_interval=0.1)
                await awa.run_worker(
                    fires, client, queues=["default"], timings=timings, task_status=task_status
                )

            worker = await nursery.start(run)
            yield worker
            worker.stop()

    async def alarms() -> list[str]:
        jobs = await client.jobs.list(kind="alarm")
        return [job.args_json["error"] for job in reversed(jobs)]

    async with worker():
        parks = (await client.enqueue(Park())).id
        await in_state(client, parks, S.WAITING_EXTERNAL)
        assert await alarms() == ["parked"]
        waits = (await client.enqueue(Wait())).id
        job = await in_state(client, waits, S.WAITING_EXTERNAL)
        assert job.worker_id is not None
    assert (await client.jobs.get(waits)).worker_id is None
    assert await alarms() == ["parked"]
    async with worker():
        await client.callbacks.heartbeat(job.callback_token or "", 1.0)
        await in_state(client, waits, S.RETRYABLE)
    assert await alarms() == ["parked", "callback_timeout"]


async def test_a_follow_up_that_raises_refuses_the_resolution(client: awa.Client) -> None:
    job_id, token = await parked(client, Broken())
    with pytest.raises(awa.FollowUpError):
        await client.callbacks.complete(token)
    assert (await client.jobs.get(job_id)).state is S.WAITING_EXTERNAL
    with pytest.raises(awa.FollowUpError):
        await client.callbacks.fail(token)
    assert (await client.jobs.get(job_id)).state is S.WAITING_EXTERNAL
    await client.callbacks.fail(token, without_follow_ups=True)
    job = await client.jobs.get(job_id)
    assert (job.state, job.dead_letter) == (S.FAILED, "callback_failed")


@pytest.mark.parametrize("knows", ["no app", "an app without the task"])
async def test_who_does_not_know_the_follow_ups_may_resume_and_retry(
    client: awa.Client, knows: str
) -> None:
    other = awa.App()
    other.declare(Park)
    stranger = awa.Client(client._backend, None if knows == "no app" else other)
    job_id, token = await parked(client)
    for resolve in (
        stranger.callbacks.complete,
        stranger.callbacks.fail,
    ):
        with pytest.raises(awa.FollowUpsUnknown, match="without_follow_ups=True"):
            await resolve(token)
    assert (await client.jobs.get(job_id)).state is S.WAITING_EXTERNAL
    await stranger.callbacks.heartbeat(token)
    await stranger.callbacks.retry(token)
    worked = await work_one(app, client, queue="default")
    assert worked is not None
    token = worked.job.callback_token or ""
    await stranger.callbacks.resume(token, 3)
    [worked] = await drain(app, client, queue="default")
    assert worked.state is S.COMPLETED
    assert await done(client) == [3, 1000]
    job_id, token = await parked(client)
    await stranger.callbacks.complete(token, without_follow_ups=True)
    assert await done(client) == [3, 1000]


# ---- what is refused


async def test_what_cannot_be_stored_is_refused_before_anything_is_sent(
    client: awa.Client,
) -> None:
    job_id, token = await parked(client)
    callbacks = client.callbacks
    with pytest.raises(awa.InvalidRequest, match=r"payload\.a: NaN"):
        await callbacks.resume(token, {"a": float("nan")})
    with pytest.raises(awa.InvalidRequest, match="65,536"):
        await callbacks.complete(token, "x" * 70_000)
    with pytest.raises(awa.InvalidRequest, match="error: give a string"):
        await callbacks.fail(token, ValueError("x"))  # type: ignore[arg-type]
    with pytest.raises(awa.InvalidRequest, match=r"error: U\+0000"):
        await callbacks.fail(token, "\0")
    with pytest.raises(awa.CallbackInvalid):
        await callbacks.heartbeat(token, 0)
    assert (await client.jobs.get(job_id)).callback_until is not None


@pytest.mark.parametrize("token", ["", "nobody's", "x" * 10_000, "é", "a\0b"])
async def test_a_token_that_means_nothing_is_not_found(client: awa.Client, token: str) -> None:
    for call in (client.callbacks.resume, client.callbacks.heartbeat):
        with pytest.raises(awa.CallbackNotFound):
            await call(token)


@pytest.mark.parametrize("method", ["resume", "complete", "fail", "retry", "heartbeat"])
async def test_a_token_is_a_str(client: awa.Client, method: str) -> None:
    for token in (None, 5, b"token"):
        with pytest.raises(TypeError, match="token: give a str, not"):
            await getattr(client.callbacks, method)(token)


async def test_a_token_of_an_attempt_that_ended_without_it_is_not_found(
    client: awa.Client,
) -> None:
    job = HandlerJob(Park())  # Only for its type: the attempt registers, and completes.
    assert job.callbacks == []
    registers = awa.App()
    tokens = []

    @registers.task(args=Park)
    async def park(job: awa.Job[Park]) -> None:
        tokens.append(await job.register_callback())

    await client.enqueue(Park())
    worked = await work_one(registers, client)
    assert worked is not None
    assert worked.state is S.COMPLETED
    with pytest.raises(awa.CallbackNotFound):
        await client.callbacks.resume(tokens[0])


# ---- races


@pytest.mark.parametrize("waits", [Park, Wait])
async def test_of_many_resolutions_at_once_one_counts(
    client: awa.Client, waits: Callable[[], object]
) -> None:
    callbacks = client.callbacks

    async def resume(token: str) -> int:
        return await callbacks.resume(token, 5)

    ways: list[Callable[[str], Awaitable[int]]] = [
        resume,
        callbacks.complete,
        callbacks.fail,
        callbacks.retry,
    ]
    async with working(client):
        for turn in range(8):
            job_id = (await client.enqueue(waits())).id
            token = (await in_state(client, job_id, S.WAITING_EXTERNAL)).callback_token
            assert token is not None
            won: list[Callable[[str], Awaitable[int]]] = []

            async def resolve(
                way: Callable[[str], Awaitable[int]], token: str = token, won: Any = won
            ) -> None:
                try:
                    await way(token)
                    won.append(way)
                except (awa.CallbackAlreadyResolved, awa.CallbackNotFound):
                    pass

            async with trio.open_nursery() as nursery:
                for way in (ways[turn % 4 :] + ways[: turn % 4]) * 2:
                    nursery.start_soon(resolve, way)
            assert len(won) == 1
            if won[0] == callbacks.retry:
                job = await in_state(client, job_id, S.WAITING_EXTERNAL)
                assert job.callback_token not in (None, token)
                assert job.attempt == 1
                await client.jobs.cancel(job_id)
            else:
                job = await client.jobs.wait(job_id)
                assert job.state is (S.FAILED if won[0] == callbacks.fail else S.COMPLETED)


async def test_resolved_while_it_is_parking(client: awa.Client) -> None:
    """The resolver may come before, during or after the move of the row."""
    racing = awa.App()
    sent, resolved = trio.open_memory_channel[str](100)

    @racing.task(args=Park)
    async def park(job: awa.Job[Park]) -> object:
        if job.last_callback is not None:
            return None
        token = await job.register_callback()
        await sent.send(token)
        return awa.WaitForCallback(token)

    async def resume() -> None:
        async for token in resolved:
            await client.callbacks.resume(token)

    ids = [(await client.enqueue(Park(n))).id for n in range(50)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resume)

        async def run(task_status: Any) -> None:
            await awa.run_worker(racing, client, task_status=task_status)

        worker = await nursery.start(run)
        with trio.fail_after(60):
            jobs = [await client.jobs.wait(job_id) for job_id in ids]
        worker.stop()
        await sent.aclose()
    assert {(job.state, job.attempt) for job in jobs} == {(S.COMPLETED, 1)}


# ---- many


async def test_a_thousand_handlers_wait_on_one_worker(client: awa.Client) -> None:
    """All are resumed and completed, in sets, and others run meanwhile on the same slots."""
    await client.enqueue_many([Wait(n) for n in range(1000)])
    async with working(client) as worker:
        with trio.fail_after(120):
            while worker.statistics().waiting < 1000:
                await trio.sleep(0.05)
            calls = worker._parts.waits.calls
            await client.enqueue(Park(), priority=1)
            while not await client.jobs.list(kind="park", state=S.WAITING_EXTERNAL):
                await trio.sleep(0.05)
            jobs = await client.jobs.list(kind="wait", state=S.WAITING_EXTERNAL, limit=2000)
            assert len(jobs) == 1000
            assert {job.worker_id for job in jobs} == {worker.id}
            assert worker._parts.waits.calls == calls
            limit = trio.CapacityLimiter(8)

            async def resume(job: awa.JobDetails) -> None:
                async with limit:
                    assert job.callback_token is not None
                    await client.callbacks.resume(job.callback_token, job.args_json["n"])

            async with trio.open_nursery() as nursery:
                for job in jobs:
                    nursery.start_soon(resume, job)
            while worker.statistics().settled[S.COMPLETED] < 1000:
                await trio.sleep(0.05)
        assert worker.statistics().waiting == 0
    made = await client.jobs.list(kind="done", limit=2000)
    assert sorted(job.args_json["n"] for job in made) == list(range(1000))


# ---- asyncio


def test_callbacks_are_resolved_from_asyncio(migrated: str) -> None:
    async def resolve(tokens: list[str]) -> list[int]:
        async with awa.connect(migrated, app=app) as client:
            await client.callbacks.heartbeat(tokens[0], 60)
            ids = [
                await client.callbacks.resume(tokens[0], 1),
                await client.callbacks.complete(tokens[1]),
                await client.callbacks.fail(tokens[2]),
                await client.callbacks.retry(tokens[3]),
            ]
            with pytest.raises(awa.CallbackAlreadyResolved):
                await client.callbacks.resume(tokens[0])
            return ids

    async def main() -> None:
        async with awa.connect(migrated, app=app) as client, working(client):
            ids = [(await client.enqueue(Wait(n))).id for n in range(4)]
            jobs = [await in_state(client, job_id, S.WAITING_EXTERNAL) for job_id in ids]
            tokens = [job.callback_token for job in jobs]
            assert await trio.to_thread.run_sync(lambda: asyncio.run(resolve(tokens))) == ids  # type: ignore[arg-type]
            states = [(await client.jobs.wait(job_id)).state for job_id in ids[:3]]
            assert states == [S.COMPLETED, S.COMPLETED, S.FAILED]
            again = await in_state(client, ids[3], S.WAITING_EXTERNAL)
            assert again.callback_token not in (None, tokens[3])

    trio.run(main)


# ---- in tests


async def test_work_one_waits_until_someone_resolves(client: awa.Client) -> None:
    job_id = (await client.enqueue(Wait())).id

    async def resume() -> None:
        job = await in_state(client, job_id, S.WAITING_EXTERNAL)
        assert job.callback_token is not None
        await client.callbacks.resume(job.callback_token, 9)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(resume)
        worked = await work_one(app, client)
    assert worked is not None
    assert worked.state is S.COMPLETED
    assert await done(client) == [9]


@pytest.mark.parametrize(
    ("what", "state"),
    [
        ("complete", S.COMPLETED),
        ("fail", S.FAILED),
        ("retry", S.AVAILABLE),
        ("cancel", S.CANCELLED),
    ],
)
async def test_work_one_notices_what_others_do_to_its_job(
    client: awa.Client, what: str, state: awa.JobState
) -> None:
    job_id = (await client.enqueue(Wait())).id

    async def settle() -> None:
        job = await in_state(client, job_id, S.WAITING_EXTERNAL)
        if what == "cancel":
            await client.jobs.cancel(job_id)
        else:
            await getattr(client.callbacks, what)(job.callback_token)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(settle)
            worked = await work_one(app, client)
    assert worked is not None
    assert worked.state is state


async def test_work_one_notices_that_its_running_job_is_cancelled(client: awa.Client) -> None:
    runs = trio.Event()
    endless = awa.App()

    @endless.task(args=Wait)
    async def run(job: awa.Job[Wait]) -> None:
        runs.set()
        await trio.sleep_forever()

    job_id = (await client.enqueue(Wait())).id

    async def cancel() -> None:
        await runs.wait()
        await client.jobs.cancel(job_id, without_follow_ups=True)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel)
            worked = await work_one(endless, client)
    assert worked is not None
    assert worked.state is S.CANCELLED


@pytest.mark.parametrize("attempts", [1, 2])
async def test_work_one_notices_that_nobody_answers(client: awa.Client, attempts: int) -> None:
    impatient = awa.App()

    @impatient.task(args=Wait)
    async def wait_a_second(job: awa.Job[Wait]) -> None:
        await job.wait_for_callback(await job.register_callback(timeout=1))

    await client.enqueue(Wait(), max_attempts=attempts)
    with trio.fail_after(30):
        worked = await work_one(impatient, client)
    assert worked is not None
    assert worked.state is (S.FAILED if attempts == 1 else S.RETRYABLE)
    assert worked.error == "callback timed out"


async def test_hours_of_waiting_pass_at_once_on_a_clock_that_jumps(
    autojump_clock: MockClock,
) -> None:
    client = memory_client(app)
    await client.enqueue(Wait(), max_attempts=1)
    worked = await work_one(app, client)  # its callback times out after an hour
    assert worked is not None
    assert worked.job.dead_letter == "callback_timeout"
    assert trio.current_time() >= 3600


async def test_a_stand_in_answers_from_its_script() -> None:
    job = HandlerJob(Wait(), app=app, answers=[7])
    await wait(job)
    [callback] = job.callbacks
    assert callback.timeout == 3600
    assert [staged.args for staged in job.staged] == [Done(7)]


async def test_a_stand_in_raises_what_its_script_says() -> None:
    job = HandlerJob(Wait(), app=app, answers=[awa.CallbackSuperseded("failed")])
    with pytest.raises(awa.CallbackSuperseded, match="the job is failed"):
        await wait(job)
    assert job.staged == []


async def test_a_stand_in_has_the_rules_of_the_real_one() -> None:
    job = HandlerJob(Wait(), answers=[(1, 2)])
    with pytest.raises(awa.CallbackInvalid, match="latest"):
        await job.wait_for_callback("x")
    with pytest.raises(awa.CallbackInvalid, match="timeout"):
        await job.register_callback(timeout=0)
    first, second = await job.register_callback(), await job.register_callback(60)
    assert [(c.token, c.timeout) for c in job.callbacks] == [(first, 3600), (second, 60)]
    with pytest.raises(awa.CallbackInvalid, match="latest"):
        await job.wait_for_callback(first)
    with pytest.raises(awa.InvalidRequest, match="tuple"):
        await job.wait_for_callback(second)
    with pytest.raises(RuntimeError, match="answers="):
        await job.wait_for_callback(second)


async def test_a_stand_in_may_be_a_later_attempt() -> None:
    job = HandlerJob(Park(), app=app, last_callback=awa.CallbackAnswer("t", 4))
    assert await park(job) is None
    assert [staged.args for staged in job.staged] == [Done(4)]
    job = HandlerJob(Park(), app=app)
    assert await park(job) == awa.WaitForCallback(job.callbacks[0].token)


@pytest.mark.parametrize("token", [None, True, 5, 1.5, b"token", ["token"]], ids=repr)
@pytest.mark.parametrize("how", ["resume", "complete", "fail", "retry", "heartbeat"])
async def test_a_token_that_is_no_text_is_refused_by_name(
    client: awa.Client, how: str, token: Any
) -> None:
    with pytest.raises(TypeError, match=r"^token: give a str, not"):
        await getattr(client.callbacks, how)(token)
