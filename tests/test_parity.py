"""What `work_one` makes of a job is what a worker makes of it, at every ending.

ADR-046, "Visibility and testing": the test harnesses behave like the runtime.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._core.plan import Plan, Transition
from awa_trio._store.memory.store import MemoryStore
from awa_trio.testing import work_one

from .engines import ENGINES, client_on

S = awa.JobState
app = awa.App()
app.queue("default", deadline=60)

#: No retry comes while a test looks.
LATER = 3600.0


@frozen
class End:
    how: str
    n: int
    """Which of the two jobs that end so: their follow-ups are none of each other's."""


@frozen
class Then:
    n: int
    what: str = ""


class Holding:
    """A resource of the attempt."""


@app.resource(scope="attempt")
async def hold(job: awa.Job[End]) -> AsyncIterator[Holding]:
    how = job.args.how
    if how == "a resource that does not open":
        raise ConnectionError("refused")
    try:
        yield Holding()
    finally:
        if how == "a resource that does not close":
            raise ConnectionError("gone")
        if how == "a resource that stages":
            job.enqueue_on_completion(Then(job.args.n, "by the resource"))


async def _raise(job: awa.Job[End], error: BaseException) -> None:
    raise error


async def end(job: awa.Job[End], holding: Holding) -> object:
    n = job.args.n
    job.enqueue_on_completion(Then(n, "staged"), unique_opts={}, metadata={"by": "it"})
    job.progress.set(percent=50, message="half of it")
    job.set_output({"how": job.args.how})
    start = job.nursery.start_soon
    match job.args.how:
        case "return something":
            return 42
        case "RetryAfter":
            return awa.RetryAfter(LATER)
        case "Snooze":
            return awa.Snooze(LATER)
        case "Cancel":
            return awa.Cancel("not wanted")
        case "raise":
            raise ValueError("no")
        case "raise TerminalError":
            raise awa.TerminalError("never")
        case "raise RetryAfter":
            raise awa.RetryAfter(LATER)
        case "raise Snooze":
            raise awa.Snooze(LATER)
        case "raise Cancel":
            raise awa.Cancel("not wanted")
        case "a group":
            start(_raise, job, ValueError("one"))
            start(_raise, job, KeyError("two"))
            await trio.sleep_forever()
        case "a group that asks":
            start(_raise, job, awa.RetryAfter(LATER))
            start(_raise, job, awa.RetryAfter(2 * LATER))
            await trio.sleep_forever()
        case "a group with a terminal error":
            start(_raise, job, awa.TerminalError("never"))
            start(_raise, job, awa.RetryAfter(LATER))
            await trio.sleep_forever()
        case "poisoned":
            try:
                job.enqueue_on_completion(Then(n), priority=17)
            except awa.StagingInvalid:
                pass
        case "too many":
            for what in range(20):
                job.enqueue_on_completion(Then(n, str(what)))
        case "duplicates":
            job.enqueue_on_completion(Then(n, "staged"), unique_opts={})
            job.enqueue_on_completion(Then(n, "twice"), unique_opts={})
        case "deadline":
            await trio.sleep_forever()
        case "deadline swallowed":
            with trio.CancelScope() as own:
                try:
                    await trio.sleep_forever()
                except trio.Cancelled:
                    own.cancel()
        case "error at the deadline":
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("no")
        case "its nursery cancelled":
            job.nursery.cancel_scope.cancel()
            await trio.sleep_forever()
        case "interrupt":
            raise KeyboardInterrupt
        case "cut":
            await trio.sleep_forever()
        case "cancelled meanwhile":
            await clients[n].jobs.cancel(job.id, reason="by somebody")
        case "rescued meanwhile":
            to_retry = Transition(job.id, 1, S.RUNNING, S.RETRYABLE, 1, seconds=LATER)
            [rescued] = await clients[n]._backend.store.settle([Plan(to_retry)], worker=None)
            assert rescued.applied
        case "its worker fenced":
            worker_id = (await clients[n].jobs.get(job.id)).worker_id
            assert worker_id is not None
            await clients[n]._backend.store.unregister(worker_id)
    return None


app.task(backoff=lambda failed: LATER)(end)
#: The client of each run, for endings that others bring about.
clients: dict[int, awa.Client] = {}


@frozen
class Called(End): ...


