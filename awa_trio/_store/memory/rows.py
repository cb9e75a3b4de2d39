"""What the store in memory keeps, and what several of its parts do with that."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import anyio
import attrs

from ..._core.job import JobDetails, JobError, JobState, holds
from ..._core.schedules import ScheduleRow
from ..._seam.errors import Fenced
from ..._seam.hearing import Hear, News
from ..._seam.values import Claimed
from .queue_book import QueueBook

#: Virtual time begins at 0; this is what that is called.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

#: Of a job's errors, the latest are kept; as functions/add_error.sql.
KEPT_ERRORS = 25


@attrs.define
class Worker:
    """A row of awa.workers."""

    name: str
    lease: float
    beat_at: float
    started_at: float
    queues: tuple[str, ...] | None
    kinds: tuple[str, ...] | None
    fenced_at: float | None = None


class MemoryRows:
    """The rows of all tables, the clock, and who listens."""

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._jobs: dict[int, JobDetails] = {}
        self._claims: dict[bytes, int] = {}
        self._workers: dict[int, Worker] = {}
        self._leaders: dict[str, tuple[int, float]] = {}
        self._schedules: dict[str, ScheduleRow] = {}
        self._ids = itertools.count(1)
        self._worker_ids = itertools.count(1)
        self._hearers: list[Hear] = []
        self._book = QueueBook()

    def _now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._clock())

    def _check(self, worker: int) -> None:
        if (found := self._workers.get(worker)) is None or found.fenced_at is not None:
            raise Fenced(f"worker {worker} is fenced")

    def _alive(self, worker: Worker) -> bool:
        return worker.fenced_at is None and self._clock() - worker.beat_at <= worker.lease

    def _served(self) -> set[str]:
        """The queues that live workers serve: as functions/served_queues.sql."""
        alive = [worker for worker in self._workers.values() if self._alive(worker)]
        return {queue for worker in alive for queue in worker.queues or ()}

    def _move(self, row: JobDetails, to: JobState) -> int | None:
        """Change a job's state and its hold on its key; as functions/exchange_keys.sql."""
        row.state = to
        if row.unique_key is None or not holds(row.unique_states, to):
            self._let_go(row)
            return None
        holder = self._claims.setdefault(row.unique_key, row.id)
        if holder == row.id:
            return None
        row.unique_key = row.unique_states = None
        if to is not JobState.COMPLETED:
            row.state = JobState.CANCELLED
            row.finalized_at = self._now()
            self._record(row, f"cancelled: duplicate of job {holder}", JobState.CANCELLED)
        return holder

    def _let_go(self, row: JobDetails) -> None:
        if row.unique_key is not None and self._claims.get(row.unique_key) == row.id:
            del self._claims[row.unique_key]

    def _record(self, row: JobDetails, error: str, to: JobState) -> None:
        terminal = to in (JobState.FAILED, JobState.CANCELLED)
        entry = JobError(error, row.attempt, self._now(), terminal)
        row.errors = [*row.errors, entry][-KEPT_ERRORS:]

    def _held_of(self, row: JobDetails) -> int:
        """Attempts with the limit key of a job that are under way."""
        return sum(
            other.worker_id is not None
            and (other.queue, other.limit_key) == (row.queue, row.limit_key)
            for other in self._jobs.values()
        )

    def _key_room(self, row: JobDetails) -> int | None:
        assert row.limit_key is not None
        held = self._held_of(row)
        return self._book.key_room(row.queue, row.limit_key, held, self._clock())

    def _tell(self, news: News) -> None:
        for hear in self._hearers:
            hear(news)


def as_claimed(row: JobDetails, deadline: float | None) -> Claimed:
    return Claimed(
        id=row.id,
        kind=row.kind,
        queue=row.queue,
        priority=row.priority,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        raw_args=row.raw_args,
        raw_metadata=row.raw_metadata,
        raw_tags=row.raw_tags,
        raw_created_at=row.raw_created_at,
        raw_run_at=row.raw_run_at,
        deadline=deadline,
        ordering_key=row.ordering_key,
        run_lease=row.run_lease,
        raw_progress=row.raw_progress,
        raw_callback_answer=row.raw_callback_answer,
        limit_key=row.limit_key,
    )
