"""Progress and output, from the handler's call to the row, on both stores."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import awa_trio as awa
from awa_trio._seam.errors import Transient
from awa_trio._seam.values import Want
from awa_trio.testing import work_one

from .rig import Next, Rig, Work

S = awa.JobState
Job = awa.Job[Work]

#: Beats so rare that only transitions and `flush_progress` write.
RARE = awa.Timings(
    heartbeat=3.0, lease=9.1, finalize_deadline=5.0, rescue_interval=0.2, poll_interval=0.05
)
#: Beats that a test can wait for.
OFTEN = awa.Timings(
    heartbeat=0.05, lease=9.0, finalize_deadline=5.0, rescue_interval=0.2, poll_interval=0.05
)


class Reports:
    """What both stores do. Subclasses give the fixture `make`."""

    @pytest.fixture
    def client(self) -> awa.Client | None:
        return None

    async def until(self, rig: Rig, job_id: int, state: awa.JobState) -> awa.JobDetails:
        with trio.fail_after(20):
            while (job := await rig.client.jobs.get(job_id)).state is not state:
                await trio.sleep(0.01)
        return job

    async def test_progress_is_written_with_the_next_beat(
        self, client: awa.Client | None
    ) -> None:
        seen = trio.Event()

        async def handler(job: Job) -> None:
            job.progress.set(percent=40, message="half of it", metadata={"page": 7})
            await seen.wait()

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        async with rig.working(timings=OFTEN):
            with trio.fail_after(20):
                while (await rig.client.jobs.get(job_id)).progress.percent is None:
                    await trio.sleep(0.01)
            job = await rig.client.jobs.get(job_id)
            assert job.state is S.RUNNING
            assert job.progress == awa.JobProgress(40, "half of it", {"page": 7})
            seen.set()
            job = await self.until(rig, job_id, S.COMPLETED)
        assert job.progress == awa.JobProgress()

    async def test_one_call_writes_all_that_is_new(self, client: awa.Client | None) -> None:
        running, enough = [], trio.Event()
        all_run = trio.Event()

        async def handler(job: Job) -> None:
            running.append(job.id)
            if len(running) == 20:
                all_run.set()
            await all_run.wait()
            job.progress.set(percent=job.args.n)
            await enough.wait()

        calls: list[int] = []

        async def record(worker: int, reports: Any) -> Any:
            calls.append(len(reports))
            return await rig.client._backend.store.record_progress(worker, reports)

        rig = Rig(handler, client)
        rig.backend.broken["record_progress"] = record
        ids = [await rig.enqueue(n) for n in range(20)]
        async with rig.working(timings=OFTEN):
            with trio.fail_after(20):
                while sum(calls) < 20:
                    await trio.sleep(0.05)
            await trio.sleep(0.5)
            assert sum(calls) == 20, "what is written is not written again"
            assert len(calls) <= 2, "a beat may strike while they are saying it"
            for n, job_id in enumerate(ids):
                assert (await rig.client.jobs.get(job_id)).progress.percent == n
            enough.set()

    async def test_who_says_nothing_costs_no_call(self, client: awa.Client | None) -> None:
        async def handler(job: Job) -> None:
            assert job.progress.percent is None
            await job.flush_progress()
            await trio.sleep(0.3)

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        calls: list[Any] = []

        async def record(worker: int, reports: Any) -> Any:
            calls.append(reports)

        rig.backend.broken["record_progress"] = record
        async with rig.working(timings=OFTEN):
            await self.until(rig, job_id, S.COMPLETED)
        assert calls == []

    @pytest.mark.parametrize(
        ("ending", "state"),
        [
            (awa.RetryAfter(3600), S.RETRYABLE),
            (awa.Snooze(3600), S.SCHEDULED),
            (awa.Cancel(), S.CANCELLED),
            (ValueError("no"), S.RETRYABLE),
            (awa.TerminalError("no"), S.FAILED),
        ],
        ids=lambda x: type(x).__name__ if isinstance(x, Exception) else "",
    )
    async def test_progress_is_written_with_every_transition(
        self, client: awa.Client | None, ending: Exception, state: awa.JobState
    ) -> None:
        async def handler(job: Job) -> None:
            job.progress.set(percent=10, metadata={"page": 1})
            job.set_output("not to be kept")
            raise ending

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        async with rig.working(timings=RARE):
            job = await self.until(rig, job_id, state)
        assert job.progress == awa.JobProgress(10, None, {"page": 1})
        assert job.raw_output is None

    async def test_the_next_attempt_goes_on_where_the_last_one_was(
        self, client: awa.Client | None
    ) -> None:
        pages = []

        async def handler(job: Job) -> object:
            page = job.progress.metadata.get("page", 0) + 1
            pages.append(page)
            job.progress.set(percent=page * 25, metadata={"page": page})
            return awa.RetryAfter(0) if page < 4 else None

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        async with rig.working(timings=RARE):
            await self.until(rig, job_id, S.COMPLETED)
        assert pages == [1, 2, 3, 4]

    async def test_a_shutdown_hands_the_progress_back(self, client: awa.Client | None) -> None:
        running = trio.Event()

        async def handler(job: Job) -> None:
            job.progress.set(message="not done")
            running.set()
            try:
                await trio.sleep_forever()
            finally:
                job.progress.set(percent=99)

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        async with rig.working(timings=RARE, grace=0):
            await running.wait()
        job = await rig.client.jobs.get(job_id)
        assert (job.state, job.attempt) == (S.AVAILABLE, 0)
        assert job.progress == awa.JobProgress(99, "not done", {})

    async def test_a_deadline_keeps_the_progress(self, client: awa.Client | None) -> None:
        async def handler(job: Job) -> None:
            job.progress.set(percent=1)
            await trio.sleep_forever()

        rig = Rig(handler, client)
        job_id = await rig.enqueue(deadline=0.2)
        async with rig.working(timings=RARE):
            job = await self.until(rig, job_id, S.RETRYABLE)
        assert job.progress.percent == 1

    async def test_what_was_written_survives_the_worker(
        self, client: awa.Client | None
    ) -> None:
        """A rescue keeps what the last beat, or the last flush, has written."""
        seen = []

        async def handler(job: Job) -> None:
            seen.append(job.progress.percent)

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        store = rig.client._backend.store
        dead = await store.register("dead", 0.0)
        [claimed] = await store.claim(dead, [Want("default", 1, 0.0)], {"work": None})
        report = (job_id, claimed.run_lease, b'{"percent":30}')
        assert await store.record_progress(dead, [report]) == [True]
        timings = awa.Timings(
            heartbeat=1.0, lease=9.0, finalize_deadline=5.0, rescue_interval=0.1
        )
        async with rig.working(timings=timings):
            with trio.fail_after(20):
                while not seen:
                    await trio.sleep(0.05)
            await self.until(rig, job_id, S.COMPLETED)
        assert seen == [30]

    async def test_flush_progress_writes_now(self, client: awa.Client | None) -> None:
        written = []

        async def handler(job: Job) -> None:
            job.progress.set(percent=5)
            await job.flush_progress()
            written.append((await rig.client.jobs.get(job.id)).progress.percent)

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        async with rig.working(timings=RARE):
            await self.until(rig, job_id, S.COMPLETED)
        assert written == [5]

    async def test_flush_progress_raises_where_the_lease_is_lost(
        self, client: awa.Client | None
    ) -> None:
        raised: list[str] = []

        async def handler(job: Job) -> None:
            await rig.client.jobs.cancel(job.id)
            job.progress.set(percent=5)
            with trio.CancelScope(shield=True):
                try:
                    await job.flush_progress()
                except awa.LeaseLost as error:
                    raised.append(str(error))
                    raise

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        async with rig.working(timings=RARE, listen=False):
            job = await self.until(rig, job_id, S.CANCELLED)
            with trio.fail_after(20):
                while not raised:
                    await trio.sleep(0.01)
        assert "does not run under its lease any more" in raised[0]
        assert job.progress == awa.JobProgress()

    async def test_flush_progress_after_the_attempt_raises(
        self, client: awa.Client | None
    ) -> None:
        escaped: list[Job] = []

        async def handler(job: Job) -> None:
            escaped.append(job)

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        async with rig.working(timings=RARE):
            await self.until(rig, job_id, S.COMPLETED)
            while True:  # its answer may come a moment after the commit
                try:
                    await escaped[0].flush_progress()
                except awa.LeaseLost:
                    break
            with pytest.raises(awa.LeaseLost, match="the attempt is over"):
                escaped[0].progress.set(percent=1)
            with pytest.raises(awa.LeaseLost, match="the attempt is over"):
                escaped[0].set_output(1)

    async def test_a_flush_that_fails_says_so_and_the_progress_is_not_lost(
        self, client: awa.Client | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        raised: list[str] = []

        async def handler(job: Job) -> object:
            job.progress.set(percent=5, message="a secret")
            try:
                await job.flush_progress()
            except awa.DatabaseUnavailable as error:
                raised.append(str(error))
            await trio.sleep(0.3)
            return awa.Snooze(3600)

        async def broken(worker: int, reports: Any) -> Any:
            raise Transient("the connection was lost")

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        rig.backend.broken["record_progress"] = broken
        async with rig.working(timings=OFTEN):
            job = await self.until(rig, job_id, S.SCHEDULED)
        assert raised == ["writing progress: the connection was lost"]
        assert job.progress == awa.JobProgress(5, "a secret", {})
        assert "the next beat tries again" in caplog.text
        assert "a secret" not in caplog.text

    @pytest.mark.real_time
    async def test_an_ordinary_function_reports_from_its_thread(
        self, client: awa.Client | None
    ) -> None:
        def handler(job: Job) -> None:
            for n in range(100):
                job.progress.set(percent=n)
            trio.from_thread.run(job.flush_progress)
            job.set_output([job.progress.percent])

        rig = Rig(handler, client)
        job_id = await rig.enqueue()
        worked = await work_one(rig.app, rig.client)
        assert worked is not None
        assert worked.job.id == job_id
        assert worked.job.output == [99]

    async def test_a_refused_value_does_not_poison(self, client: awa.Client | None) -> None:
        async def handler(job: Job) -> None:
            job.set_output(1)
            with pytest.raises(awa.InvalidValue):
                job.set_output({1})
            with pytest.raises(awa.InvalidValue):
                job.progress.set(percent=101)
            job.enqueue_on_completion(Next(1))

        rig = Rig(handler, client)
        await rig.enqueue()
        worked = await work_one(rig.app, rig.client)
        assert worked is not None
        assert (worked.state, worked.job.output) == (S.COMPLETED, 1)
        assert await rig.follow_ups() == [1]

    async def test_of_several_outputs_the_last_is_kept(self, client: awa.Client | None) -> None:
        async def handler(job: Job) -> None:
            value = {"n": [1]}
            job.set_output("first")
            job.set_output(value)
            value["n"].append(2)

        rig = Rig(handler, client)
        await rig.enqueue()
        worked = await work_one(rig.app, rig.client)
        assert worked is not None
        assert worked.job.output == {"n": [1]}

    async def test_an_output_of_null_is_an_output(self, client: awa.Client | None) -> None:
        async def handler(job: Job) -> None:
            job.set_output(None)

        rig = Rig(handler, client)
        await rig.enqueue()
        worked = await work_one(rig.app, rig.client)
        assert worked is not None
        assert (worked.job.output, worked.job.raw_output) == (None, b"null")

    async def test_a_poisoned_attempt_leaves_no_output_but_its_progress(
        self, client: awa.Client | None
    ) -> None:
        async def handler(job: Job) -> None:
            job.set_output(1)
            job.progress.set(percent=3)
            with pytest.raises(awa.StagingError):
                job.enqueue_on_completion(Next(1), priority=9)

        rig = Rig(handler, client)
        await rig.enqueue()
        worked = await work_one(rig.app, rig.client)
        assert worked is not None
        assert (worked.state, worked.job.raw_output) == (S.FAILED, None)
        assert worked.job.progress.percent == 3


@pytest.mark.virtual_time
class TestOnMemory(Reports):
    pass


class TestOnCanonical(Reports):
    @pytest.fixture
    async def client(self, migrated: str) -> AsyncIterator[awa.Client]:
        async with awa.connect(migrated) as client:
            yield client
