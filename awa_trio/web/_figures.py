"""What the overview shows: what is so now, and how it has been for ten minutes.

The database remembers when its jobs ended, so the plots are there at the first look. Where
more jobs end than can be looked at in a moment, it tells of the last moments only; then the
plots grow while somebody looks, from what was seen at each look.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
from markupsafe import Markup

from .. import Activity, Client, History, JobDetails, JobState, Latency, QueueStatus
from .._counts import MOST_COUNTED
from .._times import measured
from ._plots import Point, bars, lines, nice_top

#: Seconds of one step of the plots, and how many there are: ten minutes.
STEP = 5.0
STEPS = 120

#: Seconds that "now" means.
NOW = 10.0

#: Queues that are shown, those with most to do first; the page of queues has all.
MOST_QUEUES = 8


class Track:
    """What has been seen so far, step by step."""

    def __init__(self) -> None:
        self._exact: dict[int, Point] = {}
        self._guessed: dict[int, Point] = {}

    def reach(self, present: int) -> float:
        """Return how many seconds back to look: to what is known, or all the way."""
        known = max(self._exact, default=present - STEPS - 1)
        return min(present - known + 1, STEPS + 1) * STEP

    def add(self, history: History, activity: Activity) -> None:
        """Take in what was seen at a look."""
        present = math.floor(history.at.timestamp() / STEP)
        for step in history.steps:
            self._exact[step.number] = Point(
                step.number,
                step.completed / STEP,
                step.failed / STEP,
                *_waits(step.pickup),
            )
        # Of a step that is not over, or that had more jobs than could be looked at.
        self._guessed[present] = Point(
            present,
            activity.completed_per_second,
            activity.failed_per_second,
            *_waits(activity.pickup),
        )
        for known in (self._exact, self._guessed):
            for number in [n for n in known if n < present - STEPS]:
                del known[number]

    def points(self, present: int) -> list[Point]:
        """Return the steps that are over, of the last ten minutes."""
        known = {**self._guessed, **self._exact}
        return [known[n] for n in range(present - STEPS, present) if n in known]


@attrs.frozen
class Seen:
    """What the overview shows."""

    completed: float
    failed: float
    window: str
    due: int
    due_is_more: bool
    oldest: float | None
    running: int
    waiting: int
    alive: int
    lost: int
    pickup: Latency | None
    most: float
    longest: float
    reach: float
    throughput: Markup
    latency: Markup
    queues: Sequence[QueueStatus]
    failures: Sequence[JobDetails]


async def look(client: Client, track: Track) -> Seen:
    """See how everything is. What it costs is bounded, whatever there is.

    Raises:
      DatabaseUnavailable: PostgreSQL could not be reached.
    """
    activity = await client.activity(NOW)
    present = math.floor(activity.at.timestamp() / STEP)
    track.add(await client.history(track.reach(present), step=STEP), activity)
    queues = await client.queues.list()
    workers = await client.workers.list()
    points = track.points(present)
    first = present - STEPS
    most = nice_top(max((p.completed + p.failed for p in points), default=0.0), 1.0)
    waits = [value for p in points for value in (p.typical, p.slow) if value is not None]
    longest = nice_top(max(waits, default=0.0), 0.01)
    due = [_number(queue.counts, JobState.AVAILABLE) for queue in queues]
    ages = [queue.oldest for queue in queues if queue.oldest is not None]
    return Seen(
        activity.completed_per_second,
        activity.failed_per_second,
        f"in the last {measured(activity.seconds)}",
        sum(due),
        any(number >= MOST_COUNTED for number in due),
        max(ages, default=None),
        sum(worker.running for worker in workers if worker.alive),
        sum(_number(queue.counts, JobState.WAITING_EXTERNAL) for queue in queues),
        sum(worker.alive for worker in workers),
        sum(worker.fenced or not worker.alive for worker in workers),
        activity.pickup,
        most,
        longest,
        STEP * STEPS,
        bars(points, first, STEPS, most),
        lines(points, first, STEPS, longest),
        sorted(queues, key=lambda queue: (-_busy(queue), queue.name))[:MOST_QUEUES],
        activity.failures[:MOST_QUEUES],
    )


def _waits(pickup: Latency | None) -> tuple[float | None, float | None]:
    return (None, None) if pickup is None else (pickup.p50, pickup.p95)


def _number(counts: Mapping[JobState, int], state: JobState) -> int:
    return counts.get(state, 0)


def _busy(queue: QueueStatus) -> int:
    return _number(queue.counts, JobState.AVAILABLE) + _number(queue.counts, JobState.RUNNING)
