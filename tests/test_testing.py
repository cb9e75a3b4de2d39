"""The helpers for tests do what the runtime does, because they call it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from attrs import frozen
from trio.testing import MockClock

import awa_trio as awa
from awa_trio.testing import HandlerJob, drain, memory_client, work_one
from awa_trio.testing.fixtures import awa_memory_client  # noqa: F401

from .engines import ENGINES, client_on

S = awa.JobState
app = awa.App()


@frozen
class Stage:
    how: str


@frozen
class Then:
    n: int


@app.task(deadline=5)
async def stage(job: awa.Job[Stage]) -> object:
    job.enqueue_on_completion(Then(1), unique_opts={}, queue="then")
    match job.args.how:
        case "raise":
            raise ValueError("no")
        case "terminal":
            raise awa.TerminalError("no")
        case "retry":
            return awa.RetryAfter(60)
        case "snooze":
            return awa.Snooze(60)
        case "cancel":
            return awa.Cancel("no")
        case "wait":
            return awa.WaitForCallback(await job.register_callback())
        case "wait for another":
            await job.register_callback()
            return awa.WaitForCallback("another")
        case "poison":
            try:
                job.enqueue_on_completion(Then("not a number"))  # type: ignore[arg-type]
            except awa.StagingError:
                pass
        case "deadline":
            await trio.sleep_forever()
        case "unknown":
            return 42
    return None


@frozen
class Report:
    how: str


@app.task(queue="report")
async def report(job: awa.Job[Report]) -> object:
    job.progress.set(percent=50)
    job.set_output(["read"])
    await job.flush_progress()
    return awa.RetryAfter(60) if job.args.how == "retry" else None


@app.task(queue="then", args=Then)
def then(job: awa.Job[Then]) -> None: ...


@pytest.fixture(params=ENGINES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        yield client


@pytest.mark.parametrize(
    ("how", "state", "error", "follow_ups"),
    [
        ("complete", S.COMPLETED, None, 1),
        ("unknown", S.COMPLETED, None, 1),
        ("raise", S.RETRYABLE, "ValueError: no", 0),
        ("terminal", S.FAILED, "TerminalError: no", 0),
        ("retry", S.RETRYABLE, None, 0),
        ("snooze", S.SCHEDULED, None, 0),
        ("cancel", S.CANCELLED, "cancelled: no", 0),
        ("wait", S.WAITING_EXTERNAL, None, 0),
        ("wait for another", S.FAILED, "CallbackInvalid: WaitForCallback needs the token", 0),
        ("poison", S.FAILED, "StagingInvalid", 0),
    ],
)
async def test_one_job_is_worked_as_a_worker_would(
    client: awa.Client, how: str, state: awa.JobState, error: str | None, follow_ups: int
) -> None:
    await client.enqueue(Stage(how))
    worked = await work_one(app, client)
    assert worked is not None
    assert worked.state is state
    if error is None:
        assert worked.error is None
    else:
        assert worked.error is not None
        assert error in worked.error
    assert len(await client.jobs.list(queue="then")) == follow_ups


@pytest.mark.parametrize(
    ("how", "percent", "output"), [("complete", None, ["read"]), ("retry", 50, None)]
)
async def test_progress_and_output_are_kept_as_by_a_worker(
    client: awa.Client, how: str, percent: float | None, output: object
) -> None:
    await client.enqueue(Report(how))
    worked = await work_one(app, client)
    assert worked is not None
    assert (worked.job.progress.percent, worked.job.output) == (percent, output)


@pytest.mark.virtual_time
async def test_a_deadline_passes_in_no_time() -> None:
    client = memory_client(app)
    await client.enqueue(Stage("deadline"))
    worked = await work_one(app, client)
    assert worked is not None
    assert worked.error is not None
    assert "the deadline of 5 s passed" in worked.error


@pytest.mark.virtual_time
async def test_a_callback_that_nobody_answers_times_out_in_no_time() -> None:
    """Of a handler that waits, and of a job that had parked."""
    waiting = awa.App()

    @waiting.task()
    async def stage(job: awa.Job[Stage]) -> object:
        token = await job.register_callback()
        if job.args.how == "park":
            return awa.WaitForCallback(token)
        return await job.wait_for_callback(token)

    client = memory_client(waiting)
    for how in ("wait", "park"):
        answer = await client.enqueue(Stage(how), max_attempts=1)
        worked = await work_one(waiting, client)
        assert worked is not None
        if how == "park":
            assert worked.state is S.WAITING_EXTERNAL
            await trio.sleep(3601)
            assert await work_one(waiting, client) is None
        job = await client.jobs.get(answer.id)
        assert (job.state, job.dead_letter) == (S.FAILED, "callback_timeout")


async def test_if_nothing_is_due_nothing_is_worked(client: awa.Client) -> None:
    assert await work_one(app, client) is None
    await client.enqueue(Stage("complete"))
    assert await work_one(app, client, kind="then") is None
    assert await work_one(app, client, queue="then") is None
    assert await work_one(app, client, kind="stage", queue="default") is not None


async def test_drain_works_follow_ups_too_and_leaves_no_worker(client: awa.Client) -> None:
    await client.enqueue_many([Stage("complete"), Stage("complete")])
    worked = await drain(app, client)
    assert [w.job.kind for w in worked] == ["stage", "stage", "then"]
    assert {w.state for w in worked} == {S.COMPLETED}
    assert worked[2].job.triggered_by == worked[0].job.id


async def test_a_chain_without_an_end_ends_the_test() -> None:
    endless = awa.App()

    @endless.task()
    async def then(job: awa.Job[Then]) -> None:
        job.enqueue_on_completion(Then(job.args.n + 1))

    client = memory_client(endless)
    await client.enqueue(Then(0))
    with pytest.raises(RuntimeError, match="give most"):
        await drain(endless, client, most=10)


async def test_an_interrupt_comes_out_and_is_recorded() -> None:
    interrupted = awa.App()

    @interrupted.task()
    async def then(job: awa.Job[Then]) -> None:
        raise KeyboardInterrupt

    client = memory_client(interrupted)
    answer = await client.enqueue(Then(0))
    with pytest.raises(KeyboardInterrupt):
        await work_one(interrupted, client)
    assert (await client.jobs.get(answer.id)).state is S.RETRYABLE


# ---- resources


class Wire:
    """A connection to somewhere."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.open = False


