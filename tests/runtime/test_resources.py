"""Resources open before what requests them and close after it, however that ends."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import pytest
import trio

import awa_trio as awa
from awa_trio._core.outcome import Raised
from awa_trio._core.registry import Task
from awa_trio._core.request import KindDefaults
from awa_trio._core.resources import Resource, Wiring
from awa_trio._runtime.attempt import Attempt
from awa_trio._runtime.enclosure import Enclosure
from awa_trio._runtime.resources import Resources
from awa_trio.testing import HandlerJob

from .rig import Next, Rig, Work
from .test_threads import in_state

S = awa.JobState
pytestmark = pytest.mark.virtual_time

Job = awa.Job[Work]


class Named:
    """Something that was opened; equal to nothing else."""

    def __init__(self, trace: list[str], name: str) -> None:
        self.trace = trace
        self.name = name
        self.open = True

    def use(self) -> None:
        assert self.open, f"{self.name} is used and closed"


class Pool(Named): ...


class Listener(Named): ...


class Session(Named): ...


class Cursor(Named): ...


def fail(error: BaseException) -> None:
    raise error


@asynccontextmanager
async def traced(made: Any) -> AsyncIterator[Any]:
    made.trace.append(f"open {made.name}")
    try:
        yield made
    finally:
        made.open = False
        made.trace.append(f"close {made.name}")


class Traced(Rig):
    """A rig whose handler may request two resources of the worker, and two of the attempt."""

    def __init__(self, handler: Any, client: awa.Client | None = None, **task: Any) -> None:
        super().__init__(handler, client, **task)
        self.trace: list[str] = []
        trace = self.trace

        @self.app.resource
        def pool() -> AbstractAsyncContextManager[Pool]:
            return traced(Pool(trace, "pool"))

        @self.app.resource
        async def listener(pool: Pool) -> AsyncIterator[Listener]:
            pool.use()
            async with traced(Listener(trace, "listener")) as made, trio.open_nursery() as own:
                own.start_soon(trio.sleep_forever)
                yield made
                own.cancel_scope.cancel()

        @self.app.resource(scope="attempt")
        async def session(pool: Pool, job: Job) -> AsyncIterator[Session]:
            pool.use()
            assert job.attempt >= 1
            async with traced(Session(trace, "session")) as made:
                yield made

        @self.app.resource(scope="attempt")
        async def cursor(session: Session) -> AsyncIterator[Cursor]:
            async with trio.open_nursery() as own, traced(Cursor(trace, "cursor")) as made:
                own.start_soon(trio.sleep_forever)
                yield made
                session.use()
                own.cancel_scope.cancel()


@asynccontextmanager
async def alone() -> AsyncIterator[None]:
    """What a nursery of the test's own makes a group of comes out as it was."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            [error] = error.exceptions
        raise error  # noqa: B904


# ---- the order, at every ending


async def returns(job: Job) -> object:
    return None


async def raises(job: Job) -> object:
    raise ValueError("no")


async def fails_in_a_group(job: Job) -> object:
    async def child() -> None:
        raise ValueError("no")

    job.nursery.start_soon(child)
    job.nursery.start_soon(child)
    await trio.sleep_forever()


async def forever(job: Job) -> object:
    await trio.sleep_forever()


async def swallows(job: Job) -> object:
    with trio.CancelScope() as own:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            own.cancel()
    return None


async def minute(job: Job) -> object:
    await trio.sleep(60)
    return None


async def raises_while_cut(job: Job) -> object:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("no")


async def poisons(job: Job) -> object:
    try:
        job.enqueue_on_completion(Next(), priority=17)
    except awa.StagingInvalid:
        pass
    return None


def gives(result: Any) -> Callable[[Job], Awaitable[object]]:
    async def handler(job: Job) -> object:
        return result

    return handler


def throws(error: BaseException) -> Callable[[Job], Awaitable[object]]:
    async def handler(job: Job) -> object:
        raise error

    return handler


async def stop(rig: Rig, worker: awa.Worker, job_id: int) -> None:
    worker.stop()


async def cancel_job(rig: Rig, worker: awa.Worker, job_id: int) -> None:
    assert await rig.client.jobs.cancel(job_id)


