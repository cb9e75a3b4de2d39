"""What one settlement writes: the move of its job, and the jobs inserted with it.

A plan is decided before its transaction opens. Registered follow-up functions run
here, so no user code runs while locks are held, a retry of the transaction reuses
the same inserts, and a function that raises is a failure of the attempt instead of
a row that is stuck.

Source: ADR-046, "How they are inserted"; ADR 0002 of this project.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import attrs

from .backoff import Backoff, delay
from .errors import FollowUpError
from .job import JobState, PreparedInsert
from .outcome import (
    Leave,
    Settlement,
    ToAvailable,
    ToCancelled,
    ToCompleted,
    ToFailed,
    ToRetryable,
    ToScheduled,
    ToWaiting,
)
from .report import report


class Subject(Protocol):
    """The job a plan is for, as it was claimed or read."""

    @property
    def id(self) -> int: ...
    @property
    def run_lease(self) -> int: ...
    @property
    def state(self) -> JobState: ...
    @property
    def kind(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...


@attrs.define
class Transition:
    """One guarded move of one job, as a store applies it.

    It applies only while the job has ``run_lease`` and is in ``from_state``.
    """

    job_id: int
    run_lease: int
    from_state: JobState
    to_state: JobState
    attempt: int
    """Attempts the job has spent from then on."""
    seconds: float | None = None
    """Delay of the next start from the moment it is applied; None leaves ``run_at`` alone."""
    error: str | None = None
    """What to add to the job's errors."""
    token: str | None = None
    """The callback the job must have for the move to apply; None for any, or none."""
    answer: bytes | None = None
    """The callback's answer, as JSON text, to be kept for the next attempt."""
    progress: bytes | None = None
    """The job's progress, as JSON text; None leaves it as it is. Completion removes it."""
    output: bytes | None = None
    """What the attempt leaves for people to read, as JSON text."""
    dead_letter: str | None = None
    """Why the job becomes a dead letter; None if it does not."""


@attrs.define
class Plan:
    """Everything one settlement writes, decided before its transaction opens.

    Borrowed by every try and drained by none, so a retry inserts the same jobs.
    """

    move: Transition
    inserts: tuple[PreparedInsert, ...] = ()
    """Registered follow-ups first, then staged ones in staging order."""
    settlement: Settlement | None = None
    """What was decided, for those who observe it."""
    left_out: tuple[FollowUpError, ...] = ()
    """Registered follow-ups of a failure that could not be made."""


class Outcome(enum.Enum):
    """The outcomes follow-ups can be registered for."""

    COMPLETED = "completed"
    EXHAUSTED = "exhausted"


@attrs.frozen
class FollowUpSpec:
    """A registered follow-up: a function from a settled job to jobs."""

    outcome: Outcome
    function: Callable[..., object]
    """Takes the job's args, its row, and for `Outcome.EXHAUSTED` the recorded error."""

    @property
    def name(self) -> str:
        """How messages name the function."""
        # A partial, or an object with __call__, has no name of its own.
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"{self.function.__module__}.{name}"


Prepare: TypeAlias = Callable[[object], PreparedInsert]
"""Turns what a follow-up function returned, args or a request, into an insert."""


