"""The attempts a worker holds: from claim to the answer to their settlement.

What is held here and what the rows say can differ: an answer was lost, or others
acted on the job. The ledger compares, hands back what it does not know, and cuts what
is no longer its own.
"""

from __future__ import annotations

import contextvars
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .._core import events
from .._core.errors import FollowUpError, LeaseLost
from .._core.instants import count
from .._core.job import JobState, PreparedInsert
from .._core.naming import Named, about, describe
from .._core.outcome import (
    Abandoned,
    Cut,
    Detached,
    Ended,
    Orphaned,
    Refused,
    Returned,
    ToCompleted,
    ToFailed,
    ToWaiting,
    leaves,
)
from .._core.plan import Plan
from .._core.registry import Registry
from .._core.settings import Timings
from .._core.staging import Sealed
from .._seam.errors import StoreError
from .._seam.hearing import Answered, CutElsewhere, News, Reconnected
from .._seam.protocol import WorkerStore
from .._seam.values import Held, Settled
from .asyncio_loop import AsyncioLoop
from .attempt import (
    Attempt,
    Handler,
    Observed,
    OwnCompletion,
    leave,
    log_end,
    log_end_after_completion,
)
from .enclosure import Enclosure
from .finalize import Entry, Finalizer
from .job import Job, Services, args_of, lend_services, row_of
from .observing import Observers
from .planner import Planner
from .resources import Resources
from .waits import Waits

if TYPE_CHECKING:
    from .dispatch import Dispatcher
    from .life import Life

logger = logging.getLogger("awa_trio.worker")

#: Seconds between two comparisons with the rows, at least; doubled up to the second each time
#: that something could not be settled, or a database that refuses it would be asked without end.
RECONCILE_PAUSES = (0.02, 1.0)

#: Seconds between two notifications for work that this worker may do itself.
TELL_EVERY = 0.05


@attrs.define
class Counts:
    """What has become of a worker's attempts, in its life."""

    settled: dict[JobState, int] = attrs.field(factory=lambda: dict.fromkeys(JobState, 0))
    """Settlements that applied, by the state the job moved to."""
    stale: int = 0
    """Settlements that came too late: the job was someone else's already."""
    given_up: int = 0
    """Settlements that could not be made in time."""
    inserted: int = 0
    """Follow-ups enqueued."""
    duplicates: int = 0
    """Follow-ups left out because a job holds their unique key."""
    discarded_by_parking: int = 0
    """Staged follow-ups discarded because their handler returned WaitForCallback."""