@app.task(backoff=lambda failed: LATER)
async def called(job: awa.Job[Called]) -> object:
    """Park, or wait, for what `somebody` does."""
    job.enqueue_on_completion(Then(job.args.n, "staged"), unique_opts={})
    if job.last_callback is not None:
        return None
    how = job.args.how
    token = await job.register_callback(1.0 if "timed out" in how else LATER)
    if "before" in how:
        await clients[job.args.n].callbacks.resume(token, "early")
    if how.startswith("parked"):
        return awa.WaitForCallback(token)
    try:
        job.set_output(await job.wait_for_callback(token))
    except awa.CallbackSuperseded:
        if "swallowed" not in how:
            raise
    job.enqueue_on_completion(Then(job.args.n, "staged later"), unique_opts={})
    return None


async def somebody(client: awa.Client, job_id: int, how: str) -> None:
    """Whoever has to do with the callback a job waits for."""
    what = how.partition(", ")[2]
    if what in ("", "cut", "timed out", "answered before"):
        return
    while (job := await client.jobs.get(job_id)).state is not S.WAITING_EXTERNAL:
        await trio.sleep(0.01)
    token = job.callback_token
    assert token is not None
    match what:
        case "answered":
            await client.callbacks.resume(token, {"who": "somebody"})
        case "completed elsewhere" | "completed elsewhere and swallowed":
            await client.callbacks.complete(token)
        case "failed elsewhere":
            await client.callbacks.fail(token, "no")
        case "cancelled elsewhere":
            await client.jobs.cancel(job_id, reason="by somebody")
        case _:
            raise AssertionError(what)


@frozen
class Owned(End): ...


@app.task(backoff=lambda failed: LATER)
async def owned(job: awa.Job[Owned]) -> None:
    """Complete it in a transaction of the handler's own, which memory cannot."""
    n, how = job.args.n, job.args.how
    async with clients[n]._backend.connection() as connection:
        async with job.complete_in(connection) as tx:
            job.set_output("own")
            await tx.enqueue(Then(n, "enqueued"), unique_opts={})
            if how == "rolled back":
                raise ValueError("no")
    if how == "completed, then raised":
        raise ValueError("too late")


@frozen
class InThread(End): ...


@app.task(backoff=lambda failed: LATER)
def in_thread(job: awa.Job[InThread]) -> object:
    job.enqueue_on_completion(Then(job.args.n, "staged"))
    if job.args.how == "raise":
        raise ValueError("no")
    return awa.Cancel("not wanted") if job.args.how == "Cancel" else None


@frozen
class Specified(End): ...


@app.task(backoff=lambda failed: LATER)
async def specified(job: awa.Job[Specified]) -> None:
    job.enqueue_on_completion(Then(job.args.n, "staged"))
    if job.args.how == "raise":
        raise ValueError("no")
    if job.args.how == "Cancel":
        raise awa.Cancel("not wanted")


@app.on_retried(Specified)
def when_retried(args: Specified, job: awa.JobRow, *more: object) -> Then:
    return Then(args.n, "retried")


@app.on_cancelled(Specified)
def when_cancelled(args: Specified, job: awa.JobRow, *more: object) -> Then:
    return Then(args.n, "cancelled")


@app.on_completed(Specified)
def when_completed(args: Specified, job: awa.JobRow) -> Then:
    if args.how == "its registered follow-up raises":
        raise ZeroDivisionError
    return Then(args.n, "registered")


@app.on_exhausted(Specified)
def when_exhausted(args: Specified, job: awa.JobRow, error: str) -> Then:
    return Then(args.n, "exhausted")


@app.task(queue="nobody serves this")
async def then(job: awa.Job[Then]) -> None: ...


