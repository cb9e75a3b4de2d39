"""Permits before claims: take what there is room for, and start it.

A slot is a task that runs attempts one after another. Nothing is claimed that a free
slot does not wait for, so no claimed job ever waits inside a worker. An attempt that waits
for a callback lends its slot, and gets one back before new jobs do.
"""

from __future__ import annotations

import contextvars
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import trio

from .._core import events
from .._core.rates import Bucket, seconds_to, take, tokens, whole
from .._core.settings import QueueSettings, Timings
from .._core.shares import Share, rooms
from .._seam.errors import Fenced, LockTimeout, StoreError, Transient
from .._seam.protocol import Working
from .._seam.values import Claimed, Passed, Want
from .attempt import Attempt
from .enclosure import Enclosure
from .observing import Observers, said

logger = logging.getLogger("awa_trio.worker")

#: Seconds to wait for more slots of a busy queue to become free before claiming for the
#: few that are: one claim for ten jobs costs the database hardly more than one for one.
LINGER = 0.002

#: Seconds after a claim that found too little before asking when there is more. Whoever is
#: told of jobs all the time claims again before, and need not ask. Doubled each time that
#: something was due and could not be had: someone else was claiming it.
QUIET = 0.025

#: How much rarer an idle queue is looked at while notifications are heard: then only one that
#: gets lost makes the difference.
RARER = 2.5

#: Slots woken ahead of the jobs they are to pick up.
SPARES = 4

#: The most jobs in one claim.
MOST_JOBS = 500

#: Seconds between two claims that look at a busy queue from its head, or times what one of
#: them took, if that is longer. Those between them go on where the last one ended: what it
#: claimed leaves remains in the index, which cannot be removed while some session holds an
#: old snapshot. What comes up behind waits this long.
WHOLE_EVERY = 1.0
WHOLE_TIMES = 30


class Slots:
    """One queue's slots in this worker."""

    def __init__(self, queue: str, settings: QueueSettings) -> None:
        self.queue = queue
        self.settings = settings
        self.free = settings.max_workers
        """Attempts that may start."""
        self.started = 0
        """Slot tasks that exist; they are started when first needed."""
        self.ready: deque[Attempt] = deque()
        """Claimed, and about to be picked up by a parked slot."""
        self.parked = trio.lowlevel.ParkingLot()
        self.spares = 0
        """Slots that have been woken, or begun, and have not picked up a job yet."""
        self.waiting = 0
        """Slot tasks whose attempts wait for callbacks."""
        self.promised = 0
        """Free slots for which a claim is under way."""
        self.returning = trio.lowlevel.ParkingLot()
        """Attempts that have waited, and want a slot to go on."""
        self.may_have_more = True
        """Whether a claim may find something: there was news, or the last one was full."""
        self._passed: dict[tuple[str, int], Passed] = {}
        """How far this worker has claimed in each lane, since it last looked from its head."""
        self._whole_at = -math.inf
        """When it is to look from there again."""
        self.look_at = math.inf
        """When a claim will find something, as far as is known."""
        self.ask_at = math.inf
        """When to ask for that moment again: soon after a claim that found too little, and
        then every so often, because news can be missed."""
        self.due = False
        """Whether there was something to claim when that was last asked."""
        self.fruitless = 0
        """Claims in a row that found nothing although there was."""
        self._bucket: Bucket | None = None
        """What is left of its rate in this worker."""

    @property
    def taken(self) -> int:
        """Slots that attempts have."""
        return self.settings.max_workers - self.free

    def most(self, now: float) -> int:
        """How many may be claimed now, as far as this queue alone is concerned.

        At most half of the slots at once: while one half runs, the other is claimed for.
        """
        if not self.may_have_more or self.free <= 0:
            return 0
        half = (self.settings.max_workers + 1) // 2
        return min(self.free, half, MOST_JOBS, self._in_bucket(now))

    def _in_bucket(self, now: float) -> int:
        rate = self.settings.worker_rate
        if rate is None:
            return MOST_JOBS
        return whole(tokens(rate, self._bucket, now))

    def refilled_at(self, now: float) -> float:
        """When its rate in this worker will allow a job for which it has a slot; else never.

        Never, too, if it does so now: then something else keeps the queue, such as the worker's
        cap, and to wake for it would be to find that again, without end.
        """
        rate = self.settings.worker_rate
        if rate is None or not self.may_have_more or self.free <= 0:
            return math.inf
        return now + (seconds_to(rate, self._bucket, now) or math.inf)

    def want(self, most: int) -> Want:
        """What to claim, when so many may be."""
        if trio.current_time() >= self._whole_at:
            self._passed.clear()
        return Want(
            self.queue,
            most,
            self.settings.deadline,
            self.settings.priority_ageing,
            tuple(self._passed.values()),
        )

    def got(self, jobs: Sequence[Claimed], want: Want, seconds: float) -> bool:
        """Take note of what was claimed, and how long it took; return whether there may be more."""
        if self.settings.worker_rate is not None:
            now = trio.current_time()
            self._bucket = take(self.settings.worker_rate, self._bucket, len(jobs), now)
        if len(jobs) < want.most:
            self._passed.clear()
            self._whole_at = -math.inf
            return bool(want.after)
        if not want.after:
            pause = max(WHOLE_EVERY, WHOLE_TIMES * seconds)
            self._whole_at = trio.current_time() + pause
        last = {(job.kind, job.priority): job for job in jobs if not job.apart}
        for lane, job in last.items():
            self._passed[lane] = Passed(*lane, job.raw_run_at, job.id)
        return True


