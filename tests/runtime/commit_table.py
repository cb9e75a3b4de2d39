"""ADR-046, "When staged follow-ups commit": the table, and the guarantees under it.

Subclassed for each store, with a fixture `client` made for `APP`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import attrs
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


#: Seconds in which everything happens that a test waits for.
PATIENCE = 100.0


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
        # Whatever a test waits for inside, it fails if that does not come.
        with trio.fail_after(PATIENCE):
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

    @pytest.mark.parametrize("first", ["rescued", "cancelled", "taken over", "fenced"])
    async def test_Completed_but_the_guard_matches_no_row(
        self, client: awa.Client, first: str
    ) -> None:
        """Rescued, cancelled or taken over first; or its worker was presumed dead."""
        to = S.CANCELLED if first == "cancelled" else S.RETRYABLE
        store = client._backend.store

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)
            if first == "fenced":
                await store.unregister((await client.jobs.get(job.id)).worker_id or 0)
                return
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
            await self.settled(client, job_id, state)
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
        backend.faults.extend([fault] * 1000)

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
            # What must not count goes into the metadata (ADR-046, "Decision").
            stage(job, job.args.behaviour % 2, metadata={"by": job.id})

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

    @pytest.mark.parametrize("beyond", [0, 1], ids=["byte 65,536", "byte 65,537"])
    async def test_64_KiB_of_serialized_requests(self, client: awa.Client, beyond: int) -> None:
        """ADR-046, "Limits": of kind, queue, args, metadata, tags and keys in total."""
        parts = ("stage_b", "q\u00fc", '{"item_id":1}', '{"x":""}', "tag", "\u20ac", "\u20ac")
        rest = 65_536 - 16 * len("".join(parts).encode())

        async def behaviour(job: awa.Job[StageA]) -> None:
            for n in range(16):
                filler = "a" * (rest - 15 * (rest // 16) + beyond if n == 15 else rest // 16)
                try:
                    job.enqueue_on_completion(
                        StageB(1),
                        queue="q\u00fc",
                        metadata={"x": filler},
                        tags=["tag"],
                        ordering_key="\u20ac",
                        limit_key="\u20ac",
                    )
                except awa.StagingTooLarge as error:
                    assert (n, error.limit_bytes) == (15, 65_536)

        job = await self.work(client, behaviour, S.FAILED if beyond else S.COMPLETED)
        assert len(await self.follow_ups(client)) == (0 if beyond else 16)
        assert ("StagingTooLarge" in str(job.errors)) == bool(beyond)

    async def test_the_limits_hold_across_waits(self, client: awa.Client) -> None:
        """ADR-046, "Limits": in total, across any number of wait_for_callback resumes."""
        staged = []

        async def behaviour(job: awa.Job[StageA]) -> None:
            for n in range(17):
                if n in (6, 12):
                    await job.wait_for_callback(await job.register_callback())
                try:
                    stage(job, n)
                except awa.StagingTooMany:
                    assert n == 16
                staged.append(n)

        job_id = await self.enqueue(client, behaviour)
        async with self.working(client):
            for n in (6, 12):
                while len(staged) < n:
                    await trio.sleep(0.02)
                await client.callbacks.resume(await self.waiting_token(client, job_id))
            failed = await self.settled(client, job_id, S.FAILED)
        assert "StagingTooMany" in failed.errors[-1].error
        assert await self.follow_ups(client) == []

    @pytest.mark.parametrize("much", ["too many", "too large"])
    async def test_a_handler_may_turn_too_much_into_a_retry(
        self, client: awa.Client, much: str
    ) -> None:
        """ADR-046, "Decision": what one attempt has staged may differ from another's."""

        async def behaviour(job: awa.Job[StageA]) -> object:
            filler = {"x": "a" * 20_000} if much == "too large" else None
            try:
                for n in range(17):
                    stage(job, n, metadata=filler)
            except (awa.StagingTooMany, awa.StagingTooLarge) as error:
                assert isinstance(error, awa.StagingTooMany) == (much == "too many")
                return awa.RetryAfter(3600)
            return None

        job = await self.work(client, behaviour, S.RETRYABLE)
        assert job.errors == []
        assert await self.follow_ups(client) == []

    async def test_what_the_schema_would_refuse_is_refused_when_it_is_staged(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Decision": nothing predictably rejected reaches the completion."""
        long = "k" * 201
        refused: list[dict[str, Any]] = [
            {"priority": 0},
            {"priority": 5},
            {"max_attempts": 0},
            {"max_attempts": 1001},
            {"kind": long},
            {"queue": long},
            {"tags": ["t"] * 21},
            {"tags": ["\0"]},
            {"metadata": {"a": "\0"}},
            {"queue": "\0"},
            {"run_at": "tomorrow"},
            {"unique_opts": {"states": -1}},
        ]

        async def behaviour(job: awa.Job[StageA]) -> object:
            for options in refused:
                with pytest.raises(awa.StagingInvalid) as caught:
                    job.enqueue_on_completion(StageB(1), **options)
                assert isinstance(caught.value, awa.TerminalError)
                assert caught.value.__cause__ is not None, "chained from the original error"
            with pytest.raises(awa.StagingInvalid):
                job.enqueue_on_completion(StageB("\0"))  # type: ignore[arg-type]
            return awa.Cancel("all of them")

        job = await self.work(client, behaviour, S.CANCELLED)
        assert job.errors[-1].error == "cancelled: all of them"

    @pytest.mark.parametrize("last", [False, True], ids=["least", "most"])
    async def test_and_its_extremes_are_stored_as_they_were_staged(
        self, client: awa.Client, last: bool
    ) -> None:
        year = datetime(9999, 12, 31, tzinfo=UTC) if last else datetime(1, 1, 1, tzinfo=UTC)
        least = {"priority": 1, "max_attempts": 1, "tags": [], "queue": "q"}
        most = {"priority": 4, "max_attempts": 1000, "tags": ["t"] * 20, "queue": "q" * 200}

        async def behaviour(job: awa.Job[StageA]) -> None:
            options: dict[str, Any] = most if last else least
            job.enqueue_on_completion(StageB(2**63 - 1 if last else -(2**63)), **options)
            job.enqueue_on_completion(StageB(1), run_at=year)

        await self.work(client, behaviour, S.COMPLETED)
        dated, b = await client.jobs.list(kind="stage_b")
        assert dated.run_at == year
        assert (b.priority, b.max_attempts, b.queue) == (
            (4, 1000, "q" * 200) if last else (1, 1, "q")
        )
        assert b.tags == (("t",) * 20 if last else ())
        assert b.args_json == {"item_id": 2**63 - 1 if last else -(2**63)}

    async def test_a_follow_up_is_enqueued_as_any_other_job_with_these_options(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Python surface"; serialized when staged: later changes are not seen."""
        options: dict[str, Any] = {
            "queue": "elsewhere",
            "priority": 3,
            "max_attempts": 7,
            "tags": ["a", "b"],
            "metadata": {"m": [1]},
            "run_at": datetime(2100, 1, 1, tzinfo=UTC),
            "unique_opts": {},
            "ordering_key": "o",
            "limit_key": "l",
        }

        async def behaviour(job: awa.Job[StageA]) -> None:
            mutable = options | {"tags": ["a", "b"], "metadata": {"m": [1]}}
            job.enqueue_on_completion(StageB(1), **mutable)
            mutable["metadata"]["m"].append(2)
            mutable["tags"].clear()
            request = awa.EnqueueRequest(StageB(2), queue="elsewhere", priority=3)
            job.enqueue_on_completion(request.unique({"states": 1}).metadata({"m": [1]}))

        await self.work(client, behaviour, S.COMPLETED)
        typed, staged = await client.jobs.list(kind="stage_b")
        again = await client.enqueue(StageB(1), **options)
        assert (again.inserted, again.id) == (False, staged.id), "the same unique key"
        other = await client.enqueue(StageB(3), **options)
        enqueued = await client.jobs.get(other.id)
        for name in ("queue", "priority", "max_attempts", "tags", "metadata", "run_at",
                     "unique_states", "ordering_key", "limit_key", "state", "deadline"):  # fmt: skip
            assert getattr(staged, name) == getattr(enqueued, name), name
        assert (typed.queue, typed.priority, typed.unique_states) == ("elsewhere", 3, 1)
        assert typed.metadata == {"m": [1]}

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

    async def test_a_rescued_attempt_and_its_replacement_staged_different_values(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Guarantees", 2, and "Not guaranteed": both ran, one of them counts."""
        made, replaced, ended = [], trio.Event(), trio.Event()

        async def behaviour(job: awa.Job[StageA]) -> None:
            made.append(job.attempt)  # an effect elsewhere, which nobody takes back
            stage(job, job.attempt)
            if job.attempt == 1:
                worker_id = (await client.jobs.get(job.id)).worker_id
                assert worker_id is not None
                await client._backend.store.unregister(worker_id)
                with trio.CancelScope(shield=True):
                    await replaced.wait()
                ended.set()

        job_id = await self.enqueue(client, behaviour)
        async with self.working(client), self.working(client):
            done = await self.settled(client, job_id, S.COMPLETED)
            assert await self.follow_ups(client) == [2]
            replaced.set()
            await ended.wait()
        assert (made, done.attempt) == ([1, 2], 2)
        assert "presumed dead" in done.errors[0].error
        assert await self.follow_ups(client) == [2]
        with pytest.raises(awa.InvalidTransition):
            await client.jobs.retry(job_id)
        assert (await client.jobs.get(job_id)).state is S.COMPLETED

    async def test_a_follow_up_is_an_ordinary_job_delivered_at_least_once(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Guarantees", 4."""

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job)

        await self.work(client, behaviour, S.COMPLETED)
        store = client._backend.store
        dead = await store.register("dead", 0.05)
        wants = [Want("nobody serves this", 1, 0.0)]
        [b] = await store.claim(dead, wants, {"stage_b": None})
        async with self.working(client, queues=["nobody serves this"]):
            done = await self.settled(client, b.id, S.COMPLETED)
        assert done.attempt == 2
        assert "presumed dead" in done.errors[0].error

    @pytest.mark.parametrize("states", ["the default states", "those without completed"])
    async def test_a_finished_follow_up_blocks_duplicates_if_completed_is_among_its_states(
        self, client: awa.Client, states: str
    ) -> None:
        """ADR-046, "Guarantees", 3: "at most one B per key in those states"."""
        options: dict[str, Any] = {}
        if states == "those without completed":
            options["states"] = awa.UniqueOpts().states & ~S.COMPLETED.bit

        async def behaviour(job: awa.Job[StageA]) -> None:
            job.enqueue_on_completion(StageB(7), unique_opts=options)

        ids = [await self.enqueue(client, behaviour, priority=n) for n in (1, 2, 3)]
        async with self.working(client, queues={"default": 1}):
            for job_id in ids[:2]:  # while the first B is available
                await self.settled(client, job_id, S.COMPLETED)
            [b] = await client.jobs.list(kind="stage_b")
            async with self.working(client, queues=["nobody serves this"]):
                await self.settled(client, b.id, S.COMPLETED)
                last = await self.enqueue(client, behaviour)
                await self.settled(client, last, S.COMPLETED)
        blocks = states == "the default states"
        assert await self.follow_ups(client) == ([7] if blocks else [7, 7])

    async def test_a_job_that_stages_its_own_key_is_its_own_duplicate(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Guarantees", the first consequence: the chain stops; other args go on."""

        async def last(job: awa.Job[StageA]) -> None: ...

        other = len(_behaviours)
        _behaviours[other] = last

        async def behaviour(job: awa.Job[StageA]) -> None:
            job.enqueue_on_completion(StageA(job.args.behaviour), unique_opts={})
            job.enqueue_on_completion(StageA(other), unique_opts={})

        job_id = await self.enqueue(client, behaviour, unique_opts={})
        async with self.working(client) as worker:
            await self.settled(client, job_id, S.COMPLETED)
            while len(await client.jobs.list(kind="stage_a", state=S.COMPLETED)) < 2:
                await trio.sleep(0.02)
        jobs = await client.jobs.list(kind="stage_a")
        assert [job.args_json["behaviour"] for job in jobs] == [other, other + 1]
        assert worker.statistics().duplicates == 1

    async def test_different_args_collapse_if_they_are_no_part_of_the_key(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Guarantees", the second consequence, with `by_args` false."""

        async def behaviour(job: awa.Job[StageA]) -> None:
            for n in (1, 2):
                job.enqueue_on_completion(StageB(n), unique_opts={"by_args": False})

        await self.work(client, behaviour, S.COMPLETED)
        assert await self.follow_ups(client) == [1]

    async def test_skips_are_logged_at_debug_with_kinds_and_job_ids_never_args(
        self, client: awa.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        """ADR-046, "How they are inserted"."""
        caplog.set_level(logging.DEBUG, "awa_trio")

        async def behaviour(job: awa.Job[StageA]) -> None:
            stage(job, 987654321)

        holder = await client.enqueue(StageB(987654321), unique_opts={})
        done = await self.work(client, behaviour, S.COMPLETED)
        [said] = [r for r in caplog.records if "was left out" in r.getMessage()]
        assert said.levelno == logging.DEBUG
        assert f"job {done.id} (stage_a, " in said.getMessage()
        assert "kind stage_b" in said.getMessage()
        assert f"job {holder.id} holds its unique key" in said.getMessage()
        assert not any("987654321" in repr(vars(r)) for r in caplog.records)

    # ---- visibility

    async def test_nothing_of_what_was_staged_is_on_the_row_of_A(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Visibility and testing": they appear only as the inserted jobs."""

        async def staging(job: awa.Job[StageA]) -> None:
            stage(job, 987654321, metadata={"m": 1})

        async def plain(job: awa.Job[StageA]) -> None: ...

        rows = [
            attrs.asdict(await self.work(client, behaviour, S.COMPLETED), recurse=False)
            for behaviour in (staging, plain)
        ]
        for row in rows:
            for name in ("id", "raw_args", "attempted_at", "finalized_at"):
                del row[name]
            del row["raw_created_at"], row["raw_run_at"]
        assert rows[0] == rows[1]
        assert await self.follow_ups(client) == [987654321]

    async def test_a_follow_up_joins_the_trace_in_which_it_was_staged(
        self, client: awa.Client
    ) -> None:
        """ADR-046, "Visibility and testing": captured when staged, not when inserted."""
        traces = [f"00-{n:032x}-{n:016x}-01" for n in (1, 2, 3)]

        class Tracing(awa.Observer):
            now: str | None = None

            def trace(self) -> dict[str, str] | None:
                return None if self.now is None else {"traceparent": self.now}

        tracing = Tracing()

        async def behaviour(job: awa.Job[StageA]) -> None:
            for n, tracing.now in enumerate(traces[:2]):
                stage(job, n)
            tracing.now = traces[2]

        await self.work(awa.Client(client._backend, APP, (tracing,)), behaviour, S.COMPLETED)
        jobs = await client.jobs.list(kind="stage_b")
        assert [job.traceparent for job in reversed(jobs)] == traces[:2]

    @pytest.mark.parametrize("why", ["has no free slot", "does not serve the queue"])
    async def test_others_are_told_of_follow_ups_that_whoever_settles_cannot_run(
        self, client: awa.Client, why: str
    ) -> None:
        """Without a poll: the notification commits with the completion."""
        never = attrs.evolve(TIMINGS, poll_interval=600.0)
        busy, done = trio.Event(), trio.Event()

        async def staging(job: awa.Job[StageA]) -> None:
            job.enqueue_on_completion(StageA(other), queue="full")

        async def last(job: awa.Job[StageA]) -> None: ...

        async def blocking(job: awa.Job[StageA]) -> None:
            busy.set()
            await done.wait()

        other = len(_behaviours)
        _behaviours[other] = last
        queues = {"default": 1}
        if why == "has no free slot":
            await self.enqueue(client, blocking, queue="full")
            queues["full"] = 1
        async with self.working(client, queues=queues, timings=never) as settles:
            if why == "has no free slot":
                await busy.wait()
            async with self.working(client, queues=["full"], timings=never) as idle:
                # Both have looked, found nothing, and wait to be told.
                await self.until_quiet(settles, idle)
                job_id = await self.enqueue(client, staging)
                await self.settled(client, job_id, S.COMPLETED)
                [b] = [
                    job
                    for job in await client.jobs.list(kind="stage_a", queue="full")
                    if job.triggered_by == job_id
                ]
                await self.settled(client, b.id, S.COMPLETED)
                while not idle.statistics().settled[S.COMPLETED]:
                    await trio.sleep(0.01)
            done.set()

    async def test_others_are_told_of_each_follow_up_however_soon_after_another(
        self, client: awa.Client
    ) -> None:
        """Notifications are held back under load, never dropped."""
        never = attrs.evolve(TIMINGS, poll_interval=600.0)
        both, first_told = trio.Event(), trio.Event()

        async def last(job: awa.Job[StageA]) -> None:
            first_told.set()

        async def staging(job: awa.Job[StageA]) -> None:
            job.enqueue_on_completion(StageA(other), queue="full")
            if job.priority == 1:
                await both.wait()
            else:
                both.set()
                await first_told.wait()

        other = len(_behaviours)
        _behaviours[other] = last
        async with (
            self.working(client, queues=["default"], timings=never) as settles,
            self.working(client, queues=["full"], timings=never) as idle,
        ):
            await self.until_quiet(settles, idle)
            for priority in (1, 2):
                await self.enqueue(client, staging, priority=priority)
            with trio.fail_after(20):
                while idle.statistics().settled[S.COMPLETED] < 2:
                    await trio.sleep(0.02)

    async def until_quiet(self, *workers: awa.Worker) -> None:
        """Wait until these have looked for jobs and look no more."""
        for worker in workers:
            claims = -1
            while claims != worker.statistics().claims or not claims:
                claims = worker.statistics().claims
                await trio.sleep(0.3)
