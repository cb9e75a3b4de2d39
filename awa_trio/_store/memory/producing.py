"""Putting jobs into memory."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from ..._core.instants import count
from ..._core.job import JobDetails, JobState, PreparedInsert, holds
from ..._seam.errors import Draining
from ..._seam.hearing import GotWork
from ..._seam.values import Enqueued
from .rows import MemoryRows


class MemoryProducing(MemoryRows):
    """See `_seam.protocol.Producing`."""

    async def enqueue(
        self, jobs: Sequence[PreparedInsert], *, notify: bool = True
    ) -> list[Enqueued]:
        """See `_seam.protocol.Producing`."""
        await anyio.lowlevel.checkpoint()
        return self._enqueue(jobs, notify)

    def _enqueue(self, jobs: Sequence[PreparedInsert], notify: bool) -> list[Enqueued]:
        for queue in sorted({job.queue for job in jobs}):
            if self._book.draining(queue):
                raise Draining(queue)
        answers = []
        for job in jobs:
            holder = self._holder(job)
            if holder is None:
                answers.append(Enqueued(self._insert(job), True))
            else:
                answers.append(Enqueued(holder, False))
        if notify:
            self._tell_of_work(jobs)
        return answers

    def _initial(self, job: PreparedInsert) -> JobState:
        later = job.run_at is not None and job.run_at > self._now()
        return JobState.SCHEDULED if later else JobState.AVAILABLE

    def _holder(self, job: PreparedInsert) -> int | None:
        if job.unique_key is None or not holds(job.unique_states, self._initial(job)):
            return None
        return self._claims.get(job.unique_key)

    def _insert(self, job: PreparedInsert) -> int:
        now = self._now()
        row = JobDetails(
            id=next(self._ids),
            kind=job.kind,
            queue=job.queue,
            priority=job.priority,
            attempt=0,
            max_attempts=job.max_attempts,
            raw_args=job.args,
            raw_metadata=job.metadata,
            raw_tags=job.tags or None,
            raw_created_at=count(now),
            raw_run_at=count(job.run_at or now),
            deadline=job.deadline,
            ordering_key=job.ordering_key,
            run_lease=0,
            raw_progress=None,
            raw_callback_answer=None,
            limit_key=job.limit_key,
            state=self._initial(job),
            errors=[],
            worker_id=None,
            attempted_at=None,
            deadline_at=None,
            finalized_at=None,
            unique_key=job.unique_key,
            unique_states=job.unique_states if job.unique_key is not None else None,
            raw_output=None,
            dead_letter=None,
            callback_token=None,
            callback_until=None,
        )
        self._jobs[row.id] = row
        if row.unique_key is not None and holds(row.unique_states, row.state):
            self._claims[row.unique_key] = row.id
        return row.id

    def _tell_of_work(self, jobs: Sequence[PreparedInsert]) -> None:
        for queue in {j.queue for j in jobs if self._initial(j) is JobState.AVAILABLE}:
            self._tell(GotWork(queue))
