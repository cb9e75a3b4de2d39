"""Attempts that wait for callbacks in memory: one service for all of a worker's.

Nothing is done per waiter while it waits. Waits begin and end in sets, one call of the
store for all that have gathered; one notification, or one question to the store for
all of them, brings what was answered.

While an attempt waits its slot is another's, its clock stands still, and its row is
``waiting_external`` and keeps the worker. If the attempt is cut meanwhile, the row is
left as it is: the job waits on, without a handler.

Elsewhere: what a resolution does, `_core.callbacks`; who resolves, `_app.callbacks`; slots,
`dispatch`.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Protocol

import attrs
import trio

from .._core.callbacks import Registered, check_timeout, read_answer
from .._core.errors import CallbackInvalid, CallbackSuperseded
from .._core.job import JobState
from .._core.settings import Timings
from .._seam.errors import Fenced, LockTimeout, Rejected, Transient
from .._seam.protocol import Working
from .._seam.values import Wait, Waited
from .attempt import Attempt, OwnCompletion
from .job import Job
from .observing import said
from .public_errors import public_error

logger = logging.getLogger("awa_trio.worker")

#: Waits in one call of the store.
MOST_WAITS = 500

#: Random bytes of a token: whoever guesses one can resolve its callback.
TOKEN_BYTES = 24

#: Seconds before each further try to register a callback.
PAUSES = (0.1, 0.5)

#: The shortest and the longest pause before a set that the database failed is sent again.
SET_PAUSES = (0.1, 2.0)


class Slots(Protocol):
    """Who has the attempts' slots; the dispatcher."""

    def lend(self, attempt: Attempt) -> None:
        """Let another job have the slot of an attempt that waits."""
        ...

    async def regain(self, attempt: Attempt) -> None:
        """Wait for a slot for an attempt that goes on; before new jobs get one."""
        ...

    def regain_now(self, attempt: Attempt) -> None:
        """Give it one at once, though there may be none: fewer will be claimed."""
        ...


@attrs.define(eq=False)
class _Request:
    """One wait on its way to the store."""

    wait: Wait
    worker_id: int
    answered: trio.Event = attrs.field(factory=trio.Event)
    outcome: Waited | None = None
    error: Rejected | None = None
    withdrawn: bool = False
    dropped: bool = False
    """Withdrawn, or the worker over, when it may have been made already: nobody knows."""


class _Sets:
    """One kind of call, for all waits that ask for it: what gathers while one call is under
    way goes with the next."""

    def __init__(
        self,
        name: str,
        call: Callable[[int, Sequence[Wait]], Awaitable[list[Waited | None]]],
        timings: Timings,
        random: Random,
    ) -> None:
        self._name = name
        self._call = call
        self._timings = timings
        self._random = random
        self._queue: deque[_Request] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._closed = False
        self.calls = 0
        """Calls that were answered."""

    def ask(self, attempt: Attempt, token: str, seconds: float | None = None) -> _Request:
        """Ask for one; the answer will be in what is returned."""
        claimed = attempt.claimed
        wait = Wait(claimed.id, claimed.run_lease, token, seconds)
        request = _Request(wait, attempt.worker_id)
        self._queue.append(request)
        self._idle.unpark()
        if self._closed:
            self.close()
        return request

    def close(self) -> None:
        """No more calls are made: drop what has been asked for, and what will be."""
        self._closed = True
        while self._queue:
            request = self._queue.popleft()
            request.dropped = True
            request.answered.set()

    def withdraw(self, request: _Request) -> bool:
        """Take it back; False if it may have been made already."""
        request.withdrawn = True
        if request in self._queue:
            self._queue.remove(request)
            return True
        return False

    async def run(self) -> None:
        """Make the calls until cancelled."""
        while True:
            while not self._queue:
                await self._idle.park()
            requests = self._take()
            try:
                await self._send(requests)
            except BaseException:
                self._queue.extendleft(reversed(requests))
                raise

    def _take(self) -> list[_Request]:
        """The next set: of one worker, because a fenced one fails as a whole."""
        worker_id = self._queue[0].worker_id
        requests: list[_Request] = []
        while (
            self._queue and len(requests) < MOST_WAITS and self._queue[0].worker_id == worker_id
        ):
            requests.append(self._queue.popleft())
        return requests

    async def _send(self, requests: list[_Request]) -> None:
        pause = SET_PAUSES[0]
        while True:
            for request in requests:
                if request.withdrawn:
                    request.dropped = True
                    request.answered.set()
            requests[:] = [request for request in requests if not request.withdrawn]
            if not requests:
                return
            outcomes: Sequence[Waited | None] = [None] * len(requests)
            error: Rejected | None = None
            try:
                with trio.fail_after(self._timings.call_timeout):
                    outcomes = await self._call(
                        requests[0].worker_id, [request.wait for request in requests]
                    )
            except Fenced:
                pass
            except Rejected as rejected:
                if len(requests) > 1:
                    # One may be at fault, and the others are not.
                    middle = len(requests) // 2
                    await self._send(requests[:middle])
                    await self._send(requests[middle:])
                    return
                error = rejected
            except (Transient, LockTimeout, trio.TooSlowError) as failure:
                logger.warning(
                    "%s %d waits for callbacks: %s; trying again in %.2g s",
                    self._name,
                    len(requests),
                    said(failure),
                    pause,
                )
                await trio.sleep(pause * self._random.uniform(0.75, 1.25))
                pause = min(2 * pause, SET_PAUSES[1])
                continue
            self.calls += 1
            for request, outcome in zip(requests, outcomes, strict=True):
                request.outcome = outcome
                request.error = error
                request.answered.set()
            return


