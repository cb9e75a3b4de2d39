"""Looking at jobs in memory, and at who runs them."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from datetime import datetime, timedelta

import anyio

from ..._core.activity import Figures, Latency, percentiles
from ..._core.explaining import Facts
from ..._core.history import History, Step, history
from ..._core.job import HELD, WAITING, JobDetails, JobState
from ..._core.workers import WorkerRow
from ..._seam.values import Backlog, JobFilter
from .rows import EPOCH, MemoryRows


class MemoryInspecting(MemoryRows):
    """See `_seam.protocol.Inspecting`."""

    async def get(self, ids: Sequence[int]) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        return [copy.copy(self._jobs[i]) for i in ids if i in self._jobs]

    async def backlogs(self, queues: Sequence[str], most: int) -> list[Backlog]:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        found = []
        for queue in queues:
            due = sorted(
                row.run_at
                for row in self._jobs.values()
                if row.state in WAITING and row.queue == queue and row.run_at <= self._now()
            )
            oldest = (self._now() - due[0]).total_seconds() if due else None
            found.append(Backlog(queue, len(due[:most]), oldest))
        return found

    async def holder(self, unique_key: bytes) -> int | None:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        return self._claims.get(unique_key)

    def _wanted(self, wanted: JobFilter) -> list[JobDetails]:
        return [
            row
            for row in sorted(self._jobs.values(), key=lambda row: -row.id)
            if (wanted.states is None or row.state in wanted.states)
            and (wanted.kind is None or row.kind == wanted.kind)
            and (wanted.queue is None or row.queue == wanted.queue)
            and (wanted.tag is None or wanted.tag in row.tags)
            and (wanted.before_id is None or row.id < wanted.before_id)
        ]

    async def count(self, wanted: JobFilter, most: int) -> int:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        return len(self._wanted(wanted)[:most])

    async def follow_ups(self, job_id: int, most: int) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        return [copy.copy(r) for r in self._jobs.values() if r.triggered_by == job_id]

    async def facts(self, job_id: int, most: int) -> Facts | None:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        row = self._jobs.get(job_id)
        if row is None:
            return None
        now = self._now()
        alive = [worker for worker in self._workers.values() if self._alive(worker)]
        serving = [w for w in alive if w.queues is None or row.queue in w.queues]
        knowing = [w for w in serving if w.kinds is None or row.kind in w.kinds]
        owner = None if row.worker_id is None else self._workers.get(row.worker_id)
        alike = [
            other
            for other in self._jobs.values()
            if row.ordering_key is not None
            and (other.queue, other.ordering_key) == (row.queue, row.ordering_key)
        ]
        taken = next((other for other in alike if other.state in HELD), None)
        heads = [(other.run_at, other.id) for other in alike if other.state in WAITING]
        holder = self._claims.get(row.unique_key or b"")
        return Facts(
            copy.copy(row),
            now,
            len(alive),
            len(serving),
            len(knowing),
            None if owner is None else owner.name,
            None if owner is None else self._clock() - owner.beat_at,
            None if owner is None else owner.lease,
            None if owner is None else owner.fenced_at is not None,
            None if taken is None else taken.id,
            None if taken is None else taken.state,
            min(heads)[1] if heads else None,
            None if holder == job_id else holder,
            min(self._ahead_of(row), most),
            most,
            self._book.wait(row.queue, None, 0, self._clock()),
            None if row.limit_key is None else self._key_room(row),
        )

    def _ahead_of(self, row: JobDetails) -> int:
        if row.state not in WAITING or row.apart:
            return 0
        return sum(
            other.state in WAITING
            and not other.apart
            and (other.queue, other.kind, other.priority) == (row.queue, row.kind, row.priority)
            and (other.run_at, other.id) < (row.run_at, row.id)
            and other.run_at <= self._now()
            for other in self._jobs.values()
        )

    async def waiting_kinds(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        waiting = [row for row in self._jobs.values() if row.state in WAITING]
        return sorted({(row.queue, row.kind) for row in waiting if row.queue in queues})

    async def workers(self, most: int) -> list[WorkerRow]:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        now = self._clock()
        rows = []
        for worker_id, found in self._workers.items():
            states = [row.state for row in self._jobs.values() if row.worker_id == worker_id]
            rows.append(
                WorkerRow(
                    worker_id,
                    found.name,
                    EPOCH + timedelta(seconds=found.started_at),
                    EPOCH + timedelta(seconds=found.beat_at),
                    now - found.beat_at,
                    found.lease,
                    found.fenced_at is not None,
                    states.count(JobState.RUNNING),
                    states.count(JobState.WAITING_EXTERNAL),
                    found.queues,
                    found.kinds,
                    tuple(
                        duty
                        for duty, (who, until) in sorted(self._leaders.items())
                        if who == worker_id and until >= now
                    ),
                )
            )
        return rows[:most]

    async def activity(self, seconds: float, most: int) -> Figures:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        now = self._now()
        since, ended = self._ended(now - timedelta(seconds=seconds), most)
        completed, failed, cancelled, pickup, run = _figures(ended)
        failures = sorted(
            (row for row in self._jobs.values() if row.state is JobState.FAILED),
            key=lambda row: (row.finalized_at or now, row.id),
            reverse=True,
        )
        waiting = {row.queue for row in self._jobs.values() if row.state in WAITING}
        return Figures(
            now,
            (now - since).total_seconds(),
            completed,
            failed,
            cancelled,
            pickup,
            run,
            max(self._jobs, default=None),
            tuple(row.id for row in failures[:10]),
            tuple(sorted({*waiting, *self._served()})),
        )

    async def list_from(
        self, wanted: JobFilter, most: int, *, after_id: int = 0
    ) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        rows = [copy.copy(row) for row in reversed(self._wanted(wanted)) if row.id > after_id]
        return rows[:most]

    def _ended(self, since: datetime, most: int) -> tuple[datetime, list[JobDetails]]:
        """The jobs that ended last, and from when on these are all of them."""
        found = [(r.finalized_at, r) for r in self._jobs.values() if r.finalized_at]
        for state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED):
            latest = sorted((at for at, row in found if row.state is state), reverse=True)[
                :most
            ]
            if len(latest) == most:
                since = max(since, latest[-1])
        return since, [row for at, row in found if at >= since]

    async def history(self, seconds: float, step: float, most: int) -> History:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        now = self._now()
        since, ended = self._ended(now - timedelta(seconds=seconds), most)
        placed: dict[int, list[JobDetails]] = {}
        for row in ended:
            assert row.finalized_at is not None
            placed.setdefault(math.floor(row.finalized_at.timestamp() / step), []).append(row)
        return history(now, since, step, [Step(n, *_figures(r)) for n, r in placed.items()])

    async def list(self, wanted: JobFilter, most: int) -> list[JobDetails]:
        """See `_seam.protocol.Inspecting`."""
        await anyio.lowlevel.checkpoint()
        rows = [copy.copy(row) for row in self._wanted(wanted)]
        return rows[:most]


def _figures(
    ended: Sequence[JobDetails],
) -> tuple[int, int, int, Latency | None, Latency | None]:
    """How many completed, failed, were cancelled; how long they waited, and took."""
    states = [row.state for row in ended]
    pickups, runs = [], []
    for row in ended:
        if row.state is JobState.COMPLETED and row.attempted_at and row.finalized_at:
            pickups.append(max(0.0, (row.attempted_at - row.run_at).total_seconds()))
            runs.append((row.finalized_at - row.attempted_at).total_seconds())
    return (
        states.count(JobState.COMPLETED),
        states.count(JobState.FAILED),
        states.count(JobState.CANCELLED),
        percentiles(pickups),
        percentiles(runs),
    )
