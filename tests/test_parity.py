"""What `work_one` makes of a job is what a worker makes of it, at every ending."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio.testing import memory_client, work_one

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
    return None


app.task(backoff=lambda failed: LATER)(end)
#: The client of each run, for endings that others bring about.
clients: dict[int, awa.Client] = {}


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
    "a resource that does not open": (S.RETRYABLE, S.FAILED),
    "a resource that does not close": (S.RETRYABLE, S.FAILED),
    "deadline": (S.RETRYABLE, S.FAILED),
    "deadline swallowed": (S.RETRYABLE, S.FAILED),
    "error at the deadline": (S.RETRYABLE, S.FAILED),
}
#: On the last attempt, those that it changes, and the ones nearest to them.
LAST = ["return", "RetryAfter", "raise", "cut", "interrupt", "deadline"]


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
    return cases


@pytest.fixture(params=["memory", "canonical"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    if request.param == "memory":
        yield memory_client(app)
    else:
        async with awa.connect(request.getfixturevalue("migrated"), app=app) as client:
            yield client


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
        with trio.fail_after(30):
            await work(client, answer.id, how)
        ended.append(await what_became_of(client, answer.id))
        if ended[n]["state"] is S.AVAILABLE:
            await client.jobs.cancel(answer.id)  # it must not be the next one's
    assert ended[0] == ended[1]
    assert ended[0]["state"] is state


async def by_work_one(client: awa.Client, job_id: int, how: str) -> None:
    with trio.move_on_after(0.3 if how == "cut" else 60):
        try:
            worked = await work_one(app, client, queue="default")
        except KeyboardInterrupt:
            assert how == "interrupt"
            return
        assert worked is not None
        assert worked.job.id == job_id


async def by_a_worker(client: awa.Client, job_id: int, how: str) -> None:
    try:
        async with trio.open_nursery() as nursery:
            run = partial(awa.run_worker, app, client, queues=["default"], grace=0)
            await nursery.start(run)
            busy = (S.AVAILABLE, S.RUNNING)
            with trio.move_on_after(0.5 if how == "cut" else 60):
                while (await client.jobs.get(job_id)).state in busy:
                    await trio.sleep(0.01)
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
    job["args"] = {name: value for name, value in row.args_json.items() if name != "n"}
    job["metadata"] = row.metadata
    job["minutes"] = round((row.run_at - row.created_at).total_seconds() / 60)
    # Tasks of one nursery raise in any order.
    job["errors"] = [(sorted(e.error.split("\n")), e.attempt, e.terminal) for e in row.errors]
    return job
