"""A job completed in a transaction of its handler's own: rows and completion, or neither.

On PostgreSQL only: a store in memory has no transactions. Real faults: backends are
terminated, answers of COMMITs are lost, workers fenced and killed.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio
from psycopg.conninfo import make_conninfo

import awa_trio as awa
from awa_trio._core.job import PreparedInsert
from awa_trio._core.plan import Plan, Transition
from awa_trio._core.staging import StagingBuffer
from awa_trio._runtime.upkeep import Upkeep
from awa_trio._seam.errors import Transient
from awa_trio.pg import TrioConnection
from awa_trio.testing import work_one
from tests.pg.proxy import Proxy

from .app_for_processes import Ledgered
from .app_for_processes import app as app_of_processes
from .rig import Next, Rig, Work

S = awa.JobState
Job = awa.Job[Work]
ROOT = Path(__file__).parents[2]

TIMINGS = awa.Timings(
    heartbeat=1.0, lease=12.0, finalize_deadline=8.0, rescue_interval=0.2, poll_interval=0.05
)


class Hooked(TrioConnection[Any]):
    """Lets a test do something just before a block ends."""

    before_commit: Callable[[], Awaitable[None]] | None = None

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        hook = self.before_commit
        if hook is not None and gen.__name__ == "_exit_gen":
            self.before_commit = None
            await hook()
        return await super().wait(gen, *args, **options)


class Desk:
    """A database with a table of the handler's own."""

    def __init__(self, dsn: str, client: awa.Client) -> None:
        self.dsn = dsn
        self.client = client
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE mine (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    @asynccontextmanager
    async def connected(self, dsn: str = "", **options: Any) -> AsyncIterator[Hooked]:
        options = {"autocommit": True} | options
        connection = await Hooked.connect(dsn or self.dsn, **options)
        try:
            yield connection
        finally:
            await connection.close()

    def rows(self) -> list[int]:
        with psycopg.connect(self.dsn) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM mine ORDER BY n")]

    def execute(self, statement: str, *parameters: object) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters)

    def kill_transactions(self) -> None:
        """End every session that waits inside a transaction."""
        self.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )

    def rig(self, handler: Any, **task: Any) -> Rig:
        return Rig(handler, self.client, **task)

    async def work(self, handler: Any) -> tuple[Rig, awa.JobDetails]:
        rig = self.rig(handler)
        await rig.enqueue()
        worked = await work_one(rig.app, rig.client)
        assert worked is not None
        return rig, worked.job