#: What each ending makes of a job that has attempts left; and of one that has not.
ENDINGS = {
    "return": (S.COMPLETED, S.COMPLETED),
    "return something": (S.COMPLETED, S.COMPLETED),
    "duplicates": (S.COMPLETED, S.COMPLETED),
    "a resource that stages": (S.COMPLETED, S.COMPLETED),
    "RetryAfter": (S.RETRYABLE, S.FAILED),
    "Snooze": (S.SCHEDULED, S.SCHEDULED),
    "Cancel": (S.CANCELLED, S.CANCELLED),
    "raise": (S.RETRYABLE, S.FAILED),
    "raise TerminalError": (S.FAILED, S.FAILED),
    "raise RetryAfter": (S.RETRYABLE, S.FAILED),
    "raise Snooze": (S.SCHEDULED, S.SCHEDULED),
    "raise Cancel": (S.CANCELLED, S.CANCELLED),
    "a group": (S.RETRYABLE, S.FAILED),
    "a group that asks": (S.RETRYABLE, S.FAILED),
    "a group with a terminal error": (S.FAILED, S.FAILED),
    "poisoned": (S.FAILED, S.FAILED),
    "too many": (S.FAILED, S.FAILED),
    "its nursery cancelled": (S.RETRYABLE, S.FAILED),
    "interrupt": (S.RETRYABLE, S.FAILED),
    "cut": (S.AVAILABLE, S.FAILED),
    "cancelled meanwhile": (S.CANCELLED, S.CANCELLED),
    "rescued meanwhile": (S.RETRYABLE, S.RETRYABLE),
    "its worker fenced": (S.RETRYABLE, S.FAILED),
    "a resource that does not open": (S.RETRYABLE, S.FAILED),
    "a resource that does not close": (S.RETRYABLE, S.FAILED),
    "deadline": (S.RETRYABLE, S.FAILED),
    "deadline swallowed": (S.RETRYABLE, S.FAILED),
    "error at the deadline": (S.RETRYABLE, S.FAILED),
}
#: On the last attempt, those that it changes, and the ones nearest to them.
LAST = ["return", "RetryAfter", "raise", "cut", "interrupt", "deadline", "its worker fenced"]

#: The same for what becomes of a callback, parked for and waited for.
CALLBACKS = {
    "parked": (S.WAITING_EXTERNAL, S.WAITING_EXTERNAL),
    "parked, answered": (S.COMPLETED, S.COMPLETED),
    "parked, answered before": (S.COMPLETED, S.COMPLETED),
    "parked, completed elsewhere": (S.COMPLETED, S.COMPLETED),
    "parked, failed elsewhere": (S.FAILED, S.FAILED),
    "parked, cancelled elsewhere": (S.CANCELLED, S.CANCELLED),
    "parked, timed out": (S.RETRYABLE, S.FAILED),
    "waited, answered": (S.COMPLETED, S.COMPLETED),
    "waited, answered before": (S.COMPLETED, S.COMPLETED),
    "waited, completed elsewhere": (S.COMPLETED, S.COMPLETED),
    "waited, completed elsewhere and swallowed": (S.COMPLETED, S.COMPLETED),
    "waited, failed elsewhere": (S.FAILED, S.FAILED),
    "waited, cancelled elsewhere": (S.CANCELLED, S.CANCELLED),
    "waited, timed out": (S.RETRYABLE, S.FAILED),
    "waited, cut": (S.WAITING_EXTERNAL, S.WAITING_EXTERNAL),
}


def _all() -> list[Any]:
    cases = [pytest.param(End, how, {}, ends[0], id=how) for how, ends in ENDINGS.items()]
    last = {"max_attempts": 1}
    cases += [
        pytest.param(End, how, last, ENDINGS[how][1], id=f"{how}, last attempt") for how in LAST
    ]
    for args_type in (InThread, Specified):
        for how in ("return", "raise", "Cancel"):
            name = f"{how}, {args_type.__name__}"
            cases.append(pytest.param(args_type, how, {}, ENDINGS[how][0], id=name))
    raises = "its registered follow-up raises"
    cases.append(pytest.param(Specified, "raise", last, S.FAILED, id="raise, last, Specified"))
    cases.append(pytest.param(Specified, raises, {}, S.FAILED, id=raises))
    cases.append(pytest.param(dict, "", {}, S.FAILED, id="undecodable arguments"))
    for how, ends in CALLBACKS.items():
        cases.append(pytest.param(Called, how, {}, ends[0], id=how))
        if ends[0] is not ends[1]:
            cases.append(pytest.param(Called, how, last, ends[1], id=f"{how}, last attempt"))
    return cases


