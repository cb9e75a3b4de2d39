"""Commit settlements: in sets, again if need be, and never one at another's expense.

A set is whatever has gathered while the set before it was under way, so idle workers
add no latency and busy ones commit hundreds at a time. The sealed follow-ups belong
to the plan, and every try borrows them: a commit whose answer was lost is tried again,
finds its guard gone, and inserts nothing.

Source: ADR-046, "How they are inserted"; ADR 0001 of this project.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Protocol

import attrs
import trio

from .._core.events import Finalized
from .._core.outcome import Lost
from .._core.plan import Plan
from .._core.settings import Timings
from .._seam.errors import Fenced, LockTimeout, StoreError, Transient
from .._seam.protocol import Working
from .._seam.values import STALE, Settled
from .attempt import Attempt
from .observing import Observers, said

logger = logging.getLogger("awa_trio.worker")

#: Plans in one transaction. More saves little, and makes each wait for the others.
MOST_PLANS = 256

#: Plans that are worth a set of their own while another is under way. A set costs about
#: as much as 40 plans do, in this process and in the server.
WORTH_A_SET = 128

#: Seconds that fewer wait for the set that is under way, at most.
GATHER = 0.005

#: Seconds before each further try after a deadlock or a lost connection.
PAUSES = (0.1, 0.5, 2.0)

#: Seconds a set waits for any one lock: a producer may hold a unique key for as long as it
#: likes, and must not hold up the plans beside the one that wants it.
SET_PATIENCE = 0.25

#: Seconds a plan waits for one when it is tried by itself, to find out whether it is the
#: one that waits.
SIFTING_PATIENCE = 0.02

#: Why settlements are given up.
_TOO_LATE = "out of time"
_NO_MORE = "the worker settles no more"

#: Seconds in which each plan that is known to wait is tried once.
ROUND = 1.0


@attrs.define(eq=False)
class Entry:
    """A plan on its way to the database."""

    plan: Plan
    worker_id: int | None
    """The worker whose attempt it settles; None if it is nobody's."""
    attempt: Attempt | None = None
    """The attempt, if this process ran it."""
    deadline: float = math.inf
    """When to give up, by Trio's clock."""
    answered: trio.Event | None = None
    """Set when it is settled or given up, for those who wait for that."""
    rescued: Lost | None = None
    """Why the attempt was taken from its worker; None if it was not."""
    untold: Collection[str] = ()
    """Queues whose other workers should hear of it later, not from its transaction."""

    @property
    def keys(self) -> Iterator[bytes]:
        """The unique keys that its inserts take. A move may take one back besides."""
        return (i.unique_key for i in self.plan.inserts if i.unique_key is not None)

    @property
    def in_order(self) -> str | None:
        """The queue in which its job made others wait for it; None if it could not."""
        if self.attempt is None or not self.attempt.claimed.apart:
            return None
        return self.attempt.claimed.queue


class Clerk(Protocol):
    """Whoever submits settlements, and is told what became of them. Nothing here may block."""

    def settled(self, entry: Entry, answer: Settled) -> None:
        """It was applied, or was stale."""
        ...

    def given_up(self, entry: Entry) -> None:
        """Nobody knows what became of it: the row decides."""
        ...

    def refused(self, entry: Entry, error: StoreError) -> Plan | None:
        """The database refuses it for good: what to record instead; None to give up."""
        ...

    def worth_telling(self, entries: Sequence[Entry]) -> bool:
        """Whether other workers should be woken for what this set makes available."""
        ...