@pytest.fixture(params=["canonical", "segmented"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    dsn: str = request.getfixturevalue(request.param)
    async with awa.connect(dsn) as client:
        yield Desk(dsn, client)


async def insert(tx: awa.CompletionTransaction[Any], n: int = 1) -> None:
    await tx.connection.execute("INSERT INTO mine VALUES (%s)", [n])


# ---- what it is for


@pytest.mark.parametrize("autocommit", [True, False])
async def test_rows_follow_ups_and_completion_commit_together(
    desk: Desk, autocommit: bool
) -> None:
    async def handler(job: Job) -> None:
        job.progress.set(percent=50)
        async with desk.connected(autocommit=autocommit) as connection:
            async with job.complete_in(connection) as tx:
                assert tx.connection is connection
                await insert(tx)
                answer = await tx.enqueue(Next(1), unique_opts={})
                many = await tx.enqueue_many([Next(1), Next(2)], unique_opts={})
                assert [answer.inserted, *(one.inserted for one in many)] == [True, False, True]
                assert many[0].id == answer.id
                job.set_output({"rows": 1})
                assert desk.rows() == []
                assert await rig.follow_ups() == []
                assert await rig.state(job.id) is S.RUNNING
            assert connection.idle
            assert desk.rows() == [1]
            assert await rig.state(job.id) is S.COMPLETED

    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS, queues=["default"]) as worker:
        job = await rig.client.jobs.wait(job_id)
        assert (job.state, job.output, job.attempt) == (S.COMPLETED, {"rows": 1}, 1)
        assert job.progress == awa.JobProgress()
        while worker.statistics().running:
            await trio.sleep(0.01)
    assert await rig.follow_ups() == [1, 2]
    [first, _] = await rig.client.jobs.list(kind="next")
    assert first.triggered_by == job_id
    statistics = worker.statistics()
    assert statistics.settled[S.COMPLETED] == 1
    assert (statistics.inserted, statistics.duplicates, statistics.stale) == (2, 1, 0)
    assert statistics.overdue == 0


async def test_registered_follow_ups_commit_with_it(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await tx.enqueue(Next(1))
            order.append("block")

    order = []
    rig = desk.rig(handler)

    @rig.app.on_completed(Work)
    def also(args: Work, job: awa.JobRow) -> Next:
        order.append("spec")
        return Next(10 + args.n)

    await rig.enqueue(5)
    worked = await work_one(rig.app, rig.client)
    assert worked is not None
    assert worked.state is S.COMPLETED
    assert sorted(await rig.follow_ups()) == [1, 15]
    assert order == ["spec", "block"], "no function of the app's runs in the transaction"


async def test_a_registered_follow_up_that_fails_begins_nothing(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection):
            raise AssertionError("not reached")

    rig = desk.rig(handler)

    @rig.app.on_completed(Work)
    def broken(args: Work, job: awa.JobRow) -> Next:
        raise ValueError("no")

    await rig.enqueue()
    worked = await work_one(rig.app, rig.client)
    assert worked is not None
    assert worked.state is S.FAILED
    assert "FollowUpError" in (worked.error or "")


@pytest.mark.parametrize(
    "ending",
    [ValueError("no"), awa.RetryAfter(3600), awa.Snooze(3600), awa.Cancel(), None, "sleep"],
    ids=repr,
)
async def test_nothing_that_happens_after_the_commit_changes_it(
    desk: Desk, ending: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def handler(job: Job) -> object:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx)
        if ending == "sleep":
            await trio.sleep_forever()
        if isinstance(ending, ValueError):
            raise ending
        return ending

    rig = desk.rig(handler, deadline=3.0 if ending == "sleep" else None)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS) as worker:
        await rig.client.jobs.wait(job_id)
        while worker.statistics().running:
            await trio.sleep(0.01)
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.errors) == (S.COMPLETED, [])
    assert desk.rows() == [1]
    said = "which stays completed" in caplog.text
    assert said is (ending is not None)
    assert worker.statistics().stale == 0


async def test_a_shutdown_after_the_commit_changes_nothing(desk: Desk) -> None:
    committed = trio.Event()

    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx)
        committed.set()
        await trio.sleep_forever()

    rig = desk.rig(handler, max_attempts=1)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS, grace=0):
        await committed.wait()
    job = await rig.client.jobs.get(job_id)
    assert (job.state, job.errors) == (S.COMPLETED, [])


async def test_after_the_commit_the_attempt_is_over(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection:
            async with job.complete_in(connection) as tx:
                pass
            with pytest.raises(awa.StagingSealed):
                job.enqueue_on_completion(Next(1))
            with pytest.raises(awa.LeaseLost):
                job.set_output(1)
            with pytest.raises(awa.LeaseLost):
                job.progress.set(percent=1)
            with pytest.raises(awa.LeaseLost):
                await job.flush_progress()
            with pytest.raises(awa.InvalidTransition, match="has completed its job already"):
                async with job.complete_in(connection):
                    pass
            with pytest.raises(awa.InvalidTransition, match="the transaction is over"):
                await tx.enqueue(Next(1))
        checked.append(True)

    checked: list[bool] = []
    rig, job = await desk.work(handler)
    assert (job.state, job.raw_output, checked) == (S.COMPLETED, None, [True])
    assert await rig.follow_ups() == []


# ---- endings of the block that roll back


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ValueError("no"), S.RETRYABLE),
        (awa.RetryAfter(3600), S.RETRYABLE),
        (awa.Cancel(), S.CANCELLED),
        (awa.TerminalError("no"), S.FAILED),
    ],
    ids=repr,
)
async def test_an_exception_rolls_everything_back(
    desk: Desk, error: Exception, state: awa.JobState
) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection:
            try:
                async with job.complete_in(connection) as tx:
                    await insert(tx)
                    await tx.enqueue(Next(1))
                    job.set_output(1)
                    raise error
            finally:
                assert connection.idle

    rig, job = await desk.work(handler)
    assert (job.state, job.raw_output) == (state, None)
    assert desk.rows() == await rig.follow_ups() == []