@pytest.fixture(params=ENGINES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        yield client


def in_memory(client: awa.Client) -> bool:
    return isinstance(client._backend.store, MemoryStore)


@pytest.mark.parametrize(("args_type", "how", "options", "state"), _all())
async def test_a_job_ends_the_same(
    client: awa.Client,
    args_type: Any,
    how: str,
    options: dict[str, Any],
    state: awa.JobState,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    ended = []
    if "deadline" in how:
        options = options | {"deadline": 0.3}
    for n, work in enumerate([by_work_one, by_a_worker]):
        clients[n] = client
        if args_type is dict:
            # Not by the app's client: that knows what the arguments ought to be.
            stranger = awa.Client(client._backend, None)
            answer = await stranger.enqueue({"how": 1}, kind="end", **options)
        else:
            answer = await client.enqueue(args_type(how, n), **options)
        async with trio.open_nursery() as nursery:
            if args_type is Called:
                nursery.start_soon(somebody, client, answer.id, how)
            await work(client, answer.id, how, state)
            nursery.cancel_scope.cancel()
        ended.append(await what_became_of(client, answer.id))
        if ended[n]["state"] is S.AVAILABLE:
            await client.jobs.cancel(answer.id)  # it must not be the next one's
    assert ended[0] == ended[1]
    assert ended[0]["state"] is state


@pytest.mark.parametrize("how", ["completed", "rolled back", "completed, then raised"])
async def test_a_job_that_completes_itself_ends_the_same(
    client: awa.Client, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On PostgreSQL. In memory there is no transaction, which is an ordinary error."""
    state = S.RETRYABLE if how == "rolled back" or in_memory(client) else S.COMPLETED
    await test_a_job_ends_the_same(client, Owned, how, {}, state, caplog)


#: Seconds for an attempt to end as it should.
PATIENCE = 20.0


async def by_work_one(client: awa.Client, job_id: int, how: str, state: awa.JobState) -> None:
    """Work, as often as it takes: what is parked runs twice, and what is lost is rescued later."""
    first = True
    with trio.move_on_after(0.3 if "cut" in how else PATIENCE) as patience:
        while first or (await client.jobs.get(job_id)).state is not state:
            try:
                worked = await work_one(app, client, queue="default")
            except KeyboardInterrupt:
                assert how == "interrupt"
                return
            if first:
                assert worked is not None
                assert worked.job.id == job_id
            first = False
            await trio.sleep(0.01)
    assert patience.cancelled_caught == ("cut" in how)


async def by_a_worker(client: awa.Client, job_id: int, how: str, state: awa.JobState) -> None:
    timings = awa.Timings(rescue_interval=0.05, poll_interval=0.05)
    try:
        async with trio.open_nursery() as nursery:
            run = partial(
                awa.run_worker, app, client, queues=["default"], grace=0, timings=timings
            )
            worker = await nursery.start(run)
            with trio.move_on_after(0.5 if "cut" in how else PATIENCE) as patience:
                while (
                    "cut" in how
                    or (await client.jobs.get(job_id)).state is not state
                    or worker.statistics().running
                ):
                    await trio.sleep(0.01)
            assert patience.cancelled_caught == ("cut" in how)
            nursery.cancel_scope.cancel()
    except* KeyboardInterrupt:
        assert how == "interrupt"


async def what_became_of(client: awa.Client, job_id: int) -> dict[str, Any]:
    """All there is to know of a job and its follow-ups, but for identities and instants."""
    follow_ups = [j for j in await client.jobs.list(kind="then") if j.triggered_by == job_id]
    job = _comparable(await client.jobs.get(job_id))
    return job | {"follow_ups": [_comparable(row) for row in reversed(follow_ups)]}


def _comparable(row: awa.JobDetails) -> dict[str, Any]:
    job = attrs.asdict(row, recurse=False)
    for name in ("id", "raw_created_at", "raw_run_at", "raw_args", "raw_metadata"):
        del job[name]
    for name in ("attempted_at", "deadline_at", "finalized_at", "unique_key"):
        job[name] = job[name] is not None
    for name in ("callback_token", "callback_until"):
        job[name] = job[name] is not None
    if row.raw_callback_answer is not None:
        job["raw_callback_answer"] = json.loads(row.raw_callback_answer)["payload"]
    job["args"] = {name: value for name, value in row.args_json.items() if name != "n"}
    job["metadata"] = row.metadata
    job["minutes"] = round((row.run_at - row.created_at).total_seconds() / 60)
    # Tasks of one nursery raise in any order.
    job["errors"] = [(sorted(e.error.split("\n")), e.attempt, e.terminal) for e in row.errors]
    return job