wires: list[Wire] = []
wired = awa.App()


@wired.resource
async def open_wire() -> AsyncIterator[Wire]:
    wire = Wire()
    wires.append(wire)
    wire.open = True
    yield wire
    wire.open = False


@wired.resource
async def broken() -> AsyncIterator[list[Wire]]:
    if len(wires) < 100:
        raise ConnectionError("no tests for this one")
    yield wires


@wired.task()
async def send(job: awa.Job[Then], wire: Wire) -> None:
    assert wire.open or wire not in wires
    wire.sent.append(job.args.n)
    if job.args.n > 0:
        job.enqueue_on_completion(Then(job.args.n - 1))


@wired.task(kind="never", args=Stage)
async def never(job: awa.Job[Stage], wires: list[Wire]) -> None: ...


@pytest.fixture
def wired_client() -> awa.Client:
    wires.clear()
    return memory_client(wired)


async def test_drain_opens_resources_once_and_closes_them(wired_client: awa.Client) -> None:
    await wired_client.enqueue(Then(3))
    assert len(await drain(wired, wired_client, kind="then")) == 4
    [wire] = wires
    assert (wire.sent, wire.open) == ([3, 2, 1, 0], False)


async def test_a_fake_stands_in_for_a_resource(wired_client: awa.Client) -> None:
    fake = Wire()
    for n in (1, 5):
        await wired_client.enqueue(Then(n))
    worked = await work_one(wired, wired_client, resources={Wire: fake, list[Wire]: []})
    assert worked is not None
    await drain(wired, wired_client, kind="then", resources={Wire: fake})
    assert sorted(fake.sent) == [0, 0, 1, 1, 2, 3, 4, 5]
    assert wires == []