async def test_after_a_rollback_the_attempt_goes_on_as_if_nothing_had_been(desk: Desk) -> None:
    def fail(error: type[Exception]) -> None:
        raise error

    async def handler(job: Job) -> None:
        async with desk.connected() as connection:
            with pytest.raises(ZeroDivisionError):
                async with job.complete_in(connection) as tx:
                    await insert(tx, 1)
                    fail(ZeroDivisionError)
            async with job.complete_in(connection) as tx:
                await insert(tx, 2)
                fail(psycopg.Rollback)
            assert await rig.state(job.id) is S.RUNNING
            job.enqueue_on_completion(Next(3))

    rig = desk.rig(handler)
    await rig.enqueue()
    worked = await work_one(rig.app, rig.client)
    assert worked is not None
    assert worked.state is S.COMPLETED
    assert desk.rows() == []
    assert await rig.follow_ups() == [3]


async def test_a_second_try_may_commit(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                async with job.complete_in(connection) as tx:
                    await insert(tx, 1)
                    await tx.connection.execute("SELECT 1/0")
            async with job.complete_in(connection) as tx:
                await insert(tx, 2)

    _, job = await desk.work(handler)
    assert job.state is S.COMPLETED
    assert desk.rows() == [2]


async def test_a_failed_statement_that_was_swallowed_commits_nothing(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx)
            try:
                await tx.connection.execute("SELECT 1/0")
            except psycopg.Error:
                pass

    _, job = await desk.work(handler)
    assert job.state is S.RETRYABLE
    assert "InFailedSqlTransaction" in job.errors[-1].error
    assert desk.rows() == []


async def test_what_the_database_refuses_at_the_commit_is_rolled_back(desk: Desk) -> None:
    """A deferred constraint: the answer has arrived, so nothing is uncertain."""
    desk.execute("INSERT INTO mine VALUES (1)")

    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx, 1)

    _, job = await desk.work(handler)
    assert job.state is S.RETRYABLE
    assert "UniqueViolation" in job.errors[-1].error
    assert desk.rows() == [1]


@pytest.mark.parametrize("by", ["deadline", "shutdown", "admin cancel"])
async def test_a_cut_inside_the_block_rolls_back(desk: Desk, by: str) -> None:
    inside = trio.Event()

    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx)
            inside.set()
            await trio.sleep_forever()

    rig = desk.rig(handler, deadline=3.0 if by == "deadline" else 0)
    job_id = await rig.enqueue()
    expected = {"deadline": S.RETRYABLE, "shutdown": S.AVAILABLE, "admin cancel": S.CANCELLED}
    async with rig.working(timings=TIMINGS, grace=0):
        await inside.wait()
        if by == "admin cancel":
            with trio.fail_after(5):
                assert await rig.client.jobs.cancel(job_id)
        if by == "deadline":
            while await rig.state(job_id) is S.RUNNING:
                await trio.sleep(0.01)
    assert await rig.state(job_id) is expected[by]
    assert desk.rows() == []


# ---- the lease


