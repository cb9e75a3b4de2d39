"""Observers are told what happened after it did, and can hurt nobody."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio import events
from awa_trio._core.job import PreparedInsert, reserved_trace
from awa_trio._core.request import MAX_REQUEST_BYTES, EnqueueRequest, prepare, stamped
from awa_trio._runtime.observing import Observers, observers_or_none
from awa_trio._seam.errors import Rejected, Transient
from awa_trio._seam.values import Want
from awa_trio.testing import memory_client, work_one

from . import faults
from .rig import Next, Rig, Work

S = awa.JobState
Job = awa.Job[Work]
E = events.Ending

virtual = pytest.mark.virtual_time


class Recorder(awa.Observer):
    """Keeps what it is told, without what a worker says of itself unless asked."""

    def __init__(self) -> None:
        self.all: list[events.Event] = []

    def observe(self, event: events.Event) -> None:
        self.all.append(event)

    def of(self, *kinds: type) -> list[Any]:
        return [event for event in self.all if isinstance(event, kinds)]

    def story(self) -> list[str]:
        """The names of what happened to jobs."""
        about_workers = (
            events.Claimed, events.Finalized, events.Sampled, events.Listening, events.Stopped,
        )  # fmt: skip
        return [
            type(event).__name__ for event in self.all if not isinstance(event, about_workers)
        ]


async def nothing(job: Job) -> None:
    pass


async def staging(job: Job) -> object:
    job.enqueue_on_completion(Next(1), unique_opts={})
    job.enqueue_on_completion(Next(1), unique_opts={})
    match job.args.n:
        case 1:
            raise ValueError("no")
        case 2:
            return awa.RetryAfter(1000)
        case 3:
            return awa.Snooze(1000)
        case 4:
            return awa.Cancel("no")
        case 6:
            await trio.sleep_forever()
        case 7:
            try:
                job.enqueue_on_completion(object())
            except awa.StagingError:
                pass
        case 8:
            raise awa.RetryAfter(1000)
        case 9:
            raise awa.TerminalError
        case _:
            pass
    return None


class Equal(Recorder):
    """Has an equality and no hash, as classes of attrs and dataclasses do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)


async def test_observers_are_told_apart_by_what_they_are_and_not_by_what_they_equal() -> None:
    first, second = Equal(), Equal()
    observers = Observers([first, second, first])
    observers.tell(events.Stopped(1))
    assert (len(first.all), len(second.all)) == (1, 1)
    observers._drop(first, ValueError("no"))
    observers.tell(events.Stopped(2))
    assert (len(first.all), len(second.all)) == (1, 2)


@virtual
async def test_the_story_of_a_job_that_stages() -> None:
    rig, seen = Rig(staging), Recorder()
    async with rig.working(observers=[seen], name="w"):
        job_id = await rig.enqueue()
        await trio.sleep(3)
    assert seen.story() == ["Started", "Ended", "Settled"]
    [started, ended, settled] = seen.of(events.Started, events.Ended, events.Settled)
    assert started.job == events.JobRef(job_id, "work", "default", 1, 25)
    assert started.job == ended.job == settled.job
    assert started.worker_id == ended.worker_id == settled.worker_id == 1
    assert 0 <= started.delay < 3
    assert (ended.ending, ended.staged, ended.error) == (E.COMPLETED, ("next", "next"), None)
    assert (settled.from_state, settled.to_state) == (S.RUNNING, S.COMPLETED)
    first, second = settled.staged
    assert (first.kind, first.queue, first.holder_id) == ("next", "next", None)
    assert (second.id, second.holder_id) == (None, first.id)
    assert settled.registered == ()


