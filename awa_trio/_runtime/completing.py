"""Complete a job in a transaction of its handler's own.

The settlement is the one that a finalizer would apply, planned before the transaction
begins and applied on the handler's connection just before it commits. Here too the lease
guard has the last word; and what an answer that was lost would have said is found out from
the database, which knows what became of the transaction.

Source: ADR-046, "Relationship to other ADRs" (ADR-042); ADR 0017 of this project.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, Unpack, final

import attrs
import trio

from .._core.errors import DatabaseUnavailable, InvalidTransition, LeaseLost
from .._core.job import JobRow, PreparedInsert
from .._core.outcome import Returned, ToFailed
from .._core.plan import Plan, annotate
from .._core.request import EnqueueOptions
from .._core.results import Completed
from .._core.settings import Timings
from .._seam.errors import StoreError
from .._seam.protocol import Joined, Working
from .._seam.values import Enqueued, Insertion, Settled
from .attempt import Attempt, OwnCompletion, leave
from .finalize import Entry
from .job import Job, Prepare, args_of, output_of
from .ledger import Ledger
from .observing import said
from .planner import Planner
from .public_errors import public_error

logger = logging.getLogger("awa_trio.worker")

ConnectionT = TypeVar("ConnectionT")

#: Seconds in which to find out whether a COMMIT landed, also in a scope that is cancelled.
SHIELD = 3.0

#: Seconds between questions while the transaction is still under way: the first, the longest.
PAUSES = (0.05, 1.0)


@final
class CompletionTransaction(Generic[ConnectionT]):
    """The open transaction in which an attempt completes; `Job.complete_in` makes it."""

    connection: ConnectionT
    """The connection, for statements of the handler's own."""

    def __init__(
        self,
        connection: ConnectionT,
        job: JobRow,
        prepare: Prepare,
        insert: Callable[[Sequence[PreparedInsert]], Awaitable[list[Enqueued]]],
    ) -> None:
        self.connection = connection
        self._job = job
        self._prepare = prepare
        self._insert = insert
        self._inserted: list[tuple[PreparedInsert, Enqueued]] = []
        self._open = True

    async def enqueue(self, args: object, /, **options: Unpack[EnqueueOptions]) -> Enqueued:
        """Enqueue a follow-up that exists if and when this transaction commits.

        Arguments and results are those of `Client.enqueue`.

        Raises:
          InvalidRequest: the request breaks a rule; the transaction goes on.
          UnknownKind: the app does not know the kind; likewise.
          InvalidTransition: the block is over.
          psycopg.Error: the database refused it, and the transaction with it.
          DatabaseUnavailable: the connection was lost.
        """
        return (await self._enqueue([self._prepare(args, options, self._job)]))[0]

    async def enqueue_many(
        self, jobs: Iterable[object], /, **options: Unpack[EnqueueOptions]
    ) -> list[Enqueued]:
        """Enqueue many follow-ups that exist if and when this transaction commits.

        Arguments and results are those of `Client.enqueue_many`.

        Raises:
          InvalidRequest: as `enqueue`.
          UnknownKind: as `enqueue`.
          InvalidTransition: as `enqueue`.
          psycopg.Error: as `enqueue`.
          DatabaseUnavailable: as `enqueue`.
        """
        return await self._enqueue([self._prepare(args, options, self._job) for args in jobs])

    async def _enqueue(self, prepared: list[PreparedInsert]) -> list[Enqueued]:
        if not self._open:
            raise InvalidTransition("the transaction is over; enqueue inside job.complete_in")
        try:
            answers = await self._insert(prepared)
        except StoreError as error:
            raise public_error("enqueueing", error) from error
        self._inserted += zip(prepared, answers, strict=True)
        return answers


def _end(tx: CompletionTransaction[Any]) -> list[tuple[PreparedInsert, Enqueued]]:
    """Let nothing more be enqueued; return what was."""
    tx._open = False
    return tx._inserted


