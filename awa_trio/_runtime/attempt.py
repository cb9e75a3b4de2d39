"""One attempt: a nursery inside the scope that can cut it short.

Whether its scope is cancelled, read once when the nursery closes, decides. If it had been
cancelled by then it was cut, whether its handler noticed, swallowed it or returned
anyway: discarding is always safe, committing half a handler's work is not. After
that moment a cancellation changes nothing, and the lease guard has the last word.

Source: ADR-046, "When staged follow-ups commit"; ADR 0003 of this project.
"""

from __future__ import annotations

import contextvars
import enum
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

import attrs
import trio

from .._core.callbacks import Registered
from .._core.events import Started
from .._core.naming import about, describe
from .._core.outcome import Abandoned, Cut, Ended, Raised, Returned, leaves
from .._core.plan import Plan, annotate
from .._core.report import headline
from .._core.results import (
    Cancel,
    Completed,
    Result,
    RetryAfter,
    Snooze,
    WaitForCallback,
)
from .._core.staging import Sealed, StagingBuffer
from .._seam.values import Claimed
from .enclosure import DID_NOT_RETURN, Enclosure
from .job import Job, lend_nursery, output_of, progress_of
from .mixing import in_a_sentence
from .resources import Held

logger = logging.getLogger("awa_trio.worker")

Handler = Callable[..., Awaitable[object]]
"""Takes a job; and by name, what the attempt's resources give it."""

#: A nursery absorbs any Cancelled once it is cancelled, and a handler that raises one
#: cancels it. Whatever the handler had still to do was not done.
_ABSORBED = (
    "the handler did not return: job.nursery or a resource's scope was cancelled, or it"
    " raised a trio.Cancelled of its own"
)

#: By their exact type: asking an object for its class may run its own code.
_RESULTS = frozenset({Completed, RetryAfter, Snooze, Cancel, WaitForCallback})


class OwnCompletion(enum.Enum):
    """How far an attempt is with completing its job in a transaction of its handler's."""

    NONE = "it has not begun"
    OPEN = "the transaction is open"
    COMMITTING = "the job is completed in it, and it commits"
    COMMITTED = "it has committed"


_COMPLETED = Returned(Completed())


@attrs.frozen
class Observed:
    """What observers were told of an attempt, and the context they made for it."""

    started: Started
    at: float
    """By Trio's clock."""
    context: contextvars.Context