@virtual
@pytest.mark.parametrize(
    ("n", "ending", "state", "why"),
    [
        (1, E.RAISED, S.RETRYABLE, "retryable"),
        (2, E.RETRY_AFTER, S.RETRYABLE, "retryable"),
        (3, E.SNOOZE, S.SCHEDULED, "scheduled"),
        (4, E.CANCEL, S.CANCELLED, "cancelled"),
        (6, E.DEADLINE, S.RETRYABLE, "retryable"),
        (7, E.POISONED, S.FAILED, "failed"),
        (8, E.RETRY_AFTER, S.RETRYABLE, "retryable"),
        (9, E.RAISED, S.FAILED, "failed"),
    ],
)
async def test_every_other_ending_discards(
    n: int, ending: events.Ending, state: awa.JobState, why: str
) -> None:
    rig, seen = Rig(staging, deadline=2), Recorder()
    await rig.enqueue(n)
    async with rig.working(observers=[seen], queues={"default": 1}):
        await trio.sleep(2.5)
    assert seen.story()[:4] == ["Started", "Ended", "Discarded", "Settled"]
    assert seen.of(events.Ended)[0].ending is ending
    [discarded, *_] = seen.of(events.Discarded)
    assert (discarded.kinds, discarded.why) == (("next", "next"), why)
    assert seen.of(events.Settled)[0].to_state is state
    assert seen.of(events.Settled)[0].staged == ()


@virtual
async def test_a_shutdown_hands_back_and_says_so() -> None:
    rig, seen = Rig(staging), Recorder()
    await rig.enqueue(6)
    async with rig.working(observers=[seen], grace=1):
        await trio.sleep(1)
    [ended] = seen.of(events.Ended)
    [settled] = seen.of(events.Settled)
    assert (ended.ending, settled.to_state) == (E.SHUTDOWN, S.AVAILABLE)


@virtual
async def test_a_job_cancelled_by_someone_is_told_by_both() -> None:
    rig, seen = Rig(staging), Recorder()
    rig.client._observers = observers_or_none([seen])
    rig.client.jobs._mover._observers = rig.client._observers
    async with rig.working(observers=[seen]):
        job_id = await rig.enqueue(6)
        await trio.sleep(2)
        await rig.client.jobs.cancel(job_id)
        await trio.sleep(2)
    assert seen.story() == ["Enqueued", "Started", "Settled", "Ended", "Discarded", "Stale"]
    [settled] = seen.of(events.Settled)
    assert (settled.to_state, settled.worker_id) == (S.CANCELLED, None)
    assert seen.of(events.Ended)[0].ending is E.CANCELLED
    assert seen.of(events.Discarded)[0].why == "stale"


@virtual
async def test_a_settlement_that_comes_too_late_is_stale_and_its_follow_ups_discarded() -> None:
    rig, seen = Rig(staging), Recorder()
    job_id = await rig.enqueue()

    async def cancel_first(plans: Any, settle: faults.Settle) -> Any:
        await rig.client.jobs.cancel(job_id)
        return await settle()

    rig.backend.faults.append(cancel_first)
    async with rig.working(observers=[seen]):
        await trio.sleep(2)
    assert seen.story() == ["Started", "Ended", "Discarded", "Stale"]
    assert seen.of(events.Discarded)[0].why == "stale"


@virtual
async def test_a_settlement_the_database_refuses() -> None:
    rig, seen = Rig(staging), Recorder()

    async def refuse(plans: Any, settle: faults.Settle) -> Any:
        raise Rejected("a trigger of the user's")

    rig.backend.faults.append(refuse)
    await rig.enqueue()
    async with rig.working(observers=[seen]):
        await trio.sleep(2)
    assert seen.story() == ["Started", "Ended", "Discarded", "Settled"]
    assert seen.of(events.Discarded)[0].why == "refused"
    assert seen.of(events.Settled)[0].to_state is S.FAILED


@virtual
async def test_a_settlement_that_is_given_up() -> None:
    rig, seen = Rig(nothing), Recorder()
    rig.backend.faults.extend([faults.lose_the_answer] * 4)
    await rig.enqueue()
    async with rig.working(observers=[seen]):
        await trio.sleep(30)
    assert seen.story() == ["Started", "Ended", "GivenUp"]