async def _nothing(upkeep: Upkeep) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("when", ["before", "inside"])
@pytest.mark.parametrize("how", ["cancelled", "rescued", "fenced"])
async def test_a_lost_lease_raises_and_rolls_back(
    desk: Desk, how: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = []

    async def lose(job: Job) -> None:
        store = rig.client._backend.store
        if how == "cancelled":
            await rig.client.jobs.cancel(job.id)
        elif how == "rescued":
            moved = Transition(job.id, 1, S.RUNNING, S.RETRYABLE, 1, seconds=3600.0)
            [settled] = await store.settle([Plan(moved)], worker=None)
            assert settled.applied
        else:
            desk.execute("UPDATE awa.workers SET fenced_at = clock_timestamp()")

    async def handler(job: Job) -> None:
        with trio.CancelScope(shield=True):
            async with desk.connected() as connection:
                try:
                    if when == "before":
                        await lose(job)
                    async with job.complete_in(connection) as tx:
                        await insert(tx)
                        await tx.enqueue(Next(1))
                        if when == "inside":
                            await lose(job)
                except awa.LeaseLost as error:
                    raised.append(str(error))
                    assert connection.idle
                    raise

    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    # Deaf, slow to compare, and no rescuer, so that it is the guard that stops it.
    monkeypatch.setattr(Upkeep, "rescue", _nothing)
    timings = awa.Timings(heartbeat=100, lease=1000)
    async with rig.working(timings=timings, listen=False, grace=0):
        with trio.fail_after(20):
            while not raised:
                await trio.sleep(0.01)
    if how == "fenced" and when == "before":
        # A row that is marked as ours may still be looked at; the settlement is refused.
        assert "presumed dead" in raised[0]
    assert desk.rows() == await rig.follow_ups() == []
    assert await rig.state(job_id) in (S.CANCELLED, S.RETRYABLE, S.RUNNING)


async def test_an_operator_who_cancels_during_the_block_does_not_wait(desk: Desk) -> None:
    """The transaction may take its time: nobody waits for it but at its very end."""

    async def handler(job: Job) -> None:
        with trio.CancelScope(shield=True):
            async with desk.connected() as connection, job.complete_in(connection) as tx:
                await insert(tx)
                with trio.fail_after(20):
                    assert await rig.client.jobs.cancel(job.id)
                done.append(True)

    done: list[bool] = []
    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS):
        await rig.client.jobs.wait(job_id)
    assert done == [True]
    assert await rig.state(job_id) is S.CANCELLED
    assert desk.rows() == []


async def test_progress_during_the_block_does_not_disturb_a_stricter_isolation(
    desk: Desk,
) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
            async with job.complete_in(connection) as tx:
                await insert(tx)
                job.progress.set(percent=50)
                await trio.sleep(0.5)

    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    timings = awa.Timings(heartbeat=0.05, lease=10, finalize_deadline=5)
    async with rig.working(timings=timings):
        job = await rig.client.jobs.wait(job_id)
    assert (job.state, job.attempt) == (S.COMPLETED, 1)


LEVELS = [
    psycopg.IsolationLevel.READ_COMMITTED,
    psycopg.IsolationLevel.REPEATABLE_READ,
    psycopg.IsolationLevel.SERIALIZABLE,
]


@pytest.mark.parametrize("level", LEVELS)
async def test_upkeep_that_comes_round_during_a_long_block_does_not_disturb_it(
    desk: Desk, level: psycopg.IsolationLevel
) -> None:
    """It may move the row of an attempt that takes long, though nothing is wrong with it."""

    async def handler(job: Job) -> None:
        async with desk.connected() as connection:
            await connection.set_isolation_level(level)
            async with job.complete_in(connection) as tx:
                await insert(tx)
                async with desk.connected() as upkeep:
                    await upkeep.execute(A_MINUTE_PASSES)
                await tx.enqueue(Next(1))

    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS):
        job = await rig.client.jobs.wait(job_id)
    assert job.errors == []
    assert (job.state, job.attempt) == (S.COMPLETED, 1)
    assert desk.rows() == [1]
    assert await rig.follow_ups() == [1]


#: What an attempt of a minute comes to in the segmented engine.
A_MINUTE_PASSES = """
DO $$
BEGIN
    IF awa.engine() = 'segmented' THEN
        PERFORM awa.carry(ARRAY(SELECT id FROM awa.lane_jobs));
    END IF;
END
$$
"""


@pytest.mark.parametrize("level", LEVELS)
async def test_a_job_that_is_cancelled_during_the_block_is_not_completed(
    desk: Desk, level: psycopg.IsolationLevel
) -> None:
    async def handler(job: Job) -> None:
        with trio.CancelScope(shield=True):
            async with desk.connected() as connection:
                await connection.set_isolation_level(level)
                try:
                    async with job.complete_in(connection) as tx:
                        await insert(tx)
                        await tx.enqueue(Next(1))
                        assert await rig.client.jobs.cancel(job.id)
                except (awa.LeaseLost, awa.DatabaseUnavailable) as error:
                    ended.append(error)

    ended: list[BaseException] = []
    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS):
        await rig.client.jobs.wait(job_id)
    assert len(ended) == 1
    assert await rig.state(job_id) is S.CANCELLED
    assert desk.rows() == []
    assert await rig.follow_ups() == []