async def fence(rig: Rig, worker: awa.Worker, job_id: int) -> None:
    for row in rig.store._workers.values():
        row.fenced_at = trio.current_time()
    await trio.sleep(20)
    worker.stop()


@pytest.mark.parametrize("staging", [True, False], ids=["staging", "staging nothing"])
@pytest.mark.parametrize(
    ("handler", "act", "state"),
    [
        pytest.param(returns, None, S.COMPLETED, id="return"),
        pytest.param(gives(42), None, S.COMPLETED, id="return something"),
        pytest.param(gives(awa.RetryAfter(900)), None, S.RETRYABLE, id="return RetryAfter"),
        pytest.param(gives(awa.Snooze(900)), None, S.SCHEDULED, id="return Snooze"),
        pytest.param(gives(awa.Cancel("no")), None, S.CANCELLED, id="return Cancel"),
        pytest.param(raises, None, S.RETRYABLE, id="raise"),
        pytest.param(throws(awa.TerminalError("no")), None, S.FAILED, id="raise TerminalError"),
        pytest.param(throws(awa.Snooze(900)), None, S.SCHEDULED, id="raise Snooze"),
        pytest.param(throws(awa.Cancel("no")), None, S.CANCELLED, id="raise Cancel"),
        pytest.param(fails_in_a_group, None, S.RETRYABLE, id="group"),
        pytest.param(poisons, None, S.FAILED, id="poison"),
        pytest.param(forever, None, S.RETRYABLE, id="deadline"),
        pytest.param(swallows, None, S.RETRYABLE, id="deadline swallowed"),
        pytest.param(raises_while_cut, None, S.RETRYABLE, id="error at the deadline"),
        pytest.param(minute, stop, S.COMPLETED, id="stop"),
        pytest.param(forever, stop, S.AVAILABLE, id="stop and its grace is over"),
        pytest.param(forever, "cancel", S.AVAILABLE, id="the caller's cancellation"),
        pytest.param(swallows, "cancel", S.AVAILABLE, id="the caller's cancellation swallowed"),
        pytest.param(forever, cancel_job, S.CANCELLED, id="admin cancel"),
        pytest.param(forever, fence, None, id="lease lost"),
        pytest.param(throws(KeyboardInterrupt()), "crash", S.RETRYABLE, id="interrupt"),
    ],
)
async def test_resources_close_in_reverse_at_every_ending(
    handler: Any, act: Any, state: awa.JobState | None, staging: bool
) -> None:
    async def handle(
        job: Job, listener: Listener, cursor: Cursor, session: Session, pool: Pool
    ) -> object:
        async def child() -> None:
            try:
                await trio.sleep(0.5)
            finally:
                # Whatever happens: what the attempt waits for has its resources.
                for used in (listener, cursor, session, pool):
                    used.use()
                rig.trace.append("child")

        rig.trace.append("handler")
        job.nursery.start_soon(child)
        if staging:
            job.enqueue_on_completion(Next())
        return await handler(job)

    rig = Traced(handle, deadline=100 if act is None else 0, backoff=lambda failed: 900)
    job_id = await rig.enqueue()
    with trio.move_on_after(10 if act == "cancel" else 5000):
        try:
            async with rig.working(grace=120, queues={"default": 1}) as worker:
                if act in ("cancel", "crash"):
                    await trio.sleep_forever()
                await trio.sleep(10 if act else 110)
                if act:
                    await act(rig, worker, job_id)
                    await trio.sleep(1)
                else:
                    worker.stop()
        except* KeyboardInterrupt:
            assert act == "crash"
    assert rig.trace[:5] == [
        "open pool",
        "open listener",
        "open session",
        "open cursor",
        "handler",
    ]
    assert rig.trace[5:] == [
        "child",
        "close cursor",
        "close session",
        "close listener",
        "close pool",
    ]
    if state is not None:
        assert await rig.state(job_id) is state
    completed = [0] if staging and state is S.COMPLETED else []
    assert await rig.follow_ups() == completed


# ---- an attempt's: opening, closing, errors


