"""What is done with dead letters in memory, a batch at a time."""

from __future__ import annotations

import copy

import anyio

from ..._core.instants import count
from ..._core.job import JobDetails, JobState, holds
from ..._core.request import Replacements
from ..._seam.errors import KeyTaken
from ..._seam.hearing import GotWork
from ..._seam.values import DeadLetterFilter, Swept
from .rows import MemoryRows


class MemoryDeadLetters(MemoryRows):
    """See `_seam.protocol.KeepingDeadLetters`."""

    def _dead_letters(self, wanted: DeadLetterFilter) -> list[JobDetails]:
        return [
            row
            for row in sorted(self._jobs.values(), key=lambda row: row.id)
            if row.dead_letter is not None
            and (wanted.ids is None or row.id in wanted.ids)
            and (wanted.kind is None or row.kind == wanted.kind)
            and (wanted.queue is None or row.queue == wanted.queue)
            and (wanted.reason is None or row.dead_letter == wanted.reason)
        ]

    def _batch(
        self, wanted: DeadLetterFilter, most: int, after_id: int
    ) -> tuple[list[JobDetails], int | None]:
        """A batch of dead letters, and where to go on."""
        batch = [row for row in self._dead_letters(wanted) if row.id > after_id][:most]
        return batch, batch[-1].id if len(batch) == most else None

    async def list_dead_letters(self, wanted: DeadLetterFilter, most: int) -> list[JobDetails]:
        """See `_seam.protocol.KeepingDeadLetters`."""
        await anyio.lowlevel.checkpoint()
        rows = [
            copy.copy(row)
            for row in reversed(self._dead_letters(wanted))
            if wanted.before_id is None or row.id < wanted.before_id
        ]
        return rows[:most]

    async def count_dead_letters(self, wanted: DeadLetterFilter, most: int) -> int:
        """See `_seam.protocol.KeepingDeadLetters`."""
        await anyio.lowlevel.checkpoint()
        return len(self._dead_letters(wanted)[:most])

    async def retry_dead_letters(
        self,
        wanted: DeadLetterFilter,
        most: int,
        changes: Replacements,
        *,
        after_id: int = 0,
        strict: bool = False,
    ) -> Swept:
        """See `_seam.protocol.KeepingDeadLetters`."""
        await anyio.lowlevel.checkpoint()
        batch, last_id = self._batch(wanted, most, after_id)
        now = self._now()
        later = changes.run_at is not None and changes.run_at > now
        to = JobState.SCHEDULED if later else JobState.AVAILABLE
        wanting = {row.id for row in batch if holds(row.unique_states, to)}
        if strict:
            for row in batch:
                holder = self._claims.get(row.unique_key or b"", row.id)
                if row.id in wanting and holder != row.id:
                    raise KeyTaken(holder)
        for row in batch:
            if row.id not in wanting:
                self._let_go(row)
        done = 0
        queues: dict[str, None] = {}
        for row in batch:
            if row.id in wanting:
                assert row.unique_key is not None
                if self._claims.setdefault(row.unique_key, row.id) != row.id:
                    continue
            row.state = to
            row.attempt = 0
            row.queue = changes.queue or row.queue
            row.priority = changes.priority or row.priority
            row.raw_run_at = count(changes.run_at or now)
            row.finalized_at = row.dead_letter = row.raw_output = None
            done += 1
            queues[row.queue] = None
        for queue in () if later else queues:
            self._tell(GotWork(queue))
        return Swept(done, last_id)

    async def purge_dead_letters(
        self, wanted: DeadLetterFilter, most: int, *, after_id: int = 0
    ) -> Swept:
        """See `_seam.protocol.KeepingDeadLetters`."""
        await anyio.lowlevel.checkpoint()
        batch, last_id = self._batch(wanted, most, after_id)
        for row in batch:
            self._let_go(row)
            del self._jobs[row.id]
        return Swept(len(batch), last_id)
