"""asyncio inside a worker: calls, results and cancellation cross in both directions."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio import aio
from awa_trio.testing import HandlerJob, drain, memory_client, work_one

from .rig import Next, Rig, Work

S = awa.JobState

pytestmark = pytest.mark.virtual_time


async def work(handler: Any, *, asyncio: bool = True, **options: Any) -> tuple[Rig, int]:
    """Enqueue one job, and work it once."""
    rig = Rig(handler, asyncio=asyncio, **options)
    job_id = await rig.enqueue()
    await work_one(rig.app, rig.client, kind="work")
    return rig, job_id


# ---- handlers of asyncio's


async def test_it_runs_in_the_workers_loop_and_leaves_what_any_handler_may() -> None:
    loops = []
    topic = contextvars.ContextVar("topic", default="none")

    async def handler(job: awa.Job[Work]) -> None:
        loops.append(asyncio.get_running_loop())
        assert topic.get() == "none", "nothing of another attempt is left"
        topic.set("mine")

        async def child(n: int) -> None:
            assert topic.get() == "mine"
            await asyncio.sleep(n)
            job.enqueue_on_completion(Next(n))

        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(child(n))
        job.progress.set(percent=50)
        await job.flush_progress()
        job.set_output("done")

    rig = Rig(handler, asyncio=True)
    async with rig.working():
        for n in range(3):
            job = await rig.client.jobs.wait(await rig.enqueue(n))
            assert (job.state, job.output) == (S.COMPLETED, "done")
        assert not loops[0].is_closed()
    assert await rig.follow_ups() == [0, 1, 2] * 3
    assert len(set(map(id, loops))) == 1, "one loop for all of its attempts"
    assert loops[0].is_closed()


async def test_a_worker_that_needs_none_opens_none() -> None:
    async def handler(job: awa.Job[Work]) -> None: ...

    rig = Rig(handler)
    async with rig.working() as worker:
        await rig.client.jobs.wait(await rig.enqueue())
        assert worker._parts.asyncio._loop is None


async def test_its_deadline_cancels_it_once() -> None:
    seen: list[str] = []

    async def handler(job: awa.Job[Work]) -> None:
        job.enqueue_on_completion(Next())
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(1)  # cleaning up may take its time
            seen.append("cleaned")
            raise

    rig, job_id = await work(handler, deadline=10)
    assert seen == ["cancelled", "cleaned"]
    assert "DeadlineExceeded: the deadline of 10 s passed" in await rig.error(job_id)
    assert await rig.follow_ups() == []


async def test_a_cancellation_that_it_swallows_is_no_success() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        job.enqueue_on_completion(Next())
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

    rig, job_id = await work(handler, deadline=10)
    assert await rig.state(job_id) == S.RETRYABLE
    assert await rig.follow_ups() == []


async def test_one_that_will_not_end_is_settled_without_waiting_for_it() -> None:
    let_go = False

    async def handler(job: awa.Job[Work]) -> None:
        while not let_go:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                pass

    rig = Rig(handler, asyncio=True, deadline=10, backoff=lambda attempt: 3600)
    async with rig.working() as worker:
        job_id = await rig.enqueue()
        await trio.sleep(20)
        state, overdue = await rig.state(job_id), worker.statistics().overdue
        let_go = True
    assert (state, overdue) == (S.RETRYABLE, 1)


async def test_a_cancelled_error_of_its_own_is_a_failed_attempt() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        raise asyncio.CancelledError

    rig, job_id = await work(handler)
    assert await rig.state(job_id) == S.RETRYABLE
    assert "handler raised asyncio.CancelledError, and nobody had cancelled it" in (
        await rig.error(job_id)
    )

    async def cancels_itself(job: awa.Job[Work]) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    rig, job_id = await work(cancels_itself)
    assert (await rig.client.jobs.get(job_id)).attempt == 1
    assert "nobody had cancelled it" in await rig.error(job_id)


async def test_a_shutdown_in_the_middle_hands_it_back() -> None:
    cancelled = []

    async def handler(job: awa.Job[Work]) -> None:
        job.enqueue_on_completion(Next())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(3600))
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    rig = Rig(handler, asyncio=True)
    async with rig.working(grace=5):
        job_id = await rig.enqueue()
        while (await rig.state(job_id)) != S.RUNNING:
            await trio.sleep(0.1)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt, cancelled) == (S.AVAILABLE, 0, [job_id])
    assert await rig.follow_ups() == []


async def test_a_client_that_cancels_the_job_cancels_it() -> None:
    ended = trio.Event()

    async def handler(job: awa.Job[Work]) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    rig = Rig(handler, asyncio=True)
    async with rig.working():
        job_id = await rig.enqueue()
        await trio.sleep(1)
        assert await rig.client.jobs.cancel(job_id, without_follow_ups=True)
        await ended.wait()
    assert await rig.state(job_id) == S.CANCELLED


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (awa.TerminalError("no"), S.FAILED),
        (awa.RetryAfter(5), S.RETRYABLE),
        (awa.Snooze(5), S.SCHEDULED),
        (awa.Cancel("enough"), S.CANCELLED),
        (ValueError("bad"), S.RETRYABLE),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_task_group_raises_is_read_as_what_a_nursery_raises(
    error: BaseException, state: awa.JobState
) -> None:
    async def child() -> None:
        raise error

    async def handler(job: awa.Job[Work]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(asyncio.sleep(3600))

    rig, job_id = await work(handler)
    assert await rig.state(job_id) == state
    if state in (S.FAILED, S.RETRYABLE) and not isinstance(error, awa.RetryAfter):
        assert (await rig.error(job_id)).startswith(f"{_shown(error)}: {error}")


def _shown(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    )


@pytest.mark.parametrize("where", ["handler", "task group", "task left behind", "callback"])
async def test_a_system_exit_ends_the_worker(where: str) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def handler(job: awa.Job[Work]) -> None:
        if where == "handler":
            raise SystemExit(3)
        if where == "task group":
            async with asyncio.TaskGroup() as group:
                group.create_task(leave())
                await asyncio.sleep(3600)
        if where == "callback":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
        left = asyncio.create_task(leave())
        await asyncio.sleep(3600)
        del left

    rig = Rig(handler, asyncio=True)
    await rig.enqueue()
    with trio.fail_after(60), pytest.raises(SystemExit) as caught:
        await rig.run()
    assert caught.value.code == 3
    gc.collect()  # or asyncio complains of the task in the middle of another test


async def test_tasks_that_it_leaves_behind_can_stage_no_more_and_end_with_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[str] = []

    async def left_behind(job: awa.Job[Work]) -> None:
        await asyncio.sleep(1)
        with pytest.raises(awa.StagingSealed):
            job.enqueue_on_completion(Next())
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")

    async def fails() -> None:
        raise LookupError("secret")

    async def handler(job: awa.Job[Work]) -> None:
        kept.append(asyncio.create_task(left_behind(job)))
        asyncio.create_task(fails())  # noqa: RUF006, which is what this is about
        await asyncio.sleep(0.1)

    kept: list[Any] = []
    rig = Rig(handler, asyncio=True)
    async with rig.working():
        for _ in range(2):
            assert (await rig.client.jobs.wait(await rig.enqueue())).state == S.COMPLETED
            await trio.sleep(2)
    assert ended == ["cancelled"] * 2
    gc.collect()  # asyncio says it when the task is collected
    place = f"test_asyncio.py:{fails.__code__.co_firstlineno + 1} in fails"
    said = [r.getMessage() for r in caplog.records if place in r.getMessage()]
    assert said == [f"in the asyncio loop nobody waited for LookupError at {place}"] * 2


@pytest.mark.parametrize("handle", [None, lambda loop, context: context["nothing"]])
async def test_a_library_that_sets_the_loops_exception_handler_leaves_it_running(
    handle: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise LookupError("secret")

    async def handler(job: awa.Job[Work]) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handle)
        loop.call_soon(fails)
        await asyncio.sleep(1)

    rig = Rig(handler, asyncio=True)
    async with rig.working():
        for _ in range(2):
            assert (await rig.client.jobs.wait(await rig.enqueue())).state == S.COMPLETED
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len([text for text in said if "nobody waited for" in text]) == 2
    assert "secret" not in caplog.text


async def test_a_task_that_goes_on_when_cancelled_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(12)

    async def handler(job: awa.Job[Work]) -> None:
        kept.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0)

    kept: list[Any] = []
    await work(handler)
    named = [r for r in caplog.records if "cannot close" in r.getMessage()]
    assert len(named) == 2
    assert "stubborn" in named[0].getMessage()


async def test_no_handler_stops_the_loop_for_the_others() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        asyncio.get_running_loop().stop()

    rig, job_id = await work(handler)
    assert "the asyncio loop is the worker's, and others use it too" in await rig.error(job_id)


# ---- the wrong way round


async def of_asyncio() -> None:
    await asyncio.sleep(1)


async def yields_nothing() -> None:
    await asyncio.sleep(0)


async def in_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(of_asyncio)
        nursery.start_soon(trio.sleep_forever)


async def of_trio() -> None:
    await trio.sleep(1)


async def a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1)


async def a_scope_around_asyncio() -> None:
    with trio.move_on_after(1):
        await asyncio.sleep(2)


async def a_nursery_around_asyncio() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 1)
        await asyncio.sleep(2)


async def an_event() -> None:
    await trio.Event().wait()


async def cleans_up() -> None:
    try:
        await trio.sleep(1)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)


async def will_not_hear() -> None:
    while True:
        try:
            await trio.sleep(1)
        except awa.WrongEventLoop:
            pass


WRONG: list[tuple[bool, Callable[[], Awaitable[None]]]] = [
    *[(False, function) for function in (of_asyncio, yields_nothing, in_a_nursery)],
    *[
        (True, function)
        for function in (
            of_trio, a_nursery, a_scope_around_asyncio, a_nursery_around_asyncio, an_event,
            cleans_up, will_not_hear,
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(
    ("on_asyncio", "function"), WRONG, ids=[function.__name__ for _, function in WRONG]
)
async def test_the_wrong_way_round_is_one_sentence_and_the_worker_goes_on(
    on_asyncio: bool, function: Callable[[], Awaitable[None]]
) -> None:
    async def handler(job: awa.Job[Work]) -> None:
        if job.args.n:
            await function()

    rig = Rig(handler, asyncio=on_asyncio)
    async with rig.working():
        wrong = [await rig.enqueue(1) for _ in range(2)]
        right = await rig.enqueue(0)
        assert (await rig.client.jobs.wait(right)).state == S.COMPLETED
        for job_id in wrong:
            while not (error := await rig.error(job_id)):
                await trio.sleep(0.1)
            expected = (
                "awa_trio.WrongEventLoop: this runs on asyncio, and awaits something of Trio:"
                if on_asyncio
                else "awa_trio.WrongEventLoop: this runs on Trio, and awaits something of asyncio:"
            )
            assert error.startswith(expected)


@pytest.mark.real_time
async def test_so_is_a_thread_that_trio_would_wait_for() -> None:
    finished = threading.Event()

    async def handler(job: awa.Job[Work]) -> None:
        await trio.to_thread.run_sync(finished.wait, 10)

    rig, job_id = await work(handler)
    assert "awaits something of Trio" in await rig.error(job_id)
    finished.set()


@pytest.mark.real_time
def test_an_ordinary_function_is_none_of_asyncios() -> None:
    app = awa.App()

    def ordinary(job: awa.Job[Work]) -> None: ...

    with pytest.raises(awa.ConfigurationError, match=r"is an ordinary function.*make it async"):
        app.task(asyncio=True)(ordinary)
    wrong: Any = 1
    with pytest.raises(awa.ConfigurationError, match="asyncio=1: give True or False"):
        app.task(asyncio=wrong)(ordinary)
    assert app.kinds == ()


@pytest.mark.real_time
async def test_elsewhere_in_the_process_asyncio_stays_what_it_is() -> None:
    """A handler in a thread may run a loop of its own."""
    kinds = set()

    async def main() -> None:
        await asyncio.sleep(0)
        kinds.add(type(asyncio.get_running_loop()).__module__)

    async def on_asyncio(job: awa.Job[Work]) -> None: ...

    def in_thread(job: awa.Job[Work]) -> None:
        asyncio.run(main())

    await work(on_asyncio)
    rig, job_id = await work(in_thread, asyncio=False)
    assert await rig.error(job_id) == ""
    await trio.to_thread.run_sync(asyncio.run, main())
    assert kinds == {"asyncio.unix_events"}


# ---- what a job does for its handler, from asyncio


async def test_it_waits_for_a_callback() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        token = await job.register_callback()
        tokens.append(token)
        job.set_output(await job.wait_for_callback(token))

    tokens: list[str] = []
    rig = Rig(handler, asyncio=True, deadline=10)
    async with rig.working():
        job_id = await rig.enqueue()
        await trio.sleep(100)  # the deadline's clock stands still
        assert await rig.state(job_id) == S.WAITING_EXTERNAL
        await rig.client.callbacks.resume(tokens[0], {"paid": True})
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, job.output) == (S.COMPLETED, {"paid": True})


async def test_a_wait_that_asyncio_cancels_is_given_up() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        token = await job.register_callback()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await job.wait_for_callback(token)
        job.set_output("gave up")

    rig = Rig(handler, asyncio=True)
    async with rig.working():
        job = await rig.client.jobs.wait(await rig.enqueue())
    assert (job.state, job.output) == (S.COMPLETED, "gave up")


async def test_a_worker_that_stops_leaves_its_job_waiting() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        if job.last_callback is not None:
            job.set_output(job.last_callback.payload)
            return
        tokens.append(await job.register_callback())
        await job.wait_for_callback(tokens[0])

    tokens: list[str] = []
    rig = Rig(handler, asyncio=True)
    async with rig.working():
        job_id = await rig.enqueue()
        await trio.sleep(1)
    assert await rig.state(job_id) == S.WAITING_EXTERNAL
    async with rig.working():
        await rig.client.callbacks.resume(tokens[0], "late")
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, job.output, job.attempt) == (S.COMPLETED, "late", 1)


async def test_complete_in_says_where_it_works() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        async with job.complete_in(object()):
            pass

    rig, job_id = await work(handler)
    assert "job.complete_in works on Trio only" in await rig.error(job_id)


# ---- awa_trio.aio, in handlers of Trio's


async def test_calls_go_in_and_out_again() -> None:
    async def inner(n: int) -> int:
        await trio.sleep(1)
        return n + await aio.run(add_one, n)

    async def add_one(n: int) -> int:
        await asyncio.sleep(1)
        return n + 1

    async def outer(n: int) -> int:
        return await aio.trio(inner, n) * 10

    async def handler(job: awa.Job[Work]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(aio.run, asyncio.sleep, 1)
        job.set_output(await aio.run(outer, 3))

    rig, job_id = await work(handler, asyncio=False)
    assert (await rig.client.jobs.get(job_id)).output == 70


async def test_cancellation_goes_in_and_out_again() -> None:
    ended: list[str] = []

    async def inner() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            ended.append("inner")
            raise

    async def outer() -> None:
        try:
            await aio.trio(inner)
        except asyncio.CancelledError:
            ended.append("outer")
            raise

    async def handler(job: awa.Job[Work]) -> None:
        with trio.move_on_after(5) as scope:
            await aio.run(outer)
        assert scope.cancelled_caught

        async def from_asyncio() -> None:
            async with asyncio.timeout(5):
                await aio.trio(inner)

        with pytest.raises(TimeoutError):
            await aio.run(from_asyncio)
        with trio.move_on_after(5) as scope:
            assert await aio.run(answers_all_the_same) == "answer"

    async def answers_all_the_same() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
        return "answer"

    rig, job_id = await work(handler, asyncio=False)
    assert await rig.error(job_id) == ""
    assert ended == ["inner", "outer", "inner"]


async def test_errors_cross_as_they_are() -> None:
    error = LookupError("as it is")

    async def raises() -> None:
        raise error

    async def both() -> None:
        with pytest.raises(LookupError) as caught:
            await aio.trio(raises)
        assert caught.value is error
        raise error

    def ordinary() -> int:
        return 1

    async def handler(job: awa.Job[Work]) -> None:
        with pytest.raises(LookupError) as caught:
            await aio.run(both)
        assert caught.value is error
        anything: Any = ordinary
        with pytest.raises(TypeError, match=r"ordinary is no asynchronous.*returned a int"):
            await aio.run(anything)
        with pytest.raises(awa.WrongEventLoop, match="called from Trio code"):
            await aio.trio(raises)
        with pytest.raises(awa.WrongEventLoop, match="called from asyncio code"):
            await aio.run(aio.run, raises)
        with pytest.raises(awa.WrongEventLoop, match="runs on asyncio, and awaits"):
            await aio.run(of_trio)
        with pytest.raises(awa.WrongEventLoop, match="runs on Trio, and awaits"):
            await aio.run(aio.trio, yields_nothing)

    rig, job_id = await work(handler, asyncio=False)
    assert await rig.error(job_id) == ""


async def test_outside_of_a_worker_a_loop_is_opened_by_hand() -> None:
    with pytest.raises(
        awa.ConfigurationError, match=r"async with awa_trio\.aio\.open_loop\(\)"
    ):
        await aio.run(of_asyncio)
    async with aio.open_loop():
        await aio.run(of_asyncio)
        with pytest.raises(ZeroDivisionError):
            async with aio.open_loop():
                await aio.run(of_asyncio)
                raise ZeroDivisionError
        await aio.run(of_asyncio)
    with pytest.raises(awa.ConfigurationError):
        await aio.run(of_asyncio)


# ---- resources of asyncio's


class Session:
    def __init__(self) -> None:
        self.log: list[object] = []


@asynccontextmanager
async def session(made: Session, *, swallows: bool = False) -> AsyncIterator[Session]:
    made.log.append(asyncio.current_task())
    try:
        async with asyncio.timeout(1000):  # which must be left by the task that entered it
            yield made
    except BaseException as error:
        made.log.append(type(error))
        if not swallows:
            raise
    finally:
        await asyncio.sleep(1)
        made.log.append(asyncio.current_task())


async def test_a_resource_is_held_by_one_asyncio_task() -> None:
    made = Session()
    rig = Rig(_uses_a_session, asyncio=True)

    @rig.app.resource
    async def open_session() -> AsyncIterator[Session]:
        async with aio.opened(session(made)) as opened:
            yield opened

    async with rig.working():
        for _ in range(2):
            job = await rig.client.jobs.wait(await rig.enqueue())
            assert job.state == S.COMPLETED
    first, *used, last = made.log
    assert (used, first is last) == (["used", "used"], True)


async def _uses_a_session(job: awa.Job[Work], session: Session) -> None:
    await asyncio.sleep(0)
    session.log.append("used")


async def test_what_happens_in_its_block_reaches_it_and_comes_out_again() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        made = Session()
        error = LookupError()
        with pytest.raises(LookupError) as caught:
            async with aio.opened(session(made)):
                raise error
        assert caught.value is error
        assert made.log[1] is LookupError
        async with aio.opened(session(made := Session(), swallows=True)):
            await fail(error)
        assert made.log[1] is LookupError
        with trio.move_on_after(5) as scope:
            async with aio.opened(session(made := Session())):
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert made.log[1] is asyncio.CancelledError
        with pytest.raises(TimeoutError):  # its own, in the middle of the block
            async with aio.opened(session(Session())):
                await trio.sleep_forever()
        with pytest.raises(OSError, match="refused"):
            async with aio.opened(refuses()):
                raise AssertionError
        with pytest.raises(OSError, match="not closed"):
            async with aio.opened(fails_to_close()):
                pass

    rig, job_id = await work(handler, asyncio=False, deadline=0)
    assert await rig.error(job_id) == ""


async def fail(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def refuses() -> AsyncIterator[None]:
    await fail(OSError("refused"))
    yield


@asynccontextmanager
async def fails_to_close() -> AsyncIterator[None]:
    yield
    raise OSError("not closed")


# ---- tests of handlers


async def test_work_one_and_drain_run_it_too() -> None:
    app = awa.App()

    @app.task(kind="work", asyncio=True)
    async def handler(job: awa.Job[Work]) -> None:
        await asyncio.sleep(1)
        if job.args.n:
            job.enqueue_on_completion(Work(job.args.n - 1))

    client = memory_client(app)
    await client.enqueue(Work(2))
    worked = await drain(app, client)
    assert [one.state for one in worked] == [S.COMPLETED] * 3


@pytest.mark.real_time
def test_a_handler_alone_needs_asyncio_only() -> None:
    async def handler(job: awa.Job[Work]) -> None:
        await asyncio.sleep(0)
        await job.flush_progress()
        payload = await job.wait_for_callback(await job.register_callback())
        job.enqueue_on_completion(Next(payload))

    job = HandlerJob(Work(), answers=[7])
    asyncio.run(handler(job))
    assert [staged.args for staged in job.staged] == [Next(7)]


# ---- the extra


PROGRAM = """
import sys, trio, awa_trio as awa
from awa_trio import aio
from awa_trio.testing import memory_client, work_one

