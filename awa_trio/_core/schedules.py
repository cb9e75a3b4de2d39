"""What an application wants to happen at certain instants, and what a database knows of it.

Elsewhere: which instants, `cron`; from a handler or a function to a `Schedule`, `App.cron`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import attrs

from .cron import Policy, Rule, read_rule

#: Seconds after which a schedule that no worker has looked at counts as nobody's.
ORPHANED_AFTER = 300.0

#: Jobs of one fire.
MOST_JOBS = 1000

#: Reserved metadata of a job that somebody asked for.
TRIGGERED = "awa:cron_triggered"


@attrs.frozen
class Fire:
    """One fire of a schedule, as a function that makes its jobs gets it."""

    schedule: str
    """Its name."""
    at: datetime
    """The instant it is for, which may have passed some time ago: on the clock of the
    schedule's time zone; of a period, in UTC."""
    triggered: bool = False
    """Whether somebody asked for it, so that ``at`` is when they did."""


@attrs.frozen(eq=False)
class Schedule:
    """What fires when, and what it enqueues."""

    name: str
    rule: Rule
    policy: Policy
    kind: str | None
    """Of the task it is for; None if a function decides."""
    queue: str | None
    """Where its jobs go; None if that is up to the function, or their tasks."""
    make: Callable[[Fire], object] = attrs.field(repr=False)
    """Returns arguments, an `EnqueueRequest`, a list of these, or None."""
    options: Any = attrs.field(repr=False)
    """As for every enqueue, of arguments that bring none."""


@attrs.frozen
class Definition:
    """A schedule, as a database is told of it."""

    name: str
    expression: str
    timezone: str | None
    kind: str | None
    missed: str
    error: str | None = None
    """Why its last fire could not be made."""


@attrs.frozen
class ScheduleRow:
    """A schedule, as a database knows it."""

    name: str
    expression: str
    """The cron expression; of a period, ``every 3600 s``."""
    timezone: str | None
    """The zone whose clock the expression means; None of a period."""
    kind: str | None
    """The kind of the jobs, if the schedule is for a task."""
    missed: str
    """What becomes of missed fires: a `MissedFires`."""
    since: datetime
    """When it became known, or its expression changed: from when a period counts."""
    cursor: datetime
    """All instants up to here are dealt with."""
    fires: int
    """How often it has fired, a trigger not counted."""
    fired_for: datetime | None
    """The instant of its last fire."""
    fired_at: datetime | None
    """When that happened."""
    last_job_id: int | None
    """A job of its last fire; of one that was a duplicate, the job that holds its key."""
    paused_at: datetime | None
    """Since when it is paused; None if it is not."""
    seen_at: datetime
    """When a worker that has it last said so; they do every minute."""
    error: str | None
    """Why its next fire could not be made, if a worker has tried."""
    now: datetime
    """The database's time, when this was read."""

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.paused_at is not None

    @property
    def orphaned(self) -> bool:
        """Whether no worker has it: none has said so for five minutes."""
        return (self.now - self.seen_at).total_seconds() > ORPHANED_AFTER

    @property
    def next_at(self) -> datetime | None:
        """Its next instant; None while it is paused, or if this machine cannot tell.

        In the past while it is late.
        """
        rule = None if self.paused else read_rule(self.expression, self.timezone)
        return None if rule is None else rule.after(self.cursor, self.since)

    def upcoming(self, count: int = 5) -> list[datetime]:
        """Return its next instants from now on, paused or not, on the clock of its time zone.

        Args:
          count: how many; fewer if there are none in 50 years, or this machine cannot tell.
        """
        rule = read_rule(self.expression, self.timezone)
        found: list[datetime] = []
        at: datetime | None = max(self.cursor, self.now)
        while rule is not None and at is not None and len(found) < count:
            at = rule.after(at, self.since)
            if at is not None:
                found.append(at.astimezone(rule.zone or UTC))
        return found
