"""What an observer is told: each fact as one value.

None of them holds a job's arguments, metadata, tags, progress or output. They name the
job, and say what became of it.

A store's rows are not here: a fact outlives the attempt it is about.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import attrs

from .job import JobRow, JobState, PreparedInsert
from .naming import Named, queue_of
from .outcome import (
    Abandoned,
    Lost,
    Returned,
    Settlement,
    ToCancelled,
    ToCompleted,
    ToFailed,
    ToRetryable,
    ToScheduled,
    ToWaiting,
)
from .outcome import Ended as EndedHow
from .plan import Plan
from .results import Cancel, Completed, RetryAfter, Snooze, WaitForCallback

NO_TRACE: Mapping[str, str] = {}


@attrs.frozen
class JobRef:
    """A job, and one attempt of it, by what may be logged."""

    id: int
    kind: str
    queue: str | None
    """None where only the attempt's mark was read."""
    attempt: int
    """The number of the attempt, from 1; attempts spent, where none runs."""
    max_attempts: int
    trace: Mapping[str, str] = attrs.field(default=NO_TRACE, repr=False, eq=False)
    """The W3C trace context the job was enqueued in: ``traceparent``, ``tracestate``; or empty."""


@attrs.frozen
class Insert:
    """A job that was to be inserted."""

    kind: str
    queue: str
    id: int | None
    """The new job; None if it was left out."""
    holder_id: int | None = None
    """The job that holds its unique key, if that is why."""