class Finalizer:
    """Settles attempts, several sets at a time.

    Args:
      store: where.
      clerk: who is told what became of each.
      timings: how long to try.
      random: for the jitter of the pauses.
      capacity: settlements that may wait before attempts have to.
      observers: told of each transaction.
    """

    def __init__(
        self,
        store: Working,
        clerk: Clerk,
        timings: Timings,
        random: Random,
        *,
        capacity: int = 4096,
        observers: Observers | None = None,
    ) -> None:
        self._observers = observers
        self._store = store
        self._clerk = clerk
        self._timings = timings
        self._random = random
        self._capacity = capacity
        self._waiting: deque[Entry] = deque()
        self._sifting: deque[Entry] = deque()
        """Plans of a set that met a lock: each is tried by itself, once."""
        self._struck: deque[Entry] = deque()
        """Plans that met a lock by themselves: each is tried again, in turn."""
        self._contended: set[bytes] = set()
        """Unique keys that those want."""
        self._open: set[Entry] = set()
        """What has not been answered, wherever it is."""
        self._sets_flying = 0
        self._flushers = trio.lowlevel.ParkingLot()
        self._gathering = trio.lowlevel.ParkingLot()
        """Flushers that wait until more has gathered, or the set under way has landed."""
        self._sifter = trio.lowlevel.ParkingLot()
        self._retrier = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._closing = False
        self._ended = trio.Event()
        """Set once closed and done."""
        self.sets = 0
        """Transactions committed."""
        self._time = timings.finalize_deadline
        """Seconds in which a settlement must commit."""
        self.latest = math.inf
        """When all must have, by Trio's clock."""
        self._cuts: set[trio.CancelScope] = set()
        """Around each call, and each pause between two."""

    @property
    def backlog(self) -> int:
        """Settlements that have not been answered."""
        return len(self._open)

    def submit(self, entry: Entry) -> None:
        """Settle this soon. Never blocks: an attempt that is being cancelled can still submit."""
        entry.deadline = min(trio.current_time() + self._time, self.latest)
        self._open.add(entry)
        if self._closing:
            self._give_up([entry], _NO_MORE)
            return
        if self._contended and not self._contended.isdisjoint(entry.keys):
            self._strike(entry)
            return
        self._waiting.append(entry)
        if self._flushers:
            self._flushers.unpark()
        elif len(self._waiting) == WORTH_A_SET:
            self._gathering.unpark()

    async def settle(self, entries: Sequence[Entry]) -> None:
        """Settle these, and wait until each has been answered or given up."""
        answers = [_answer_to(entry) for entry in entries]
        for entry in entries:
            self.submit(entry)
        for answer in answers:
            await answer.wait()

    @property
    def full(self) -> bool:
        """Whether ``capacity`` settlements wait: attempts must not outrun them."""
        return len(self._waiting) >= self._capacity

    @property
    def more_waits(self) -> bool:
        """Whether settlements wait that will soon have been made."""
        return bool(self._waiting)

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.full:
            await self._room.park()

    def hurry(self, seconds: float) -> None:
        """From now on every settlement has ``seconds``, those under way too."""
        self._time = min(self._time, seconds)
        limit = trio.current_time() + self._time
        for entry in self._open:
            entry.deadline = min(entry.deadline, limit)
        for cut in self._cuts:
            cut.deadline = min(cut.deadline, limit)

    def end_within(self, seconds: float) -> None:
        """Let all settlements together have ``seconds`` from now on, whenever they are submitted."""
        self.hurry(seconds)
        self.latest = trio.current_time() + self._time

    async def drained(self) -> None:
        """Wait until everything submitted so far has been answered or given up."""
        # Not for what comes meanwhile: rescue and reconciliation may submit without end.
        for answer in [_answer_to(entry) for entry in self._open]:
            await answer.wait()

    def close(self) -> None:
        """Take no more, and let `run` return once what there is has been answered or given up."""
        self._closing = True
        self._end_if_done()

    async def run(self, flushers: int = 2) -> None:
        """Settle until closed and done; what is open or submitted when it has ended is given up."""
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(flushers):
                    nursery.start_soon(self._flush_sets, name="awa:finalize")
                nursery.start_soon(self._sift, name="awa:finalize:sift")
                nursery.start_soon(self._retry_struck, name="awa:finalize:struck")
                await self._ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            # Also by a bug: whoever waits for answers must get some.
            self.close()
            if self._open:
                self._give_up(list(self._open), _NO_MORE)

    def _end_if_done(self) -> None:
        # Decided once, for all tasks of `run`: one that found more to do after others had
        # left would wait for them for ever.
        if self._closing and not self.backlog:
            self._ended.set()

    async def _flush_sets(self) -> None:
        while True:
            while not self._waiting:
                await self._flushers.park()
            if self._sets_flying and len(self._waiting) < WORTH_A_SET:
                with trio.move_on_after(GATHER) as gathering:
                    await self._gathering.park()
                if not (gathering.cancelled_caught and self._waiting):
                    continue
            entries = self._take()
            self._sets_flying += 1
            await self._flush(entries)
            self._sets_flying -= 1
            self._gathering.unpark()

    def _answer(self, entry: Entry) -> None:
        self._open.discard(entry)
        if entry.answered is not None:
            entry.answered.set()
        self._end_if_done()

    def _take(self) -> list[Entry]:
        """The next set: of one worker, because a fenced one fails as a whole."""
        worker_id = self._waiting[0].worker_id
        entries: list[Entry] = []
        while (
            self._waiting
            and len(entries) < MOST_PLANS
            and self._waiting[0].worker_id == worker_id
        ):
            entries.append(self._waiting.popleft())
        if not self.full:
            self._room.unpark_all()
        return entries

    async def _sift(self) -> None:
        """Find out which plans of a set that met a lock are the ones that wait for it."""
        while True:
            while not self._sifting:
                await self._sifter.park()
            entry = self._sifting.popleft()
            if not self._contended.isdisjoint(entry.keys):
                self._strike(entry)
                continue
            await self._flush([entry], SIFTING_PATIENCE)

    async def _retry_struck(self) -> None:
        """Try those that wait again and again, each within their time."""
        while True:
            while not self._struck:
                await self._retrier.park()
            patience = max(ROUND / len(self._struck), SIFTING_PATIENCE)
            entry = self._struck.popleft()
            await self._flush([entry], patience)
            if entry not in self._struck:
                self._contended.difference_update(entry.keys)

    async def _flush(self, entries: Sequence[Entry], patience: float = SET_PATIENCE) -> None:
        """Settle a set, or find out for each of it what stands in the way."""
        pauses = iter(PAUSES)
        while True:
            entries = self._in_time(entries)
            if not entries:
                return
            failure: StoreError | None = None
            try:
                answers = await self._settle(entries, patience)
            except Fenced:
                # Presumed dead, and so not the one to say what becomes of the jobs.
                answers = [STALE] * len(entries)
            except LockTimeout:
                await self._step_aside(entries)
                return
            except (Transient, trio.TooSlowError) as error:
                failure = error if isinstance(error, Transient) else None
                pause = next(pauses, None)
                if pause is None:
                    self._give_up(entries, _TOO_LATE if failure is None else said(failure))
                    return
                logger.warning(
                    "settling %d attempts: %s; trying again in about %.2g s",
                    len(entries),
                    said(error),
                    pause,
                    extra=_about(entries),
                )
                with self._cut_at(entries[-1].deadline):
                    await trio.sleep(pause * self._random.uniform(0.75, 1.25))
                continue
            except StoreError as error:
                await self._isolate(entries, error)
                return
            self.sets += 1
            for entry, answer in zip(entries, answers, strict=True):
                self._clerk.settled(entry, answer)
                self._answer(entry)
            return

    async def _settle(self, entries: Sequence[Entry], patience: float) -> list[Settled]:
        asked = trio.current_time()
        answers: list[Settled] | None = None
        # The last of a set was submitted last, and has the longest time.
        with self._cut_at(min(asked + self._timings.call_timeout, entries[-1].deadline)):
            answers = await self._store.settle(
                [entry.plan for entry in entries],
                worker=entries[0].worker_id,
                patience=patience,
                notify=self._clerk.worth_telling(entries),
            )
        if answers is None:
            raise trio.TooSlowError
        if self._observers is not None:
            seconds = trio.current_time() - asked
            self._observers.tell(Finalized(entries[0].worker_id, len(entries), seconds))
        return answers

    @contextmanager
    def _cut_at(self, deadline: float) -> Iterator[None]:
        """Cut what a block awaits at a moment, or before if all has to be done before."""
        with trio.CancelScope(deadline=deadline) as cut:
            self._cuts.add(cut)
            try:
                yield
            finally:
                self._cuts.discard(cut)

    def _in_time(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        now = trio.current_time()
        late = [e for e in entries if e.deadline <= now]
        if late:
            self._give_up(late, _TOO_LATE)
            return [e for e in entries if e.deadline > now]
        return entries

    def _give_up(self, entries: Sequence[Entry], why: str) -> None:
        logger.error(
            "gave up settling %d attempts (%s): they are handed back, or rescued",
            len(entries),
            why,
            extra=_about(entries),
        )
        for entry in entries:
            self._clerk.given_up(entry)
            self._answer(entry)

    async def _step_aside(self, entries: Sequence[Entry]) -> None:
        """Someone holds a lock: find out who waits for it, and let the others go on."""
        if len(entries) == 1:
            self._strike(entries[0])
            return
        waiting = [entry for entry in entries if any(entry.keys)]
        free = [entry for entry in entries if not any(entry.keys)]
        if not waiting or not free:
            # A move may want its job's own key back, which cannot be seen here.
            waiting, free = list(entries), []
        self._sifting.extend(waiting)
        self._sifter.unpark()
        if free:
            await self._flush(free)

    def _strike(self, entry: Entry) -> None:
        self._struck.append(entry)
        self._contended.update(entry.keys)
        self._retrier.unpark()

    async def _isolate(self, entries: Sequence[Entry], error: StoreError) -> None:
        """Halve a set that the database refuses, until the plan at fault is alone."""
        if len(entries) > 1:
            middle = len(entries) // 2
            await self._flush(entries[:middle])
            await self._flush(entries[middle:])
            return
        [entry] = entries
        plan = self._clerk.refused(entry, error)
        if plan is None:
            self._give_up(entries, said(error))
        else:
            entry.plan = plan
            await self._flush(entries)


def _answer_to(entry: Entry) -> trio.Event:
    """What is set when an entry is answered."""
    if entry.answered is None:
        entry.answered = trio.Event()
    return entry.answered


def _about(entries: Sequence[Entry]) -> dict[str, Any]:
    """What log records about a set have beside their message."""
    return {
        "job_ids": [entry.plan.move.job_id for entry in entries],
        "worker_id": entries[0].worker_id,
    }