async def test_only_what_the_kind_requests_is_opened(wired_client: awa.Client) -> None:
    answer = await wired_client.enqueue(Then(0))
    with pytest.raises(awa.ResourceFailed, match=r"broken.* no tests for this one"):
        await work_one(wired, wired_client)
    job = await wired_client.jobs.get(answer.id)
    assert (job.state, job.attempt) == (S.AVAILABLE, 0)
    worked = await work_one(wired, wired_client, kind="then")
    assert worked is not None
    assert worked.state is S.COMPLETED


async def test_a_resource_that_nothing_requests_is_no_stand_in(
    wired_client: awa.Client,
) -> None:
    with pytest.raises(awa.ConfigurationError, match="nothing requests Then"):
        await work_one(wired, wired_client, resources={Then: 1})


async def test_what_fails_while_a_job_is_worked_comes_out_and_the_job_goes_back() -> None:
    failing = awa.App()

    @failing.resource
    async def wire() -> AsyncIterator[Wire]:
        async def fail() -> None:
            await trio.sleep(0.05)
            raise ConnectionError("gone")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            yield Wire()

    @failing.task()
    async def then(job: awa.Job[Then], wire: Wire) -> None:
        await trio.sleep_forever()

    client = memory_client(failing)
    answer = await client.enqueue(Then(0))
    with pytest.raises(awa.ResourceFailed, match="gone"):
        await work_one(failing, client)
    job = await client.jobs.get(answer.id)
    assert (job.state, job.attempt) == (S.AVAILABLE, 0)


async def test_a_handler_is_called_with_fakes() -> None:
    fake = Wire()
    job = HandlerJob(Then(2), app=wired)
    await send(job, fake)
    assert (fake.sent, [staged.args for staged in job.staged]) == ([2], [Then(1)])


# ---- the stand-in


async def test_a_handler_runs_without_a_store() -> None:
    job = HandlerJob(Stage("complete"), app=app, attempt=3, metadata={"m": 1}, tags=["t"])
    assert (job.attempt, job.metadata, job.tags) == (3, {"m": 1}, ("t",))
    await stage(job)
    [staged] = job.staged
    assert (staged.args, staged.kind, staged.queue) == (Then(1), "then", "then")
    assert staged.unique_key is not None
    assert job.poison is None


async def test_it_has_the_same_limits_and_poison() -> None:
    job = HandlerJob(Stage("complete"))
    for n in range(16):
        job.enqueue_on_completion(Then(n), priority=4)
    with pytest.raises(awa.StagingTooMany):
        job.enqueue_on_completion(Then(16))
    assert [s.args.n for s in job.staged] == list(range(16))
    assert isinstance(job.poison, awa.StagingTooMany)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (Then("x"), {}),  # type: ignore[arg-type]
        (Then(1), {"priority": 0}),
        (Then(1), {"metadata": {"awa:x": 1}}),
        (object(), {}),
        ({"a": 1}, {}),
        (Then, {}),
        (Then(1), {"nonsense": 1}),
        (awa.EnqueueRequest(Then(1)), {"priority": 1}),
    ],
)
async def test_what_cannot_be_staged_is_refused_with_its_cause(
    args: object, options: dict[str, object]
) -> None:
    job = HandlerJob(Stage("complete"))
    with pytest.raises(awa.StagingInvalid) as caught:
        job.enqueue_on_completion(args, **options)  # type: ignore[arg-type]
    assert caught.value.__cause__ is not None
    assert caught.value.problem
    assert job.poison is caught.value
    assert job.staged == []


async def test_a_kind_the_app_does_not_know_cannot_be_staged() -> None:
    @frozen
    class Thn:
        n: int

    job = HandlerJob(Stage("complete"), app=app)
    with pytest.raises(awa.StagingInvalid, match="did you mean 'then'"):
        job.enqueue_on_completion(Thn(1))