@virtual
async def test_a_rescue_says_whom_and_why() -> None:
    rig, seen = Rig(nothing), Recorder()
    job_id = await rig.enqueue()
    dead = await rig.store.register("dead", 30)
    await rig.store.claim(dead, [Want("default", 1, 0)], {"work": None})
    async with rig.working(observers=[seen]):
        await trio.sleep(60)
    rescue = next(event for event in seen.of(events.Settled) if event.rescued is not None)
    assert rescue.job.id == job_id
    assert (rescue.rescued, rescue.worker_id) == (events.Lost.STALE_WORKER, None)
    assert rescue.to_state is S.RETRYABLE


@virtual
async def test_a_worker_that_is_fenced_says_so() -> None:
    rig, seen = Rig(staging), Recorder()
    await rig.enqueue(6)
    async with rig.working(observers=[seen]) as worker:
        await trio.sleep(1)
        rig.store._workers[worker.id].fenced_at = trio.current_time()
        await trio.sleep(10)
    assert seen.of(events.Fenced) == [events.Fenced(1)]
    assert seen.of(events.Ended)[0].ending is E.LEASE_LOST


@virtual
async def test_claims_transactions_and_samples_are_told() -> None:
    rig, seen = Rig(staging), Recorder()
    for n in (0, 6, 0):
        await rig.enqueue(n)
    await rig.enqueue(n=5)
    timings = awa.Timings(sample_interval=1)
    options = {"queues": {"default": 2}, "timings": timings, "grace": 1}
    async with rig.working(observers=[seen], **options):
        await trio.sleep(10)
        for _ in range(3):
            await rig.enqueue(6)
        await trio.sleep(10)
        last = seen.of(events.Sampled)[-1]
    assert sum(len(claim.jobs) for claim in seen.of(events.Claimed)) == 5
    assert all(claim.seconds >= 0 for claim in seen.of(events.Claimed))
    assert {claim.queues for claim in seen.of(events.Claimed)} == {("default",)}
    assert sum(done.settlements for done in seen.of(events.Finalized)) == 5
    assert seen.of(events.Listening) == [events.Listening(True)]
    assert (last.running, last.overdue, last.finalizing, last.listening) == (2, 0, 0, True)
    [queue] = last.queues
    assert (queue.queue, queue.slots, queue.slots_in_use, queue.due) == ("default", 2, 2, 2)
    assert queue.oldest == pytest.approx(9, abs=1.1)


@virtual
async def test_handlers_that_wait_for_callbacks_are_sampled() -> None:
    async def waits(job: Job) -> None:
        await job.wait_for_callback(await job.register_callback(1000))

    rig, seen = Rig(waits), Recorder()
    await rig.enqueue()
    timings = awa.Timings(sample_interval=1)
    async with rig.working(observers=[seen], timings=timings, grace=1):
        await trio.sleep(5)
        last = seen.of(events.Sampled)[-1]
    assert (last.running, last.waiting, last.queues[0].slots_in_use) == (1, 1, 0)


@virtual
async def test_an_attempt_that_is_overdue_is_told_when_it_is_settled() -> None:
    async def stubborn(job: Job) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    rig, seen = Rig(stubborn, deadline=10), Recorder()
    await rig.enqueue(max_attempts=1)
    async with rig.working(observers=[seen]):
        await trio.sleep(50)
        assert seen.story() == ["Started", "Ended", "Settled"]
        assert seen.of(events.Ended)[0].ending is E.DEADLINE
        assert seen.of(events.Sampled)[-1].overdue == 1
        await trio.sleep(60)
        assert seen.story() == ["Started", "Ended", "Settled"]


@virtual
async def test_undecodable_arguments_are_an_attempt_too() -> None:
    async def reads(job: Job) -> None:
        raise AssertionError(job.args)

    rig, seen = Rig(reads), Recorder()
    await awa.Client(rig.backend, None).enqueue({"n": "not a number"}, kind="work")
    async with rig.working(observers=[seen]):
        await trio.sleep(2)
    assert seen.story() == ["Started", "Ended", "Settled"]
    assert isinstance(seen.of(events.Ended)[0].error, awa.UndecodableArgs)