app = awa.App()

@app.task(kind="trio")
async def handler(job: awa.Job[dict]) -> None: ...

async def main():
    client = memory_client(app)
    await client.enqueue({}, kind="trio")
    assert (await work_one(app, client)).state == "completed"
    assert "trio_asyncio" not in sys.modules and "asyncio" in sys.modules

trio.run(main)
"""

WITHOUT = """
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "trio_asyncio":
            raise ModuleNotFoundError(name)

import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "trio_asyncio" else find(name, *rest)
sys.meta_path.insert(0, Hidden())
"""

ASKING = """
async def f(job: awa.Job[dict]) -> None: ...

app.task(kind="asyncio", asyncio=True)(f)

async def main():
    client = memory_client(app)
    for call in (work_one(app, client), awa.run_worker(app, client), aio.open_loop().__aenter__()):
        try:
            await call
        except awa.ConfigurationError as error:
            print(error)

trio.run(main)
"""


@pytest.mark.real_time
def test_it_is_imported_only_when_used_and_missing_in_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + PROGRAM + ASKING],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.stderr == ""
    sentence = (
        "asyncio handlers and awa_trio.aio need trio-asyncio; install it with"
        " pip install 'awa-trio[asyncio]'"
    )
    assert done.stdout.splitlines() == [sentence] * 3