@attrs.define(eq=False)
class _Waiting:
    """One attempt that waits."""

    attempt: Attempt
    token: str
    woken: trio.Event = attrs.field(factory=trio.Event)
    superseded: bool = False
    became: JobState | None = None
    """The job's state, if it was settled from outside."""


class Waits:
    """The attempts of one worker that wait for callbacks.

    Args:
      store: where their rows are.
      timings: how often to ask what was answered.
      random: for jitter.
      slots: who has the attempts' slots.
      threads: limits the threads of ordinary functions; one that waits has a thread too.
      shut: whether the worker's shutdown has cut every attempt.
      changed: told when an attempt has begun to wait.
      attempt_of: finds the attempt whose handler holds a job; raises if it is over.
    """

    def __init__(
        self,
        store: Working,
        timings: Timings,
        random: Random,
        *,
        slots: Slots,
        threads: trio.CapacityLimiter,
        shut: Callable[[], bool],
        changed: Callable[[], None],
        attempt_of: Callable[[Job[Any]], Attempt],
    ) -> None:
        self._store = store
        self._timings = timings
        self._random = random
        self._slots = slots
        self._threads = threads
        self._shut = shut
        self._changed = changed
        self._attempt_of = attempt_of
        self._waits: dict[tuple[int, int], _Waiting] = {}
        self._begins = _Sets("beginning", store.begin_waits, timings, random)
        self._ends = _Sets("ending", store.end_waits, timings, random)

    def __len__(self) -> int:
        return len(self._waits)

    @property
    def calls(self) -> int:
        """Calls in which waits began or ended."""
        return self._begins.calls + self._ends.calls

    # ---- news: synchronous, from wherever it comes

    def answered(self, key: tuple[int, int], token: str | None = None) -> None:
        """A callback was answered, or so it is said: the row will tell.

        Args:
          key: the attempt that registered it.
          token: which, if that is known. An attempt may have been read with the callback that
              an earlier attempt of its job, or wait of its own, was answered by, and wait for
              another by now: woken, its job would run for a moment, in which others are told
              that it does not wait.
        """
        wait = self._waits.get(key)
        if wait is not None and token in (None, wait.token):
            wait.woken.set()

    def superseded(self, key: tuple[int, int], became: JobState | None) -> bool:
        """Someone settled a job whose handler waits; False if none does."""
        wait = self._waits.get(key)
        if wait is None or wait.attempt.claimed.state is not JobState.WAITING_EXTERNAL:
            return False
        wait.superseded = True
        wait.became = became
        wait.woken.set()
        return True

    def given_up(self, attempt: Attempt) -> None:
        """An attempt was settled without waiting for its handler. If that waits, in a shield, then
        for an answer that nobody will give it: let it go on."""
        if (wait := self._waits.get(attempt.key)) is not None:
            wait.superseded = True
            wait.woken.set()

    def only_waits(self, attempt: Attempt) -> bool:
        """Whether an attempt does nothing but wait, and has not been answered."""
        wait = self._waits.get(attempt.key)
        return wait is not None and attempt.lent and not wait.woken.is_set()

    def ended(self, attempt: Attempt) -> None:
        """An attempt has ended. If it waits, then in a thread that outlives it: let that go."""
        if (wait := self._waits.get(attempt.key)) is not None:
            wait.woken.set()

    def close(self) -> None:
        """The worker is over. Who is about to wait, or to go on, does so in a thread that outlives
        it: let that go."""
        self._begins.close()
        self._ends.close()

    # ---- the service

    async def run(self) -> None:
        """Begin and end waits, and ask what was answered, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._begins.run, name="awa:waits:begin")
            nursery.start_soon(self._ends.run, name="awa:waits:end")
            nursery.start_soon(self._ask, name="awa:waits:ask")

    async def _ask(self) -> None:
        """Find answers whose notification was lost: one question for all waits."""
        while True:
            await trio.sleep(self._timings.poll_interval * self._random.uniform(0.75, 1.25))
            for worker_id in {wait.attempt.worker_id for wait in self._waits.values()}:
                try:
                    with trio.fail_after(self._timings.call_timeout):
                        held = await self._store.answered(worker_id)
                except (Transient, LockTimeout, trio.TooSlowError) as error:
                    logger.debug("asking for answers to callbacks: %s", said(error))
                    continue
                for row in held:
                    self.answered((row.id, row.run_lease), row.token)

    # ---- registering

    async def register(self, job: Job[Any], timeout: float) -> str:
        """Let an attempt expect a callback; return its token. See `Job.register_callback`."""
        seconds = check_timeout(timeout)
        attempt = self._attempt_of(job)
        registered = _registered(attempt)
        with registered.registering():
            await self._check(attempt)
            token = secrets.token_urlsafe(TOKEN_BYTES)
            if not await self._register(attempt, token, seconds):
                raise _supersede(attempt)
            registered.token = token
        return token

    async def _register(self, attempt: Attempt, token: str, seconds: float) -> bool:
        pauses = iter(PAUSES)
        claimed = attempt.claimed
        while True:
            try:
                with trio.fail_after(self._timings.call_timeout):
                    return await self._store.register_callback(
                        attempt.worker_id, claimed.id, claimed.run_lease, token, seconds
                    )
            except Fenced:
                return False
            except (Transient, LockTimeout, trio.TooSlowError) as error:
                pause = next(pauses, None)
                if pause is None:
                    raise public_error("registering a callback", error) from error
                await trio.sleep(pause * self._random.uniform(0.75, 1.25))

    async def _check(self, attempt: Attempt) -> None:
        """Raise if an attempt is over, or about to be."""
        if attempt.own_completion is not OwnCompletion.NONE:
            raise CallbackInvalid(
                "the handler completes the job in a transaction of its own; a job that is being"
                " completed waits for nothing"
            )
        if attempt.scope is not None and attempt.scope.cancel_called:
            # In the attempt's own tasks this raises Cancelled; a thread's call has a task
            # of its own.
            await trio.lowlevel.checkpoint()
            raise CallbackSuperseded
        if attempt.ended:
            raise CallbackSuperseded
        await trio.lowlevel.checkpoint()

    # ---- waiting

    async def wait(self, job: Job[Any], token: str) -> Any:
        """Wait for the answer to a callback; return its payload. See `Job.wait_for_callback`."""
        attempt = self._attempt_of(job)
        await self._check(attempt)
        registered = _registered(attempt)
        registered.begin(token)
        wait = self._waits[attempt.key] = _Waiting(attempt, token)
        answer: bytes | None = None
        attempt.stop_clock()
        try:
            while True:
                answer = await self._wait(wait)
                if (read := read_answer(answer)) is not None:
                    return read.payload
        finally:
            del self._waits[attempt.key]
            registered.end(answered=answer is not None)
            attempt.start_clock()

    async def _wait(self, wait: _Waiting) -> bytes | None:
        """Wait once; None if it was a false alarm, and the job runs as before."""
        attempt = wait.attempt
        wait.woken = trio.Event()
        begun = self._begins.ask(attempt, wait.token)
        try:
            await begun.answered.wait()
        except trio.Cancelled:
            if not self._begins.withdraw(begun):
                await self._answer_to(begun)
                if begun.outcome is not None and begun.outcome.waits:
                    attempt.claimed.state = JobState.WAITING_EXTERNAL
                    self._lend(attempt)
                    await self._leave(wait, None)
            raise
        outcome = _outcome(begun)
        if outcome is None:
            raise _supersede(attempt)
        if not outcome.waits:
            return outcome.answer
        attempt.claimed.state = JobState.WAITING_EXTERNAL
        self._lend(attempt)
        ended: _Request | None = None
        try:
            if outcome.answer is None:
                self._changed()
                await wait.woken.wait()
            wait.woken.set()
            if attempt.ended:
                raise CallbackSuperseded(wait.became)
            await self._regain(attempt)
            if wait.superseded:
                raise _supersede(attempt, wait.became)
            ended = self._ends.ask(attempt, wait.token, attempt.seconds_left())
            await ended.answered.wait()
            outcome = _outcome(ended)
        except trio.Cancelled:
            await self._leave(wait, ended)
            raise
        finally:
            if attempt.ended:
                self._return_thread(attempt)
        if outcome is None:
            raise _supersede(attempt, wait.became)
        attempt.claimed.state = JobState.RUNNING
        return outcome.answer

    async def _leave(self, wait: _Waiting, ended: _Request | None) -> None:
        """A wait was cancelled. Unless the attempt was cut its handler goes on, and the job runs."""
        attempt = wait.attempt
        if ended is not None and not self._ends.withdraw(ended):
            await self._answer_to(ended)
        else:
            ended = None
        if ended is None or ended.dropped or not ended.answered.is_set():
            if attempt.cut_by(trio.current_time()) is not None or self._shut():
                return
            ended = self._ends.ask(attempt, wait.token, attempt.seconds_left())
            await self._answer_to(ended)
        if ended.answered.is_set() and ended.outcome is None:
            attempt.supersede()
        attempt.claimed.state = JobState.RUNNING
        if attempt.lent:
            self._return_thread(attempt)
            self._slots.regain_now(attempt)

    async def _answer_to(self, request: _Request) -> None:
        """Wait for an answer though cancelled, for as long as one call may take."""
        with trio.CancelScope(
            shield=True, deadline=trio.current_time() + self._timings.call_timeout
        ):
            await request.answered.wait()

    # ---- slots

    def _lend(self, attempt: Attempt) -> None:
        self._slots.lend(attempt)
        if attempt.thread_finished is not None and not attempt.thread_lent:
            attempt.thread_lent = True
            self._threads.total_tokens += 1

    async def _regain(self, attempt: Attempt) -> None:
        await self._slots.regain(attempt)
        self._return_thread(attempt)

    def _return_thread(self, attempt: Attempt) -> None:
        if attempt.thread_lent:
            attempt.thread_lent = False
            self._threads.total_tokens -= 1


def _registered(attempt: Attempt) -> Registered:
    if attempt.callback is None:
        attempt.callback = Registered()
    return attempt.callback


def _outcome(request: _Request) -> Waited | None:
    if request.error is not None:
        raise request.error.__cause__ or request.error
    return request.outcome


def _supersede(attempt: Attempt, became: JobState | None = None) -> CallbackSuperseded:
    """The attempt has no say any more; what to raise in its handler."""
    attempt.supersede()
    return CallbackSuperseded(became)
