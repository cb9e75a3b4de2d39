"""The values that cross the seam."""

from __future__ import annotations

import attrs

from .._core.job import JobRow, JobState
from .._core.outcome import Lost


@attrs.frozen
class Enqueued:
    """What became of one enqueued job."""

    id: int
    """The new job, or the one that holds the unique key."""
    inserted: bool
    """False: a job with the same unique key exists, and nothing was inserted."""


@attrs.frozen
class Passed:
    """How far a worker has claimed in one lane."""

    kind: str
    priority: int
    raw_run_at: int
    """As `instants` counts it."""
    id: int


@attrs.frozen
class Want:
    """Room for jobs of one queue."""

    queue: str
    most: int
    """How many may be claimed."""
    deadline: float
    """Seconds an attempt may take unless its kind or job says otherwise; 0 for no limit."""
    ageing: float = 0.0
    """Seconds of waiting that count as one priority; 0: none do."""
    after: tuple[Passed, ...] = ()
    """Lanes of which jobs up to a position need not be looked at: a hint, which spares a store
    the remains of those that were claimed."""


class Claimed(JobRow):
    """A job as it was claimed: ``run_lease`` is the right to settle this attempt."""

    state: JobState = JobState.RUNNING
    """Where the job is, as far as whoever holds the attempt knows: it runs, or waits."""


@attrs.frozen
class LostJob:
    """An attempt that its worker will not settle, or a callback that nobody answered."""

    job: Claimed
    reason: Lost
    token: str | None = None
    """The callback it waits for; None if it runs."""


@attrs.frozen
class Held:
    """An attempt that the rows say a worker runs, or waits with."""

    id: int
    run_lease: int
    kind: str
    attempt: int
    max_attempts: int
    state: JobState = JobState.RUNNING
    token: str | None = None
    """The callback it has registered."""
    answered: bool = False
    """Whether that has been answered."""


@attrs.frozen
class Wait:
    """An attempt that is to wait for its callback, or to go on after it."""

    job_id: int
    run_lease: int
    token: str
    seconds: float | None = None
    """What is left of its deadline when it goes on; None for no limit."""


@attrs.frozen
class Waited:
    """What became of one `Wait`."""

    waits: bool
    """Whether the job waits now; else it runs."""
    answer: bytes | None
    """What the callback was answered; None if it has not been."""


@attrs.frozen
class Insertion:
    """What became of one insert of a plan."""

    id: int | None
    """The new job; None if it was left out."""
    holder_id: int | None = None
    """The job that holds its unique key, if that is why."""


@attrs.frozen
class Settled:
    """What became of one plan."""

    applied: bool
    """False: stale. The guard did not hold, and nothing of the plan was written."""
    insertions: tuple[Insertion, ...] = ()
    """One per insert of the plan, in order; empty if the plan was stale."""
    duplicate_of: int | None = None
    """The job that holds the unique key this one needed back: it was cancelled as its
    duplicate, or completed without the key."""


#: What becomes of nearly every plan.
APPLIED = Settled(applied=True)
STALE = Settled(applied=False)


@attrs.frozen
class Backlog:
    """What of a queue is due and not claimed."""

    queue: str
    due: int
    """How many jobs, up to a limit."""
    oldest: float | None
    """Seconds since the first of them was due; None if there is none."""


@attrs.frozen
class JobFilter:
    """Which jobs to list; None lets everything through."""

    states: tuple[JobState, ...] | None = None
    kind: str | None = None
    queue: str | None = None
    tag: str | None = None
    before_id: int | None = None
    """Only jobs with a smaller ID: the next page of a list that is newest first."""


@attrs.frozen
class DeadLetterFilter:
    """Which dead letters are meant; None lets everything through."""

    ids: tuple[int, ...] | None = None
    kind: str | None = None
    queue: str | None = None
    reason: str | None = None
    before_id: int | None = None
    """Only jobs with a smaller ID: the next page of a list that is newest first."""


@attrs.frozen
class Swept:
    """What one call of an operation on many jobs has done."""

    done: int
    """The jobs it was done to."""
    last_id: int | None
    """The job to go on after; None if there are no more."""