def attempt_rig(
    opens: Callable[..., AsyncIterator[Session]], handler: Any = None, **task: Any
) -> Traced:
    """A rig whose handler requests a cursor, and the session that a test opens itself."""

    async def handle(job: Job, cursor: Cursor, session: Session) -> object:
        rig.trace.append("handler")
        job.enqueue_on_completion(Next())
        return None if handler is None else await handler(job)

    rig = Traced(handle, **task)
    resources = rig.app._registry._resources
    del resources[Session]
    rig.app.resource(scope="attempt")(opens)

    # Opened first, and closed last.
    resources[Cursor] = Resource(
        key=Cursor,
        name="cursor",
        scope="attempt",
        open=lambda: traced(Cursor(rig.trace, "cursor")),
        requests={},
    )
    return rig


async def worked(rig: Rig, seconds: float = 200, **options: Any) -> awa.JobDetails:
    """What becomes of a job with one attempt."""
    job_id = await rig.enqueue(**({"max_attempts": 1} | options))
    async with rig.working(grace=0):
        await trio.sleep(seconds)
    return await rig.client.jobs.get(job_id)


@pytest.mark.parametrize(
    ("error", "state", "recorded"),
    [
        (ValueError("full"), S.RETRYABLE, "ValueError: full"),
        (awa.TerminalError("full"), S.FAILED, "TerminalError: full"),
        (awa.Snooze(900), S.SCHEDULED, None),
        (awa.RetryAfter(900), S.RETRYABLE, None),
        (awa.Cancel("full"), S.CANCELLED, "cancelled: full"),
        (ExceptionGroup("", [awa.RetryAfter(900)]), S.RETRYABLE, None),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("when", ["opening", "closing"])
async def test_what_a_resource_raises_is_what_the_attempt_raised(
    error: Exception, state: awa.JobState, recorded: str | None, when: str
) -> None:
    async def opens() -> AsyncIterator[Session]:
        if when == "opening":
            raise error
        yield Session([], "")
        raise error

    rig = attempt_rig(opens)
    job = await worked(rig, 1.5, max_attempts=2)
    assert job.state is state
    if recorded is None:
        assert job.errors == []
    else:
        assert recorded in job.errors[-1].error
        assert "contextlib" not in job.errors[-1].error
    ran = ["handler"] if when == "closing" else []
    assert rig.trace == ["open cursor", *ran, "close cursor"]
    assert await rig.follow_ups() == []


async def test_what_closing_raises_replaces_what_the_handler_raised_and_names_it() -> None:
    async def opens() -> AsyncIterator[Session]:
        try:
            yield Session([], "")
        finally:
            raise OSError("closing")

    job = await worked(attempt_rig(opens, raises))
    assert job.errors[-1].error.startswith("OSError: closing")
    assert "from ValueError: no" in job.errors[-1].error


async def test_a_resource_may_say_what_an_error_means() -> None:
    async def opens() -> AsyncIterator[Session]:
        try:
            yield Session([], "")
        except ValueError as error:
            raise awa.Cancel("not for us") from error

    job = await worked(attempt_rig(opens, raises))
    assert job.state is S.CANCELLED


async def test_what_the_attempts_nursery_collects_comes_in_a_group() -> None:
    """As of every nursery: of one child as of two."""

    async def one_child(job: Job) -> None:
        job.nursery.start_soon(raises, job)

    async def opens() -> AsyncIterator[Session]:
        try:
            yield Session([], "")
        except* ValueError as group:
            raise awa.Cancel("not for us") from group

    assert (await worked(attempt_rig(opens, one_child))).state is S.CANCELLED
    assert (await worked(attempt_rig(opens, fails_in_a_group))).state is S.CANCELLED


@pytest.mark.parametrize("handler", [raises, fails_in_a_group])
async def test_a_resource_cannot_swallow_an_error(handler: Any) -> None:
    async def opens() -> AsyncIterator[Session]:
        try:
            yield Session([], "")
        except* ValueError:
            pass

    rig = attempt_rig(opens, handler)
    job = await worked(rig)
    assert job.state is S.FAILED
    assert "ValueError: no" in job.errors[-1].error
    assert await rig.follow_ups() == []


async def test_a_resource_cannot_swallow_a_cut() -> None:
    async def opens() -> AsyncIterator[Session]:
        with trio.CancelScope() as own:
            try:
                yield Session([], "")
            except trio.Cancelled:
                own.cancel()

    rig = attempt_rig(opens, forever, deadline=30)
    job = await worked(rig)
    assert "the deadline of 30 s passed" in job.errors[-1].error


async def test_what_closing_raises_over_a_cut_is_recorded_with_it() -> None:
    async def opens() -> AsyncIterator[Session]:
        try:
            yield Session([], "")
        finally:
            raise OSError("closing")

    job = await worked(attempt_rig(opens, forever, deadline=30))
    assert "the deadline of 30 s passed" in job.errors[-1].error
    assert "OSError: closing" in job.errors[-1].error


async def test_closing_is_cut_too_and_the_attempt_with_it() -> None:
    """A handler that had returned in time: discarding is always safe."""
    cut_at = []

    async def opens() -> AsyncIterator[Session]:
        yield Session([], "")
        try:
            await trio.sleep_forever()
        finally:
            cut_at.append(trio.current_time())

    rig = attempt_rig(opens, deadline=30)
    began = trio.current_time()
    job = await worked(rig)
    assert cut_at == [pytest.approx(began + 30, abs=1)]
    assert "the deadline of 30 s passed" in job.errors[-1].error
    assert rig.trace == ["open cursor", "handler", "close cursor"]
    assert await rig.follow_ups() == []


@pytest.mark.parametrize("act", ["deadline", "stop", "cancel", "admin"])
async def test_opening_is_cut_too_and_the_handler_never_runs(act: str) -> None:
    async def opens() -> AsyncIterator[Session]:
        while True:
            await trio.sleep(1000)
            yield Session([], "")

    rig = attempt_rig(opens, deadline=30 if act == "deadline" else 0)
    job_id = await rig.enqueue()
    with trio.move_on_after(40 if act == "cancel" else 1000):
        async with rig.working(grace=1) as worker:
            await trio.sleep(20)
            if act == "stop":
                worker.stop()
            if act == "admin":
                await rig.client.jobs.cancel(job_id)
            await trio.sleep(11 if act != "cancel" else 1000)
    expected = {"deadline": S.RETRYABLE, "admin": S.CANCELLED}.get(act, S.AVAILABLE)
    job = await rig.client.jobs.get(job_id)
    assert job.state is expected
    assert job.attempt == (0 if expected is S.AVAILABLE else 1)
    assert rig.trace == ["open cursor", "close cursor"]


async def test_closing_that_shields_itself_is_settled_without_waiting_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def opens() -> AsyncIterator[Session]:
        yield Session([], "")
        with trio.CancelScope(shield=True):
            await trio.sleep(500)

    rig = attempt_rig(opens, deadline=30)
    job_id = await rig.enqueue(max_attempts=1)
    async with rig.working(grace=1000):
        await trio.sleep(40)
        assert await rig.state(job_id) is S.FAILED
        assert "has not ended" in caplog.text
    assert await rig.follow_ups() == []


async def test_background_work_of_a_resource_that_fails_fails_the_attempt() -> None:
    async def opens() -> AsyncIterator[Session]:
        async def background() -> None:
            await trio.sleep(5)
            raise ConnectionError("gone")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(background)
            yield Session([], "")

    rig = attempt_rig(opens, forever)
    job = await worked(rig, 10)
    assert "ConnectionError: gone" in job.errors[-1].error
    assert rig.trace[-2:] == ["handler", "close cursor"]


async def test_a_resource_that_gives_up_on_the_handler_says_so() -> None:
    async def opens() -> AsyncIterator[Session]:
        with trio.move_on_after(5):
            yield Session([], "")

    job = await worked(attempt_rig(opens, forever), 10)
    assert "the handler did not return" in job.errors[-1].error
    assert "a resource's scope was cancelled" in job.errors[-1].error


@pytest.mark.parametrize("handler", [returns, raises])
async def test_what_closing_stages_counts_if_the_attempt_completes(handler: Any) -> None:
    async def opens(job: Job) -> AsyncIterator[Session]:
        with pytest.raises(RuntimeError, match="no nursery"):
            _ = job.nursery
        try:
            yield Session([], "")
        finally:
            job.enqueue_on_completion(Next(7))

    rig = attempt_rig(opens, handler)
    await worked(rig)
    assert await rig.follow_ups() == ([0, 7] if handler is returns else [])


async def test_staging_that_fails_while_closing_poisons() -> None:
    async def opens(job: Job) -> AsyncIterator[Session]:
        yield Session([], "")
        try:
            job.enqueue_on_completion(Next(), priority=17)
        except awa.StagingInvalid:
            pass

    job = await worked(attempt_rig(opens))
    assert job.state is S.FAILED
    assert "StagingInvalid" in job.errors[-1].error


async def test_an_error_passes_a_resources_nursery_as_it_was() -> None:
    """Not in a group: a WaitForCallback in a group is an ordinary failure."""

    @asynccontextmanager
    async def opens() -> AsyncIterator[None]:
        async with trio.open_nursery():
            yield

    resource = Resource(key=Session, name="s", scope="attempt", open=opens, requests={})
    task = Task("k", Work, returns, KindDefaults("default", 2, 25, Work))
    lent = Resources(Wiring(attempts={"k": (resource, resource)}), 5).lend(
        task, HandlerJob(Work())
    )
    error = awa.WaitForCallback("t")
    held = lent[1]
    assert held is not None
    with pytest.raises(awa.WaitForCallback) as caught:
        async with held:
            raise error
    assert caught.value is error
    assert error.__context__ is None


async def test_each_attempt_has_its_own_and_each_worker() -> None:
    seen: list[tuple[Any, ...]] = []

    async def handle(job: Job, pool: Pool, session: Session, cursor: Cursor) -> None:
        seen.append((pool, session, cursor))
        await trio.sleep(1)

    rig = Traced(handle)
    for _ in range(3):
        await rig.enqueue()
    async with rig.working(queues={"default": 2}):
        await trio.sleep(10)
    async with rig.working():
        await rig.enqueue()
        await trio.sleep(10)
    pools, sessions, cursors = (list(one) for one in zip(*seen, strict=True))
    assert pools[0] is pools[1] is pools[2] is not pools[3]
    assert len(set(sessions)) == len(set(cursors)) == 4


async def test_context_variables_of_resources_reach_handlers_and_no_further() -> None:
    variable: contextvars.ContextVar[list[str]] = contextvars.ContextVar("v", default=[])  # noqa: B039
    seen = []

    async def handle(job: Job, pool: Pool, session: Session) -> None:
        seen.append(variable.get())
        variable.set([*variable.get(), "handler"])

    rig = Rig(handle)

    @rig.app.resource
    async def pool() -> AsyncIterator[Pool]:
        variable.set([*variable.get(), "worker"])
        yield Pool([], "")

    @rig.app.resource(scope="attempt")
    async def session() -> AsyncIterator[Session]:
        variable.set([*variable.get(), "attempt"])
        yield Session([], "")
        assert variable.get()[-1] == "handler"

    for _ in range(3):
        await rig.enqueue()
    async with rig.working(queues={"default": 1}):
        await trio.sleep(10)
    assert seen == [["worker", "attempt"]] * 3


@pytest.mark.real_time
async def test_threads_get_them_too() -> None:
    def handle(job: Job, pool: Pool, cursor: Cursor) -> None:
        assert threading.current_thread() is not threading.main_thread()
        pool.use()
        cursor.use()
        trace.append("handler")

    def plain(job: Job, pool: Pool) -> None:
        pool.use()
        trace.append("handler")

    for function in (handle, plain):
        rig = Traced(function)
        trace = rig.trace
        job_id = await rig.enqueue()
        async with rig.working():
            await in_state(rig, job_id, S.COMPLETED)
        assert "handler" in trace
        assert trace[-1] == "close pool"


async def test_a_handler_that_requests_nothing_pays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lend(*args: Any) -> Any:
        raise AssertionError("not for this one")

    monkeypatch.setattr(Resources, "lend", lend)
    rig = Traced(returns)
    job_id = await rig.enqueue()
    async with rig.working():
        await trio.sleep(10)
    assert await rig.state(job_id) is S.COMPLETED
    assert rig.trace == [], "what nothing requests is not opened"


# ---- the worker's


async def use_both(job: Job, pool: Pool, listener: Listener) -> object:
    if job.args.n:
        await trio.sleep(job.args.n)
    return None


def worker_rig(
    opens: Callable[..., AsyncIterator[Listener]], handler: Any = use_both, **task: Any
) -> Traced:
    """A rig with a pool, and in it a listener that a test opens itself."""
    rig = Traced(handler, **task)
    del rig.app._registry._resources[Listener]
    rig.app.resource(opens)
    return rig


async def test_what_cannot_be_opened_takes_the_worker_down_before_it_claims() -> None:
    async def broken(pool: Pool) -> AsyncIterator[Listener]:
        pool.use()
        fail(ConnectionError("refused"))
        yield Listener([], "")

    rig = worker_rig(broken)
    job_id = await rig.enqueue()
    with pytest.raises(awa.ResourceFailed) as caught:
        await rig.run()
    assert str(caught.value).startswith("resource Listener (test_what_cannot_be_opened")
    assert str(caught.value).endswith("broken) could not be opened: ConnectionError: refused")
    assert caught.value.resource is Listener
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert rig.trace == ["open pool", "close pool"]
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.attempt) == (S.AVAILABLE, 0)
    assert rig.store._workers == {}


@pytest.mark.parametrize(
    "error", [trio.TooSlowError(), KeyboardInterrupt(), ExceptionGroup("", [OSError()])]
)
async def test_it_comes_out_whatever_it_is(error: BaseException) -> None:
    async def broken(pool: Pool) -> AsyncIterator[Listener]:
        fail(error)
        yield Listener([], "")

    expected = awa.ResourceFailed if isinstance(error, Exception) else type(error)
    with pytest.raises(expected) as caught:
        await worker_rig(broken).run()
    cause = caught.value.__cause__ or caught.value
    assert cause is error or cause in getattr(error, "exceptions", ())


async def test_a_function_that_does_not_even_return_a_manager_is_named() -> None:
    rig = Traced(use_both)
    del rig.app._registry._resources[Listener]

    @rig.app.resource
    def listener() -> AbstractAsyncContextManager[Listener]:
        raise ZeroDivisionError

    with pytest.raises(awa.ResourceFailed, match=r"listener\) could not be opened: ZeroDiv"):
        await rig.run()
    assert rig.trace == ["open pool", "close pool"]


async def test_opening_is_waited_for_and_cut_with_the_worker() -> None:
    started: list[awa.Worker] = []
    cut_at = []

    async def slow(pool: Pool) -> AsyncIterator[Listener]:
        try:
            await trio.sleep(100)
        except trio.Cancelled:
            cut_at.append(trio.current_time())
            raise
        yield Listener([], "")

    rig = worker_rig(slow)
    job_id = await rig.enqueue()

    async def start() -> None:
        async with trio.open_nursery() as nursery:
            started.append(await nursery.start(rig.run))

    with trio.move_on_after(50) as scope:
        await start()
    assert scope.cancelled_caught
    assert (started, cut_at) == ([], [scope.deadline])
    assert trio.current_time() - scope.deadline < 1
    assert rig.trace == ["open pool", "close pool"]
    assert await rig.state(job_id) is S.AVAILABLE
    assert rig.store._workers == {}

    began = trio.current_time()
    with trio.move_on_after(200):
        await start()
    assert len(started) == 1
    assert await rig.state(job_id) is S.COMPLETED
    assert trio.current_time() - began < 202


async def test_nothing_is_opened_once_the_worker_is_cancelled() -> None:
    async def slow(pool: Pool) -> AsyncIterator[Listener]:
        with trio.CancelScope(shield=True):
            await trio.sleep(10)
        rig.trace.append("open after all")
        yield Listener([], "")
        rig.trace.append("closed")

    async def handle(job: Job, pool: Pool, listener: Listener, cursor: Cursor) -> None:
        raise AssertionError("never")

    rig = worker_rig(slow, handle)
    await rig.enqueue()
    with trio.move_on_after(5):
        await rig.run()
    assert rig.trace == ["open pool", "open after all", "closed", "close pool"]


async def test_a_resource_that_fails_later_stops_the_worker_at_once() -> None:
    async def crashes(pool: Pool) -> AsyncIterator[Listener]:
        async def background() -> None:
            await trio.sleep(10)
            raise ConnectionError("gone")

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(background)
                yield Listener([], "")
        finally:
            pool.use()
            await trio.sleep(1)  # it has time to close
            rig.trace.append("closed")

    async def handle(job: Job, pool: Pool, listener: Listener) -> None:
        job.enqueue_on_completion(Next())
        if job.args.n:
            with trio.CancelScope(shield=True):
                await trio.sleep(30)
            pool.use()
        else:
            await trio.sleep_forever()

    rig = worker_rig(crashes, handle)
    willing, stubborn = await rig.enqueue(0), await rig.enqueue(1)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def look() -> None:
            await trio.sleep(11)
            assert await rig.state(willing) is S.AVAILABLE
            await trio.sleep(6)
            assert await rig.state(stubborn) is S.AVAILABLE, "settled without waiting for it"

        with pytest.raises(
            awa.ResourceFailed, match=r"\) failed: ConnectionError: gone$"
        ) as caught:
            await rig.run(grace=1000)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert rig.trace == ["open pool", "closed", "close pool"]
    job = await rig.client.jobs.get(willing)
    assert (job.state, job.attempt, job.errors) == (S.AVAILABLE, 0, [])
    assert await rig.follow_ups() == []
    assert rig.store._workers == {}


async def test_a_resource_may_not_end_the_worker_in_silence() -> None:
    async def ends(pool: Pool) -> AsyncIterator[Listener]:
        with trio.move_on_after(10):
            yield Listener([], "")

    rig = worker_rig(ends)
    with pytest.raises(awa.ResourceFailed, match="ended while the worker needed it"):
        await rig.run()
    assert rig.trace == ["open pool", "close pool"]


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_closing_that_fails_comes_out_when_all_is_settled_and_closed(how: str) -> None:
    async def breaks(pool: Pool) -> AsyncIterator[Listener]:
        yield Listener([], "")
        pool.use()
        raise OSError("closing")

    rig = worker_rig(breaks)
    job_id = await rig.enqueue(8)
    scope = trio.CancelScope()
    with pytest.raises(awa.ResourceFailed, match="failed: OSError: closing") as caught:
        with scope:
            async with alone(), trio.open_nursery() as nursery:
                worker = await nursery.start(rig.run)
                await trio.sleep(5)
                if how == "stop":
                    worker.stop()
                else:
                    scope.cancel()
    assert isinstance(caught.value.__cause__, OSError)
    assert await rig.state(job_id) is (S.COMPLETED if how == "stop" else S.AVAILABLE)
    assert rig.trace == ["open pool", "close pool"]
    assert rig.store._workers == {}


async def test_what_closing_raises_goes_through_the_resources_around_it() -> None:
    async def breaks(pool: Pool) -> AsyncIterator[Listener]:
        yield Listener([], "")
        raise OSError("closing")

    rig = worker_rig(breaks)
    seen: list[BaseException] = []
    del rig.app._registry._resources[Pool]

    @rig.app.resource
    async def pool() -> AsyncIterator[Pool]:
        async with trio.open_nursery():
            try:
                yield Pool(rig.trace, "pool")
            except awa.ResourceFailed as error:
                seen.append(error)
                raise

    with pytest.raises(awa.ResourceFailed, match="resource Listener") as caught:
        async with alone(), trio.open_nursery() as nursery:
            (await nursery.start(rig.run)).stop()
    assert seen == [caught.value]


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_closing_gets_some_time_even_if_the_caller_is_cancelled(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def slow(pool: Pool) -> AsyncIterator[Listener]:
        async with traced(Listener(rig.trace, "listener")) as made:
            yield made
            await trio.sleep(3)
            rig.trace.append("flushed")
            await trio.sleep_forever()

    rig = worker_rig(slow)
    del rig.app._registry._resources[Pool]

    @rig.app.resource
    async def pool() -> AsyncIterator[Pool]:
        async with traced(Pool(rig.trace, "pool")) as made:
            yield made
            await trio.sleep(4)
            rig.trace.append("flushed")

    with trio.move_on_after(10 if how == "cancel" else 1000):
        async with rig.working() as worker:
            await trio.sleep(10)
            worker.stop()
    took = trio.current_time() - 10
    assert rig.trace[2:] == ["flushed", "close listener", "flushed", "close pool"]
    assert 9 <= took < 10.5, "5 s for the one, 4 s for the other"
    assert caplog.text.count("did not close within 5 s") == 1
    assert "slow) did not close" in caplog.text


async def test_jobs_settle_and_the_worker_beats_while_resources_close() -> None:
    async def slow(pool: Pool) -> AsyncIterator[Listener]:
        yield Listener([], "")
        states.append(await rig.state(job_id))
        await trio.sleep(1)
        states.append(await rig.state(job_id))
        await trio.sleep(100)
        states.append(len(rig.store._workers))

    async def slowly(plans: Any, settle: Any) -> Any:
        await trio.sleep(0.5)
        return await settle()

    states: list[Any] = []
    rig = worker_rig(slow)
    job_id = await rig.enqueue(8)
    rig.backend.faults.append(slowly)
    async with rig.working(timings=awa.Timings(close_timeout=200)) as worker:
        await trio.sleep(5)
        worker.stop()
    assert states == [S.RUNNING, S.COMPLETED, 1]


async def test_a_settlement_that_waits_for_the_database_survives_a_failing_close() -> None:
    async def breaks(pool: Pool) -> AsyncIterator[Listener]:
        yield Listener([], "")
        raise OSError("closing")

    async def slowly(plans: Any, settle: Any) -> Any:
        await trio.sleep(3)
        return await settle()

    rig = worker_rig(breaks)
    job_id = await rig.enqueue(8)
    rig.backend.faults.append(slowly)
    with pytest.raises(awa.ResourceFailed):
        async with alone(), trio.open_nursery() as nursery:
            worker = await nursery.start(rig.run)
            await trio.sleep(5)
            worker.stop()
    assert await rig.state(job_id) is S.COMPLETED


# ---- given instances, and mistakes


async def test_an_instance_stands_in_for_a_resource_and_is_the_callers_to_close() -> None:
    seen = []

    async def handle(job: Job, pool: Pool, listener: Listener, session: Session) -> None:
        seen.append((pool, listener, session))

    rig = Traced(handle)
    mine = Listener([], "mine"), Session([], "mine")
    await rig.enqueue()
    async with rig.working(resources=dict(zip((Listener, Session), mine, strict=True))):
        await trio.sleep(10)
    assert seen[0][1:] == mine
    assert rig.trace == ["open pool", "close pool"]
    assert mine[0].open


async def test_what_nobody_provides_is_said_before_anything_is_opened() -> None:
    class Unknown: ...

    rig = Traced(use_both)

    @rig.app.resource(scope="attempt")
    async def session(unknown: Unknown) -> AsyncIterator[int]:
        yield 1

    async def handle(job: awa.Job[Next], number: int) -> None: ...

    rig.app = awa.App()
    rig.app.task(args=Next, kind="other")(handle)
    with pytest.raises(awa.ConfigurationError, match="requests int as its parameter 'number'"):
        await rig.run()
    assert rig.trace == []


async def test_what_a_handler_raises_by_itself_is_in_no_group() -> None:
    """A WaitForCallback in a group could not say whose token it is."""
    error = awa.WaitForCallback("t")
    for held in (None, _gives_nothing()):
        job = HandlerJob(Work())
        async with Enclosure() as enclosure:
            ended = await Attempt(cast("Any", job._row), 1).run(
                throws(error), job, enclosure, held
            )
        assert ended == Raised(error)
    job = HandlerJob(Work())
    async with Enclosure() as enclosure:
        ended = await Attempt(cast("Any", job._row), 1).run(fails_in_a_group, job, enclosure)
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, ExceptionGroup)


@asynccontextmanager
async def _gives_nothing() -> AsyncIterator[dict[str, Any]]:
    yield {}