class Ledger:
    """The attempts of one worker.

    Args:
      registry: the tasks that run them.
      store: where the rows are.
      planner: decides what an ending writes.
      timings: how long an attempt may take to end once it is cut.
      threads: limits the threads of ordinary functions.
      resources: what handlers request besides their job.
      crashed: told of KeyboardInterrupt and SystemExit, which go on once they are recorded.
      observers: told of everything else.
    """

    def __init__(
        self,
        registry: Registry,
        store: WorkerStore,
        planner: Planner,
        timings: Timings,
        threads: trio.CapacityLimiter,
        resources: Resources,
        crashed: Callable[[BaseException], None],
        observers: Observers | None = None,
    ) -> None:
        self._registry = registry
        self._observers = observers
        self._store = store
        self._planner = planner
        self._timings = timings
        self._threads = threads
        self._resources = resources
        self._crashed = crashed
        self._held: dict[tuple[int, int], Attempt] = {}
        self._told_at = -math.inf
        self._untold: set[str] = set()
        """Queues that have work of which other workers have not been told yet."""
        self._owing = trio.Event()
        self.shut_at = math.inf
        """When the worker's shutdown cuts every attempt, by Trio's clock."""
        self._stopping = False
        self._uncertain = trio.Event()
        self.counts = Counts()
        # They need the ledger to be made: set by `parts.assemble`.
        self.services: Services
        self.asyncio: AsyncioLoop
        self.finalizer: Finalizer
        self.dispatcher: Dispatcher
        self.waits: Waits

    # ---- holding

    def hold(self, attempt: Attempt) -> None:
        """An attempt was claimed."""
        self._held[attempt.key] = attempt

    def __len__(self) -> int:
        return len(self._held)

    def attempt_of(self, job: Job[Any]) -> Attempt:
        """The attempt whose handler holds ``job``.

        Raises:
          LeaseLost: it is over.
        """
        row = row_of(job)
        attempt = self._held.get((row.id, row.run_lease))
        if attempt is None:
            raise LeaseLost(f"the attempt of job {row.id} under lease {row.run_lease} is over")
        return attempt

    def running(self) -> list[Attempt]:
        """The attempts whose handlers have not ended."""
        return [attempt for attempt in self._held.values() if not attempt.ended]

    def lost(self, worker_id: int) -> None:
        """The worker that these were claimed for is dead: cut them, and let go of them."""
        for attempt in self.running():
            if attempt.worker_id == worker_id and not attempt.settled:
                attempt.cut(Cut.LEASE_LOST)

    def heard(self, news: News) -> None:
        """Take note of what was heard, where it is about attempts."""
        match news:
            case CutElsewhere():
                self.cut_elsewhere(news)
            case Answered():
                self.callback_answered(news)
            case Reconnected():
                self.reconcile_soon()
            case _:
                pass

    def cut_elsewhere(self, news: CutElsewhere) -> None:
        """Someone else settled an attempt: cut it, if it is held here."""
        attempt = self._held.get((news.job_id, news.run_lease))
        if attempt is not None and not attempt.settled:
            # Anybody can send a notification: the row says whether it is true.
            self.reconcile_soon()

    def _settled_elsewhere(self, attempt: Attempt, became: JobState | None) -> None:
        if became is JobState.CANCELLED or not self.waits.superseded(attempt.key, became):
            attempt.cut(_why(became))

    def callback_answered(self, news: Answered) -> None:
        """The callback of an attempt was answered."""
        self.waits.answered((news.job_id, news.run_lease))

    def shut(self) -> bool:
        """Whether the worker's shutdown has cut every attempt."""
        return self.shut_at <= trio.current_time()

    def stop_waiting(self) -> None:
        """From now on, once no attempt does anything but wait, cut them: their jobs wait on."""
        self._stopping = True
        self.cut_waiting()

    def cut_waiting(self) -> None:
        """If the worker is stopping and nothing but waiting is left of its attempts, cut them."""
        if self._stopping:
            running = self.running()
            if all(map(self.waits.only_waits, running)):
                for attempt in running:
                    attempt.cut(Cut.SHUTDOWN)

    # ---- running

    def run(self, attempt: Attempt, enclosure: Enclosure) -> Awaitable[None]:
        """Run an attempt to its end, and submit its settlement."""
        if self._observers is None:
            return self._run(attempt, enclosure)
        return self._run_observed(attempt, enclosure)

    async def _run_observed(self, attempt: Attempt, enclosure: Enclosure) -> None:
        """Do the same inside the blocks of observers."""
        assert self._observers is not None
        job = attempt.claimed
        delay = (count(self._store.now()) - job.raw_run_at) / 1e6
        started = events.Started(events.ref(job), attempt.worker_id, max(delay, 0.0))
        with self._observers.attempt(started):
            attempt.observed = Observed(
                started, trio.current_time(), contextvars.copy_context()
            )
            self._observers.tell(started)
            await self._run(attempt, enclosure)

    async def _run(self, attempt: Attempt, enclosure: Enclosure) -> None:
        task = self._registry.tasks[attempt.claimed.kind]
        decode = partial(self._registry.decode, task)
        job = Job(attempt.claimed, decode, attempt.buffer, self._planner.prepare)
        lend_services(job, self.services)
        attempt.job = job
        function, held = task.handler, None
        if task.requests:
            function, held = self._resources.lend(task, job)
        if task.in_thread:
            function = self._in_thread(attempt, function)
        elif task.on_asyncio:
            function = self._on_asyncio(function)
        ended = await attempt.run(function, job, enclosure, held)
        if attempt.own_completion is OwnCompletion.COMMITTED:
            self._let_go(attempt)
            log_end_after_completion(attempt, ended)
            if attempt.observed is not None:
                self._tell_ended(attempt, attempt.observed, ended, attempt.seal(), None)
        elif attempt.settled:
            self._let_go(attempt)
            logger.warning("%s ended at last", attempt.describe(), extra=attempt.about())
        else:
            self.settle(attempt, ended, args_of(job))
        if attempt.callback is not None:
            self.waits.ended(attempt)
        self.cut_waiting()
        self._go_on_with(attempt.error)
        if attempt.thread_finished is not None and not attempt.thread_finished.is_set():
            logger.warning(
                "%s is settled, but its thread goes on; the slot is taken until it ends",
                attempt.describe(),
                extra=attempt.about(),
            )
            await enclosure.close()
            await attempt.thread_finished.wait()
        if self.finalizer.full:
            await enclosure.close()
            await self.finalizer.room()

    def _in_thread(self, attempt: Attempt, function: Callable[..., object]) -> Handler:
        return lambda job, **given: attempt.in_thread(function, job, self._threads, given)

    def _on_asyncio(self, function: Handler) -> Handler:
        return lambda job, **given: self.asyncio.run(partial(function, job, **given))

    def settle(self, attempt: Attempt, ended: Ended, args: object = None) -> None:
        """Decide what an ending writes, and submit it. Never blocks."""
        attempt.settled = True
        sealed = attempt.seal()
        if not isinstance(ended, Returned):
            log_end(attempt, ended)
            if (
                isinstance(ended, Abandoned)
                and ended.by is Cut.SHUTDOWN
                and attempt.claimed.state is JobState.WAITING_EXTERNAL
                and sealed.callback is not None
            ):
                ended = Detached(sealed.callback)
        plan = self._planner.plan(ended, attempt.claimed, sealed, args)
        leave(attempt, plan)
        if attempt.observed is not None:
            self._tell_ended(attempt, attempt.observed, ended, sealed, plan)
        if sealed.follow_ups and not _keeps(plan):
            why = "stale" if plan is None else str(plan.move.to_state)
            parked = _parked(ended, plan)
            if parked:
                self.counts.discarded_by_parking += len(sealed.follow_ups)
            self._discard(attempt, sealed.follow_ups, why, parked=parked)
        if plan is None:
            self._let_go(attempt)
            if self._observers is not None:
                job = events.ref(attempt.claimed)
                self._observers.tell(events.Stale(job, attempt.worker_id))
        else:
            for error in (*plan.left_out, getattr(plan.settlement, "error", None)):
                if isinstance(error, FollowUpError):
                    self._go_on_with(error.__cause__)
            self.finalizer.submit(Entry(plan, attempt.worker_id, attempt))

    def _go_on_with(self, error: BaseException | None) -> None:
        """Let KeyboardInterrupt and SystemExit go on, now that the job is on record."""
        for leaf in () if error is None else leaves(error):
            if isinstance(leaf, (KeyboardInterrupt, SystemExit)):
                self._crashed(leaf)
                return

    def hand_back(self, attempts: Sequence[Attempt]) -> None:
        """Give back attempts that were claimed and never started."""
        for attempt in attempts:
            attempt.ended = True
            self.settle(attempt, Orphaned())

    # ---- telling observers

    def _tell_ended(
        self,
        attempt: Attempt,
        observed: Observed,
        ended: Ended,
        sealed: Sealed,
        plan: Plan | None,
    ) -> None:
        assert self._observers is not None
        settlement = None if plan is None else plan.settlement
        self._observers.tell(
            events.Ended(
                observed.started.job,
                attempt.worker_id,
                events.ending(ended, settlement, sealed.poison is not None),
                trio.current_time() - observed.at,
                tuple([one.kind for one in sealed.follow_ups]),
                events.recorded(ended if settlement is None else settlement),
            )
        )

    def _discard(
        self,
        attempt: Attempt,
        staged: Sequence[PreparedInsert],
        why: str,
        *,
        parked: bool = False,
    ) -> None:
        """Say that staged follow-ups are discarded: loudly where it is almost always a mistake."""
        logger.log(
            logging.WARNING if parked else logging.DEBUG,
            "%s: %d staged follow-ups were discarded (%s)%s",
            attempt.describe(),
            len(staged),
            why,
            "; the handler returned WaitForCallback, which ends the attempt that staged them"
            if parked
            else "",
            extra=attempt.about(),
        )
        if self._observers is not None:
            kinds = tuple([one.kind for one in staged])
            self._observers.tell(events.Discarded(events.ref(attempt.claimed), kinds, why))

    def _tell_settled(self, entry: Entry, answer: Settled) -> None:
        assert self._observers is not None
        self._observers.tell(
            events.settled(
                entry.plan,
                [(made.id, made.holder_id) for made in answer.insertions],
                worker_id=None if entry.attempt is None else entry.worker_id,
                duplicate_of=answer.duplicate_of,
                rescued=entry.rescued,
            )
        )

    # ---- what became of settlements (finalize.Clerk)

    def settled(self, entry: Entry, answer: Settled) -> None:
        """See `finalize.Clerk`."""
        self._let_go(entry.attempt)
        if not answer.applied:
            self._stale(entry)
            return
        self.counts.settled[entry.plan.move.to_state] += 1
        if entry.untold:
            self._untold.update(entry.untold)
            self._owing.set()
        if entry.in_order is not None:
            # The next job of its ordering key may start.
            self.dispatcher.got_work(entry.in_order, more_comes=self.finalizer.more_waits)
        if answer.duplicate_of is not None:
            job = _job(entry)
            logger.warning(
                "%s could not have its unique key back: job %d holds it",
                describe(job, entry.worker_id),
                answer.duplicate_of,
                extra=about(job, entry.worker_id),
            )
        for insert, inserted in zip(entry.plan.inserts, answer.insertions, strict=True):
            if inserted.id is not None:
                self.counts.inserted += 1
                self.dispatcher.got_work(insert.queue)
            else:
                self.counts.duplicates += 1
                if logger.isEnabledFor(logging.DEBUG):
                    _log_skip(entry, insert.kind, inserted.holder_id)
        if self._observers is not None:
            self._tell_settled(entry, answer)

    def _stale(self, entry: Entry) -> None:
        self.counts.stale += 1
        job = _job(entry)
        logger.info(
            "the settlement of %s under lease %d came too late: nothing was written",
            describe(job, entry.worker_id),
            entry.plan.move.run_lease,
            extra=about(job, entry.worker_id),
        )
        staged = events.staged_of(entry.plan)
        if staged and entry.attempt is not None:
            self._discard(entry.attempt, staged, "stale")
        if self._observers is not None:
            self._observers.tell(events.Stale(events.ref(job), entry.worker_id))

    def given_up(self, entry: Entry) -> None:
        """See `finalize.Clerk`."""
        self._let_go(entry.attempt)
        self.counts.given_up += 1
        if self._observers is not None:
            self._observers.tell(events.GivenUp(events.ref(_job(entry)), entry.worker_id))
        self.reconcile_soon()

    def refused(self, entry: Entry, error: StoreError) -> Plan | None:
        """See `finalize.Clerk`.

        Prompt failure (ADR-046, "Open extensions"): the error is recorded now, under the
        lease, instead of waiting for a rescue that would meet it again.
        """
        job = _job(entry)
        logger.error(
            "the database refuses the settlement of %s: %s",
            describe(job, entry.worker_id),
            error.headline,
            extra=about(job, entry.worker_id),
        )
        if isinstance(entry.plan.settlement, ToFailed):
            if not entry.plan.inserts:
                return None
            # Even its registered follow-ups are refused; the failure is what matters.
            return attrs.evolve(entry.plan, inserts=())
        cause = error.__cause__ or error
        if entry.attempt is None:
            # A rescue: its follow-ups are refused, the rescue is what matters.
            return attrs.evolve(entry.plan, inserts=()) if entry.plan.inserts else None
        if staged := events.staged_of(entry.plan):
            self._discard(entry.attempt, staged, "refused")
        plan = self._planner.plan(Refused(cause), entry.attempt.claimed)
        leave(entry.attempt, plan)
        return plan

    def worth_telling(self, entries: Sequence[Entry]) -> bool:
        """See `finalize.Clerk`."""
        telling = False
        for entry in entries:
            # One that parks may have been answered already: then it is available.
            to = entry.plan.move.to_state
            if to in (JobState.AVAILABLE, JobState.WAITING_EXTERNAL) or entry.attempt is None:
                return True
            entry.untold = self._for_others(entry)
            telling = telling or bool(entry.untold)
        now = trio.current_time()
        if not telling or now - self._told_at < TELL_EVERY:
            return False
        self._told_at = now
        for entry in entries:
            entry.untold = ()
        return True

    def _for_others(self, entry: Entry) -> Collection[str]:
        """The queues in which a settlement makes work that this worker cannot do at once."""
        inserts, in_order = entry.plan.inserts, entry.in_order
        if not inserts and in_order is None:
            return ()
        serves = self.dispatcher.serves
        queues = {i.queue for i in inserts if i.run_at is None and not serves(i.queue)}
        if in_order is not None and not serves(in_order):
            queues.add(in_order)
        return queues

    async def tell_others(self) -> None:
        """Tell other workers of what settlements did not, because one just had; until cancelled."""
        while True:
            await self._owing.wait()
            await trio.sleep_until(self._told_at + TELL_EVERY)
            queues, self._untold, self._owing = self._untold, set(), trio.Event()
            self._told_at = trio.current_time()
            with trio.fail_after(self._timings.call_timeout):
                await self._store.tell(sorted(queues))

    def _let_go(self, attempt: Attempt | None) -> None:
        if attempt is not None and attempt.ended:
            self._held.pop(attempt.key, None)

    # ---- comparing with the rows

    def reconcile_soon(self) -> None:
        """An answer was lost: find out what the rows say."""
        self._uncertain.set()

    async def reconcile(self, life: Life) -> None:
        """Compare with the rows, every so often and whenever an answer was lost; until cancelled."""
        shortest, longest = RECONCILE_PAUSES
        pause = shortest
        while True:
            with trio.move_on_after(self._timings.reconcile_interval):
                await self._uncertain.wait()
            # Before the rows are read: what is heard meanwhile may not be in them.
            self._uncertain = trio.Event()
            given_up = self.counts.given_up
            if life.id is not None:
                await self.reconcile_once(life.id)
            failed = self.counts.given_up > given_up
            pause = min(2 * pause, longest) if failed else shortest
            # However often it is asked for.
            await trio.sleep(pause)

    async def reconcile_once(self, worker_id: int) -> None:
        """Hand back attempts that only the rows know; cut those that only the ledger knows."""
        async with self.dispatcher.lock:
            # What is let go of while the rows are read was not settled when they were.
            before = set(self._held)
            running = [a for a in self.running() if a.worker_id == worker_id and not a.settled]
            with trio.fail_after(self._timings.call_timeout):
                rows = await self._store.running(worker_id)
            marked = {(row.id, row.run_lease): row for row in rows}
            orphans = [row for key, row in marked.items() if key not in before]
            gone = [a for a in running if a.key not in marked and not a.settled]
            # Of these the answer to its own COMMIT may be on its way.
            gone = [a for a in gone if a.own_completion is not OwnCompletion.COMMITTING]
        if gone:
            with trio.fail_after(self._timings.call_timeout):
                details = await self._store.get([attempt.claimed.id for attempt in gone])
            leases = {attempt.claimed.id: attempt.claimed.run_lease for attempt in gone}
            states = {row.id: row.state for row in details if row.run_lease == leases[row.id]}
            for attempt in gone:
                self._settled_elsewhere(attempt, states.get(attempt.claimed.id))
        for row in rows:
            if row.answered:
                self.waits.answered((row.id, row.run_lease), row.token)
        for row in orphans:
            logger.warning(
                "%s is marked as run by this worker, which does not run it: handed back",
                describe(row, worker_id),
                extra=about(row, worker_id),
            )
        plans = [self._planner.plan(_orphaned(row), row) for row in orphans]
        await self.finalizer.settle(
            [Entry(plan, worker_id) for plan in plans if plan is not None]
        )

    # ---- handlers that will not end

    async def watch_overdue(self) -> None:
        """Settle attempts that were cut and do not end, without waiting for them; until cancelled."""
        while True:
            await trio.sleep(max(self._timings.abandon_after / 5, 0.01))
            for attempt in self.running():
                overdue = trio.current_time() - min(attempt.cut_since(), self.shut_at)
                if overdue < self._timings.abandon_after or attempt.settled:
                    continue
                by = attempt.cut_by(trio.current_time()) or Cut.SHUTDOWN
                logger.warning(
                    "%s was cut (%s) and has not ended for %.1f s: it is settled without waiting;"
                    " its slot is taken until it ends",
                    attempt.describe(),
                    by.value,
                    overdue,
                    extra=attempt.about(),
                )
                after = attempt.claimed.deadline if by is Cut.DEADLINE else None
                ended = Abandoned(by, after=after)
                if attempt.observed is None:
                    self.settle(attempt, ended)
                else:
                    # Its follow-ups join the trace of the attempt, not of this task.
                    attempt.observed.context.run(self.settle, attempt, ended)
                self.waits.given_up(attempt)

    def overdue(self) -> int:
        """How many attempts have been settled without waiting for them."""
        return sum(
            attempt.settled and attempt.own_completion is not OwnCompletion.COMMITTED
            for attempt in self.running()
        )


