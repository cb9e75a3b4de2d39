"""Registered follow-ups and dead letters, for each ending of an attempt.

Subclassed for each store, with a fixture `client` that has no app.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import psycopg
import pytest
import trio

import awa_trio as awa
from awa_trio._core.outcome import Lost
from awa_trio._seam.errors import Rejected
from awa_trio._seam.values import Settled, Want
from awa_trio.testing import Worked, work_one

from .faults import lose_the_answer, roll_back
from .rig import Next, Rig, Work

S = awa.JobState
Behaviour = Callable[[awa.Job[Work], Rig], Awaitable[object]]

#: Fast enough for a real clock, slow enough for a busy machine.
TIMINGS = awa.Timings(
    heartbeat=0.2,
    lease=5.0,
    finalize_deadline=4.0,
    call_timeout=1.0,
    rescue_interval=0.1,
    poll_interval=0.05,
)


@attrs.frozen
class Noted:
    """What a follow-up function was given."""

    outcome: str
    job_id: int
    n: int
    attempt: int
    added: list[Any]


def note_outcomes(app: awa.App) -> None:
    """Register a follow-up for each outcome, which keeps what it was given."""

    def note(outcome: str) -> Callable[..., Noted]:
        def noted(args: Work, job: awa.JobRow, *added: Any) -> Noted:
            return Noted(outcome, job.id, args.n, job.attempt, list(added))

        return noted

    app.declare(Noted, queue="noted")
    app.on_completed(Work)(note("completed"))
    app.on_retried(Work)(note("retried"))
    app.on_exhausted(Work)(note("exhausted"))
    app.on_cancelled(Work)(note("cancelled"))
    app.on_waiting_for_callback(Work)(note("waiting_for_callback"))
    app.on_rescued(Work)(note("rescued"))


async def complete(job: awa.Job[Work], rig: Rig) -> None:
    job.enqueue_on_completion(Next(1))


async def retry_after(job: awa.Job[Work], rig: Rig) -> object:
    job.enqueue_on_completion(Next(1))
    return awa.RetryAfter(3600)


async def fail(job: awa.Job[Work], rig: Rig) -> None:
    job.enqueue_on_completion(Next(1))
    raise ValueError("why")


async def fail_for_good(job: awa.Job[Work], rig: Rig) -> None:
    raise awa.TerminalError("why")


async def snooze(job: awa.Job[Work], rig: Rig) -> object:
    return awa.Snooze(3600)


async def cancel(job: awa.Job[Work], rig: Rig) -> object:
    return awa.Cancel("why")


async def wait(job: awa.Job[Work], rig: Rig) -> object:
    return awa.WaitForCallback(await job.register_callback(60.0))


async def swallow_a_staging_error(job: awa.Job[Work], rig: Rig) -> None:
    try:
        job.enqueue_on_completion(Next("not a number"))  # type: ignore[arg-type]
    except awa.StagingError:
        pass


async def hang(job: awa.Job[Work], rig: Rig) -> None:
    await trio.sleep_forever()


@attrs.frozen
class Ending:
    """A way for an attempt to end, and what is to become of it."""

    behaviour: Behaviour
    state: awa.JobState
    outcome: str | None
    added: list[Any] = attrs.field(factory=list)
    """What the follow-up is given; a text must only be contained in what it is."""
    dead_letter: str | None = None
    options: dict[str, Any] = attrs.field(factory=dict)
    staged: int = 0


ENDINGS = {
    "Completed": Ending(complete, S.COMPLETED, "completed", staged=1),
    "RetryAfter": Ending(retry_after, S.RETRYABLE, "retried", ["", 3600.0]),
    "exception": Ending(fail, S.RETRYABLE, "retried", ["ValueError: why", None]),
    "deadline": Ending(
        hang, S.RETRYABLE, "retried", ["the deadline of 0.2 s", None], options={"deadline": 0.2}
    ),
    "last attempt": Ending(
        fail,
        S.FAILED,
        "exhausted",
        ["ValueError: why"],
        "attempts_exhausted",
        {"max_attempts": 1},
    ),
    "last RetryAfter": Ending(
        retry_after,
        S.FAILED,
        "exhausted",
        ["max_attempts_exhausted"],
        "attempts_exhausted",
        {"max_attempts": 1},
    ),
    "TerminalError": Ending(
        fail_for_good, S.FAILED, "exhausted", ["TerminalError: why"], "terminal_error"
    ),
    "poisoned": Ending(
        swallow_a_staging_error, S.FAILED, "exhausted", ["StagingInvalid"], "poisoned"
    ),
    "Snooze": Ending(snooze, S.SCHEDULED, None),
    "Cancel": Ending(cancel, S.CANCELLED, "cancelled", ["why"]),
    "WaitForCallback": Ending(wait, S.WAITING_EXTERNAL, "waiting_for_callback", [""]),
}


class Outcomes:
    """Each ending, on one store."""

    def rig(self, client: awa.Client, behaviour: Behaviour, **task: Any) -> Rig:
        async def handler(job: awa.Job[Work]) -> object:
            return await behaviour(job, rig)

        rig = Rig(handler, client, **task)
        rig.app.queue("noted")
        return rig

    async def work_in_worker(
        self, rig: Rig, job_id: int, state: awa.JobState
    ) -> awa.JobDetails:
        async with self.working(rig):
            return await self.settled(rig, job_id, state)

    @asynccontextmanager
    async def working(self, rig: Rig, **options: Any) -> AsyncIterator[awa.Worker]:
        options = {"queues": ["default"], "timings": TIMINGS, "grace": 60.0} | options
        async with rig.working(**options) as worker:
            yield worker

    async def settled(self, rig: Rig, job_id: int, state: awa.JobState) -> awa.JobDetails:
        with trio.move_on_after(20):
            while (job := await rig.client.jobs.get(job_id)).state is not state:
                await trio.sleep(0.02)
            return job
        job = await rig.client.jobs.get(job_id)
        raise AssertionError(f"job {job_id} is {job.state}, not {state}: {job.errors}")

    async def noted(self, rig: Rig) -> list[dict[str, Any]]:
        jobs = list(reversed(await rig.client.jobs.list(kind="noted")))
        assert all(job.triggered_by == job.args_json["job_id"] for job in jobs)
        return [job.args_json for job in jobs]

    def check(
        self,
        ending: Ending,
        job: awa.JobDetails,
        noted: list[dict[str, Any]],
        staged: list[int],
    ) -> None:
        assert job.state is ending.state
        assert job.dead_letter == ending.dead_letter
        assert staged == [1] * ending.staged
        assert [note["outcome"] for note in noted] == (
            [ending.outcome] if ending.outcome else []
        )
        for note in noted:
            assert (note["job_id"], note["n"], note["attempt"]) == (job.id, 5, 1)
            assert len(note["added"]) == len(ending.added)
            for added, wanted in zip(note["added"], ending.added, strict=True):
                if isinstance(wanted, str):
                    assert wanted in added
                elif wanted is not None:
                    assert added == wanted
            if len(note["added"]) == 2 and ending.added[1] is None:
                assert 2.0 <= note["added"][1] <= 2.5

    @pytest.mark.parametrize("by", ["worker", "work_one"])
    @pytest.mark.parametrize("name", ENDINGS)
    async def test_each_ending_fires_its_outcome_alone_in_a_worker_and_in_the_harness(
        self, client: awa.Client, name: str, by: str
    ) -> None:
        ending = ENDINGS[name]
        rig = self.rig(client, ending.behaviour)
        note_outcomes(rig.app)
        job_id = await rig.enqueue(5, **ending.options)
        if by == "worker":
            job = await self.work_in_worker(rig, job_id, ending.state)
        else:
            worked = await work_one(rig.app, rig.client)
            assert isinstance(worked, Worked)
            job = worked.job
        noted = await self.noted(rig)
        self.check(ending, job, noted, await rig.follow_ups())
        if job.callback_token is not None:
            assert [note["added"] for note in noted] == [[job.callback_token]]

    async def test_a_shutdown_hands_back_and_fires_nothing(self, client: awa.Client) -> None:
        rig = self.rig(client, hang)
        note_outcomes(rig.app)
        job_id = await rig.enqueue(5)
        async with self.working(rig, grace=0.0) as worker:
            while worker.statistics().running == 0:
                await trio.sleep(0.02)
        assert await rig.state(job_id) is S.AVAILABLE
        assert await self.noted(rig) == []

    async def test_a_shutdown_that_cuts_the_only_attempt_exhausts_it(
        self, client: awa.Client
    ) -> None:
        rig = self.rig(client, hang)
        note_outcomes(rig.app)
        job_id = await rig.enqueue(5, max_attempts=1)
        async with self.working(rig, grace=0.0) as worker:
            while worker.statistics().running == 0:
                await trio.sleep(0.02)
        job = await rig.client.jobs.get(job_id)
        assert (job.state, job.dead_letter) == (S.FAILED, "interrupted")
        [note] = await self.noted(rig)
        assert note["outcome"] == "exhausted"

    async def test_arguments_that_cannot_be_decoded(
        self, client: awa.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its follow-ups need them, and are left out; the failure is what matters."""

        async def behaviour(job: awa.Job[Work], rig: Rig) -> None:
            assert job.args.n

        rig = self.rig(client, behaviour)
        note_outcomes(rig.app)
        job_id = (await rig.client.enqueue({"n": "secret"}, kind="work")).id
        job = await self.work_in_worker(rig, job_id, S.FAILED)
        assert job.dead_letter == "undecodable"
        assert await self.noted(rig) == []
        assert "was settled without its follow-up" in caplog.text
        assert "secret" not in caplog.text

    # ---- a function that raises

    @pytest.mark.parametrize(
        ("name", "on"),
        [
            ("Completed", "on_completed"),
            ("RetryAfter", "on_retried"),
            ("exception", "on_retried"),
            ("Cancel", "on_cancelled"),
            ("WaitForCallback", "on_waiting_for_callback"),
        ],
    )
    async def test_a_follow_up_that_raises_fails_the_attempt(
        self, client: awa.Client, name: str, on: str
    ) -> None:
        ending = ENDINGS[name]
        rig = self.rig(client, ending.behaviour)
        note_outcomes(rig.app)

        def broken(*facts: object) -> object:
            raise ZeroDivisionError("broken")

        getattr(rig.app, on)(Work)(broken)
        job_id = await rig.enqueue(5)
        job = await self.work_in_worker(rig, job_id, S.FAILED)
        assert job.dead_letter == "follow_up_error"
        assert "broken could not be made" in job.errors[-1].error
        assert "ZeroDivisionError" in job.errors[-1].error
        assert ("ValueError: why" in job.errors[-1].error) == (name == "exception")
        assert await rig.follow_ups() == []
        assert [note["outcome"] for note in await self.noted(rig)] == ["exhausted"]

    async def test_one_that_raises_over_a_failure_is_left_out_and_logged(
        self, client: awa.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = self.rig(client, fail_for_good)

        @rig.app.on_exhausted(Work)
        def broken(args: Work, job: awa.JobRow, error: str) -> Next:
            raise ZeroDivisionError("secret")

        note_outcomes(rig.app)
        job = await self.work_in_worker(rig, await rig.enqueue(5), S.FAILED)
        assert job.dead_letter == "terminal_error"
        assert [note["outcome"] for note in await self.noted(rig)] == ["exhausted"]
        [logged] = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert f"job {job.id} (work, " in logged
        assert "was settled without its follow-up" in logged
        assert "ZeroDivisionError" in logged
        assert "secret" not in logged

    # ---- what a function may return

    async def test_a_follow_up_is_an_enqueue_like_any_other(self, client: awa.Client) -> None:
        """Requests, lists, None; unique ones are left out where a job holds their key; none
        counts for the 16 that a handler may stage."""
        rig = self.rig(client, cancel)
        held = await rig.client.enqueue(Next(7), unique_opts={})

        @rig.app.on_cancelled(Work)
        def many(args: Work, job: awa.JobRow, reason: str) -> list[object]:
            unique = awa.EnqueueRequest(Next(7)).unique()
            named = awa.EnqueueRequest(Next(8), queue="elsewhere", priority=4, tags=["t"])
            return [unique, named, *[Next(n) for n in range(100, 120)]]

        @rig.app.on_cancelled(Work)
        def none(args: Work, job: awa.JobRow, reason: str) -> None:
            return None

        job_id = await rig.enqueue()
        async with self.working(rig) as worker:
            await self.settled(rig, job_id, S.CANCELLED)
        assert (worker.statistics().inserted, worker.statistics().duplicates) == (21, 1)
        jobs = {job.args_json["n"]: job for job in await rig.client.jobs.list(kind="next")}
        assert sorted(jobs) == [7, 8, *range(100, 120)]
        assert jobs[7].id == held.id
        assert jobs[8].metadata == {}
        assert (jobs[8].queue, jobs[8].priority, jobs[8].tags) == ("elsewhere", 4, ("t",))
        assert jobs[100].triggered_by == job_id
        ids = [jobs[n].id for n in (8, *range(100, 120))]
        assert ids == sorted(ids)

    @pytest.mark.parametrize("by", ["its handler", "another process"])
    async def test_a_completion_clears_the_progress_before_its_follow_ups_see_the_row(
        self, client: awa.Client, by: str
    ) -> None:
        """ADR-046, "Context": a failed attempt's progress reaches no later one's follow-up."""

        async def behaviour(job: awa.Job[Work], rig: Rig) -> object:
            if job.attempt == 1:
                job.progress.set(metadata={"n": 7})
                return awa.RetryAfter(0)
            assert job.progress.metadata == {"n": 7}
            return None if by == "its handler" else await wait(job, rig)

        rig = self.rig(client, behaviour)
        rig.app.on_retried(Work)(lambda args, job, error, seconds: Next(job.attempt))

        @rig.app.on_completed(Work)
        def then(args: Work, job: awa.JobRow) -> Next:
            return Next(job.progress.metadata.get("n", 100))

        job_id = await rig.enqueue(5)
        async with self.working(rig):
            if by == "another process":
                job = await self.settled(rig, job_id, S.WAITING_EXTERNAL)
                assert job.progress.metadata == {"n": 7}
                assert job.callback_token is not None
                await rig.client.callbacks.complete(job.callback_token)
            job = await self.settled(rig, job_id, S.COMPLETED)
        assert await rig.follow_ups() == [1, 100]
        assert job.progress == awa.JobProgress()

    @pytest.mark.parametrize("fault", [lose_the_answer, roll_back])
    @pytest.mark.parametrize("name", ["RetryAfter", "Cancel", "last attempt"])
    async def test_a_settlement_that_is_tried_again_inserts_once(
        self, client: awa.Client, name: str, fault: Any
    ) -> None:
        ending = ENDINGS[name]
        rig = self.rig(client, ending.behaviour)
        note_outcomes(rig.app)
        rig.backend.faults.append(fault)
        job_id = await rig.enqueue(5, **ending.options)
        await self.work_in_worker(rig, job_id, ending.state)
        assert [note["outcome"] for note in await self.noted(rig)] == [ending.outcome]

    async def test_a_stale_settlement_inserts_nothing(self, client: awa.Client) -> None:
        async def behaviour(job: awa.Job[Work], rig: Rig) -> object:
            assert await rig.client.jobs.cancel(job.id, without_follow_ups=True)
            return awa.RetryAfter(1)

        rig = self.rig(client, behaviour)
        note_outcomes(rig.app)
        await rig.enqueue(5)
        async with self.working(rig, listen=False) as worker:
            while worker.statistics().stale == 0:
                await trio.sleep(0.02)
        assert await self.noted(rig) == []

    async def test_what_the_database_refuses_is_a_dead_letter_with_the_follow_ups_of_that(
        self, client: awa.Client
    ) -> None:
        rig = self.rig(client, complete)
        note_outcomes(rig.app)

        async def refuse(plans: Any, settle: Any) -> list[Settled]:
            raise Rejected("a trigger says no") from psycopg.errors.RaiseException("no")

        rig.backend.faults.append(refuse)
        job = await self.work_in_worker(rig, await rig.enqueue(5), S.FAILED)
        assert job.dead_letter == "refused"
        assert [note["outcome"] for note in await self.noted(rig)] == ["exhausted"]
        assert await rig.follow_ups() == []

    # ---- rescue

    async def abandon(self, rig: Rig, job_id: int) -> None:
        """Claim a job for a worker that dies at once."""
        store = rig.client._backend.store
        worker = await store.register("dead", 0.05)
        [claimed] = await store.claim(worker, [Want("default", 1, 0.0)], {"work": None})
        assert claimed.id == job_id
        await trio.sleep(0.1)

    async def test_a_rescue_that_leaves_attempts_fires_rescued(
        self, client: awa.Client
    ) -> None:
        rig = self.rig(client, snooze)
        note_outcomes(rig.app)
        job_id = await rig.enqueue(5)
        await self.abandon(rig, job_id)
        await self.work_in_worker(rig, job_id, S.RETRYABLE)
        [note] = await self.noted(rig)
        assert (note["outcome"], note["added"]) == ("rescued", ["stale_worker"])

    async def test_a_rescue_that_leaves_none_fires_exhausted_and_buries(
        self, client: awa.Client
    ) -> None:
        rig = self.rig(client, snooze)
        note_outcomes(rig.app)
        job_id = await rig.enqueue(5, max_attempts=1)
        await self.abandon(rig, job_id)
        job = await self.work_in_worker(rig, job_id, S.FAILED)
        assert job.dead_letter == "rescued"
        [note] = await self.noted(rig)
        assert note["outcome"] == "exhausted"
        assert Lost.STALE_WORKER.value in note["added"][0]

    async def test_a_rescue_is_made_without_a_follow_up_that_raises(
        self, client: awa.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig = self.rig(client, snooze)

        @rig.app.on_rescued(Work)
        def broken(args: Work, job: awa.JobRow, reason: str) -> Next:
            raise ZeroDivisionError("secret")

        note_outcomes(rig.app)
        job_id = await rig.enqueue(5)
        await self.abandon(rig, job_id)
        await self.work_in_worker(rig, job_id, S.RETRYABLE)
        assert [note["outcome"] for note in await self.noted(rig)] == ["rescued"]
        assert "was settled without its follow-up" in caplog.text
        assert "secret" not in caplog.text

    # ---- an operator

    async def test_an_operators_cancel_fires_cancelled_in_the_same_transaction(
        self, client: awa.Client
    ) -> None:
        rig = self.rig(client, hang)
        note_outcomes(rig.app)
        waiting, running = await rig.enqueue(4, priority=4), await rig.enqueue(5)
        async with self.working(rig, queues={"default": 1}) as worker:
            while worker.statistics().running == 0:
                await trio.sleep(0.02)
            assert await rig.client.jobs.cancel(waiting, reason="not needed")
            assert await rig.client.jobs.cancel(running, reason="wrong")
            assert not await rig.client.jobs.cancel(running)
            while worker.statistics().running:
                await trio.sleep(0.02)
        told = [
            (note["job_id"], note["outcome"], note["added"]) for note in await self.noted(rig)
        ]
        assert told == [
            (waiting, "cancelled", ["not needed"]),
            (running, "cancelled", ["wrong"]),
        ]

    async def test_a_cancel_whose_follow_up_raises_is_refused_and_changes_nothing(
        self, client: awa.Client
    ) -> None:
        rig = self.rig(client, hang)
        note_outcomes(rig.app)

        @rig.app.on_cancelled(Work)
        def broken(args: Work, job: awa.JobRow, reason: str) -> Next:
            raise ZeroDivisionError

        job_id = await rig.enqueue(5)
        with pytest.raises(
            awa.FollowUpError, match=f"broken could not be made, so job {job_id}"
        ) as caught:
            await rig.client.jobs.cancel(job_id)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert caught.value.function.endswith("broken")
        assert await rig.state(job_id) is S.AVAILABLE
        assert await self.noted(rig) == []
        assert await rig.client.jobs.cancel(job_id, without_follow_ups=True)
        assert await self.noted(rig) == []

    async def test_the_row_may_move_under_a_cancel_and_its_follow_ups_see_the_new_one(
        self, client: awa.Client
    ) -> None:
        """Guarded on the state and lease they saw; on a miss they run again."""
        rig = self.rig(client, hang)
        store = rig.client._backend.store
        seen: list[int] = []

        @rig.app.on_cancelled(Work)
        def note(args: Work, job: awa.JobRow, reason: str) -> Next:
            seen.append(job.run_lease)
            return Next(job.run_lease)

        job_id = await rig.enqueue(5)
        worker = await store.register("another", 3600)
        settle, misses = store.settle, [1]

        async def overtaken(*arguments: Any, **options: Any) -> list[Settled]:
            if misses:
                misses.pop()
                [claimed] = await store.claim(worker, [Want("default", 1, 0.0)], {"work": None})
                assert claimed.id == job_id
            answers: list[Settled] = await settle(*arguments, **options)
            return answers

        store.settle = overtaken  # type: ignore[method-assign]
        assert await rig.client.jobs.cancel(job_id)
        assert seen == [0, 1]
        assert await rig.follow_ups() == [1]

    async def test_a_retry_fires_nothing_and_needs_no_app(self, client: awa.Client) -> None:
        rig = self.rig(client, fail_for_good)
        note_outcomes(rig.app)
        job_id = await rig.enqueue(5)
        await self.work_in_worker(rig, job_id, S.FAILED)
        before = len(await self.noted(rig))
        await client.jobs.retry(job_id)
        assert await rig.state(job_id) is S.AVAILABLE
        assert len(await self.noted(rig)) == before

    # ---- dead letters

    async def test_a_queue_may_do_without_dead_letters(self, client: awa.Client) -> None:
        rig = self.rig(client, fail_for_good, queue="plain")
        rig.app.queue("plain", dead_letters=False)
        note_outcomes(rig.app)
        job_id = await rig.enqueue(5)
        async with self.working(rig, queues={"plain": 3}):
            job = await self.settled(rig, job_id, S.FAILED)
        assert job.dead_letter is None
        assert [note["outcome"] for note in await self.noted(rig)] == ["exhausted"]

    async def test_or_one_worker_of_it(self, client: awa.Client) -> None:
        rig = self.rig(client, fail_for_good)
        settings = awa.QueueSettings(dead_letters=False)
        job_id = await rig.enqueue(5)
        async with self.working(rig, queues={"default": settings}):
            job = await self.settled(rig, job_id, S.FAILED)
        assert job.dead_letter is None

    async def test_a_dead_letter_that_is_retried_runs_again(self, client: awa.Client) -> None:
        async def behaviour(job: awa.Job[Work], rig: Rig) -> None:
            if not mended:
                raise awa.TerminalError("why")

        mended: list[bool] = []
        rig = self.rig(client, behaviour)
        job_id = await rig.enqueue(5)
        async with self.working(rig):
            await self.settled(rig, job_id, S.FAILED)
            mended.append(True)
            await rig.client.dlq.retry(job_id)
            job = await self.settled(rig, job_id, S.COMPLETED)
        assert (job.dead_letter, job.attempt, job.run_lease) == (None, 1, 2)
        assert len(job.errors) == 1