class Attempt:
    """One run of a handler, from claim to settlement.

    Args:
      claimed: the job, and the lease under which it may be settled.
      worker_id: the worker it was claimed for; a worker that was fenced has another.
    """

    __slots__ = (
        "_cut_at",
        "_cut_by",
        "_left",
        "buffer",
        "callback",
        "claimed",
        "ended",
        "error",
        "job",
        "lent",
        "observed",
        "own_completion",
        "scope",
        "settled",
        "thread_finished",
        "thread_lent",
        "worker_id",
    )

    def __init__(self, claimed: Claimed, worker_id: int) -> None:
        self.claimed = claimed
        self.worker_id = worker_id
        self.buffer = StagingBuffer()
        self.job: Job[Any] | None = None
        """What its handler holds; None until it runs."""
        self.own_completion = OwnCompletion.NONE
        self.scope: trio.CancelScope | None = None
        """What can cut it; None until it runs."""
        self.ended = False
        """Whether the handler and every task of its nursery have finished, and all that was
        held around it is closed."""
        self.settled = False
        """Whether its settlement has been decided: nothing that happens now changes it."""
        self.thread_finished: trio.Event | None = None
        """Set when the handler's thread ends, which may be long after the attempt; None
        if it has none."""
        self.error: BaseException | None = None
        """What came out of its nursery."""
        self.callback: Registered | None = None
        """The callback it has registered; None if it never did."""
        self.lent = False
        """Whether it waits for a callback, and others may have its slot."""
        self.thread_lent = False
        """Whether others may have its thread's place too."""
        self._left = math.inf
        self.observed: Observed | None = None
        """What observers were told of it, if there are any and it began."""
        self._cut_by: Cut | None = None
        self._cut_at = math.inf

    @property
    def key(self) -> tuple[int, int]:
        """What identifies the attempt: its job and its lease."""
        return (self.claimed.id, self.claimed.run_lease)

    def cut(self, by: Cut) -> None:
        """Cancel the handler. The first reason stands; after the end it changes nothing."""
        if self._cut_by is None and not self.ended:
            self._cut_by = by
            self._cut_at = trio.current_time()
            if self.scope is not None:
                self.scope.cancel(reason=f"awa_trio: {by.value}")

    def supersede(self) -> None:
        """Others have settled the job, and the handler is being told: what it does counts for nothing."""
        if self._cut_by is None and not self.ended:
            self._cut_by = Cut.SUPERSEDED
            self._cut_at = trio.current_time()

    def stop_clock(self) -> None:
        """Let no time of the deadline pass from now on."""
        assert self.scope is not None
        self._left = self.scope.deadline - trio.current_time()
        self.scope.deadline = math.inf

    def start_clock(self) -> None:
        """Let it pass again, with what was left."""
        assert self.scope is not None
        self.scope.deadline = trio.current_time() + self._left

    def seconds_left(self) -> float | None:
        """What is left of the deadline while the clock is stopped; None for no limit."""
        return self._left if self._left < math.inf else None

    def cut_since(self) -> float:
        """When it was cut, by Trio's clock: infinite if it was not, or its deadline."""
        return self._cut_at if self.scope is None else min(self._cut_at, self.scope.deadline)

    def cut_by(self, now: float) -> Cut | None:
        """Why it is cut at a moment, if it is.

        The same as the scope's ``cancel_called``, which nobody but `cut` and the deadline
        can bring about, and cheaper to ask. Like that it notices a deadline that has
        passed in a handler that never reached a checkpoint.
        """
        if self._cut_by is None and self.scope is not None and self.scope.deadline <= now:
            return Cut.DEADLINE
        return self._cut_by

    async def run(
        self, handler: Handler, job: Job[Any], enclosure: Enclosure, held: Held | None = None
    ) -> Ended:
        """Run the handler to its end, with what is held around it; decide nothing.

        Never raises: whatever happened is in what it returns. A cancellation from
        outside counts as the worker's shutdown, and strikes again at the caller's next
        checkpoint.

        Args:
          handler: what to run.
          job: what it is called with.
          enclosure: what to run it in; see there for what the caller owes it.
          held: what to hold around the nursery, inside what cuts it.
        """
        deadline = self.claimed.deadline
        now = trio.current_time()
        if held is not None:
            await enclosure.close()  # No nursery but its own is around what is held.
        self.scope = scope = enclosure.open(now, now + deadline if deadline else math.inf)
        if self._cut_by is not None:
            scope.cancel(reason=f"awa_trio: {self._cut_by.value}")
        result: object = DID_NOT_RETURN
        error: BaseException | None = None
        try:
            if held is None:
                result = await enclosure.run(handler, job, keep=True)
            else:
                async with held as given:
                    result = await enclosure.run(partial(handler, **given), job, keep=False)
        except BaseException as raised:
            # What a function in a thread says of asyncio is another matter.
            error = in_a_sentence(raised) if self.thread_finished is None else raised
        now = trio.current_time()
        cut = self.cut_by(now)
        if cut is None and trio.current_effective_deadline() <= now:
            # A scope outside the attempt: it cannot say whom it cut.
            cut = Cut.SHUTDOWN
        self.ended = True
        if cut is not None or not enclosure.kept:
            await enclosure.close()
        if error is not None:
            self.error = error
            if cut is not None:
                error = _besides_cancellation(error)
        if cut is not None:
            return Abandoned(cut, error, deadline if cut is Cut.DEADLINE else None)
        if error is not None:
            return Raised(error)
        if result is None:
            return _COMPLETED
        if result is DID_NOT_RETURN:
            return Raised(RuntimeError(_ABSORBED))
        return Returned(
            cast("Result", result) if type(result) in _RESULTS else self._unrecognised(result)
        )

    def _unrecognised(self, result: object) -> Completed:
        kind = self.claimed.kind
        if kind not in _warned:
            _warned.add(kind)
            logger.warning(
                "a handler of kind %s returned a %s, which means completed; return None or one of"
                " awa.Completed, RetryAfter, Snooze, Cancel, WaitForCallback",
                kind,
                type(result).__name__,
                extra=self.about(),
            )
        return Completed()

    async def in_thread(
        self,
        function: Callable[..., object],
        job: Job[Any],
        limiter: trio.CapacityLimiter,
        given: Mapping[str, Any],
    ) -> object:
        """Run an ordinary function as the handler.

        A cut attempt ends without its thread, which cannot be interrupted: that may still
        call `trio.from_thread.check_cancelled`, but can stage nothing any more.
        """
        lend_nursery(job, None)  # of no use, and unsafe, in a thread
        token = trio.lowlevel.current_trio_token()
        finished = trio.Event()
        # Taken by whichever comes first: the thread, or the end of the attempt. A thread
        # that begins after the cut would run a job whose slot is free again.
        turn = threading.Lock()

        def run() -> object:
            self.thread_finished = finished
            try:
                return function(job, **given) if turn.acquire(blocking=False) else None
            finally:
                try:
                    token.run_sync_soon(finished.set)
                except trio.RunFinishedError:
                    pass

        try:
            return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
        finally:
            turn.acquire(blocking=False)

    def seal(self) -> Sealed:
        """Close the staging buffer; the same contents at every call."""
        sealed = self.buffer.seal()
        if self.callback is None:
            return sealed
        return attrs.evolve(sealed, callback=self.callback.token)

    def describe(self) -> str:
        """How log messages name the attempt: never by its arguments."""
        return describe(self.claimed, self.worker_id)

    def about(self) -> dict[str, Any]:
        """What log records have beside their message."""
        return about(self.claimed, self.worker_id)


