"""How an attempt can end, and what becomes of its job.

Rule 1: every decision about what an ending does to a job is in this file.
Rule 2: nothing here knows about Trio, Postgres, the clock or chance, so each
decision can be checked with a literal.

An ending (`Ended`) is an attempt's own, or what others did to its job: a rescue,
an operator. `settle` turns it, and what the attempt staged, into a *settlement*:
the state the job moves to, or `Leave`, which writes nothing.

The table is ADR-046, "When staged follow-ups commit", with our deviations (ADRs
0003 and 0004): a deadline and a shutdown are settled at once. One line of it
commits follow-ups.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Protocol, TypeAlias, assert_never

import attrs

from .errors import CallbackInvalid, TerminalError
from .job import PreparedInsert
from .results import Cancel, Completed, ControlFlow, Result, RetryAfter, Snooze, WaitForCallback
from .staging import Sealed


class Attempts(Protocol):
    """What `settle` must know of a job."""

    @property
    def attempt(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...


# ---- How an attempt can end ------------------------------------------------


class Cut(enum.Enum):
    """Why an attempt was cut short. The value completes "the attempt was cut: ..."."""

    DEADLINE = "its deadline passed"
    SHUTDOWN = "the worker stopped"
    LEASE_LOST = "the worker lost its lease"
    CANCELLED = "the job was cancelled"
    SUPERSEDED = "its callback timed out, or the job was settled from outside"


@attrs.frozen
class Returned:
    """The handler returned, and so did every task of the attempt's nursery."""

    result: Result


@attrs.frozen
class Raised:
    """The attempt's nursery ended with an exception that was not a cut."""

    error: BaseException


@attrs.frozen
class Abandoned:
    """One of the attempt's scopes had been cancelled when its nursery closed."""

    by: Cut
    error: BaseException | None = None
    """What the handler's cleanup raised over it, to be recorded with the cut."""
    after: float | None = None
    """Seconds of the deadline that passed."""


class Lost(enum.Enum):
    """Why someone other than its worker settles a running attempt."""

    STALE_WORKER = "the worker stopped beating and is presumed dead"
    DEADLINE = "its deadline passed and its worker did not settle it"
    CALLBACK_TIMEOUT = "its callback timed out"
    STALE_WAITER = "its handler waited for a callback in a worker that is presumed dead"


@attrs.frozen
class Rescued:
    """The attempt was taken from a worker that is dead, or does not do its duty."""

    reason: Lost


@attrs.frozen
class Orphaned:
    """The row says this worker runs the attempt, and the worker knows of none.

    The answer to its claim was lost on the way, or its settlement was given up.
    """


@attrs.frozen
class Refused:
    """The database refuses, for good, what the attempt's settlement would write."""

    error: BaseException


@attrs.frozen
class Detached:
    """The handler waited for a callback, and its worker stopped or died; the job waits on."""

    token: str


class Resolution(enum.Enum):
    """What an external system can do with the callback that a job expects."""

    RESUME = "resume"
    COMPLETE = "complete"
    FAIL = "fail"
    RETRY = "retry"


@attrs.frozen
class Resolved:
    """An external system resolved the callback, and no handler goes on with it."""

    how: Resolution
    error: str = ""
    """What `Resolution.FAIL` records."""


@attrs.frozen
class CancelRequested:
    """Someone cancelled the job from outside."""

    reason: str


@attrs.frozen
class RetryRequested:
    """Someone asked for another round of attempts."""


Requested: TypeAlias = CancelRequested | RetryRequested | Resolved
"""What a client asks for, which can be told that it cannot be had."""

Ended: TypeAlias = (
    Returned | Raised | Abandoned | Rescued | Orphaned | Refused | Detached | Requested
)

# ---- What becomes of the job -----------------------------------------------


@attrs.frozen
class ToCompleted:
    """Done. The only settlement that carries what the attempt staged."""

    follow_ups: tuple[PreparedInsert, ...] = ()


@attrs.frozen
class ToRetryable:
    """The attempt failed and another is due."""

    seconds: float | None
    """Delay before the next attempt; None for the backoff of its number."""
    error: BaseException | str | None


@attrs.frozen
class ToScheduled:
    """Not yet; the attempt is given back."""

    seconds: float


@attrs.frozen
class ToAvailable:
    """May run at once."""

    attempt: int
    """The attempts the job has spent from now on."""


@attrs.frozen
class ToCancelled:
    """Will not run again."""

    reason: str


@attrs.frozen
class ToWaiting:
    """Parked until an external system resolves ``token``."""

    token: str


@attrs.frozen
class ToFailed:
    """Will not run again unless a person says so."""

    error: BaseException | str


@attrs.frozen
class Leave:
    """Write nothing: the job is someone else's already."""

    by: Cut


Settlement: TypeAlias = (
    ToCompleted
    | ToRetryable
    | ToScheduled
    | ToAvailable
    | ToCancelled
    | ToWaiting
    | ToFailed
    | Leave
)


#: What is recorded for a callback that nobody resolved in time.
TIMED_OUT = "callback timed out"


