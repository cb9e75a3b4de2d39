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
from typing import Protocol, TypeAlias, assert_never

import attrs

from .backoff import Backoff, delay
from .dead_letters import dead_letter_reason
from .errors import FollowUpError
from .job import HELD, JobRow, JobState, PreparedInsert
from .naming import Named, name_of_function
from .outcome import (
    Detached,
    Ended,
    Leave,
    Requested,
    Rescued,
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


class Subject(Named, Protocol):
    """The job a plan is for, as it was claimed or read."""

    @property
    def run_lease(self) -> int: ...
    @property
    def state(self) -> JobState: ...


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
    """Registered follow-ups that could not be made, where the move must not wait for them."""
    subject: Subject | None = None
    """The job it is for, for those who name it."""


class Outcome(enum.Enum):
    """The outcomes follow-ups can be registered for."""

    COMPLETED = "completed"
    RETRIED = "retried"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"
    WAITING_FOR_CALLBACK = "waiting_for_callback"
    RESCUED = "rescued"

    @property
    def parameters(self) -> tuple[str, ...]:
        """What a follow-up function of this outcome is called with, in order."""
        return ("args", "job", *_ADDED.get(self, ()))


#: What each outcome adds to the arguments and the row; `_facts` has the values.
_ADDED: dict[Outcome, tuple[str, ...]] = {
    Outcome.RETRIED: ("error", "seconds"),
    Outcome.EXHAUSTED: ("error",),
    Outcome.CANCELLED: ("reason",),
    Outcome.WAITING_FOR_CALLBACK: ("token",),
    Outcome.RESCUED: ("reason",),
}


def outcome_of(ended: Ended, settlement: Settlement) -> Outcome | None:
    """Return the outcome whose follow-ups a settlement fires; None if it fires none.

    What gives an attempt back, a snooze or a hand-back, is no outcome: the job will run as
    if that attempt had not been. Nor is a retry that a person asks for.
    """
    match settlement:
        case ToCompleted():
            return Outcome.COMPLETED
        case ToRetryable():
            return Outcome.RESCUED if isinstance(ended, Rescued) else Outcome.RETRIED
        case ToFailed():
            return Outcome.EXHAUSTED
        case ToCancelled():
            return Outcome.CANCELLED
        case ToWaiting():
            # A job whose handler is gone waits on, for the callback that it waited for.
            return None if isinstance(ended, Detached) else Outcome.WAITING_FOR_CALLBACK
        case ToScheduled() | ToAvailable() | Leave():
            return None
        case _:
            assert_never(settlement)


class IfBroken(enum.Enum):
    """What becomes of a move whose registered follow-up cannot be made."""

    FAIL = "the attempt fails instead"
    REFUSE = "nothing changes, and whoever asked is told"
    LEAVE_OUT = "it is made without"


def if_broken(ended: Ended, outcome: Outcome) -> IfBroken:
    """Decide what becomes of a move whose registered follow-up cannot be made.

    A client can be told. Nobody waits for a rescue, and a failure has nowhere further to
    go: these must not be kept from happening. Every other attempt fails, because it would
    otherwise commit without the follow-up it was to have.
    """
    if isinstance(ended, Requested):
        return IfBroken.REFUSE
    if isinstance(ended, Rescued) or outcome is Outcome.EXHAUSTED:
        return IfBroken.LEAVE_OUT
    return IfBroken.FAIL


@attrs.frozen
class FollowUpSpec:
    """A registered follow-up: a function from a settled job to jobs."""

    outcome: Outcome
    function: Callable[..., object]
    """Takes what `Outcome.parameters` says."""

    @property
    def name(self) -> str:
        """How messages name the function."""
        return f"{self.function.__module__}.{name_of_function(self.function)}"


Prepare: TypeAlias = Callable[[object], PreparedInsert]
"""Turns what a follow-up function returned, args or a request, into an insert."""


def plan(
    settlement: Settlement,
    job: Subject,
    *,
    ended: Ended,
    args: Callable[[], object],
    specs: Callable[[Outcome], Sequence[FollowUpSpec]],
    prepare: Prepare,
    fraction: float,
    backoff: Backoff | None = None,
    dead_letters: bool = True,
) -> Plan | None:
    """Turn a settlement into what is written, or None if nothing is.

    Args:
      settlement: what `outcome.settle` decided.
      job: the job as claimed or read. The plan applies to no other state of it.
      ended: what it was decided from.
      args: decodes the job's arguments, for registered follow-ups; may raise.
      specs: the follow-ups registered for the job's kind.
      prepare: validates and serializes what they return; may raise.
      fraction: a random number from 0 to 1, for the backoff.
      backoff: the task's own delays.
      dead_letters: whether a job of this queue that fails becomes a dead letter.

    Raises:
      FollowUpError: a registered follow-up could not be made, and a client asked for this.
    """
    if isinstance(settlement, Leave):
        return None
    move = transition(settlement, job, fraction=fraction, backoff=backoff)
    outcome = outcome_of(ended, settlement)
    registered: list[PreparedInsert] = []
    broken: list[FollowUpError] = []
    if outcome is not None and (functions := specs(outcome)):
        policy = if_broken(ended, outcome)
        facts = (_as_left(job, settlement), *_facts(ended, settlement, move))
        registered, broken = _registered(functions, args, facts, prepare)
        if broken and policy is IfBroken.REFUSE:
            raise broken[0]
        if broken and policy is IfBroken.FAIL:
            settlement = ToFailed(_besides(broken[0], settlement))
            move = transition(settlement, job, fraction=fraction)
            facts = (job, *_facts(ended, settlement, move))
            functions = specs(Outcome.EXHAUSTED)
            registered, broken = _registered(functions, args, facts, prepare)
    if dead_letters and isinstance(settlement, ToFailed):
        move.dead_letter = dead_letter_reason(ended, settlement.error)
    staged = settlement.follow_ups if isinstance(settlement, ToCompleted) else ()
    return Plan(
        move=move,
        inserts=(*registered, *staged) if registered else staged,
        settlement=settlement,
        left_out=tuple(broken),
        subject=job,
    )


def plan_completed(settlement: ToCompleted, job: Subject) -> Plan:
    """Do the same for a completion of a job without registered follow-ups.

    Nearly every attempt ends here.
    """
    move = transition(settlement, job, fraction=0)
    return Plan(move, settlement.follow_ups, settlement, (), job)


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
            if job.state not in HELD:
                move.seconds = 0.0  # One that had started keeps its place in the order.
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


def _besides(broken: FollowUpError, settlement: Settlement) -> BaseException:
    """What to record of a follow-up that failed: with why the attempt had failed, if it had."""
    if isinstance(settlement, ToRetryable) and settlement.error is not None:
        return ExceptionGroup("and its follow-up failed", [*_parts(settlement.error), broken])
    return broken


def _as_left(job: Subject, settlement: Settlement) -> Subject:
    """The row for the functions of an outcome: a completion has removed its progress before them.

    What a failed attempt said must not decide what follows a later one (ADR-046, "Context").
    """
    if isinstance(settlement, ToCompleted) and isinstance(job, JobRow) and job.raw_progress:
        return attrs.evolve(job, raw_progress=None)
    return job


def _facts(ended: Ended, settlement: Settlement, move: Transition) -> tuple[object, ...]:
    """What the outcome of a settlement adds, as `Outcome.parameters` names it."""
    match settlement:
        case ToRetryable() if isinstance(ended, Rescued):
            return (ended.reason.name.lower(),)
        case ToRetryable():
            return (move.error or "", move.seconds)
        case ToFailed():
            return (move.error,)
        case ToCancelled(reason):
            return (reason,)
        case ToWaiting(token):
            return (token,)
        case _:
            return ()


def _registered(
    specs: Sequence[FollowUpSpec],
    args: Callable[[], object],
    facts: tuple[object, ...],
    prepare: Prepare,
) -> tuple[list[PreparedInsert], list[FollowUpError]]:
    """Call each function; what they return, and the errors of those that could not."""
    inserts: list[PreparedInsert] = []
    broken: list[FollowUpError] = []
    for spec in specs:
        try:
            inserts += _inserts(spec, args, facts, prepare)
        except FollowUpError as error:
            broken.append(error)
    return inserts, broken


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