def _why(state: JobState | None) -> Cut:
    """Why an attempt was cut, from what became of its job, if that is known."""
    if state is JobState.CANCELLED:
        return Cut.CANCELLED
    if state in (None, JobState.RUNNING, JobState.RETRYABLE):
        return Cut.LEASE_LOST
    return Cut.SUPERSEDED


def _parked(ended: Ended, plan: Plan | None) -> bool:
    return (
        plan is not None
        and isinstance(plan.settlement, ToWaiting)
        and not isinstance(ended, Detached)
    )


def _orphaned(row: Held) -> Ended:
    """How an attempt has ended that only its row knows of."""
    if row.state is JobState.WAITING_EXTERNAL and row.token is not None:
        return Detached(row.token)
    return Orphaned()


def _job(entry: Entry) -> Named:
    """The job that an entry settles."""
    subject = entry.plan.subject
    assert subject is not None, "whoever plans says for which job"
    return subject


def _log_skip(entry: Entry, kind: str, holder_id: int | None) -> None:
    """Say that a follow-up duplicates a job: where "why is there no B" is looked for."""
    job = _job(entry)
    logger.debug(
        "%s: a follow-up of kind %s was left out: job %s holds its unique key",
        describe(job, entry.worker_id),
        kind,
        holder_id,
        extra=about(job, entry.worker_id),
    )


def _keeps(plan: Plan | None) -> bool:
    """Whether a plan inserts what the attempt staged."""
    return plan is not None and isinstance(plan.settlement, ToCompleted)
