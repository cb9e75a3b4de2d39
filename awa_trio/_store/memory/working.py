"""A store in memory, for tests in which time is virtual.

Trio's `MockClock` cannot meet a socket: it would let an hour pass while a query is
under way. This store has no sockets, takes its time from a function, and passes the
same contract as the SQL engines. It keeps no guarantee across processes, having none.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import anyio
import attrs

from ..._core.activity import Figures, Latency, percentiles
from ..._core.errors import ConfigurationError
from ..._core.explaining import Facts
from ..._core.history import History, Step, history
from ..._core.instants import count
from ..._core.job import (
    HELD,
    WAITING,
    JobDetails,
    JobError,
    JobState,
    PreparedInsert,
    holds,
)
from ..._core.outcome import Lost
from ..._core.plan import Plan
from ..._core.queues import QueueStatus
from ..._core.request import Replacements
from ..._core.schedules import Definition, ScheduleRow
from ..._core.settings import Retention
from ..._core.workers import WorkerRow
from ..._seam.errors import Draining, Fenced, KeyTaken
from ..._seam.hearing import (
    Answered,
    CutElsewhere,
    GotWork,
    Hear,
    News,
    Overridden,
    Reconnected,
)
from ..._seam.protocol import Joined
from ..._seam.values import (
    STALE,
    Backlog,
    Claimed,
    DeadLetterFilter,
    Enqueued,
    Held,
    Insertion,
    JobFilter,
    LostJob,
    Settled,
    Swept,
    Wait,
    Waited,
    Want,
)
from .queue_book import QueueBook

#: Virtual time begins at 0; this is what that is called.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

#: Of a job's errors, the latest are kept; as functions/add_error.sql.
KEPT_ERRORS = 25


@attrs.define
class _Worker:
    name: str
    lease: float
    beat_at: float
    started_at: float
    queues: tuple[str, ...] | None
    kinds: tuple[str, ...] | None
    fenced_at: float | None = None


class MemoryStore:
    """Jobs in memory.

    Args:
      clock: returns the time in seconds; default, that of the event loop that runs, which
          on Trio obeys `MockClock`.
    """

    #: It lives in one event loop, so its heartbeat cannot have another.
    threaded_pulse = False

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._jobs: dict[int, JobDetails] = {}
        self._claims: dict[bytes, int] = {}
        self._workers: dict[int, _Worker] = {}
        self._leaders: dict[str, tuple[int, float]] = {}
        self._schedules: dict[str, ScheduleRow] = {}
        self._ids = itertools.count(1)
        self._worker_ids = itertools.count(1)
        self._hearers: list[Hear] = []
        self._book = QueueBook()

    def _now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._clock())

    # ---- producing

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

    # ---- working

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
        self._workers[worker] = _Worker(
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

    def fence_all(self) -> int:
        """Shut out every worker that there is, as if it had missed its lease; return how many."""
        living = [found for found in self._workers.values() if found.fenced_at is None]
        for found in living:
            found.fenced_at = self._clock()
        return len(living)

    def _check(self, worker: int) -> None:
        if (found := self._workers.get(worker)) is None or found.fenced_at is not None:
            raise Fenced(f"worker {worker} is fenced")

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
                claimed.append(_claimed(row, deadline))
        return claimed

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

    async def settle(
        self,
        plans: Sequence[Plan],
        *,
        worker: int | None,
        patience: float = 0.25,
        strict: bool = False,
        notify: bool = True,
    ) -> list[Settled]:
        """See `_seam.protocol.Working`."""
        await anyio.lowlevel.checkpoint()
        if worker is not None:
            self._check(worker)
        before = copy.deepcopy((self._jobs, self._claims)) if strict else None
        answers: dict[int, Settled] = {}
        # As the SQL does: all moves let go of keys before any takes one, and moves
        # take keys before inserts do.
        applied = [plan for plan in plans if self._applies(plan)]
        for plan in applied:
            self._release(plan)
        losers: dict[int, int] = {}
        for plan in applied:
            holder = self._apply(plan)
            if holder is not None:
                losers[plan.move.job_id] = holder
        if strict and losers:
            assert before is not None
            self._jobs, self._claims = before
            raise KeyTaken(next(iter(losers.values())))
        for plan in applied:
            insertions = tuple(map(self._insertion, plan.inserts))
            answers[id(plan)] = Settled(True, insertions, losers.get(plan.move.job_id))
        for plan in applied:
            move = plan.move
            if worker is None and move.from_state in HELD:
                self._tell(CutElsewhere(move.job_id, move.run_lease, move.to_state))
            if notify:
                self._tell_of_work(plan.inserts)
                row = self._jobs[move.job_id]
                if row.state is JobState.AVAILABLE or row.apart:
                    self._tell(GotWork(row.queue))
        return [answers.get(id(plan), STALE) for plan in plans]

    def _applies(self, plan: Plan) -> bool:
        move = plan.move
        row = self._jobs.get(move.job_id)
        return (
            row is not None
            and row.run_lease == move.run_lease
            and row.state is move.from_state
            and row.state is not JobState.COMPLETED
            and (
                move.token is None
                or (
                    move.token == row.callback_token
                    and (
                        row.callback_until is not None
                        or move.to_state is JobState.WAITING_EXTERNAL
                    )
                )
            )
        )

    def _release(self, plan: Plan) -> None:
        row = self._jobs[plan.move.job_id]
        if not holds(row.unique_states, plan.move.to_state):
            self._let_go(row)

    def _let_go(self, row: JobDetails) -> None:
        if row.unique_key is not None and self._claims.get(row.unique_key) == row.id:
            del self._claims[row.unique_key]

    def _apply(self, plan: Plan) -> int | None:
        """Apply a move; return the job that holds the key this one needed back, if any."""
        move = plan.move
        row = self._jobs[move.job_id]
        if move.error is not None:
            self._record(row, move.error, move.to_state)
        to = move.to_state
        row.attempt = move.attempt
        if to is JobState.WAITING_EXTERNAL and row.callback_until is None:
            # It was answered before it could park.
            to = JobState.AVAILABLE
            row.attempt -= 1
        remembered = (
            move.to_state is JobState.WAITING_EXTERNAL
            or row.callback_until is None
            or (move.token is not None and move.to_state is not JobState.RETRYABLE)
        )
        # A callback that was resolved, before or by this, is remembered as such.
        row.callback_token = row.callback_token if remembered else None
        if to is not JobState.WAITING_EXTERNAL:
            row.callback_until = None
        row.raw_callback_answer = (
            None if to.terminal else move.answer or row.raw_callback_answer
        )
        row.raw_progress = (
            None if to is JobState.COMPLETED else move.progress or row.raw_progress
        )
        row.raw_output = move.output
        row.dead_letter = move.dead_letter
        row.worker_id = None
        row.deadline_at = None
        if move.seconds is not None:
            row.raw_run_at = count(self._now() + timedelta(seconds=move.seconds))
        row.finalized_at = self._now() if to.terminal else None
        return self._move(row, to)

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

    def _record(self, row: JobDetails, error: str, to: JobState) -> None:
        terminal = to in (JobState.FAILED, JobState.CANCELLED)
        entry = JobError(error, row.attempt, self._now(), terminal)
        row.errors = [*row.errors, entry][-KEPT_ERRORS:]

    def _insertion(self, job: PreparedInsert) -> Insertion:
        holder = self._holder(job)
        return Insertion(self._insert(job)) if holder is None else Insertion(None, holder)

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

    # ---- resolving

    def _expecting(self, token: str) -> JobDetails | None:
        found = (row for row in self._jobs.values() if row.callback_token == token)
        return next(found, None)

    async def find_callback(self, token: str) -> JobDetails | None:
        """See `_seam.protocol.Resolving`."""
        await anyio.lowlevel.checkpoint()
        return copy.copy(self._expecting(token))

    async def answer_callback(
        self, job_id: int, run_lease: int, token: str, answer: bytes
    ) -> bool:
        """See `_seam.protocol.Resolving`."""
        await anyio.lowlevel.checkpoint()
        row = self._expecting(token)
        if (
            row is None
            or (row.id, row.run_lease) != (job_id, run_lease)
            or row.callback_until is None
            or row.worker_id is None
            or row.state not in HELD
        ):
            return False
        row.raw_callback_answer = answer
        row.callback_until = None
        self._tell(Answered(job_id, run_lease))
        return True

    async def extend_callback(self, token: str, timeout: float) -> bool:
        """See `_seam.protocol.Resolving`."""
        await anyio.lowlevel.checkpoint()
        row = self._expecting(token)
        if (
            row is None
            or row.callback_until is None
            or row.callback_until <= self._now()
            or row.state not in HELD
        ):
            return False
        row.callback_until = self._now() + timedelta(seconds=timeout)
        return True

    # ---- upkeep

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
                lost.append(LostJob(_claimed(row, row.deadline), reason))
        return lost[:most]

    def _lost_waiter(
        self, row: JobDetails, kinds: Sequence[str], strangers_after: float
    ) -> list[LostJob]:
        now = self._now()
        job = _claimed(row, row.deadline)
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

    # ---- dead letters

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

    # ---- schedules

    async def register_schedules(
        self, definitions: Sequence[Definition], *, anew: bool = False
    ) -> None:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        now = self._now()
        for one in definitions:
            row = self._schedules.get(one.name) or ScheduleRow(
                name=one.name,
                expression=one.expression,
                timezone=one.timezone,
                kind=one.kind,
                missed=one.missed,
                since=now.replace(microsecond=0),
                cursor=now,
                fires=0,
                fired_for=None,
                fired_at=None,
                last_job_id=None,
                paused_at=None,
                seen_at=now,
                error=None,
                now=now,
            )
            if anew and (row.expression, row.timezone) != (one.expression, one.timezone):
                row = attrs.evolve(
                    row, since=now.replace(microsecond=0), cursor=max(row.cursor, now)
                )
            self._schedules[one.name] = attrs.evolve(
                row,
                expression=one.expression,
                timezone=one.timezone,
                kind=one.kind,
                missed=one.missed,
                error=one.error,
                seen_at=now,
            )

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        return [
            attrs.evolve(row, now=self._now())
            for name, row in sorted(self._schedules.items())
            if names is None or name in names
        ]

    async def fire(
        self,
        name: str,
        cursor: datetime,
        upto: datetime,
        jobs: Sequence[PreparedInsert],
        *,
        patience: float = 0.25,
        notify: bool = True,
    ) -> list[Enqueued] | None:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        now = self._now()
        row = self._schedules.get(name)
        if row is None or row.cursor != cursor or row.paused or not cursor < upto <= now:
            return None
        answers = self._enqueue(jobs, notify)
        row = attrs.evolve(row, cursor=upto, error=None)
        if answers:
            row = attrs.evolve(
                row,
                fires=row.fires + 1,
                fired_for=upto,
                fired_at=now,
                last_job_id=answers[-1].id,
            )
        self._schedules[name] = row
        return answers

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        row = self._schedules.get(name)
        if row is None:
            return False
        now = self._now()
        if paused and not row.paused:
            row = attrs.evolve(row, paused_at=now)
        elif not paused and row.paused:
            row = attrs.evolve(row, paused_at=None, cursor=max(row.cursor, now))
        self._schedules[name] = row
        return True

    async def remove_schedule(self, name: str) -> bool:
        """See `_seam.protocol.Scheduling`."""
        await anyio.lowlevel.checkpoint()
        return self._schedules.pop(name, None) is not None

    # ---- inspecting

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

    def _alive(self, worker: _Worker) -> bool:
        return worker.fenced_at is None and self._clock() - worker.beat_at <= worker.lease

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
        queues = {row.queue for row in self._jobs.values() if row.state in WAITING}
        for worker in self._workers.values():
            if self._alive(worker):
                queues.update(worker.queues or ())
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
            tuple(sorted(queues)),
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

    # ---- flow

    async def list_queues(
        self, queues: Sequence[str] | None, most: int
    ) -> Sequence[QueueStatus]:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        live: dict[str, list[JobDetails]] = {}
        for row in self._jobs.values():
            if not row.state.terminal:
                live.setdefault(row.queue, []).append(row)
        names = {*self._book.names, *live} if queues is None else set(queues)
        return [
            self._book.status(name, live.get(name, ()), most, self._now())
            for name in sorted(names)
        ]

    async def set_queue(
        self, queue: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        now = self._now()
        changed = self._book.set(queue, paused=paused, draining=draining, now=now)
        if paused is False:
            self._tell(GotWork(queue))
        return changed

    async def override_queue(
        self, queue: str, changes: Mapping[str, object], forgotten: Sequence[str]
    ) -> bool:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        changed = self._book.override(queue, changes, forgotten)
        if changed:
            self._tell(Overridden(queue))
            self._tell(GotWork(queue))
        return changed

    async def declare_queues(self, queues: Mapping[str, Mapping[str, object]]) -> None:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        for queue, settings in queues.items():
            self._book.declare(queue, settings)

    async def overrides(self, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        """See `_seam.protocol.Flow`."""
        await anyio.lowlevel.checkpoint()
        found = {queue: self._book.overrides(queue) for queue in queues}
        return {queue: overrides for queue, overrides in found.items() if overrides}

    async def depth(self, queue: str, max_depth: int) -> tuple[int, int | None]:
        """See `_seam.protocol.Flow`."""
        limit = self._book.max_depth(queue, max_depth)
        [backlog] = await self.backlogs([queue], limit or 0)
        return backlog.due, limit

    # ---- hearing

    def now(self) -> datetime:
        """See `_seam.protocol.WorkerStore`."""
        return self._now()

    def _tell(self, news: News) -> None:
        for hear in self._hearers:
            hear(news)

    def _tell_of_work(self, jobs: Sequence[PreparedInsert]) -> None:
        for queue in {j.queue for j in jobs if self._initial(j) is JobState.AVAILABLE}:
            self._tell(GotWork(queue))

    async def listen(self, hear: Hear, ready: Callable[[], None]) -> NoReturn:
        """See `_seam.protocol.WorkerStore`."""
        self._hearers.append(hear)
        try:
            ready()
            hear(Reconnected())
            await anyio.sleep_forever()
        finally:
            self._hearers.remove(hear)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def pulse(self) -> AsyncIterator[MemoryStore]:
        """See `_seam.protocol.WorkerStore`."""
        yield self


def _waited(row: JobDetails) -> Waited:
    answer = row.raw_callback_answer if row.callback_until is None else None
    return Waited(row.state is JobState.WAITING_EXTERNAL, answer)


def _aged(row: JobDetails, now: datetime, ageing: float) -> float:
    """As functions/aged.sql."""
    if not ageing:
        return row.priority
    return max(row.priority - (now - row.run_at).total_seconds() // ageing, 1)


def _claimed(row: JobDetails, deadline: float | None) -> Claimed:
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
