"""Write what attempts say about their progress: all that is new, with one call at every beat.

From the worker's event loop, not the heartbeat's thread: a beat must not wait for this, nor
does a handler that blocks the loop have anything to say. One call is under way at a
time, so that an older report never overwrites a newer one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import trio

from .._core.errors import LeaseLost
from .._core.settings import Timings
from .._seam.errors import Fenced, StoreError
from .._seam.protocol import Working
from .attempt import Attempt, OwnCompletion
from .job import Job, progress_of
from .ledger import Ledger
from .observing import said
from .public_errors import public_error

logger = logging.getLogger("awa_trio.worker")

#: Bytes of reports in one call, so that thousands of large ones do not exceed what a
#: statement may hold.
MOST_BYTES = 8 * 1024 * 1024


class ProgressWriter:
    """Writes the progress of one worker's attempts.

    Args:
      store: where.
      ledger: holds the attempts.
      timings: how often.
    """

    def __init__(self, store: Working, ledger: Ledger, timings: Timings) -> None:
        self._store = store
        self._ledger = ledger
        self._timings = timings
        self._turn = trio.Lock()

    async def run(self) -> None:
        """Write what is new at every beat, until cancelled."""
        while True:
            await trio.sleep(self._timings.heartbeat)
            # The row of an attempt that is about to complete in a transaction of its
            # handler's is left alone: a stricter isolation level would not forgive it.
            new = [
                attempt
                for attempt in self._ledger.running()
                if attempt.own_completion is OwnCompletion.NONE and _has_news(attempt)
            ]
            for worker_id in {attempt.worker_id for attempt in new}:
                mine = [attempt for attempt in new if attempt.worker_id == worker_id]
                try:
                    await self._write(worker_id, mine)
                except (StoreError, trio.TooSlowError) as error:
                    logger.info(
                        "the progress of %d attempts was not written (%s): the next beat tries again",
                        len(mine),
                        said(error),
                        extra={"worker_id": worker_id},
                    )

    async def flush(self, job: Job[Any]) -> None:
        """Write one attempt's progress now; see `Job.flush_progress`."""
        attempt = self._ledger.attempt_of(job)
        if attempt.settled:
            raise LeaseLost(f"{attempt.describe()} is over: its progress was not written")
        if not _has_news(attempt):
            await trio.lowlevel.checkpoint()
            return
        try:
            stale = await self._write(attempt.worker_id, [attempt])
        except (StoreError, trio.TooSlowError) as error:
            raise public_error("writing progress", error) from error
        if stale:
            raise LeaseLost(
                f"{attempt.describe()} does not run under its lease any more:"
                " its progress was not written"
            )

    async def _write(self, worker_id: int, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Write the progress of attempts of one worker; return those it is not running."""
        stale: list[Attempt] = []
        async with self._turn:
            for chunk in _chunks(attempts):
                reports = [
                    (attempt.claimed.id, attempt.claimed.run_lease, text)
                    for attempt, _, text in chunk
                ]
                try:
                    with trio.fail_after(self._timings.call_timeout):
                        kept = await self._store.record_progress(worker_id, reports)
                except Fenced:
                    kept = [False] * len(chunk)
                for (attempt, changes, _), is_kept in zip(chunk, kept, strict=True):
                    if not is_kept:
                        stale.append(attempt)
                    elif attempt.job is not None and (progress := progress_of(attempt.job)):
                        progress.wrote(changes)
        if stale:
            # Settled meanwhile, or taken by others: the rows say which.
            self._ledger.reconcile_soon()
        return stale


def _has_news(attempt: Attempt) -> bool:
    progress = None if attempt.job is None else progress_of(attempt.job)
    return progress is not None and progress.unwritten() is not None


def _chunks(attempts: Iterable[Attempt]) -> Iterable[list[tuple[Attempt, int, bytes]]]:
    """What is new of each, in calls of a bounded size."""
    chunk: list[tuple[Attempt, int, bytes]] = []
    size = 0
    for attempt in attempts:
        progress = None if attempt.job is None else progress_of(attempt.job)
        new = None if progress is None else progress.unwritten()
        if new is None:
            continue
        if chunk and size + len(new[1]) > MOST_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append((attempt, *new))
        size += len(new[1])
    if chunk:
        yield chunk