@virtual
async def test_registered_and_staged_follow_ups_are_told_apart() -> None:
    rig, seen = Rig(staging), Recorder()
    rig.app.on_completed(Work)(lambda args, job: Next(7))
    await rig.enqueue()
    async with rig.working(observers=[seen]):
        await trio.sleep(2)
    [settled] = seen.of(events.Settled)
    assert (len(settled.registered), len(settled.staged)) == (1, 2)


@virtual
async def test_a_raising_follow_up_function_discards_what_was_staged() -> None:
    rig, seen = Rig(staging), Recorder()
    rig.app.on_completed(Work)(lambda args, job: 1 / 0)
    await rig.enqueue()
    async with rig.working(observers=[seen]):
        await trio.sleep(2)
    [ended] = seen.of(events.Ended)
    assert (ended.ending, type(ended.error)) == (E.COMPLETED, awa.FollowUpError)
    assert seen.of(events.Discarded)[0].why == "failed"
    assert seen.of(events.Settled)[0].to_state is S.FAILED


# ---- clients


@virtual
async def test_a_client_tells_what_it_enqueued() -> None:
    seen = Recorder()
    client = memory_client(observers=[seen])
    first = await client.enqueue(Work(), unique_opts={})
    await client.enqueue_many([Work(), Work(2)], unique_opts={})
    await client.enqueue_many([])
    one, many = seen.of(events.Enqueued)
    assert one.jobs == (events.Insert("work", "default", first.id),)
    assert [(job.id is None, job.holder_id) for job in many.jobs] == [
        (True, first.id),
        (False, None),
    ]


async def test_a_transaction_tells_when_it_has_committed(migrated: str) -> None:
    seen = Recorder()
    async with awa.connect(migrated, observers=[seen]) as client:
        async with client.transaction() as transaction:
            await transaction.enqueue(Work())
            await transaction.enqueue_many([Work(), Work()])
            assert seen.all == []
        assert [len(event.jobs) for event in seen.of(events.Enqueued)] == [1, 2]
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as transaction:
                await transaction.enqueue(Work())
                raise ZeroDivisionError
        assert len(seen.all) == 2


async def test_a_worker_tells_the_observers_of_its_client_once(migrated: str) -> None:
    seen, own = Recorder(), Recorder()
    app = awa.App()
    app.task(args=Work)(nothing)
    async with awa.connect(migrated, app=app, observers=[seen]) as client:
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                await awa.run_worker(
                    app, client, observers=[own, seen], task_status=task_status
                )

            worker = await nursery.start(run)
            job = await client.enqueue(Work())
            with trio.fail_after(20):
                await client.jobs.wait(job.id)
            worker.stop()
    assert own.story() == ["Started", "Ended", "Settled"]
    assert sorted(seen.story()) == ["Ended", "Enqueued", "Settled", "Started"]


async def test_a_listener_that_loses_its_connection_is_told(migrated: str) -> None:
    seen = Recorder()
    app = awa.App()
    app.task(args=Work)(nothing)
    async with awa.connect(migrated, app=app, observers=[seen]) as client:
        async with trio.open_nursery() as nursery:
            worker = await nursery.start(awa.run_worker, app, client)
            with psycopg.connect(migrated, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
                )
            with trio.fail_after(20):
                while len(seen.of(events.Listening)) < 3:
                    await trio.sleep(0.01)
            worker.stop()
    assert [event.connected for event in seen.of(events.Listening)] == [True, False, True]


@virtual
async def test_work_one_tells_the_observers_of_the_client() -> None:
    seen = Recorder()
    app = awa.App()
    app.task(args=Work)(nothing)
    client = memory_client(app, observers=[seen])
    await client.enqueue(Work())
    await work_one(app, client)
    assert seen.story() == ["Enqueued", "Started", "Ended", "Settled"]


# ---- observers that misbehave


