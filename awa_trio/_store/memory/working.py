"""Running jobs from memory: workers, claims, and attempts that wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

import anyio

from ..._core.errors import ConfigurationError
from ..._core.job import HELD, WAITING, JobDetails, JobState
from ..._seam.hearing import GotWork
from ..._seam.protocol import Joined
from ..._seam.values import Claimed, Held, Wait, Waited, Want
from .rows import Worker, as_claimed
from .settling import MemorySettling


class MemoryWorking(MemorySettling):
    """See `_seam.protocol.Working`."""

    async def register(
        self,
        name: str,
        lease: float,
        queues: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> int:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        worker = next(self._worker_ids)
        self._workers[worker] = Worker(
            name,
            lease,
            self._clock(),
            self._clock(),
            None if queues is None else tuple(queues),
            None if kinds is None else tuple(kinds),
        )
        return worker

    async def unregister(self, worker: int) -> None:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        self._workers.pop(worker, None)
        self._leaders = {d: who for d, who in self._leaders.items() if who[0] != worker}

    async def beat(self, worker: int) -> bool:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        if (found := self._workers.get(worker)) is None or found.fenced_at is not None:
            return False
        found.beat_at = self._clock()
        return True

    async def claim(
        self, worker: int, wants: Sequence[Want], kinds: Mapping[str, float | None]
    ) -> list[Claimed]:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        self._check(worker)
        claimed = []
        for want in sorted(wants, key=lambda want: want.queue):
            now = self._now()
            due = [row for row in self._startable([want.queue], kinds) if row.run_at <= now]
            due.sort(key=lambda row: (_aged(row, now, want.ageing), row.run_at, row.id))
            room = self._book.room(want.queue, self._clock())
            left = want.most if room is None else min(want.most, room)
            for row in due:
                if left == 0:
                    break
                if row.limit_key is not None and self._key_room(row) == 0:
                    continue
                left -= 1
                if self._move(row, JobState.RUNNING) is not None:
                    continue
                self._book.spend(row.queue, row.limit_key, self._clock())
                deadline = row.deadline
                if deadline is None:
                    deadline = kinds[row.kind]
                if deadline is None:
                    deadline = want.deadline
                row.worker_id = worker
                row.run_lease += 1
                row.attempt += 1
                row.attempted_at = now
                row.deadline_at = now + timedelta(seconds=deadline) if deadline else None
                claimed.append(as_claimed(row, deadline))
        return claimed

    def _startable(self, queues: Sequence[str], kinds: Iterable[str]) -> list[JobDetails]:
        """The jobs that wait for nothing but their time."""
        waiting: list[JobDetails] = []
        heads: dict[tuple[str, str], JobDetails] = {}
        taken: set[tuple[str, str]] = set()
        for row in self._jobs.values():
            if row.queue not in queues:
                continue
            if row.ordering_key is None:
                if row.state in WAITING:
                    waiting.append(row)
                continue
            key = (row.queue, row.ordering_key)
            if row.state in HELD:
                taken.add(key)
            elif row.state in WAITING:
                head = heads.setdefault(key, row)
                if (row.run_at, row.id) < (head.run_at, head.id):
                    heads[key] = row
        waiting += [row for key, row in heads.items() if key not in taken]
        return [row for row in waiting if row.kind in kinds]

    async def next_due(self, queues: Sequence[str], kinds: Sequence[str]) -> float | None:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        waits = []
        for row in self._startable(queues, kinds):
            held = 0 if row.limit_key is None else self._held_of(row)
            wait = self._book.wait(row.queue, row.limit_key, held, self._clock())
            if wait is not None:
                waits.append(max(wait, (row.run_at - self._now()).total_seconds()))
        return min(waits, default=None)

    async def tell(self, queues: Sequence[str]) -> None:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        for queue in queues:
            self._tell(GotWork(queue))

    async def register_callback(
        self, worker: int, job_id: int, run_lease: int, token: str, timeout: float
    ) -> bool:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        self._check(worker)
        row = self._jobs.get(job_id)
        if (
            row is None
            or (row.run_lease, row.worker_id) != (run_lease, worker)
            or row.state is not JobState.RUNNING
        ):
            return False
        row.callback_token = token
        row.callback_until = self._now() + timedelta(seconds=timeout)
        return True

    async def record_progress(
        self, worker: int, reports: Sequence[tuple[int, int, bytes]]
    ) -> list[bool]:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        self._check(worker)
        kept = []
        for job_id, run_lease, text in reports:
            row = self._jobs.get(job_id)
            mine = (
                row is not None
                and (row.run_lease, row.worker_id) == (run_lease, worker)
                and row.state in HELD
            )
            if row is not None and mine:
                row.raw_progress = text
            kept.append(mine)
        return kept

    def join(
        self, connection: object, worker: int, job_id: int, run_lease: int
    ) -> AbstractAsyncContextManager[Joined]:
        """Refuse: there is no transaction to join.

        Raises:
          ConfigurationError: always.
        """
        raise ConfigurationError(
            "a store in memory has no transactions to complete in; test this against"
            " PostgreSQL, with the fixtures in awa_trio.testing.fixtures"
        )

    async def has_committed(self, job_id: int, run_lease: int, transaction: str) -> bool | None:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        row = self._jobs.get(job_id)
        return row is not None and (row.run_lease, row.state) == (run_lease, JobState.COMPLETED)

    def _waiting_with(self, worker: int, wait: Wait) -> JobDetails | None:
        row = self._jobs.get(wait.job_id)
        if (
            row is None
            or (row.run_lease, row.worker_id) != (wait.run_lease, worker)
            or row.callback_token != wait.token
            or row.state not in HELD
        ):
            return None
        return row

    async def begin_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        self._check(worker)
        answers: list[Waited | None] = []
        for wait in waits:
            row = self._waiting_with(worker, wait)
            if row is None:
                answers.append(None)
                continue
            if row.callback_until is not None:
                row.deadline_at = None
                if self._move(row, JobState.WAITING_EXTERNAL) is not None:
                    row.worker_id = row.callback_token = row.callback_until = None
                    answers.append(None)
                    continue
            answers.append(_waited(row))
        return answers

    async def end_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        self._check(worker)
        answers: list[Waited | None] = []
        for wait in waits:
            row = self._waiting_with(worker, wait)
            if row is not None:
                self._move(row, JobState.RUNNING)
                row.deadline_at = (
                    None
                    if wait.seconds is None
                    else self._now() + timedelta(seconds=wait.seconds)
                )
            answers.append(None if row is None else _waited(row))
        return answers

    async def answered(self, worker: int) -> list[Held]:
        """See `_seam.protocol.Working`."""
        held = await self.running(worker)
        return [h for h in held if h.state is JobState.WAITING_EXTERNAL and h.answered]

    async def running(self, worker: int) -> list[Held]:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        return [
            Held(
                row.id,
                row.run_lease,
                row.kind,
                row.attempt,
                row.max_attempts,
                row.state,
                row.callback_token,
                row.callback_token is not None and row.callback_until is None,
            )
            for row in self._jobs.values()
            if row.state in HELD and row.worker_id == worker
        ]


def _waited(row: JobDetails) -> Waited:
    answer = row.raw_callback_answer if row.callback_until is None else None
    return Waited(row.state is JobState.WAITING_EXTERNAL, answer)


def _aged(row: JobDetails, now: datetime, ageing: float) -> float:
    """As functions/aged.sql."""
    if not ageing:
        return row.priority
    return max(row.priority - (now - row.run_at).total_seconds() // ageing, 1)