def plan(
    settlement: Settlement,
    job: Subject,
    *,
    args: Callable[[], object],
    specs: Callable[[Outcome], Sequence[FollowUpSpec]],
    prepare: Prepare,
    fraction: float,
    backoff: Backoff | None = None,
) -> Plan | None:
    """Turn a settlement into what is written, or None if nothing is.

    Args:
      settlement: what `outcome.settle` decided.
      job: the job as claimed or read. The plan applies to no other state of it.
      args: decodes the job's arguments, for registered follow-ups; may raise.
      specs: the follow-ups registered for the job's kind.
      prepare: validates and serializes what they return; may raise.
      fraction: a random number from 0 to 1, for the backoff.
      backoff: the task's own delays.
    """
    if isinstance(settlement, Leave):
        return None
    registered: list[PreparedInsert] = []
    left_out: list[FollowUpError] = []
    if isinstance(settlement, ToCompleted):
        try:
            for spec in specs(Outcome.COMPLETED):
                registered += _inserts(spec, args, (job,), prepare)
        except FollowUpError as error:
            registered.clear()
            settlement = ToFailed(error)
    if isinstance(settlement, ToFailed):
        for spec in specs(Outcome.EXHAUSTED):
            try:
                registered += _inserts(spec, args, (job, report(settlement.error)), prepare)
            except FollowUpError as error:
                # A failure of the failure path must not keep the job from failing.
                left_out.append(error)
    staged = settlement.follow_ups if isinstance(settlement, ToCompleted) else ()
    return Plan(
        move=transition(settlement, job, fraction=fraction, backoff=backoff),
        inserts=(*registered, *staged) if registered else staged,
        settlement=settlement,
        left_out=tuple(left_out),
    )


def plan_completed(settlement: ToCompleted, job: Subject) -> Plan:
    """Do the same for a completion of a job without registered follow-ups.

    Nearly every attempt ends here.
    """
    return Plan(transition(settlement, job, fraction=0), settlement.follow_ups, settlement)


def transition(
    settlement: Settlement, job: Subject, *, fraction: float, backoff: Backoff | None = None
) -> Transition:
    """Return the guarded move that a settlement asks for.

    Raises:
      ValueError: the settlement writes nothing.
    """
    to = _STATES[type(settlement)]
    move = Transition(job.id, job.run_lease, job.state, to, job.attempt)
    match settlement:
        case ToCompleted():
            pass
        case ToRetryable(seconds, error):
            if seconds is None:
                try:
                    seconds = delay(job.attempt, fraction, backoff)
                except BaseException as broken:
                    # The task's own function is broken; the job still has to be settled.
                    seconds = delay(job.attempt, fraction)
                    error = BaseExceptionGroup(
                        "and its backoff function raised", [*_parts(error), broken]
                    )
            move.seconds = seconds
            move.error = None if error is None else report(error)
        case ToScheduled(seconds):
            move.seconds = seconds
            move.attempt = job.attempt - 1
        case ToAvailable(attempt):
            move.seconds = 0.0
            move.attempt = attempt
        case ToCancelled(reason):
            move.error = report(f"cancelled: {reason}")
        case ToWaiting(token):
            move.token = token
        case ToFailed(error):
            move.error = report(error)
        case Leave():
            raise ValueError("Leave writes nothing")
    return move


def annotate(move: Transition, *, progress: bytes | None, output: bytes | None) -> None:
    """Add to a move what its attempt leaves on the job.

    A completion writes the output, and removes the progress; every other move keeps the
    progress for the next attempt, and discards the output.
    """
    if move.to_state is JobState.COMPLETED:
        move.output = output
    else:
        move.progress = progress


_STATES: dict[type, JobState] = {
    ToCompleted: JobState.COMPLETED,
    ToRetryable: JobState.RETRYABLE,
    ToScheduled: JobState.SCHEDULED,
    ToAvailable: JobState.AVAILABLE,
    ToCancelled: JobState.CANCELLED,
    ToWaiting: JobState.WAITING_EXTERNAL,
    ToFailed: JobState.FAILED,
}


def _parts(error: BaseException | str | None) -> list[Exception]:
    if error is None:
        return []
    return [error] if isinstance(error, Exception) else [RuntimeError(str(error))]


def _inserts(
    spec: FollowUpSpec,
    args: Callable[[], object],
    facts: tuple[object, ...],
    prepare: Prepare,
) -> list[PreparedInsert]:
    try:
        returned = spec.function(args(), *facts)
        if returned is None:
            return []
        return [
            prepare(one) for one in (returned if isinstance(returned, list) else [returned])
        ]
    except BaseException as error:
        # SystemExit too: it goes on once the job is settled.
        raise FollowUpError(spec.name) from error