class Raising(awa.Observer):
    def __init__(self, method: str) -> None:
        self.method = method
        self.calls = 0

    def _do(self, method: str) -> None:
        if method == self.method:
            self.calls += 1
            raise ValueError("a canary")

    def observe(self, event: events.Event) -> None:
        self._do("observe")

    def attempt(self, started: events.Started) -> AbstractContextManager[None]:
        self._do("attempt")
        return self._block()

    @contextmanager
    def _block(self) -> Iterator[None]:
        self._do("enter")
        yield
        self._do("exit")

    def enqueue(self, jobs: Sequence[events.Insert]) -> AbstractContextManager[None]:
        self._do("enqueue")
        return self._block()

    def trace(self) -> Mapping[str, str] | None:
        self._do("trace")
        return None


@virtual
@pytest.mark.parametrize("method", ["observe", "attempt", "enter", "exit", "enqueue", "trace"])
async def test_an_observer_that_raises_is_logged_once_and_dropped(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    raising, seen = Raising(method), Recorder()
    app = awa.App()
    app.task(args=Work)(staging)
    app.declare(Next)
    client = memory_client(app, observers=[raising, seen])
    for _ in range(3):
        await client.enqueue(Work())
    for _ in range(3):
        worked = await work_one(app, client)
        assert worked is not None
        assert worked.state is S.COMPLETED
    # The client's list and each workbench's are lists of their own.
    said = [r for r in caplog.records if r.name == "awa_trio.observers"]
    assert len(said) == raising.calls <= 4
    assert "Raising raised ValueError" in said[0].getMessage()
    assert "a canary" not in caplog.text
    assert len(seen.of(events.Settled)) == 3


@virtual
async def test_a_worker_survives_all_of_that(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(staging)
    methods = ("observe", "attempt", "enter", "exit", "trace")
    raising = [Raising(method) for method in methods]
    async with rig.working(observers=raising, queues={"default": 1}):
        ids = [await rig.enqueue(n) for n in range(3)]
        await trio.sleep(3)
    assert [await rig.state(i) for i in ids] == [S.COMPLETED, S.RETRYABLE, S.RETRYABLE]
    assert [one.calls for one in raising] == [1] * 5


@virtual
async def test_what_is_no_observer_is_refused() -> None:
    for wrong in (Recorder, object(), print):
        with pytest.raises(TypeError, match="give instances of"):
            memory_client(observers=[wrong])  # type: ignore[list-item]
    for no_list in (Recorder(), 5, "telemetry"):
        with pytest.raises(TypeError, match="observers: give a list of instances of"):
            memory_client(observers=no_list)  # type: ignore[arg-type]


def test_whoever_has_no_observers_has_nothing() -> None:
    assert observers_or_none([], ()) is None


def test_what_is_not_overridden_is_not_called() -> None:
    observers = Observers([Recorder()])
    assert (observers._attempting, observers._enqueueing, observers._tracing) == ((), (), ())


def test_an_exception_passes_through_blocks_as_it_was() -> None:
    class Swallowing(awa.Observer):
        @contextmanager
        def _block(self) -> Iterator[None]:
            try:
                yield
            except ValueError:
                pass

        def enqueue(self, jobs: Sequence[events.Insert]) -> AbstractContextManager[None]:
            return self._block()

    with pytest.raises(ValueError, match="mine"):
        with Observers([Swallowing()]).enqueue([]):
            raise ValueError("mine")


# ---- blocks


who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Naming(awa.Observer):
    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        token = who.set(name)
        yield
        who.reset(token)

    def attempt(self, started: events.Started) -> AbstractContextManager[None]:
        return self._named(f"job {started.job.id}")


@virtual
async def test_a_block_is_around_the_handler_its_tasks_and_its_thread() -> None:
    seen: list[str] = []

    async def child() -> None:
        seen.append(who.get())

    async def handler(job: Job) -> None:
        job.nursery.start_soon(child)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        seen.append(who.get())

    rig = Rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(observers=[Naming()]):
        await trio.sleep(2)
    assert seen == [f"job {job_id}"] * 3
    assert who.get() == "nobody"


async def test_a_block_is_around_the_thread_of_an_ordinary_function() -> None:
    seen: list[str] = []
    app = awa.App()
    app.task(args=Work)(lambda job: seen.append(who.get()))
    client = memory_client(app, observers=[Naming()])
    job = await client.enqueue(Work())
    await work_one(app, client)
    assert seen == [f"job {job.id}"]


# ---- trace contexts

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01"


class Tracing(awa.Observer):
    def __init__(self, *traces: Mapping[str, str] | None) -> None:
        self.traces = list(traces)

    def trace(self) -> Mapping[str, str] | None:
        return self.traces.pop(0) if self.traces else None


@virtual
async def test_a_trace_context_is_kept_with_the_job_and_hidden_from_its_metadata() -> None:
    client = memory_client(observers=[Tracing({"traceparent": PARENT, "tracestate": "a=b"})])
    job = await client.enqueue(Work(), metadata={"mine": 1})
    other = await client.enqueue(Work())
    found = await client.jobs.get(job.id)
    assert found.trace == {"traceparent": PARENT, "tracestate": "a=b"}
    assert (found.traceparent, found.metadata) == (PARENT, {"mine": 1})
    assert (await client.jobs.get(other.id)).traceparent is None


@virtual
async def test_follow_ups_join_the_trace_of_the_moment_they_are_staged() -> None:
    tracing = Tracing(None, {"traceparent": PARENT}, {"traceparent": OTHER})
    app = awa.App()

    async def handler(job: Job) -> None:
        job.enqueue_on_completion(Next(1))
        job.enqueue_on_completion(Next(2))

    app.task(args=Work)(handler)
    app.declare(Next)
    client = memory_client(app, observers=[tracing])
    await client.enqueue(Work())
    await work_one(app, client)
    second, first = await client.jobs.list(kind="next")
    assert (first.traceparent, second.traceparent) == (PARENT, OTHER)
    assert first.triggered_by == 1


@virtual
async def test_without_anyone_who_traces_the_trace_is_passed_on() -> None:
    app = awa.App()
    seen: list[str | None] = []

    async def handler(job: Job) -> None:
        seen.append(job.traceparent)
        job.enqueue_on_completion(Next(1))

    app.task(args=Work)(handler)
    app.declare(Next)
    app.on_completed(Work)(lambda args, job: Next(2))
    client = memory_client(app, observers=[Tracing({"traceparent": PARENT})])
    await client.enqueue(Work())
    await work_one(app, client)
    assert seen == [PARENT]
    assert {job.traceparent for job in await client.jobs.list(kind="next")} == {PARENT}


def test_a_trace_context_does_not_count() -> None:
    codec = awa.Codec()

    @frozen
    class Args:
        text: str

    plain = prepare(EnqueueRequest(Args("x"), metadata={"a": 1}), codec)
    traced = stamped(plain, codec, reserved_trace({"traceparent": PARENT, "baggage": "no"}))
    assert traced.size == plain.size
    assert traced.metadata == b'{"a":1,"awa:traceparent":"' + PARENT.encode() + b'"}'
    full = prepare(EnqueueRequest(Args("x" * (MAX_REQUEST_BYTES - 40))), codec)
    assert stamped(full, codec, reserved_trace({"traceparent": PARENT})).args == full.args


def test_a_prepared_insert_shows_nothing_of_its_job() -> None:
    job = PreparedInsert(
        "k", "q", b'{"a":"canary"}', metadata=b'{"canary":1}', tags=("canary",)
    )
    assert "canary" not in repr(job)


@virtual
async def test_claims_that_fail_tell_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig, seen = Rig(nothing), Recorder()

    async def fail(*_: object) -> None:
        raise Transient("gone")

    rig.backend.broken["claim"] = fail
    caplog.set_level(logging.CRITICAL)
    async with rig.working(observers=[seen]):
        await trio.sleep(5)
    assert seen.of(events.Claimed) == []