# ---- staging is not offered there


async def test_entering_with_something_staged_is_refused(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        job.enqueue_on_completion(Next(1))
        async with desk.connected() as connection, job.complete_in(connection):
            raise AssertionError("not reached")

    rig, job = await desk.work(handler)
    assert job.state is S.FAILED
    assert "StagingNotOffered: this attempt has staged 1 follow-ups" in job.errors[-1].error
    assert await rig.follow_ups() == []


@pytest.mark.parametrize("swallowed", [True, False])
async def test_staging_inside_is_refused_and_cannot_be_swallowed(
    desk: Desk, swallowed: bool
) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx)
            try:
                job.enqueue_on_completion(Next(1))
            except awa.StagingNotOffered:
                if not swallowed:
                    raise

    rig, job = await desk.work(handler)
    assert job.state is S.FAILED
    assert "StagingNotOffered" in job.errors[-1].error
    assert desk.rows() == await rig.follow_ups() == []


async def test_a_poisoned_attempt_cannot_complete_itself(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        with pytest.raises(awa.StagingInvalid):
            job.enqueue_on_completion(Next(1), priority=9)
        async with desk.connected() as connection, job.complete_in(connection):
            raise AssertionError("not reached")

    _, job = await desk.work(handler)
    assert job.state is S.FAILED
    assert "StagingInvalid" in job.errors[-1].error


async def test_an_invalid_follow_up_in_the_block_is_an_ordinary_error(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx)
            with pytest.raises(awa.InvalidRequest):
                await tx.enqueue(Next(1), priority=9)
            with pytest.raises(awa.UnknownKind):
                await tx.enqueue({}, kind="nobody")

    _, job = await desk.work(handler)
    assert job.state is S.COMPLETED
    assert desk.rows() == [1]


# ---- connections that will not do


async def test_a_connection_in_a_transaction_is_refused(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, connection.transaction():
            with pytest.raises(awa.ConfigurationError, match="in a transaction already"):
                async with job.complete_in(connection):
                    pass
            await connection.execute("SELECT 1")
        async with desk.connected(autocommit=False) as connection:
            await connection.execute("SELECT 1")
            with pytest.raises(awa.ConfigurationError, match="autocommit=True"):
                async with job.complete_in(connection):
                    pass
        async with desk.connected() as connection, connection.pipeline():
            with pytest.raises(awa.ConfigurationError, match="in a pipeline"):
                async with job.complete_in(connection):
                    pass
        with pytest.raises(awa.ConfigurationError, match="is closed"):
            async with job.complete_in(connection):
                pass
        with (
            psycopg.connect(desk.dsn) as synchronous,
            pytest.raises(awa.ConfigurationError, match="not Connection"),
        ):
            async with job.complete_in(synchronous):
                pass
        checked.append(True)

    checked: list[bool] = []
    _, job = await desk.work(handler)
    assert (job.state, checked) == (S.COMPLETED, [True])


async def test_another_database_is_refused(desk: Desk, awa_dsn: str, dsn: str) -> None:
    """Also one that has the schema, a worker, and a job with the same numbers."""
    await awa.migrate(dsn)

    async def handler(job: Job) -> None:
        async with desk.connected(dsn) as connection:
            with pytest.raises(awa.ConfigurationError, match="another database"):
                async with job.complete_in(connection):
                    pass
            assert connection.idle

    _, job = await desk.work(handler)
    assert job.state is S.COMPLETED


async def test_ending_the_transaction_by_hand_is_refused(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await tx.connection.execute("ROLLBACK")

    _, job = await desk.work(handler)
    assert job.state is S.RETRYABLE
    assert "was ended inside complete_in" in job.errors[-1].error


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("begin", ["BEGIN", "START TRANSACTION ISOLATION LEVEL SERIALIZABLE"])
@pytest.mark.parametrize("autocommit", [True, False])
async def test_another_transaction_is_not_the_one_it_completes_in(
    desk: Desk, end: str, begin: str, autocommit: bool
) -> None:
    """What was written before is committed, if the handler said so; nothing after that is."""

    async def handler(job: Job) -> None:
        async with (
            desk.connected(autocommit=autocommit) as connection,
            job.complete_in(connection) as tx,
        ):
            await insert(tx, 1)
            await tx.connection.execute(end.encode())
            await tx.connection.execute(begin.encode())
            await insert(tx, 2)
            await tx.enqueue(Next(1), kind="next")

    rig, job = await desk.work(handler)
    assert job.state is S.RETRYABLE
    assert "ended inside complete_in, and another begun" in job.errors[-1].error
    assert desk.rows() == ([1] if end == "COMMIT" else [])
    assert await rig.follow_ups() == []


@pytest.mark.parametrize("chain", ["COMMIT AND CHAIN", "ROLLBACK AND CHAIN"])
async def test_nor_is_one_that_is_chained_to_it(desk: Desk, chain: str) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await tx.connection.execute(chain.encode())
            await insert(tx, 2)

    _, job = await desk.work(handler)
    assert job.state is S.RETRYABLE
    assert "ended inside complete_in, and another begun" in job.errors[-1].error
    assert desk.rows() == []


async def test_savepoints_of_the_handlers_own_are_part_of_it(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await tx.connection.execute("SAVEPOINT a")
            await insert(tx, 1)
            await tx.connection.execute("ROLLBACK TO SAVEPOINT a")
            async with tx.connection.transaction():
                await insert(tx, 2)

    _, job = await desk.work(handler)
    assert job.state is S.COMPLETED
    assert desk.rows() == [2]


async def test_two_blocks_at_once_are_refused(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as one, desk.connected() as other:
            async with job.complete_in(one):
                with pytest.raises(awa.InvalidTransition, match="open already"):
                    async with job.complete_in(other):
                        pass

    _, job = await desk.work(handler)
    assert job.state is S.COMPLETED


@pytest.mark.virtual_time
async def test_a_store_in_memory_says_that_it_cannot() -> None:
    async def handler(job: Job) -> None:
        with pytest.raises(awa.ConfigurationError, match="in memory has no transactions"):
            async with job.complete_in(None):
                pass
        job.enqueue_on_completion(Next(1))

    rig = Rig(handler)
    await rig.enqueue()
    worked = await work_one(rig.app, rig.client)
    assert worked is not None
    assert worked.error is None
    assert await rig.follow_ups() == [1]


async def test_a_job_that_nobody_runs_says_so() -> None:
    row = awa.JobRow(
        1, "k", "q", 1, 1, 1, b"{}", None, None, 0, 0, None, None, 1, None, None, None
    )
    job: awa.Job[None] = awa.Job(
        row, lambda _: None, StagingBuffer(), lambda *_: PreparedInsert("", "", b"")
    )
    with pytest.raises(awa.ConfigurationError, match="no worker runs this job"):
        await job.flush_progress()
    with pytest.raises(awa.ConfigurationError, match="no worker runs this job"):
        job.complete_in(None)


# ---- faults


def _until_settled(rig: Rig, job_id: int) -> Any:
    async def wait() -> awa.JobDetails:
        with trio.fail_after(30):
            while (job := await rig.client.jobs.get(job_id)).state in (S.AVAILABLE, S.RUNNING):
                await trio.sleep(0.01)
        return job

    return wait()


async def test_the_backend_dies_inside_the_block(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        async with desk.connected() as connection, job.complete_in(connection) as tx:
            await insert(tx)
            await trio.to_thread.run_sync(desk.kill_transactions)

    _, job = await desk.work(handler)
    assert job.state is S.RETRYABLE
    assert "DatabaseUnavailable" in job.errors[-1].error
    assert desk.rows() == []


@pytest.mark.parametrize("raises", [True, False])
async def test_the_backend_dies_before_the_commit(desk: Desk, raises: bool) -> None:
    """After the settlement: the server says that the transaction was aborted."""
    attempts = []

    async def handler(job: Job) -> None:
        attempts.append(job.attempt)
        async with desk.connected() as connection:
            if job.attempt == 1:

                async def die() -> None:
                    await trio.to_thread.run_sync(desk.kill_transactions)

                connection.before_commit = die
            try:
                async with job.complete_in(connection) as tx:
                    await insert(tx, job.attempt)
                    await tx.enqueue(Next(job.attempt))
            except awa.DatabaseUnavailable as error:
                assert "nothing was committed" in str(error)
                if raises:
                    raise
                raise awa.RetryAfter(0) from error

    rig = desk.rig(handler, backoff=lambda _: 0.0)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS):
        job = await rig.client.jobs.wait(job_id)
    assert job.state is S.COMPLETED
    assert attempts == [1, 2]
    assert desk.rows() == await rig.follow_ups() == [2]


async def proxied(desk: Desk, nursery: trio.Nursery) -> Proxy:
    proxy = Proxy(desk.dsn)
    await nursery.start(proxy.serve)
    return proxy


async def test_the_answer_of_the_commit_is_lost_and_it_committed(
    desk: Desk, nursery: trio.Nursery
) -> None:
    proxy = await proxied(desk, nursery)
    went_on = []

    async def handler(job: Job) -> None:
        async with desk.connected(proxy.dsn) as connection:

            async def lose() -> None:
                proxy.cut_after(1)

            connection.before_commit = lose
            async with job.complete_in(connection) as tx:
                await insert(tx)
                await tx.enqueue(Next(1))
            went_on.append(connection.closed)

    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS) as worker:
        job = await rig.client.jobs.wait(job_id)
        while worker.statistics().running:
            await trio.sleep(0.01)
    assert (job.state, job.attempt, job.errors) == (S.COMPLETED, 1, [])
    assert went_on == [True], "the block ended as if the answer had arrived"
    assert desk.rows() == await rig.follow_ups() == [1]
    assert worker.statistics().settled[S.COMPLETED] == 1


async def test_the_commit_itself_is_lost(desk: Desk, nursery: trio.Nursery) -> None:
    """It never reaches the server, which still has the transaction open for a while."""
    proxy = await proxied(desk, nursery)
    raised = []

    async def handler(job: Job) -> None:
        async with desk.connected(proxy.dsn) as connection:

            async def lose() -> None:
                proxy.stall()
                job.nursery.start_soon(later, connection)

            async def later(connection: Hooked) -> None:
                await trio.sleep(0.2)
                connection.close_nowait()
                await trio.sleep(0.5)
                await trio.to_thread.run_sync(desk.kill_transactions)

            connection.before_commit = lose
            try:
                async with job.complete_in(connection) as tx:
                    await insert(tx)
            except awa.DatabaseUnavailable as error:
                raised.append(str(error))
                raise

    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS):
        job = await _until_settled(rig, job_id)
    assert job.state is S.RETRYABLE
    assert "nothing was committed" in raised[0]
    assert desk.rows() == []


@pytest.mark.parametrize("landed", [True, False])
async def test_nobody_can_be_asked_whether_it_committed(
    desk: Desk, nursery: trio.Nursery, landed: bool
) -> None:
    """The worker gives up asking; the guard of the next settlement is what decides."""
    proxy = await proxied(desk, nursery)
    raised = []

    async def handler(job: Job) -> None:
        async with desk.connected(proxy.dsn) as connection:

            async def lose() -> None:
                if landed:
                    proxy.cut_after(1)
                else:
                    proxy.reset()

            connection.before_commit = lose if job.attempt == 1 else None
            try:
                async with job.complete_in(connection) as tx:
                    await insert(tx, job.attempt)
            except awa.DatabaseUnavailable as error:
                raised.append(str(error))
                raise

    async def never(*args: object) -> bool:
        raise Transient("no route to host")

    rig = desk.rig(handler, backoff=lambda _: 0.0)
    job_id = await rig.enqueue()
    timings = awa.Timings(heartbeat=1.0, lease=12.0, finalize_deadline=4.0, poll_interval=0.05)
    rig.backend.broken["has_committed"] = never
    async with rig.working(timings=timings) as worker:
        with trio.fail_after(30):
            while not raised:
                await trio.sleep(0.01)
        job = await rig.client.jobs.wait(job_id)
        while worker.statistics().running:
            await trio.sleep(0.01)
    assert "it is not known whether it did" in raised[0]
    assert job.state is S.COMPLETED
    assert job.attempt == (1 if landed else 2)
    assert desk.rows() == [job.attempt]
    assert worker.statistics().stale == (1 if landed else 0)


@pytest.mark.parametrize("landed", [True, False])
async def test_cut_while_it_commits(desk: Desk, nursery: trio.Nursery, landed: bool) -> None:
    """A shutdown strikes while the COMMIT is unanswered: its outcome counts, not the cut."""
    proxy = await proxied(desk, nursery)
    committing = trio.Event()

    async def handler(job: Job) -> None:
        async with desk.connected(proxy.dsn) as connection:
            connection.cancel_grace = 0.5

            async def stall() -> None:
                if landed:
                    proxy.latency = 1.5  # The COMMIT arrives when nobody waits for it any more.
                else:
                    proxy.stall()
                    nursery.start_soon(lose)
                committing.set()

            async def lose() -> None:
                await trio.sleep(1.0)
                await trio.to_thread.run_sync(desk.kill_transactions)

            connection.before_commit = stall
            async with job.complete_in(connection) as tx:
                await insert(tx)

    rig = desk.rig(handler, max_attempts=1, deadline=0)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS, grace=0):
        await committing.wait()
    job = await _until_settled(rig, job_id)
    assert job.state is (S.COMPLETED if landed else S.FAILED)
    assert desk.rows() == ([1] if landed else [])


async def test_two_who_complete_the_same_job_at_once(desk: Desk) -> None:
    """The row's lock decides: the second finds the job completed, and rolls back."""
    both: list[bool] = []

    async def handler(job: Job) -> None:
        async with desk.connected() as connection, desk.connected() as other:

            async def intrude() -> None:
                moved = Transition(job.id, 1, S.RUNNING, S.COMPLETED, 1)
                store = rig.client._backend.store

                async def settle() -> None:
                    [settled] = await store.settle([Plan(moved)], worker=None, patience=5)
                    both.append(settled.applied)

                job.nursery.start_soon(settle)
                await trio.sleep(0.2)

            connection.before_commit = intrude
            async with job.complete_in(connection) as tx:
                await insert(tx)
            assert other.idle

    rig = desk.rig(handler)
    job_id = await rig.enqueue()
    async with rig.working(timings=TIMINGS):
        await rig.client.jobs.wait(job_id)
    assert both == [False]
    assert desk.rows() == [1]


# ---- kill -9


@pytest.mark.parametrize("when", ["inside", "settled", "committed"])
async def test_a_worker_killed_between(desk: Desk, when: str) -> None:
    """Rows exist exactly for the attempt that completed."""
    desk.execute("CREATE TABLE ledgered (job bigint, attempt int)")
    async with awa.connect(desk.dsn, app=app_of_processes) as client:
        job_id = (await client.enqueue(Ledgered(when))).id

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.runtime.app_for_processes", desk.dsn],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                text=True,
            )

        def one(process: subprocess.Popen[str], word: str) -> None:
            assert process.stdout is not None
            while (line := process.stdout.readline().strip()) != word:
                assert line, "the worker process ended"

        with start() as first:
            await trio.to_thread.run_sync(one, first, when)
            first.send_signal(signal.SIGKILL)
        state = await client.jobs.get(job_id)
        assert (state.state is S.COMPLETED) is (when == "committed")
        with start() as second:
            with trio.fail_after(60):
                job = await client.jobs.wait(job_id)
            second.kill()
    assert job.attempt == (1 if when == "committed" else 2)
    with psycopg.connect(make_conninfo(desk.dsn)) as connection:
        rows = connection.execute("SELECT job, attempt FROM ledgered").fetchall()
    assert rows == [(job_id, job.attempt)]
