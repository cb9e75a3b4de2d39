"""Looking at jobs and workers through a client, on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._core.plan import Plan, Transition
from awa_trio._seam.values import Claimed, Want
from awa_trio.testing import work_one

from .engines import ENGINES, client_on

R = awa.Reason
E = awa.TimelineEvent
app = awa.App()


@frozen
class Plain:
    n: int


@frozen
class Parent:
    how: str = "completes"


@frozen
class Child:
    n: int


@app.task
async def plain(job: awa.Job[Plain]) -> None:
    pass


@app.task
async def parent(job: awa.Job[Parent]) -> object:
    job.enqueue_on_completion(Child(1))
    job.enqueue_on_completion(Child(2), run_at=LATER, unique_opts={})
    match job.args.how:
        case "fails":
            raise awa.TerminalError("no luck")
        case "is retried":
            job.progress.set(percent=50, message="half of it")
            raise ValueError("not now")
        case "parks":
            return awa.WaitForCallback(await job.register_callback(timeout=600))
    return None


@app.task(queue="children")
async def child(job: awa.Job[Child]) -> None:
    pass


@app.on_cancelled(Parent)
def told_of_cancel(args: Parent, job: awa.JobRow, reason: str) -> Child:
    return Child(5)


@app.on_exhausted(Parent)
def told(args: Parent, job: awa.JobRow, error: str) -> Child:
    return Child(3)


@app.on_retried(Parent)
def told_of_retry(args: Parent, job: awa.JobRow, error: str, seconds: float) -> Child:
    return Child(4)


LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(params=ENGINES)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[awa.Client]:
    async with client_on(request.param, request, app) as client:
        yield client


async def work(client: awa.Client, args: object) -> int:
    job_id = (await client.enqueue(args)).id
    assert await work_one(app, client, queue="default")
    return job_id


# ---- provenance


async def test_follow_ups_are_found_both_ways(client: awa.Client) -> None:
    await client.enqueue_many([Plain(n) for n in range(3)], queue="elsewhere")
    parent_id = await work(client, Parent())
    other_id = await work(client, Parent("fails"))
    await client.enqueue_many([Plain(n) for n in range(3)], queue="elsewhere")

    children = await client.jobs.follow_ups(parent_id)
    assert [job.args_json["n"] for job in children] == [1, 2]
    for found in children:
        origin = await client.jobs.origin(found.id)
        assert origin is not None
        assert origin.id == parent_id
        assert await client.jobs.follow_ups(found.id) == []
    [exhausted] = await client.jobs.follow_ups(other_id)
    assert exhausted.args_json == {"n": 3}
    assert await client.jobs.origin(parent_id) is None


async def test_follow_ups_of_an_attempt_that_left_another_are_found(client: awa.Client) -> None:
    job_id = await work(client, Parent("is retried"))
    await client.jobs.cancel(job_id)
    found = await client.jobs.follow_ups(job_id)
    assert [job.args_json for job in found] == [{"n": 4}, {"n": 5}]


# ---- why a job has not run


async def reasons(client: awa.Client, job_id: int) -> list[awa.Reason]:
    found = await client.jobs.explain(job_id)
    for one in found:
        assert one.text
        assert one.advice
        assert "\n" not in one.text + one.advice
    return [one.reason for one in found]


async def test_what_nobody_serves_is_said(client: awa.Client) -> None:
    job_id = (await client.enqueue(Plain(1))).id
    assert await reasons(client, job_id) == [R.NO_WORKER]
    later = (await client.enqueue(Plain(2), run_at=LATER)).id
    assert await reasons(client, later) == [R.NOT_DUE, R.NO_WORKER]
    [found, _] = await client.jobs.explain(later)
    assert found.until == LATER
    with pytest.raises(awa.JobNotFound):
        await client.jobs.explain(10**9)


async def test_what_workers_serve_is_known(client: awa.Client) -> None:
    strange = awa.App()
    strange.task(kind="strange", args=dict)(child)
    async with trio.open_nursery() as nursery:
        worker = await nursery.start(awa.run_worker, strange, client)
        job_id = (await client.enqueue(Plain(1))).id
        assert await reasons(client, job_id) == [R.KIND_UNKNOWN]
        other = (await client.enqueue(Plain(1), queue="other")).id
        assert await reasons(client, other) == [R.NO_WORKER]
        [row] = await client.workers.list()
        assert (row.id, row.name) == (worker.id, worker.name)
        assert (row.queues, row.kinds) == (("default",), ("strange",))
        assert row.alive
        assert (row.running, row.waiting) == (0, 0)
        worker.stop()
    assert await client.workers.list() == []


async def test_jobs_of_a_lane_come_one_after_the_other(client: awa.Client) -> None:
    ids = [(await client.enqueue(Plain(n))).id for n in range(3)]
    urgent = (await client.enqueue(Plain(3), priority=1)).id
    delayed = (await client.enqueue(Plain(4), run_at=datetime.now(UTC))).id
    ahead = []
    for job_id in (*ids, urgent, delayed):
        texts = {one.reason: one.text for one in await client.jobs.explain(job_id)}
        ahead.append(texts.get(R.BEHIND_OTHERS, "no others").split(" ", 1)[0])
    assert ahead[:4] == ["no", "another", "2", "no"]
    assert ahead[4] in ("3", "no")  # memory's clock is no real one


async def test_an_ordering_key_that_is_taken_is_said(client: awa.Client) -> None:
    first, second, third = [
        (await client.enqueue(Parent("parks"), ordering_key="k")).id for _ in range(3)
    ]
    assert R.NOT_THE_HEAD in await reasons(client, second)
    assert R.NOT_THE_HEAD not in await reasons(client, first)
    assert await work_one(app, client, queue="default")
    assert await reasons(client, first) == [R.WAITS_FOR_CALLBACK]
    [*_, found] = await client.jobs.explain(second)
    assert (found.reason, found.job_id) == (R.ORDERING_KEY_TAKEN, first)
    assert (await reasons(client, third))[-2:] == [R.ORDERING_KEY_TAKEN, R.NOT_THE_HEAD]


async def test_what_is_over_is_said(client: awa.Client) -> None:
    done = await work(client, Plain(1))
    [found] = await client.jobs.explain(done)
    assert found.reason is R.SETTLED
    assert "never reopened" in found.advice
    failed = await work(client, Parent("fails"))
    [found] = await client.jobs.explain(failed)
    assert f"awa-trio jobs retry {failed}" in found.advice
    retried = await work(client, Parent("is retried"))
    assert (await reasons(client, retried))[0] is R.RETRIES_LATER


# ---- what has happened to it


async def test_a_timeline_tells_a_life(client: awa.Client) -> None:
    job_id = await work(client, Parent("is retried"))
    found = await client.jobs.timeline(job_id)
    assert [entry.event for entry in found] == [
        E.ENQUEUED, E.STARTED, E.FAILED, E.PROGRESS, E.SCHEDULED,
    ]  # fmt: skip
    assert "ValueError: not now" in found[2].text
    assert found[2].attempt == 1
    assert found[-1].expected
    await client.jobs.cancel(job_id, reason="enough")
    last = (await client.jobs.timeline(job_id))[-1]
    assert (last.event, last.expected) == (E.CANCELLED, False)
    assert "enough" in last.text

    await client.jobs.retry(job_id)
    found = await client.jobs.timeline(job_id)
    assert [entry.event for entry in found][-3:] == [E.CANCELLED, E.PROGRESS, E.SCHEDULED]
    assert "an attempt started" in [entry.text for entry in found]
    await client.jobs.cancel(job_id)

    failed = await work(client, Parent("fails"))
    found = await client.jobs.timeline(failed)
    assert [entry.event for entry in found] == [
        E.ENQUEUED, E.STARTED, E.ENDED_FAILED, E.DEAD_LETTER,
    ]  # fmt: skip

    parked = await work(client, Parent("parks"))
    found = await client.jobs.timeline(parked)
    assert [entry.event for entry in found] == [E.ENQUEUED, E.STARTED, E.CALLBACK]
    [by] = (await client.jobs.timeline((await client.jobs.follow_ups(failed))[0].id))[:1]
    assert f"by job {failed}" in by.text


# ---- activity


async def test_activity_counts_what_ended(client: awa.Client) -> None:
    nothing = await client.activity()
    assert (nothing.completed, nothing.pickup, nothing.failures) == (0, None, ())
    done = [await work(client, Plain(n)) for n in range(3)]
    failed = [await work(client, Parent("fails")) for _ in range(2)]
    last = (await client.enqueue(Plain(3), queue="deep")).id
    found = await client.activity(60)
    assert (found.completed, found.failed, found.cancelled) == (len(done), 2, 0)
    assert found.seconds == pytest.approx(60)
    assert found.completed_per_second == pytest.approx(3 / 60)
    assert found.pickup is not None
    assert found.run is not None
    assert 0 <= found.run.p50 <= found.run.p99 < 60
    assert [job.id for job in found.failures] == failed[::-1]
    assert found.newest_id == last
    assert {backlog.queue: backlog.due for backlog in found.queues} == {
        "children": 2,
        "deep": 1,
    }


# ---- many at once


async def test_many_are_cancelled_by_filter_in_batches(
    client: awa.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awa_trio._app.jobs.CHUNK", 3)
    ids = [(await client.enqueue(Plain(n), tags=["bad"])).id for n in range(7)]
    later = (await client.enqueue(Plain(8), run_at=LATER, tags=["bad"])).id
    other = (await client.enqueue(Plain(9))).id
    done = (await client.enqueue(Plain(10), tags=["bad"], priority=1)).id
    assert await work_one(app, client)
    seen: list[awa.Many] = []
    assert await client.jobs.count(tag="bad") == 9
    assert await client.jobs.count(tag="bad", most=4) == 4
    many = await client.jobs.cancel_many(tag="bad", reason="a bad batch", watch=seen.append)
    assert many == awa.Many(8, 0) == seen[-1]
    assert [one.done for one in seen] == [3, 6, 8]
    for job_id in (*ids, later):
        job = await client.jobs.get(job_id)
        assert job.state is awa.JobState.CANCELLED
        assert "a bad batch" in job.errors[-1].error
    assert (await client.jobs.get(other)).state is awa.JobState.AVAILABLE
    assert (await client.jobs.get(done)).state is awa.JobState.COMPLETED
    assert await client.jobs.cancel_many(tag="bad") == awa.Many(0, 0)


async def test_many_fire_what_is_registered_for_them(client: awa.Client) -> None:
    for n in range(3):
        await client.enqueue(Parent(str(n)))
    assert (await client.jobs.cancel_many(kind="parent")).done == 3
    assert await client.jobs.count(kind="child") == 3
    assert (await client.jobs.cancel_many(kind="child", without_follow_ups=True)).done == 3


async def test_many_run_again_but_those_whose_key_is_taken(
    client: awa.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awa_trio._app.jobs.CHUNK", 4)
    failed = []
    for n in range(6):
        failed.append((await client.enqueue(Parent("fails"), unique_opts={"by_args": False}
                                            if n == 2 else None)).id)  # fmt: skip
        assert await work_one(app, client, queue="default")
    holder = await client.enqueue(Parent("fails"), unique_opts={"by_args": False})
    assert holder.inserted
    assert await client.jobs.retry_many(kind="parent") == awa.Many(5, 1)
    assert (await client.jobs.get(failed[2])).state is awa.JobState.FAILED
    states = {(await client.jobs.get(n)).state for n in failed if n != failed[2]}
    assert states == {awa.JobState.AVAILABLE}
    due = [(await client.jobs.get(n)).run_at for n in failed if n != failed[2]]
    assert due == sorted(due)


@pytest.mark.parametrize("method", ["cancel_many", "retry_many"])
async def test_many_must_be_meant(method: str) -> None:
    async with client_on("memory", None, app) as client:  # type: ignore[arg-type]
        call = getattr(client.jobs, method)
        for wrong in ({}, {"everything": True, "kind": "k"}, {"state": "completed"}):
            with pytest.raises(ValueError, match=method):
                await call(**wrong)
        with pytest.raises(TypeError):
            await call(everything="no")


async def test_activity_of_more_than_is_looked_at_is_of_a_shorter_time(
    client: awa.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awa_trio._app.workers.LOOKED_AT", 4)
    done = [await work(client, Plain(n)) for n in range(6)]
    ends = [(await client.jobs.get(job_id)).finalized_at for job_id in done]
    found = await client.activity(3600)
    assert found.completed == 4
    first = ends[2]
    assert first is not None
    assert found.seconds == pytest.approx((found.at - first).total_seconds(), abs=1e-3)


async def test_activity_looks_at_the_latest_claims_and_at_open_ones(
    segmented: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awa_trio._app.workers.LOOKED_AT", 2)
    async with awa.connect(segmented, app=app) as client:
        store = client._backend.store
        worker = await store.register("w", 60)

        async def claim(most: int) -> list[Claimed]:
            found = await store.claim(worker, [Want("default", most, 0)], {"plain": None})
            assert len(found) == most
            return found

        async def complete(claimed: Claimed) -> None:
            move = Transition(claimed.id, 1, awa.JobState.RUNNING, awa.JobState.COMPLETED, 1)
            [settled] = await store.settle([Plan(move)], worker=worker)
            assert settled.applied

        await client.enqueue_many([Plain(n) for n in range(6)])
        first, _ = await claim(2)
        later = [(await claim(1))[0] for _ in range(3)]
        # Open, and claimed before the latest two: seen all the same.
        await complete(first)
        assert (await client.activity()).completed == 1
        await complete(later[-1])
        found = await client.activity()
        assert found.completed == 2
        # Nothing is known of what was claimed before those, and has ended whole.
        assert found.seconds < 60