def settle(ended: Ended, sealed: Sealed, job: Attempts) -> Settlement:
    """Decide what an ending does to its job.

    Args:
      ended: how the attempt ended, or what was done to the job from outside.
      sealed: what the attempt staged. Kept only by a clean `Completed`.
      job: the job as claimed, or as read, for the attempts it has left.
    """
    match ended:
        case Returned(result):
            return _settle_result(result, sealed, job)
        case Raised(error):
            return _settle_error(error, sealed, job)
        case Abandoned(by, error, after):
            return _settle_cut(by, error, after, job)
        case Rescued(Lost.CALLBACK_TIMEOUT):
            return _failed_attempt(TIMED_OUT, job)
        case Rescued(reason):
            return _failed_attempt(f"rescued: {reason.value}", job)
        case Detached(token):
            return ToWaiting(token)
        case Resolved(how, error):
            return _settle_resolution(how, error, job)
        case Orphaned():
            return ToAvailable(job.attempt - 1)
        case Refused(error):
            return ToFailed(error)
        case CancelRequested(reason):
            return ToCancelled(reason)
        case RetryRequested():
            return ToAvailable(0)
        case _:
            assert_never(ended)


def _settle_resolution(how: Resolution, error: str, job: Attempts) -> Settlement:
    match how:
        case Resolution.RESUME:
            # The attempt that waits is run again: it has not had its say.
            return ToAvailable(job.attempt - 1)
        case Resolution.COMPLETE:
            return ToCompleted()
        case Resolution.FAIL:
            return ToFailed(error)
        case Resolution.RETRY:
            return ToAvailable(0)
        case _:
            assert_never(how)


def _failed_attempt(error: BaseException | str, job: Attempts) -> Settlement:
    if job.attempt < job.max_attempts:
        return ToRetryable(None, error)
    return ToFailed(error)


def _settle_result(result: Result, sealed: Sealed, job: Attempts) -> Settlement:
    match result:
        case Completed():
            if sealed.poison is not None:
                return ToFailed(sealed.poison)
            return ToCompleted(sealed.follow_ups)
        case RetryAfter():
            if job.attempt < job.max_attempts:
                return ToRetryable(result.seconds, None)
            return ToFailed(
                f"RetryAfter on the last of {job.max_attempts} attempts: max_attempts_exhausted"
            )
        case Snooze():
            return ToScheduled(result.seconds)
        case Cancel():
            return ToCancelled(result.reason)
        case WaitForCallback():
            if result.token != sealed.callback:
                return ToFailed(CallbackInvalid(_NOT_REGISTERED))
            return ToWaiting(result.token)
        case _:
            assert_never(result)


_NOT_REGISTERED = (
    "WaitForCallback needs the token of this attempt's latest job.register_callback(), not yet"
    " waited for; nobody could resolve another"
)


def _settle_error(error: BaseException, sealed: Sealed, job: Attempts) -> Settlement:
    """One rule for the trees of exceptions that nurseries raise.

    Any terminal leaf: terminal. Nothing but control flow: `Cancel`, else the
    longest delay. Anything else mixed in, or a `WaitForCallback` in a group,
    which cannot say whose the token is: an ordinary failure.
    """
    parts = list(leaves(error))
    if any(isinstance(leaf, TerminalError) for leaf in parts):
        return ToFailed(error)
    asked = [leaf for leaf in parts if isinstance(leaf, ControlFlow)]
    if len(asked) == len(parts):
        in_group = isinstance(error, BaseExceptionGroup)
        if not (in_group and any(isinstance(leaf, WaitForCallback) for leaf in asked)):
            return _settle_result(_strongest(asked), sealed, job)
    return _failed_attempt(error, job)


def _strongest(asked: list[ControlFlow]) -> RetryAfter | Snooze | Cancel | WaitForCallback:
    delays: list[RetryAfter | Snooze] = []
    for leaf in asked:
        match leaf:
            case Cancel() | WaitForCallback():
                return leaf
            case RetryAfter() | Snooze():
                delays.append(leaf)
            case _:
                raise AssertionError(f"no settlement is defined for {leaf!r}")
    return max(delays, key=lambda leaf: leaf.seconds)


def _settle_cut(
    by: Cut, error: BaseException | None, after: float | None, job: Attempts
) -> Settlement:
    match by:
        case Cut.DEADLINE:
            limit = "" if after is None else f" of {after:g} s"
            return _failed_attempt(DeadlineExceeded(f"the deadline{limit} passed", error), job)
        case Cut.SHUTDOWN:
            if job.max_attempts == 1:
                return ToFailed(Interrupted("interrupted by the worker's shutdown", error))
            return ToAvailable(job.attempt - 1)
        case Cut.LEASE_LOST | Cut.CANCELLED | Cut.SUPERSEDED:
            return Leave(by)
        case _:
            assert_never(by)


class CutShort(Exception):
    """A cut as it is recorded on the job, with what the handler's cleanup raised over it."""

    def __init__(self, message: str, cleanup: BaseException | None) -> None:
        super().__init__(message)
        self.cleanup = cleanup


class DeadlineExceeded(CutShort):
    """An attempt took longer than its deadline."""


class Interrupted(CutShort):
    """A shutdown cut an attempt that could not be given back."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a tree of exception groups, left to right, however deep it is."""
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(reversed(error.exceptions))
        else:
            yield error