class Completer:
    """Completes the jobs of one worker in transactions of their handlers'.

    Args:
      store: where the rows are.
      planner: decides what a completion writes.
      ledger: holds the attempts, and is told what became of them.
      timings: how long any one step may take.
    """

    def __init__(
        self, store: Working, planner: Planner, ledger: Ledger, timings: Timings
    ) -> None:
        self._store = store
        self._planner = planner
        self._ledger = ledger
        self._timings = timings

    @asynccontextmanager
    async def complete_in(
        self, job: Job[Any], connection: Any
    ) -> AsyncIterator[CompletionTransaction[Any]]:
        """Complete a job in a transaction on a connection; see `Job.complete_in`."""
        attempt = self._ledger.attempt_of(job)
        _require_unsettled(attempt)
        if attempt.own_completion is not OwnCompletion.NONE:
            raise InvalidTransition(
                "complete_in is open already in this attempt; leave that block first"
            )
        plan = self._plan(attempt, job)
        attempt.buffer.withdraw()
        attempt.own_completion = OwnCompletion.OPEN
        try:
            claimed = attempt.claimed
            joining = self._store.join(
                connection, attempt.worker_id, claimed.id, claimed.run_lease
            )
            joined: Joined | None = None
            settled: Settled | None = None
            inserted: list[tuple[PreparedInsert, Enqueued]] = []
            try:
                async with joining as joined:
                    if not joined.running:
                        raise _stale(attempt)
                    tx = CompletionTransaction(
                        connection, claimed, self._planner.prepare, joined.enqueue
                    )
                    try:
                        yield tx
                    finally:
                        inserted = _end(tx)
                    settled = await self._settle(attempt, job, plan, joined)
            except BaseException as error:
                if joined is None or settled is None or not joined.lost:
                    if isinstance(error, StoreError):
                        raise public_error("completing in a transaction", error) from error
                    raise
                await self._find_out(attempt, joined.transaction, error)
                self._committed(attempt, plan, settled, inserted)
                if not isinstance(error, Exception):
                    raise
            else:
                # Without one the block has asked for a rollback, by psycopg.Rollback.
                if settled is not None:
                    self._committed(attempt, plan, settled, inserted)
        finally:
            if attempt.own_completion is not OwnCompletion.COMMITTED:
                attempt.own_completion = OwnCompletion.NONE
                attempt.buffer.offer()

    def _plan(self, attempt: Attempt, job: Job[Any]) -> Plan:
        """Plan the completion; no function of the application's runs once it has begun."""
        plan = self._planner.plan(Returned(Completed()), attempt.claimed, args=args_of(job))
        assert plan is not None
        if isinstance(plan.settlement, ToFailed):
            error = plan.settlement.error
            raise error if isinstance(error, BaseException) else RuntimeError(error)
        return plan

    async def _settle(
        self, attempt: Attempt, job: Job[Any], plan: Plan, joined: Joined
    ) -> Settled:
        poison = attempt.buffer.poison
        if poison is not None:
            raise poison
        _require_unsettled(attempt)
        annotate(plan.move, progress=None, output=output_of(job))
        attempt.own_completion = OwnCompletion.COMMITTING
        settled = await joined.settle(
            plan, worker=attempt.worker_id, patience=self._timings.call_timeout
        )
        if not settled.applied:
            raise _stale(attempt)
        return settled

    async def _find_out(self, attempt: Attempt, transaction: str, error: BaseException) -> None:
        """Return if the transaction has committed; else raise what is known about it.

        Whatever this says, the attempt may go on to be settled as any other: where it did
        commit, the guard of that settlement does not hold.
        """
        logger.warning(
            "%s: the connection was lost while it committed; finding out whether it did",
            attempt.describe(),
            extra=attempt.about(),
        )
        committed: bool | None = None
        with trio.move_on_after(SHIELD) as shield:
            shield.shield = True
            committed = await self._has_committed(attempt, transaction)
        if committed is None:
            with trio.move_on_after(self._timings.finalize_deadline - SHIELD):
                committed = await self._has_committed(attempt, transaction)
        if committed:
            return
        if not isinstance(error, Exception):
            raise error
        known = (
            "nothing was committed"
            if committed is False
            else "it is not known whether it did; if it did not, the job runs again"
        )
        raise DatabaseUnavailable(
            f"the connection was lost while the transaction committed: {known}"
        ) from (error.__cause__ or error)

    async def _has_committed(self, attempt: Attempt, transaction: str) -> bool:
        """Ask until it is known."""
        claimed = attempt.claimed
        pause, longest = PAUSES
        while True:
            try:
                with trio.fail_after(self._timings.call_timeout):
                    known = await self._store.has_committed(
                        claimed.id, claimed.run_lease, transaction
                    )
            except (StoreError, trio.TooSlowError) as error:
                logger.info("%s: %s", attempt.describe(), said(error), extra=attempt.about())
            else:
                if known is not None:
                    return known
            await trio.sleep(pause)
            pause = min(2 * pause, longest)

    def _committed(
        self,
        attempt: Attempt,
        plan: Plan,
        settled: Settled,
        inserted: Sequence[tuple[PreparedInsert, Enqueued]],
    ) -> None:
        """The attempt is settled: nothing that happens now changes what was written."""
        attempt.own_completion = OwnCompletion.COMMITTED
        attempt.settled = True
        attempt.seal()
        leave(attempt, None)
        plan = attrs.evolve(plan, inserts=(*plan.inserts, *(insert for insert, _ in inserted)))
        insertions = [
            Insertion(one.id) if one.inserted else Insertion(None, one.id)
            for _, one in inserted
        ]
        settled = attrs.evolve(settled, insertions=(*settled.insertions, *insertions))
        self._ledger.settled(Entry(plan, attempt.worker_id, attempt), settled)


def _require_unsettled(attempt: Attempt) -> None:
    if attempt.own_completion is OwnCompletion.COMMITTED:
        raise InvalidTransition("this attempt has completed its job already")
    if attempt.settled:
        raise LeaseLost(
            f"{attempt.describe()} is over: it was cut, and settled without waiting"
        )


def _stale(attempt: Attempt) -> LeaseLost:
    return LeaseLost(
        f"{attempt.describe()} does not run under its lease any more: nothing was committed"
    )
