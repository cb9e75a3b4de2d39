"""Fire the schedules of one application, each instant once.

Every worker that has a schedule may fire it. What makes it happen once is the database: the
statement that inserts the jobs moves the schedule's cursor, if it is where the worker saw it.
That one worker leads saves the others the attempt, and nothing depends on it: they look a
little later, and fire what is left. So neither the death of a leader nor its ignorance, in
the middle of a deploy, keeps anything from firing.

Workers sleep on Trio's clock, and look on the database's.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from random import Random
from typing import TypeVar

import trio

from .._core.cron import Due, due
from .._core.job import PreparedInsert
from .._core.registry import Registry
from .._core.report import headline, report
from .._core.schedules import Definition, Fire, Schedule, ScheduleRow
from .._core.settings import Timings
from .._seam.errors import LockTimeout, Rejected
from .._seam.protocol import WorkerStore
from .._seam.values import Enqueued
from .observing import Observers, enqueueing, said, told

logger = logging.getLogger("awa_trio.worker")

T = TypeVar("T")

#: Followed by what names the schedules: one leads for each set of them, or the leader of a
#: fleet of several applications would not know most of what it leads.
DUTY = "schedules:"

#: Seconds that a worker which does not lead leaves to the one that does, and as much again
#: at random.
FOLLOW_AFTER = 2.0

#: Seconds between one look and the next at a schedule that another fired for meanwhile.
LOOK_AGAIN = 0.05

#: Seconds until a fire that could not be made is tried again.
RETRY_AFTER = 30.0

#: Seconds until a fire is tried again whose unique key another's open transaction holds.
LOCKED_AFTER = 1.0

#: Seconds after which somebody says again that a schedule is not orphaned.
SAY_AFTER = 60.0


class Firing:
    """The schedules of one worker.

    Args:
      registry: has them.
      store: where their cursors are.
      worker_id: returns the worker's present ID; waits while it has none.
      timings: how often it looks.
      random: so that those who follow do not come all at once.
      observers: told of the jobs.
    """

    def __init__(
        self,
        registry: Registry,
        store: WorkerStore,
        worker_id: Callable[[], Awaitable[int]],
        timings: Timings,
        random: Random,
        observers: Observers | None,
    ) -> None:
        self._registry = registry
        self._store = store
        self._worker_id = worker_id
        self._timings = timings
        self._random = random
        self._observers = observers
        self._schedules = registry.schedules
        names = "\0".join(sorted(self._schedules))
        self._duty = DUTY + hashlib.sha256(names.encode()).hexdigest()[:16]
        self._begun = False
        self._leads_until = -1.0
        self._next: dict[str, tuple[datetime, datetime, datetime | None]] = {}
        """Of each schedule its cursor, since when it is, and its next instant."""
        self._not_before: dict[str, float] = {}
        """Schedules whose fires could not be made, and when to try again."""
        self._refusals: dict[str, tuple[str, int]] = {}
        """Why the last of each could not, as it is logged, and how many there had been by then."""
        self.fired = 0
        """Instants that this worker fired for."""

    async def run(self) -> None:
        """Fire until cancelled; at once done if there is nothing to fire."""
        if not self._schedules:
            return
        if not self._begun:
            await self._begin()
            self._begun = True
        while True:
            leads = await self._lead()
            wait = await self._look(leads)
            if not leads:
                wait += FOLLOW_AFTER * (1 + self._random.random())
            await trio.sleep(wait)

    async def _begin(self) -> None:
        """Let the database know of the schedules, as this program has them."""
        for row in await self._ask(self._store.schedules(list(self._schedules))):
            rule = self._schedules[row.name].rule
            if (row.expression, row.timezone) != (rule.text, rule.timezone):
                logger.info(
                    "schedule %s was %r in %s and is %r in %s: it begins anew",
                    row.name,
                    row.expression,
                    row.timezone,
                    rule.text,
                    rule.timezone,
                )
        await self._register(self._schedules.values(), anew=True)

    async def _lead(self) -> bool:
        """Take or keep the lead."""
        term = 3 * self._timings.schedule_interval
        now = trio.current_time()
        if now > self._leads_until - term / 2:
            worker_id = await self._worker_id()
            leads = await self._ask(self._store.lead(self._duty, worker_id, term))
            self._leads_until = now + term if leads else -1.0
        return self._leads_until > now

    async def _look(self, leads: bool) -> float:
        """Fire what is due; return the seconds until something will be."""
        asked_at = trio.current_time()
        rows = {
            row.name: row
            for row in await self._ask(self._store.schedules(list(self._schedules)))
        }
        # Seen by those who follow only if the leader does not have them.
        say_after = SAY_AFTER if leads else 1.5 * SAY_AFTER
        unsaid = [
            schedule
            for name, schedule in self._schedules.items()
            if name not in rows
            or (rows[name].now - rows[name].seen_at).total_seconds() >= say_after
        ]
        if unsaid:
            await self._register(unsaid, rows=rows)
        wait = self._timings.schedule_interval
        for name, row in rows.items():
            if row.paused:
                continue
            pause = self._not_before.get(name, 0.0) - trio.current_time()
            if pause <= 0:
                pause = await self._attend(row, asked_at)
            wait = min(wait, pause)
        return wait

    async def _attend(self, row: ScheduleRow, asked_at: float) -> float:
        """Fire what is due of one schedule; return the seconds until it is to be looked at."""
        then = self._after(row, row.cursor)
        if then is not None and then <= row.now:
            cursor = await self._fire_due(self._schedules[row.name], row)
            if cursor is None:
                return max(
                    self._not_before.get(row.name, 0.0) - trio.current_time(), LOOK_AGAIN
                )
            then = self._after(row, cursor)
        if then is None:
            return math.inf
        passed = trio.current_time() - asked_at
        return max((then - row.now).total_seconds() - passed, 0.001)

    def _after(self, row: ScheduleRow, cursor: datetime) -> datetime | None:
        """A schedule's next instant: computed once, since most looks find nothing new."""
        known = self._next.get(row.name)
        if known is None or known[:2] != (cursor, row.since):
            then = self._schedules[row.name].rule.after(cursor, row.since)
            known = self._next[row.name] = (cursor, row.since, then)
        return known[2]

    async def _fire_due(self, schedule: Schedule, row: ScheduleRow) -> datetime | None:
        """Fire what is due of one; return where its cursor is then, None if that is not known."""
        found = due(
            schedule.rule,
            since=row.since,
            cursor=row.cursor,
            now=row.now,
            policy=schedule.policy,
        )
        if found is None:
            return row.cursor
        try:
            if not found.instants:
                fired = await self._ask(self._store.fire(row.name, row.cursor, found.upto, []))
                if fired is None:
                    return None
                _tell_left_out(schedule, row, found)
            cursor = row.cursor
            for at in found.instants:
                if not await self._fire(schedule, row, cursor, at):
                    return None
                if cursor == row.cursor:
                    _tell_left_out(schedule, row, found)
                cursor = at
        except LockTimeout as error:
            # A producer's transaction holds a key, for as long as it likes: others go on.
            logger.debug("schedule %s waits: %s", row.name, said(error))
            self._not_before[row.name] = trio.current_time() + LOCKED_AFTER
            return None
        except Rejected as error:
            await self._refused(schedule, row, error, said(error))
            return None
        return found.upto

    async def _fire(
        self, schedule: Schedule, row: ScheduleRow, cursor: datetime, at: datetime
    ) -> bool:
        """Fire for one instant; False if somebody else has, or it could not be made."""
        local = at.astimezone(schedule.rule.zone or UTC)
        try:
            jobs = self._registry.jobs_of(schedule, Fire(schedule.name, local))
        except Exception as error:
            await self._refused(schedule, row, error, headline(error))
            return False
        answers = await self._insert(schedule.name, cursor, at, jobs)
        if answers is None:
            return False
        self.fired += 1
        self._not_before.pop(schedule.name, None)
        _, fires = self._refusals.pop(schedule.name, ("", -1))
        if row.error is not None or row.fires == fires:
            logger.info("schedule %s fires again", schedule.name)
        logger.debug(
            "schedule %s fired for %s: jobs %s",
            schedule.name,
            at.isoformat(),
            [answer.id for answer in answers if answer.inserted],
        )
        return True

    async def _insert(
        self, name: str, cursor: datetime, at: datetime, jobs: list[PreparedInsert]
    ) -> list[Enqueued] | None:
        if self._observers is None or not jobs:
            return await self._ask(self._store.fire(name, cursor, at, jobs))
        with enqueueing(self._observers, self._registry.codec, jobs) as watched:
            answers = await self._ask(self._store.fire(name, cursor, at, watched))
        if answers is not None:
            self._observers.tell(told(watched, answers))
        return answers

    async def _refused(
        self, schedule: Schedule, row: ScheduleRow, error: Exception, why: str
    ) -> None:
        """Say that a fire could not be made, where operators look; and try again later.

        As an error it is logged once, until one can be made or the reason is another: a queue may be
        drained for days, and every worker comes and tries.
        """
        self._not_before[schedule.name] = trio.current_time() + RETRY_AFTER
        text = report(error)
        refusal = (why, row.fires)
        known = row.error == text or self._refusals.get(schedule.name) == refusal
        self._refusals[schedule.name] = refusal
        logger.log(
            logging.DEBUG if known else logging.ERROR,
            "schedule %s could not be fired, and is tried again every %g s: %s",
            schedule.name,
            RETRY_AFTER,
            why,
        )
        await self._register([schedule], error=text)

    async def _register(
        self,
        schedules: Iterable[Schedule],
        *,
        anew: bool = False,
        error: str | None = None,
        rows: dict[str, ScheduleRow] | None = None,
    ) -> None:
        definitions = []
        for one in schedules:
            row = None if rows is None else rows.get(one.name)
            definitions.append(
                Definition(
                    one.name,
                    one.rule.text,
                    one.rule.timezone,
                    one.kind,
                    one.policy.missed,
                    error if row is None else row.error,
                )
            )
        await self._ask(self._store.register_schedules(definitions, anew=anew))

    async def _ask(self, answer: Awaitable[T]) -> T:
        with trio.fail_after(self._timings.call_timeout):
            return await answer


def _tell_left_out(schedule: Schedule, row: ScheduleRow, found: Due) -> None:
    """Say what nothing fires for, once the cursor is past it."""
    if found.left_out:
        logger.info(
            "schedule %s missed instants between %s and %s, for which it does not fire: %s",
            row.name,
            row.cursor.isoformat(),
            found.upto.isoformat(),
            schedule.policy.missed,
        )
