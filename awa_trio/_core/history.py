"""What has happened to jobs, step by step: what plots are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime

import attrs

from .activity import Latency


@attrs.frozen
class Step:
    """What became of jobs in one step of time."""

    number: int
    """Which: so many steps since 1970."""
    completed: int
    """Jobs that completed in it."""
    failed: int
    """Jobs that failed for good in it."""
    cancelled: int
    """Jobs that were cancelled in it."""
    pickup: Latency | None
    """Of those that completed, the seconds from when they were due to the start of the attempt
    that did it; None if there are none."""
    run: Latency | None
    """Of the same, the seconds from there to their end."""


@attrs.frozen
class History:
    """What has happened to jobs, step by step; `Client.history` reads it."""

    at: datetime
    """When this was so, by the database's clock."""
    step: float
    """Seconds of each step."""
    steps: tuple[Step, ...]
    """The steps that are over and wholly known, oldest first: each, also those in which
    nothing happened. Fewer than was asked for where more jobs ended than are looked at."""

    def begins(self, step: Step) -> datetime:
        """Return when a step began."""
        return datetime.fromtimestamp(step.number * self.step, UTC)


def history(at: datetime, since: datetime, step: float, known: Iterable[Step]) -> History:
    """Return every step that is over and wholly known.

    Args:
      at: the present.
      since: from when on all is known.
      step: seconds of each.
      known: those in which something happened, whether or not they are over.
    """
    happened = {one.number: one for one in known}
    first, last = math.ceil(since.timestamp() / step), math.floor(at.timestamp() / step)
    nothing = (0, 0, 0, None, None)
    return History(
        at,
        step,
        tuple(happened.get(n) or Step(n, *nothing) for n in range(first, last)),
    )