#: Kinds whose unrecognised results have been mentioned once.
_warned: set[str] = set()


def _besides_cancellation(error: BaseException) -> BaseException | None:
    """What an attempt's cleanup raised besides the cancellation itself."""
    parts = list(leaves(error))
    rest = [part for part in parts if not isinstance(part, trio.Cancelled)]
    if len(rest) == len(parts):
        return error
    if len(rest) <= 1:
        return rest[0] if rest else None
    # Not its own split(), which is whatever the class of the group makes of it.
    return BaseExceptionGroup("besides the cancellation", rest)


def log_end(attempt: Attempt, ended: Ended) -> None:
    """Say how an attempt ended, where that is worth saying."""
    match ended:
        case Raised(error):
            raised = headline(error)
            logger.info("%s raised %s", attempt.describe(), raised, extra=attempt.about())
        case Abandoned(by):
            logger.info("%s was cut: %s", attempt.describe(), by.value, extra=attempt.about())
        case _:
            pass


def log_end_after_completion(attempt: Attempt, ended: Ended) -> None:
    """Say how an attempt ended that had completed its job before."""
    match ended:
        case Returned(Completed()):
            pass
        case Returned(result):
            logger.warning(
                "%s returned %s after it had completed the job, which stays completed",
                attempt.describe(),
                type(result).__name__,
                extra=attempt.about(),
            )
        case Raised(error):
            logger.error(
                "%s raised %s after it had completed the job, which stays completed",
                attempt.describe(),
                headline(error),
                extra=attempt.about(),
            )
        case Abandoned(by):
            logger.info(
                "%s was cut after it had completed the job, which stays completed: %s",
                attempt.describe(),
                by.value,
                extra=attempt.about(),
            )
        case _:
            raise AssertionError(f"no attempt ends with {ended!r}")


def leave(attempt: Attempt, plan: Plan | None) -> None:
    """Let a plan write what the attempt said of its progress, or its output."""
    job = attempt.job
    if job is None:
        return
    progress, output = progress_of(job), output_of(job)
    if progress is None and output is None:
        return  # as nearly all do
    text = None if progress is None else progress.seal()
    if plan is not None:
        annotate(plan.move, progress=text, output=output)
