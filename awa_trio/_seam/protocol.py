"""What a store does for the runtime and the client.

Several protocols, because the dispatcher should not be able to remove jobs, nor a list
of jobs to claim one. A store offers all of them.

Every method is one transaction, and may be repeated when its answer was lost. Each
raises the errors of `_seam.errors` and no others:

- `Transient`, `LockTimeout`, `Rejected`: any of them;
- `Fenced`: those that take the worker that writes.

Cancelling a method leaves the store whole; whether the transaction happened is then
unknown unless `trio.Cancelled` reached the caller, in which case it did not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NoReturn, Protocol

from .._core.activity import Figures
from .._core.explaining import Facts
from .._core.history import History
from .._core.job import JobDetails, PreparedInsert
from .._core.plan import Plan
from .._core.queues import QueueStatus
from .._core.request import Replacements
from .._core.schedules import Definition, ScheduleRow
from .._core.settings import Retention
from .._core.workers import WorkerRow
from .hearing import Hear
from .values import (
    Backlog,
    Claimed,
    DeadLetterFilter,
    Enqueued,
    Held,
    JobFilter,
    LostJob,
    Settled,
    Swept,
    Wait,
    Waited,
    Want,
)


class Producing(Protocol):
    """Putting jobs in."""

    async def enqueue(
        self, jobs: Sequence[PreparedInsert], *, notify: bool = True
    ) -> list[Enqueued]:
        """Insert jobs together or not at all, leaving out duplicates; one answer per job.

        Raises:
          Draining: one of the queues takes no more jobs.
        """
        ...


class Joined(Protocol):
    """A transaction of a handler's own, joined by the attempt that is to complete in it."""

    transaction: str
    """What `Working.has_committed` knows it by."""
    running: bool
    """Whether the attempt ran under its lease when the transaction began."""

    @property
    def lost(self) -> bool:
        """Whether its connection is: then nobody here knows whether it committed."""
        ...

    async def enqueue(self, jobs: Sequence[PreparedInsert]) -> list[Enqueued]:
        """Insert jobs, leaving out duplicates; they exist if and when this commits."""
        ...

    async def settle(self, plan: Plan, *, worker: int, patience: float) -> Settled:
        """Apply a plan; see `Working.settle`.

        Raises:
          Fenced: the worker is.
          Rejected: as the other methods; or the block has ended the transaction by itself.
        """
        ...


