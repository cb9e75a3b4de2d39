"""ADR-046, "When staged follow-ups commit": the table, and the guarantees under it.

Subclassed for each store, with a fixture `client` made for `APP`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio
from attrs import frozen

import awa_trio as awa
from awa_trio._core.job import JobState
from awa_trio._core.plan import Plan, Transition
from awa_trio._seam.values import Want

from .faults import (
    commit_and_never_answer,
    lose_the_answer,
    make_faulty,
    never_answer,
    roll_back,
)

S = JobState
APP = awa.App()
APP.queue("default", deadline=0)

Behaviour = Callable[[awa.Job["StageA"]], Awaitable[object]]
_behaviours: dict[int, Behaviour] = {}


@frozen
class StageA:
    """Runs whatever behaviour a test has chosen for it."""

    behaviour: int


@frozen
class StageB:
    item_id: int


@frozen
class Alarm:
    job_id: int
    error: str


@frozen
class Registered:
    by: int


@APP.task()
async def stage_a(job: awa.Job[StageA]) -> object:
    return await _behaviours[job.args.behaviour](job)


@APP.task(queue="nobody serves this")
async def stage_b(job: awa.Job[StageB]) -> None: ...


@APP.task(queue="nobody serves this")
async def alarm(job: awa.Job[Alarm]) -> None: ...


@APP.on_completed(StageA)
def completed_outside(args: StageA, job: awa.JobRow) -> object:
    """Registered for all, for those that another process completes."""
    waiting = isinstance(job, awa.JobDetails) and job.state is S.WAITING_EXTERNAL
    return StageB(1000 + job.id) if waiting else None


@APP.on_exhausted(StageA)
def raise_alarm(args: StageA, job: awa.JobRow, error: str) -> Alarm:
    return Alarm(job.id, error)


#: Fast enough for a real clock, slow enough for a busy machine.
TIMINGS = awa.Timings(
    heartbeat=0.5,
    lease=10.0,
    finalize_deadline=5.0,
    call_timeout=1.0,
    rescue_interval=0.2,
    poll_interval=0.05,
)


def stage(job: awa.Job[Any], item_id: int = 7, **options: Any) -> None:
    job.enqueue_on_completion(StageB(item_id), unique_opts={}, **options)


class CommitTable:
    """The table and the guarantees, on one store."""

    @pytest.fixture(autouse=True)
    def _forget_behaviours(self) -> Iterator[None]:
        yield
        _behaviours.clear()

    async def enqueue(self, client: awa.Client, behaviour: Behaviour, **options: Any) -> int:
        number = len(_behaviours)
        _behaviours[number] = behaviour
        return (await client.enqueue(StageA(number), **options)).id

    @asynccontextmanager
    async def working(self, client: awa.Client, **given: Any) -> AsyncIterator[awa.Worker]:
        options: dict[str, Any] = {
            "queues": ["default"],
            "timings": TIMINGS,
            "grace": 60.0,
            "random": Random(0),
        } | given
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                await awa.run_worker(APP, client, task_status=task_status, **options)

            worker = await nursery.start(run)
            try:
                yield worker
            finally:
                worker.stop()

    async def settled(
        self, client: awa.Client, job_id: int, state: JobState, within: float = 20.0
    ) -> awa.JobDetails:
        """The job, once it is in a state."""
        with trio.move_on_after(within):
            while (job := await client.jobs.get(job_id)).state is not state:
                await trio.sleep(0.02)
            return job
        job = await client.jobs.get(job_id)
        raise AssertionError(f"job {job_id} is {job.state}, not {state}: {job.errors}")

    async def follow_ups(self, client: awa.Client) -> list[int]:
        jobs = await client.jobs.list(kind="stage_b")
        return [job.args_json["item_id"] for job in reversed(jobs)]

    async def alarms(self, client: awa.Client) -> list[str]:
        return [job.args_json["error"] for job in await client.jobs.list(kind="alarm")]

    async def work(
        self, client: awa.Client, behaviour: Behaviour, state: JobState, **options: Any
    ) -> awa.JobDetails:
        job_id = await self.enqueue(client, behaviour, **options)
        async with self.working(client):
            return await self.settled(client, job_id, state)

    # ---- the table, row by row

    async def test_Completed_and_the_lease_guarded_completion_commits(
        self, client: awa.Client
    ) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)

        done = await self.work(client, behaviour, S.COMPLETED)
        [b] = await client.jobs.list(kind="stage_b")
        assert b.args_json == {"item_id": 7}
        assert (b.state, b.queue, b.triggered_by) == (
            S.AVAILABLE,
            "nobody serves this",
            done.id,
        )

    @pytest.mark.parametrize("first", ["rescued", "cancelled", "taken over"])
    async def test_Completed_but_the_guard_matches_no_row(
        self, client: awa.Client, first: str
    ) -> None:
        """Rescued, cancelled or taken over first."""
        to = S.CANCELLED if first == "cancelled" else S.RETRYABLE
        store = client._backend.store

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)
            seconds = 0.0 if first == "taken over" else 3600.0
            moved = Transition(job.id, 1, S.RUNNING, to, 1, seconds=seconds)
            [settled] = await store.settle([Plan(moved)], worker=None)
            assert settled.applied
            if first == "taken over":
                other = await store.register("other", 3600)
                [again] = await store.claim(other, [Want("default", 1, 0.0)], {"stage_a": None})
                assert (again.id, again.run_lease) == (job.id, 2)

        job_id = await self.enqueue(client, behaviour)
        state = S.RUNNING if first == "taken over" else to
        # Deaf, so that it is the guard that stops it, and not news of the change; and with
        # one slot, so that it is not this worker that takes the job over.
        async with self.working(client, listen=False, queues={"default": 1}) as worker:
            while worker.statistics().stale == 0:
                await trio.sleep(0.02)
        assert (await client.jobs.get(job_id)).state is state
        assert await self.follow_ups(client) == []

    @pytest.mark.parametrize("swallowed", [True, False])
    async def test_Completed_after_a_failed_stage(
        self, client: awa.Client, swallowed: bool
    ) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)
            try:
                job.enqueue_on_completion(StageB(1), priority=9)
            except awa.StagingError:
                if not swallowed:
                    raise

        failed = await self.work(client, behaviour, S.FAILED)
        assert failed.attempt == 1
        assert "StagingInvalid" in failed.errors[-1].error
        assert "priority" in failed.errors[-1].error
        assert await self.follow_ups(client) == []
        [alarm] = await self.alarms(client)
        assert "StagingInvalid" in alarm

    @pytest.mark.parametrize(
        ("ending", "state"),
        [
            pytest.param(awa.RetryAfter(3600), S.RETRYABLE, id="RetryAfter"),
            pytest.param(awa.Snooze(3600), S.SCHEDULED, id="Snooze"),
            pytest.param(awa.Cancel("no"), S.CANCELLED, id="Cancel"),
        ],
    )
    @pytest.mark.parametrize("raised", [False, True], ids=["returned", "raised"])
    async def test_RetryAfter_Snooze_Cancel(
        self, client: awa.Client, ending: Exception, state: JobState, raised: bool
    ) -> None:
        async def behaviour(job: awa.Job[StageA]) -> object:
            stage(job)
            if raised:
                raise ending
            return ending

        job = await self.work(client, behaviour, state)
        assert job.attempt == (0 if state is S.SCHEDULED else 1)
        assert await self.follow_ups(client) == []

    @pytest.mark.parametrize(
        ("error", "state"),
        [
            pytest.param(ValueError("e"), S.RETRYABLE, id="retryable Err"),
            pytest.param(awa.TerminalError("e"), S.FAILED, id="terminal Err"),
            pytest.param(ExceptionGroup("", [ValueError("e")]), S.RETRYABLE, id="group"),
            pytest.param(
                BaseExceptionGroup("", [GeneratorExit(), ValueError("e")]),
                S.RETRYABLE,
                id="base group",
            ),
            pytest.param(GeneratorExit("e"), S.RETRYABLE, id="panic"),
        ],
    )
    async def test_Err_panic(
        self, client: awa.Client, error: BaseException, state: JobState
    ) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)
            raise error

        job = await self.work(client, behaviour, state)
        assert job.errors[-1].error
        assert await self.follow_ups(client) == []

    async def test_WaitForCallback(
        self, client: awa.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The handler returns and parks the job; almost always a mistake, so it is said."""
        caplog.set_level(logging.WARNING)

        async def behaviour(job: awa.Job[StageA]) -> object:
            stage(job)
            stage(job, 8)
            return awa.WaitForCallback(await job.register_callback())

        job_id = await self.enqueue(client, behaviour)
        async with self.working(client) as worker:
            job = await self.settled(client, job_id, S.WAITING_EXTERNAL)
            while worker.statistics().discarded_by_parking == 0:
                await trio.sleep(0.02)
        assert worker.statistics().discarded_by_parking == 2
        assert await self.follow_ups(client) == []
        [warning] = [r.getMessage() for r in caplog.records if "discarded" in r.getMessage()]
        assert f"job {job.id} (stage_a, attempt 1 of" in warning
        assert "2 staged follow-ups were discarded" in warning
        assert "item_id" not in warning

    async def waiting_token(self, client: awa.Client, job_id: int) -> str:
        """The token of a callback for which a handler waits in memory."""
        job = await self.settled(client, job_id, S.WAITING_EXTERNAL)
        assert job.worker_id is not None
        assert job.callback_token is not None
        return job.callback_token

    @pytest.mark.parametrize("listen", [True, False], ids=["listening", "deaf"])
    async def test_ctx_wait_for_callback_inside_the_handler_resumed_then_Completed(
        self, client: awa.Client, listen: bool
    ) -> None:
        """The handler and its buffer stay alive across the wait."""
        payloads = []

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job, 1)
            for n in (2, 3):
                payloads.append(await job.wait_for_callback(await job.register_callback()))
                stage(job, n)

        job_id = await self.enqueue(client, behaviour)
        async with self.working(client, listen=listen):
            for n in range(2):
                token = await self.waiting_token(client, job_id)
                assert await self.follow_ups(client) == []
                assert await client.callbacks.resume(token, {"n": n}) == job_id
                if n == 0:
                    while (await client.jobs.get(job_id)).callback_token == token:
                        await trio.sleep(0.02)
            done = await self.settled(client, job_id, S.COMPLETED)
        assert payloads == [{"n": 0}, {"n": 1}]
        assert done.attempt == 1
        assert await self.follow_ups(client) == [1, 2, 3]

    async def test_ctx_wait_for_callback_inside_the_handler_but_complete_external(
        self, client: awa.Client
    ) -> None:
        """The external completion finalizes the job: registered specs fire, staged follow-ups
        cannot; and even a Completed from the handler finds no running row."""
        errors: list[awa.CallbackSuperseded] = []

        async def behaviour(job: awa.Job[StageA]) -> object:
            stage(job)
            token = await job.register_callback()
            try:
                await job.wait_for_callback(token)
            except awa.CallbackSuperseded as error:
                errors.append(error)
            stage(job, 8)
            return awa.Completed()

        job_id = await self.enqueue(client, behaviour)
        async with self.working(client) as worker:
            token = await self.waiting_token(client, job_id)
            await client.callbacks.complete(token)
            while not errors or worker.statistics().running:
                await trio.sleep(0.02)
            assert (await client.jobs.get(job_id)).state is S.COMPLETED
            assert worker.statistics().settled[S.COMPLETED] == 0
        assert errors[0].state == "completed"
        assert await self.follow_ups(client) == [1000 + job_id]

    async def test_Deadline_expiry_abandons_the_handler(self, client: awa.Client) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)
            await trio.sleep_forever()

        job = await self.work(client, behaviour, S.RETRYABLE, deadline=0.2)
        assert "the deadline of 0.2 s passed" in job.errors[-1].error
        assert job.attempt == 1
        assert await self.follow_ups(client) == []

    @pytest.mark.parametrize("how", ["grace is over", "the caller cancels"])
    async def test_shutdown_cancels_it_before_finalization(
        self, client: awa.Client, how: str
    ) -> None:
        running = trio.Event()

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)
            running.set()
            await trio.sleep_forever()

        job_id = await self.enqueue(client, behaviour)
        with trio.CancelScope() as scope:
            async with self.working(client, grace=0.1):
                await running.wait()
                if how == "the caller cancels":
                    scope.cancel()
        job = await client.jobs.get(job_id)
        assert (job.state, job.attempt, job.errors) == (S.AVAILABLE, 0, [])
        assert await self.follow_ups(client) == []

    @pytest.mark.parametrize(
        ("fault", "landed"),
        [(never_answer, False), (commit_and_never_answer, True)],
        ids=["it did not land", "it landed"],
    )
    async def test_Shutdown_cancels_finalization(
        self, client: awa.Client, fault: Any, landed: bool
    ) -> None:
        """Committed with the completion if the commit landed, otherwise not."""
        client, backend = make_faulty(client)
        backend.faults.extend([fault] * 10)

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)

        job_id = await self.enqueue(client, behaviour)
        with trio.CancelScope() as scope:
            async with self.working(client):
                while not (backend.worker_stores and backend.worker_stores[0].calls):
                    await trio.sleep(0.02)
                if landed:
                    await self.settled(client, job_id, S.COMPLETED)
                scope.cancel()
        job = await client.jobs.get(job_id)
        assert job.state is (S.COMPLETED if landed else S.RUNNING)
        assert await self.follow_ups(client) == ([7] if landed else [])
        if not landed:
            backend.faults.clear()
            async with self.working(client):  # and then rescue runs it again
                await self.settled(client, job_id, S.COMPLETED, within=60)
            assert await self.follow_ups(client) == [7]

    async def test_the_finalize_deadline_expires(self, client: awa.Client) -> None:
        """The attempt is given up, and handed back unspent once the answers come again."""
        client, backend = make_faulty(client)
        backend.faults.extend([roll_back] * 4)
        runs = []

        async def behaviour(job: awa.Job[StageA]) -> None:
            runs.append(job.attempt)
            stage(job)

        job_id = await self.enqueue(client, behaviour)
        async with self.working(client) as worker:
            await self.settled(client, job_id, S.COMPLETED)
        assert runs == [1, 1]
        assert worker.statistics().given_up == 1
        assert await self.follow_ups(client) == [7]

    # ---- guarantees

    async def test_deduplication_across_A_jobs(self, client: awa.Client) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job, job.args.behaviour % 2)

        ids = [await self.enqueue(client, behaviour) for _ in range(10)]
        async with self.working(client) as worker:
            for job_id in ids:
                await self.settled(client, job_id, S.COMPLETED)
        assert sorted(await self.follow_ups(client)) == [0, 1]
        assert worker.statistics().duplicates == 8

    async def test_two_equal_keys_of_one_attempt_collapse_to_the_first(
        self, client: awa.Client
    ) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job, 1, priority=1)
            stage(job, 2)
            stage(job, 1, priority=4)

        await self.work(client, behaviour, S.COMPLETED)
        assert await self.follow_ups(client) == [1, 2]
        jobs = await client.jobs.list(kind="stage_b")
        assert {j.args_json["item_id"]: j.priority for j in jobs} == {1: 1, 2: 2}

    async def test_fan_out_is_in_staging_order(self, client: awa.Client) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            for n in range(16):
                stage(job, (n * 7) % 16)

        await self.work(client, behaviour, S.COMPLETED)
        assert await self.follow_ups(client) == [(n * 7) % 16 for n in range(16)]

    async def test_more_than_16_poisons(self, client: awa.Client) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            for n in range(17):
                try:
                    stage(job, n)
                except awa.StagingTooMany:
                    assert n == 16

        failed = await self.work(client, behaviour, S.FAILED)
        assert "StagingTooMany" in failed.errors[-1].error
        assert await self.follow_ups(client) == []

    async def test_a_handler_may_turn_too_many_into_a_retry(self, client: awa.Client) -> None:
        async def behaviour(job: awa.Job[StageA]) -> object:
            try:
                for n in range(17):
                    stage(job, n)
            except awa.StagingTooMany:
                return awa.RetryAfter(3600)
            return None

        job = await self.work(client, behaviour, S.RETRYABLE)
        assert job.errors == []
        assert await self.follow_ups(client) == []

    async def test_leaving_the_nursery_seals(self, client: awa.Client) -> None:
        """A child of the attempt may stage after the handler returned; nobody else may."""
        escaped: list[awa.Job[StageA]] = []

        async def behaviour(job: awa.Job[StageA]) -> None:
            async def child() -> None:
                await trio.sleep(0.05)
                stage(job)

            job.nursery.start_soon(child)
            escaped.append(job)

        await self.work(client, behaviour, S.COMPLETED)
        with pytest.raises(awa.StagingSealed):
            stage(escaped[0], 8)
        with pytest.raises(awa.StagingSealed):
            escaped[0].enqueue_on_completion(StageB(1), priority=9)
        assert await self.follow_ups(client) == [7]

    async def test_a_retried_attempt_starts_with_an_empty_buffer(
        self, client: awa.Client
    ) -> None:
        async def behaviour(job: awa.Job[StageA]) -> object:
            stage(job, job.attempt)
            return awa.RetryAfter(0) if job.attempt == 1 else None

        await self.work(client, behaviour, S.COMPLETED)
        assert await self.follow_ups(client) == [2]

    @pytest.mark.parametrize("fault", [lose_the_answer, roll_back])
    async def test_a_retried_finalization_inserts_once(
        self, client: awa.Client, fault: Any
    ) -> None:
        """Lost acknowledgement, deadlock: the same sealed follow-ups, inserted once."""
        client, backend = make_faulty(client)
        backend.faults.append(fault)

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job, 1)
            job.enqueue_on_completion(StageB(2))

        await self.work(client, behaviour, S.COMPLETED)
        assert await self.follow_ups(client) == [1, 2]
        first, second = backend.worker_stores[0].calls[:2]
        assert first[0] is second[0]

    async def test_registered_follow_ups_commit_with_it_and_come_first(
        self, client: awa.Client
    ) -> None:
        async def behaviour(job: awa.Job[StageA]) -> None:
            job.enqueue_on_completion(StageB(2))

        spec_app = awa.App()

        @spec_app.task()
        async def stage_a_too(job: awa.Job[StageA]) -> object:
            return await _behaviours[job.args.behaviour](job)

        spec_app.declare(StageB)

        @spec_app.on_completed(StageA)
        def also(args: StageA, job: awa.JobRow) -> list[object]:
            return [StageB(args.behaviour), awa.EnqueueRequest(StageB(job.id)).unique()]

        job_id = await self.enqueue(client, behaviour)
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                await awa.run_worker(
                    spec_app,
                    client,
                    queues=["default"],
                    timings=TIMINGS,
                    task_status=task_status,
                )

            worker = await nursery.start(run)
            await self.settled(client, job_id, S.COMPLETED)
            nursery.cancel_scope.cancel()
        assert worker.statistics().inserted >= 3
        assert (await self.follow_ups(client))[:3] == [0, job_id, 2]