class Dispatcher:
    """Claims jobs for one worker's queues, and hands them to slots.

    Args:
      store: where to claim.
      queues: the queues to serve.
      kinds: the kinds this worker runs, each with the seconds an attempt of it may take.
      hold: told of each attempt that was claimed, before it starts.
      run: runs one attempt to its end and submits its settlement.
      worker_id: returns the worker's present ID; waits while it has none.
      uncertain: told when a claim's answer was lost, and jobs may be marked as ours.
      fenced: told when the worker is refused.
      timings: how often to look.
      random: for the jitter of the polls.
      max_waiting: attempts that may wait for callbacks at once; with more nothing is claimed.
      cap: attempts of all queues together that may run at once; None for any number.
      observers: told of each claim.
    """

    def __init__(
        self,
        store: Working,
        queues: Sequence[Slots],
        kinds: dict[str, float | None],
        *,
        hold: Callable[[Attempt], None],
        run: Callable[[Attempt, Enclosure], Awaitable[None]],
        worker_id: Callable[[], Awaitable[int]],
        uncertain: Callable[[], None],
        fenced: Callable[[int], None],
        timings: Timings,
        random: Random,
        max_waiting: int,
        cap: int | None = None,
        observers: Observers | None = None,
    ) -> None:
        self._store = store
        self._cap = cap
        self._returning: deque[Slots] = deque()
        """Where a cap is shared, whose attempts want a slot back, in order."""
        self._max_waiting = max_waiting
        self.waiting = 0
        """Attempts that wait for callbacks, and whose slots others may have."""
        self._observers = observers
        self._queues = {slots.queue: slots for slots in queues}
        self._kinds = kinds
        self._hold = hold
        self._run = run
        self._worker_id = worker_id
        self._uncertain = uncertain
        self._fenced = fenced
        self._timings = timings
        self._random = random
        self._news = trio.Event()
        self.lock = trio.Lock()
        """Held while a claim is under way: what the rows say and what is held can differ."""
        self.claims = 0
        """Claims made."""
        self._more_comes = False
        self._closing = False
        self.hears = False
        """Whether notifications are heard."""

    # ---- news: synchronous, from wherever it comes

    def got_work(self, queue: str | None = None, *, more_comes: bool = False) -> None:
        """Look again at a queue, or at all of them.

        Args:
          queue: which; default, all.
          more_comes: whether to wait a moment for more of this news, which is about to come.
        """
        if queue is None:
            for slots in self._queues.values():
                slots.may_have_more = True
        elif (found := self._queues.get(queue)) is not None:
            found.may_have_more = True
        else:
            return
        self._more_comes = more_comes
        self._news.set()

    def serves(self, queue: str) -> bool:
        """Whether this worker could run a job of the queue at once."""
        slots = self._queues.get(queue)
        return slots is not None and slots.free > 0 and self._spare() > 0

    def set(self, queue: str, settings: QueueSettings) -> bool:
        """Serve a queue with other settings from now on; whether they are others.

        Attempts that run go on, also where there are more of them than may start.
        """
        slots = self._queues[queue]
        if settings == slots.settings:
            return False
        slots.free += settings.max_workers - slots.settings.max_workers
        slots.settings = settings
        for one in self._queues.values():
            self._hand_over(one)
        self.got_work(queue)
        return True

    def _spare(self) -> float:
        """Slots of the worker's that nobody has, and nothing is being claimed for."""
        if self._cap is None:
            return math.inf
        return self._cap - sum(slots.taken + slots.promised for slots in self._queues.values())

    def _rooms(self, now: float) -> list[tuple[Slots, int]]:
        """The queues for which something may be claimed now, and how much."""
        queues = self._queues.values()
        most = [slots.most(now) for slots in queues]
        if self._cap is not None:
            most = rooms(
                self._cap,
                [
                    Share(s.taken, m, s.settings.weight, s.settings.min_workers)
                    for s, m in zip(queues, most, strict=True)
                ],
            )
        return [(slots, m) for slots, m in zip(queues, most, strict=True) if m > 0]

    def slots(self) -> list[Slots]:
        """Those of each queue."""
        return list(self._queues.values())

    def _freed(self, slots: Slots) -> None:
        slots.free += 1
        self._hand_over(slots)
        if self._cap is None:
            if slots.may_have_more and slots.free > 0:
                self._news.set()
        elif any(one.may_have_more and one.free > 0 for one in self._queues.values()):
            self._news.set()

    # ---- slots of attempts that wait for callbacks (waits.Slots)

    def lend(self, attempt: Attempt) -> None:
        """See `waits.Slots`."""
        slots = self._queues[attempt.claimed.queue]
        attempt.lent = True
        slots.waiting += 1
        self.waiting += 1
        self._freed(slots)

    async def regain(self, attempt: Attempt) -> None:
        """See `waits.Slots`."""
        slots = self._queues[attempt.claimed.queue]
        if slots.free - slots.promised > 0 and not slots.returning and self._spare() > 0:
            slots.free -= 1
        else:
            if self._cap is not None:
                self._returning.append(slots)
            await slots.returning.park()  # Whoever frees a slot takes it on our behalf.
        self._returned(attempt, slots)

    def regain_now(self, attempt: Attempt) -> None:
        """See `waits.Slots`."""
        slots = self._queues[attempt.claimed.queue]
        slots.free -= 1
        self._returned(attempt, slots)

    def _returned(self, attempt: Attempt, slots: Slots) -> None:
        attempt.lent = False
        slots.waiting -= 1
        if self.waiting == self._max_waiting:
            self._news.set()
        self.waiting -= 1

    def _hand_over(self, slots: Slots) -> None:
        """Give free slots to attempts that have waited."""
        if self._cap is not None:
            self._hand_over_any()
            return
        while slots.returning and slots.free - slots.promised > 0:
            slots.free -= 1
            slots.returning.unpark()

    def _hand_over_any(self) -> None:
        """Do so where any queue's slot may be the one that was waited for, first come first."""
        passed: deque[Slots] = deque()
        while self._returning and self._spare() > 0:
            slots = self._returning.popleft()
            if not slots.returning:
                continue  # The attempt was cut while it waited.
            if slots.free - slots.promised > 0:
                slots.free -= 1
                slots.returning.unpark()
            else:
                passed.append(slots)
        self._returning.extendleft(reversed(passed))

    def _left(self, attempt: Attempt, slots: Slots) -> None:
        """An attempt has ended, with its slot or without."""
        if attempt.lent:
            self._returned(attempt, slots)
        else:
            self._freed(slots)

    # ---- claiming

    async def claim(self, attempts: trio.Nursery) -> None:
        """Claim and start jobs until cancelled; slots run in ``attempts``."""
        gather_by = math.inf
        failures = 0
        for slots in self._queues.values():
            slots.ask_at = trio.current_time() + self._pause()
        while True:
            self._news = trio.Event()
            await self._look_again()
            now = trio.current_time()
            wanted = [] if self.waiting >= self._max_waiting else self._rooms(now)
            if not wanted:
                with trio.move_on_at(self._next_look(now)):
                    await self._news.wait()
                continue
            if self._more_comes and now < gather_by:
                self._more_comes = False
                gather_by = min(gather_by, now + LINGER)
                with trio.move_on_at(gather_by):
                    await self._news.wait()
                continue
            self._more_comes = False
            gather_by = math.inf
            if all(s.free < s.settings.max_workers // 8 for s, _ in wanted):
                await trio.sleep(LINGER)
            try:
                await self._claim(attempts)
            except (Transient, LockTimeout, trio.TooSlowError) as error:
                failures += 1
                self._uncertain()
                delay = min(self._timings.poll_interval * 2 ** min(failures, 5), 10.0)
                delay *= self._random.uniform(0.5, 1.0)
                logger.warning("claiming: %s; trying again in %.2g s", said(error), delay)
                await trio.sleep(delay)
                continue
            failures = 0

    def _pause(self) -> float:
        """Seconds until a queue is asked although there was no news."""
        interval = self._timings.poll_interval * (RARER if self.hears else 1.0)
        return interval * self._random.uniform(0.75, 1.25)

    def _next_look(self, now: float) -> float:
        """When to look without news; ``now`` is when it was found that nothing is to be claimed."""
        looks = (
            min(slots.look_at, slots.ask_at, slots.refilled_at(now))
            for slots in self._queues.values()
        )
        return min(looks, default=math.inf)

    async def _look_again(self) -> None:
        """Find out which queues have something to claim by now, without news of it."""
        now = trio.current_time()
        asked = []
        for slots in self._queues.values():
            if slots.look_at <= now:
                slots.look_at = math.inf
                slots.may_have_more = slots.due = True
            if slots.ask_at <= now:
                slots.ask_at = now + self._pause()
                if not slots.may_have_more:
                    asked.append(slots)
        if not asked:
            return
        due = await self._due_in(asked)
        for slots in asked:
            slots.due = due == 0
            if slots.due:
                slots.may_have_more = True
            else:
                slots.look_at = trio.current_time() + due

    async def _claim(self, attempts: trio.Nursery) -> None:
        """Claim once."""
        worker_id = await self._worker_id()
        async with self.lock:
            # Attempts that have waited may have taken slots meanwhile, others have ended.
            room = self._rooms(trio.current_time())
            if not room:
                return
            wanted = [slots for slots, _ in room]
            wants = [slots.want(most) for slots, most in room]
            for slots, want in zip(wanted, wants, strict=True):
                # News that comes while the claim is under way must not be forgotten.
                slots.may_have_more = False
                slots.promised = want.most
            asked = trio.current_time()
            try:
                with trio.fail_after(self._timings.call_timeout):
                    jobs = await self._store.claim(worker_id, wants, self._kinds)
                took = trio.current_time() - asked
                self.claims += 1
                if self._observers is not None:
                    self._tell(worker_id, wants, jobs, took)
                got: dict[str, list[Claimed]] = {want.queue: [] for want in wants}
                for job in jobs:
                    got[job.queue].append(job)
                    self._start(Attempt(job, worker_id), attempts)
            except Fenced:
                self._fenced(worker_id)
                self.got_work()
                return
            except BaseException:
                for slots in wanted:
                    slots.may_have_more = True
                raise
            finally:
                for slots in wanted:
                    slots.promised = 0
                    self._hand_over(slots)
        for slots, want in zip(wanted, wants, strict=True):
            found = got[want.queue]
            slots.fruitless = slots.fruitless + 1 if slots.due and not found else 0
            slots.due = False
            slots.look_at = math.inf
            if slots.got(found, want, took):
                slots.may_have_more = True
            else:
                quiet = min(QUIET * 2 ** min(slots.fruitless, 10), self._pause())
                slots.ask_at = trio.current_time() + quiet

    def _tell(
        self, worker_id: int, wants: Sequence[Want], jobs: Sequence[Claimed], seconds: float
    ) -> None:
        assert self._observers is not None
        queues = tuple([want.queue for want in wants])
        claimed = events.Claimed(worker_id, queues, tuple(map(events.ref, jobs)), seconds)
        self._observers.tell(claimed)

    async def _due_in(self, asked: Sequence[Slots]) -> float:
        """Seconds until one of these queues has something to claim, as far as is known.

        If that cannot be had, 0: the claim will say what is wrong.
        """
        try:
            with trio.fail_after(self._timings.call_timeout):
                due = await self._store.next_due([s.queue for s in asked], list(self._kinds))
        except (StoreError, trio.TooSlowError):
            return 0.0
        return math.inf if due is None else due

    def _start(self, attempt: Attempt, attempts: trio.Nursery) -> None:
        slots = self._queues[attempt.claimed.queue]
        slots.free -= 1
        self._hold(attempt)
        slots.ready.append(attempt)
        self._wake(slots, attempts)

    def _wake(self, slots: Slots, attempts: trio.Nursery) -> None:
        """Wake a slot for what is ready, but only a few ahead.

        Each slot that picks up a job wakes another, so every job starts within a few turns
        of the event loop. A slot whose job has ended picks up the next without having
        slept, which saves half the cost of a short job.
        """
        if slots.spares >= min(SPARES, len(slots.ready)):
            return
        slots.spares += 1
        if slots.parked:
            slots.parked.unpark()
        else:
            slots.started += 1
            attempts.start_soon(self._slot, slots, attempts, name=f"awa:slot:{slots.queue}")

    async def _slot(self, slots: Slots, attempts: trio.Nursery) -> None:
        """Run attempts one after another, each in the context the worker started with."""
        clean = contextvars.copy_context()
        task = trio.lowlevel.current_task()
        slots.spares -= 1
        async with Enclosure() as enclosure:
            while await self._some(slots, enclosure):
                attempt = slots.ready.popleft()
                if slots.ready:
                    self._wake(slots, attempts)
                task.name = f"awa:job:{attempt.claimed.id}:{attempt.claimed.kind}"
                try:
                    await self._run(attempt, enclosure)
                finally:
                    self._left(attempt, slots)
                if not _same(contextvars.copy_context(), clean):
                    # The handler left a context variable behind: the next one must not see it.
                    slots.spares += 1
                    clean.run(attempts.start_soon, self._slot, slots, attempts)
                    return

    async def _some(self, slots: Slots, enclosure: Enclosure) -> bool:
        """Wait until there is something to run; False if the slot is to end."""
        if enclosure.turn_is_over:
            await enclosure.close()
        while not slots.ready:
            if enclosure.in_use:
                await enclosure.close()
                continue
            if self._closing:
                return False
            if slots.started - slots.waiting > slots.settings.max_workers:
                # It was one of those that stood in for slots whose attempts waited.
                slots.started -= 1
                return False
            await slots.parked.park()
            slots.spares -= 1
        return True

    def close(self) -> None:
        """Let slots end when they have nothing left to run."""
        self._closing = True
        for slots in self._queues.values():
            slots.spares += len(slots.parked)
            slots.parked.unpark_all()

    def unstarted(self) -> list[Attempt]:
        """Take the attempts that were claimed and will not start."""
        left = [attempt for slots in self._queues.values() for attempt in slots.ready]
        for slots in self._queues.values():
            slots.ready.clear()
        return left


def _same(one: contextvars.Context, other: contextvars.Context) -> bool:
    try:
        return one == other
    except BaseException:
        # The values' own code: an array of numbers, for one, cannot say whether it is equal.
        return False
