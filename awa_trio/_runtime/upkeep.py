"""What one worker does for all of them: rescue attempts, remove old jobs.

One leads at a time, by a row in the database. The others rescue too, though less often
and only kinds they know, so that a leader that knows fewer kinds than they do leaves no
registered follow-up out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence

import trio

from .._core.callbacks import guard
from .._core.naming import about, describe
from .._core.outcome import Detached, Lost, Rescued
from .._core.plan import Plan
from .._core.settings import Retention, Timings
from .._seam.protocol import WorkerStore
from .._seam.values import LostJob
from .finalize import Entry, Finalizer
from .planner import Planner

logger = logging.getLogger("awa_trio.worker")

DUTY = "upkeep"

#: Jobs in one round.
MOST_JOBS = 500

#: Seconds for which attempts of a kind the leader does not know are left to those that do.
STRANGERS_AFTER = 60.0

#: A worker that does not lead looks for lost attempts once in so many rounds.
FOLLOWER_EVERY = 3


class Upkeep:
    """The rounds of one worker.

    Args:
      store: where.
      finalizer: settles what is rescued.
      planner: decides what becomes of it.
      kinds: the kinds whose follow-ups this worker knows.
      worker_id: returns the worker's present ID; waits while it has none.
      timings: how often.
      retention: what is old.
    """

    def __init__(
        self,
        store: WorkerStore,
        finalizer: Finalizer,
        planner: Planner,
        kinds: Sequence[str],
        worker_id: Callable[[], Awaitable[int]],
        timings: Timings,
        retention: Retention,
    ) -> None:
        self._store = store
        self._finalizer = finalizer
        self._planner = planner
        self._kinds = kinds
        self._worker_id = worker_id
        self._timings = timings
        self._retention = retention
        self.leads = False
        """Whether this worker has the duty."""
        self.rescued = 0
        """Attempts this worker took from others."""

    async def run(self) -> None:
        """Do the rounds until cancelled."""
        # After the first claim, whose connection it can use.
        await trio.sleep(self._timings.rescue_interval / 5)
        rounds = 0
        prune_at = trio.current_time()
        while True:
            worker_id = await self._worker_id()
            if rounds % 2 == 0 or not self.leads:
                with trio.fail_after(self._timings.call_timeout):
                    self.leads = await self._store.lead(
                        DUTY, worker_id, 4 * self._timings.rescue_interval
                    )
            if self.leads or rounds % FOLLOWER_EVERY == 0:
                await self.rescue()
            if self.leads and trio.current_time() >= prune_at:
                prune_at = trio.current_time() + self._timings.prune_interval
                await self._prune()
            rounds += 1
            await trio.sleep(self._timings.rescue_interval)

    async def _prune(self) -> None:
        removed = MOST_JOBS
        while removed == MOST_JOBS:
            with trio.fail_after(self._timings.call_timeout):
                removed = await self._store.prune(self._retention, MOST_JOBS)
            if removed:
                logger.debug("removed %d jobs whose retention has passed", removed)

    async def rescue(self) -> None:
        """Take over what is lost: attempts of dead workers, overdue ones, callbacks not answered."""
        seen: set[int] = set()
        more = True
        while more:
            with trio.fail_after(self._timings.call_timeout):
                lost = await self._store.rescue(
                    MOST_JOBS,
                    deadline_slack=3 * self._timings.abandon_after,
                    kinds=self._kinds,
                    strangers_after=STRANGERS_AFTER if self.leads else math.inf,
                )
            entries = []
            for found in lost:
                self._say(found)
                plan = self._plan(found)
                if plan is not None:
                    entries.append(Entry(plan, worker_id=None, rescued=found.reason))
            self.rescued += sum(found.token is None for found in lost)
            await self._finalizer.settle(entries)
            # One that is found again could not be settled: it has time until the next round.
            ids = {found.job.id for found in lost}
            more = len(lost) == MOST_JOBS and seen.isdisjoint(ids)
            seen |= ids

    def _plan(self, found: LostJob) -> Plan | None:
        if found.token is None:
            return self._planner.plan(Rescued(found.reason), found.job)
        if found.reason is Lost.STALE_WAITER:
            return self._planner.plan(Detached(found.token), found.job)
        plan = self._planner.plan(Rescued(found.reason), found.job)
        return None if plan is None else guard(plan, found.token)

    def _say(self, found: LostJob) -> None:
        job = found.job
        known = job.kind in self._kinds or found.reason is Lost.STALE_WAITER
        logger.warning(
            "rescuing %s: %s%s",
            describe(job),
            found.reason.value,
            "" if known else "; no worker that knows its kind did, so it gets no follow-ups",
            extra=about(job),
        )