class Ending(enum.StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    RETRY_AFTER = "retry_after"
    SNOOZE = "snooze"
    CANCEL = "cancel"
    WAIT_FOR_CALLBACK = "wait_for_callback"
    RAISED = "raised"
    POISONED = "poisoned"
    """It returned, and a staging call of its had failed."""
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"
    CANCELLED = "cancelled"
    """Someone cancelled the job."""
    SUPERSEDED = "superseded"
    """Someone settled the job in another way."""


# ---- The events ---------------------------------------------------------------


@attrs.frozen
class Enqueued:
    """A client's call, or its transaction, committed."""

    jobs: tuple[Insert, ...]


@attrs.frozen
class Claimed:
    """A worker asked for jobs, and got as many as are here; perhaps none."""

    worker_id: int
    queues: tuple[str, ...]
    """Those it asked for."""
    jobs: tuple[JobRef, ...]
    seconds: float
    """How long the call took."""


@attrs.frozen
class Started:
    """An attempt begins."""

    job: JobRef
    worker_id: int
    delay: float
    """Seconds since the job was due, by this machine's clock against the database's."""


@attrs.frozen
class Ended:
    """An attempt has ended, or is settled without being waited for."""

    job: JobRef
    worker_id: int
    ending: Ending
    seconds: float
    """Since it began; 0 if it never did."""
    staged: tuple[str, ...]
    """The kinds of the follow-ups it staged, in order."""
    error: BaseException | None = attrs.field(default=None, repr=False)
    """What it raised. Its message may quote the job's arguments, which is why the repr of
    this event leaves it out: decide where it may go before you pass it on."""


@attrs.frozen
class Settled:
    """What became of a job is committed."""

    job: JobRef
    worker_id: int | None
    """The worker that ran the attempt; None if someone else settled it."""
    from_state: JobState
    to_state: JobState
    registered: tuple[Insert, ...] = ()
    """Follow-ups of functions such as those of `App.on_completed`, and those enqueued in a
    transaction of the handler's own."""
    staged: tuple[Insert, ...] = ()
    """Follow-ups that the attempt staged."""
    duplicate_of: int | None = None
    """The job that holds the unique key this one needed back: it was cancelled as a duplicate
    of that one, whatever ``to_state`` says; or completed without the key."""
    rescued: Lost | None = None
    """Why the attempt was taken from its worker; None if it was not."""


@attrs.frozen
class Discarded:
    """Follow-ups that an attempt staged will not exist."""

    job: JobRef
    kinds: tuple[str, ...]
    """Their kinds, in the order they were staged."""
    why: str
    """The state the job moves to; ``stale`` if it was someone else's already; ``refused`` if
    the database refused to insert them."""


@attrs.frozen
class Stale:
    """Nothing was written: the job was someone else's already."""

    job: JobRef
    worker_id: int | None


@attrs.frozen
class GivenUp:
    """Nobody knows whether a settlement was committed: the row decides, or a rescue."""

    job: JobRef
    worker_id: int | None


@attrs.frozen
class Finalized:
    """One transaction of settlements was answered."""

    worker_id: int | None
    settlements: int
    seconds: float


@attrs.frozen
class Fenced:
    """A worker lost its lease: its attempts are cut, and its jobs are someone else's."""

    worker_id: int


@attrs.frozen
class Stopped:
    """A worker has ended."""

    worker_id: int


@attrs.frozen
class Listening:
    """A worker hears of new jobs again, or not any more and has to poll."""

    connected: bool


@attrs.frozen
class QueueSample:
    """One queue, at a moment."""

    queue: str
    slots: int
    """Attempts that this worker may run at once."""
    slots_in_use: int
    due: int
    """Jobs that are due and not claimed; counted up to 10,000."""
    oldest: float | None
    """Seconds since the first of these was due; None if there is none."""


@attrs.frozen
class Sampled:
    """What a worker looks like, every `Timings.sample_interval`."""

    worker_id: int
    queues: tuple[QueueSample, ...]
    running: int
    """Attempts whose handlers have not ended."""
    overdue: int
    """Of these, those that were cut, did not end, and were settled without waiting."""
    waiting: int
    """Handlers that wait for a callback."""
    finalizing: int
    """Settlements on their way to the database."""
    listening: bool
    """Whether it hears of new jobs at this moment."""


Event: TypeAlias = (
    Enqueued
    | Claimed
    | Started
    | Ended
    | Settled
    | Discarded
    | Stale
    | GivenUp
    | Finalized
    | Fenced
    | Stopped
    | Listening
    | Sampled
)


# ---- How they are made ----------------------------------------------------------


def ref(job: Named) -> JobRef:
    """Name a job, as it was claimed or read."""
    trace = job.trace if isinstance(job, JobRow) else NO_TRACE
    return JobRef(job.id, job.kind, queue_of(job), job.attempt, job.max_attempts, trace)


def insert(job: PreparedInsert, id: int | None, holder_id: int | None = None) -> Insert:  # noqa: A002
    """Say what became of one insert."""
    return Insert(job.kind, job.queue, id, holder_id)


def staged_of(plan: Plan) -> tuple[PreparedInsert, ...]:
    """Return those of a plan's inserts that its attempt staged: the last ones."""
    return plan.settlement.follow_ups if isinstance(plan.settlement, ToCompleted) else ()


def settled(
    plan: Plan,
    answers: Iterable[tuple[int | None, int | None]],
    *,
    worker_id: int | None = None,
    duplicate_of: int | None = None,
    rescued: Lost | None = None,
) -> Settled:
    """Say what became of a plan that applied.

    Args:
      plan: the plan.
      answers: for each insert its ID, and the job that holds its key.
      worker_id: see `Settled`.
      duplicate_of: see `Settled`.
      rescued: see `Settled`.
    """
    assert plan.subject is not None, "whoever plans says for which job"
    made = tuple([insert(job, *ids) for job, ids in zip(plan.inserts, answers, strict=True)])
    first = len(made) - len(staged_of(plan))
    move = plan.move
    return Settled(
        ref(plan.subject),
        worker_id,
        move.from_state,
        move.to_state,
        made[:first],
        made[first:],
        duplicate_of,
        rescued,
    )


def ending(ended: EndedHow, settlement: Settlement | None, poisoned: bool) -> Ending:
    """Say in one word how an attempt ended.

    Args:
      ended: how it ended.
      settlement: what was decided; None for nothing. Control flow that was raised is told by it.
      poisoned: whether a staging call of its had failed.
    """
    match ended:
        case Abandoned(by):
            return Ending[by.name]
        case Returned(Completed()):
            return Ending.POISONED if poisoned else Ending.COMPLETED
        case Returned(result):
            return _RESULTS[type(result)]
    match settlement:
        case ToCompleted():
            return Ending.COMPLETED
        case ToScheduled():
            return Ending.SNOOZE
        case ToCancelled():
            return Ending.CANCEL
        case ToWaiting():
            return Ending.WAIT_FOR_CALLBACK
        case ToRetryable(error=None) | ToFailed(error=str()):
            return Ending.RETRY_AFTER
        case _:
            return Ending.RAISED


_RESULTS: dict[type, Ending] = {
    RetryAfter: Ending.RETRY_AFTER,
    Snooze: Ending.SNOOZE,
    Cancel: Ending.CANCEL,
    WaitForCallback: Ending.WAIT_FOR_CALLBACK,
}


def recorded(by: Settlement | EndedHow) -> BaseException | None:
    """Return the exception that a settlement records, or an ending has; out of groups of one."""
    error = getattr(by, "error", None)
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        # The attempt's nursery wraps what its handler raises.
        error = error.exceptions[0]
    return error if isinstance(error, BaseException) else None