class Working(Protocol):
    """Running jobs."""

    async def register(
        self,
        name: str,
        lease: float,
        queues: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> int:
        """Begin the life of a worker; return its ID, which is never used again.

        Args:
          name: for people.
          lease: seconds without a beat after which it is presumed dead.
          queues: what it serves, for people; None: it does not say.
          kinds: what it can run, likewise.
        """
        ...

    async def unregister(self, worker: int) -> None:
        """End the life of a worker."""
        ...

    async def beat(self, worker: int) -> bool:
        """Renew a worker's lease; False if it is fenced or unknown."""
        ...

    async def claim(
        self, worker: int, wants: Sequence[Want], kinds: Mapping[str, float | None]
    ) -> list[Claimed]:
        """Claim jobs for which there is room, of known kinds, in the order they are to start:
        by priority, less what waiting makes up for; then run_at; then ID.

        Of the jobs of one queue with one ordering key the first by run_at, then ID, may start
        if it is of a known kind, and if none of them runs or waits for a callback. Those whose
        time has not come are not among them.

        Args:
          worker: who will run them.
          wants: the queues with room.
          kinds: each kind the worker can run, with the seconds an attempt of it may
              take, or None for the queue's.
        """
        ...

    async def next_due(self, queues: Sequence[str], kinds: Sequence[str]) -> float | None:
        """Seconds until the next job is due; 0 if someone else was claiming one; None if none waits.

        Jobs whose ordering key is taken do not count. Those with an ordering key that are due
        later may count whatever their kind: too early a look costs one claim.
        """
        ...

    async def settle(
        self,
        plans: Sequence[Plan],
        *,
        worker: int | None,
        patience: float = 0.25,
        strict: bool = False,
        notify: bool = True,
    ) -> list[Settled]:
        """Apply plans in one transaction: each whose guard holds, with its inserts; no other.

        Args:
          plans: at most one per job.
          worker: whose attempts they are; None if they are not a worker's own.
          patience: seconds to wait for any one lock.
          strict: raise `KeyTaken` and change nothing, rather than cancel a job whose
              unique key another holds.
          notify: whether to wake workers of queues that got work.

        Raises:
          Fenced: the worker is; nothing was written.
          KeyTaken: only if ``strict``.
        """
        ...

    async def tell(self, queues: Sequence[str]) -> None:
        """Wake the workers of these queues: a hint for what was committed without one."""
        ...

    async def register_callback(
        self, worker: int, job_id: int, run_lease: int, token: str, timeout: float
    ) -> bool:
        """Let a running attempt expect a callback, in place of any it expected before.

        Args:
          worker: who runs it.
          job_id: its job.
          run_lease: its lease.
          token: names the callback; never used before.
          timeout: seconds until it times out.

        Returns:
          False if the attempt is not running under this lease.

        Raises:
          Fenced: the worker is.
        """
        ...

    async def record_progress(
        self, worker: int, reports: Sequence[tuple[int, int, bytes]]
    ) -> list[bool]:
        """Keep what running attempts say about how far they have come, in one transaction.

        Args:
          worker: whose attempts they are.
          reports: for each its job, its lease, and what it says, as JSON text; at most one
              per job.

        Returns:
          For each, whether the attempt runs under this lease; else nothing was kept of it.

        Raises:
          Fenced: the worker is.
        """
        ...

    def join(
        self, connection: object, worker: int, job_id: int, run_lease: int
    ) -> AbstractAsyncContextManager[Joined]:
        """Open a transaction on a connection of the caller's, for an attempt to complete in.

        Leaving the block commits; an exception, or a cancellation, rolls back. What the
        block raises comes out as it was. A connection lost while it commits is `Transient`.

        Args:
          connection: idle, and to the same database.
          worker: who runs the attempt.
          job_id: its job.
          run_lease: its lease.

        Raises:
          ConfigurationError: it is another kind of thing, is in a transaction, or leads to
              another database; or this store has no transactions to join.
        """
        ...

    async def has_committed(self, job_id: int, run_lease: int, transaction: str) -> bool | None:
        """Whether a joined transaction that completed an attempt has committed.

        Returns:
          None while it is still under way.
        """
        ...

    async def begin_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """Let attempts wait for their callbacks in memory: their jobs go to ``waiting_external``.

        One whose callback has been answered already runs on, with the answer.

        Args:
          worker: whose attempts they are.
          waits: at most one per job.

        Returns:
          One per wait, in order; None if the attempt is not the worker's, or expects
          another callback.

        Raises:
          Fenced: the worker is.
        """
        ...

    async def end_waits(self, worker: int, waits: Sequence[Wait]) -> list[Waited | None]:
        """Let attempts run on, answered or not, each with what is left of its deadline.

        Arguments, results and errors are those of `begin_waits`.
        """
        ...

    async def answered(self, worker: int) -> list[Held]:
        """The attempts that wait, and whose callbacks have been answered."""
        ...

    async def running(self, worker: int) -> list[Held]:
        """The attempts that the rows say the worker runs, or waits with."""
        ...


class Upkeep(Protocol):
    """What one worker does for all."""

    async def lead(self, duty: str, worker: int, seconds: float) -> bool:
        """Take or keep a duty for a time; False if another worker has it."""
        ...

    async def rescue(
        self, most: int, *, deadline_slack: float, kinds: Sequence[str], strangers_after: float
    ) -> list[LostJob]:
        """Fence workers that missed their lease; list what nobody else will settle.

        That is attempts of workers that are gone, running or waiting, attempts far past
        their deadline, and jobs whose callback timed out.

        Args:
          most: how many to list.
          deadline_slack: seconds past its deadline in which a worker settles an attempt itself.
          kinds: list attempts of these at once, ...
          strangers_after: ... and of others once they have been lost for so many seconds.
        """
        ...

    async def prune(self, retention: Retention, most: int) -> int:
        """Remove settled jobs whose retention has passed, and their unique keys; how many."""
        ...


class Resolving(Protocol):
    """Answering callbacks. What settles a job goes through `Working.settle`."""

    async def find_callback(self, token: str) -> JobDetails | None:
        """The job that the token belongs to, resolved or not; None if there is none."""
        ...

    async def answer_callback(
        self, job_id: int, run_lease: int, token: str, answer: bytes
    ) -> bool:
        """Leave an answer for the attempt that holds the job, which runs or waits in memory.

        False: no worker holds it under this lease, or its callback is another, or has
        been answered.
        """
        ...

    async def extend_callback(self, token: str, timeout: float) -> bool:
        """Let a callback time out ``timeout`` seconds from now.

        False: it has been answered, has timed out, or does not exist.
        """
        ...


class Inspecting(Protocol):
    """Looking at jobs, and at who runs them."""

    async def get(self, ids: Sequence[int]) -> list[JobDetails]:
        """The jobs that exist, in no order."""
        ...

    async def backlogs(self, queues: Sequence[str], most: int) -> list[Backlog]:
        """What is due in each queue, in this order, of whatever kind.

        Args:
          queues: which.
          most: jobs to count in each; what it costs is bounded by this.
        """
        ...

    async def holder(self, unique_key: bytes) -> int | None:
        """The job that holds a unique key; None if none does."""
        ...

    async def count(self, wanted: JobFilter, most: int) -> int:
        """How many jobs there are of a sort; ``most`` means at least so many."""
        ...

    async def follow_ups(self, job_id: int, most: int) -> list[JobDetails]:
        """The jobs inserted with the settlements of a job, by ID, as far as they are found.

        Args:
          job_id: the job.
          most: jobs to look at, to either side of each moment at which it was settled.
        """
        ...

    async def facts(self, job_id: int, most: int) -> Facts | None:
        """What there is to know about why a job has not run; None if there is none.

        Args:
          job_id: the job.
          most: jobs to count ahead of it.
        """
        ...

    async def waiting_kinds(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        """Of which kinds jobs wait in queues: each queue with each of its kinds."""
        ...

    async def workers(self, most: int) -> list[WorkerRow]:
        """The workers there are, and those fenced lately, by ID."""
        ...

    async def activity(self, seconds: float, most: int) -> Figures:
        """What has happened to jobs in the last seconds.

        Args:
          seconds: how far to look back.
          most: jobs to look at in each state that they ended in; where more have ended, the
              figures are of a shorter time.
        """
        ...

    async def list_from(
        self, wanted: JobFilter, most: int, *, after_id: int = 0
    ) -> list[JobDetails]:
        """A page of jobs, oldest first; of those that may be retried, no others.

        Args:
          wanted: which; ``before_id`` is not looked at.
          most: how many.
          after_id: only those with a greater ID: the next page.
        """
        ...

    async def list(self, wanted: JobFilter, most: int) -> list[JobDetails]:
        """A page of jobs, newest first."""
        ...

    async def history(self, seconds: float, step: float, most: int) -> History:
        """What has happened to jobs in the last seconds, step by step.

        Args:
          seconds: how far to look back.
          step: seconds of each.
          most: jobs to look at in each state that they ended in; where more have ended, what is
              known begins later.
        """
        ...


class KeepingDeadLetters(Protocol):
    """What is done with jobs that failed and became dead letters, a batch at a time."""

    async def list_dead_letters(self, wanted: DeadLetterFilter, most: int) -> list[JobDetails]:
        """A page of dead letters, newest first."""
        ...

    async def count_dead_letters(self, wanted: DeadLetterFilter, most: int) -> int:
        """How many dead letters there are of a kind, a queue, a reason; ``most``: at least so many."""
        ...

    async def retry_dead_letters(
        self,
        wanted: DeadLetterFilter,
        most: int,
        changes: Replacements,
        *,
        after_id: int = 0,
        strict: bool = False,
    ) -> Swept:
        """Let dead letters run again, with all their attempts, by ascending ID.

        Args:
          wanted: which; ``before_id`` is not looked at.
          most: how many to look at.
          changes: what is to be different about them.
          after_id: only those with a greater ID: the next batch.
          strict: raise `KeyTaken` and change nothing, rather than leave a job alone whose
              unique key another holds.

        Raises:
          KeyTaken: only if ``strict``.
        """
        ...

    async def purge_dead_letters(
        self, wanted: DeadLetterFilter, most: int, *, after_id: int = 0
    ) -> Swept:
        """Remove dead letters with their unique keys, by ascending ID.

        Args:
          wanted: which; ``before_id`` is not looked at.
          most: how many.
          after_id: only those with a greater ID: the next batch.
        """
        ...


class Scheduling(Protocol):
    """Keeping what schedules have fired for, so that each instant is fired for once."""

    async def register_schedules(
        self, definitions: Sequence[Definition], *, anew: bool = False
    ) -> None:
        """Say that an application has these schedules; those that are not known begin now.

        Args:
          definitions: at most one per name.
          anew: those whose expression or time zone is another than before begin anew, too.
        """
        ...

    async def schedules(self, names: Sequence[str] | None = None) -> list[ScheduleRow]:
        """The schedules that exist, of all or of these names, in the order of their names."""
        ...

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
        """Move a schedule's cursor, and insert jobs, leaving out duplicates: both, or neither.

        Args:
          name: the schedule.
          cursor: where its cursor is.
          upto: where it is to be; not in the future.
          jobs: to be inserted with that; none if nothing is to happen for these instants.
          patience: seconds to wait for any one lock.
          notify: whether to wake workers of the queues that got work.

        Returns:
          One answer per job; None if the cursor was elsewhere, ``upto`` is in the future, or the
          schedule is paused or gone: then nothing was written.
        """
        ...

    async def pause_schedule(self, name: str, paused: bool) -> bool:
        """Pause a schedule, or let it go on; False if there is none.

        What passes while it is paused is dealt with: it goes on with what comes then. To do
        what has been done already changes nothing.
        """
        ...

    async def remove_schedule(self, name: str) -> bool:
        """Forget a schedule; False if there is none. Its jobs stay."""
        ...


class Flow(Protocol):
    """What is said about queues while they are used, by people and by those that use them."""

    async def list_queues(
        self, queues: Sequence[str] | None, most: int
    ) -> Sequence[QueueStatus]:
        """How queues are, by name.

        Args:
          queues: which, each of them whether known or not; None for all that have live jobs,
              that live workers serve, or that something was said about.
          most: jobs to count in each state; what it costs is bounded by this.
        """
        ...

    async def set_queue(
        self, queue: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> bool:
        """Pause or drain a queue, or end that; None leaves it. Whether it changed anything.

        A pause is exact: every claim that ends after this knows of it.
        """
        ...

    async def override_queue(
        self, queue: str, changes: Mapping[str, object], forgotten: Sequence[str]
    ) -> bool:
        """Set overrides, as `_core.queues` has them in JSON, and forget others; whether any changed."""
        ...

    async def declare_queues(self, queues: Mapping[str, Mapping[str, object]]) -> None:
        """Keep the settings of queues, in JSON, as the worker that started last has them."""
        ...

    async def overrides(self, queues: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The overrides of those of the queues that have some, in JSON."""
        ...

    async def depth(self, queue: str, max_depth: int) -> tuple[int, int | None]:
        """How many jobs are due and not claimed, up to the limit; and the limit.

        Args:
          queue: the queue.
          max_depth: its limit, unless that has been overridden, with None for no limit.
        """
        ...


class Store(
    Producing,
    Working,
    Upkeep,
    Resolving,
    Inspecting,
    KeepingDeadLetters,
    Scheduling,
    Flow,
    Protocol,
):
    """Everything a store does."""


class Pulse(Protocol):
    """A worker's heartbeat, on a connection of its own."""

    async def beat(self, worker: int) -> bool:
        """Renew a worker's lease; False if it is fenced or unknown."""
        ...


class WorkerStore(Store, Protocol):
    """A store opened for one worker, whose connections nobody else can use up."""

    threaded_pulse: bool
    """Whether the heartbeat can run in a thread with an event loop of its own: a store in
    memory lives in one loop."""

    def now(self) -> datetime:
        """The store's time, as near as this process knows it without asking."""
        ...

    def pulse(self) -> AbstractAsyncContextManager[Pulse]:
        """Open the connection for the heartbeat, in the event loop that will use it."""
        ...

    async def listen(self, hear: Hear, ready: Callable[[], None]) -> NoReturn:
        """Pass on news until cancelled, reconnecting as need be.

        `Reconnected` comes first, and again whenever some may have been missed. ``ready``
        is called once, when hearing has begun; a failure before that is raised.
        """
        ...