async def test_sealed_it_refuses() -> None:
    job = HandlerJob(Stage("complete"))
    follow_ups = job.follow_ups
    job.seal()
    with pytest.raises(awa.StagingSealed):
        follow_ups.enqueue_on_completion(Then(1))
    assert job.poison is None


async def test_its_nursery_is_the_one_it_was_given() -> None:
    with pytest.raises(RuntimeError, match=r"give HandlerJob\(..., nursery="):
        _ = HandlerJob(Stage("x")).nursery
    async with trio.open_nursery() as nursery:
        assert HandlerJob(Stage("x"), nursery=nursery).nursery is nursery


async def test_a_whole_request_may_be_staged() -> None:
    job = HandlerJob(Stage("complete"))
    request = awa.EnqueueRequest(Then(5), queue="q").unique().metadata({"from": 1})
    job.enqueue_on_completion(request)
    [staged] = job.staged
    assert (staged.args, staged.queue, staged.metadata) == (Then(5), "q", {"from": 1})


async def test_it_takes_progress_and_output() -> None:
    job = HandlerJob(Stage("x"), progress={"percent": 40, "metadata": {"page": 3}})
    assert (job.progress.percent, job.progress.metadata) == (40, {"page": 3})
    job.progress.set(message="on it", metadata={"page": 4})
    await job.flush_progress()
    assert job.progress.message == "on it"
    assert HandlerJob(Stage("x")).output is None
    job.set_output({"pages": 4})
    assert job.output == {"pages": 4}
    with pytest.raises(awa.InvalidValue):
        job.set_output(object())
    with pytest.raises(awa.InvalidValue):
        job.progress.set(percent=-1)
    job.seal()
    with pytest.raises(awa.LeaseLost):
        job.progress.set(percent=1)
    with pytest.raises(awa.LeaseLost):
        await job.flush_progress()


async def test_its_own_completion_is_noted_and_no_transaction_opened() -> None:
    job = HandlerJob(Stage("x"), app=app)
    connection = object()
    async with job.complete_in(connection) as tx:
        assert tx.connection is connection
        assert (await tx.enqueue(Then(1))).inserted
        assert job.enqueued == []
    assert job.completed
    assert [e.args for e in job.enqueued] == [Then(1)]
    assert job.staged == []
    with pytest.raises(awa.StagingSealed):
        job.enqueue_on_completion(Then(2))
    with pytest.raises(awa.InvalidTransition):
        async with job.complete_in(connection):
            pass


async def test_a_block_that_raises_has_completed_nothing() -> None:
    async def raising(job: awa.Job[Stage]) -> None:
        async with job.complete_in(None) as tx:
            await tx.enqueue(Then(1))
            raise ZeroDivisionError

    async def staging(job: awa.Job[Stage]) -> None:
        async with job.complete_in(None):
            job.enqueue_on_completion(Then(1))

    for handler, error in ((raising, ZeroDivisionError), (staging, awa.StagingNotOffered)):
        job = HandlerJob(Stage("x"))
        with pytest.raises(error):
            await handler(job)
        assert (job.completed, job.enqueued) == (False, [])


# ---- time


@pytest.mark.virtual_time
async def test_a_day_of_retries_takes_no_time() -> None:
    """What the tutorial promises: schedules, backoffs and leases in virtual time."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    client = memory_client(app)
    answer = await client.enqueue(Stage("raise"), max_attempts=12)
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, app, client)
        with trio.fail_after(86_400):
            job = await client.jobs.wait(answer.id)
        worker.stop()
    assert (job.state, job.attempt, len(job.errors)) == (S.FAILED, 12, 12)


# ---- fixtures


@pytest.fixture
def awa_app() -> awa.App:
    return app


@pytest.mark.virtual_time
async def test_the_fixtures_client_in_memory_knows_the_app(
    awa_memory_client: awa.Client,  # noqa: F811
) -> None:
    with pytest.raises(awa.UnknownKind):
        await awa_memory_client.enqueue({}, kind="nobody_knows")
    await awa_memory_client.enqueue(Stage("complete"))
    assert [w.job.kind for w in await drain(app, awa_memory_client)] == ["stage", "then"]
