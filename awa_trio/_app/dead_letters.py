"""The dead letters of a client: jobs that failed and that somebody should look at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NoReturn, final

from .._core.arguments import MAX_INT4, check_type, check_whole
from .._core.dead_letters import DeadLetterReason
from .._core.errors import InvalidTransition, JobNotFound, UniqueConflict
from .._core.job import JobDetails
from .._core.request import replacements
from .._seam.errors import KeyTaken
from .._seam.protocol import Store
from .._seam.values import DeadLetterFilter, Swept
from .asked import check_filter, check_job_id, check_page, word_of
from .calls import public_errors

#: Dead letters in one transaction of a bulk operation: it holds their locks, and a
#: purge of a million must not hold a million.
CHUNK = 1_000


@final
class DeadLetters:
    """Look at dead letters, retry them, purge them: ``client.dlq``.

    A job that fails becomes one, unless its queue says ``dead_letters=False``. It is the job
    itself, with everything that was enqueued and its errors; ``dead_letter`` says why in a
    word, a `DeadLetterReason`. It is kept for `Retention.dead_letters`, 30 days.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason: DeadLetterReason | str | None = None,
        before_id: int | None = None,
        limit: int = 100,
    ) -> list[JobDetails]:
        """Read a page of dead letters, those enqueued last first.

        Args:
          queue: only of this queue.
          kind: only of this kind.
          reason: only with this reason.
          before_id: only with a smaller ID: for the next page, the last one's.
          limit: how many, at most.

        Raises:
          ValueError: no such reason, a limit below 1, or a value that no job can have.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_page(limit, before_id)
        wanted = _wanted(queue, kind, reason, before_id=before_id)
        with public_errors("listing dead letters"):
            return await self._store.list_dead_letters(wanted, limit)

    async def count(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason: DeadLetterReason | str | None = None,
        most: int = 100_000,
    ) -> int:
        """Count dead letters, up to a number.

        Args:
          queue: only of this queue.
          kind: only of this kind.
          reason: only with this reason.
          most: where to stop: the answer ``most`` means at least so many.

        Raises:
          ValueError: no such reason, ``most`` below 1, or a value that no job can have.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_whole("most", most, most=MAX_INT4)
        wanted = _wanted(queue, kind, reason)
        with public_errors("counting dead letters"):
            return await self._store.count_dead_letters(wanted, most)

    async def get(self, job_id: int) -> JobDetails:
        """Read one dead letter.

        Raises:
          JobNotFound: there is no job with this ID; retention may have removed it.
          InvalidTransition: it is no dead letter.
          TypeError: the ID is no int.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        check_job_id(job_id)
        with public_errors("reading a dead letter"):
            found = await self._store.list_dead_letters(DeadLetterFilter(ids=(job_id,)), 1)
        if not found:
            await self._refuse(job_id)
        return found[0]

    async def retry(
        self,
        job_id: int,
        *,
        run_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
    ) -> None:
        """Let a dead letter run again, with all its attempts; it is a dead letter no more.

        Its errors and its lease count stay. Fires no registered follow-up.

        Args:
          job_id: the job.
          run_at: earliest start, timezone-aware. Default, at once.
          priority: 1 runs first, 4 last. Default, as it was.
          queue: where it goes. Default, where it was.

        Raises:
          InvalidRequest: ``run_at``, ``priority`` or ``queue`` breaks a rule.
          JobNotFound: as `get`.
          InvalidTransition: as `get`.
          TypeError: as `get`.
          UniqueConflict: another job holds its unique key.
          DatabaseUnavailable: as `get`.
        """
        check_job_id(job_id)
        changes = replacements(queue=queue, priority=priority, run_at=run_at)
        wanted = DeadLetterFilter(ids=(job_id,))
        try:
            with public_errors("retrying a dead letter"):
                swept = await self._store.retry_dead_letters(wanted, 1, changes, strict=True)
        except KeyTaken as error:
            raise UniqueConflict(job_id, error.holder_id) from error
        if not swept.done:
            await self._refuse(job_id)

    async def retry_many(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason: DeadLetterReason | str | None = None,
        everything: bool = False,
        run_at: datetime | None = None,
        priority: int | None = None,
        to_queue: str | None = None,
        watch: Callable[[int], object] | None = None,
    ) -> int:
        """Let dead letters run again, as `retry`; return how many do.

        The oldest first, in transactions of a thousand: one that fails or is cancelled on
        the way has done a part, and can be called again. One whose unique key another job
        holds stays a dead letter, and is not counted.

        Args:
          queue: only of this queue.
          kind: only of this kind.
          reason: only with this reason.
          everything: all of them; required where no filter is given.
          run_at: as for `retry`.
          priority: as for `retry`.
          to_queue: where they go. Default, where they were.
          watch: called after each transaction, with how many do so far.

        Raises:
          ValueError: neither a filter nor ``everything``, or both; no such reason, or a
              value that no job can have.
          TypeError: a value is of another type.
          InvalidRequest: as `retry`.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        wanted = _many("retry_many", queue, kind, reason, everything)
        changes = replacements(queue=to_queue, priority=priority, run_at=run_at)

        async def sweep(after_id: int) -> Swept:
            return await self._store.retry_dead_letters(
                wanted, CHUNK, changes, after_id=after_id
            )

        return await _in_chunks("retrying dead letters", sweep, watch)

    async def purge(self, job_id: int) -> None:
        """Remove a dead letter for good.

        Raises:
          JobNotFound: as `get`.
          InvalidTransition: as `get`.
          TypeError: as `get`.
          DatabaseUnavailable: as `get`.
        """
        check_job_id(job_id)
        with public_errors("purging a dead letter"):
            swept = await self._store.purge_dead_letters(DeadLetterFilter(ids=(job_id,)), 1)
        if not swept.done:
            await self._refuse(job_id)

    async def purge_many(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason: DeadLetterReason | str | None = None,
        everything: bool = False,
        watch: Callable[[int], object] | None = None,
    ) -> int:
        """Remove dead letters for good; return how many.

        In transactions of a thousand: one that fails or is cancelled on the way has done a
        part, and can be called again.

        Args:
          queue: only of this queue.
          kind: only of this kind.
          reason: only with this reason.
          everything: all of them; required where no filter is given.
          watch: called after each transaction, with how many are gone so far.

        Raises:
          ValueError: neither a filter nor ``everything``, or both; no such reason, or a
              value that no job can have.
          TypeError: a value is of another type.
          DatabaseUnavailable: PostgreSQL could not be reached.
        """
        wanted = _many("purge_many", queue, kind, reason, everything)

        async def sweep(after_id: int) -> Swept:
            return await self._store.purge_dead_letters(wanted, CHUNK, after_id=after_id)

        return await _in_chunks("purging dead letters", sweep, watch)

    async def _refuse(self, job_id: int) -> NoReturn:
        """Say why there is no such dead letter."""
        with public_errors("reading a job"):
            found = await self._store.get([job_id])
        if not found:
            raise JobNotFound(job_id)
        raise InvalidTransition(f"job {job_id} is {found[0].state}, and no dead letter")


def _wanted(
    queue: str | None, kind: str | None, reason: str | None, *, before_id: int | None = None
) -> DeadLetterFilter:
    check_filter(queue=queue, kind=kind)
    known = None if reason is None else word_of("reason", DeadLetterReason, reason)
    return DeadLetterFilter(None, kind, queue, known, before_id)


def _many(
    method: str, queue: str | None, kind: str | None, reason: str | None, everything: bool
) -> DeadLetterFilter:
    # What is true enough for Python, such as "no", would mean all of them.
    check_type("everything", everything, bool)
    wanted = _wanted(queue, kind, reason)
    filtered = wanted != DeadLetterFilter()
    if filtered == everything:
        raise ValueError(
            f"{method}: give a filter or everything=True, not both"
            if everything
            else f"{method}: give queue=, kind= or reason=; or everything=True for all of them"
        )
    return wanted


async def _in_chunks(
    doing: str,
    sweep: Callable[[int], Awaitable[Swept]],
    watch: Callable[[int], object] | None,
) -> int:
    done, after_id = 0, 0
    while True:
        with public_errors(doing):
            swept = await sweep(after_id)
        done += swept.done
        if watch is not None:
            watch(done)
        if swept.last_id is None:
            return done
        after_id = swept.last_id
