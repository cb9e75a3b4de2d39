"""The workers of a database, as a client sees them; and what they get done."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import final

import attrs

from .._core.activity import Latency
from .._core.arguments import check_seconds
from .._core.history import History
from .._core.job import JobDetails
from .._core.workers import WorkerRow
from .._counts import MOST_COUNTED
from .._seam.protocol import Store
from .._seam.values import Backlog
from .calls import public_errors

#: More are a mistake, and no page to look at.
MOST_WORKERS = 1_000

#: Jobs that ended in one state, of which figures are made.
LOOKED_AT = 5_000

#: The same, where plots are made of them: ten minutes at 33 a second.
LOOKED_BACK_AT = 20_000

#: Seconds that `Client.activity` may look back.
LONGEST = 3_600.0


@final
class Workers:
    """Look at the workers of a database: ``client.workers``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> builtins.list[WorkerRow]:
        """Read the workers there are, by ID, and those that were presumed dead within a day.

        A worker that stops in peace is gone at once.

        Raises:
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        with public_errors("listing workers"):
            return await self._store.workers(MOST_WORKERS)


@attrs.frozen
class Activity:
    """What has happened to jobs lately, and what waits; `Client.activity` reads it."""

    at: datetime
    """When this was so, by the database's clock."""
    seconds: float
    """The time that the figures are of, up to ``at``: shorter than was asked for where more jobs
    ended than are looked at."""
    completed: int
    """Jobs that completed in that time."""
    failed: int
    """Jobs that failed for good in it."""
    cancelled: int
    """Jobs that were cancelled in it."""
    pickup: Latency | None
    """Of those that completed, the seconds from when they were due to the start of the attempt
    that did it; None if there are none."""
    run: Latency | None
    """Of the same, the seconds from there to their end."""
    newest_id: int | None
    """The greatest ID of a job; None if there is none. From one look to the next it grows by the
    jobs that were enqueued, or a few more."""
    queues: tuple[Backlog, ...]
    """What is due, by queue: those in which jobs wait, and those that live workers serve."""
    failures: tuple[JobDetails, ...]
    """The last ten jobs that failed, newest first, however long ago."""

    @property
    def completed_per_second(self) -> float:
        """Jobs that completed, per second."""
        return self._rate(self.completed)

    @property
    def failed_per_second(self) -> float:
        """Jobs that failed for good, per second."""
        return self._rate(self.failed)

    @property
    def due(self) -> int:
        """Jobs that are due and not claimed, as far as they were counted."""
        return sum(backlog.due for backlog in self.queues)

    def _rate(self, count: int) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0


async def read_activity(store: Store, seconds: float) -> Activity:
    """Read what has happened lately.

    Raises:
      ValueError: the seconds are out of range.
      TypeError: they are no number.
      DatabaseUnavailable: PostgreSQL could not be reached.
    """
    check_seconds("seconds", seconds, most=LONGEST, positive=True)
    with public_errors("reading what has happened"):
        found = await store.activity(seconds, LOOKED_AT)
        backlogs: Sequence[Backlog] = ()
        if found.queues:
            backlogs = await store.backlogs(found.queues, MOST_COUNTED)
        failures: Sequence[JobDetails] = ()
        if found.failures:
            failures = await store.get(found.failures)
    order = {job_id: number for number, job_id in enumerate(found.failures)}
    return Activity(
        found.at,
        found.seconds,
        found.completed,
        found.failed,
        found.cancelled,
        found.pickup,
        found.run,
        found.newest_id,
        tuple(backlogs),
        tuple(sorted(failures, key=lambda job: order[job.id])),
    )


async def read_history(store: Store, seconds: float, step: float) -> History:
    """Read what has happened lately, step by step.

    Raises:
      ValueError: the seconds or the step are out of range.
      TypeError: they are no numbers.
      DatabaseUnavailable: PostgreSQL could not be reached.
    """
    check_seconds("seconds", seconds, most=LONGEST, positive=True)
    check_seconds("step", step, 1, LONGEST)
    with public_errors("reading what has happened"):
        return await store.history(seconds, step, LOOKED_BACK_AT)
