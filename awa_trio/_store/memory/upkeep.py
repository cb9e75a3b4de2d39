"""What one worker does for all, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from ..._core.job import JobDetails, JobState
from ..._core.outcome import Lost
from ..._core.settings import Retention
from ..._seam.values import LostJob
from .rows import EPOCH, MemoryRows, as_claimed


class MemoryUpkeep(MemoryRows):
    """See `_seam.protocol.Upkeep`."""

    async def lead(self, duty: str, worker: int, seconds: float) -> bool:
        """See `_seam.protocol.Upkeep`."""
        await anyio.lowlevel.checkpoint()
        holder, until = self._leaders.get(duty, (worker, 0.0))
        if holder != worker and until >= self._clock():
            return False
        self._leaders[duty] = (worker, self._clock() + seconds)
        return True

    async def rescue(
        self, most: int, *, deadline_slack: float, kinds: Sequence[str], strangers_after: float
    ) -> list[LostJob]:
        """See `_seam.protocol.Upkeep`."""
        await anyio.lowlevel.checkpoint()
        now = self._clock()
        for found in self._workers.values():
            if found.fenced_at is None and found.beat_at < now - found.lease:
                found.fenced_at = now
        lost = []
        for row in self._jobs.values():
            if row.state is JobState.WAITING_EXTERNAL:
                lost += self._lost_waiter(row, kinds, strangers_after)
            if row.state is not JobState.RUNNING or row.worker_id is None:
                continue
            assert row.attempted_at is not None
            owner = self._workers.get(row.worker_id)
            reason, since = Lost.STALE_WORKER, (row.attempted_at - EPOCH).total_seconds()
            if owner is not None and owner.fenced_at is not None:
                since = owner.fenced_at
            elif owner is not None:
                if row.deadline_at is None:
                    continue
                reason = Lost.DEADLINE
                since = (row.deadline_at - EPOCH).total_seconds() + deadline_slack
                if since >= now:
                    continue
            if row.kind in kinds or since + strangers_after < now:
                lost.append(LostJob(as_claimed(row, row.deadline), reason))
        return lost[:most]

    def _lost_waiter(
        self, row: JobDetails, kinds: Sequence[str], strangers_after: float
    ) -> list[LostJob]:
        now = self._now()
        job = as_claimed(row, row.deadline)
        job.state = JobState.WAITING_EXTERNAL
        if row.callback_until is not None and row.callback_until < now:
            late = (now - row.callback_until).total_seconds()
            if row.kind in kinds or late > strangers_after:
                return [LostJob(job, Lost.CALLBACK_TIMEOUT, row.callback_token)]
        elif row.worker_id is not None:
            owner = self._workers.get(row.worker_id)
            if owner is None or owner.fenced_at is not None:
                return [LostJob(job, Lost.STALE_WAITER, row.callback_token)]
        return []

    async def prune(self, retention: Retention, most: int) -> int:
        """See `_seam.protocol.Upkeep`."""
        await anyio.lowlevel.checkpoint()
        self._book.prune(self._clock())
        old = []
        for row in self._jobs.values():
            kept = retention.completed if row.state is JobState.COMPLETED else retention.failed
            if row.dead_letter is not None:
                kept = retention.dead_letters
            if row.finalized_at is None:
                continue
            if (self._now() - row.finalized_at).total_seconds() > kept:
                old.append(row)
        old.sort(key=lambda row: row.finalized_at or EPOCH)
        for row in old[:most]:
            self._let_go(row)
            del self._jobs[row.id]
        return len(old[:most])
